"""A real browser, where there is one: how wide a page is on a screen of a given width."""
import re
import shutil
import subprocess
from html import escape

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
