"""The experiments of the study: every row of its tables."""
from typing import NamedTuple, Optional

from ccnn.nets import CLASSIFIER, SYSTEMS
from ccnn.paper import BOUNDS


class Experiment(NamedTuple):
    """A system of ccnn.nets on cached features, and what is particular to this row."""
    system: str
    note: str = ""                      # after the system's title
    loss: dict = {}                     # other settings of the loss layer
    supervised: Optional[str] = None    # the share of the images that keep their masks, as "5 %"
    images: Optional[str] = None        # VOC's list of training images, if not the study's
    areas: int = 0                      # images whose area of background is known; the others' is guessed
    solver: Optional[str] = None        # solvers/head_<solver>.prototxt, if not the system's
    changes: tuple = ()                 # of the solver, as "key=value"
    cells_only: Optional[bool] = None   # the classifier does not see the image's mean; None: as the system has it
    taught: Optional[str] = None        # the experiment whose masks of the training images it learns from
    start: Optional[str] = None         # the experiment whose weights it starts with
    std: float = 0.01                   # of the first weights
    every: int = 1                      # only every so many rows and columns of the features: 4 is a stride of 32
    conv5: bool = False                 # VGG's last block learns, too, from cached pool4
    ilp: bool = False                   # scored with an image-level prior, too
    seeds: int = 3                      # runs
    crf_seeds: int = 3                  # runs that are scored with CRF, too, which takes longer than all the rest
    paper: Optional[str] = None         # the paper's row (ccnn.paper)

    @property
    def title(self):
        if self.taught:
            return ", ".join(filter(None, (f"taught by {EXPERIMENTS[self.taught].title}", self.note)))
        return ", ".join(filter(None, (self.trained.title, self.note)))

    @property
    def trained(self):
        """The system."""
        return CLASSIFIER if self.system == "classifier" else SYSTEMS[self.system]

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

RANDOM, CONV5 = "random start", "conv5 learns"

OWN = {"images": "train", "changes": ("max_iter=2196",), "crf_seeds": 0}        # VOC's 1,464 images, six epochs

PAPERS = {"small_upper": SYSTEMS["size"].settings["small_upper"]}       # heads have another bound of their own


def bounds_name(*bounds):
    """Name of the experiment with these a_l, a_0, b_0."""
    return "size" if bounds == BOUNDS[0][:3] else "bounds_{:g}_{:g}_{:g}".format(*bounds)


def semi_name(masks):
    """Name of the experiment in which so many images keep their masks."""
    return f"semi_{masks}".replace(" %", "_percent")


EXPERIMENTS = {
    "classifier": Experiment("classifier", crf_seeds=0),
    # the baselines as their authors start them, and random, as CCNN can
    "mil_fcn": Experiment("mil_fcn", **STARTED, crf_seeds=1, paper="MIL-FCN"),
    "mil_fcn_random": Experiment("mil_fcn", RANDOM, changes=("base_lr=2e-2",), crf_seeds=0),
    "mil_base": Experiment("mil_base", **STARTED, ilp=True, crf_seeds=1, paper="MIL-Base"),
    "mil_base_random": Experiment("mil_base", RANDOM, changes=("base_lr=2e-3", "max_iter=5290"), ilp=True, crf_seeds=0),
    "em_adapt": Experiment("em_adapt", **STARTED, crf_seeds=1, paper="EM-Adapt tags"),
    "em_adapt_random": Experiment("em_adapt", RANDOM, changes=("base_lr=1e-2",), crf_seeds=0),
    "em_adapt_image": Experiment("em_adapt", "classifier first, with the image's mean", start="classifier",
                                 cells_only=False, crf_seeds=1, paper="EM-Adapt tags"),
    "em_adapt_image_random": Experiment("em_adapt", "random start, with the image's mean", cells_only=False,
                                        changes=("base_lr=1e-2",), crf_seeds=0),
    "tags_cells": Experiment("tags", "cells only", cells_only=True, crf_seeds=1, paper="CCNN tags"),
    "tags_cells_started": Experiment("tags", "cells only, classifier first", cells_only=True, start="classifier",
                                     crf_seeds=0, paper="CCNN tags"),
    "tags": Experiment("tags", paper="CCNN tags"),
    "tags_started": Experiment("tags", **STARTED, crf_seeds=0, paper="CCNN tags"),
    "tags_std_0.1": Experiment("tags", "cells only, random start of std 0.1", cells_only=True, std=0.1, seeds=1,
                               crf_seeds=0),
    "tags_std_1": Experiment("tags", "cells only, random start of std 1", cells_only=True, std=1.0, seeds=1,
                             crf_seeds=0),
    # without SBD's images, as the first version of the study
    "classifier_train": Experiment("classifier", "1,464 images", **OWN),
    "mil_fcn_train": Experiment("mil_fcn", "classifier first, 1,464 images", start="classifier_train", **OWN),
    "em_adapt_train": Experiment("em_adapt", "classifier first, 1,464 images", start="classifier_train", **OWN),
    "tags_cells_train": Experiment("tags", "cells only, 1,464 images", cells_only=True, **OWN),
    "tags_train": Experiment("tags", "1,464 images", **OWN),
    # section 4: p found at every visit of an image, or at every second; section 6: the stride
    "tags_longer": Experiment("tags", "two more epochs", start="tags", seeds=1, crf_seeds=0),
    "tags_held": Experiment("tags", "two more epochs with p held fixed", start="tags", loss={"hold": 2}, seeds=1,
                            crf_seeds=0),
    "tags_32s": Experiment("tags", "stride 32", every=4, crf_seeds=0),
    # section 6: one image per step with momentum 0.99 against twenty with 0.9, the same images
    "tags_paper": Experiment("tags", "the paper's schedule", solver="tags_paper", crf_seeds=1, paper="CCNN tags"),
    "tags_batch": Experiment("tags", "20 images per step, momentum 0.9", solver="tags_paper", crf_seeds=0,
                             changes=("iter_size=20", "momentum=0.9", "max_iter=1058", "stepsize=353", "base_lr=1e-1")),
    # ours: the areas of 100 images tell about how much of every image is background
    "shares": Experiment("shares", areas=100, crf_seeds=1),
    # section 7.3
    "em_adapt_crops": Experiment("em_adapt_crops", **STARTED, crf_seeds=1, paper="EM-Adapt crops"),
    "crops": Experiment("crops", crf_seeds=1, paper="CCNN crops"),
    "size": Experiment("size", loss=PAPERS, paper="CCNN size"),
    "size_hard": Experiment("size", "hardness 1000", loss={**PAPERS, "hardness": 1000}, seeds=1, crf_seeds=0),
    "size_10": Experiment("size", "small up to 0.1", paper="CCNN size"),
    # section 7.4
    "filled_boxes": Experiment("filled_boxes", crf_seeds=1, paper="Boxes, filled (unsaid)"),
    "boxes": Experiment("boxes", crf_seeds=1, paper="CCNN boxes (CRF unsaid)"),
    "full": Experiment("full", crf_seeds=1),
    # the last block of VGG-16 learns, too
    "conv5_tags": Experiment("tags", CONV5, start="tags", conv5=True, seeds=1, crf_seeds=1, paper="CCNN tags"),
    "conv5_shares": Experiment("shares", CONV5, areas=100, start="shares", conv5=True, seeds=1, crf_seeds=1),
    "conv5_size": Experiment("size", f"small up to 0.1, {CONV5}", start="size_10", conv5=True, seeds=1, crf_seeds=1,
                             paper="CCNN size"),
    "conv5_boxes": Experiment("boxes", CONV5, start="boxes", conv5=True, seeds=1, crf_seeds=1,
                              paper="CCNN boxes (CRF unsaid)"),
    "conv5_full": Experiment("full", CONV5, start="full", conv5=True, seeds=1, crf_seeds=1),
    # ours: a net learns from masks that do not change, because another has made them
    "taught_tags": Experiment("full", taught="tags", crf_seeds=1, seeds=1),
    "taught_shares": Experiment("full", taught="shares", crf_seeds=1, seeds=1),
    "taught_size": Experiment("full", taught="size_10", crf_seeds=1, seeds=1),
    "conv5_taught_shares": Experiment("full", CONV5, taught="shares", start="taught_shares", conv5=True, seeds=1,
                                      crf_seeds=1),
    "conv5_taught_size": Experiment("full", CONV5, taught="size_10", start="taught_size", conv5=True, seeds=1,
                                    crf_seeds=1),
    # supplement, IV and III
    **{semi_name(masks): Experiment("semi", f"{masks} masks", supervised=masks, crf_seeds=0)
       for masks in MASKS},
    **{bounds_name(*bounds): Experiment(
        "size", "other bounds", seeds=1, crf_seeds=0,
        loss={**PAPERS, **dict(zip(("fg_lower", "bg_lower", "bg_upper"), bounds))}) for *bounds, _ in BOUNDS[1:]},
}

# The rows of the table of systems, in its order.
COMPARED = tuple(name for name in EXPERIMENTS if not name.startswith(("semi", "bounds")))

# Which of two experiments should score more.
ORDERINGS = (("em_adapt", "mil_fcn"), ("em_adapt", "mil_base"), ("tags_cells", "em_adapt"), ("tags", "em_adapt_image"),
             ("tags_cells_train", "em_adapt_train"), ("em_adapt_train", "em_adapt"),
             ("tags_cells", "em_adapt_random"), ("tags_cells", "mil_fcn_random"), ("tags_cells", "tags_cells_started"),
             ("tags", "tags_cells"), ("tags", "tags_32s"), ("tags_held", "tags_longer"), ("shares", "tags"),
             ("tags_paper", "tags_batch"), ("crops", "tags"), ("crops", "em_adapt_crops"),
             ("size", "tags"), ("size_10", "size"), ("boxes", "size"), ("boxes", "size_10"), ("boxes", "filled_boxes"),
             ("full", "boxes"))
