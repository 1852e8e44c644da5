"""The product by pip alone, as a user has it: no Caffe, no clone, another directory (make test-package)."""
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from drawn_photographs import CLASSES, draw
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
    def command(line, status=0):
        words = [str(place / "venv/bin" / line.split()[0]), *line.split()[1:]]
        done = subprocess.run(words, cwd=place / "work", capture_output=True, text=True, env={
            **clean(), "CCNN_HOME": str(place / "home"), "PATH": f"{place / 'venv/bin'}:{os.defpath}"})
        assert done.returncode == status, done.stderr
        return done
    command.work = place / "work"
    return command


@pytest.mark.every_python
def test_what_the_readme_tells_about_photographs(user, tmp_path):
    """Segment, learn, segment with the model, export; and no file is written into the package."""
    packages, = (user.work.parent / "venv/lib").glob("python3*/site-packages")
    before = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    (user.work / "holiday").mkdir()
    Image.fromarray(data.chelsea()).save(user.work / "holiday/cat.jpg")
    user("ccnn segment --out masks holiday")
    mask = np.asarray(Image.open(user.work / "masks/cat.png"))
    assert mask.shape == data.chelsea().shape[:2] and (mask == 8).mean() > 0.2          # a cat

    masks = draw(user.work / "photos", 12, 1)
    (user.work / "photos/classes.txt").write_text("\n".join(CLASSES[1:]))
    (user.work / "photos/tags.csv").write_text("image,tags\n" + "".join(
        f"{name}.jpg,{';'.join(CLASSES[label] for label in np.unique(mask)[1:])}\n" for name, mask in masks.items()))
    said = user("ccnn learn --no-check --steps 60 photos")
    assert "ready" in said.stderr and (user.work / "photos/report.html").is_file()
    user("ccnn segment --model photos/model.ccnn --out own holiday")
    user("ccnn export photos/model.ccnn model.onnx")
    assert (user.work / "model.onnx").stat().st_size > 50_000_000
    assert "nothing has changed" in user("ccnn learn --no-check --steps 60 photos").stderr
    assert {path for path in packages.rglob("*") if "__pycache__" not in path.parts} == before


@pytest.mark.every_python
def test_the_masks_are_those_of_the_clone(user, root, tmp_path, python_bin):
    """Caffe's, in the clone, but for 0.1 % of the pixels."""
    if not (ROOT / "data/vgg16_conv.caffemodel").is_file():
        pytest.skip("needs VGG-16: ccnn init-weights")
    (user.work / "street").mkdir()
    for name in ("chelsea", "coffee", "rocket"):
        Image.fromarray(getattr(data, name)()).save(user.work / f"street/{name}.png")
    user("ccnn segment --no-overlay --out here street")
    subprocess.run([python_bin, ROOT / "tools/infer.py", "--engine", "caffe", "--no-overlay", "--out", tmp_path,
                    user.work / "street"], check=True, capture_output=True)
    for path in tmp_path.glob("*.png"):
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
