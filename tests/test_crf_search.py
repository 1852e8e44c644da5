"""The search for CRF parameters: it ends at the best, resumes, and keeps foreign files."""
import json

import numpy as np
import pytest
from PIL import Image
from tiny_probabilities import arguments, make_probabilities

from ccnn._util.errors import UserError
from ccnn.cli import crf as crf_tool
from ccnn.cli import tune_crf
from ccnn.crf import dense as crf
from ccnn.evaluation import crf_search


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return make_probabilities(tmp_path_factory.mktemp("voc"))


@pytest.fixture
def small_search(monkeypatch):
    monkeypatch.setattr(crf_search, "STEPS", {"bilateral_weight": 1, "bilateral_xy": 5, "bilateral_rgb": 1})
    coarse = {"bilateral_weight": (5,), "bilateral_xy": (5, 15), "bilateral_rgb": (3,)}
    monkeypatch.setattr(crf_search, "COARSE", coarse)


def test_the_search_ends_where_no_neighbour_is_better(saved, tmp_path, small_search, capsys):
    out = tmp_path / "mine.json"
    args = arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "2")
    tune_crf.main(args)
    kept = json.loads(out.read_text())
    miou = {preset and crf.Preset(**preset): value for preset, value in kept["tried"]}
    best = crf.load_preset(str(out))                                    # usable wherever a preset is
    assert all(miou[best] >= miou[other] for other in crf_search.neighbours(best))
    assert all(miou[best] >= miou[point] for point in crf_search.combinations(crf_search.COARSE))
    assert miou[None] != miou[best] and kept["images"] == 2
    assert f"{miou[best]:6.2f}  {out}" in capsys.readouterr().out

    # the number is the mIoU of what the command makes with that preset
    crf_tool.main(arguments(saved, tmp_path / "masks", "--preset", str(out)))
    C = np.zeros((21, 21), int)
    for stem in ("2007_000000", "2007_000001"):
        truth = np.array(Image.open(saved / f"SegmentationClass/{stem}.png"))
        found = np.array(Image.open(tmp_path / f"masks/{stem}.png"))
        np.add.at(C, (truth[truth != 255], found[truth != 255]), 1)
    union = C.sum(axis=0) + C.sum(axis=1) - C.diagonal()
    assert miou[best] == pytest.approx(100 * (C.diagonal()[union > 0] / union[union > 0]).mean())


def test_the_search_may_leave_the_coarse_grid(saved, tmp_path, monkeypatch):
    """A hill with its top at weight 1, xy 10, rgb 2: the first two are the smallest that there are."""
    tried = []

    def score(search, presets, what):
        for preset in presets:
            tried.append(preset)
            search.miou[preset] = 0 if preset is None else -sum(
                abs(np.log(value / top)) for value, top in zip(preset[2:5], (10, 2, 1)))
    monkeypatch.setattr(crf_search.Search, "score", score)
    out = tmp_path / "mine.json"
    tune_crf.main(arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "1"))
    assert crf.load_preset(str(out))[2:5] == (10, 2, 1)
    assert all(crf.check_preset(preset) for preset in tried if preset)


def test_a_stopped_search_goes_on_and_a_foreign_file_is_kept(saved, tmp_path, small_search, monkeypatch):
    out = tmp_path / "mine.json"
    args = arguments(saved, out, "--masks", str(saved / "SegmentationClass"), "--count", "1")
    calls = []
    real = crf_search.score_one

    def counted(*task):
        calls.append(task)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return real(*task)
    monkeypatch.setattr(crf_search, "score_one", counted)
    with pytest.raises(KeyboardInterrupt):
        tune_crf.main(args)
    with pytest.raises(UserError, match="not a finished"):
        crf.load_preset(str(out))
    first = {str(task[:2]) for task in calls[:6]}
    calls[:] = [None] * 100
    tune_crf.main(args)
    assert not first & {str(task[:2]) for task in calls[100:]}          # nothing is computed twice

    with pytest.raises(UserError, match="other images"):
        tune_crf.main([*args[:-1], "2"])
    out.write_text("precious")
    with pytest.raises(UserError, match="choose another --out"):
        tune_crf.main(args)
    assert out.read_text() == "precious"


def test_the_search_needs_masks(saved, tmp_path, small_search):
    with pytest.raises(UserError, match="3 of the .npz files have a mask.*need 100"):
        tune_crf.main(arguments(saved, tmp_path / "x.json", "--masks", str(saved / "SegmentationClass")))
