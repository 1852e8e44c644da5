"""HTML pages as tests see them: parsed, and in a real browser, where there is one."""
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(not CHROMIUM, reason="needs chromium")


def overflowing(html, width, tmp_path):
    """(width of the whole page, the elements that reach beyond the screen)."""
    (tmp_path / "frame.html").write_text(f"""<iframe style="width:{width}px;height:800px;border:0"
srcdoc="{escape(html)}" onload="
    const page = this.contentDocument, beyond = [...page.querySelectorAll('*')].filter(
        element => element.getBoundingClientRect().right > {width} + 1)
    document.title = 'wide ' + page.documentElement.scrollWidth + ' ' + beyond.map(
        element => element.tagName + '.' + element.className)"></iframe>""", encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,900",
         f"--user-data-dir={tmp_path}/browser", "--virtual-time-budget=5000", "--dump-dom",
         f"file://{tmp_path}/frame.html"],
        capture_output=True, text=True, timeout=120)
    found = re.search(r"<title>wide (\d+) (.*?)</title>", done.stdout)
    assert found, done.stderr
    return int(found[1]), found[2]


VOID_TAGS = {"meta", "img"}


class Parsed(HTMLParser):
    """Elements [(tag, attributes)] and texts; every element must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] != ["style"]:
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]
