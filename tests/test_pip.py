"""The product by pip alone, as a user has it: no Caffe, no clone, another directory (make test-package)."""
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM
from drawn_photographs import CLASSES, draw, table
from PIL import Image
from skimage import data
from test_package import find_python, run, sources

ROOT = Path(__file__).resolve().parents[1]


def clean():
    """The environment without what leads to the clone's own Python and package."""
    return {name: value for name, value in os.environ.items() if not re.match("PYTHON|VIRTUAL_ENV|PYTEST|CCNN", name)}


@pytest.fixture(scope="module", params=["3.11", "3.13"])
def user(request, tmp_path_factory):
    """command(line): what a user types in a folder of photographs, after `pip install ".[photos]"`."""
    place = tmp_path_factory.mktemp("user")
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    run(found, "-m", "venv", place / "venv")
    run(place / "venv/bin/python", "-m", "pip", "install", f"{sources(place / 'sources')}[photos]")
    (place / "work").mkdir()
    weights = ROOT / "data/vgg16_conv.caffemodel"
    if weights.is_file():                               # else the first command fetches them
        (place / "home").mkdir()
        (place / "home" / weights.name).symlink_to(weights)
    environment = {**clean(), "CCNN_HOME": str(place / "home"), "PATH": f"{place / 'venv/bin'}:{os.defpath}"}

    def start(line):
        return subprocess.Popen([str(place / "venv/bin" / line.split()[0]), *line.split()[1:]], cwd=place / "work",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def command(line, status=0):
        process = start(line)
        said = process.communicate()[1]
        assert process.returncode == status, said
        return said
    command.work, command.start = place / "work", start
    return command


def readme_commands():
    """What the README tells a user to type about photographs, in its order."""
    lines = (ROOT / "README.md").read_text().splitlines()
    return [line.partition("#")[0].strip() for line in lines if line.startswith("    ccnn ")]


class PipStudio:
    """The studio that a user has started, and its address."""

    def __init__(self, user, line, folder):
        self.process, self.folder = user.start(line), folder
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.process.stderr.read()

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


@pytest.mark.every_python
def test_what_the_readme_tells_about_photographs(user):
    """Every line of it: segment, the studio in a browser through one training, learn, segment with the model, export.
    No file is written into the package."""
    from test_studio_page import draw_photographs, playwright_api, tag_and_train
    packages, = (user.work.parent / "venv/lib").glob("python3*/site-packages")
    before = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    (user.work / "holiday").mkdir()
    Image.fromarray(data.chelsea()).save(user.work / "holiday/cat.jpg")
    photos = draw_photographs(user.work / "photos", 12, 2)          # not tagged yet
    draw(user.work / "new_photos", 4, 3)

    typed = readme_commands()
    assert {line.split()[1] for line in typed} == {"segment", "studio", "learn", "export"}
    for line in typed:
        if line.split()[1] == "studio":
            studio = PipStudio(user, f"{line} --no-browser", photos)
            try:
                with playwright_api.sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                    tag_and_train(browser, studio)
                    browser.close()
            finally:
                studio.end()
            assert (photos / "model.ccnn").is_file() and (photos / "tags.csv").is_file()
        else:
            user(line)
    mask = np.asarray(Image.open(user.work / "masks/cat.png"))
    assert mask.shape == data.chelsea().shape[:2] and (mask == 8).mean() > 0.2          # a cat
    assert (photos / "report.html").is_file() and len(list((user.work / "masks").glob("*.png"))) == 5
    assert (user.work / "model.onnx").stat().st_size > 50_000_000
    assert "nothing has changed" in user("ccnn learn photos")
    assert "run this in a clone" in user("ccnn make-nets", status=2)
    assert "pip does not install it: use another engine" in user("ccnn segment --engine caffe --out caffe holiday", 2)
    assert '"ccnn[figures]"' in user("ccnn show log tags.log --out curves.png", 2)
    explained = user.start("ccnn score --help").communicate()[0]
    assert "home/VOCdevkit/VOC2012)" in re.sub(r"\s", "", explained) and "repository" not in explained
    assert {path for path in packages.rglob("*") if "__pycache__" not in path.parts} == before


@pytest.mark.every_python
def test_the_masks_are_those_of_the_clone(user, root, tmp_path, python_bin):
    """Caffe's, in the clone, but for 0.1 % of the pixels: of the package's model, and of one that was just learned."""
    if not (ROOT / "data/vgg16_conv.caffemodel").is_file():
        pytest.skip("needs VGG-16: ccnn init-weights")
    (user.work / "street").mkdir()
    for name in ("chelsea", "coffee", "rocket"):
        Image.fromarray(getattr(data, name)()).save(user.work / f"street/{name}.png")
    masks = draw(user.work / "own", 8, 1)
    (user.work / "own/classes.txt").write_text("\n".join(CLASSES[1:]))
    (user.work / "own/tags.csv").write_text(table(masks))
    user("ccnn learn --no-check --steps 60 own")
    for model, photographs in (("", "street"), ("--model own/model.ccnn", "own")):
        user(f"ccnn segment {model} --no-overlay --out here {photographs}")
        words = [word if word[0] == "-" else user.work / word for word in model.split()]
        subprocess.run([python_bin, ROOT / "tools/infer.py", "--engine", "caffe", *words, "--no-overlay", "--out",
                        tmp_path, user.work / photographs], check=True, capture_output=True)
    found = list(tmp_path.glob("*.png"))
    assert len(found) == 3 + 8
    for path in found:
        ours, caffes = (np.asarray(Image.open(place / path.name)) for place in (user.work / "here", tmp_path))
        assert (ours != caffes).mean() < 1e-3, path.name


@pytest.mark.every_python
def test_without_the_extra_one_line_says_what_to_install(tmp_path):
    found = find_python("3.11")
    if found is None:
        pytest.skip("no Python 3.11 on this machine")
    run(found, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/python", "-m", "pip", "install", sources(tmp_path / "sources"))
    done = subprocess.run([tmp_path / "venv/bin/ccnn", "segment", "--out", "masks", "a.jpg"], cwd=tmp_path,
                          capture_output=True, text=True, env=clean())
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and 'pip install "ccnn[photos]"' in done.stderr
    listed = run(tmp_path / "venv/bin/python", "-m", "pip", "list")
    assert not re.search("pydensecrf|torch|pillow", listed, re.IGNORECASE)
