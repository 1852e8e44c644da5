"""The experiments of the study: every row of its tables, and what was tried beside them."""
from collections import ChainMap
from typing import NamedTuple, Optional

from ccnn.nets.backbones import VGG16
from ccnn.nets.prototxt import CLASSIFIER, SYSTEMS, pool_before
from ccnn.paper import BOUNDS_TRIED

BACKBONE = VGG16            # of every experiment


class Experiment(NamedTuple):
    """A system of ccnn.nets.prototxt on cached features, and what is particular to this row."""
    system: str
    note: str = ""                      # after the system's title
    loss: dict = {}                     # other settings of the loss layer
    supervised: Optional[str] = None    # the share of the images that keep their masks, as "5 %"
    alone: bool = False                 # it trains on these images and no others
    own: bool = False                   # of the training images, only VOC's own 1,464
    points: bool = False                # a pixel of every class is known
    areas: int = 0                      # images whose area of background is known; the others' is guessed
    solver: Optional[str] = None        # solvers/head_<solver>.prototxt, if not the system's
    changes: tuple = ()                 # of the solver, as "key=value"
    cells_only: Optional[bool] = None   # the classifier does not see the image's mean; None: as the system has it
    taught: Optional[str] = None        # the experiment whose masks of the training images it learns from
    start: Optional[str] = None         # the experiment whose weights it starts with
    std: float = 0.01                   # of the first weights
    size: int = 0                       # long side of the images, if not that of the study's features
    every: int = 1                      # only every so many rows and columns of the features: 4 is a stride of 32
    learns: int = 0                     # first block of VGG that learns, too, from the cached pool before it; 0: none
    ilp: bool = False                   # scored with an image-level prior, too
    cue: bool = False                   # the training knows the map of a cue (ccnn.supervision.cue_rows)
    seeds: int = 3                      # runs
    crf: bool = True                    # its first run is scored with CRFs, too, if study/study.py --crf asks
    paper: Optional[str] = None         # the paper's row (ccnn.paper)

    @property
    def title(self):
        if self.points:
            return f"{SYSTEMS['tags'].title} and points"
        if self.taught:
            return ", ".join(filter(None, (f"taught by {EXPERIMENTS[self.taught].title}", self.note)))
        return ", ".join(filter(None, (self.trained.title, self.note)))

    @property
    def trained(self):
        """The system."""
        return CLASSIFIER if self.system == "classifier" else SYSTEMS[self.system]

    @property
    def cached(self):
        """What is cached of the images: the blob of the backbone."""
        return pool_before(self.learns) if self.learns else "features"

    @property
    def cued(self):
        """A cue is known to it, or to what it learns from."""
        return self.cue or (bool(self.taught) and EXPERIMENTS[self.taught].cued)

    @property
    def settings(self):
        """Of the loss layer, in place of the system's."""
        return {**self.loss, **({"cue": True} if self.cue else {})}

    @property
    def bottom(self):
        """What the classifier sees."""
        return "features" if self.every == 1 else "coarse"

    @property
    def only_cells(self):
        return self.trained.cells_only if self.cells_only is None else self.cells_only


# Images that keep their masks; none is the row tags, all the row full.
MASKS = ("1 %", "5 %", "10 %", "25 %", "50 %")

STARTED = {"start": "classifier", "note": "classifier first"}

RANDOM, CONV5, LARGER = "random start", "conv5 learns", "1,464 images, 321 pixels"

EPOCH, HALF = ({"learns": 5, "seeds": 1, "note": f"{CONV5} for {length}",
                "changes": (f"max_iter={steps}", "snapshot=265")}
               for length, steps in (("an epoch", 2645), ("half an epoch", 1323)))

HARD = "small up to 0.1, hardness 1000, classifier first"

OWN = {"own": True, "changes": ("max_iter=2196",)}        # VOC's 1,464 images, six epochs

OWN_321 = {**OWN, "size": 321}


def own_at(rate):
    """The same at another rate."""
    return {**OWN, "changes": (f"base_lr={rate}", *OWN["changes"])}


PAPERS = {"small_upper": SYSTEMS["size"].settings["small_upper"]}       # heads have another bound of their own


def bounds_name(*bounds):
    """Name of the experiment with these a_l, a_0, b_0."""
    return "size" if bounds == BOUNDS_TRIED[0][:3] else "bounds_{:g}_{:g}_{:g}".format(*bounds)


def masks_name(masks, others="semi"):
    """Name of the experiment in which so many images keep their masks: with the tags of the others, or "alone"."""
    return f"{others}_{masks}".replace(" %", "_percent")


EXPERIMENTS = {
    "classifier": Experiment("classifier"),
    "classifier_long": Experiment("classifier", "two epochs, no weight decay",
                                  changes=("max_iter=5290", "weight_decay=5e-7")),
    # the baselines as their authors start them, and random, as CCNN can
    "mil_fcn": Experiment("mil_fcn", **STARTED, changes=("max_iter=2645",), paper="MIL-FCN"),
    "mil_fcn_random": Experiment("mil_fcn", RANDOM, changes=("base_lr=2e-2",)),
    "mil_base": Experiment("mil_base", "longer classifier first", start="classifier_long", changes=("base_lr=1e-5",),
                           ilp=True, paper="MIL-Base"),
    "mil_base_random": Experiment("mil_base", RANDOM, changes=("base_lr=2e-3", "max_iter=5290"), ilp=True),
    "em_adapt": Experiment("em_adapt", **STARTED, paper="EM-Adapt tags"),
    "em_adapt_random": Experiment("em_adapt", RANDOM, changes=("base_lr=5e-3",)),
    "em_adapt_image": Experiment("em_adapt", "classifier first, with the image's mean", start="classifier",
                                 cells_only=False, changes=("base_lr=4e-3",), paper="EM-Adapt tags"),
    "em_adapt_image_random": Experiment("em_adapt", "random start, with the image's mean", cells_only=False,
                                        changes=("base_lr=5e-3",)),
    "tags_cells": Experiment("tags", "cells only", cells_only=True, paper="CCNN tags"),
    "tags_cells_started": Experiment("tags", "cells only, classifier first", cells_only=True, start="classifier",
                                     paper="CCNN tags"),
    "tags": Experiment("tags", paper="CCNN tags"),
    "tags_started": Experiment("tags", **STARTED, paper="CCNN tags"),
    "tags_std_0.1": Experiment("tags", "cells only, random start of std 0.1", cells_only=True, std=0.1),
    "tags_std_1": Experiment("tags", "cells only, random start of std 1", cells_only=True, std=1.0),
    # without SBD's images, as the first version of the study
    "classifier_train": Experiment("classifier", "1,464 images", **OWN),
    "mil_fcn_train": Experiment("mil_fcn", "classifier first, 1,464 images", start="classifier_train", **OWN),
    "em_adapt_train": Experiment("em_adapt", "classifier first, 1,464 images", start="classifier_train", **OWN),
    "em_adapt_image_train": Experiment("em_adapt", "classifier first, with the image's mean, 1,464 images",
                                       start="classifier_train", cells_only=False, **OWN),
    # EM-Adapt with less background, which scores a little more on images held out; and each with the other's bounds
    "em_adapt_train_0.2_0.3": Experiment("em_adapt", "background 0.3, classifier first, 1,464 images",
                                         start="classifier_train", loss={"rho_bg": 0.3}, **OWN),
    "em_adapt_bounds_train": Experiment("em_adapt", "CCNN's lower bounds, classifier first, 1,464 images",
                                        start="classifier_train", loss={"rho_fg": 0.05, "rho_bg": 0.3}, **OWN),
    "tags_bounds_train": Experiment("tags", "EM-Adapt's bounds, cells only, classifier first, 1,464 images",
                                    cells_only=True, start="classifier_train",
                                    loss={"fg_lower": 0.2, "bg_lower": 0.4, "bg_upper": 1}, **OWN),
    "tags_cells_train": Experiment("tags", "cells only, 1,464 images", cells_only=True, **OWN),
    # section 5: what each kind of constraint adds
    "tags_suppression_train": Experiment("tags", "suppression alone, 1,464 images",
                                         loss={"fg_lower": 0, "bg_lower": 0, "bg_upper": 1}, **OWN),
    "tags_foreground_train": Experiment("tags", "no bounds on the background, 1,464 images",
                                        loss={"bg_lower": 0, "bg_upper": 1}, **OWN),
    "tags_train": Experiment("tags", "1,464 images", **OWN),
    "size_10_hard_train": Experiment("size", f"{HARD}, 1,464 images", start="classifier_train", loss={"hardness": 1000},
                                     **OWN),
    "full_train": Experiment("full", "1,464 images", **own_at("4e-3")),
    # the same, in more detail
    "classifier_train_321": Experiment("classifier", LARGER, **OWN_321),
    "mil_fcn_train_321": Experiment("mil_fcn", f"classifier first, {LARGER}", start="classifier_train_321", **OWN_321),
    "em_adapt_train_321": Experiment("em_adapt", f"classifier first, {LARGER}", start="classifier_train_321",
                                     **OWN_321),
    "em_adapt_image_train_321": Experiment("em_adapt", f"classifier first, with the image's mean, {LARGER}",
                                           start="classifier_train_321", cells_only=False, **OWN_321),
    "tags_cells_train_321": Experiment("tags", f"cells only, {LARGER}", cells_only=True, **OWN_321),
    "tags_train_321": Experiment("tags", LARGER, **OWN_321),
    "size_10_hard_train_321": Experiment("size", f"{HARD}, {LARGER}", start="classifier_train_321",
                                         loss={"hardness": 1000}, **OWN_321),
    "full_train_321": Experiment("full", LARGER, size=321, **own_at("4e-3")),
    # ours: a cue tells what stands out
    "em_adapt_image_cue_train_321": Experiment(
        "em_adapt", f"a cue, classifier first, with the image's mean, {LARGER}", start="classifier_train_321",
        cells_only=False, cue=True, **OWN_321),
    "tags_cue_train_321": Experiment("tags", f"a cue, {LARGER}", cue=True, **OWN_321),
    "size_10_cue_train_321": Experiment("size", f"small up to 0.1, a cue, {LARGER}", cue=True, **OWN_321),
    # section 4: p found at every visit of an image, or at every second; section 6: the stride
    "tags_longer": Experiment("tags", "two more epochs", start="tags"),
    "tags_held": Experiment("tags", "two more epochs, p kept for two visits", start="tags", loss={"hold": 2}),
    "tags_kept": Experiment("tags", "four epochs, p kept for two visits", loss={"hold": 2},
                            changes=("max_iter=10580",)),
    "tags_32s": Experiment("tags", "stride 32", every=4),
    # section 6: one image per step with momentum 0.99 against twenty with 0.9, the same images
    "tags_paper": Experiment("tags", "the paper's schedule", solver="tags_paper", paper="CCNN tags"),
    "tags_batch": Experiment("tags", "20 images per step, momentum 0.9", solver="tags_paper",
                             changes=("iter_size=20", "momentum=0.9", "max_iter=1058", "stepsize=353", "base_lr=1e-1")),
    # ours: the areas of 100 images tell about how much of every image is background
    "shares": Experiment("shares", areas=100),
    # ours: a click on every class
    "points": Experiment("semi", points=True),
    # section 7.3; whether crops replace the upper bound on the background
    "tags_no_upper": Experiment("tags", "cells only, no upper bound", cells_only=True, loss={"bg_upper": 1}),
    "crops_no_upper": Experiment("crops", "cells only, no upper bound", cells_only=True, loss={"bg_upper": 1}),
    "em_adapt_crops": Experiment("em_adapt_crops", **STARTED, paper="EM-Adapt crops"),
    "crops_cells": Experiment("crops", "cells only", cells_only=True, paper="CCNN crops"),
    "crops": Experiment("crops", paper="CCNN crops"),
    "size": Experiment("size", loss=PAPERS, paper="CCNN size"),
    "size_hard": Experiment("size", "hardness 1000", loss={**PAPERS, "hardness": 1000}),
    "size_hard_cells": Experiment("size", "hardness 1000, cells only", cells_only=True,
                                  loss={**PAPERS, "hardness": 1000}),
    "size_hard_started": Experiment("size", "hardness 1000, classifier first", start="classifier",
                                    loss={**PAPERS, "hardness": 1000}, paper="CCNN size"),
    "size_10": Experiment("size", "small up to 0.1", paper="CCNN size"),
    "size_10_hard": Experiment("size", HARD, start="classifier", loss={"hardness": 1000}, paper="CCNN size"),
    # section 7.4
    "filled_boxes": Experiment("filled_boxes", paper="Boxes, filled (unsaid)"),
    "boxes": Experiment("boxes", paper="CCNN boxes (CRF unsaid)"),
    "full": Experiment("full", changes=("base_lr=4e-3",)),
    # the last block of VGG-16 learns, too, or the last two
    "conv5_tags": Experiment("tags", CONV5, start="tags", learns=5, seeds=1, paper="CCNN tags"),
    "conv5_shares": Experiment("shares", CONV5, areas=100, start="shares", learns=5, seeds=1),
    "conv5_size": Experiment("size", f"small up to 0.1, {CONV5}", start="size_10", learns=5, seeds=1,
                             paper="CCNN size"),
    "conv5_size_hard": Experiment("size", f"small up to 0.1, hardness 1000, {CONV5}", start="size_10_hard", learns=5,
                                  loss={"hardness": 1000}, seeds=1),
    "conv5_boxes": Experiment("boxes", CONV5, start="boxes", learns=5, seeds=1,
                              paper="CCNN boxes (CRF unsaid)"),
    "conv5_full": Experiment("full", CONV5, start="full", learns=5, seeds=1),
    "conv5_full_epoch": Experiment("full", start="full", **EPOCH),
    "conv4_full": Experiment("full", "conv4 and conv5 learn", start="full", learns=4, seeds=1),
    # ours: a net learns from masks that do not change, because another has made them
    "taught_tags": Experiment("full", taught="tags", seeds=1),
    "taught_shares": Experiment("full", taught="shares", seeds=1),
    "taught_size": Experiment("full", taught="size_10", seeds=1),
    "taught_size_hard": Experiment("full", taught="size_10_hard", seeds=1),
    "taught_boxes": Experiment("full", taught="boxes", seeds=1),
    "taught_tags_train_321": Experiment("full", taught="tags_train_321", seeds=1, **OWN_321),
    "taught_em_adapt_train_321": Experiment("full", taught="em_adapt_train_321", seeds=1, **OWN_321),
    "taught_em_adapt_image_train_321": Experiment("full", taught="em_adapt_image_train_321", seeds=1, **OWN_321),
    "taught_em_adapt_image_cue_train_321": Experiment("full", taught="em_adapt_image_cue_train_321", seeds=1,
                                                      **OWN_321),
    "taught_tags_cue_train_321": Experiment("full", taught="tags_cue_train_321", seeds=1, **OWN_321),
    "taught_size_10_cue_train_321": Experiment("full", taught="size_10_cue_train_321", seeds=1, **OWN_321),
    "conv5_taught_shares": Experiment("full", CONV5, taught="shares", start="taught_shares", learns=5, seeds=1),
    "conv5_taught_size": Experiment("full", CONV5, taught="size_10", start="taught_size", learns=5, seeds=1),
    "conv5_taught_size_hard": Experiment("full", taught="size_10_hard", start="taught_size_hard", **HALF),
    # supplement, IV and III
    **{masks_name(masks): Experiment("semi", f"{masks} masks", supervised=masks, crf=False) for masks in MASKS},
    **{masks_name(masks, "alone"): Experiment("full", f"{masks} of the images", supervised=masks, alone=True, crf=False,
                                              changes=("base_lr=4e-3", "max_iter=2196")) for masks in MASKS},
    **{bounds_name(*bounds): Experiment(
        "size", "other bounds", crf=False,
        loss={**PAPERS, **dict(zip(("fg_lower", "bg_lower", "bg_upper"), bounds))}) for *bounds, _ in BOUNDS_TRIED[1:]},
}

DECAYS = "3e-4", "3e-3", "1e-2"             # of the classifier; the study's is between the first two

STARTED_ROWS = "mil_fcn", "em_adapt", "mil_fcn_train", "em_adapt_train"    # what is tried with these classifiers

SHARES = (0.1, 0.4), (0.2, 0.2), (0.2, 0.5), (0.3, 0.4)     # of EM-Adapt: rho_fg, rho_bg; its authors' are 0.2, 0.4

SLOW = "1e-5", "2e-5", "5e-5"               # rates of EM-Adapt from the longer classifier


def decaying(row, decay):
    """A row with another weight decay."""
    experiment = EXPERIMENTS[row]
    return experiment._replace(note=", ".join(filter(None, (experiment.note, f"weight decay {decay}"))),
                               changes=(*experiment.changes, f"weight_decay={decay}"))


def started_by(row, start, note):
    """A row that starts with another classifier."""
    experiment = EXPERIMENTS[row]
    return experiment._replace(note=experiment.note.replace("classifier", f"classifier {note}"), start=start)


# Settings that study/hyperparameters.py tries on images held out; no rows of the study.
TRIALS = {
    **{f"classifier_decay_{decay}": decaying("classifier", decay) for decay in DECAYS},
    **{f"classifier_train_decay_{decay}": decaying("classifier_train", decay) for decay in DECAYS},
    **{f"{row}_decay_{decay}": started_by(row, f"{EXPERIMENTS[row].start}_decay_{decay}", f"of weight decay {decay}")
       for row in STARTED_ROWS for decay in (DECAYS if EXPERIMENTS[row].own else DECAYS[-1:])},
    "mil_fcn_long": EXPERIMENTS["mil_fcn"]._replace(note="longer classifier first", start="classifier_long"),
    "em_adapt_long": EXPERIMENTS["em_adapt"]._replace(note="longer classifier first", start="classifier_long"),
    **{f"em_adapt_long_{rate}": EXPERIMENTS["em_adapt"]._replace(
        note=f"longer classifier first, at {rate}", start="classifier_long", changes=(f"base_lr={rate}",))
       for rate in SLOW},
    **{f"mil_base_r_{r}": EXPERIMENTS["mil_base"]._replace(note=f"longer classifier first, r {r}", loss={"r": r})
       for r in (2, 10)},
    "mil_base_short": EXPERIMENTS["mil_base"]._replace(**STARTED),
    **{f"tags_hardness_{hardness}": Experiment("tags", f"hardness {hardness}, classifier first", start="classifier",
                                               loss={"hardness": hardness}) for hardness in (10, 1000)},
    **{f"em_adapt_train_{fg}_{bg}": EXPERIMENTS["em_adapt_train"]._replace(
        note=f"classifier first, 1,464 images, classes {fg}, background {bg}", loss={"rho_fg": fg, "rho_bg": bg})
       for fg, bg in SHARES},
    "tags_hold_2": Experiment("tags", "p kept for two visits", loss={"hold": 2}),
    "tags_train_4e-3": EXPERIMENTS["tags_train"]._replace(note="1,464 images, twice the rate", **own_at("4e-3")),
    "boxes_hardness_10": Experiment("boxes", "hardness 10, classifier first", start="classifier",
                                    loss={"hardness": 10}),
    **{f"shares_margin_{margin}": Experiment("shares", f"margin {margin}", areas=100, loss={"margin": margin})
       for margin in (0.2, 0.1)},
    "shares_1000": Experiment("shares", "margin 0.1, of 1,000 images", areas=1000, loss={"margin": 0.1}),
    **{f"tags_{lower}_{upper}": Experiment("tags", f"background {lower} .. {upper}",
                                           loss={"bg_lower": lower, "bg_upper": upper})
       for lower, upper in ((0.3, 0.8), (0.4, 0.75))},
}

EVERY_EXPERIMENT = ChainMap(EXPERIMENTS, TRIALS)

# The rows of the tables of systems, in their order: the paper's systems, started as they should be and at random; those
# on VOC's own images; the others.
COMPARED = tuple(name for name, experiment in EXPERIMENTS.items()
                 if not name.startswith(("semi", "alone", "bounds")) and not experiment.cued)
ON_OWN = tuple(name for name in COMPARED if EXPERIMENTS[name].own)
MAIN = ("classifier", "mil_fcn", "mil_fcn_random", "mil_base", "mil_base_random", "em_adapt", "em_adapt_random",
        "em_adapt_image", "em_adapt_image_random", "tags_cells", "tags_cells_started", "tags", "tags_started",
        "em_adapt_crops", "crops_cells", "crops", "size", "size_hard_started", "size_10", "size_10_hard",
        "filled_boxes", "boxes", "full")
# What a cue brings: on VOC's own images, each system without and with it, what it teaches, and full supervision.
CUED = (*(f"{first}{row}_train_321" for first in ("", "taught_")
          for row in ("em_adapt_image", "em_adapt_image_cue", "tags", "tags_cue", "size_10_cue")), "full_train_321")
OTHERS = tuple(name for name in COMPARED if name not in {*MAIN, *ON_OWN})

# Which of two experiments should score more, as the paper says or implies. What they compare is all that differs, but
# for what the titles say.
ORDERINGS = (
    ("em_adapt", "mil_fcn"), ("tags_cells", "mil_fcn"), ("tags_cells", "em_adapt"), ("tags_cells_started", "em_adapt"),
    ("tags_cells_train", "em_adapt_train"), ("tags_cells_train_321", "em_adapt_train_321"), ("tags", "em_adapt_image"),
    ("tags_started", "em_adapt_image"), ("em_adapt_image", "mil_base"), ("tags", "mil_base"),
    ("tags_cells", "em_adapt_random"), ("tags_cells", "mil_fcn_random"), ("tags_cells", "tags_cells_started"),
    ("tags", "tags_32s"), ("tags_paper", "tags_batch"), ("crops", "tags"), ("crops_cells", "em_adapt_crops"),
    ("size", "tags"), ("boxes", "size"), ("boxes", "filled_boxes"), ("full", "boxes"))

# Others, of settings that the paper does not have.
FURTHER_ORDERINGS = (
    ("tags_cells_train", "em_adapt_train_0.2_0.3"), ("tags_train", "em_adapt_image_train"),
    ("tags_train_321", "em_adapt_image_train_321"), ("em_adapt_train", "em_adapt"), ("tags", "tags_cells"),
    ("tags_held", "tags_longer"), ("tags_kept", "tags"), ("tags_cells", "tags_no_upper"),
    ("crops_cells", "crops_no_upper"), ("shares", "tags"), ("shares", "semi_1_percent"), ("points", "tags"),
    ("size_10", "size"), ("size_hard_started", "size"), ("size_10_hard", "size_10"), ("boxes", "size_10"))
