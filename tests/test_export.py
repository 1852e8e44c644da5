"""tools/export.py: an ONNX file that explains itself, and whose scores are Caffe's."""
import json

import numpy as np
import onnxruntime
import pytest
from tiny_net import make_net

import ccnn.inference.export
from ccnn._util.errors import UserError
from ccnn.cli import export
from ccnn.inference.caffe_net import forward
from ccnn.inference.model_file import read_model, write_model

CLASSES = ("background", "Kätzchen", "dog")


@pytest.fixture
def model(tmp_path):
    write_model(tmp_path / "pets.ccnn", *make_net(tmp_path, labels=3), CLASSES, size=65)
    return tmp_path / "pets.ccnn"


def test_a_program_that_follows_the_contract_gets_the_scores(model, tmp_path, capsys):
    """The code is that of --help."""
    export.main([str(model), str(tmp_path / "pets.onnx")])
    said = capsys.readouterr().out
    assert "pets.onnx: 0.0 MB, 2 classes, photographs of 65 pixels; its scores are the model's" in said
    rgb = np.random.default_rng(0).integers(0, 256, (41, 65, 3), dtype=np.uint8)
    session = onnxruntime.InferenceSession(str(tmp_path / "pets.onnx"), providers=["CPUExecutionProvider"])
    about = {k: json.loads(v) for k, v in session.get_modelmeta().custom_metadata_map.items()}
    data = np.float32(rgb[..., ::-1]) - about["mean"]
    scores, = session.run(None, {"data": np.float32(data.transpose(2, 0, 1)[None])})
    assert np.allclose(scores[0], forward(read_model(model).load(), rgb), atol=1e-3)
    assert (about["classes"], about["size"], about["stride"], about["offset"]) == (list(CLASSES), 65, 8, 0)
    assert about["model"] == {"model": read_model(model).fingerprint}
    assert session.get_modelmeta().description == ccnn.inference.export.CONTRACT
    assert [value.name for value in (*session.get_inputs(), *session.get_outputs())] == ["data", "fc8"]
    batch, = session.run(None, {"data": np.zeros((3, 3, 17, 9), np.float32)})
    assert batch.shape == (3, 3, 3, 2)


def test_nothing_is_written_where_something_is_wrong(model, tmp_path, monkeypatch):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match="pets.onx: need a name that ends in .onnx"):
        export.main([str(model), str(tmp_path / "pets.onx")])
    with pytest.raises(UserError, match="README.md: is not a whole .ccnn file"):
        export.main(["README.md", str(tmp_path / "pets.onnx")])
    monkeypatch.setattr(ccnn.inference.export, "to_blob", lambda rgb: np.zeros((3, *rgb.shape[:2]), np.float32))
    with pytest.raises(UserError, match="pets.onnx: not written: the exported net's scores differ from the model's by"):
        export.main([str(model), str(tmp_path / "pets.onnx")])
    assert sorted(tmp_path.iterdir()) == before


def test_without_caffe_the_reference_is_the_engine_that_segments(model, tmp_path, monkeypatch):
    monkeypatch.setattr(ccnn.inference.export, "reference", lambda: "auto")
    export.main([str(model), str(tmp_path / "pets.onnx")])
    with_caffe = tmp_path / "again.onnx"
    monkeypatch.undo()
    export.main([str(model), str(with_caffe)])
    assert (tmp_path / "pets.onnx").read_bytes() == with_caffe.read_bytes()
