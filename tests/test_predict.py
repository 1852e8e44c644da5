"""From a photograph to its mask, called from Python, on a net whose answer is known."""
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_net import make_net

from ccnn._util.errors import ImageError, UserError
from ccnn.crf.dense import PRESETS, Preset
from ccnn.images.grid import mean_scores
from ccnn.images.masks import Lost, mask_settings
from ccnn.images.reading import read_image, read_mask
from ccnn.inference import predict
from ccnn.inference.engines import ENGINES, load_forward
from ccnn.nets.backbones import DEFAULT
from ccnn.training.features import features_shape

RED = (4 * np.arange(60)).astype(np.uint8)          # exceeds 128 from column 33 on


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    net, weights = make_net(tmp_path_factory.mktemp("tiny"))
    return predict.find_model(net=net, weights=weights)


@pytest.fixture
def rgb():
    picture = np.zeros((40, 60, 3), np.uint8)
    picture[..., 0] = RED
    return picture


def test_an_array_becomes_a_mask(files, rgb):
    model = predict.load_model(files)
    mask = predict.segment(rgb, model, predict.SegmentOptions(predict.every_label(files)))
    assert mask.dtype == np.uint8 and mask.shape == (40, 60)
    assert np.array_equal(mask[:, :57], np.tile(RED[:57] > 128, (40, 1)))       # the last cell sits on column 56
    only_bicycle = predict.segment(rgb, model, predict.SegmentOptions([0, 2]))
    assert np.array_equal(only_bicycle[0, :57], 2 * (RED[:57] > 178))
    sharp = predict.segment(rgb, model, predict.SegmentOptions(predict.every_label(files), PRESETS["tuned"]))
    assert sharp.shape == (40, 60) and set(np.unique(sharp)) <= {0, 1}


def test_a_model_of_two_sizes_scores_the_mean_of_both(files, rgb):
    """Of the net at each size, enlarged to the finer grid."""
    large = np.asarray(Image.fromarray(rgb).resize((240, 160)))
    several = predict.load_model(files._replace(size=[64, 128]))
    single = {size: predict.load_model(files._replace(size=size)).scores(large) for size in (64, 128)}
    mean = several.scores(large)
    assert mean.values.shape == single[128].values.shape != single[64].values.shape
    assert np.array_equal(mean.values, mean_scores(list(single.values())).values)
    assert np.abs(mean.values[1] - single[128].values[1]).max() > 1
    assert several.reduce(large).shape == (85, 128, 3)
    small = several.scores(large[:40, :60])             # smaller than both: seen once
    assert np.array_equal(small.values, predict.load_model(files._replace(size=64)).scores(large[:40, :60]).values)


def test_a_photograph_and_its_mirror_image_get_one_answer(files):
    """With mirror=True."""
    rgb = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    model = predict.load_model(files)
    even = np.ascontiguousarray(rgb[:, :57])            # the cells of the mirror image lie on the same pixels
    both = model.scores(even, mirror=True).values
    other = model.scores(np.ascontiguousarray(even[:, ::-1]), mirror=True).values
    assert other[:, :, ::-1] == pytest.approx(both, abs=1e-4)
    assert np.abs(model.scores(rgb).values - model.scores(rgb, mirror=True).values).max() > 1       # between them
    options = predict.SegmentOptions(predict.every_label(files), mirror=True)
    assert predict.mask_settings_of(files, options) != predict.mask_settings_of(files, options._replace(mirror=False))
    assert np.array_equal(predict.segment(rgb, model, options), predict.mask_and_probabilities(
        rgb, model.scores(rgb, mirror=True), options)[0])


@pytest.mark.parametrize("engine", ["caffe", "onnx"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_every_photograph_is_answered_for(files, rgb, tmp_path, jobs, engine):
    work = []
    for k in range(4):
        Image.fromarray(rgb).save(tmp_path / f"{k}.png")
        work.append((tmp_path / f"{k}.png", tmp_path / f"masks/{k}.png", tmp_path / f"masks/{k}.npz"))
    (tmp_path / "2.png").write_bytes(b"no photograph")
    options = predict.SegmentOptions(predict.every_label(files))
    answers = list(predict.segment_files(work, files, options, jobs, engine))
    assert len(answers) == 4
    failures = [answer for answer in answers if answer != []]
    assert len(failures) == 1 and "2.png: is not an image" in failures[0]
    assert sorted(path.name for path in (tmp_path / "masks").iterdir()) == \
        ["0.npz", "0.png", "1.npz", "1.png", "3.npz", "3.png"]
    assert mask_settings(tmp_path / "masks/0.png") == predict.mask_settings_of(files, options)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_object_that_the_crf_takes_is_told_of(files, rgb, tmp_path, jobs):
    """A CRF in which every pixel hears of all: the larger part of the photograph, background, wins."""
    Image.fromarray(rgb).save(tmp_path / "a.png")
    preset = Preset(3, 1, 5000, 5000, 1e3, 5)
    for keep in (0, 0.25):
        mask = tmp_path / f"{keep}.png"
        options = predict.SegmentOptions([0, 1], preset._replace(keep=keep))
        assert list(predict.segment_files([(tmp_path / "a.png", mask)], files, options, jobs)) == \
            [[Lost(mask, "aeroplane", keep > 0)]]
        share = (read_mask(mask)[:, 33:] == 1).mean()
        assert share >= 0.2 if keep else share == 0


def test_a_segmenter_is_sent_without_its_net(files, rgb, tmp_path):
    """The entry for other ways to spread work: it pickles, before and after the net is loaded, which is done once."""
    Image.fromarray(rgb).save(tmp_path / "a.png")
    segmenter = predict.FileSegmenter(files, predict.SegmentOptions([0, 1]), engine="onnx")
    assert segmenter(tmp_path / "a.png", tmp_path / "1.png") == []
    assert segmenter.model is segmenter.model
    sent = pickle.loads(pickle.dumps(segmenter))
    assert "model" not in vars(sent)
    assert sent(tmp_path / "a.png", tmp_path / "2.png", tmp_path / "2.jpg") == []
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes() and (tmp_path / "2.jpg").exists()
    assert "b.png: no such file" in sent(tmp_path / "b.png", tmp_path / "3.png")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_model_that_does_not_load_is_one_error_not_one_per_photograph(files, rgb, tmp_path, jobs):
    Image.fromarray(rgb).save(tmp_path / "a.png")
    bad = files._replace(classes=files.classes[:5])
    with pytest.raises(UserError, match="tiny.prototxt: scores 21 labels, but 5 class names are known"):
        work = [(tmp_path / "a.png", tmp_path / "1.png")] * 4
        list(predict.segment_files(work, bad, predict.SegmentOptions([0, 1]), jobs))


def test_work_goes_on_without_a_worker_that_was_killed(files, rgb, tmp_path):
    Image.fromarray(rgb).save(tmp_path / "a.png")
    work = [(tmp_path / "a.png", tmp_path / f"masks/{k}.png") for k in range(12)]
    answers = predict.segment_files(work, files, predict.SegmentOptions([0, 1]), jobs=2)
    assert next(answers) == []
    os.kill(children()[-1], signal.SIGKILL)
    assert list(answers) == [[]] * 11
    assert {path.name for path in (tmp_path / "masks").glob("[0-9]*.png")} == {f"{k}.png" for k in range(12)}


def children():
    """The numbers of this process's children that run Python code of a worker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields, command = path.read_text().rpartition(")")[2].split(), (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and "spawn_main" in command:
            found.append(int(path.parent.name))
    return sorted(found)


def test_masks_do_not_depend_on_the_engine(files, rgb, tmp_path):
    options = predict.SegmentOptions([0, 1])
    Image.fromarray(rgb).save(tmp_path / "a.png")
    for engine in ENGINES:
        list(predict.segment_files([(tmp_path / "a.png", tmp_path / f"{engine}.png")], files, options, 1, engine))
    assert len({(tmp_path / f"{engine}.png").read_bytes() for engine in ENGINES}) == 1
    assert predict.mask_settings_of(files, options) == mask_settings(tmp_path / "onnx.png")


def test_masks_do_not_depend_on_the_number_of_jobs(files, rgb, tmp_path, monkeypatch):
    """One photograph on many cores is computed as one of many is."""
    loaded = []
    monkeypatch.setattr(predict, "load_forward", lambda *args: loaded.append(args[2:]) or load_forward(*args))
    Image.fromarray(rgb).save(tmp_path / "a.png")
    for jobs in (1, 8):
        work = [(tmp_path / "a.png", tmp_path / f"{jobs}.png")]
        list(predict.segment_files(work, files, predict.SegmentOptions([0, 1]), jobs))
    assert loaded == [("fc8", "auto", None)] * 2


def test_a_photograph_without_permission_is_not_called_damaged(tmp_path, monkeypatch):
    """Patched, because a superuser may read everything."""
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")

    def refuse(*_, **options):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(Image, "open", refuse)
    for read in (read_image, lambda path: features_shape(DEFAULT, path, 224)):
        with pytest.raises(ImageError, match="a.png: may not be read"):
            read(tmp_path / "a.png")


def test_a_forgotten_net_or_weights_is_one_line_of_ours(tmp_path, root):
    head = root / "prototxt/head_deploy.prototxt"
    weights = make_net(tmp_path)[1]
    for options in ({"net": head}, {"weights": weights}):
        with pytest.raises(UserError, match="a model is --net and --weights together, or --model alone; name both"):
            predict.find_model(**options)
    with pytest.raises(UserError, match="tiny.caffemodel: has no layer fc8_cell, but .*; give --net and --weights that "
                                        "belong together$"):
        predict.load_model(predict.find_model(net=head, weights=weights))


def test_weights_of_another_shape_are_one_line_of_ours(tmp_path):
    net, weights = make_net(tmp_path)
    net.write_text(net.read_text().replace("num_output: 21", "num_output: 5"))
    with pytest.raises(UserError, match="has layer fc8 as 21x3x1x1, but .* needs it as 5x3x1x1; give --net and --w"):
        predict.load_model(predict.find_model(net=net, weights=weights))
