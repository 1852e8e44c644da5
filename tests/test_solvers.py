"""The solver files are those of the table, say what differs from their recipe, and run as typed."""
from pathlib import Path

import pytest
from caffe.proto import caffe_pb2
from google.protobuf import text_format

from ccnn.nets import solvers

ROOT = Path(__file__).resolve().parent.parent

SOLVERS = solvers.solvers()


def parse(text, message=caffe_pb2.SolverParameter):
    return text_format.Parse(text, message())


def read(name):
    return parse((ROOT / f"solvers/{name}.prototxt").read_text())


def test_solvers_are_those_that_make_solvers_writes():
    written = {path.stem: path.read_text() for path in (ROOT / "solvers").glob("*.prototxt")}
    assert written == solvers.solver_texts()


@pytest.mark.parametrize("name", SOLVERS)
def test_the_comment_says_all_that_differs_from_the_recipe(name):
    recipe, solver = parse(solvers.RECIPES[SOLVERS[name].recipe]), read(name)
    for field in ("net", "snapshot_prefix"):            # differ always
        solver.ClearField(field)
    said = [line.removeprefix("#     ").partition(", not ") for line in solvers.solver_texts()[name].splitlines()
            if ", not " in line]
    for before in (line for line, _, _ in said):
        text_format.Merge(before, recipe)
    assert recipe == solver
    original = parse(solvers.RECIPES[SOLVERS[name].recipe])
    for change, _, old in said:
        key = change.partition(":")[0]
        assert getattr(original, key) == getattr(parse(f"{key}: {old}"), key) != getattr(solver, key)


def test_the_rates_of_the_heads():
    """Those that docs/reproduction.md chose on images held out."""
    rates = {name.removeprefix("head_"): read(name).base_lr for name in SOLVERS if name.startswith("head_")}
    random = ("classifier", "tags", "shares", "size", "crops", "boxes", "semi", "filled_boxes", "full")
    assert rates == pytest.approx({**dict.fromkeys(random, 2e-3), "tags_paper": 3e-4, "em_adapt": 5e-4,
                                   "em_adapt_crops": 2e-3, "mil_fcn": 1e-4, "mil_base": 5e-6})


def test_the_baselines_start_from_the_last_snapshot_of_the_classifier():
    for part in ("", "head_"):
        last = read(f"{part}classifier")
        start = f"-weights {last.snapshot_prefix}_iter_{last.max_iter}.caffemodel"
        started = {name for name, text in solvers.solver_texts().items() if f"solvers/{name}.prototxt {start}" in text}
        assert started == {part + system for system in ("em_adapt", "em_adapt_crops", "mil_fcn", "mil_base")}


def test_every_change_is_of_a_line_of_the_recipe():
    with pytest.raises(ValueError, match="wrong: the recipe 'demo' has no momentum2"):
        solvers.write("wrong", solvers.Solver("demo", "", changes="momentum2: 0.999"))


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_run_as_typed(name):
    solver = read(name)
    assert not solver.HasField("solver_mode")                            # the CPU, unless -gpu
    assert solver.net == f"prototxt/{name.removesuffix('_paper')}.prototxt"
    assert solver.snapshot_prefix == f"snapshots/{name}"
    assert 0 < solver.snapshot <= solver.max_iter
    net = parse((ROOT / solver.net).read_text(), caffe_pb2.NetParameter)
    loss, = (layer for layer in net.layer if layer.name == "loss")
    assert loss.type != "Python" or loss.loss_weight[0] == 1             # Python layers have none of their own
