"""The NumPy trainer of the linear head against `caffe train`: the same steps from the same weights, the same result."""
import itertools
import json
import os
import signal

import caffe
import numpy as np
import pytest
from PIL import Image
from tiny_voc import annotation

from ccnn._util.errors import UserError
from ccnn.images.reading import fit
from ccnn.nets.backbones import VGG16, Backbone
from ccnn.nets.caffe_files import read_caffemodel, read_state, write_caffemodel
from ccnn.nets.cues import Cue
from ccnn.project.class_kinds import ClassKind
from ccnn.project.feature_cache import maps_folder
from ccnn.project.folder import read_folder
from ccnn.project.learn import RECIPE, Project
from ccnn.project.predictions import predict
from ccnn.training import caffe_training, head
from ccnn.training.caffe_log import read_log

STEPS = 40
SHAPES = [(160, 250), (250, 180), (200, 200), (240, 150), (150, 230), (250, 250)]

RULES = """
[cat]
most = 0.5
touches = "lower"

[scribbles]
folder = "scribbles"
"""


def write_photos(folder, kind):
    """Six photographs with features that no trunk has made: for a head, any numbers are features."""
    rng, rows = np.random.default_rng(5), []
    (folder / "scribbles").mkdir(parents=True)
    (folder / "Annotations").mkdir()
    for number, shape in enumerate(SHAPES):
        Image.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)).save(folder / f"{number}.jpg")
        tags = [name for name, bit in (("cat", 1), ("dog", 2)) if (number + 1) & bit]
        rows.append(f"{number}.jpg,{';'.join(tags)}" + (f",{';'.join(tags[:number % 2])}" if kind == "size" else ""))
        scribble = np.full(shape, 255, np.uint8)
        scribble[40:90, 40:100] = (number + 1) & 1          # a cat, or background
        Image.fromarray(scribble).save(folder / f"scribbles/{number}.png")
        (folder / f"Annotations/{number}.xml").write_text(
            annotation(f"{number}", (shape[1], shape[0]), [(name, 8 + 50 * k, 8, 90 + 50 * k, 120)
                                                           for k, name in enumerate(tags)]))
    (folder / "classes.txt").write_text("cat\ndog\n")
    if kind == "boxes":
        return
    (folder / "tags.csv").write_text("\n".join(["image,tags,large" if kind == "size" else "image,tags", *rows]) + "\n")
    if kind in ("rules and scribbles", "cue and scribbles"):
        (folder / "constraints.toml").write_text(RULES)


def write_features(work):
    for size in RECIPE.sizes:
        place = work / f"features/{size}"
        place.mkdir(parents=True)
        (place / "index.json").write_text(json.dumps({"size": size}))
        for number, shape in enumerate(SHAPES):
            grid = [VGG16.cells(length) for length in fit(*shape, size)]
            smooth = np.random.default_rng([size, number]).gamma(0.5, 1, (VGG16.channels, *grid))
            np.save(place / f"{number}.npy", smooth.astype(np.float16))


def write_maps(place):
    """Something stands out at the left; nothing does in the last photograph."""
    place.mkdir(parents=True)
    for number in range(len(SHAPES)):
        S = np.zeros((20, 30), np.float16)
        S[3:15, 2:10 + number] = 0.9 * (number < len(SHAPES) - 1)
        np.save(place / f"{number}.npy", S)


KINDS = "tags", "size", "boxes", "rules and scribbles", "labels", "cue", "cue and scribbles"


@pytest.fixture(params=KINDS)
def project(request, tmp_path, monkeypatch):
    """A folder of each kind; of kind "labels", its second round."""
    (tmp_path / "trunk.caffemodel").write_bytes(b"any")
    monkeypatch.setattr(Backbone, "fetch_weights", lambda self: tmp_path / "trunk.caffemodel")
    write_photos(tmp_path / "photos", request.param)
    monkeypatch.setattr(Cue, "fetch_net", lambda self: tmp_path / "cue.onnx")
    project = Project(read_folder(str(tmp_path / "photos")), cue=None if "cue" in request.param else "none")
    write_features(project.work)
    write_maps(maps_folder(project.work, "u2netp"))
    project.decided = {1: ClassKind(True, ""), 2: ClassKind(False, "")}         # dogs are surfaces
    (project.work / "labels").mkdir()
    for number, shape in enumerate(SHAPES):
        mask = np.random.default_rng(number).integers(0, 3, shape).astype(np.uint8)
        mask[:9] = 255
        Image.fromarray(mask).save(project.work / f"labels/{number}.png")
    project.second = request.param == "labels"
    return project


def solver_of(project, prefix, steps=STEPS):
    net = project.write_net(project.work / f"{prefix}.prototxt", labels=project.second)
    solver = project.solver(steps, net, project.work / prefix)
    solver.snapshot, solver.base_lr = steps // 2, 1e-2
    return solver


def start_of(project, solver):
    """Weights to begin with."""
    net = head.HeadNet(head.read_net(solver.net), "net")
    path = project.work / "start.caffemodel"
    write_caffemodel(path, net.to_arrays(net.random(3)))
    return path


def largest_difference(a, b):
    a, b = read_caffemodel(a), read_caffemodel(b)
    assert a.keys() == b.keys() == {"fc8_cell", "fc8_image"}
    return max(np.abs(x - y).max() for name in a for x, y in zip(a[name], b[name]))


def both(project, steps=STEPS):
    """(NumPy's training, Caffe's), run to their ends from the same weights."""
    ours = solver_of(project, "ours", steps)
    start = start_of(project, ours)
    trainings = head.prepare(ours, start), caffe_training.prepare(solver_of(project, "theirs", steps), start)
    for training in trainings:
        assert not training.finished and not training.run()
    return trainings


@pytest.mark.parametrize("project", ["boxes", "rules and scribbles", "labels", "cue and scribbles"], indirect=True)
def test_the_weights_are_caffes_after_the_same_steps(project):
    ours, theirs = both(project)
    assert largest_difference(ours.model, theirs.model) < 1e-4
    assert largest_difference(ours.model, project.work / "start.caffemodel") > 0.005     # else this proves nothing

    a, b = (read_state(training.model.with_suffix(".solverstate")) for training in (ours, theirs))
    assert a.iteration == b.iteration == STEPS and a.weights == str(ours.model)
    for x, y in zip(a.history, b.history):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-3 * max(np.abs(y).max(), 1e-9))

    one, two = read_log(ours.log).loss, read_log(theirs.log).loss
    assert list(one) == list(two) == [0, 20, STEPS]                 # the last is that of the next sample, in Caffe
    assert one[0] == pytest.approx(two[0], rel=1e-4) and one[20] == pytest.approx(two[20], rel=1e-4)


@pytest.mark.parametrize("project", [kind for kind in KINDS if kind != "labels"], indirect=True)     # its first round
def test_what_is_asked_of_the_net_is_what_caffe_computes(project):
    weights, ids = start_of(project, solver_of(project, "ours")), list(project.folder.photographs)
    size = RECIPE.sizes[1]
    net = caffe.Net(str(project.write_net(project.work / "ask.prototxt", sizes=[size], shuffle=False)), caffe.TEST)
    net.copy_from(str(weights))
    project.recipe = RECIPE._replace(sizes=(size,))
    for prediction in predict(project, weights, ids):
        net.forward()
        np.testing.assert_allclose(prediction.scores.values, net.blobs["fc8"].data[0], atol=1e-4)
        assert prediction.loss == pytest.approx(net.blobs["loss"].data.item(), rel=1e-4)


@pytest.mark.parametrize("project", ["tags"], indirect=True)
class TestOneFolder:
    def test_each_continues_a_snapshot_of_the_other(self, project):
        """Here the head sees the image's mean, too."""
        project.recipe = RECIPE._replace(cells_only=False)
        ours, theirs = both(project)
        assert largest_difference(ours.model, theirs.model) < 1e-4
        moved = read_caffemodel(ours.model)["fc8_image"][0] - read_caffemodel(project.work / "start.caffemodel")[
            "fc8_image"][0]
        assert np.abs(moved).max() > 0.005
        for training, prepare in ((theirs, head.prepare), (ours, caffe_training.prepare)):
            whole = training.model.with_name("whole.caffemodel")
            training.model.rename(whole)
            training.model.with_suffix(".solverstate").unlink()
            resumed = prepare(training.solver)
            assert resumed.start_at == STEPS // 2 and not resumed.run()
            assert largest_difference(training.model, whole) < 1e-4

    def test_a_stopped_training_goes_on_to_the_same_weights(self, project):
        whole = head.prepare(solver_of(project, "whole", 400))
        whole.run()
        stopped = head.prepare(solver_of(project, "stopped", 400))
        steps = itertools.count()
        stopped.step = lambda iteration: (os.kill(os.getpid(), signal.SIGINT) if next(steps) == 33 else None,
                                          head.HeadTraining.step(stopped, iteration))[1]
        assert stopped.run()
        resumed = head.prepare(stopped.solver)
        assert resumed.start_at == 34 and not resumed.run()
        assert largest_difference(resumed.model, whole.model) == 0
        assert head.prepare(stopped.solver).finished and not head.prepare(stopped.solver).run()

    def test_features_that_do_not_fit_into_memory_are_read_again(self, project):
        models = []
        for name, memory in (("all", head.FeatureMemory()), ("some", head.FeatureMemory(3 << 20))):
            training = head.prepare(solver_of(project, name, 10), memory=memory)
            training.run()
            models.append(training.model)
            assert (len(memory.kept) == 2 * len(SHAPES)) == (name == "all") and memory.kept
        assert largest_difference(*models) == 0

    def test_seeds_differ(self, project):
        net = head.HeadNet(head.read_net(solver_of(project, "ours").net), "net")
        one, two, again = (net.random(seed)[0] for seed in (1, 2, 1))
        assert np.array_equal(one, again) and not np.array_equal(one, two)
        assert one.std() == pytest.approx(0.01, rel=0.1)

    @pytest.mark.parametrize("name, value", [("type", "SGD"), ("lr_policy", "fixed"), ("clip_gradients", 1)])
    def test_another_optimiser_is_refused_in_one_line(self, project, name, value):
        solver = solver_of(project, "ours")
        setattr(solver, name, value)
        with pytest.raises(UserError, match=f"the solver's {name} is .*--trainer caffe"):
            head.prepare(solver)

    @pytest.mark.parametrize("net", ["conv5_tags", "head_mil_fcn", "ccnn_tags"])
    def test_another_net_is_refused_in_one_line(self, project, root, net):
        solver = solver_of(project, "ours")
        solver.net = str(root / f"prototxt/{net}.prototxt")
        with pytest.raises(UserError, match="NumPy trainer.*--trainer caffe"):
            head.prepare(solver)

    def test_damaged_features_end_it_in_one_line(self, project):
        training = head.prepare(solver_of(project, "ours"))
        (project.work / "features/224/3.npy").write_bytes(b"\x93NUMPY")
        with pytest.raises(UserError, match="3.npy: is damaged"):
            training.run()

    def test_weights_that_run_away_end_it_in_one_line(self, project):
        solver = solver_of(project, "ours")
        solver.base_lr = 1e38
        with pytest.raises(UserError, match="at iteration 1.*npy; log"):
            head.prepare(solver).run()
