"""Every net of this repository, written as text. ccnn make-nets puts them into files.

A net is a list of parts, and one function here writes each part:

    ccnn_<system>, <baseline>  VOC images -> VGG-16 at stride 8 -> the system's loss      (paper, sections 5 to 7)
    ccnn_tags_32s              the same at VGG's own stride of 32
    head_<system>              cached features -> a linear classifier -> the loss        (frozen backbone)
    conv5_<system>             cached pool4 -> conv5, which learns -> features -> the classifier -> the loss
    conv4_<system>             cached pool3 -> conv4 and conv5, which learn -> features -> the classifier -> the loss
    largefov_<system>          VOC images, reduced -> VGG-16 at stride 8 -> a small dilated head -> the loss; all learns
    [head_]classifier          images, or their features -> their mean -> the tags: where MIL and EM start
    demo_<system>              drawn images -> a small net at stride 4 -> the loss
    trunk, *deploy*            from the blob `data` to features or to the scores `fc8`, without a loss

A method's settings stand in the param_str of its loss layer, the optimiser's in the solver files
(ccnn/nets/solvers.py). Edit this file, not the nets: a test compares them.
"""
import json
import re
from typing import NamedTuple

from ccnn.images.labels import LABELS
from ccnn.nets.backbones import DEFAULT, Backbone
from ccnn.supervision.kinds import SUPERVISION

DEMO_LABELS = 6      # the five kinds of objects that demo/draw_demo.py draws, and the background


# Systems: what the paper compares

class System(NamedTuple):
    """A way to train: what it knows of an image, and its loss."""
    title: str
    knows: str                  # of an image
    paper: str                  # where the paper has it
    blobs: tuple                # what it knows, as bottoms of the loss layer after the scores
    loss: str                   # the loss layer: a class of layers/, or a layer of Caffe
    settings: dict = {}         # of the loss layer
    frozen: dict = {}           # of the loss layer where the backbone is frozen, in place of those above
    cells_only: bool = False    # where the backbone is frozen, the classifier does not see the image's mean
    data: tuple = ()            # settings of the data layer that no other system has


CCNN = "ConstrainedLossLayer"


def constrained(title, settings, more=(), **fields):
    """A system that trains with constraints: the kind of supervision in its settings brings the blobs."""
    blobs = SUPERVISION[settings["supervision"]].names + more
    return System(title, blobs=blobs, loss=CCNN, settings=settings, **fields)


TAG_SETTINGS = {"supervision": "tags", "fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}

SHARE_SETTINGS = {"supervision": "share", "margin": 0.05, "fg_lower": 0.05, "fg_beta": 2}

SIZE_SETTINGS = {"supervision": "size", "fg_lower": 0.1, "fg_beta": "inf", "small_upper": 0.01, "bg_lower": 0.2,
                 "bg_upper": 0.7}

BOX_SETTINGS = {"supervision": "boxes", "fraction": 0.75, "beta": 10}

EM_SETTINGS = {"rho_fg": 0.2, "rho_bg": 0.4, "rounds": 5}

SYSTEMS = {
    "tags": constrained("CCNN, tags", TAG_SETTINGS, knows="its tags", paper="sections 5 and 7.2"),
    "size": constrained(
        "CCNN, tags and sizes", SIZE_SETTINGS, knows="its tags, and which of them cover a tenth of it",
        paper="sections 5 and 7.3",
        # what the bit of size itself says; with the paper's 0.01 a linear classifier scores less on images held out
        # (docs/reproduction.md has both)
        frozen={"small_upper": 0.1}),
    "shares": constrained(
        "CCNN, tags and guessed areas", SHARE_SETTINGS, knows="its tags, and about how much of it is background",
        paper="not in the paper", data=("shares",)),
    "crops": constrained(
        "CCNN, tags of random crops", TAG_SETTINGS, knows="the tags of a random crop", paper="section 7.3",
        data=("crop",)),
    "boxes": constrained("CCNN, boxes", BOX_SETTINGS, knows="boxes around its objects", paper="section 7.4"),
    "semi": constrained(
        "CCNN, tags and some masks", TAG_SETTINGS, more=("labels",), knows="its tags, and the mask of one image in ten",
        paper="supplement, section IV", data=("supervised",)),
    "em_adapt": System(
        "EM-Adapt", knows="its tags", paper="section 7.2",
        blobs=("tags",), loss="EMAdaptLossLayer", settings=EM_SETTINGS,
        cells_only=True),       # see MIL-FCN
    "em_adapt_crops": System(
        "EM-Adapt, tags of random crops", knows="the tags of a random crop", paper="section 7.3",
        blobs=("tags",), loss="EMAdaptLossLayer", settings=EM_SETTINGS, cells_only=True, data=("crop",)),
    "mil_fcn": System(
        "MIL-FCN", knows="its tags", paper="section 7.2", blobs=("tags",), loss="MILFCNLossLayer",
        # a classifier that knows the image need not learn where in it a class is
        cells_only=True),
    "mil_base": System(
        "MIL-Base", knows="its tags", paper="section 7.2", blobs=("tags",), loss="MILBaseLossLayer", settings={"r": 5}),
    "filled_boxes": System(
        "all pixels of the boxes", knows="boxes around its objects", paper="section 7.4",
        blobs=("filled_boxes",), loss="SoftmaxWithLoss"),
    "full": System(
        "full supervision", knows="the label of every pixel", paper="what the weak systems are measured against",
        blobs=("labels",), loss="SoftmaxWithLoss"),
}


# Not a way to segment, but where MIL and EM start; see tag_classifier.
CLASSIFIER = System("tag classifier", knows="its tags", paper="section 7.2", blobs=("tags",),
                    loss="SigmoidCrossEntropyLoss", cells_only=True)


# {block of VGG: systems for which it and those after it learn, too, from the cached pool before it}
LEARNING = {5: ("tags", "shares", "size", "boxes", "full"), 4: ("full",)}


# Systems whose whole net learns without fc6 and fc7: see large_field
LARGE_FIELD = ("tags", "size", "boxes", "full", "em_adapt")


# Data: where the images are. `crop` is the side of random crops; `supervised` images (a tenth of all) keep their masks.

VOC = {"root": "data/VOCdevkit/VOC2012", "split": "train_aug", "crop": 321, "supervised": 1058,
       "shares": "data/shares.csv"}

CACHED = {"root": "data/VOCdevkit/VOC2012", "split": "train_aug", "features": "data/features",
          "shares": "data/shares.csv", "crop": 144, "supervised": 1058}         # 144 of 224 pixels, as 321 of 500

REDUCED = {**VOC, "size": DEFAULT.size}       # whole images: two cores can train all of VGG-16 on them

ABOUT = {name: {"size": DEFAULT.size} for name in ("head_deploy", "largefov_deploy")}       # ccnn segment cannot see it

DEMO = {"root": "data/demo", "split": "train", "classes": "data/demo/classes.txt", "stride": 4,
        "crop": 97, "supervised": 20, "shares": "data/demo/shares.csv"}


# Layers

def layer(name, kind, bottoms, tops, *settings):
    """A layer of Caffe; each of the settings is one line."""
    blobs = "".join([f'  bottom: "{b}"' for b in bottoms] + [f'  top: "{t}"' for t in tops])
    first = f'name: "{name}"  type: "{kind}"{blobs}'
    lines = "".join(f"  {line}\n" for line in (first, *settings))
    return f"layer {{\n{lines}}}\n" if settings else f"layer {{ {first} }}\n"


def python_layer(name, module, kind, bottoms, tops, settings, *more):
    """The class `kind` of layers/<module>.py with its settings as JSON; each of `more` is one line."""
    quoted = json.dumps(settings).replace("\\", "\\\\").replace("'", "\\'")
    return layer(name, "Python", bottoms, tops, *more,
                 "python_param {",
                 f'  module: "{module}"  layer: "{kind}"',
                 f"  param_str: '{quoted}'",
                 "}")


def conv(name, bottom, outputs, kernel, pad=0, dilation=1, stride=1, top=None, filler='type: "msra"', rate=1):
    """A convolution. Biases learn at twice the weights' rate and do not decay, as in VGG-16.

    rate : of the weights, in multiples of the solver's; 0: the layer stays as it is

    The filler matters where the pre-trained weights lack the layer; msra keeps the scale of the activations.
    """
    geometry = [f"num_output: {outputs}  kernel_size: {kernel}"]
    geometry += [f"pad: {pad}"] if pad else []
    geometry += [f"dilation: {dilation}"] if dilation > 1 else []
    geometry += [f"stride: {stride}"] if stride > 1 else []
    return layer(name, "Convolution", [bottom], [top or name],
                 f"param {{ lr_mult: {rate}  decay_mult: {int(rate > 0)} }}",
                 f"param {{ lr_mult: {2 * rate}  decay_mult: 0 }}",
                 f"convolution_param {{ {'  '.join(geometry)}  weight_filler {{ {filler} }} }}")


def score(name, bottom, labels, top="fc8", rate=1):
    """The last layer, which starts as Gaussian noise and not from ImageNet. The scores are `fc8` in every net."""
    return conv(name, bottom, labels, kernel=1, top=top, filler='type: "gaussian"  std: 0.01', rate=rate)


def relu(blob):
    return layer(re.sub("^(conv|fc|fov)", "relu", blob), "ReLU", [blob], [blob])


def scale(bottom, factor, why):
    """`scaled`: the blob with a standard deviation of 1, which suits layers that start random."""
    return layer("scale", "Power", [bottom], ["scaled"], f"power_param {{ scale: {factor} }}      # {why}")


def dropout(blob):
    return layer(re.sub("^(fc|fov)", "drop", blob), "Dropout", [blob], [blob], "dropout_param { dropout_ratio: 0.5 }")


def pool(name, bottom, stride, kernel=3, pad=1):
    """With kernel 3 and pad 1, cell j of the pooled map sits on pixel stride * j."""
    padding = f"  pad: {pad}" if pad else ""
    return layer(name, "Pooling", [bottom], [name],
                 f"pooling_param {{ pool: MAX  kernel_size: {kernel}  stride: {stride}{padding} }}")


def input_layer(blob, *shape):
    """A blob that the user of the net fills."""
    dims = "  ".join(f"dim: {n}" for n in shape)
    return layer("data", "Input", [], [blob], f"input_param {{ shape {{ {dims} }} }}")


def data_layer(system, data, top=None, held=False):
    """An image, or its features, and as much of its supervision as the system may see. `top` renames the input."""
    kind, first = ("FeatureDataLayer", "features") if "features" in data else ("VOCDataLayer", "data")
    blobs = supervision_blobs(system, "scribbles" in data, held, "cues" in data)
    particular = {key for other in SYSTEMS.values() for key in other.data}.difference(SYSTEMS[system].data)
    settings = {key: value for key, value in data.items() if key not in particular}
    settings.update(tops=[first, *blobs], mirror=data.get("mirror", True), seed=data.get("seed", 1))
    return python_layer("data", "voc_data", kind, [], [top or first, *blobs], settings)


def supervision_blobs(system, scribbles, held, cue=False):
    """What the system knows of an image, as blobs; with a cue, its map; with scribbles, the labels of some pixels too;
    which image it is, if its p is held."""
    return tuple(dict.fromkeys([*SYSTEMS[system].blobs, *["cue"] * cue, *["labels"] * scribbles, *["number"] * held]))


def loss_layer(system, scribbles=False, **changes):
    """The loss per pixel, from the scores `fc8`. `changes` replace or add to the system's settings."""
    kind, settings = SYSTEMS[system].loss, {**SYSTEMS[system].settings, **changes}
    bottoms = ["fc8", *supervision_blobs(system, scribbles, settings.get("hold", 1) > 1, settings.get("cue", False))]
    if kind == "SoftmaxWithLoss":
        return layer("loss", kind, bottoms, ["loss"], "loss_param { ignore_label: 255 }")
    if kind == CCNN:       # `solver`, for the log: violation before, gap, iterations, seconds
        return python_layer("loss", "constrained_loss", kind, bottoms, ["loss", "solver"], settings,
                            "loss_weight: 1  loss_weight: 0")
    return python_layer("loss", "baseline_losses", kind, bottoms, ["loss"], settings, "loss_weight: 1")


# Networks: from `data`, or from cached features, to `fc8`

def vgg16(stride=8, kernel=3, first=1):
    """The convolutions of VGG-16, conv1_1 .. conv5_3; or those from the block `first` on, from the pool before it.

    At stride 8, pool4 and pool5 do not stride, and what follows them is dilated instead (paper, section 6).

    kernel 3    of the pooling keeps the cells on the pixels: cell j sits on pixel 8 j. ImageNet was not trained with
                it, so the net must be fine-tuned.
    kernel 2    is VGG's own, and gives VGG's own features, twice as densely each way. It suits nets that are not
                fine-tuned. Its windows move cell j by 3.5 pixels, and pool4, padded by one cell, moves it by -4:
                cell j sits at 8 j - 1/2, the edge before pixel 8 j.
    """
    text, bottom = "", pool_before(first) if first > 1 else "data"
    for block in range(first, 6):
        dilated = stride == 8 and block == 5
        if block > first:
            text += pool(pool_before(block), bottom, stride=1 if dilated else 2, kernel=kernel,
                         pad=1 if kernel == 3 or dilated else 0)
            bottom = pool_before(block)
        text += vgg16_block(block, bottom, dilation=2 if dilated else 1)
        bottom = f"conv{block}_{len(BLOCKS[block])}"
    return text


def pool_before(block):
    """Name of the blob that one of VGG's blocks sees."""
    return f"pool{block - 1}"


BLOCKS = {1: (64,) * 2, 2: (128,) * 2, 3: (256,) * 3, 4: (512,) * 3, 5: (512,) * 3}     # outputs of VGG's convolutions


def vgg16_block(block, bottom, dilation):
    """The convolutions of one of VGG's five blocks."""
    text = ""
    for number, outputs in enumerate(BLOCKS[block], start=1):
        name = f"conv{block}_{number}"
        text += conv(name, bottom, outputs, kernel=3, pad=dilation, dilation=dilation) + relu(name)
        bottom = name
    return text


def classifier(labels=LABELS, stride=8):
    """VGG's fully connected layers as convolutions."""
    return fc7(stride) + score("fc8", "fc7", labels)


def fc7(stride=8):
    """All but the last of them; at stride 8, fc6 keeps every second row and column of its 7x7."""
    if stride == 8:
        text = pool("pool5", "conv5_3", stride=1) + conv("fc6", "pool5", 4096, kernel=4, pad=6, dilation=4)
    else:
        text = pool("pool5", "conv5_3", stride=2, kernel=2, pad=0) + conv("fc6", "pool5", 4096, kernel=7, pad=3)
    text += relu("fc6") + dropout("fc6")
    return text + conv("fc7", "fc6", 4096, kernel=1) + relu("fc7") + dropout("fc7")


def large_field(labels=LABELS):
    """A small classifier on VGG-16's convolutions, in the manner of DeepLab's LargeFOV, where fc6 and fc7 are missing.

    One layer of 3x3 cells with the dilation of fc6: it sees 9x9 cells, where fc6 sees 13x13, and has a tenth of the
    weights of fc6 and fc7. It and fc8 start random, and learn ten times as fast as what ImageNet has trained. No file
    has weights named `fov`.
    """
    text = pool("pool5", "conv5_3", stride=1) + conv("fov", "pool5", 1024, kernel=3, pad=4, dilation=4, rate=10)
    return text + relu("fov") + dropout("fov") + score("fc8", "fov", labels, rate=10)


def features(bottom="conv5_3"):
    """`features`: what the frozen-backbone recipe keeps of an image.

    At every cell, the square roots of VGG-16's last convolution, and their means over the 9x9 cells around it. The root
    is taken because a few cells are a hundred times as strong as the rest. The mean is taken along columns, then along
    rows, which is faster.
    """
    box = "pooling_param {{ pool: AVE  kernel_h: {}  kernel_w: {}  pad_h: {}  pad_w: {}  stride: 1 }}"
    text = layer("root", "Power", [bottom], ["root"], "power_param { power: 0.5  shift: 0.01 }")
    text += layer("column", "Pooling", ["root"], ["column"], box.format(9, 1, 4, 0))
    text += layer("around", "Pooling", ["column"], ["around"], box.format(1, 9, 0, 4))
    return text + layer("features", "Concat", ["root", "around"], ["features"])


def backbone_layers(first=1):
    """The backbone from VGG's block `first` on, up to `features`."""
    return vgg16(kernel=2, first=first) + features()


def trunk():
    """From `data` to `features`; it stays as ImageNet made it."""
    return input_layer("data", 1, 3, 224, 224) + backbone_layers()


def coarse_features(every):
    """`coarse`: the features of every so many rows and columns. By default Caffe would add a cell beyond the border."""
    return layer("coarse", "Pooling", ["features"], ["coarse"],
                 f"pooling_param {{ pool: MAX  kernel_size: 1  stride: {every}  round_mode: FLOOR }}")


def head(labels=LABELS, cells_only=False, bottom="features"):
    """A linear classifier of cell i and of the image: fc8_i = W features_i + V image + biases.

    `image` is the mean of the features over all cells: what an image shows says much about its cells. The scores
    V image are added to every cell as a bias; if `cells_only`, they stay 0. No layer has a name that VGG-16's weights
    would fill.
    """
    text = score("fc8_cell", bottom, labels, top="fc8_cell")
    text += layer("image", "Pooling", [bottom], ["image"], "pooling_param { pool: AVE  global_pooling: true }")
    if cells_only:
        text += conv("fc8_image", "image", labels, kernel=1, filler='type: "constant"', rate=0)
    else:
        text += score("fc8_image", "image", labels, top="fc8_image")
    text += layer("vector", "Reshape", ["fc8_image"], ["vector"], "reshape_param { shape { dim: 0  dim: -1 } }")
    return text + layer("scores", "Bias", ["fc8_cell", "vector"], ["fc8"], "bias_param { axis: 0 }")


def tag_classifier(name, bottom, labels=LABELS):
    """From cells to the tags of an image: sigmoid(W mean of the cells), with the cross entropy of every class.

    The scores of cells are W too, so the layer `name` of other nets can start with it (caffe train -weights). It starts
    at 0, from where logistic regression finds its one optimum. The background, which every image has, is not learned:
    its scores stay 0.
    """
    text = layer("image", "Pooling", [bottom], ["image"], "pooling_param { pool: AVE  global_pooling: true }")
    text += conv(name, "image", labels, kernel=1, top="scores", filler='type: "constant"')
    for blob in ("scores", "tags"):
        text += layer(f"{blob}_of_classes", "Slice", [blob], [f"{blob}_background", f"{blob}_classes"],
                      "slice_param { axis: 1  slice_point: 1 }")
    text += layer("unused", "Silence", ["scores_background", "tags_background"], [])
    return text + layer("loss", "SigmoidCrossEntropyLoss", ["scores_classes", "tags_classes"], ["loss"])


def demo_net(labels=DEMO_LABELS):
    """A net that learns textures from random weights in half a minute on one core. Stride 4; a cell sees 27 pixels.

    It has few layers, because a deep net that starts random stays longer than that on a plateau, where it has learned
    no more than how often each tag occurs. Images whose sides are 8 k + 1 pixels fill the score grid exactly.
    """
    text = scale("data", 0.015625, "the standard deviation of pixels is about 64")
    text += conv("conv1", "scaled", 24, kernel=7, pad=3, stride=2) + relu("conv1") + pool("pool1", "conv1", stride=2)
    text += conv("conv2", "pool1", 48, kernel=5, pad=2) + relu("conv2")
    return text + score("fc8", "conv2", labels)


def trained_head(system, labels=LABELS, cells_only=None, bottom="features", **changes):
    """The classifier on features that are frozen, or nearly so, and its loss; `changes` as for loss_layer.

    cells_only : as for head(); None: as the system has it
    """
    return (head(labels, SYSTEMS[system].cells_only if cells_only is None else cells_only, bottom)
            + loss_layer(system, **{**SYSTEMS[system].frozen, **changes}))


def last_blocks_net(first, system, data, **changes):
    """From the cached pool before it, VGG's block `first` learns, with those after it and the classifier."""
    return data_layer(system, data, top=pool_before(first)) + backbone_layers(first) + trained_head(system, **changes)


# Nets

def net_name(system):
    """Of the whole net that trains a system: CCNN's kinds of supervision are ccnn_<system>."""
    return f"ccnn_{system}" if SYSTEMS[system].loss == CCNN else system


def nets():
    """{name: text} of every net in prototxt/."""
    made = {}
    for system in SYSTEMS:
        made[net_name(system)] = data_layer(system, VOC) + vgg16() + classifier() + loss_layer(system)
        made[f"head_{system}"] = data_layer(system, CACHED) + trained_head(system)
    made["ccnn_tags_32s"] = (data_layer("tags", VOC) + vgg16(32, kernel=2) + classifier(stride=32)
                             + loss_layer("tags", normalize=False))
    for first, systems in LEARNING.items():
        data = {**CACHED, "features": f"data/{pool_before(first)}", "blob": pool_before(first)}
        for system in systems:
            made[f"conv{first}_{system}"] = last_blocks_net(first, system, data)
    for system in LARGE_FIELD:
        made[f"largefov_{system}"] = data_layer(system, REDUCED) + vgg16() + large_field() + loss_layer(system)
    made["classifier"] = data_layer("tags", VOC) + vgg16() + fc7() + tag_classifier("fc8", "fc7")
    made["head_classifier"] = data_layer("tags", CACHED) + tag_classifier("fc8_cell", "features")

    made["trunk"] = trunk()
    made["deploy_8s"] = input_layer("data", 1, 3, 321, 321) + vgg16() + classifier()
    made["deploy_32s"] = input_layer("data", 1, 3, 321, 321) + vgg16(32, kernel=2) + classifier(stride=32)
    made["head_deploy"] = made["trunk"] + head()
    made["largefov_deploy"] = input_layer("data", 1, 3, 224, 224) + vgg16() + large_field()
    return {name: titled(name, text) for name, text in made.items()}


def demo_nets():
    """{name: text} of the demonstration's nets, which demo/demo.py writes."""
    made = {f"demo_{system}": data_layer(system, DEMO) + demo_net() + loss_layer(system) for system in SYSTEMS}
    made["demo_deploy"] = input_layer("data", 1, 3, 121, 161) + demo_net()
    return {name: titled(name, text, "demo/demo.py") for name, text in made.items()}


def titled(name, text, writer="ccnn make-nets"):
    return f'# Written by {writer}.\nname: "{name}"\n{text}'


def own_nets(system, data, labels, cells_only=None, backbone: Backbone = DEFAULT, **changes):
    """(training net, deploy net) of the frozen-backbone recipe for a folder of your own.

    data    : settings of the data layer: root, classes, tags_from, features, perhaps scribbles
    cells_only : the classifier does not see the image's mean
    changes : settings of the loss layer in place of the system's
    """
    changes["scribbles"] = "scribbles" in data
    if backbone is not DEFAULT:
        data = {**data, "backbone": backbone.name}
    net = backbone.net.read_text()
    if "cues" in data:
        changes["cue"] = True
    texts = {"own_train": data_layer(system, data) + trained_head(system, labels, cells_only, **changes),
             "own_deploy": net[net.index("layer {"):] + head(labels)}
    return tuple(titled(name, text, "ccnn learn") for name, text in texts.items())
