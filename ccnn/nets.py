"""Write every net of this repository into prototxt/, or the nets for a folder of your own images into that.

    prototxt/make_nets.py
    prototxt/make_nets.py photos

The folder has images, classes.txt (a name a line), and tags.csv (a line `image,tags` or `image,tags,large` for every
image, ; between tags) or Annotations (VOC's XML, a file an image); its features are in photos/features already
(tools/cache_features.py). It gets train.prototxt, deploy.prototxt, and deploy.json for tools/infer.py.

A net is a list of parts, a part is text, and one function here writes each part:

    ccnn_<system>, <baseline>  VOC images -> VGG-16 at stride 8 -> the system's loss      (paper, sections 5 to 7)
    ccnn_tags_32s              the same at VGG's own stride of 32
    finetune_size              small images -> VGG-16, of which conv5 learns -> features -> classifier -> loss
    head_<system>              cached features -> a linear classifier -> the loss        (frozen trunk)
    demo_<system>              drawn images -> a small net at stride 4 -> the loss
    trunk, *deploy*            from the blob `data` to features or to the scores `fc8`, without a loss

A method's settings stand in the param_str of its loss layer, the optimiser's in solvers/. Edit this file,
not the nets: a test compares them.
"""
import json
from pathlib import Path

from ccnn.labels import LABELS
from ccnn.samples import FeatureSamples, own_folder

DEMO_LABELS = 6      # the five kinds of objects tools/draw_demo.py draws, and the background

# Where the images are. "crop" is for the system that trains on crops, "supervised" (a tenth of the images) for semi.
VOC = {"root": "data/VOCdevkit/VOC2012", "split": "train_aug", "crop": 321, "supervised": 1058}
CACHED = {"root": "data/VOCdevkit/VOC2012", "split": "train", "features": "data/features",
          "crop": 208, "supervised": 146}
FINETUNE = {"root": "data/VOCdevkit/VOC2012", "split": "train", "size": 224}
DEMO = {"root": "data/demo", "split": "train", "classes": "data/demo/classes.txt", "stride": 4,
        "crop": 97, "supervised": 20}


# Layers

def layer(name, kind, bottoms, tops, *settings):
    blobs = "".join([f'  bottom: "{b}"' for b in bottoms] + [f'  top: "{t}"' for t in tops])
    first = f'name: "{name}"  type: "{kind}"{blobs}'
    lines = "".join(f"  {line}\n" for line in (first, *settings))
    return f"layer {{\n{lines}}}\n" if settings else f"layer {{ {first} }}\n"


def python_layer(name, module, kind, bottoms, tops, settings, *more):
    quoted = json.dumps(settings).replace("\\", "\\\\").replace("'", "\\'")
    return layer(name, "Python", bottoms, tops, *more,
                 "python_param {",
                 f'  module: "{module}"  layer: "{kind}"',
                 f"  param_str: '{quoted}'",
                 "}")


def conv(name, bottom, outputs, kernel, pad=0, dilation=1, stride=1, top=None, filler='type: "msra"', learns=True):
    """Biases learn at twice the weights' rate and do not decay, as in VGG-16.

    The filler is for layers that the pre-trained weights lack; msra keeps the scale of the activations.
    """
    geometry = [f"num_output: {outputs}  kernel_size: {kernel}"]
    geometry += [f"pad: {pad}"] if pad else []
    geometry += [f"dilation: {dilation}"] if dilation > 1 else []
    geometry += [f"stride: {stride}"] if stride > 1 else []
    rates = ["param { lr_mult: 1  decay_mult: 1 }", "param { lr_mult: 2  decay_mult: 0 }"]
    return layer(name, "Convolution", [bottom], [top or name],
                 *(rates if learns else ["param { lr_mult: 0  decay_mult: 0 }"] * 2),
                 f"convolution_param {{ {'  '.join(geometry)}  weight_filler {{ {filler} }} }}")


def score(name, bottom, labels, top="fc8"):
    """The last layer: random Gaussian, nothing of it comes from ImageNet. The scores are `fc8` in every net."""
    return conv(name, bottom, labels, kernel=1, top=top, filler='type: "gaussian"  std: 0.01')


def relu(blob):
    return layer(blob.replace("conv", "relu").replace("fc", "relu"), "ReLU", [blob], [blob])


def scale(bottom, factor, why):
    """`scaled`: the blob with a standard deviation of 1, for layers that start random."""
    return layer("scale", "Power", [bottom], ["scaled"], f"power_param {{ scale: {factor} }}      # {why}")


def dropout(blob):
    return layer(blob.replace("fc", "drop"), "Dropout", [blob], [blob], "dropout_param { dropout_ratio: 0.5 }")


def pool(name, bottom, stride, kernel=3, pad=1):
    """With kernel 3 and pad 1, cell j of the pooled map sits on pixel stride * j."""
    padding = f"  pad: {pad}" if pad else ""
    return layer(name, "Pooling", [bottom], [name],
                 f"pooling_param {{ pool: MAX  kernel_size: {kernel}  stride: {stride}{padding} }}")


def image(height, width):
    return layer("data", "Input", [], ["data"],
                 f"input_param {{ shape {{ dim: 1  dim: 3  dim: {height}  dim: {width} }} }}")


# Networks: from `data`, or from cached features, to `fc8`

def vgg16(stride=8, kernel=3, frozen=0):
    """The convolutions of VGG-16, conv1_1 .. conv5_3. The first `frozen` of the five blocks do not learn.

    At stride 8 pool4 and pool5 do not stride, and what follows them is dilated instead (paper, section 6). Pooling over
    3x3 cells keeps the grid on the pixels, but is not what ImageNet trained with: fine-tuning mends that. Where
    little or nothing is fine-tuned, VGG's own 2x2 gives VGG's own features, twice as densely each way. Its windows move
    cell j by 3.5 pixels, and pool4, padded by one cell, by -4: it sits at 8 j - 1/2, the edge before pixel 8 j.
    """
    dense = stride == 8
    text, bottom = "", "data"
    for block, (layers, outputs) in enumerate([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], start=1):
        if block > 1:
            atrous = dense and block == 5
            text += pool(f"pool{block - 1}", bottom, stride=1 if atrous else 2, kernel=kernel,
                         pad=1 if kernel == 3 or atrous else 0)
            bottom = f"pool{block - 1}"
        dilation = 2 if dense and block == 5 else 1
        for number in range(1, layers + 1):
            name = f"conv{block}_{number}"
            text += conv(name, bottom, outputs, kernel=3, pad=dilation, dilation=dilation, learns=block > frozen)
            text += relu(name)
            bottom = name
    return text


def classifier(labels=LABELS, stride=8):
    """VGG's fully connected layers as convolutions; at stride 8, fc6 keeps every second row and column of its 7x7."""
    dense = stride == 8
    text = pool("pool5", "conv5_3", stride=1) if dense else pool("pool5", "conv5_3", stride=2, kernel=2, pad=0)
    if dense:
        text += conv("fc6", "pool5", 4096, kernel=4, pad=6, dilation=4)
    else:
        text += conv("fc6", "pool5", 4096, kernel=7, pad=3)
    text += relu("fc6") + dropout("fc6")
    text += conv("fc7", "fc6", 4096, kernel=1) + relu("fc7") + dropout("fc7")
    return text + score("fc8", "fc7", labels)


def features(bottom="conv5_3"):
    """`features`, what the frozen-trunk recipe keeps of an image: at every cell the square roots of VGG-16's last
    convolution, for a few cells are a hundred times as strong as the rest, and their mean over the 9x9 cells around it.
    The box is averaged along columns and rows in turn, which is faster."""
    box = "pooling_param {{ pool: AVE  kernel_h: {}  kernel_w: {}  pad_h: {}  pad_w: {}  stride: 1 }}"
    text = layer("root", "Power", [bottom], ["root"], "power_param { power: 0.5  shift: 0.01 }")
    text += layer("column", "Pooling", ["root"], ["column"], box.format(9, 1, 4, 0))
    text += layer("around", "Pooling", ["column"], ["around"], box.format(1, 9, 0, 4))
    return text + layer("features", "Concat", ["root", "around"], ["features"])


def head(labels=LABELS, cells_only=False):
    """A linear classifier of a cell's features and of the image's, their mean: fc8_i = W features_i + V image + biases.

    What an image is of says much about its cells. The second convolution's scores are repeated over the map by adding
    them as a bias; if `cells_only`, they stay 0. No name is one that VGG-16's weights would fill.
    """
    text = score("fc8_cell", "features", labels, top="fc8_cell")
    text += layer("image", "Pooling", ["features"], ["image"], "pooling_param { pool: AVE  global_pooling: true }")
    if cells_only:
        text += conv("fc8_image", "image", labels, kernel=1, filler='type: "constant"', learns=False)
    else:
        text += score("fc8_image", "image", labels, top="fc8_image")
    text += layer("vector", "Reshape", ["fc8_image"], ["vector"], "reshape_param { shape { dim: 0  dim: -1 } }")
    return text + layer("scores", "Bias", ["fc8_cell", "vector"], ["fc8"], "bias_param { axis: 0 }")


def demo_net(labels=DEMO_LABELS):
    """Learns textures from nothing in half a minute on one core: stride 4, sees 27 pixels.

    Few layers, because a deep net that starts random sits on a plateau for longer than that: all it finds in tags
    at first is how often each occurs. Images whose sides are 8 k + 1 pixels fill the score grid exactly.
    """
    text = scale("data", 0.015625, "the standard deviation of pixels is about 64")
    text += conv("conv1", "scaled", 24, kernel=7, pad=3, stride=2) + relu("conv1") + pool("pool1", "conv1", stride=2)
    text += conv("conv2", "pool1", 48, kernel=5, pad=2) + relu("conv2")
    return text + score("fc8", "conv2", labels)


# Systems

TAGS = {"supervision": "tags", "fg_lower": 0.05, "fg_beta": 2, "bg_lower": 0.3, "bg_upper": 0.7}
SIZE = {"supervision": "size", "fg_lower": 0.1, "fg_beta": "inf", "small_upper": 0.01, "bg_lower": 0.2, "bg_upper": 0.7}
BOXES = {"supervision": "boxes", "fraction": 0.75, "beta": 10}

SYSTEMS = {      # bottoms of the loss after the scores, loss layer, its settings
    "tags": (["tags"], "ConstrainedLossLayer", TAGS),
    "size": (["tags", "sizes"], "ConstrainedLossLayer", SIZE),
    "crops": (["tags"], "ConstrainedLossLayer", TAGS),               # tags of random crops (section 7.3)
    "boxes": (["boxes"], "ConstrainedLossLayer", BOXES),
    "semi": (["tags", "labels"], "ConstrainedLossLayer", TAGS),      # labels: of some images (supplement, IV)
    "em_adapt": (["tags"], "EMAdaptLossLayer", {"rho_fg": 0.2, "rho_bg": 0.4, "rounds": 5}),
    "mil_fcn": (["tags"], "MILFCNLossLayer", {}),
    "mil_base": (["tags"], "MILBaseLossLayer", {"r": 5}),
    "full": (["labels"], "SoftmaxWithLoss", {}),
}

# Where the trunk is frozen, small classes get what the bit of size itself says, not the paper's 0.01: with that, a
# linear classifier scores less on images held out (docs/reproduction.md has both).
FROZEN = {"size": {"small_upper": 0.1}}
# These classifiers see no more than cells: one that knows the image need not learn where in it a class is, and may take
# the background for the object (docs/reproduction.md).
CELLS_ONLY = ("em_adapt", "mil_fcn")


def images(system, data):
    """The data layer: an image, and as much of its supervision as the system may see."""
    kind, first = ("FeatureDataLayer", "features") if "features" in data else ("VOCDataLayer", "data")
    tops = [first, *SYSTEMS[system][0]]
    only = {"crop": "crops", "supervised": "semi"}
    settings = {key: value for key, value in data.items() if only.get(key, system) == system}
    settings.update(tops=tops, mirror=data.get("mirror", True), seed=data.get("seed", 1))
    return python_layer("data", "voc_data", kind, [], tops, settings)


def loss(system, **settings):
    """The loss per pixel, from the scores `fc8`. `settings` replace or add to the system's own."""
    supervision, kind, own = SYSTEMS[system]
    bottoms, settings = ["fc8", *supervision], {**own, **settings}
    if kind == "SoftmaxWithLoss":
        return layer("loss", kind, bottoms, ["loss"], "loss_param { ignore_label: 255 }")
    if kind == "ConstrainedLossLayer":       # `solver`, for the log: violation before, gap, iterations, seconds
        return python_layer("loss", "constrained_loss", kind, bottoms, ["loss", "solver"], settings,
                            "loss_weight: 1  loss_weight: 0")
    return python_layer("loss", "baseline_losses", kind, bottoms, ["loss"], settings, "loss_weight: 1")


def trained_head(system, labels=LABELS, cells_only=False, **settings):
    """The classifier on features that are frozen, or nearly so, and its loss."""
    return head(labels, cells_only or system in CELLS_ONLY) + loss(system, **{**FROZEN.get(system, {}), **settings})


# Nets

def nets():
    """name -> text of every net."""
    made = {}
    for system, (_, kind, _) in SYSTEMS.items():
        name = f"ccnn_{system}" if kind == "ConstrainedLossLayer" else system
        made[name] = images(system, VOC) + vgg16() + classifier() + loss(system)
        made[f"head_{system}"] = images(system, CACHED) + trained_head(system)
        made[f"demo_{system}"] = images(system, DEMO) + demo_net() + loss(system)
    made["ccnn_tags_32s"] = (images("tags", VOC) + vgg16(32, kernel=2) + classifier(stride=32)
                             + loss("tags", normalize=False))

    made["finetune_size"] = (images("size", FINETUNE) + vgg16(kernel=2, frozen=4) + features()
                             + trained_head("size"))

    made["trunk"] = image(224, 224) + vgg16(kernel=2) + features()
    made["deploy_8s"] = image(321, 321) + vgg16() + classifier()
    made["deploy_32s"] = image(321, 321) + vgg16(32, kernel=2) + classifier(stride=32)
    made["head_deploy"] = made["trunk"] + head()
    made["demo_deploy"] = image(121, 161) + demo_net()
    return {name: titled(name, text) for name, text in made.items()}


def titled(name, text):
    return f'# Written by prototxt/make_nets.py.\nname: "{name}"\n{text}'


def own_nets(folder):
    """Write the nets of the frozen-trunk recipe for a folder of one's own, from all the supervision that it has."""
    data = {**own_folder(folder), "features": str(Path(folder, "features"))}
    samples = FeatureSamples(data)
    if samples.csv is None:
        system = "boxes"
    else:
        system = "size" if any(large.any() for _, large in samples.csv.values()) else "tags"
    images_with = sum(samples[t][0]["tags"] for t in range(len(samples)))       # every file is read once

    labels = len(samples.classes)
    for name, text in {
        "train.prototxt": titled("own_train", images(system, data) + trained_head(system, labels)),
        "deploy.prototxt": nets()["trunk"].replace("trunk", "own_deploy", 1) + head(labels),
        "deploy.json": json.dumps({"size": samples.size, "classes": samples.classes}, indent=1) + "\n",
    }.items():
        Path(folder, name).write_text(text)
    shown = ", ".join(f"{name} in {number:.0f}" for name, number in zip(samples.classes[1:], images_with[1:]))
    print(f"{folder}: {len(samples)} images ({shown}); wrote train.prototxt, which learns from {system}, "
          "deploy.prototxt and deploy.json")
