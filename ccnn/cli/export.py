"""Export a model to ONNX, for phones, browsers and servers.

    ccnn export photos/model.ccnn model.onnx
    ccnn export models/head_size.ccnn voc.onnx

The file holds the whole net in float32, the backbone included: 59 MB for a model of ccnn learn or of models/, 260 MB
for the 8s net with fc6 and fc7. It is written only if ONNX Runtime computes the same scores from it, to 1e-4 of the
largest score, as Caffe from the model; where Caffe is not installed, as the engine of ccnn segment.

What a program must do with it (the file carries these lines, too, as its doc_string):

{contract}
`classes`, `size`, `mean`, `stride`, `offset` and `model` are JSON in the file's metadata_props. In Python:

    session = onnxruntime.InferenceSession("model.onnx")
    about = {{k: json.loads(v) for k, v in session.get_modelmeta().custom_metadata_map.items()}}
    data = np.float32(rgb[..., ::-1]) - about["mean"]       # rgb: height x width x 3, long side about["size"]
    scores, = session.run(None, {{"data": np.float32(data.transpose(2, 0, 1)[None])}})

The dense CRF is not part of the net: ccnn segment --crf applies it. Nor is the model's cue, which is a net of its own:
masks are those of ccnn segment --cue none. The file holds no photographs.
"""
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.files import warn_if_there
from ccnn._util.settings import sizes_of
from ccnn.cli import command
from ccnn.inference.export import CONTRACT, export_model
from ccnn.inference.predict import find_model


def main(argv=None):
    parser = command.parser(__doc__.format(contract=CONTRACT))
    add = parser.add_argument
    add("model", type=Path, metavar="NAME.ccnn", help="a model of ccnn learn or ccnn pack-model")
    add("out", type=Path, metavar="NAME.onnx", help="the file to write")
    args = parser.parse_args(argv)
    if args.out.suffix != ".onnx":
        raise UserError(f"{args.out}: need a name that ends in .onnx")
    files = find_model(args.model, cue=False)
    warn_if_there(args.out)
    difference = export_model(files, args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, {len(files.classes) - 1} classes, photographs of "
          f"{' and '.join(map(str, sizes_of(files.size)))} pixels; its scores are the model's to {difference:.0e}")
    if files.without_cue:
        print(f"{args.out}: without the model's cue ({files.settings['cue']['name']}), which is a net of its own; "
              "masks are those of ccnn segment --cue none")
