"""The demonstration: its data set, its page, and the order of the systems on a shortened run."""
import base64
import io
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import demo_page
import draw_demo
import numpy as np
import pytest
import story as stories
from browser import Parsed, needs_browser, overflowing
from PIL import Image
from test_architecture import durations
from test_manual import command_of, help_of
from test_pictures import contrast

import demo
from ccnn._util.errors import UserError
from ccnn._util.paths import DATA, ROOT
from ccnn.cli import demo as cli_demo
from ccnn.cli import init_weights
from ccnn.data.background_shares import read_shares
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.labels import VOC_CLASSES, VOID, read_classes
from ccnn.images.overlays import colours
from ccnn.images.reading import read_image, read_mask
from ccnn.nets.prototxt import SYSTEMS, demo_nets
from ccnn.project.html import TEMPLATES

LABELS = 1 + len(draw_demo.CLASSES)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw_demo.draw(tmp_path_factory.mktemp("drawn") / "set", train=40, val=20)


def read(root, split):
    """[(image, mask, boxes)] of a split; boxes as in VOC's files."""
    samples = []
    for name in (root / f"ImageSets/Segmentation/{split}.txt").read_text().split():
        boxes = [(b.findtext("name"), *(int(b.findtext(f"bndbox/{k}")) for k in ("xmin", "ymin", "xmax", "ymax")))
                 for b in ElementTree.parse(root / f"Annotations/{name}.xml").iter("object")]
        samples.append((read_image(root / f"JPEGImages/{name}.jpg"),
                        read_mask(root / f"SegmentationClass/{name}.png", LABELS), boxes))
    return samples


# --- the data set ------------------------------------------------------------------------------------------------

def files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_seed_draws_the_same_set_again(tmp_path):
    first, again, other = (draw_demo.draw(tmp_path / name, train=4, val=2, seed=seed)
                           for name, seed in (("first", 3), ("again", 3), ("other", 4)))
    assert files(first) == files(again)
    pictures = [name for name in files(first) if name.endswith(".jpg")]
    assert len(pictures) == 6
    assert all(files(first)[name] != files(other)[name] for name in pictures)


def test_a_set_that_is_there_is_kept_and_a_strangers_folder_is_left_alone(tmp_path):
    root = draw_demo.draw(tmp_path / "set", train=2, val=1)
    time = (root / "drawn.txt").stat().st_mtime_ns
    draw_demo.draw(root, train=2, val=1)
    assert (root / "drawn.txt").stat().st_mtime_ns == time
    draw_demo.draw(root, train=3, val=1)
    assert len(list((root / "JPEGImages").iterdir())) == 4
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/photo.jpg").write_text("mine")
    with pytest.raises(UserError, match="was not drawn by this tool"):
        draw_demo.draw(tmp_path / "mine")
    assert (tmp_path / "mine/photo.jpg").read_text() == "mine"


def test_layout_masks_and_boxes_agree(drawn):
    assert read_classes(drawn / "classes.txt") == ("background", *draw_demo.CLASSES)
    samples = read(drawn, "train")
    assert len(samples) == 40 and len(read(drawn, "val")) == 20
    tags = set()
    for image, mask, boxes in samples:
        assert image.shape[:2] == mask.shape and all((side - 1) % 8 == 0 for side in mask.shape)
        found = set(np.unique(mask)) - {0, 255}
        tags.add(frozenset(found))
        assert found == {1 + draw_demo.CLASSES.index(name) for name, *_ in boxes}
        inside = np.zeros(mask.shape, bool)
        for _, x0, y0, x1, y1 in boxes:
            inside[y0 - 1:y1, x0 - 1:x1] = True
        assert inside[(mask > 0) & (mask < 255)].all()          # nothing of an object outside its boxes
        assert not inside.all()
    assert len(tags) > 10                                       # images differ in their tags


def test_shares_are_those_of_the_masks(drawn):
    """To the three places that are written."""
    names = [name for split in ("train", "val")
             for name in (drawn / f"ImageSets/Segmentation/{split}.txt").read_text().split()]
    shares = read_shares(drawn / "shares.csv", names)
    assert sorted(shares) == sorted(names) and len(set(shares.values())) > 30
    for name, (_, mask, _) in zip(names, read(drawn, "train") + read(drawn, "val")):
        labelled = [label for label in mask.ravel().tolist() if label != VOID]
        assert shares[name] == pytest.approx(labelled.count(0) / len(labelled), abs=6e-4)


def test_areas_suit_the_bounds_in_two_images_of_three(drawn):
    masks = [mask for _, mask, _ in read(drawn, "train") + read(drawn, "val")]
    shares = np.array([np.bincount(mask[mask < 255], minlength=LABELS) / (mask < 255).sum() for mask in masks])
    within = ((0.3 < shares[:, 0]) & (shares[:, 0] < 0.7)).mean()
    small = (shares[:, 1:] < 0.1).all(axis=1).mean()
    assert 0.5 < within < 0.8 and 0.2 < small < 0.5 and within + small > 0.95


def test_colour_alone_does_not_separate_the_classes(drawn):
    """A table from colour to the label most frequent there, made from the true masks of other images, is no use."""
    def cells(image):
        return (image // 32).astype(int) @ (64, 8, 1)
    counts = np.zeros((512, LABELS))
    for image, mask, _ in read(drawn, "train"):
        known = mask < 255
        np.add.at(counts, (cells(image)[known], mask[known]), 1)
    table = counts.argmax(axis=1).astype(np.uint8)
    C = sum(confusion(mask, table[cells(image)], LABELS) for image, mask, _ in read(drawn, "val"))
    assert scored("colour", "val", False, C).miou < 30


# --- the order of the systems --------------------------------------------------------------------------------------

@pytest.mark.faults
def test_tags_beat_the_baselines_and_masks_beat_tags(tmp_path, capfd):
    """The real `caffe train` on three systems, for 700 of the 2400 iterations."""
    demo.main(["--work", str(tmp_path), "--iterations", "700", "--images", "200", "24", "--scores-only",
               "--systems", "tags,em_adapt,full"])
    printed = capfd.readouterr().out
    titles = {SYSTEMS[system].title: system for system in demo.COMPARED}
    lines = re.findall(r"^  (\S.*?) +(\d+\.\d)$", printed, re.M)
    score = {titles[title]: float(value) for title, value in lines}
    assert len(score) == 3 and score["em_adapt"] < score["tags"] < score["full"]


def test_a_training_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    data = draw_demo.draw(tmp_path / "data", train=2, val=1)
    run = demo.plan("tags", 1, data, tmp_path, 2)
    run.net.write_text(run.net.read_text().replace('"split": "train"', '"split": "absent"'))
    with pytest.raises(UserError) as error:
        demo.train([run], 1)
    assert "absent" in str(error.value)
    assert "\n" not in str(error.value)


# --- the page ------------------------------------------------------------------------------------------------------

def story(**changes):
    """A Story of noise, with numbers that can be found again."""
    rng = np.random.default_rng(0)
    classes = ("background", "fish", "<b>etle", "kite & tail", "snail", "leaf")
    image = rng.integers(0, 255, (25, 33, 3), np.uint8)
    truth = rng.integers(0, 6, (25, 33)).astype(np.uint8)
    results = [demo_page.Result(system, SYSTEMS[system].title, SYSTEMS[system].knows, [40.5 + i] * 5 + [None],
                                41.25 + i, {0: 1.5, 20: 0.3}, {10: 30.0, 20: 41.0 + i})
               for i, system in enumerate(demo.COMPARED)]
    maps = rng.dirichlet(np.ones(3), (7, 9)).transpose(2, 0, 1)
    bounds = [(0.3, 0.7), (0.05, None), (0.05, None)]
    step = demo_page.Solved(20, [0, 1, 4], maps, maps, bounds, [-0.5, 0.0, 1.0], 0.12, 4, 1e-7)
    example = demo_page.Example(image, truth, dict.fromkeys(demo.COMPARED, truth))
    whole = demo_page.Story(classes, (200, 60), 2.5, results, [example] * 6, image, [step, step],
                            np.array([[20, 0.5, 1e-8, 4, 2e-4]] * 8), [], "no model")
    return whole._replace(**changes)


def test_page_is_whole_and_needs_nothing_else():
    text = demo_page.page(story())
    page = Parsed(text)
    assert not re.search(r"url\(|@import|https?://", text)
    assert not {"script", "link", "a"} & {tag for tag, _ in page.elements}
    assert page.all("img")
    for image in page.all("img"):
        assert image["src"].startswith("data:image/")
        pixels = Image.open(io.BytesIO(base64.b64decode(image["src"].partition("base64,")[2])))
        pixels.load()
        assert pixels.size == (int(image["width"]), int(image["height"])) and image["alt"]


def test_a_short_demonstration_writes_the_page(tmp_path, monkeypatch, capfd):
    """Everything is real but the length, and the photographs, which another test segments."""
    monkeypatch.setattr(stories, "MODEL", ROOT / "models/absent.ccnn")
    monkeypatch.chdir(tmp_path)
    demo.main(["--work", "here", "--iterations", "12", "--images", "8", "4"])
    path = tmp_path / "here/output/demo/index.html"
    assert str(path) in capfd.readouterr().out
    page = Parsed(path.read_text(encoding="utf-8"))
    assert all(SYSTEMS[system].title in " ".join(page.texts) for system in demo.COMPARED)
    assert "after 12 iterations" in page.texts and len(page.all("img")) > 20


def test_page_shows_every_system_and_escapes_names():
    page = Parsed(demo_page.page(story()))
    words = page.text
    for result in story().results:
        assert f"{result.miou:.1f}" in page.texts and result.title in words and result.knows in words
    assert "<b>etle" in words and "kite & tail" in words
    assert "no model" in words
    assert "etle" not in [tag for tag, _ in page.elements]


def photograph(mask, shows, what="A cat & a dog"):
    return demo_page.Photograph(what, shows, np.full((30, 40, 3), 120, np.uint8), mask, VOC_CLASSES)


def test_page_shows_photographs_and_says_what_is_wrong():
    cat, dog = VOC_CLASSES.index("cat"), VOC_CLASSES.index("dog")
    mask = np.zeros((30, 40), np.uint8)
    mask[:15] = cat
    right, missed = photograph(mask, ("cat",)), photograph(mask, ("cat", "dog"), "Two")
    mask = mask.copy()
    mask[25:] = dog
    page = Parsed(demo_page.page(story(photographs=[right, missed, photograph(mask, ("cat",))], no_photographs=None)))
    words = page.text
    shown = [image["alt"] for image in page.all("img") if image["width"] == "40"]
    assert shown == [f"{what}, under the colours of the labels" for what in ("A cat & a dog", "Two", "A cat & a dog")]
    assert words.count("wrong:") == 1 and re.search(r"wrong: there is no\s+dog", words)
    assert words.count("missed:") == 1 and re.search(r"missed:\s+dog", words)
    assert words.count(" 50 %") == 3 and " 17 %" in words


def test_pictures_of_masks_have_the_labels_colours():
    image, mask = np.full((40, 40, 3), (0, 60, 90), np.uint8), np.zeros((40, 40), np.uint8)
    for label in range(1, 6):
        mask[10:30, 10:30] = label
        painted = demo_page.painted(image, mask)
        assert painted.shape == (80, 80, 3)
        assert (painted[22, 30:50] == colours()[label]).all()               # the band inside the outline
        assert (painted[:15] == 50).all()                                   # the image without its colours


def test_maps_are_as_opaque_as_their_probabilities():
    shown = demo_page.heat(np.array([[0, 0.5, 1]]), 2)
    assert shown[..., 3].tolist() == [[0, 128, 255]] and (shown[..., :3] == colours()[2]).all()


@needs_browser
@pytest.mark.parametrize("width", [375, 1280])
def test_page_needs_no_sideways_scrolling(width, tmp_path):
    mask = np.zeros((300, 900), np.uint8)
    shown = story(photographs=[demo_page.Photograph("wide", ("cat",), np.zeros((300, 900, 3), np.uint8), mask,
                                                    VOC_CLASSES)], no_photographs=None)
    assert overflowing(demo_page.page(shown), width, tmp_path) == (width, "")


def test_narrow_screens_keep_the_heads_of_columns():
    text = demo_page.page(story())
    assert "attr(data-head)" in text
    for head in ("mean IoU, %", "background", "fish"):
        assert text.count(f'data-head="{head}"') == len(demo.COMPARED)
    for head in ("truth, not seen in training", "learned from tags and sizes"):
        assert text.count(f"<b>{head}</b>") == 6


def test_lines_are_visible_on_paper_and_in_the_dark():
    papers = re.findall("--paper: #([0-9a-f]{6})", (TEMPLATES / "style.css").read_text())
    assert len(papers) == 2
    for line in demo_page.LINES.values():
        assert min(contrast([*bytes.fromhex(line[1:])], [*bytes.fromhex(paper)]) for paper in papers) >= 3


def test_the_page_readme_and_help_tell_one_duration(root):
    """test_architecture.py compares all files with each other; the page is written from a constant."""
    texts = demo_page.page(story()), demo.__doc__, (root / "README.md").read_text()
    told = [dict(durations(text)).get("make demo") for text in texts]
    assert told == [f"{demo_page.MINUTES} minute"] * 3


# --- the commands that the page ends with ----------------------------------------------------------------------------

def commands():
    return [line for step in demo_page.NEXT for line in step.command.splitlines()]


def test_the_tools_know_what_the_page_pastes():
    """Every tool exists and knows the options; every net is there."""
    for line in commands():
        tool, *words = shlex.split(line)
        assert (ROOT / tool).is_file()
        options = help_of(command_of(Path(tool).stem))
        for word in words:
            assert not word.startswith("--") or re.search(rf"{word}\b", options), line
            assert not word.endswith(".prototxt") or (ROOT / word).is_file(), line


def test_the_paper_starts_from_weights():
    """A whole net that starts from nothing learns nothing in a day."""
    get, init, train = commands()[-3:]
    assert get == "tools/get_voc.py" and init == "tools/init_weights.py"
    weights = shlex.split(train)[shlex.split(train).index("--weights") + 1]
    assert ROOT / weights == init_weights.parse_args([]).out


@pytest.mark.skipif(not (DATA / "vgg16_conv.caffemodel").exists(), reason="needs VGG-16: ccnn init-weights")
def test_the_first_command_works_as_pasted(tmp_path):
    """In a folder with photographs, the real model and the CRF."""
    source, = (path for path in stories.find_photographs()[0] if path.name == "motorcycle_left.png")
    (tmp_path / "photos").mkdir()
    shutil.copy(source, tmp_path / "photos/bike.png")
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    done = subprocess.run(commands()[0], shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mask = read_mask(tmp_path / "sharp/bike.png", len(VOC_CLASSES))
    assert (mask == VOC_CLASSES.index("motorbike")).mean() > 0.2
    assert (tmp_path / "sharp/overlay/bike.jpg").exists()


def test_without_a_model_the_photographs_give_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(stories, "MODEL", ROOT / "models/absent.ccnn")
    assert stories.photographs(tmp_path) == ([], "models/absent.ccnn is not there")


def test_step_tells_areas_and_bounds_of_the_solution(tmp_path):
    """q of a net of zeros is uniform, 1/6 each; the tags want 5 % of two labels at least, and 30 to 70 % background."""
    import caffe
    (tmp_path / "net.prototxt").write_text(demo_nets()["demo_deploy"])
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = 0
    net.save(str(tmp_path / "zero.caffemodel"))
    present = np.array([1, 1, 0, 0, 1, 0], bool)
    step = stories.solve(tmp_path / "net.prototxt", 5, tmp_path / "zero.caffemodel", np.zeros((25, 33, 3), np.uint8),
                         present)
    assert step.labels == [0, 1, 4] and step.q.shape == step.p.shape == (3, 7, 9)
    np.testing.assert_allclose(step.q, 1 / 6, atol=1e-6)
    np.testing.assert_allclose(step.p, 1 / 3, atol=1e-6)        # within all bounds: only suppression acts
    assert step.absent == pytest.approx(0.5) and step.bounds == [[0.3, 0.7], [0.05, None], [0.05, None]]
    assert step.forces == [0, 0, 0]


@pytest.mark.skipif(not (DATA / "vgg16_conv.caffemodel").exists(), reason="needs VGG-16: ccnn init-weights")
def test_the_demonstration_without_caffe(tmp_path, monkeypatch, capsys, caplog):
    """ccnn demo: few photographs and steps; it leaves a stranger's folder alone, and what the user has changed. It
    follows its own advice: some photographs show no class."""
    caplog.set_level("INFO", "ccnn")
    monkeypatch.setattr(cli_demo, "PHOTOGRAPHS", 10)
    monkeypatch.setattr(cli_demo, "NEW", 2)
    folder = tmp_path / "here"
    assert cli_demo.main([str(folder), "--steps", "40"]) == 0
    said = capsys.readouterr().out
    assert float(re.search(r"mean IoU on 2 new photographs: ([\d.]+)", said)[1]) > 15       # all background: 14
    assert sorted(path.name for path in (folder / "masks").glob("*.png")) == ["10.png", "11.png"]
    assert "Few photographs show a class" in caplog.text and "Every photograph shows" not in caplog.text
    tags = folder / "photos/tags.csv"
    before = tags.stat().st_mtime_ns
    assert cli_demo.draw(folder).keys() == {"10", "11"} and tags.stat().st_mtime_ns == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a.jpg").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        cli_demo.main([str(tmp_path / "mine")])
