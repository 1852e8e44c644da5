"""Every solver file of this repository, written as text. ccnn make-nets puts them into files.

A solver is a recipe, which many share, and what differs from it. Each file has every line with its reason, and
says at its top which recipe it is and which values differ. Edit this file, not the solvers: a test compares them.
"""
from typing import NamedTuple

from ccnn.nets.prototxt import CCNN, LARGE_FIELD, LEARNING, SYSTEMS, net_name, pool_before

RECIPES = {
    # The whole net, as section 6 has it.
    "paper": """
base_lr: 1e-6           # for a loss divided by the number of pixels (section 6)
lr_policy: "step"       # times 0.1 every 20,000 iterations (section 6)
gamma: 0.1
stepsize: 20000
max_iter: 60000         # about 5 epochs of 10,582 images, one image per iteration (section 6)
iter_size: 1            # batch 1 with momentum 0.99 did better than batch 20 with 0.9 (section 6)
momentum: 0.99          # with a batch of one image, the momentum does the averaging
weight_decay: 5e-7      # as the authors' release has it for this loss
random_seed: 1          # of the last layer and dropout; the order of the images is seeded in the net
display: 20
average_loss: 20        # the log shows the mean of the last 20 images, because one alone says little
snapshot: 5000          # twelve snapshots of 0.5 GB
""",
    # A linear classifier on cached features.
    "head": """
type: "Adam"            # the classifier starts random: Adam is ahead of momentum 0.99 (head_tags_paper) at equal time
base_lr: 2e-3           # for a loss divided by the number of pixels; chosen on images held out
momentum: 0.9           # Adam's usual moments
momentum2: 0.999
delta: 1e-8
lr_policy: "poly"       # falls to zero at max_iter; a power of 1 would be linear
power: 0.9
iter_size: 4            # sums the gradients of 4 images per step: their sizes differ, so a batch holds one
max_iter: 5290          # 2 epochs of 10,582 images
weight_decay: 5e-7      # as in the recipe "paper"
random_seed: 1          # of the first weights; the order of the images is seeded in the net
display: 20
average_loss: 20        # the log shows the mean of the last 20 steps
snapshot: 529           # a fifth of an epoch
""",
    # The whole of VGG-16 and a small head, on reduced images.
    "largefov": """
type: "Adam"            # as for the heads: the classifier starts random
base_lr: 2e-5           # for a loss divided by the number of pixels; what starts random learns ten times as fast
momentum: 0.9           # Adam's usual moments
momentum2: 0.999
delta: 1e-8
lr_policy: "poly"       # falls to zero at max_iter
power: 0.9
iter_size: 8            # sums the gradients of 8 images per step: their sizes differ, so a batch holds one
max_iter: 2646          # 2 epochs of 10,582 images
weight_decay: 5e-7      # as in the recipe "paper"
random_seed: 1          # of the first weights and dropout; the order of the images is seeded in the net
display: 20
average_loss: 20        # the log shows the mean of the last 20 steps
snapshot: 265           # a fifth of an epoch: twelve snapshots of 0.23 GB
""",
    # A small net on drawn images.
    "demo": """
base_lr: 1e-2           # for a loss divided by the number of pixels
momentum: 0.9           # plain SGD: from tags, Adam never leaves the first plateau
lr_policy: "poly"       # falls to zero at max_iter
power: 1
max_iter: 2400          # 12 epochs of 200 images, one image per step
clip_gradients: 1       # with one image per step, a rare large gradient would undo hundreds of steps
weight_decay: 5e-4
random_seed: 1          # of the first weights; the order of the images is seeded in the net
display: 20
average_loss: 20        # the log shows the mean of the last 20 steps
snapshot: 400           # the page draws the course of the scores from these
""",
}


class Solver(NamedTuple):
    """A recipe, and what differs from it."""
    recipe: str
    about: str                  # comment: what is trained
    options: str = ""           # of `caffe train`, after the solver
    changes: str = ""           # lines that replace those of the recipe
    net: str = ""               # name of the net, if not the solver's


RELEASE = """
The authors' release differs: it runs for 35,000 iterations, never lowers the rate and does not mirror images."""

RATE = "for a loss divided by the number of pixels; chosen on images held out"

WHOLE = " -weights data/vgg16_8s.caffemodel"

STARTED, HEAD_STARTED = (f" -weights snapshots/{name}.caffemodel"
                         for name in ("classifier_iter_60000", "head_classifier_iter_2645"))

LAST_BLOCKS = {         # {first block of VGG that learns: what learns with it, and how long that takes on a core}
    5: ("the last block", "eleven minutes", "a minute"),
    4: ("the last two blocks", "twenty minutes", "two minutes"),
}

HEAD_CHANGES = {        # of systems that start from the classifier
    "em_adapt": f"base_lr: 5e-4           # {RATE}",
    "em_adapt_crops": f"base_lr: 2e-3           # {RATE}",
    "mil_fcn": "base_lr: 1e-4           # chosen on images held out",
    "mil_base": """
base_lr: 5e-6           # chosen on images held out; twice as much is too much
max_iter: 2645          # an epoch of 10,582 images: it gets worse from there on
""",
}


def solvers():
    """{name: Solver} of every solver in solvers/."""
    made = {}
    for system, about in SYSTEMS.items():
        title = f"{about.title[0].upper()}{about.title[1:]} ({about.paper})"
        made[net_name(system)] = Solver(
            "paper", f"{title}. Training knows of an image: {about.knows}.{RELEASE if about.loss == CCNN else ''}",
            STARTED if system in HEAD_CHANGES else WHOLE)
        made[f"head_{system}"] = Solver(
            "head", f"{title}. Frozen trunk, cached features: minutes on two cores.",
            HEAD_STARTED if system in HEAD_CHANGES else "", HEAD_CHANGES.get(system, ""))

    made["ccnn_tags_32s"] = Solver(
        "paper", "CCNN, tags (sections 5 and 6), at VGG's own stride of 32.\n"
        "The authors' release differs: it pads conv1_1 by 100 pixels, has no weight decay, runs for 40,000 iterations\n"
        "and lowers the rate every 10,000.",
        " -weights data/vgg16_32s.caffemodel", """
base_lr: 1e-8           # as in the authors' release, for a loss that is summed over the pixels, about 121 of them
weight_decay: 5e-5      # a hundred times the 8s decay, so that weights shrink as fast as in the 8s net
snapshot: 5000          # twelve snapshots of 1.1 GB
""")
    made["head_tags_paper"] = Solver(
        "paper", "CCNN, tags, by the paper's own schedule. Frozen trunk, cached features.", net="head_tags", changes="""
base_lr: 3e-4           # chosen on images held out; the paper's 1e-6 is for a net that ImageNet has trained
lr_policy: "step"       # times 0.1 after each third, as in section 6
stepsize: 7054
max_iter: 21164         # 2 epochs of 10,582 images, one per iteration: as many images as head_tags sees
random_seed: 1          # of the first weights; the order of the images is seeded in the net
display: 100
average_loss: 100       # the log shows the mean of the last 100 images
snapshot: 2116          # a fifth of an epoch
""")
    for first, (blocks, minutes, tenth) in LAST_BLOCKS.items():
        for system in LEARNING[first]:
            made[f"conv{first}_{system}"] = Solver(
                "head", f"{SYSTEMS[system].title}: {blocks} of VGG-16 and the classifier learn, from cached "
                f"{pool_before(first)}.\n"
                "Training starts from a trained head: ccnn init-weights joins it with VGG-16's convolutions.",
                " -weights data/ccnn.caffemodel", f"""
type: "Adam"            # as for the head
base_lr: 5e-5           # a fortieth of the head's, because ImageNet's filters are small: about 0.01
max_iter: 529           # a fifth of an epoch of 10,582 images: {minutes} on a core
random_seed: 1          # the order of the images is seeded in the net
snapshot: 53            # {tenth}
""")
    for system in LARGE_FIELD:
        made[f"largefov_{system}"] = Solver(
            "largefov", f"{SYSTEMS[system].title}: all of VGG-16's convolutions learn, with a small dilated head in "
            "the place of fc6\nand fc7 (not in the paper).", " -weights data/vgg16_conv.caffemodel")
    made["classifier"] = Solver(
        "paper", "The tags of an image: where MIL-FCN, MIL-Base and EM-Adapt start (section 7.2).",
        WHOLE, """
base_lr: 1e-6           # as for the other whole nets
""")
    made["head_classifier"] = Solver(
        "head", "The tags of an image: where MIL-FCN, MIL-Base and EM-Adapt start (section 7.2). Frozen trunk, cached\n"
        "features.", changes="""
type: "Adam"            # as for the other heads
base_lr: 2e-3           # as for the other heads
max_iter: 2645          # an epoch of 10,582 images
weight_decay: 1e-3      # chosen on images held out: without it, tags are learnt by heart, and cells are found less well
""")
    return made


def demo_solver(system, changes=""):
    """A solver of the demonstration, which demo/demo.py writes."""
    return Solver("demo", f"The demonstration of {SYSTEMS[system].title}, on images that demo/draw_demo.py draws.",
                  changes=changes)


def solver_texts():
    """{name: text} of every file in solvers/."""
    return {name: write(name, solver) for name, solver in solvers().items()}


def write(name, solver, folder="", snapshots="snapshots", writer="ccnn make-nets"):
    """The text of a solver file; folder: before the paths of solvers and nets, with a slash at its end."""
    lines, changes = by_key(RECIPES[solver.recipe]), by_key(solver.changes)
    unknown = changes.keys() - lines.keys()
    if unknown:
        raise ValueError(f"{name}: the recipe {solver.recipe!r} has no {min(unknown)}")
    differs = [f"    {key}: {value(changes[key])}, not {value(lines[key])}" for key in lines
               if key in changes and value(changes[key]) != value(lines[key])]
    comment = [*solver.about.splitlines(),
               f"    caffe train -solver {folder}solvers/{name}.prototxt{solver.options}",
               f'Recipe "{solver.recipe}" of ccnn/nets/solvers.py, {"except for" if differs else "unchanged."}',
               *differs,
               f"Written by {writer}."]
    return "\n".join([*(f"# {line}" for line in comment), "",
                      f'net: "{folder}prototxt/{solver.net or name}.prototxt"',
                      *{**lines, **changes}.values(),
                      f'snapshot_prefix: "{snapshots}/{name}"', ""])


def by_key(text):
    """{key: line} of lines `key: value    # reason`."""
    return {line.partition(":")[0]: line for line in text.strip().splitlines()}


def value(line):
    return line.partition(": ")[2].split()[0]
