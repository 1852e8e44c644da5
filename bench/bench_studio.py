#!/usr/bin/env python3
"""Measure the studio's page in a real browser.

    bench/bench_studio.py                       # 5,000 drawn photographs: first paint, scrolling
    bench/bench_studio.py --tagged photos       # and a session: tag 60 of photos/tags.csv by keyboard, and train
    bench/bench_studio.py --tagged photos --quick               # few photographs, few steps: does it run?
    bench/bench_studio.py --tagged photos --out docs            # also write the report there

Of the many photographs: the time to the first paint, until the window is full, and of the frames while it scrolls. Of
the session: the seconds from the first key to the first masks and to the final model, and how long the server takes to
answer while the training runs on all cores (the aim: under 100 ms). Wants quiet cores.

Needs chromium and the packages of requirements/studio.txt and test-studio.txt (make test-studio installs them). The
photographs of the other folder, which has a tags.csv and a classes.txt as tools/learn.py takes them, are copied to
output/bench_studio; nothing is written to it. Only its tags are used.
"""
import contextlib
import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import machine, publish
from PIL import Image
from tqdm import tqdm

from ccnn._util.errors import UserError
from ccnn._util.paths import ROOT
from ccnn.cli import command

WORK = ROOT / "output/bench_studio"

SIZE = 240, 180         # of a drawn photograph, in pixels

FRAMES = 300            # of scrolling

MINUTE = 60_000         # milliseconds

# Scroll by so many pixels in each frame, for so many frames; return the times between frames in milliseconds.
SCROLL = """([pixels, frames]) => new Promise(resolve => {
    const box = document.getElementById("grid"), times = []
    let last = null
    requestAnimationFrame(function frame(now) {
        if (last !== null) times.push(now - last)
        last = now
        box.scrollTop += pixels
        if (times.length < frames) requestAnimationFrame(frame)
        else resolve(times)
    })
})"""

# Whether every photograph in the window is there.
FILLED = """() => {
    const box = document.getElementById("grid")?.getBoundingClientRect()
    const cells = [...document.querySelectorAll(".cell")].filter(cell => {
        const {top, bottom} = cell.getBoundingClientRect()
        return bottom > box.top && top < box.bottom
    })
    return cells.length > 0 && cells.every(cell => cell.classList.contains("loaded"))
}"""

# How long the server takes to answer, in milliseconds.
ANSWER = """async ([path, body]) => {
    const start = performance.now()
    const answer = await fetch(path, body && {method: "POST", body, headers: {"Content-Type": "application/json"}})
    await answer.arrayBuffer()
    return answer.ok ? performance.now() - start : null
}"""

# What a person asks for while the training runs: {what: (address, body)}.
QUESTIONS = {"the state": ("/api/state", None), "a mask": ("/api/photographs/0/mask.png?side=320", None),
             "p under a moved bound": ("/api/photographs/0/solve", '{"bounds": {"0": [0.4, 0.5]}}')}

ANSWERED = """async number => (await (await fetch("/api/predictions")).json()).predictions.length === number"""

PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main(argv=None):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--tagged", type=Path, metavar="DIR", help="a folder as tools/learn.py takes it: record a session, too")
    add("--count", type=command.count, default=5000, metavar="N", help="drawn photographs (default: %(default)s)")
    add("--quick", action="store_true", help="60 drawn photographs; 8 and few steps in the session")
    add("--out", type=Path, metavar="DIR", help="write the report there")
    args = parser.parse_args(argv)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as missing:
        raise UserError(f"{missing}; `make test-studio` installs what this needs") from None
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        raise UserError("no chromium on the path; install the package of your system")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        parts = [scrolling(browser, min(args.count, 60) if args.quick else args.count)]
        if args.tagged:
            parts.append(session(browser, args.tagged, *((8, "--steps", "40") if args.quick else (60,))))
        publish(report(parts), args.out, "bench_studio.md")
        browser.close()


@contextlib.contextmanager
def studio(folder, *options):
    """Run the studio on a folder; yield its address."""
    process = subprocess.Popen([sys.executable, ROOT / "tools/studio.py", folder, "--no-browser", "--port", "8399",
                                *options], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise UserError(f"the studio did not start on {folder}")
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


# --- many photographs ----------------------------------------------------------------------------------------------

def scrolling(browser, count):
    folder = draw(WORK / f"drawn_{count}", count)
    rows = []
    with studio(folder) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(10 * MINUTE)
        for visit in ("first visit", "again"):
            start = time.monotonic()
            page.goto(address, wait_until="commit")
            page.wait_for_function(FILLED)
            rows.append((f"{visit}: to the first paint", f"{page.evaluate(PAINT):.0f} ms"))
            rows.append((f"{visit}: until every photograph in the window is there",
                         f"{1000 * (time.monotonic() - start):.0f} ms"))
        for name, pixels in (("slow, 8 pixels per frame", 8), ("fast, 120", 120), ("flying, 2000", 2000)):
            page.evaluate("document.getElementById('grid').scrollTop = 0")
            before = processor_time(browser)
            times = np.array(page.evaluate(SCROLL, [pixels, FRAMES]))
            work = 1000 * (processor_time(browser) - before) / FRAMES
            rows.append((f"scrolling {name}: time of a frame, median, 95 %, longest; processor time of the page in it",
                         ", ".join(f"{v:.0f} ms" for v in (*np.percentile(times, [50, 95]), times.max()))
                         + f"; {work:.1f} ms"))
        start = time.monotonic()
        page.evaluate("document.getElementById('grid').scrollTop = document.getElementById('grid').scrollHeight / 2")
        page.wait_for_function(FILLED)
        rows.append(("a jump to the middle, until the photographs are there",
                     f"{1000 * (time.monotonic() - start):.0f} ms"))
        rows.append(("elements of photographs at that time", page.locator(".cell").count()))
        start = time.monotonic()
        page.keyboard.press("Control+a")
        page.wait_for_selector(".cell[aria-selected=true]")
        rows.append(("Ctrl+A", f"{1000 * (time.monotonic() - start):.0f} ms"))
    return f"{count} drawn photographs", rows


def processor_time(browser):
    """Seconds that the page's process has computed: other programs do not count."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(process["cpuTime"] for process in processes if process["type"] == "renderer")


def draw(folder, count):
    """Small photographs, no two alike: a disc on a ground."""
    folder.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:SIZE[1], :SIZE[0]]
    for k in tqdm(range(count), "drawing", disable=None):
        path = folder / f"{k:05}.jpg"
        if path.exists():
            continue
        rng = np.random.default_rng(k)
        image = rng.integers(60, 200, 3) + rng.normal(0, 8, (*y.shape, 1))
        disc = np.hypot(y - rng.uniform(50, 130), x - rng.uniform(60, 180)) < rng.uniform(20, 60)
        image[disc] = rng.integers(0, 255, 3)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path, quality=85)
    return folder


# --- a session -----------------------------------------------------------------------------------------------------

def session(browser, tagged, count, *options):
    """Tag by keyboard, as a quick person does; train as soon as all are tagged."""
    classes, tags = read_tags(tagged, count)
    folder = WORK / "session"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in tags:
        shutil.copyfile(tagged / name, folder / name)
    with studio(folder, *options) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(30 * MINUTE)
        page.goto(address)
        page.wait_for_selector(".cell")
        start = time.monotonic()
        rows = []

        def stamp(what):
            rows.append((what, f"{time.monotonic() - start:.1f} s"))
        tag_by_keyboard(page, classes, tags)
        stamp(f"{len(classes)} classes typed, {len(tags)} photographs tagged")
        page.locator("#train").click()
        page.wait_for_selector("#loss polyline", state="attached")
        stamp("the loss curve begins")
        page.wait_for_selector("img.mask")
        stamp("the first mask on the grid")
        answers = answer_times(page)
        problem = page.locator("#train-problem").text_content()
        if problem:
            raise UserError(f"the training failed: {problem}")
        page.wait_for_function("() => document.getElementById('model').textContent.startsWith('Model:')")
        stamp("the final model")
        rows += answers
        page.wait_for_function(ANSWERED, arg=len(tags))
        disputed = page.locator("#filter option[value=disputed]")
        rows.append(("photographs", disputed.text_content() if disputed.count() else "none disputed"))
        rows.append(("what the page says", page.locator("#model").text_content()))
        page.screenshot(path=WORK / "session.png")
    return f"A session of {len(tags)} photographs, tags alone", rows


def read_tags(tagged, count):
    """(classes, {photograph: labels}), in the order of the page."""
    classes = (tagged / "classes.txt").read_text().splitlines()
    with open(tagged / "tags.csv", newline="") as file:
        tags = {row["image"]: [classes.index(name) + 1 for name in row["tags"].split(";") if name]
                for row in csv.DictReader(file)}
    return classes, dict(sorted(tags.items())[:count])


def tag_by_keyboard(page, classes, tags):
    for name in classes:
        page.keyboard.press("/")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.wait_for_selector(f".key:has-text('{name}')")
    for labels in tags.values():
        for label in labels or [0]:
            page.keyboard.press(f"{label}")
        page.wait_for_timeout(400)                      # a person looks at the next one
        page.keyboard.press("ArrowRight")


def answer_times(page):
    """Ask until the training ends: [(what, times)]."""
    answers = {what: [] for what in QUESTIONS}
    while not page.locator("#train").is_visible():
        for what, question in QUESTIONS.items():
            milliseconds = page.evaluate(ANSWER, question)
            if milliseconds is not None:                # else refused: there is no model yet
                answers[what].append(milliseconds)
        page.wait_for_timeout(300)
    return [(f"answer while it trains, {what}: median, 95 %, longest of {len(times)}",
             ", ".join(f"{v:.0f} ms" for v in (*np.percentile(times, [50, 95]), max(times))) if times else "none")
            for what, times in answers.items()]


def report(parts):
    """parts : [(title, [(what, value)])]"""
    load = f"{os.getloadavg()[1]:.0f} processes wanted to run at a time, with others' (load of 5 minutes)."
    lines = ["# The studio's page, measured in a browser", "", f"`bench/bench_studio.py --tagged DIR`. {machine()}", "",
             load, ""]
    for title, rows in parts:
        lines += [f"## {title}", "", "| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    command.run(main)
