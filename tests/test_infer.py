"""tools/infer.py on nets whose answer is known."""
import os
import signal
import subprocess

import numpy as np
import pytest
from broken_photographs import broken_files
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tiny_net import make_net
from waiting import wait_for

import ccnn.inference.caffe_net
from ccnn._util.errors import UserError
from ccnn.cli import crf as crf_tool
from ccnn.cli import segment as infer
from ccnn.crf import dense as crf
from ccnn.images import grid, masks
from ccnn.images.labels import VOC_CLASSES
from ccnn.images.masks import unfinished
from ccnn.images.overlays import colours
from ccnn.inference.model_file import read_model, write_model

RAMP = (1 + np.arange(65) * 3).astype(np.uint8)     # red 1, 4, ..., 193; exceeds 128 from column 43 on


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_net(tmp_path_factory.mktemp("tiny"))


def picture(red, height=41):
    """height x len(red) x 3: that red in every row."""
    rgb = np.zeros((height, len(red), 3), np.uint8)
    rgb[..., 0] = red
    return rgb


def save(path, rgb=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(RAMP) if rgb is None else rgb).save(path, **options)
    return path


def run(tiny, out, *arguments):
    net, weights = tiny
    return infer.main(["--net", str(net), "--weights", str(weights), "--out", str(out), "--jobs", "1",
                       *map(str, arguments)])


def mask_of(path):
    with Image.open(path) as image:
        assert image.mode == "P" and image.getpalette()[3:6] == [128, 0, 0] and image.getpalette()[6:9] == [0, 128, 0]
        return np.array(image)


# --- where the scores lie ------------------------------------------------------------------------------------

def test_masks_are_aligned_to_the_pixel(tiny, tmp_path):
    """The net sees pixels 0, 8, 16, ... of a linear ramp: between them the scores must be exactly linear again."""
    rgb = picture(RAMP, 41)
    run(tiny, tmp_path / "across", save(tmp_path / "a.png", rgb))
    assert np.array_equal(mask_of(tmp_path / "across/a.png"), np.tile(RAMP > 128, (41, 1)))
    run(tiny, tmp_path / "down", save(tmp_path / "a.png", rgb.transpose(1, 0, 2)))
    assert np.array_equal(mask_of(tmp_path / "down/a.png"), np.tile(RAMP > 128, (41, 1)).T)


@pytest.mark.parametrize("factor", [2, 5, 11])
def test_masks_of_reduced_photographs_are_aligned(tiny, tmp_path, factor):
    """Reduced, a ramp is a ramp; enlarged, the labels change where the photograph's red passes 128."""
    red = np.rint(np.arange(65 * factor) * 3 / factor).astype(np.uint8)
    for turn in (0, 1):
        rgb = np.rot90(picture(red, 41 * factor), -turn)
        run(tiny, tmp_path / f"out{turn}", "--size", 65, save(tmp_path / "a.png", rgb))
        mask = np.rot90(mask_of(tmp_path / f"out{turn}/a.png"), turn)
        edge = (mask[0] == 0).sum()
        assert np.array_equal(mask, np.tile(np.arange(65 * factor) >= edge, (41 * factor, 1)))
        # red is rounded to whole numbers, and passes 128 at 3 / factor a pixel; half a reduced pixel is factor / 2
        assert abs(edge - (red <= 128).sum()) <= factor / 5


# --- photographs of every kind -------------------------------------------------------------------------------

def test_every_kind_of_photograph(tiny, tmp_path):
    photos = tmp_path / "photos"
    rgb = np.zeros((41, 65, 3), np.uint8) + RAMP[:, None]               # gray, so that all formats can hold it
    gray = Image.fromarray(rgb[..., 0])
    photos.mkdir()
    gray.save(photos / "gray.png")
    Image.fromarray(np.dstack([rgb, np.full((41, 65), 7, np.uint8)])).save(photos / "alpha.png")
    Image.fromarray(np.tile(RAMP.astype(np.uint16) * 256, (41, 1))).save(photos / "deep.png")
    Image.fromarray(rgb).convert("P", palette=Image.ADAPTIVE).save(photos / "palette.png")
    Image.fromarray(rgb).save(photos / "t.tiff")
    Image.fromarray(rgb).save(photos / "b.bmp")
    Image.fromarray(rgb).save(photos / "w.webp", lossless=True)
    gray.convert("CMYK").save(photos / "cmyk.jpg", quality=100)
    exif = Image.Exif()
    exif[0x0112] = 6                                                    # the camera was held upright
    Image.fromarray(rgb).save(photos / "turned.png", exif=exif)
    assert run(tiny, tmp_path / "out", photos) == 0
    expected = np.tile(RAMP > 128, (41, 1))
    for name in ("gray", "alpha", "deep", "palette", "t", "b", "w", "cmyk"):
        assert (mask_of(tmp_path / f"out/{name}.png") == expected).mean() > 0.97, name
    assert np.array_equal(mask_of(tmp_path / "out/turned.png"), np.rot90(expected, -1))


@pytest.mark.parametrize("shape", [(1, 1), (1, 900), (700, 1), (2, 3)])
def test_extreme_shapes(tiny, tmp_path, shape):
    photo = save(tmp_path / "a.png", np.full((*shape, 3), 200, np.uint8))
    assert run(tiny, tmp_path / "out", photo, "--size", 64, "--crf", "--probabilities") == 0
    assert np.array_equal(mask_of(tmp_path / "out/a.png"), np.ones(shape))


def test_a_20_megapixel_photograph_within_stated_memory(tiny, tmp_path, root, python_bin):
    """--help promises 0.4 GB for a job, whatever the net takes."""
    large = save(tmp_path / "large.jpg", np.tile(picture(np.repeat(RAMP, 80)), (89, 1, 1)))
    assert Image.open(large).size == (5200, 3649)
    code = ("import sys, infer, resource; base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
            "infer.main(sys.argv[1:]); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)")
    net, weights = tiny
    small = save(tmp_path / "small.jpg")
    used = []
    for photo in (small, large):
        out = subprocess.run([python_bin, "-c", code, "--net", net, "--weights", weights,
                              "--out", tmp_path / photo.stem, "--jobs", "1", "--size", "321", photo],
                             capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHONPATH": f"{root}/tools:{root}/layers:{root}/.caffe/packages"}
                             ).stdout
        used.append(int(out.split()[-1]) / 1e6)             # GB
    assert used[1] - used[0] < 0.4
    assert mask_of(tmp_path / "large/large.png").shape == (3649, 5200)
    assert max(Image.open(tmp_path / "large/overlay/large.jpg").size) < 1500


# --- what is written -----------------------------------------------------------------------------------------

def test_tags_restrict_the_labels(tiny, tmp_path):
    photo = save(tmp_path / "a.png")
    run(tiny, tmp_path / "out", photo, "--tags", "bicycle", "--probabilities")
    assert np.array_equal(mask_of(tmp_path / "out/a.png")[0], 2 * (RAMP > 178))         # label 2 scores 50 less
    p = np.load(tmp_path / "out/probabilities/a.npz")["probabilities"]
    assert not p[[1, *range(3, 21)]].any() and p[[0, 2]].any(axis=(1, 2)).all()
    for tags in ("bycicle", "", "cat,,dgo"):
        with pytest.raises(UserError, match="--tags: (tag '.*' is not a class; did you|names no class; known: aero)"):
            run(tiny, tmp_path / "out2", photo, "--tags", tags)


def test_probabilities_are_the_softmax_and_the_crf_continues_from_them(tmp_path):
    tiny = make_net(tmp_path, slope=0.05)
    rng = np.random.default_rng(0)
    rgb = (picture(RAMP).astype(int) + rng.integers(0, 60, (41, 65, 3))).astype(np.uint8)
    photo = save(tmp_path / "photos/a.png", rgb)
    run(tiny, tmp_path / "plain", photo, "--probabilities")
    with np.load(tmp_path / "plain/probabilities/a.npz") as file:
        p = file["probabilities"].astype(float)
        assert tuple(file["classes"]) == VOC_CLASSES
    assert p.shape == (21, 41, 65) and abs(p.sum(axis=0) - 1).max() < 2e-3
    assert np.array_equal(p.argmax(axis=0), mask_of(tmp_path / "plain/a.png"))
    red = float(rgb[0, 8, 0])                                           # at cell (0, 1): the score itself
    weights = np.exp([0, 0.05 * (red - 128), 0.05 * (red - 178)])
    assert p[:3, 0, 8] == pytest.approx(weights / weights.sum(), abs=1e-3)

    run(tiny, tmp_path / "sharp", photo, "--crf", "tuned", "--probabilities")
    crf_tool.main([str(tmp_path / "plain/probabilities"), "--images", str(tmp_path / "photos"), "--preset", "tuned",
              "--out", str(tmp_path / "continued"), "--jobs", "1"])
    sharp = mask_of(tmp_path / "sharp/a.png")
    assert (sharp == mask_of(tmp_path / "continued/a.png")).mean() > 0.999
    assert (sharp != mask_of(tmp_path / "plain/a.png")).any()
    assert crf_tool.main([str(tmp_path / "sharp/probabilities"), "--images", str(tmp_path / "photos"), "--out",
                     str(tmp_path / "twice"), "--jobs", "1"]) == 1       # the CRF is not applied twice


def test_overlays_have_colours_and_a_legend(tiny, tmp_path):
    run(tiny, tmp_path / "out", save(tmp_path / "a.png", picture(np.repeat(RAMP, 5), 200)))
    with Image.open(tmp_path / "out/overlay/a.jpg") as image:
        shown = np.array(image).astype(int)
    assert shown.shape[1] >= 325 and shown.shape[0] > 200
    colour = colours()[VOC_CLASSES.index("aeroplane")]
    right = shown[50:150, 260:320].mean(axis=(0, 1))        # the photograph shines through the label's colour
    red = np.array([np.repeat(RAMP, 5)[260:320].mean(), 0, 0])
    assert right == pytest.approx(0.55 * red + 0.45 * colour, abs=4)
    left = shown[50:150, :40].mean(axis=(0, 1))
    assert left == pytest.approx([np.repeat(RAMP, 5)[:40].mean(), 0, 0], abs=4)
    legend = shown[200:]
    assert (legend.min(axis=-1) > 240).mean() > 0.5                     # white paper,
    assert (abs(legend - colour).max(axis=-1) < 20).sum() > 50          # the colour's square, and text
    assert (legend.max(axis=-1) < 60).sum() > 50


def test_masks_without_overlays(tiny, tmp_path):
    run(tiny, tmp_path / "out", save(tmp_path / "a.png"), "--no-overlay")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["a.png"]


def test_a_run_may_go_on_with_another_engine(tiny, tmp_path, caplog):
    caplog.set_level("INFO")
    save(tmp_path / "photos/a.png")
    run(tiny, tmp_path / "out", tmp_path / "photos", "--engine", "onnx")
    save(tmp_path / "photos/b.png")
    run(tiny, tmp_path / "out", tmp_path / "photos", "--engine", "caffe")
    assert "1 of 2 were finished before" in caplog.text
    assert (tmp_path / "out/a.png").read_bytes() == (tmp_path / "out/b.png").read_bytes()


# --- which photographs ---------------------------------------------------------------------------------------

def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))


def test_two_photographs_of_one_name_are_refused(tiny, tmp_path):
    a, b = save(tmp_path / "1/a.png"), save(tmp_path / "2/a.jpg")
    with pytest.raises(UserError, match="1/a.png and .*2/a.jpg would both become"):
        run(tiny, tmp_path / "out", a, b)
    assert not (tmp_path / "out").exists()


# --- many photographs ----------------------------------------------------------------------------------------

def state(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.*")}


def test_finished_photographs_are_skipped_and_nothing_is_overwritten_silently(tiny, tmp_path, caplog):
    caplog.set_level("INFO")
    photos, out = tmp_path / "photos", tmp_path / "out"
    save(photos / "a.png"), save(photos / "b.png")
    run(tiny, out, photos)
    before = state(out)
    assert len(before) == 4
    save(photos / "c.png")
    run(tiny, out, photos)
    assert "2 of 3 were finished before" in caplog.text
    assert state(out).items() > before.items() and len(state(out)) == 6

    run(tiny, out, photos, "--force")
    assert not state(out).items() & before.items()                      # all made again
    before = state(out)

    (out / "overlay/a.jpg").unlink()                                    # a part is missing: made again
    run(tiny, out, photos)
    assert (out / "overlay/a.jpg").exists() and state(out)[out / "b.png"] == before[out / "b.png"]

    before = state(out)
    for other in (("--crf",), ("--tags", "cat"), ("--size", "40"), ("--crf", "tuned")):
        with pytest.raises(UserError, match="a.png and 2 more: made with different settings.*--force"):
            run(tiny, out, photos, *other)
    (out / "d.png").write_bytes(b"somebody's")
    save(photos / "d.png")
    with pytest.raises(UserError, match="d.png: made with different settings"):
        run(tiny, out, photos)
    assert (out / "d.png").read_bytes() == b"somebody's"
    assert state(out).items() > before.items()
    assert run(tiny, out, photos, "--tags", "cat", "--force") == 0
    assert "overwriting 4 files" in caplog.text
    assert not mask_of(out / "a.png").any()


def test_names_of_files_cannot_command_the_terminal(tiny, tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/\x1b[2J.jpg").write_bytes(b"no photograph")
    assert run(tiny, tmp_path / "out", tmp_path / "photos") == 1
    captured = capsys.readouterr()
    assert r"\x1b[2J.jpg: is not an image" in captured.err and "\x1b" not in captured.err + captured.out


def test_a_mask_belongs_to_the_content_of_its_photograph(tiny, tmp_path, caplog):
    """cp -p and unzip put files in place that are older than the mask of what was there before."""
    caplog.set_level("INFO")
    photo, mask = save(tmp_path / "a.png"), tmp_path / "out/a.png"
    run(tiny, tmp_path / "out", photo)
    first = mask_of(mask)
    save(photo, picture(RAMP[::-1]))
    os.utime(photo, (1e9, 1e9))
    assert run(tiny, tmp_path / "out", photo) == 0
    assert np.array_equal(mask_of(mask), first[:, ::-1]) and not np.array_equal(mask_of(mask), first)
    stamp = mask.stat().st_mtime_ns
    os.utime(photo)                                                     # newer, but the same
    run(tiny, tmp_path / "out", photo)
    assert "1 of 1 were finished before" in caplog.text and mask.stat().st_mtime_ns == stamp

    text = PngInfo()                                                    # a mask of an earlier version: times decide
    for key, value in Image.open(mask).text.items():
        if key != "source":
            text.add_itxt(key, value)
    Image.open(mask).save(mask, pnginfo=text)
    os.utime(photo, (1e9, 1e9))
    assert unfinished([(photo, mask)], masks.mask_settings(mask), False) == []
    os.utime(mask, (9e8, 9e8))
    assert unfinished([(photo, mask)], masks.mask_settings(mask), False) == [(photo, mask)]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_bad_photograph_is_named_at_the_end(tiny, tmp_path, capsys, caplog, jobs):
    caplog.set_level("INFO")
    photos, out = tmp_path / "photos", tmp_path / "out"
    for name in "acd":
        save(photos / f"{name}.png")
    (photos / "b.png").write_bytes((photos / "a.png").read_bytes()[:90])
    broken = broken_files(photos)
    assert run(tiny, out, photos, "--crf", "--jobs", jobs) == 1
    assert names(out) == ["a.png", "c.png", "d.png"]
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert all(sum(line.startswith(f"{path}: ") for line in lines) == 1 for path in [photos / "b.png", *broken])
    assert f"{len(broken) + 1} failed" in captured.err and "3 masks" in captured.out
    save(photos / "b.png")
    for path in broken:
        path.unlink()
    assert run(tiny, out, photos, "--crf") == 0                          # only that one is left to do
    assert "3 of 4 were finished before" in caplog.text
    assert "1 mask in" in capsys.readouterr().out


def test_interrupted_work_is_kept_and_leaves_no_halves(tiny, tmp_path, root, python_bin):
    photos, out = tmp_path / "photos", tmp_path / "out"
    first = save(photos / "0.png")
    for k in range(1, 3000):
        os.link(first, photos / f"{k}.png")
    net, weights = tiny
    command = [python_bin, root / "tools/infer.py", "--net", net, "--weights", weights, "--out", out, "--jobs", "1",
               "--no-overlay", "--crf", photos]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len([*out.glob("[0-9]*.png")]) >= 5, "five masks", process)
    for _ in range(3):                  # Python drops an interrupt that falls into a destructor: then once more
        process.send_signal(signal.SIGINT)
        try:
            _, error = process.communicate(timeout=30)
            break
        except subprocess.TimeoutExpired:
            pass
    else:
        process.kill()
        _, error = process.communicate()
    assert process.returncode == 130 and error == "infer.py: error: stopped\n"
    done = list(out.rglob("*.png"))
    assert 5 <= len(done) < 3000
    for path in done:
        assert not path.name.startswith(".") and mask_of(path).shape == (41, 65)


# --- models --------------------------------------------------------------------------------------------------

def test_the_model_tells_its_size_and_classes(tmp_path, capsys):
    net, weights = make_net(tmp_path, labels=3)
    photo = save(tmp_path / "a.png")
    with pytest.raises(UserError, match="scores 3 labels, but 21 class names"):
        run((net, weights), tmp_path / "out", photo)
    weights.with_suffix(".json").write_text('{"size": 40, "classes": ["background", "fish", "kite"]}')
    run((net, weights), tmp_path / "out", photo, "--tags", "kite")
    assert masks.mask_settings(tmp_path / "out/a.png")["size"] == 40
    (tmp_path / "classes.txt").write_text("beetle\nsnail\n")
    run((net, weights), tmp_path / "out2", photo, "--tags", "beetle",
        "--classes", tmp_path / "classes.txt", "--size", 50)
    assert masks.mask_settings(tmp_path / "out2/a.png")["size"] == 50
    for wrong in ("{", "[]", '{"size": "big"}', '{"size": 0}', '{"classes": [1, 2]}', '{"classes": 5}', "3"):
        weights.with_suffix(".json").write_text(wrong)
        with pytest.raises(UserError, match="tiny.json: does not describe a model"):
            run((net, weights), tmp_path / "out3", photo)


@pytest.fixture
def packed(tmp_path):
    """Two models of one net whose classes have other names."""
    tiny = make_net(tmp_path, labels=3)
    for name, classes in (("fish", ("background", "fish", "große Katze")), ("bird", ("background", "bird", "猫"))):
        write_model(tmp_path / f"{name}.ccnn", *tiny, classes, 65, {"crf": "tuned"})
    return tmp_path


def run_model(packed, name, *arguments):
    return infer.main(["--model", str(packed / f"{name}.ccnn"), "--out", str(packed / "out"), "--jobs", "1",
                       *map(str, arguments)])


def test_a_model_is_one_file_and_its_masks_carry_the_names(packed):
    photo = save(packed / "a.png")
    run_model(packed, "fish", photo, "--crf")
    mask = packed / "out/a.png"
    found = mask_of(mask)[0] > 0            # the CRF may move the edge, at column 43, by a pixel or two
    assert not found[:41].any() and found[45:57].all()
    assert masks.mask_classes(mask) == ["background", "fish", "große Katze"]
    settings = masks.mask_settings(mask)
    assert settings["model"] == read_model(packed / "fish.ccnn").fingerprint and settings["size"] == 65
    assert settings["crf"] == crf.PRESETS["tuned"]._asdict()            # the one that the model names
    assert not list(packed.glob("out/*.ccnn")) and masks.mask_classes(photo) is None


def test_a_model_may_have_two_sizes_and_the_user_one(packed):
    photo = save(packed / "a.png")
    write_model(packed / "two.ccnn", packed / "tiny.prototxt", packed / "tiny.caffemodel", ("background", "a", "b"),
                [40, 65])
    run_model(packed, "two", photo)
    assert masks.mask_settings(packed / "out/a.png")["size"] == [40, 65]
    run_model(packed, "two", photo, "--size", 65, "--force")
    assert masks.mask_settings(packed / "out/a.png")["size"] == 65
    with pytest.raises(UserError, match="made with different settings"):
        run_model(packed, "two", photo)


def test_two_models_do_not_mix_in_one_folder(packed):
    photo = save(packed / "a.png")
    run_model(packed, "fish", photo)
    with pytest.raises(UserError, match="out/a.png: made with different settings"):
        run_model(packed, "bird", photo)
    assert masks.mask_classes(packed / "out/a.png")[1] == "fish"
    run_model(packed, "bird", photo, "--force")
    assert masks.mask_classes(packed / "out/a.png")[1:] == ["bird", "猫"]


@pytest.mark.parametrize("options, message", [
    (["--net", "{net}"], "--net .*tiny.prototxt: a model is --net and --weights together, or --model alone; name both"),
    (["--weights", "{weights}"], "--weights .*tiny.caffemodel: a model is --net and --weights together"),
    (["--model", "{fish}", "--net", "{net}", "--weights", "{weights}"], "or --model alone; name one model"),
    (["--model", "{fish}", "--classes", "x.txt"], "--classes x.txt: .*fish.ccnn knows the names of its classes"),
    (["--model", "{weights}"], "tiny.caffemodel: is not a whole .ccnn file"),
])
def test_a_model_is_named_in_one_way(packed, options, message):
    files = {"net": packed / "tiny.prototxt", "weights": packed / "tiny.caffemodel", "fish": packed / "fish.ccnn"}
    with pytest.raises(UserError, match=message):
        infer.main([*(option.format(**files) for option in options), "--out", str(packed / "out"),
                    str(save(packed / "a.png"))])


def test_a_net_without_scores_is_refused(tiny, tmp_path):
    net = tmp_path / "other.prototxt"
    net.write_text(tiny[0].read_text().replace('top: "fc8"', 'top: "scores"'))
    with pytest.raises(UserError, match="no score blob `fc8`"):
        run((net, tiny[1]), tmp_path / "out", save(tmp_path / "a.png"))


def test_infinite_scores_are_a_failure_not_a_mask(tiny, tmp_path, capsys):
    net = ccnn.inference.caffe_net.load_net(*tiny)
    net.params["fc8"][0].data[...] = 3e38
    net.save(str(tmp_path / "huge.caffemodel"))
    assert run((tiny[0], tmp_path / "huge.caffemodel"), tmp_path / "out", save(tmp_path / "a.png")) == 1
    assert "scores are not finite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_image_level_priors(tiny, tmp_path):
    from ccnn.supervision.baselines import image_level_prior
    scores = np.zeros((21, 6, 9), np.float32)
    scores[1] = picture(RAMP)[::8, ::8, 0].astype(np.float32) - 128
    scores[2:] = -1000
    scores[2] = scores[1] - 50
    run(tiny, tmp_path / "out", save(tmp_path / "a.png"), "--ilp")
    cells = np.arange(65) / 8
    expected = grid.label_map(image_level_prior(scores), np.arange(41) / 8, cells)
    mask = mask_of(tmp_path / "out/a.png")
    assert np.array_equal(mask, expected) and not np.array_equal(mask[0], RAMP > 128)


def test_a_photograph_right_after_crf_is_no_preset(tiny, tmp_path):
    photo = save(tmp_path / "a.png")
    run(tiny, tmp_path / "out", "--crf", photo)
    assert masks.mask_settings(tmp_path / "out/a.png")["crf"] == crf.PRESETS["heads"]._asdict()


def test_arguments_are_checked_at_once(tiny, tmp_path, capsys):
    photo = save(tmp_path / "a.png")
    with pytest.raises(SystemExit):
        run(tiny, tmp_path / "out")
    for wrong in (["--size", "5000"], ["--size", "x"], ["--jobs", "0"], ["--gpu", "first"]):
        with pytest.raises(SystemExit) as exit:
            run(tiny, tmp_path / "out", photo, *wrong)
        assert exit.value.code == 2
    with pytest.raises(UserError, match="no CRF preset 'best'"):
        run(tiny, tmp_path / "out", photo, "--crf", "best")
    with pytest.raises(FileNotFoundError):
        run((tmp_path / "none.prototxt", tiny[1]), tmp_path / "out", photo)
    assert not (tmp_path / "out").exists()
