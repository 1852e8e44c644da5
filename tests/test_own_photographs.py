"""study/own_photographs.py: how sets are drawn, what is typed, and the table."""
import json
import shutil
from pathlib import Path

import numpy as np
import own_photographs as study
import pytest
from PIL import Image
from test_manual import command_of, help_of
from tiny_voc import make_voc, save_mask

from ccnn._util.errors import UserError
from ccnn.images.labels import LABELS, VOC_CLASSES

CAT, BUS, SHEEP = labels = [VOC_CLASSES.index(name) for name in study.SETS[0]]
PERSON, DOG = VOC_CLASSES.index("person"), VOC_CLASSES.index("dog")


def areas(rng, shown):
    """The shares of a photograph that shows these labels."""
    area = np.zeros(LABELS)
    area[shown] = rng.uniform(0.02, 0.3, len(shown))
    area[0] = 1 - area.sum()
    return area


@pytest.fixture(scope="module")
def voc():
    """Photographs of one to two of the classes, some with a person, some with a dog, some of a person alone."""
    rng = np.random.default_rng(0)
    found = {}
    for k in range(400):
        shown = list(rng.choice(labels, rng.integers(1, 3), replace=False)) if k % 4 else []
        found[f"{k:03d}"] = areas(rng, [*shown, *[PERSON] * (k % 5 == 0), *[DOG] * (k % 7 == 0)])
    return found


def test_a_set_has_the_same_number_of_every_class(voc):
    ids = study.draw_set(voc, labels, seed=1)
    assert len(set(ids)) == len(ids) and 3 * 18 // 2 + 8 <= len(ids) <= 3 * 18 + 8
    learned, without = ids[:-8], ids[-8:]
    counts = [sum(voc[id][label] > 0 for id in learned) for label in labels]
    assert min(counts) >= 18 and max(counts) < 36
    assert not any(voc[id][DOG] for id in learned) and any(voc[id][PERSON] for id in learned)
    assert not any(voc[id][labels].any() for id in without)
    assert study.draw_set(voc, labels, seed=1) == ids != study.draw_set(voc, labels, seed=2)


def test_a_hundred_are_scored(voc):
    new = study.draw_new(voc, labels)
    assert len(new) == len(set(new)) == 100 == len(set(new).intersection(study.suitable(voc, labels)[0]))
    assert all(sum(voc[id][label] > 0 for id in new) >= 33 for label in labels)


def test_tables_say_what_is_large():
    table = {"b": areas(np.random.default_rng(0), []), "a": np.zeros(LABELS)}
    table["a"][[CAT, BUS, DOG]] = 0.1, 0.11, 0.5
    assert study.tags_csv(table, table, labels, "tags") == "image,tags\na.jpg,cat;bus\nb.jpg,\n"
    assert study.tags_csv(table, table, labels, "size") == "image,tags,large\na.jpg,cat;bus,bus\nb.jpg,,\n"


def test_the_table_has_means_and_the_standard_error_of_the_gain():
    gains = {(1, "tags"): 4, (2, "tags"): 6, (1, "size"): 8}
    results = [{"set": list(study.SETS[1]), "seed": seed, "kind": kind, "version": version,
                "miou": 50 + 10 * seed + (gains[seed, kind] if version == "after" else 0)}
               for seed, kind in gains for version in ("before", "after")]
    lines = study.table(results)
    assert lines[2] == "| aeroplane, dog, train | 1 | 60.0 | 64.0 | 60.0 | 68.0 |"
    assert lines[3] == "| aeroplane, dog, train | 2 | 70.0 | 76.0 |  |  |"
    assert lines[4] == "| mean |  | 65.0 | 70.0 | 60.0 | 68.0 |"
    assert "".join(lines[5:]) == "\ntags, against before: +5.0 ± 1.0 in 2 pairs" \
        "\ntags and size, against before: +6.0 ± 1.2 in 3 pairs"
    assert study.table([])[-1].startswith("| mean |")


def test_the_table_of_the_page_has_both_uncertainties():
    results = [{"set": list(classes), "seed": seed, "kind": "tags", "version": "after", "miou": 60.0 + 3 * k + 2 * seed}
               for k, classes in enumerate(study.SETS) for seed in (1, 2)]
    lines = study.page_table(results).splitlines()
    assert lines[0] == "| set | tags, cue: IoU |" and lines[2] == "| cat, bus, sheep | 63.0 ± 1.4 |"
    assert lines[5] == "| **mean of easy** | 66.0 ± 1.7 ± 0.6 |" and len(lines) == 6
    assert study.page_table(results[::2]).splitlines()[5] == "| **mean of easy** | 65.0 ± 1.7 |"        # one seed
    assert "**mean" not in study.page_table(results[:2])
    some = study.page_table([*results, {**results[0], "version": "none"}])
    assert "| cat, bus, sheep | 62.0 | 63.0 ± 1.4 |" in some and "| bird, car, cow | - | 69.0 ± 1.4 |" in some


def test_runs_are_typed_scored_and_done_once(tmp_path, monkeypatch, capsys):
    """Commands that write the true masks score 100, and those that write background less."""
    root = make_voc(tmp_path / "voc", images=24)
    ids = [path.stem for path in sorted((root / "JPEGImages").glob("*.jpg"))]
    for split, some in (("train", ids[:18]), ("val", ids[18:])):
        (root / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(some) + "\n")
    for k, id in enumerate(ids):
        mask = np.zeros((48, 64), np.uint8)
        mask[8:30, 8:40] = [CAT, BUS, SHEEP, 0][k % 4]
        mask[:5] = DOG if k % 4 == 3 else 0                 # counts as background
        save_mask(root / f"SegmentationClass/{id}.png", mask)
    monkeypatch.setitem(study.CHOICES, "easy", study.SETS[:1])
    monkeypatch.setattr(study, "WITHOUT", 2)
    monkeypatch.setattr(study, "SEEN", 2)
    typed = []

    def run(line, draw):
        typed.append(line)
        if "infer.py" not in line:
            sizes = draw.result("tags").exists()            # come second
            assert ("large" in (draw.place / "photos/tags.csv").read_text()) == sizes
            return
        masks = draw.place / ("masks_tags" if "masks}_tags" in line else "masks_size")
        masks.mkdir()
        for id in draw.new:
            truth = np.asarray(Image.open(root / f"SegmentationClass/{id}.png"))
            own = sum((truth == label) * number for number, label in enumerate(labels, 1)).astype(np.uint8)
            Image.fromarray(own if draw.version == "after" else 0 * own).save(masks / f"{id}.png")
    monkeypatch.setattr(study, "run", run)
    before = tmp_path / "old"
    (before / "tools").mkdir(parents=True)
    (before / "tools/learn.py").write_text("")
    arguments = ["--root", str(root), "--folder", str(tmp_path / "out"), "--seeds", "1", "--jobs", "1",
                 "--before", str(before), "--none"]
    study.main(arguments)
    assert len(typed) == 3 * (2 + 2) and "| cat, bus, sheep | 1 | " in capsys.readouterr().out
    results = {(r["version"], r["kind"]): r for r in study.collect(tmp_path / "out")}
    assert len(results) == 6 and sum("--cue none" in line for line in typed) == 2
    for kind in study.KINDS:
        assert results["after", kind]["miou"] == 100 and results["after", kind]["iou"] == [100] * 4
        assert {results["after", kind][score] for score in ("rest", "boundary", "band")} == {100}
        assert results["before", kind]["iou"][1:] == [0, 0, 0]
    study.main(arguments)
    study.main(["--report", "--folder", str(tmp_path / "out"), "--out", str(tmp_path)])
    kept = json.loads((tmp_path / "own_photographs.json").read_text())
    assert len(kept) == 6 and all(tuple(one) == study.KEPT for one in kept)
    assert len(typed) == 12                                # nothing is done twice
    with pytest.raises(UserError, match="is not a checkout of an older version"):
        study.main(["--before", str(tmp_path)])


def test_a_command_that_fails_is_named(tmp_path):
    draw = study.Draw(study.SETS[0], 1, "after", [], [], {}, tmp_path, tmp_path / "out", None, ["tags"])
    draw.place.mkdir(parents=True)
    with pytest.raises(UserError, match="log.txt: tools/learn.py ended with status 2; see there"):
        study.run("tools/learn.py {photos}/nothing", draw)
    assert "no such folder" in (draw.place / "log.txt").read_text()
    assert "--trainer caffe" in study.commands("tags", "caffe")[0]
    for line in [*study.commands("tags", "none"), *study.commands("size", "caffe")]:
        tool = Path(study.ROOT, line.split()[0])
        assert shutil.which(tool)
        usage = help_of(command_of(tool.stem))
        assert all(word in usage for word in line.split() if word.startswith("--"))
