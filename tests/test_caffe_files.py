"""Weights and training states, read and written without Caffe: the same numbers as with Caffe, or one line."""
import math
import os
import struct
import subprocess
import sys
import zipfile

import caffe
import numpy as np
import pytest
from caffe.proto import caffe_pb2
from conftest import ROOT

from ccnn._util.errors import UserError
from ccnn.nets.caffe_files import (
    LARGEST,
    TrainingState,
    only_weights,
    read_caffemodel,
    read_state,
    stored_layers,
    write_caffemodel,
    write_state,
)
from ccnn.nets.protobuf_wire import enclosed, varint, whole_number
from ccnn.training.snapshots import check_snapshot

NET = """
layer { name: "data"  type: "DummyData"  top: "data"  top: "wanted"
        dummy_data_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 }  shape { dim: 2 dim: 4 dim: 5 dim: 5 }
                           data_filler { type: "gaussian" }  data_filler { type: "gaussian" } } }
layer { name: "one"  type: "Convolution"  bottom: "data"  top: "one"
        convolution_param { num_output: 6  kernel_size: 3  pad: 1  weight_filler { type: "msra" } } }
layer { name: "two"  type: "Convolution"  bottom: "one"  top: "two"
        convolution_param { num_output: 4  kernel_size: 1  bias_term: false  weight_filler { type: "msra" } } }
layer { name: "loss"  type: "EuclideanLoss"  bottom: "two"  bottom: "wanted"  top: "loss" }
"""


@pytest.fixture(scope="module", params=["SGD", "Adam"])
def snapshot(request, tmp_path_factory):
    """(.solverstate, .caffemodel) of a short training in Caffe."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt"  type: "{request.param}"  base_lr: 0.01  lr_policy: "step"  stepsize: 2  '
        f'gamma: 0.5  max_iter: 10  momentum: 0.9  snapshot_prefix: "{folder}/a"  snapshot_diff: true  '
        "snapshot_after_train: false  random_seed: 1  solver_mode: CPU")
    solver = caffe.get_solver(str(folder / "solver.prototxt"))
    solver.step(5)
    solver.snapshot()
    return folder / "a_iter_5.solverstate", folder / "a_iter_5.caffemodel"


def caffes_array(blob):
    shape = tuple(blob.shape.dim) if blob.HasField("shape") else (blob.num, blob.channels, blob.height, blob.width)
    return np.array(blob.data, np.float32).reshape(shape)


def caffes_arrays(data):
    model = caffe_pb2.NetParameter.FromString(data)
    return {layer.name: [caffes_array(blob) for blob in layer.blobs]
            for layer in (*model.layer, *model.layers) if layer.blobs}


def same(ours, theirs):
    assert list(ours) == list(theirs) and ours
    for name in ours:
        assert len(ours[name]) == len(theirs[name])
        for a, b in zip(ours[name], theirs[name]):
            assert a.dtype == np.float32 and a.flags.aligned and a.flags.c_contiguous
            np.testing.assert_array_equal(a, b, strict=True)


def model_of(path, *blobs, name=b"fc8"):
    """A .caffemodel of one layer, whose blobs are given as bytes."""
    content = enclosed(1, [name])
    for blob in blobs:
        content += enclosed(7, [blob])
    path.write_bytes(b"".join(enclosed(100, content)))
    return path


def blob_of(values, shape, *more, double=False):
    values = np.array(values, "<f8" if double else "<f4").tobytes()
    return b"".join((*enclosed(8 if double else 5, [values]), *enclosed(7, enclosed(1, [b"".join(map(varint, shape))])),
                     *more))


# --- the same as Caffe

def test_a_snapshot_has_the_numbers_that_caffe_reads(snapshot):
    state_file, weights = snapshot
    same(read_caffemodel(weights), caffes_arrays(weights.read_bytes()))
    assert stored_layers(weights) == ["one", "two"]

    ours, theirs = read_state(state_file), caffe_pb2.SolverState.FromString(state_file.read_bytes())
    assert (ours.iteration, ours.weights, ours.step) == (5, str(weights), 2)
    assert (theirs.iter, theirs.learned_net, theirs.current_step) == (5, str(weights), 2)
    same({"history": ours.history}, {"history": [caffes_array(blob) for blob in theirs.history]})


@pytest.mark.parametrize("name", ["head_size", "head_tags"])
def test_a_model_of_the_repository_has_the_numbers_that_caffe_reads(name, tmp_path):
    with zipfile.ZipFile(ROOT / f"models/{name}.ccnn") as archive:
        path = archive.extract("weights.caffemodel", tmp_path)
        same(read_caffemodel(path), caffes_arrays(archive.read("weights.caffemodel")))


def test_the_old_format_has_the_numbers_that_caffe_reads(tmp_path):
    model, rng = caffe_pb2.NetParameter(), np.random.default_rng(0)
    layer = model.layers.add(name="conv")
    for dims in ((4, 3, 2, 2), (1, 1, 1, 4)):
        blob = layer.blobs.add(num=dims[0], channels=dims[1], height=dims[2], width=dims[3])
        blob.data.extend(rng.normal(size=math.prod(dims)))
    path = tmp_path / "old.caffemodel"
    path.write_bytes(model.SerializeToString())
    same(read_caffemodel(path), caffes_arrays(path.read_bytes()))

    kept = caffe_pb2.NetParameter.FromString(only_weights(path, {"conv"}))      # a bias of 1 x 1 x 1 x n stays one
    assert [tuple(blob.shape.dim) for blob in kept.layer[0].blobs] == [(), ()] and kept.layer[0].blobs[1].width == 4
    assert list(kept.layer[0].blobs) == list(layer.blobs)


def test_what_is_written_has_the_bytes_that_caffes_messages_have(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"one": [rng.normal(size=(6, 3, 3, 3)), rng.normal(size=6)], "two": [rng.normal(size=(300, 2)).T]}
    theirs = caffe_pb2.NetParameter(name="a")
    for name, arrays in weights.items():
        layer = theirs.layer.add(name=name, type="Convolution")
        for array in arrays:
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.data.extend(array.ravel())
    write_caffemodel(tmp_path / "a.caffemodel", weights)
    assert (tmp_path / "a.caffemodel").read_bytes() == theirs.SerializeToString(deterministic=True)
    same(read_caffemodel(tmp_path / "a.caffemodel"),
         {name: [array.astype(np.float32) for array in arrays] for name, arrays in weights.items()})


def test_only_weights_drops_the_net_and_the_gradients(snapshot, tmp_path):
    _, weights = snapshot
    theirs, wanted = caffe_pb2.NetParameter.FromString(weights.read_bytes()), caffe_pb2.NetParameter(name="ccnn")
    assert theirs.layer[1].blobs[0].diff
    for layer in theirs.layer:
        if layer.name == "one":
            wanted.layer.add(name="one").blobs.extend(layer.blobs)
            for blob in wanted.layer[0].blobs:
                blob.ClearField("diff")
    assert only_weights(weights, {"one", "other"}) == wanted.SerializeToString(deterministic=True)


# --- what protobuf allows and Caffe does not write

UNKNOWN = [whole_number(99, 1 << 40), varint(99 << 3 | 5) + struct.pack("<f", 7), varint(99 << 3 | 1) + bytes(8),
           b"".join(enclosed(99, [b"what a later version keeps here"]))]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_fields_that_nobody_knows_do_not_move_the_numbers(unknown, tmp_path):
    good = blob_of([1, 2, 3, 4], [4])
    for blob in (good + unknown, unknown + good):
        path = model_of(tmp_path / "a.caffemodel", blob)
        path.write_bytes(unknown + path.read_bytes() + unknown)
        same(read_caffemodel(path), {"fc8": [np.array([1, 2, 3, 4], np.float32)]})
        assert caffes_arrays(path.read_bytes())["fc8"][0].tolist() == [1, 2, 3, 4]


def test_numbers_in_several_pieces_or_one_by_one_are_joined(tmp_path):
    piece = b"".join(enclosed(5, [np.array([1, 2], "<f4").tobytes()]))
    single = b"".join(varint(5 << 3 | 5) + struct.pack("<f", value) for value in (3, 4))
    dims = b"".join(enclosed(7, [whole_number(1, 2)])) + b"".join(enclosed(7, [whole_number(1, 2)]))
    path = model_of(tmp_path / "a.caffemodel", piece + single + dims)
    same(read_caffemodel(path), {"fc8": [np.array([[1, 2], [3, 4]], np.float32)]})
    same(read_caffemodel(path), caffes_arrays(path.read_bytes()))


def test_numbers_of_double_precision_are_read(tmp_path):
    path = model_of(tmp_path / "a.caffemodel", blob_of([1.5, -2], [2], double=True))
    same(read_caffemodel(path), {"fc8": [np.array([1.5, -2], np.float32)]})
    path.write_bytes(only_weights(path, {"fc8"}))
    same(read_caffemodel(path), {"fc8": [np.array([1.5, -2], np.float32)]})
    assert list(caffe_pb2.NetParameter.FromString(path.read_bytes()).layer[0].blobs[0].double_data) == [1.5, -2]


# --- damaged and hostile files: one line, and no memory

BILLION = 1 << 30
HOSTILE = {
    "a shape of exabytes": blob_of([1], [BILLION, BILLION]),
    "a shape whose product is 2^64, 0 in 64 bits": blob_of([], [1 << 32, 1 << 32]),
    "a shape whose product is 2^64 + 1": blob_of([1], [274177, 67280421310721]),
    "a shape with no numbers": blob_of([], [BILLION]),
    "a negative side": blob_of([1, 2], [-1, -2]),
    "a side of nothing": blob_of([], [0, BILLION, BILLION]),
    "too few numbers": blob_of([1, 2, 3], [4]),
    "too many numbers": blob_of([1, 2, 3, 4, 5], [4]),
    "no shape": b"".join(enclosed(5, [bytes(16)])),
    "half a number": b"".join(enclosed(5, [bytes(6)])) + b"".join(enclosed(7, enclosed(1, [b"\x01"]))),
    "a hundred thousand axes": blob_of([1], 100_000 * [1]),
    "forty axes": blob_of([1], 40 * [1]),
    "a number that is none": blob_of([1, math.nan], [2]),
    "infinity in double precision": blob_of([1e300], [1], double=True),
    "data as a whole number": whole_number(5, 3),
    "a shape as a whole number": whole_number(7, 3),
    "a length beyond the end": varint(5 << 3 | 2) + varint(BILLION),
    "a length of 2^63": varint(5 << 3 | 2) + varint(1 << 63),
    "an endless number": b"\xff" * 40,
    "a group": varint(5 << 3 | 3),
    "field 0": b"".join(enclosed(0, [b"a"])),
    "a million fields": 1_000_000 * whole_number(99, 1),
}


@pytest.mark.parametrize("blob", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_blob_is_one_line(blob, tmp_path):
    path = model_of(tmp_path / "a.caffemodel", blob)
    with pytest.raises(UserError) as error:
        read_caffemodel(path)
    assert str(path) in str(error.value) and str(error.value).isprintable() and len(str(error.value)) < 400


@pytest.mark.parametrize("name", [b"\xff", b"\x1b[2J", b"a\nb", 5000 * b"a"])
def test_a_name_that_disturbs_a_terminal_is_refused(name, tmp_path):
    with pytest.raises(UserError, match="a layer's name is not text"):
        stored_layers(model_of(tmp_path / "a.caffemodel", blob_of([1], [1]), name=name))


def test_other_things_are_no_weights(tmp_path):
    path = tmp_path / "a.caffemodel"
    for data, said in ((b"", "holds no weights"), (b"PK\x03\x04 a zip", "not a whole .caffemodel"),
                       (b"<html>", "not a whole .caffemodel"), (varint(100 << 3), "not a whole .caffemodel")):
        path.write_bytes(data)
        with pytest.raises(UserError, match=said):
            read_caffemodel(path)


def test_a_file_larger_than_any_model_is_not_read(tmp_path):
    path = tmp_path / "a.caffemodel"
    with open(path, "wb") as file:
        file.truncate(LARGEST + 1)              # takes no room on the disk
    with pytest.raises(UserError, match="2047 MB"):
        read_caffemodel(path)


def test_pipes_and_devices_are_not_read(tmp_path):
    """The state of a training names its weights; a stranger's may name what never ends."""
    os.mkfifo(tmp_path / "pipe")
    for weights, said in ((tmp_path / "pipe", "is a pipe or a device"), ("/dev/zero", "is a pipe or a device"),
                          (tmp_path, "is a folder")):
        write_state(tmp_path / "a_iter_5.solverstate", TrainingState(5, str(weights), [], 1))
        with pytest.raises(UserError, match=said):
            check_snapshot(tmp_path / "a_iter_5.solverstate", {}, caffe_pb2.SolverParameter(type="SGD"))


def test_a_large_file_takes_twice_its_size_of_memory(tmp_path):
    values = np.ones((60, 1 << 18), np.float32)
    path, size = tmp_path / "a.caffemodel", values.nbytes
    write_caffemodel(path, {f"fc{k}": [row] for k, row in enumerate(values)})
    code = ("import re, sys; from ccnn.nets.caffe_files import read_caffemodel\n"
            "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024\n"
            "before, arrays = peak(), read_caffemodel(sys.argv[1])\n"
            "assert sum(array[0].size for array in arrays.values()) == 60 << 18\n"
            "print(peak() - before)")
    taken = int(subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True).stdout)
    assert size < taken < 2.2 * size
