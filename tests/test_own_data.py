"""The section "Your own photographs" of docs/photographs.md, to the letter, and again after each kind of change."""
import json
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from drawn_photographs import CLASSES, SHAPE, draw, photograph, table
from PIL import Image
from repository_copy import copy_of_repository, environment
from tiny_voc import annotation
from waiting import LIMIT, wait_for

from ccnn._util.errors import UserError
from ccnn.annotations.tags import read_tags
from ccnn.cli import learn
from ccnn.images.masks import mask_classes
from ccnn.images.overlays import overlay
from ccnn.images.reading import read_image, read_mask
from ccnn.inference.model_file import read_model
from ccnn.project.learn import RECIPE


@pytest.fixture(scope="module")
def blocks(root):
    """The indented blocks of the section, by their first words."""
    section = (root / "docs/photographs.md").read_text().split("\n## Your own photographs\n")[1].split("\n## ")[0]
    found = [re.sub("(?m)^    ", "", block) for block in re.findall("(?m)(?:^    .*\n)+", section)]
    return {block.split()[0]: block for block in found}


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    """A copy of the repository, in which the section's commands may be typed."""
    return copy_of_repository(root, tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def run(root, place):
    def run(script):
        return subprocess.run(["bash", "-euc", script], cwd=place, env=environment(root, place), capture_output=True,
                              text=True)
    return run


def said(done):
    """The lines of the tool itself."""
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stderr.splitlines() if line.startswith(("learn.py:", "infer.py:", "ccnn "))]


def complaint(done):
    """The one line with which a tool ends."""
    assert done.returncode == 2, done.stderr
    line, = done.stderr.splitlines()
    return line


def miou(truth, found):
    """Mean over the labels of intersection / union, in per cent."""
    pairs = sum(np.bincount(3 * truth[name].ravel() + found[name].ravel(), minlength=9) for name in truth)
    C = pairs.reshape(3, 3)
    return 100 * np.mean(C.diagonal() / (C.sum(0) + C.sum(1) - C.diagonal()))


def found_by_name(folder, names):
    """{photograph: mask with the labels of CLASSES}, by the names that each mask carries."""
    masks = {}
    for name in names:
        labels = [CLASSES.index(c.replace("hound", "dog")) for c in mask_classes(folder / f"{name}.png")]
        masks[name] = np.array(labels, np.uint8)[read_mask(folder / f"{name}.png", 3)]
    return masks


GOOD = 45           # mIoU of the drawn photographs; seen: 62 and more


@pytest.fixture(scope="module")
def truth(place):
    return draw(place / "new_photos", 12, seed=2)


@pytest.fixture(scope="module")
def photos(blocks, place, truth, run):
    """The folder after the section's commands."""
    masks = draw(place / "photos", 40, seed=1)
    (place / "photos/classes.txt").write_text("cat\ndog\n")
    (place / "photos/tags.csv").write_text(table(masks))
    done = run(blocks["ccnn"])
    assert "ccnn learn: photos: 40 photographs, cat in 20, dog in 20" in said(done)
    return place / "photos"


def test_the_commands_of_the_page_learn_two_classes(blocks, place, photos, truth):
    example = place / "example.csv"
    example.write_text(blocks["image,tags,large"])
    assert [tuple(present[1:]) for present, _ in read_tags(example, CLASSES).values()] == [(1, 1), (0, 1), (0, 0)]
    assert len(blocks["ccnn"].strip().splitlines()) == 2

    # 1. the masks are those of cats and dogs
    found = found_by_name(place / "masks", truth)
    nothing = {name: np.zeros_like(mask) for name, mask in truth.items()}
    assert miou(truth, nothing) < 25
    assert miou(truth, found) > GOOD

    # 2. masks and legends have their names
    name = next(name for name, mask in found.items() if len(np.unique(mask)) == 3)
    assert mask_classes(place / f"masks/{name}.png") == list(CLASSES)
    image = read_image(place / f"new_photos/{name}.jpg")
    for classes, same in ((CLASSES, True), (("background", "cow", "pig"), False)):
        overlay(image, found[name], classes).save(place / "expected.jpg", quality=90, subsampling=0)
        shown, expected = (read_image(place / path) for path in (f"masks/overlay/{name}.jpg", "expected.jpg"))
        assert np.array_equal(shown, expected) == same

    # 3. the report shows every photograph, and what was found on photographs held out
    page = (photos / "report.html").read_text()
    assert page.count("<figure>") == 40 and "Each photograph was held out once: 3 short trainings" in page
    assert " --model photos/model.ccnn --out masks new_photos" in page
    found, tagged = map(int, re.search(r'<th scope="row">.*cat.*<td>(\d+)</td>\s*<td>(\d+)</td>', page).groups())
    assert found + tagged == 20 and found > 12

    # 4. so does the model
    tally = read_model(photos / "model.ccnn").about["scores"]["tags held out"]["cat"]
    assert (tally["found"], tally["missed"]) == (found, tagged)

    # 5. nothing but this was written into the folder
    assert {path.name for path in photos.iterdir() if path.suffix != ".jpg"} == \
        {".ccnn", "classes.txt", "tags.csv", "model.ccnn", "report.html"}


def state(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_nothing_is_done_twice(photos, run):
    before = state(photos)
    done = run("tools/learn.py photos")
    assert done.stderr.splitlines() == ["learn.py: photos/model.ccnn: nothing has changed since it was trained; "
                                        "--again trains it again"] and not done.stdout
    assert state(photos) == before
    (photos / "tags.csv").write_text("".join(sorted((photos / "tags.csv").read_text().splitlines(True), reverse=True)))
    (photos / "tags.csv").write_text("image,tags,large\n" + (photos / "tags.csv").read_text().replace(
        "image,tags,large\n", ""))
    assert "nothing has changed" in said(run("tools/learn.py photos"))[0]        # another order of the rows is none


class Change(NamedTuple):
    change: Callable        # what is done to the folder
    says: str               # what learn.py calls it
    options: str = ""


def rewrite(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
    return change


def add_photograph(folder):
    photograph(np.random.default_rng(99), (1,))[0].save(folder / "late.jpg", quality=95)
    with open(folder / "tags.csv", "a") as file:
        file.write("late.jpg,cat,cat\n")


def replace_photograph(folder):
    photograph(np.random.default_rng(98), (1,))[0].save(folder / "0.jpg", quality=95)


def remove_photograph(folder):
    (folder / "late.jpg").unlink()
    rewrite("tags.csv", "late.jpg,cat,cat\n", "")(folder)


CHANGES = {         # each on the folder that the ones before it left
    "order": Change(rewrite("classes.txt", "cat\ndog\n", "dog\ncat\n"), "classes.txt: the order changed"),
    "new": Change(lambda folder: [
        rewrite("tags.csv", "\n3.jpg,,\n", "\n3.jpg,cat,\n")(folder), add_photograph(folder),
        (folder / "constraints.toml").write_text("[cat]\nmost = 0.6\n")],
        "1 new photograph: late.jpg; tags of 1 photograph changed: 3.jpg; constraints.toml is new"),
    "replaced": Change(lambda folder: [
        rewrite("tags.csv", "\n3.jpg,cat,\n", "\n3.jpg,,\n")(folder), remove_photograph(folder),
        replace_photograph(folder), rewrite("tags.csv", "\n0.jpg,cat,cat\n", "\n0.jpg,cat,\n")(folder)],
        "1 photograph removed: late.jpg; 1 photograph replaced: 0.jpg; tags of 1 photograph changed: 3.jpg; "
        "sizes of 1 photograph changed: 0.jpg; --steps is 300, and was not given", "--steps 300"),
    "name": Change(lambda folder: [rewrite("classes.txt", "dog", "hound")(folder),
                                   rewrite("tags.csv", "dog", "hound")(folder)],
                   "classes.txt: 'hound' is new; classes.txt: 'dog' is removed"),
}


def test_after_each_change_the_masks_carry_the_right_names(photos, place, truth, run):
    features = photos / ".ccnn/features"
    for kind, change in CHANGES.items():
        model, computed = (photos / "model.ccnn").read_bytes(), state(features)
        change.change(photos)
        lines = said(run(f"tools/learn.py --no-check {change.options} photos"))
        assert f"; training again, because {change.says}" in lines[0], lines
        assert (photos / "model.ccnn").read_bytes() != model

        # features are those of the photographs that are there now
        again = {path.name for path, at in state(features).items() if computed.get(path) != at}
        assert again == {"photographs.json", *{"new": ["late.npy"], "replaced": ["0.npy"]}.get(kind, [])}
        for size in RECIPE.sizes:
            assert (features / f"{size}/late.npy").exists() == (photos / "late.jpg").exists()

        # masks of another model do not mix with those of this one
        command = "tools/infer.py --model photos/model.ccnn --out masks --no-overlay new_photos"
        if kind == "order":
            assert "masks/0.png and 11 more: made with different settings" in complaint(run(command))
        assert run(f"{command} --force").returncode == 0
        assert mask_classes(place / "masks/0.png") == ["background", *(photos / "classes.txt").read_text().split()]
        found = found_by_name(place / "masks", truth)
        assert miou(truth, found) > GOOD, kind
        swapped = {name: np.array([0, 2, 1], np.uint8)[mask] for name, mask in found.items()}
        assert miou(truth, swapped) < 35                    # the background alone makes 33
    assert [path.name for path in (photos / ".ccnn/runs").rglob("*.caffemodel")] == ["second_iter_400.caffemodel"]


def test_what_is_missing_is_made_again_without_training(photos, run):
    model = (photos / "model.ccnn").read_bytes()
    options = "--no-check"
    (photos / "model.ccnn").write_bytes(b"not a model")
    lines = said(run(f"tools/learn.py {options} photos"))
    assert "is missing or was replaced; writing it again from the trained weights" in lines[0]
    assert any("replacing photos/model.ccnn" in line for line in lines)
    assert (photos / "model.ccnn").read_bytes() == model
    (photos / "report.html").unlink()
    assert "nothing has changed" in said(run(f"tools/learn.py {options} photos"))[0]
    assert (photos / "report.html").is_file() and (photos / "model.ccnn").read_bytes() == model
    (photos / ".ccnn/state.json").write_text("{")
    lines = said(run(f"tools/learn.py {options} photos"))
    assert "state.json: is damaged; training again" in lines[0]


@pytest.mark.faults
def test_a_stopped_training_goes_on_but_not_for_another_question(place, root, photos, run):
    command = ["tools/learn.py", "--no-check", "--steps", "20000", "photos"]
    process = subprocess.Popen(command, cwd=place, env=environment(root, place), stderr=subprocess.PIPE, text=True)
    stopped = wait_for(lambda: [*(photos / ".ccnn/runs").glob("*/first_iter_1000.solverstate")], "a snapshot", process)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130 and "stopped; the same command resumes" in error

    rewrite("tags.csv", "\n3.jpg,,\n", "\n3.jpg,cat,\n")(photos)         # another question
    done = subprocess.Popen(command, cwd=place, env=environment(root, place), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: {*(photos / ".ccnn/runs").glob("*/*.log")} - {*stopped[0].parent.glob("*.log")}, "its log", done)
    done.send_signal(signal.SIGINT)
    assert "resuming" not in done.communicate(timeout=LIMIT)[1]

    rewrite("tags.csv", "\n3.jpg,cat,\n", "\n3.jpg,,\n")(photos)
    again = subprocess.Popen(command, cwd=place, env=environment(root, place), stderr=subprocess.PIPE, text=True)
    lines = []
    for line in again.stderr:
        lines.append(line)
        if "resuming at step" in line:
            break
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=LIMIT)
    assert int(re.search(r"resuming at step (\d+) of 20000", lines[-1])[1]) >= 1000


@pytest.mark.faults
def test_a_stop_in_the_second_round_changes_nothing(place, root, photos, run):
    command = ["tools/learn.py", "--no-check", "--steps", "400", "photos"]
    process = subprocess.Popen(command, cwd=place, env=environment(root, place), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: [*(photos / ".ccnn/runs").glob("*/second_iter_50.solverstate")], "a snapshot", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LIMIT) == 130
    labels = {path: path.read_bytes() for path in (photos / ".ccnn/labels").iterdir()}
    lines = said(run("tools/learn.py --no-check --steps 400 photos"))
    going_on, = [line for line in lines if "resuming at step" in line]          # the first round is not done again
    assert 50 <= int(re.search(r"at step (\d+) of 400", going_on)[1]) < 400
    assert {path: path.read_bytes() for path in (photos / ".ccnn/labels").iterdir()} == labels and len(labels) == 40
    stopped = read_model(photos / "model.ccnn")
    assert stopped.about["training"]["iterations"] == 800

    said(run("tools/learn.py --no-check --again --steps 400 photos"))
    assert read_model(photos / "model.ccnn").fingerprint == stopped.fingerprint


def test_features_of_an_earlier_version_are_computed_again(photos, run):
    features = photos / ".ccnn/features"
    before = (features / "224/0.npy").read_bytes()
    shutil.copy(features / "224/0.npy", features / "0.npy")                     # as it was before there were two sizes
    (features / "224/index.json").write_text(json.dumps({"size": 200, "weights": "w", "trunk": "t"}))
    np.save(features / "224/0.npy", np.zeros_like(np.load(features / "224/0.npy")))     # whole, but of another trunk
    (photos / "report.html").unlink()
    lines = said(run("tools/learn.py --no-check --steps 400 photos"))
    assert any("features: held features of an earlier version; computing them again" in line for line in lines)
    assert any("224: holds features of another size (200, now 224); computing them again" in line for line in lines)
    assert (features / "224/0.npy").read_bytes() == before
    assert sorted(path.name for path in features.iterdir()) == ["224", "321"]


# What else the section says

def test_annotations_will_do_and_folders_may_have_any_name(place, run):
    folder = place / "Bob's_Bäume"
    masks = draw(folder, 8, seed=3)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "Annotations").mkdir()
    for name, mask in masks.items():
        write_annotation(folder, name, mask)
    command = 'tools/learn.py --steps 4 "Bob\'s_Bäume"'
    assert "8 photographs, cat in 4, dog in 4" in said(run(command))[0]
    page = (folder / "report.html").read_text()
    assert "<dd>boxes</dd>" in page and page.count("<figure>") == 8

    moved = (folder / "Annotations/1.xml").read_text()
    (folder / "Annotations/1.xml").write_text(re.sub(r"<xmin>(\d+)", "<xmin>1", moved))
    unlisted = (folder / "Annotations/5.xml").read_text()
    (folder / "Annotations/5.xml").write_text(unlisted.replace("dog", "dgo"))
    lines = said(run(f"{command} --no-check"))
    assert "boxes of 2 photographs changed: 1.jpg, 5.jpg" in lines[0]
    assert any("classes.txt does not list" in line and "'dgo' (1), did you mean 'dog'?" in line for line in lines)


def write_annotation(folder, name, mask):
    boxes = []
    for label in set(np.unique(mask)) - {0}:
        y, x = np.nonzero(mask == label)
        boxes.append((CLASSES[label], x.min() + 1, y.min() + 1, x.max() + 1, y.max() + 1))
    (folder / f"Annotations/{name}.xml").write_text(annotation(name, SHAPE[::-1], boxes))


def test_scribbles_are_learned_from(place, run):
    folder = place / "scribbled"
    masks = draw(folder, 8, seed=6)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "tags.csv").write_text(table(masks, "image,tags"))
    (folder / "constraints.toml").write_text('[scribbles]\nfolder = "scribbles"\n')
    (folder / "scribbles").mkdir()
    marked = {}
    for name in ("0", "3"):                                 # in a cat; on a lawn, which has no tag
        marked[name] = np.full(SHAPE, 255, np.uint8)
        inside = np.argwhere(masks[name] == (1 if name == "0" else 0))
        for y, x in inside[::len(inside) // 12]:
            marked[name][y:y + 3, x:x + 3] = masks[name][y, x]
        Image.fromarray(marked[name]).save(folder / f"scribbles/{name}.png")
    command = "tools/learn.py --no-check --steps 4 scribbled"
    assert "8 photographs, cat in 4, dog in 4" in said(run(command))[0]
    labels = read_mask(folder / ".ccnn/labels/0.png", 3)
    assert (labels[8:73:8, 8:89:8][marked["0"][8:73:8, 8:89:8] == 1] == 1).all() and (labels == 1).any()

    # 1. a scribble that has changed is another question   2. one that contradicts the tags is a mistake
    marked["0"][marked["0"] == 1] = 0
    Image.fromarray(marked["0"]).save(folder / "scribbles/0.png")
    assert "scribbles of 1 photograph changed: 0.jpg" in said(run(command))[0]
    again = read_mask(folder / ".ccnn/labels/0.png", 3)
    assert (again[labels == 1] == 0).any()
    marked["0"][marked["0"] == 0] = 2
    Image.fromarray(marked["0"]).save(folder / "scribbles/0.png")
    assert "0.png: marks 'dog', which is not among the tags of '0'" in complaint(run(command))


@pytest.mark.faults
def test_a_full_disk_loses_nothing_at_any_moment(place, root, run):
    """No file may be larger than so many kilobytes: features have 308, the solver's state 49, the model 32, the report
    more than 60."""
    folder = place / "full"
    masks = draw(folder, 8, seed=7)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "tags.csv").write_text(table(masks))
    command = "tools/learn.py --no-check --steps 4 full"

    def limited(kilobytes):
        limit = 2 * (kilobytes << 10,)
        done = subprocess.run(command.split(), cwd=place, env=environment(root, place), capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        assert done.returncode == 2 and not done.stdout, done.stderr
        line, = [line for line in done.stderr.splitlines() if "error:" in line]
        assert "is the disk full?" in line
        return line

    # 1. features
    assert re.search(r"full/\.ccnn/features/224/\d\.npy: cannot be written", limited(100))
    assert not list((folder / ".ccnn/features").rglob("*.npy")) and not (folder / "model.ccnn").exists()
    said(run(command))
    first = (folder / "model.ccnn").read_bytes()

    # 2. snapshots: the old model stays
    rewrite("tags.csv", "\n3.jpg,,\n", "\n3.jpg,cat,\n")(folder)
    limited(40)
    assert (folder / "model.ccnn").read_bytes() == first

    # 3. the report, which comes after the model
    assert "full/report.html: cannot be written" in limited(60)
    second = (folder / "model.ccnn").read_bytes()
    assert second != first

    # 4. the model, if somebody has removed it
    (folder / "model.ccnn").unlink()
    assert "full/model.ccnn: cannot be written" in limited(28)
    said(run(command))
    assert (folder / "model.ccnn").read_bytes() == second and (folder / "report.html").is_file()
    assert "nothing has changed" in said(run(command))[0]
    assert not [path for path in folder.rglob(".*") if path.name != ".ccnn"]


def test_tables_from_windows_without_sizes_and_a_folder_that_moves(place, run):
    folder = place / "windows"
    masks = draw(folder, 4, seed=4)
    for name, text in (("classes.txt", "background\ncat\ndog\n"), ("tags.csv", table(masks, "image,tags"))):
        (folder / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    Image.new("RGB", (20, 20)).save(folder / "unlisted.jpg")
    done = run("tools/learn.py --steps 4 windows")
    assert done.stdout == "windows/model.ccnn\nwindows/report.html\n"
    lines = said(done)
    assert "4 photographs, cat in 2, dog in 2" in lines[0]
    assert any("Nothing is known of 1 photograph, which is left out: 'unlisted.jpg'" in line for line in lines)
    page = (folder / "report.html").read_text()
    assert "<dd>tags</dd>" in page and "Nothing was held out: that takes at least 6 photographs" in page
    assert json.loads((folder / ".ccnn/state.json").read_text())["report"] == "checked"

    folder.rename(place / "moved")
    assert "nothing has changed" in said(run("tools/learn.py --steps 4 moved"))[0]


# Mistakes

@pytest.mark.parametrize("file, text, message", [
    ("tags.csv", "0.jpg,cat\n1.jpg,dgo\n", "wrong/tags.csv, line 2: tag 'dgo' is not a class; did you mean 'dog'?"),
    ("tags.csv", "0.jpg,cat\n7.jpg,dog\n8.jpg,\n",
     "wrong/tags.csv: 2 mistakes (1) line 2, '7': there is no such photograph in wrong; correct the name, or remove it "
     "(2) line 3, '8': there is no such photograph"),
    ("tags.csv", None, "wrong/tags.csv: no such file; write a line for every image into it, such as a.jpg,cat;dog"),
    ("classes.txt", None, "wrong/classes.txt: no such file; write the names of your classes into it, one per line"),
    ("classes.txt", "\n", "wrong/classes.txt: lists 0 classes besides the background; expected 1 to 254"),
    ("classes.txt", "cat\ndog\n\u202eevil\n",
     r"wrong/classes.txt: the class name '\u202eevil' holds control characters"),
    ("constraints.toml", "[dgo]\nleast = 0.1\n", "wrong/constraints.toml, dgo: is not a class; did you mean 'dog'?"),
    ("constraints.toml", '[[rule]]\nlarger = ["cat", "background"]\n[cat]\nmost = 0.1\n',
     "wrong/constraints.toml, photographs of cat (0): [[rule]] larger = [\"cat\", \"background\"] and [cat] most = 0.1 "
     "contradict each other; change it, or give it a price"),
])
def test_a_mistake_is_named_in_one_line(tmp_path, monkeypatch, file, text, message):
    monkeypatch.chdir(tmp_path)
    folder = Path("wrong")
    draw(folder, 2, seed=5)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "tags.csv").write_text("0.jpg,cat\n1.jpg,dog\n")
    if text:
        (folder / file).write_text(text)
    else:
        (folder / file).unlink()
    with pytest.raises(UserError) as error:
        learn.main(["wrong"])
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
