"""Draw docs/studio.jpg and docs/studio_photograph.jpg: the studio, trained on pieces of photographs of scikit-image.

    make .caffe/packages/studio.txt .caffe/packages/test-studio.txt
    .caffe/bin/python docs/make_studio_pictures.py
"""
import io
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from skimage import data

SIZE, MINUTES, QUALITY = (1280, 760), 20, 62

MASKS_ARE_THERE = """() => [...document.querySelectorAll(".cell:not([data-state=none])")].every(
    cell => cell.querySelector("img.mask"))"""

PIECES = 6                      # of each photograph

PHOTOGRAPHS = {"cat": data.chelsea, "cup": data.coffee, "motorcycle": lambda: data.stereo_motorcycle()[0],
               "": data.grass, " ": data.gravel}


def write_photographs(folder):
    """Pieces of the photographs, every second one mirrored, and their tags."""
    rng, rows = np.random.default_rng(0), ["image,tags"]
    for name, photograph in PHOTOGRAPHS.items():
        image = Image.fromarray(photograph()).convert("RGB")
        for k in range(PIECES if name.strip() else PIECES // 3):
            width, height = (round(side * rng.uniform(0.75, 1)) for side in image.size)
            left, top = (rng.integers(0, whole - part + 1) for whole, part in zip(image.size, (width, height)))
            piece = image.crop((left, top, left + width, top + height))
            piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if k % 2 else piece
            piece.thumbnail((500, 500))
            rows.append(f"{len(rows) - 1:02}.jpg,{name.strip()}")
            piece.save(folder / rows[-1].split(",")[0], quality=92)
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    (folder / "classes.txt").write_text("cat\ncup\nmotorcycle\n")


@contextmanager
def studio(folder):
    process = subprocess.Popen([sys.executable, "-m", "ccnn", "studio", str(folder), "--no-browser"], text=True,
                               stdout=subprocess.PIPE)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def save(page, name):
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(
        [side * 13 // 16 for side in SIZE], Image.Resampling.LANCZOS)
    picture.save(Path(__file__).with_name(name), quality=QUALITY, optimize=True)


def main():
    folder = Path(tempfile.mkdtemp()) / "photos"
    folder.mkdir()
    write_photographs(folder)
    with studio(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        expect.set_options(timeout=MINUTES * 60_000)
        page = browser.new_page(viewport=dict(zip(("width", "height"), SIZE)), reduced_motion="reduce")
        page.goto(address)
        page.locator("#train").click()
        expect(page.locator("#model")).to_contain_text("Model:")
        expect(page.locator("#train")).to_be_visible()
        page.reload()                                       # so that no message lies on the photographs
        expect(page.locator("#folder")).to_have_text(folder.name)
        page.wait_for_function(MASKS_ARE_THERE, timeout=MINUTES * 60_000)
        save(page, "studio.jpg")

        page.locator(".cell", has_text="motorcycle").first.dblclick()
        expect(page.get_by_role("slider", name="motorcycle: at least")).to_be_visible()
        page.locator("#overlay").evaluate("overlay => overlay.decode()")
        page.keyboard.press("b")
        box = page.locator("#sheet").bounding_box()
        page.mouse.move(box["x"] + 0.84 * box["width"], box["y"] + 0.73 * box["height"])
        page.mouse.down()
        for x, y in ((0.83, 0.82), (0.88, 0.88), (0.95, 0.86)):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=8)
        page.mouse.up()
        expect(page.locator("#overlay")).to_have_attribute("src", re.compile("r="))
        page.locator("#overlay").evaluate("overlay => overlay.decode()")
        page.keyboard.press("l")
        page.mouse.move(box["x"] + 0.73 * box["width"], box["y"] + 0.42 * box["height"])
        save(page, "studio_photograph.jpg")
        browser.close()
    shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
