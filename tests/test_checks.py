"""Checks before a training: what would waste its minutes is said in plain sentences."""
import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sample_voc import make_sample
from tiny_voc import annotation

from ccnn._util.errors import Mistakes
from ccnn.data.samples import Samples
from ccnn.project.checks import (
    check_folder,
    check_rules,
    check_tags,
    leave_out_unreadable,
    near_duplicates,
    perceptual_hash,
)
from ccnn.project.folder import read_folder
from ccnn.supervision.kinds import SUPERVISION

CLASSES = ("background", "cat", "dog", "bus")


# Tags

def present(*rows):
    """{id: (L,) bool} from strings of initials; "" shows nothing."""
    return {f"{k}": np.array([False, *(name[0] in row for name in CLASSES[1:])]) for k, row in enumerate(rows)}


GOOD = ["c"] * 10 + ["d"] * 9 + ["cd"] + ["b"] * 12 + [""]


def test_nothing_is_said_about_good_tags():
    assert check_tags(present(*GOOD), CLASSES) == []


@pytest.mark.parametrize("rows, begins", [
    (["c"], ["There is one photograph. A training needs 10 or more of each class, and some without any.",
             "No photograph shows 'dog' and 'bus': the net will never find them."]),
    (GOOD[2:], ["Few photographs show a class (cat in 9): its masks will be poor."]),
    ([*GOOD[:19], ""], ["No photograph shows 'bus'", "Few photographs show a class (dog in 9)"]),
    (["cd"] * 10 + ["b"] * 10 + [""], ["'cat' and 'dog' are always together: no method can tell which of them"]),
    (GOOD[:-1], ["Every photograph shows a class: the background is never seen alone."]),
    (["c", "cd", "cb"] * 12, ["Every photograph shows a class ('cat' is in every one): the background is never seen"]),
])
def test_what_tags_alone_cannot_teach(rows, begins):
    sentences = check_tags(present(*rows), CLASSES)
    assert len(sentences) == len(begins)
    for sentence, start in zip(sentences, begins):
        assert sentence.startswith(start)


def test_many_names_are_counted():
    classes = ("background", *(f"class {k}" for k in range(9)))
    sentence, = check_tags({"a": np.zeros(10, bool), "b": np.zeros(10, bool)}, classes)
    assert sentence.startswith("No photograph shows 'class 0', 'class 1', 'class 2', 'class 3', 'class 4' and 4 more:")


# Near-duplicates

@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Real photographs, and altered copies of the first."""
    root = make_sample(tmp_path_factory.mktemp("sample") / "voc")
    folder = tmp_path_factory.mktemp("photographs")
    files = sorted((root / "JPEGImages").iterdir())
    for file in files:
        Image.open(file).save(folder / f"{file.stem}.png")
    first = Image.open(files[0]).convert("RGB")
    w, h = first.size
    first.save(folder / "copy_jpeg.jpg", quality=40)
    first.resize((w // 2, h // 2)).save(folder / "copy_small.png")
    ImageEnhance.Brightness(first).enhance(1.2).save(folder / "copy_bright.png")
    first.crop((w // 50, h // 50, w - w // 50, h - h // 50)).save(folder / "copy_cropped.png")
    exif = Image.Exif()
    exif[0x0112] = 6            # to be shown turned to the right
    first.rotate(90, expand=True).save(folder / "copy_turned.jpg", exif=exif, quality=95)
    return folder, files[0].stem


def test_copies_are_found_and_different_photographs_are_not(photographs):
    folder, first = photographs
    pairs = near_duplicates({path.stem: perceptual_hash(path) for path in sorted(folder.iterdir())})
    copies = {path.stem for path in folder.iterdir() if "copy" in path.stem}
    assert len(copies) == 5 and len(list(folder.iterdir())) > 6
    assert {a for pair in pairs for a in pair} == copies | {first}
    assert all((min(c, first), max(c, first)) in [tuple(sorted(pair)) for pair in pairs] for c in copies)


def test_pairs_do_not_depend_on_the_blocks():
    rng = np.random.default_rng(0)
    prints = {k: rng.random(143) < 0.5 for k in range(30)}
    for k in (3, 17, 29):
        prints[k] = prints[8] ^ (rng.random(143) < 0.05)
    expected = [(3, 8), (3, 17), (3, 29), (8, 17), (8, 29), (17, 29)]
    assert sorted(near_duplicates(prints)) == sorted(near_duplicates(prints, block=7)) == expected
    assert near_duplicates({}) == []


# Folders

@pytest.fixture
def own(tmp_path):
    """A folder of one's own with drawn photographs, 64 x 48, of which `make` writes tables and rules."""
    def make(table, rules=None, classes="cat\ndog\n"):
        (tmp_path / "classes.txt").write_text(classes)
        (tmp_path / "tags.csv").write_text(table)
        for k, line in enumerate(table.splitlines()):
            draw(tmp_path / line.split(",")[0], seed=k)
        if rules:
            (tmp_path / "constraints.toml").write_text(rules)
        return read_folder(str(tmp_path))
    return make


def draw(path, seed):
    """A photograph of large random patches."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(coarse).resize((64, 48), Image.Resampling.BICUBIC).save(path, quality=95)


TABLE = "".join(f"{k}.jpg,{tag}\n" for k, tag in enumerate(["cat"] * 10 + ["dog"] * 10 + [""]))


def test_a_good_folder_gives_no_warning(own):
    assert check_folder(own(TABLE)) == []


def test_a_copy_is_reported_if_its_tags_differ_or_if_it_is_held_out(own, tmp_path):
    folder = own(TABLE)
    with Image.open(tmp_path / "3.jpg") as image:
        image.resize((128, 96)).save(tmp_path / "4.jpg")
    assert check_folder(folder) == []
    assert check_folder(folder, folds={"3": 1, "4": 1}) == []
    expected = ("Photographs look nearly the same, and one is held out while the other is learned from, so that the "
                "score will be too good: '3' and '4'.")
    assert check_folder(folder, folds={"4": 1}) == [expected]
    (tmp_path / "tags.csv").write_text(TABLE.replace("4.jpg,cat", "4.jpg,dog"))
    sentences = check_folder(read_folder(str(tmp_path)))
    assert "Photographs look nearly the same but have different tags; one of them may be wrong: '3' (cat) and " \
        "'4' (dog)." in sentences


def test_what_is_not_used_is_named(own, tmp_path):
    own(TABLE)
    for name in ("late.jpg", "._late.jpg"):
        draw(tmp_path / name, seed=99)
    (tmp_path / "scribbles").mkdir()
    draw(tmp_path / "scribbles/0.png", seed=99)
    assert check_folder(read_folder(str(tmp_path))) == [
        "Nothing is known of 1 photograph, which is left out: 'late.jpg'. Add a row for each; one without a tag says "
        "that none of the classes is there.",
        "The folder scribbles is not used: write a line [scribbles] into constraints.toml."]


def test_photographs_that_cannot_be_read_are_named_at_once(own, tmp_path):
    folder = own(TABLE)
    for k in (5, 8):
        (tmp_path / f"{k}.jpg").write_bytes(b"no photograph")
    with pytest.raises(Mistakes, match="2 mistakes .*5.jpg: is not an image that can be read; need JPEG.*; fix it, "
                                       r"or remove its row \(2\).*8.jpg"):
        check_folder(folder)


def test_a_photograph_that_cannot_be_read_is_left_out(own, tmp_path):
    folder = own(TABLE)
    whole = (tmp_path / "5.jpg").read_bytes()
    (tmp_path / "5.jpg").write_bytes(whole[:len(whole) // 2])
    rest, sentences = leave_out_unreadable(folder)
    assert set(folder.photographs) - set(rest.photographs) == {"5"} == set(rest.left_out)
    assert len(sentences) == 1 and "5.jpg: is damaged: " in sentences[0] and "leaves it out" in sentences[0]
    samples = Samples({**rest.settings, "tops": ["data", "tags"]})          # what Caffe is shown
    assert samples.ids == list(rest.photographs) and len(check_folder(rest)) == 1       # few photographs
    for id in folder.photographs:
        (tmp_path / f"{id}.jpg").write_bytes(b"no photograph")
    with pytest.raises(Mistakes, match=f"{len(folder.photographs)} mistakes"):
        leave_out_unreadable(folder)


def annotated(tmp_path, **objects):
    """A folder with VOC's XML: {id: class name}, each in a box of 16 x 12 of 64 x 48 pixels."""
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    for k, (id, name) in enumerate(objects.items()):
        draw(tmp_path / f"{id}.jpg", seed=k)
        (tmp_path / f"Annotations/{id}.xml").write_text(annotation(id, (64, 48), [(name, 1, 1, 16, 12)]))
    (tmp_path / "Annotations/._a.xml").write_bytes(b"macOS")
    return read_folder(str(tmp_path))


def test_classes_of_xml_that_nobody_listed_are_counted(tmp_path):
    folder = annotated(tmp_path, a="cat", b="dgo", c="tree", d="tree")
    assert folder.images_with() == {"cat": 1, "dog": 0}
    assert check_folder(folder)[-1] == (
        "Annotations has objects of classes that classes.txt does not list. They are left out, and their pixels count "
        "as background: 'tree' (2) and 'dgo' (1), did you mean 'dog'?.")


# Rules

TAGS = SUPERVISION["tags"]


def test_contradictions_are_named_before_the_training(own):
    table = "a.jpg,cat;dog\nb.jpg,cat;dog\nc.jpg,cat\n"
    rules = "[cat]\nleast = 0.6\n[dog]\nleast = 0.5\n"
    with pytest.raises(Mistakes, match=r"constraints.toml, photographs of cat and dog \(a and 1 more\): \[cat\] least "
                                       r"= 0.6 and \[dog\] least = 0.5 contradict each other"):
        check_rules(own(table, rules), TAGS, {})
    assert check_rules(own("c.jpg,cat\n", rules), TAGS, {}) == []
    notes = check_rules(own("c.jpg,cat\n", "[cat]\nmost = 0.1\n"), TAGS, {"bg_upper": 0.8})
    assert len(notes) == 1 and "background at most 0.8 (of the tags) gives way" in notes[0]


def test_folders_without_rules_have_nothing_to_check(own):
    assert check_rules(own("c.jpg,cat\n"), TAGS, {}) == []


def test_rules_are_tried_on_the_boxes(tmp_path):
    """The cat's box covers a sixteenth."""
    (tmp_path / "constraints.toml").write_text("[cat]\nleast = 0.05\n")
    folder = annotated(tmp_path, a="cat", b="dog")
    assert check_rules(folder, SUPERVISION["boxes"], {"beta": 10}) == []
    (tmp_path / "constraints.toml").write_text("[cat]\nleast = 0.2\n")
    with pytest.raises(Mistakes, match=r"photographs of cat \(a\): \[cat\] least = 0.2 cannot hold"):
        check_rules(read_folder(str(tmp_path)), SUPERVISION["boxes"], {})


def test_scribbles_must_fit(own, tmp_path):
    (tmp_path / "scribbles").mkdir()

    def scribble(name, shape, label):
        Image.fromarray(np.full(shape, label, np.uint8)).save(tmp_path / f"scribbles/{name}.png")

    scribble("a", (48, 64), 1)
    folder = own("a.jpg,cat\nb.jpg,dog\n", "[scribbles]\n")
    assert check_rules(folder, TAGS, {}) == []
    scribble("b", (24, 32), 2)
    folder = own("a.jpg,cat\nb.jpg,dog\n", "[scribbles]\n")
    with pytest.raises(Mistakes, match="scribbles, 'b': .*b.png: is for an image of 32 x 24 pixels, but .*b.jpg"):
        check_rules(folder, TAGS, {})
    scribble("b", (48, 64), 1)
    with pytest.raises(Mistakes, match="scribbles, b.png: marks 'cat', which is not among the tags of 'b'"):
        check_rules(folder, TAGS, {})
