"""The PyTorch engine against real Caffe: the same weights after the same steps, and files that travel both ways.

Caffe and PyTorch live in different Pythons and meet in files. Needs PyTorch: make test-torch.
"""

import itertools
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch installs it beside this Python")

from torch import distributed  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_runs import (  # noqa: E402
    change,
    distance,
    first_weights,
    make_place,
    narrowed,
    run_caffe,
    write_solver,
)

from ccnn._util.errors import UserError  # noqa: E402
from ccnn._util.files import digest  # noqa: E402
from ccnn.images.reading import MEAN_BGR  # noqa: E402
from ccnn.nets import vgg16  # noqa: E402
from ccnn.nets.backbones import VGG16  # noqa: E402
from ccnn.nets.caffe_files import parse_net, read_net, read_solver  # noqa: E402
from ccnn.nets.prototxt import nets  # noqa: E402
from ccnn.nets.solvers import solvers  # noqa: E402
from ccnn.nets.weights import convolutions  # noqa: E402
from ccnn.training.caffe_log import read_log  # noqa: E402
from ccnn.training.caffe_training import open_samples  # noqa: E402
from ccnn.training.torch_engine import devices, processes  # noqa: E402
from ccnn.training.torch_engine.layers import LAYERS, LayerContext  # noqa: E402
from ccnn.training.torch_engine.net import Net  # noqa: E402
from ccnn.training.torch_engine.optimisers import OPTIMISERS  # noqa: E402
from ccnn.training.torch_engine.reader import Reader  # noqa: E402
from ccnn.training.torch_engine.training import prepare  # noqa: E402

STEPS = 20
NETS = list(solvers())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def settings(name):
    """Rates at which 20 steps move weights by more than float32's rounding. Adam would make a whole step of the sign of
    a gradient that is nothing but rounding: a larger delta keeps it from that. The decay is large enough to be seen."""
    rate = {"head": "1e-2", "conv": "1e-3", "larg": "2e-5"}.get(name[:4], "1e-5" if name.endswith("32s") else "1e-3")
    rate = {"ccnn_tags": "2e-4", "conv5_tags": "5e-4", "head_tags_paper": "1e-3"}.get(name, rate)
    return {"base_lr": rate, "max_iter": STEPS, "stepsize": 7, "delta": "1e-2", "weight_decay": "1e-2"}


@pytest.fixture(scope="module")
def caffes(place, python_bin):
    """{net: its losses} of Caffe, after STEPS steps of every solver."""
    runs = {}
    for name in NETS:
        solver = write_solver(place, name, f"caffe_{name}", **settings(name))
        runs[name] = [solver, first_weights(place, Path(read_solver(place / solver).net).stem, name), STEPS]
    return run_caffe(python_bin, place, runs)


@pytest.mark.parametrize("name", NETS)
def test_the_weights_are_caffes(name, here, caffes):
    weights = f"data/{name}.caffemodel"
    training = prepare(read_solver(write_solver(here, name, f"torch_{name}", **settings(name))), here / weights,
                       device="cpu")
    assert training.run() is False
    theirs, ours = (change(here, weights, f"snapshots/{kind}_{name}_iter_{STEPS}.caffemodel")
                    for kind in ("caffe", "torch"))
    off, largest = distance(theirs, ours)
    losses = read_log(training.log).loss
    assert largest > 1e-4                           # else the test proves nothing
    expected = np.array([caffes[name][k] for k in range(STEPS)])
    found = np.array([losses[k] for k in range(STEPS)])
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert off <= 1e-4


# --- layers --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("old, new, complaint", [
    ("ReLU", "Sigmoid", "layer 'relu1_1' is of type 'Sigmoid', which PyTorch's engine does not know; it knows Bias, C"),
    ("msra", "xavier", "layer 'conv1_1' has a filler of type 'xavier' with settings, which PyTorch's engine"),
    ("pool: MAX", "pool: STOCHASTIC", "layer 'pool1' pools at random, which PyTorch's engine"),
    ("kernel_size: 3  stride: 2", "kernel_size: 1  stride: 2", "layer 'pool1' has a stride that exceeds its kernel, w"),
    ("ConstrainedLossLayer", "Other", "layer 'loss' is the Python layer 'Other', which"),
    ("voc_data", "elsewhere", "has no data layer of module voc_data; PyTorch's engine knows no other"),
])
def test_what_the_engine_does_not_know_is_named(here, old, new, complaint):
    text = (here / "prototxt/ccnn_tags.prototxt").read_text()
    assert old in text
    (here / "prototxt/strange.prototxt").write_text(text.replace(old, new))
    solver = read_solver(write_solver(here, "ccnn_tags", "strange", net='"prototxt/strange.prototxt"'))
    with pytest.raises(UserError, match=complaint) as error:
        prepare(solver, here / first_weights(here, "ccnn_tags", "any"), device="cpu")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings, complaint", [
    ({"type": '"RMSProp"'}, "type is 'RMSProp'; PyTorch's engine has SGD, Adam: use --engine caffe"),
    ({"lr_policy": '"inv"'}, "lr_policy is 'inv'; known are fixed, step, poly: use --engine caffe"),
    ({"stepsize": 0}, "stepsize is 0"),
    ({"regularization_type": '"L1"'}, "regularization_type is 'L1'"),
])
def test_a_solver_that_the_engine_does_not_know_is_refused(here, settings, complaint):
    with pytest.raises(UserError, match=complaint):
        prepare(read_solver(write_solver(here, "ccnn_tags", "strange", **settings)), device="cpu")


def test_a_device_that_is_not_there_is_named(here):
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="^--device cuda: PyTorch .* finds none here; .* or use --device cpu$"):
            prepare(read_solver("solvers/ccnn_tags.prototxt"), device="cuda")


def with_dropout(text):
    """A net whose dropout writes into blobs of its own, so that one can see what it dropped."""
    for below, above in (("fc6", "fc7"), ("fc7", "fc8")):
        text = text.replace(f'bottom: "{below}"  top: "{above}"', f'bottom: "{below}_kept"  top: "{above}"')
    return re.sub(r'(type: "Dropout"  bottom: "(fc[67])"  top: ")fc[67]"', r'\1\2_kept"', text)


# in Caffe's Python: writes what each step of a solver has dropped
DROPPING = """
import os, sys
import caffe
import numpy as np
folder, path, weights, steps = sys.argv[1:]
os.chdir(folder)
caffe.set_random_seed(1)
solver = caffe.get_solver(path)
solver.net.copy_from(weights)
dropped = {}
for k in range(int(steps)):
    solver.step(1)
    for name in ("fc6", "fc7"):
        before, after = (solver.net.blobs[blob].data for blob in (name, name + "_kept"))
        dropped[name + "_%d" % k] = np.where(before > 0, after / np.where(before > 0, before, 1), 0)
solver.snapshot()
np.savez("data/dropped.npz", **dropped)
"""


def test_dropout_with_caffes_masks(here, python_bin, monkeypatch):
    """Caffe drops half and doubles the rest. Where the mask is given, both end in the same weights."""
    text = narrowed(with_dropout(nets()["ccnn_size"]))
    assert text.count("_kept") == 4
    (here / "prototxt/dropout.prototxt").write_text(text)
    weights = first_weights(here, "dropout")
    caffe, ours = (write_solver(here, "ccnn_size", f"{kind}_dropout", net='"prototxt/dropout.prototxt"',
                                **settings("ccnn_size")) for kind in ("caffe", "torch"))
    done = subprocess.run([python_bin, "-c", DROPPING, here, caffe, weights, str(STEPS)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    dropped = np.load(here / "data/dropped.npz")
    kept = np.concatenate([mask.ravel() for mask in dropped.values()])
    assert set(kept.round(5)) == {0, 2}

    masks = iter(dropped.values())
    monkeypatch.setattr(functional, "dropout", lambda x, ratio, training: x * torch.from_numpy(next(masks)))
    assert prepare(read_solver(ours), here / weights, device="cpu").run() is False
    theirs, ours = (change(here, weights, f"snapshots/{kind}_dropout_iter_{STEPS}.caffemodel")
                    for kind in ("caffe", "torch"))
    assert distance(theirs, ours)[0] <= 1e-4


def test_dropout_drops_as_many_as_caffes():
    net = parse_net(b'layer { name: "d" type: "Dropout" bottom: "x" top: "x" dropout_param { dropout_ratio: 0.3 } }', 0)
    torch.manual_seed(0)
    x = LAYERS["Dropout"](net.layer[0], None)(torch.ones(1000, 1000))
    assert x.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert abs((x == 0).double().mean() - 0.3) < 0.002 and abs(x.double().mean() - 1) < 0.004


# --- devices: no test needs a GPU, the CPU or the device `meta`, which has shapes alone, stands in ------------------

@pytest.fixture
def any_gpu(monkeypatch):
    """PyTorch believes that it has GPUs. Nothing is computed on them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_a_gpu_is_preferred_and_each_process_takes_its_own(any_gpu):
    place = devices.find_place(number=3)
    assert place.device == torch.device("cuda", 3) and place.pinned
    assert place.memory_format == torch.channels_last
    assert devices.find_place("cpu").device == torch.device("cpu") and not devices.find_place("cpu").pinned
    assert processes.backend() == "cpu:gloo,cuda:nccl" if distributed.is_nccl_available() else "gloo"


def test_a_net_computes_where_it_lies(here):
    """Samples come to the device, supervision stays; loss, gradients and the optimiser's moments are on the device."""
    place = devices.Place(torch.device("meta"))
    for name, solver_type in (("full", "SGD"), ("head_full", "Adam"), ("classifier", "SGD")):
        message = read_net(f"prototxt/{name}.prototxt")
        net = Net(message, name, LayerContext(convolutions(f"prototxt/{name}.prototxt"), torch.Generator()))
        net.to(place.device, memory_format=torch.channels_last)
        samples = open_samples(message)
        blobs = place.takes(next(Reader(samples, net.sources, itertools.count())), net.on_the_cpu)
        assert {key: blob.is_meta for key, blob in blobs.items()} == {key: key not in net.on_the_cpu for key in blobs}
        loss, outputs = net(blobs)
        loss.backward()
        optimiser = OPTIMISERS[solver_type](read_solver(f"solvers/{name}.prototxt"), list(net.parameters()),
                                            *net.multiples())
        learning = [w for w in net.parameters() if w.requires_grad]
        assert loss.is_meta and learning and all(w.grad.is_meta for w in learning)
        optimiser.step(0)
        assert all(moment.is_meta for moment in optimiser.history)


def test_a_small_net_computes_on_one_thread(monkeypatch):
    """A second one costs a head CPU time."""
    before = torch.get_num_threads()
    monkeypatch.setattr(devices, "THREADS", 3)
    monkeypatch.setattr(devices, "cores", lambda: 8)
    found = {}
    try:
        for weights, neighbours in ((43_050, 1), (43_050, 2), (20_000_000, 1), (20_000_000, 2), (20_000_000, 9)):
            devices.configure(devices.Place(torch.device("cpu")), False, 0, weights, neighbours)
            found[weights, neighbours] = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert list(found.values()) == [1, 1, 3, 4, 1]


@pytest.mark.parametrize("name", ["ccnn_size", "em_adapt", "head_tags"])
def test_bfloat16(name, here):
    """Convolutions are less precise, weights are not; channels-last and autocast, as on a GPU."""
    found = {}
    for precision in ("float32", "bf16"):
        solver = write_solver(here, name, f"{precision}_{name}", **{**settings(name), "max_iter": 5})
        training = prepare(read_solver(solver), here / first_weights(here, name, f"first_{name}"), device="cpu",
                           precision=precision)
        assert training.run() is False
        found[precision] = np.array([read_log(training.log).loss[k] for k in range(5)])
        assert all(w.dtype == torch.float32 for w in (*training.net.parameters(), *training.optimiser.history))
    exact, rough = found.values()
    assert 0 < np.abs(rough - exact).max() < 0.05 * np.abs(exact).max()


def test_the_same_bits_on_request(here):
    weights = first_weights(here, "ccnn_size", "first_bits")
    try:
        for prefix in ("bits_1", "bits_2"):
            solver = read_solver(write_solver(here, "ccnn_size", prefix, **{**settings("ccnn_size"), "max_iter": 3}))
            prepare(solver, here / weights, device="cpu", deterministic=True).run()
            assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    one, two = (change(here, weights, f"snapshots/bits_{k}_iter_3.caffemodel") for k in (1, 2))
    assert distance(one, two)[0] == 0


def test_a_loss_that_is_not_a_number_ends_the_training(here):
    solver = read_solver(write_solver(here, "ccnn_size", "nan", **{**settings("ccnn_size"), "base_lr": "1e30"}))
    training = prepare(solver, here / first_weights(here, "ccnn_size", "first_nan"), device="cpu")
    with pytest.raises(UserError, match=r"(NaN or infinite|the loss is (nan|inf)).*at iteration \d+, .*log: ") as error:
        training.run()
    assert "\n" not in str(error.value) and not list((here / "snapshots").glob("nan_iter_*"))


# --- weights ---------------------------------------------------------------------------------------------------

def test_torchvisions_file_computes_what_torchvision_does(tmp_path, monkeypatch):
    """RGB in 0 to 1 by mean and deviation there, BGR in 0 to 255 minus a mean here; every layer under its name."""
    rng = torch.Generator().manual_seed(0)
    shapes = {f"features.{k}": (2, 3 if k == 0 else 2, 3, 3) for k in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)}
    shapes.update({"classifier.0": (5, 98), "classifier.3": (5, 5), "classifier.6": (10, 5)})
    stored = {f"{name}.{kind}": torch.randn(shape[:1] if kind == "bias" else shape, generator=rng)
              for name, shape in shapes.items() for kind in ("weight", "bias")}
    path = tmp_path / vgg16.TORCHVISION
    torch.save(stored, path)
    with pytest.raises(UserError, match="is not torchvision's vgg16-397923af.pth, or damaged: its sha256 is not 3979"):
        vgg16.read_source(path)
    monkeypatch.setattr(vgg16, "TORCHVISION_SHA256", digest(path))
    weights = vgg16.read_source(path)
    assert list(weights) == [*VGG16.layers, "fc6", "fc7"]
    for name, key in (("conv5_3", "features.28"), ("fc6", "classifier.0"), ("fc7", "classifier.3")):
        assert all(np.array_equal(ours, stored[f"{key}.{kind}"]) for ours, kind in
                   zip(weights[name], ("weight", "bias")))
    rgb = torch.randint(0, 256, (1, 3, 9, 9), generator=rng).float()
    mean, std = (torch.tensor(values)[:, None, None] for values in (vgg16.TORCH_MEAN, vgg16.TORCH_STD))
    theirs = functional.conv2d((rgb / 255 - mean) / std, stored["features.0.weight"], stored["features.0.bias"])
    bgr = rgb.flip(1) - torch.tensor(MEAN_BGR)[:, None, None]
    ours = functional.conv2d(bgr, *(torch.from_numpy(array) for array in weights["conv1_1"]))
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


# --- files both ways -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["ccnn_size", "head_tags"])        # SGD, Adam
def test_each_continues_what_the_other_began(name, here, caffes, python_bin):
    """Half a training with one engine and half with the other ends where Caffe alone does."""
    half, weights = STEPS // 2, f"data/{name}.caffemodel"
    # Caffe begins; `step` and `poly` must see the same max_iter, so it is stopped in the middle
    solver = write_solver(here, name, f"first_caffe_{name}", **settings(name))
    run_caffe(python_bin, here, {"begun": [solver, weights, half]})
    training = prepare(read_solver(solver), device="cpu")
    assert training.beginning == f"continuing from snapshots/first_caffe_{name}_iter_{half}.solverstate"
    assert training.run() is False
    # PyTorch begins
    solver = write_solver(here, name, f"first_torch_{name}", **settings(name))
    training = prepare(read_solver(solver), here / weights, device="cpu")
    stop_after(training, half)
    assert training.run() is True
    state = f"snapshots/first_torch_{name}_iter_{half}.solverstate"
    first = half * read_solver(solver).iter_size
    losses = run_caffe(python_bin, here, {"ended": [solver, state, STEPS - half]}, first)["ended"]
    assert min(losses) == half

    alone = change(here, weights, f"snapshots/caffe_{name}_iter_{STEPS}.caffemodel")
    for kind in ("caffe", "torch"):
        mixed = change(here, weights, f"snapshots/first_{kind}_{name}_iter_{STEPS}.caffemodel")
        assert distance(alone, mixed)[0] <= 1e-4, kind


def stop_after(training, steps):
    """Ask a training to end, as ^C does, in the last of so many steps."""
    compute = training.gradients

    def gradients(iteration):
        if iteration == training.start_at + steps - 1:
            training.stop()
        return compute(iteration)
    training.gradients = gradients


def test_a_run_that_was_stopped_ends_in_the_same_weights(here, caffes):
    weights = "data/ccnn_boxes.caffemodel"
    solver = read_solver(write_solver(here, "ccnn_boxes", "stopped", **settings("ccnn_boxes")))
    for steps in (3, 8, STEPS):
        training = prepare(solver, here / weights, device="cpu")
        stop_after(training, steps)
        assert training.run() is (training.start_at + steps < STEPS)
    whole, parts = (change(here, weights, f"snapshots/{prefix}_iter_{STEPS}.caffemodel")
                    for prefix in ("caffe_ccnn_boxes", "stopped"))
    assert distance(whole, parts)[0] <= 1e-5
