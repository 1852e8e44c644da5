"""The README's section "Your own images", followed to the letter: its commands, on a folder of drawn photographs."""
import json
import os
import re
import shlex
import shutil
import subprocess

import caffe
import numpy as np
import pytest
from PIL import Image
from tiny_voc import annotation

from ccnn import overlay
from ccnn.images import read_image, read_mask, to_blob
from ccnn.tags import read_tags

CLASSES = ("background", "cat", "dog")      # as in the README's table
SHAPE = 81, 97
COLOURS = {"cat": ((255, 150, 40), (120, 40, 0)), "dog": ((235, 235, 230), (30, 30, 30))}     # RGB: ground, figure
STEPS = 100                                 # of the README's 400


def photograph(rng, labels):
    """A drawn photograph and its mask: a disc for each label, a cat ginger and striped, a dog white with black spots,
    together a third of the picture, on a lawn."""
    y, x = np.mgrid[:SHAPE[0], :SHAPE[1]]
    image = rng.normal((70, 130, 60), 15) + rng.normal(0, 25, (*SHAPE, 3))
    mask = np.zeros(SHAPE, np.uint8)
    for label, column in zip(labels, rng.permutation([26, 71])):
        radius = np.sqrt(rng.uniform(0.32, 0.4) / len(labels) * mask.size / np.pi)
        column = column if len(labels) == 2 else rng.uniform(30, 67)
        inside = np.hypot(y - rng.uniform(30, 51), x - column) < radius
        angle = rng.uniform(0, np.pi)
        u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        figure = u % 10 < 5 if CLASSES[label] == "cat" else np.hypot(u % 12 - 6, v % 12 - 6) < 4
        ground, ink = COLOURS[CLASSES[label]] + rng.normal(0, 15, (2, 3))
        image[inside] = np.where(figure[inside, None], ink, ground)
        mask[inside] = label
    return Image.fromarray(image.clip(0, 255).astype(np.uint8)), mask


def draw(folder, number, seed):
    """Write `number` photographs; return {name: mask}. In turn they show a cat, a dog, both, nothing."""
    folder.mkdir()
    masks = {}
    for k in range(number):
        image, masks[f"{k}"] = photograph(np.random.default_rng([seed, k]), [(1,), (2,), (1, 2), ()][k % 4])
        image.save(folder / f"{k}.jpg", quality=95)
    return masks


def table(masks, header="image,tags,large"):
    """tags.csv of photographs with these masks."""
    lines = [header]
    for name, mask in masks.items():
        share = np.bincount(mask.ravel(), minlength=3) / mask.size
        tags, large = (";".join(CLASSES[l] for l in (1, 2) if share[l] > bound) for bound in (0, 0.1))
        lines.append(",".join([f"{name}.jpg", tags, large][:len(header.split(","))]))
    return "\n".join(lines) + "\n"


# The section

@pytest.fixture(scope="module")
def blocks(root):
    """The indented blocks of the section, by their first words."""
    section = (root / "README.md").read_text().split("\n## Your own images\n")[1].split("\n## ")[0]
    found = [re.sub("(?m)^    ", "", block) for block in re.findall("(?m)(?:^    .*\n)+", section)]
    return {block.split()[0]: block for block in found}


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    """A copy of the repository, in which the section's commands may be typed."""
    place = tmp_path_factory.mktemp("repository")
    for name in ("tools", "prototxt", "solvers"):
        shutil.copytree(root / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / ".caffe").symlink_to(root / ".caffe")
    (place / "data").mkdir()
    weights = place / "data/vgg16_conv.caffemodel"
    there = [path for path in (root / "data" / weights.name, root.parent / "shared/weights" / weights.name)
             if path.is_file()]
    if there:
        weights.symlink_to(there[0])
    else:
        random_trunk(place / "prototxt/trunk.prototxt").save(str(weights))
    return place


def random_trunk(prototxt):
    """For where VGG-16's convolutions are not at hand: random ones, 3x3 in the first two blocks and 1x1 from there on,
    every channel balanced. Without that, all channels and all cells would be alike at so great a depth."""
    caffe.set_random_seed(1)
    net = caffe.Net(str(prototxt), caffe.TEST)
    images = [photograph(np.random.default_rng([3, k]), (1, 2))[0] for k in range(4)]
    net.blobs["data"].reshape(4, 3, *SHAPE)
    net.blobs["data"].data[...] = [to_blob(np.asarray(image)) for image in images]
    for name, (weights, bias) in net.params.items():
        if name > "conv3":
            weights.data[...] *= np.arange(9).reshape(3, 3) == 4
        net.forward(end=name)
        out = net.blobs[name].data
        mean, deviation = out.mean(axis=(0, 2, 3)), out.std(axis=(0, 2, 3))
        weights.data[...] /= deviation[:, None, None, None]
        bias.data[...] = -mean / deviation
    for blob in net.params["conv5_3"]:
        blob.data[...] *= 2                 # as large as VGG's
    return net


def run(place, script):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-euc", script], cwd=place, env=environment, capture_output=True, text=True)


def commands(blocks, tools=(), folder="photos", steps=STEPS):
    """The section's commands, but those of some tools only, for another folder, of fewer steps: as it says one may."""
    script = blocks["source"].replace("\\\n", "")
    assert script.count("max_iter=400") == script.count("_iter_400") == 1
    script = script.replace("max_iter=400", f"max_iter={steps}").replace("_iter_400", f"_iter_{steps}")
    lines = [line for line in script.splitlines()
             if not tools or any(word in line for word in ("source", *tools))]
    return re.sub(r"\bphotos\b", lambda _: shlex.quote(folder), "\n".join(lines))


def test_the_commands_of_the_readme_learn_two_classes(blocks, place):
    example = place / "example.csv"
    example.write_text(blocks["image,tags,large"])
    assert [tuple(present[1:]) for present, _ in read_tags(example, CLASSES).values()] == [(1, 1), (0, 1), (0, 0)]

    masks = draw(place / "photos", 40, seed=1)
    (place / "photos/classes.txt").write_text("cat\ndog\n")
    (place / "photos/tags.csv").write_text(table(masks))
    truth = draw(place / "new_photos", 12, seed=2)
    done = run(place, commands(blocks))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "40 images (cat in 20, dog in 20)" in done.stdout and "learns from size" in done.stdout

    # 1. the masks are those of cats and dogs
    found = {name: read_mask(place / f"masks/{name}.png", 3) for name in truth}
    nothing = {name: np.zeros_like(mask) for name, mask in truth.items()}
    assert miou(truth, nothing) < 25
    assert miou(truth, found) > 45              # seen: 62 to 70

    # 2. the legend has their names
    assert json.loads((place / "photos/deploy.json").read_text())["classes"] == list(CLASSES)
    name = next(name for name, mask in found.items() if len(np.unique(mask)) == 3)
    image = read_image(place / f"new_photos/{name}.jpg")
    for classes, same in ((CLASSES, True), (("background", "cow", "pig"), False)):
        overlay.overlay(image, found[name], classes).save(place / "expected.jpg", quality=90)
        shown, expected = (read_image(place / path) for path in (f"masks/overlay/{name}.jpg", "expected.jpg"))
        assert np.array_equal(shown, expected) == same


def miou(truth, found):
    """Mean over the labels of intersection / union, in per cent."""
    pairs = sum(np.bincount(3 * truth[name].ravel() + found[name].ravel(), minlength=9) for name in truth)
    C = pairs.reshape(3, 3)
    return 100 * np.mean(C.diagonal() / (C.sum(0) + C.sum(1) - C.diagonal()))


# What else the section says

def test_annotations_will_do_and_folders_may_have_any_name(blocks, place):
    folder = place / "Bob's_Bäume"
    masks = draw(folder, 4, seed=3)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "Annotations").mkdir()
    for name, mask in masks.items():
        write_annotation(folder, name, mask)
    done = run(place, commands(blocks, ("cache", "make_nets", "train"), folder.name, steps=2))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "4 images (cat in 2, dog in 2)" in done.stdout and "learns from boxes" in done.stdout
    assert (folder / "ccnn_iter_2.caffemodel").is_file()

    # a class that nobody listed
    (folder / "Annotations/1.xml").write_text((folder / "Annotations/1.xml").read_text().replace("dog", "dgo"))
    assert complaint(run(place, commands(blocks, ["make_nets"], folder.name))).startswith(
        f"make_nets.py: error: {folder.name}/Annotations/1.xml: object 'dgo' is not a class; did you mean 'dog'?")


def write_annotation(folder, name, mask):
    boxes = []
    for label in set(np.unique(mask)) - {0}:
        y, x = np.nonzero(mask == label)
        boxes.append((CLASSES[label], x.min() + 1, y.min() + 1, x.max() + 1, y.max() + 1))
    (folder / f"Annotations/{name}.xml").write_text(annotation(name, SHAPE[::-1], boxes))


def test_tables_from_windows_and_without_sizes(blocks, place):
    folder = place / "windows"
    masks = draw(folder, 4, seed=4)
    for name, text in (("classes.txt", "background\ncat\ndog\n"), ("tags.csv", table(masks, "image,tags"))):
        (folder / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    done = run(place, commands(blocks, ("cache", "make_nets"), folder.name))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "4 images (cat in 2, dog in 2)" in done.stdout and "learns from tags" in done.stdout
    assert json.loads((folder / "deploy.json").read_text())["classes"] == list(CLASSES)

    # a photograph added to the table later
    shutil.copy(folder / "0.jpg", folder / "late.jpg")
    with open(folder / "tags.csv", "a") as file:
        file.write("late.jpg,cat\n")
    assert "windows/features/late.npy: no features of 'late'; run tools/cache_features.py for windows/tags.csv" in \
        complaint(run(place, commands(blocks, ["make_nets"], folder.name)))


# Mistakes

def complaint(done):
    """The one line with which a tool ends."""
    assert done.returncode == 2, done.stderr
    line, = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("file, text, tool, message", [
    ("tags.csv", "0.jpg,cat\n1.jpg,dgo\n", "cache", "tags.csv, line 2: tag 'dgo' is not a class; did you mean 'dog'?"),
    ("tags.csv", "0.jpg,cat\n7.jpg,dog\n", "cache",
     "tags.csv, line 2, '7': there is no such photograph in wrong; mend the name, or remove it"),
    ("tags.csv", None, "cache",
     "tags.csv: no such file; write a line for every image into it, such as a.jpg,cat;dog"),
    ("classes.txt", None, "cache",
     "classes.txt: no such file; write the names of your classes into it, one per line"),
    ("classes.txt", "\n", "cache", "classes.txt: lists 0 classes besides the background; expected 1 to 254"),
    (None, None, "make_nets",
     "features/index.json: is missing or damaged; tools/cache_features.py makes the folder"),
])
def test_a_mistake_is_named_in_one_line(blocks, place, file, text, tool, message):
    folder = place / "wrong"
    shutil.rmtree(folder, ignore_errors=True)
    draw(folder, 2, seed=5)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "tags.csv").write_text("0.jpg,cat\n1.jpg,dog\n")
    if text:
        (folder / file).write_text(text)
    elif file:
        (folder / file).unlink()
    assert f"error: wrong/{message}" in complaint(run(place, commands(blocks, [tool], folder.name)))
