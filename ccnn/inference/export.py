"""A model as an ONNX file, for phones, browsers and servers.

    difference = export_model(find_model("photos/model.ccnn"), "model.onnx")

CONTRACT is what a program must do with the file; the file itself carries it, as `doc_string` and `metadata_props`.
"""
import importlib.util
import json
from typing import Any

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike, whole_file
from ccnn.images.reading import MEAN_BGR, to_blob
from ccnn.inference.caffe_net import score_grid
from ccnn.inference.engines import TRIAL, start_onnxruntime
from ccnn.inference.onnx_export import to_onnx
from ccnn.inference.predict import ModelSource, load_model

CONTRACT = """\
Input `data`: float32, N x 3 x height x width of any size. A photograph, upright, reduced so that its long side has
`size` pixels (smaller ones stay as they are); channels blue, green, red, from 0 to 255, minus `mean`. If `size` is a
list, the photograph is seen at each of these sizes, and the mean of the scores counts, enlarged to the finest grid.
Output `fc8`: float32, N x labels x rows x columns. The scores of the labels named in `classes`, the background first;
softmax over labels makes them probabilities. Cell k of a row or a column is centred on pixel offset + stride * k of the
input, pixels being counted from 0. Enlarge the scores bilinearly to the photograph, then take the best label per pixel.
"""

TOLERANCE = 1e-4        # of the largest score: what the exported net may differ by from the reference


def export_model(files: ModelSource, path: PathLike) -> float:
    """Write the model with all its weights. The file takes its place when ONNX Runtime computes the scores that the
    reference computes; returns the largest difference, relative to the largest score."""
    import onnx
    with files.opened() as (prototxt, weights):
        model = to_onnx(prototxt, weights, "fc8")
        describe(model, files, *score_grid(prototxt))
    data = model.SerializeToString()
    run = start_onnxruntime(lambda: onnx.load_model_from_string(data), path)
    rgb = np.random.default_rng(0).integers(0, 256, (*TRIAL, 3), dtype=np.uint8)
    expected = load_model(files, engine=reference()).forward(rgb)
    difference = float(abs(run(to_blob(rgb)[None])[0] - expected).max() / max(1, abs(expected).max()))
    if not difference <= TOLERANCE:
        raise UserError(f"{path}: not written: the exported net's scores differ from the model's by "
                        f"{difference:.1g}; please report this model")
    with whole_file(path) as part:
        part.write_bytes(data)
    return difference


def reference() -> str:
    """The engine whose scores count: Caffe where it is installed, else the one that segments photographs."""
    return "caffe" if importlib.util.find_spec("caffe") else "auto"


def describe(model: Any, files: ModelSource, stride: int, offset: float) -> None:
    """Put CONTRACT and its values, as JSON, into an onnx.ModelProto."""
    import onnx

    import ccnn
    model.doc_string, model.producer_version = CONTRACT, ccnn.__version__
    values = {"classes": list(files.classes), "size": files.size, "mean": list(MEAN_BGR), "stride": stride,
              "offset": offset, "model": files.identity}
    onnx.helper.set_model_props(model, {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()})
