"""The commands: arguments and messages only, one module each. `ccnn NAME` calls ccnn.cli.NAME.main."""
import importlib
import sys

from ccnn.cli import command

COMMANDS = {            # name: what it does; a module of the same name, with _ for -
    "segment": "masks of photographs",
    "learn": "a model from your own photographs and their tags",
    "studio": "tag photographs in a browser, train, look at the masks, correct",
    "demo": "try it on drawn photographs: draw, learn, segment, score",
    "import-tags": "tags, boxes and marks of other programs: tables, VOC, COCO, Label Studio, CVAT, YOLO, LabelMe",
    "convert": "masks into the formats of other programs and back: COCO, YOLO, Label Studio, CVAT, LabelMe",
    "serve": "a model behind HTTP: for programs, for Label Studio, and a page to drop photographs on",
    "export": "a model as an ONNX file, for phones, browsers and servers",
    "show": "figures: masks side by side, the course of a training, what the constraints did",
    "crf": "masks from saved probabilities, sharpened by a dense CRF",
    "train": "train a net with Caffe or PyTorch, and resume earlier runs",
    "score": "mean IoU of masks, as the paper counts, beside the paper's figures",
    "get-voc": "download PASCAL VOC 2012 and SBD: the paper's 10,582 training images",
    "init-weights": "VGG-16's weights for a net",
    "cache-features": "features of a frozen backbone, computed once",
    "guess-shares": "how much of each image is background, guessed from a few masks",
    "tune-crf": "search the CRF's parameters",
    "pack-model": "one file of a net, its weights and its class names",
    "ahead": "the features of a folder's photographs, ahead of `ccnn learn`",
    "make-nets": "write prototxt/ and solvers/ from their tables",
}

HELP = """Segment photographs, and teach your own classes with tags alone: nobody draws outlines.

Masks of photographs, with the model that comes with this package (VOC's 20 classes: cat, car, person, ...):

    ccnn segment --out masks holiday/           # masks/NAME.png, and masks/overlay/NAME.jpg to look at

Classes of your own. A folder of about sixty photographs and two text files: classes.txt, one class per line; tags.csv,
lines such as `beach.jpg,dog;ball`. A minute later there is a model and a report of what to correct:

    ccnn learn photos                           # photos/model.ccnn and photos/report.html
    ccnn segment --model photos/model.ccnn --out masks new_photos

The same in a browser, where you tag, train, look and correct:

    ccnn studio photos

The commands:

"""


def main(argv=None):
    """`ccnn NAME ARGUMENTS`; ends the process."""
    words = sys.argv[1:] if argv is None else argv
    sys.argv = ["ccnn", *words]
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print(HELP + "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
              + "\n\n`ccnn NAME --help` has the options of a command, with examples. In Python: import ccnn; "
              "ccnn.load_model().segment(rgb)")
        sys.exit(0)
    if words[0] == "--version":
        import ccnn
        print(ccnn.__version__)
        sys.exit(0)
    name = words[0]
    if name not in COMMANDS:
        from ccnn._util.errors import suggest
        command.fail(f"{name!r} is not a command; {suggest(name, COMMANDS)}", 2)
    sys.argv = [f"ccnn {name}", *words[1:]]
    command.run(lambda: importlib.import_module(f"ccnn.cli.{name.replace('-', '_')}").main())
