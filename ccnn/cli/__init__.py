"""The commands: arguments and messages only, one module each. `ccnn NAME` calls ccnn.cli.NAME.main."""
import importlib
import sys

from ccnn.cli import command

COMMANDS = {            # name: what it does; a module of the same name, with _ for -
    "segment": "masks of photographs",
    "learn": "a model from your own photographs and their tags",
    "studio": "tag photographs in a browser, train, look at the masks, correct",
    "import-tags": "tags of other programs: tables, VOC, COCO, Label Studio, CVAT",
    "export": "a model as an ONNX file, for phones, browsers and servers",
    "show": "figures: masks side by side, the course of a training, what the constraints did",
    "crf": "masks from saved probabilities, sharpened by a dense CRF",
    "train": "train a net with Caffe, and go on where an earlier run ended",
    "score": "mean IoU of masks, as the paper counts, beside the paper's figures",
    "get-voc": "PASCAL VOC 2012 and SBD: the paper's 10,582 training images",
    "init-weights": "VGG-16's weights for a net",
    "cache-features": "features of a frozen backbone, computed once",
    "guess-shares": "how much of each image is background, guessed from a few masks",
    "tune-crf": "search the CRF's parameters",
    "pack-model": "one file of a net, its weights and its class names",
    "ahead": "the features of a folder's photographs, before `ccnn learn` asks for them",
    "make-nets": "write prototxt/ and solvers/ from their tables",
}

HELP = """Segmentation from image tags, sizes, boxes and points.

    ccnn segment --out masks holiday/           # the model that comes with this package
    ccnn learn photos                           # photos/classes.txt and photos/tags.csv: a model of your own
    ccnn segment --model photos/model.ccnn --out masks new_photos
    ccnn studio photos                          # the same in a browser

"""


def main(argv=None):
    """`ccnn NAME ARGUMENTS`; ends the process."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print(HELP + "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
              + "\n\n`ccnn NAME --help` tells more.")
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
