"""The manual: README and docs/. Every link leads somewhere, every command is one, and a section is typed."""
import contextlib
import io
import re
import shlex
import shutil
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from repository_copy import copy_of_repository, environment
from sample_voc import make_sample
from skimage import data

import ccnn
from ccnn._util.paths import DATA
from ccnn.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    """The indented blocks of a page, with the lines that end in a backslash joined to the next."""
    return [re.sub(r"\\\n *", "", re.sub("(?m)^    ", "", block))
            for block in re.findall(r"(?m)(?<=\n\n)(?:^    .*\n)+", page.read_text())]


def commands(page):
    """[(command, [word, ...])] of a page: ccnn NAME or tools/NAME.py, in blocks and between backticks."""
    lines = [line for block in blocks(page) for line in block.splitlines()]
    lines += [" ".join(words.split()) for words in re.findall("`([^`]+)`", page.read_text())]
    for line in lines:
        found = re.match(r"(?:ccnn ([a-z][a-z-]*)|tools/([a-z]\w*)\.py)(?= |$)(.*)", line.partition("  #")[0])
        if found:
            yield found[1] or command_of(found[2]), shlex.split(found[3], comments=True)


def command_of(tool):
    """The command behind tools/TOOL.py."""
    return "segment" if tool == "infer" else tool.replace("_", "-")


@cache
def help_of(name):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        import_module(f"ccnn.cli.{name.replace('-', '_')}").main(["--help"])
    return text.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_known_with_their_options(page):
    for name, words in commands(page):
        assert name in COMMANDS, f"{page.name}: ccnn {name}"
        for word in words:
            option = word.partition("=")[0]
            assert not re.match("--[a-z]", option) or re.search(rf"{option}\b", help_of(name)), \
                f"{page.name}: ccnn {name} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_pages_are_found():
    """A pattern that matches nothing would let everything pass."""
    found = [name for page in PAGES for name, _ in commands(page)]
    assert {"segment", "learn", "studio", "export", "train", "score", "show"} <= {*found} and len(found) > 50
    assert [name for name, _ in commands(ROOT / "README.md")][:2] == ["segment", "studio"]


STEPS = 2           # for 5290 and 529 iterations


@pytest.mark.skipif(not (DATA / "vgg16_conv.caffemodel").exists(), reason="needs VGG-16: ccnn init-weights")
def test_the_paper_on_two_cores_as_typed(root, tmp_path):
    """docs/paper.md from the features to the masks, head and conv5, on four photographs and for fewer iterations."""
    place = copy_of_repository(root, tmp_path / "repository")
    voc = make_sample(place / "data/VOCdevkit/VOC2012")
    (voc / "ImageSets/Segmentation/train_aug.txt").write_text((voc / "ImageSets/Segmentation/train.txt").read_text())
    (place / "holiday").symlink_to(voc / "JPEGImages")
    for solver in ("head_size", "conv5_size"):
        path = place / f"solvers/{solver}.prototxt"
        path.write_text(re.sub(r"(?m)^(max_iter|snapshot|iter_size): \d+", rf"\1: {STEPS}", path.read_text()))
    head, conv5 = (next(block for block in blocks(root / "docs/paper.md") if f"solvers/{solver}.prototxt" in block)
                   for solver in ("head_size", "conv5_size"))
    for block, trained in ((head, 5290), (conv5, 529)):
        script = re.sub(r"iter_\d+", f"iter_{STEPS}", block).replace("--out masks", f"--out masks_{trained}")
        done = subprocess.run(["bash", "-euc", script], cwd=place, capture_output=True, text=True,
                              env={**environment(root, place), "CCNN_HOME": str(place / "data")})
        assert done.returncode == 0, done.stderr[-3000:]
        assert {path.stem for path in (place / f"masks_{trained}").glob("*.png")} == \
            {path.stem for path in (voc / "JPEGImages").iterdir()}


def code(page, words):
    """The blocks of a page that hold one of the words."""
    return [block for block in blocks(page) if re.search(words, block)]


def test_the_pages_for_numpy_as_typed():
    """docs/library.md, the solver; docs/crf.md."""
    rng = np.random.default_rng(1)
    solver = code(ROOT / "docs/library.md", r"ccnn\.maximize|ccnn\.Constraints")
    crf = re.findall(r"```python\n(.*?)```", (ROOT / "docs/crf.md").read_text(), re.DOTALL)
    assert len(solver) == 2 and len(crf) == 2
    L, n, shape = 4, 35, (5, 7)
    f = rng.normal(size=(L, n)).astype("f4")
    c = ccnn.tag_constraints([True, True, True, False])
    y, x = np.indices(shape, "f4")
    typed = {"np": np, "L": L, "n": n, "sky": 1, "ground": 2, "f": f, "present": c.allowed, "c": c, "c1": c, "c2": c,
             "diff": np.empty_like(f), "F": np.stack([f, f]), "D": np.empty((2, L, n), "f4"),
             "rgb": rng.integers(0, 256, (*shape, 3)).astype("u1"), "scores": f.reshape(L, *shape), "x": x, "y": y,
             "depth": x * y, "cost": 1 - np.eye(L, dtype="f4")}
    for block in [*solver, *crf]:
        exec(block, typed)
    assert typed["s"].status == "optimal" and typed["c"].A.shape[0] == c.A.shape[0] + 1
    np.testing.assert_allclose(typed["q"].sum(axis=0), 1, atol=1e-5)


@pytest.mark.skipif(not (DATA / "vgg16_conv.caffemodel").exists(), reason="needs VGG-16: ccnn init-weights")
def test_models_for_arrays_as_typed(tmp_path, monkeypatch):
    """The other section of docs/library.md."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    shutil.copy(ROOT / "models/head_size.ccnn", "photos/model.ccnn")
    rgb = data.chelsea()[::3, ::3]
    typed = {"ccnn": ccnn, "np": np, "rgb": rgb, "photographs": [rgb, rgb[:, ::-1], rgb[::-1]], "others": [rgb],
             "true_masks": [np.zeros(rgb.shape[:2], "u1")]}
    models, segmenter = code(ROOT / "docs/library.md", "load_model|Segmenter")
    exec(models, typed)
    assert "cat" in [typed["model"].classes[label] for label in np.unique(typed["mask"])]
    exec(segmenter, typed)
    assert typed["masks"][0].shape == rgb.shape[:2] and ccnn.load_model("pets.ccnn").classes[1:] == ("cat", "dog")
