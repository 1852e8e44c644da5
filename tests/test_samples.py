"""Samples: in which order they come, what they refuse, and what real photographs give."""
import json

import numpy as np
import pytest
from data_nets import TOPS, still
from sample_voc import make_sample
from tiny_voc import make_voc

from ccnn._util.errors import UserError
from ccnn.data.samples import Samples
from ccnn.images.grid import score_size
from ccnn.images.labels import VOID


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path / "voc")

def test_every_epoch_is_a_permutation(voc):
    samples = Samples({"root": str(voc), "split": "train", "seed": 3})
    epochs = [[samples.image(4 * epoch + k) for k in range(4)] for epoch in range(20)]
    assert all(sorted(epoch) == samples.files for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 8
    other = Samples({"root": str(voc), "split": "train", "seed": 4})
    assert [other.image(t) for t in range(80)] != sum(epochs, [])


@pytest.mark.parametrize("options, message", [
    ({"root": "nowhere"}, "nowhere: no such folder; ccnn get-voc fetches VOC 2012"),
    ({"root": None}, "param_str: root must be the path of a folder; got null"),
    ({"split": "train_awg"}, r"train_awg.txt: no such list of images \(there: empty, gone, train, train_aug, val\), "
                             "and 'train_awg' is not a file; ccnn get-voc"),
    ({"split": None}, "param_str: split must name a list"),
    ({"split": "empty"}, "empty.txt: lists no image"),
    ({"split": "gone"}, "gone.txt, 'gone with space': there is no such photograph in .*JPEGImages; one image id"),
    ({"masks": "Masks"}, "Masks: no such folder"),
    ({"classes": "no.txt"}, "no.txt: cannot read the class list: No such file"),
    ({"tags_from": "no.csv"}, "no.csv: cannot read the tags: No such file"),
    ({"miror": True}, "param_str: unknown setting 'miror'; did you mean 'mirror'"),
    ({"tops": ["data", "tag"]}, "param_str: tops must be a list of some of data, tags, share, sizes, boxes, cue, "
                                "labels, filled_boxes, number; 'tag' is none of them, did you mean 'tags'"),
    ({"tops": ["tags", "tags"]}, "param_str: tops"),
    ({"tops": []}, "param_str: tops"),
    ({"crop": -3}, "param_str: crop must be a whole number, 0 or more; got -3"),
    ({"crop": 2.5}, "param_str: crop"),
    ({"seed": True}, "param_str: seed"),
    ({"stride": 0}, "param_str: stride must be a whole number, 1 or more"),
    ({"large": 10}, "param_str: large must be a fraction"),
    ({"mirror": "yes"}, 'param_str: mirror must be true or false; got "yes"'),
    ({"damaged": "ignore"}, 'param_str: damaged must be "stop" or "skip"'),
    ({"supervised": -1}, "param_str: supervised"),
    ({"supervised": "gone"}, "gone: cannot read the list"),
    ({"supervised": "ImageSets/Segmentation/gone.txt"}, "lists 'gone with space', which is not an image of"),
    ({"tags_from": "annotations", "tops": ["data", "sizes"]}, "sizes need tags_from"),
    ({"tags_from": "tags.csv", "crop": 9}, "crop needs tags_from"),
    ({"tops": ["data", "number"], "crop": 9}, "the top `number` is for what is kept of whole images; crop none"),
    ({"tops": ["data", "share"]}, 'the top "share" needs "shares", the path of a CSV file'),
    ({"tops": ["data", "share"], "shares": "no.csv"}, "no.csv: No such file or directory; it must have a line"),
    ({"tops": ["data", "share"], "crop": 9}, "the top `share` is of whole images; crop none"),
    ({"features": "f"}, "unknown setting 'features'"),
])
def test_wrong_settings_are_named(voc, options, message):
    (voc / "ImageSets/Segmentation/empty.txt").write_text("\n")
    (voc / "ImageSets/Segmentation/gone.txt").write_text("gone with space\n")
    with pytest.raises(UserError, match=message) as error:
        Samples(json.dumps({**still(voc), "tops": TOPS, **options}))
    assert "\n" not in str(error.value)


def test_missing_masks_are_named(voc):
    for i in (2, 3):
        (voc / f"SegmentationClass/2007_{i:06d}.png").unlink()
    with pytest.raises(UserError, match=r"2007_000002.png and 1 more: no such mask"):
        Samples(still(voc, tops=TOPS))
    samples = Samples(still(voc, tags_from="annotations", tops=["data", "tags", "labels"], supervised=2))
    assert samples[0][0]["tags"][1] == 1


def test_real_photographs(tmp_path):
    samples = Samples({"root": str(make_sample(tmp_path / "voc")), "split": "train", "tops": TOPS, "crop": 120})
    assert len(samples) == 4
    agree = []
    for t in range(40):
        sample, _ = samples[t]
        height, width = sample["data"].shape[:2]
        assert width == 120 and height in (106, 107, 108, 120)
        assert sample["labels"].shape == (1, score_size(height), score_size(width))
        assert set(np.unique(sample["labels"])) - {VOID} <= set(np.flatnonzero(sample["tags"]))
        assert (sample["sizes"] <= sample["tags"]).all()
        # boxes come from other files than masks: nearly every labelled cell must lie in a box of its label
        covered = np.zeros((21, *sample["labels"].shape[1:]), bool)
        for label, y0, x0, y1, x1 in sample["boxes"].astype(int):
            assert 0 <= y0 < y1 <= covered.shape[1] and 0 <= x0 < x1 <= covered.shape[2]
            covered[label, y0:y1, x0:x1] = True
        y, x = np.nonzero((sample["labels"][0] != VOID) & (sample["labels"][0] != 0))
        agree += list(covered[sample["labels"][0, y, x], y, x])
    assert len(agree) > 4000 and np.mean(agree) > 0.99
