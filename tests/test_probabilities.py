"""tools/crf.py: from saved probabilities to masks."""
import sys

import numpy as np
import pytest
from PIL import Image
from tiny_probabilities import arguments, make_probabilities

from ccnn._util.errors import UserError
from ccnn.cli import crf as crf_tool
from ccnn.crf import dense as crf
from ccnn.inference.probabilities import read_probabilities


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return make_probabilities(tmp_path_factory.mktemp("voc"))


def test_the_command_writes_one_mask_per_file_and_resumes(saved, tmp_path, caplog):
    caplog.set_level("INFO")
    assert crf_tool.main(arguments(saved, tmp_path / "out")) == 0
    for path in sorted((saved / "probabilities").iterdir()):
        with Image.open(tmp_path / f"out/{path.stem}.png") as image:
            assert image.mode == "P" and image.size == (48, 40) and image.getpalette()[3:6] == [128, 0, 0]
            p = np.load(path)["probabilities"].astype(np.float32)
            rgb = np.array(Image.open(saved / f"JPEGImages/{path.stem}.jpg"))
            expected = crf.dense_crf(rgb, np.log(p), crf.PRESETS["heads"]).argmax(axis=0)
            assert (np.array(image) == expected).mean() > 0.995
            assert (np.array(image) != p.argmax(axis=0)).any()          # the CRF did something
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert crf_tool.main(arguments(saved, tmp_path / "out")) == 0
    assert "3 of 3 were finished before" in caplog.text
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(UserError, match="made with different settings.*--force"):
        crf_tool.main(arguments(saved, tmp_path / "out", "--preset", "tuned"))
    assert crf_tool.main(arguments(saved, tmp_path / "out", "--preset", "tuned", "--force")) == 0
    assert "overwriting 3 files" in caplog.text


def test_another_engine_makes_the_same_masks(saved, tmp_path, capsys, monkeypatch):
    pytest.importorskip("pydensecrf")
    for engine in ("ccnn", "pydensecrf"):
        assert crf_tool.main(arguments(saved, tmp_path / engine, "--crf-engine", engine)) == 0
    for path in sorted((tmp_path / "ccnn").iterdir()):
        masks = [np.array(Image.open(tmp_path / engine / path.name)) for engine in ("ccnn", "pydensecrf")]
        assert (masks[0] == masks[1]).mean() > 0.998
    # a run may go on with another engine; without the package there is one line
    assert crf_tool.main(arguments(saved, tmp_path / "ccnn", "--crf-engine", "pydensecrf")) == 0
    monkeypatch.setitem(sys.modules, "pydensecrf.densecrf", None)
    assert crf_tool.main(arguments(saved, tmp_path / "none", "--crf-engine", "pydensecrf")) == 1
    assert "pip install pydensecrf2" in capsys.readouterr().err


@pytest.mark.parametrize("content, complaint", [
    (b"PK\x03\x04 not really", "holds no probabilities"),
    (dict(p=np.zeros(3)), "holds no probabilities"),
    (dict(probabilities=np.zeros((40, 48))), "L x height x width"),
    (dict(probabilities=np.zeros((2, 40, 48))), "sum to 1"),
    (dict(probabilities=np.full((2, 40, 48), np.nan)), "sum to 1"),
    (dict(probabilities=np.full((2, 48, 40), 0.5)), "not the shape of"),
    (dict(probabilities=np.full((2, 40, 48), 0.5), crf="tuned"), "went through the CRF before"),
])
def test_a_wrong_file_is_named_at_the_end_and_the_rest_done(saved, tmp_path, capsys, content, complaint):
    bad = tmp_path / "2007_000001.npz"
    bad.write_bytes(content) if isinstance(content, bytes) else np.savez(bad, **content)
    status = crf_tool.main([str(bad), str(saved / "probabilities/2007_000002.npz"), "--jobs", "1",
                            "--images", str(saved / "JPEGImages"), "--out", str(tmp_path / "out")])
    assert status == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["2007_000002.png"]
    error = capsys.readouterr().err
    assert str(bad) in error and complaint in error and "1 failed" in error


def test_what_the_crf_takes_is_told_at_the_end(tmp_path, capsys):
    """Twelve photographs of one colour, each with a thin cat that the net is sure of and a sofa that it is not."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "p").mkdir()
    p = np.full((4, 40, 60), 0.05)
    p[0] = 0.85
    p[:, 10:12] = np.array([0.2, 0.65, 0.1, 0.05])[:, None, None]
    p[:, 30:32, :30] = np.array([0.3, 0.05, 0.4, 0.25])[:, None, None]
    for k in range(12):
        Image.new("RGB", (60, 40), (90, 120, 90)).save(tmp_path / f"photos/{k:02}.png")
        np.savez(tmp_path / f"p/{k:02}.npz", probabilities=p, classes=["background", "cat", "sofa", "dog"])

    def told(preset, *probabilities):
        assert crf_tool.main([*map(str, probabilities), "--images", str(tmp_path / "photos"), "--jobs", "1",
                              "--preset", preset, "--out", str(tmp_path / preset)]) == 0
        return capsys.readouterr().out.splitlines()
    one = tmp_path / "p/00.npz"
    assert told("heads", one) == [
        f"1 mask in {tmp_path}/heads",
        f"1 mask: kept a part of what the CRF would have removed: cat in {tmp_path}/heads/00.png",
        f"1 mask: the CRF has removed: sofa in {tmp_path}/heads/00.png"]
    assert (np.array(Image.open(tmp_path / "heads/00.png")) == 1).sum() >= 0.3 * 120
    _, removed = told("authors", one)
    assert removed == (f"1 mask: the CRF has removed: cat in {tmp_path}/authors/00.png, "
                       f"sofa in {tmp_path}/authors/00.png")
    _, kept, removed = told("heads", tmp_path / "p")                    # eleven more
    assert kept.startswith("11 masks: kept") and kept.count(" in ") == 10 and kept.endswith("10.png and 1 more")
    assert told("heads", tmp_path / "p") == ["no new mask was made"]


def test_other_members_of_a_file_are_not_read(tmp_path):
    """Tens of thousands of them would take minutes."""
    p = np.full((2, 3, 4), 0.5, np.float16)
    np.savez(tmp_path / "a.npz", probabilities=p, other=np.array([{}], object))
    assert (read_probabilities(tmp_path / "a.npz") == p).all()
