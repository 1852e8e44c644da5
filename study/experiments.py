"""The experiments of the study: every row of its tables."""
from typing import NamedTuple, Optional

from ccnn.nets import SYSTEMS
from ccnn.paper import BOUNDS


class Experiment(NamedTuple):
    """A system of ccnn.nets on cached features, and what is particular to this row."""
    system: str
    note: str = ""                      # after the system's title
    loss: dict = {}                     # other settings of the loss layer
    supervised: Optional[int] = None    # percent of the images that keep their masks
    solver: Optional[str] = None        # solvers/head_<solver>.prototxt, if not the system's
    cells_only: bool = False            # the classifier does not see the image's mean
    ilp: bool = False                   # scored with an image-level prior, too
    seeds: int = 3                      # runs
    crf_seeds: int = 3                  # runs that are scored with CRF, too, which takes longer than all the rest
    paper: Optional[str] = None         # the paper's row (ccnn.paper)

    @property
    def title(self):
        return ", ".join(filter(None, (SYSTEMS[self.system].title, self.note)))


SHARES = (5, 10, 25, 50)        # percent of the images that keep their masks; 0 is the row tags, 100 the row full

PAPERS = {"small_upper": SYSTEMS["size"].settings["small_upper"]}       # heads have another bound of their own


def bounds_name(*bounds):
    """Name of the experiment with these a_l, a_0, b_0."""
    return "size" if bounds == BOUNDS[0][:3] else "bounds_{:g}_{:g}_{:g}".format(*bounds)


EXPERIMENTS = {
    "mil_fcn": Experiment("mil_fcn", crf_seeds=1, paper="MIL-FCN"),
    "mil_base": Experiment("mil_base", ilp=True, crf_seeds=1, paper="MIL-Base"),
    "em_adapt": Experiment("em_adapt", paper="EM-Adapt tags"),
    "tags": Experiment("tags", paper="CCNN tags"),
    "tags_cells": Experiment("tags", "cells only", cells_only=True, crf_seeds=1, paper="CCNN tags"),
    "tags_paper": Experiment("tags", "the paper's schedule", solver="tags_paper", crf_seeds=1, paper="CCNN tags"),
    "crops": Experiment("crops", paper="CCNN crops"),
    "size": Experiment("size", loss=PAPERS, paper="CCNN size"),
    "size_10": Experiment("size", "small up to 0.1", paper="CCNN size"),
    "boxes": Experiment("boxes", paper="CCNN boxes (CRF unsaid)"),
    "full": Experiment("full"),
    **{f"semi_{share}": Experiment("semi", f"{share} %", supervised=share, crf_seeds=0) for share in SHARES},
    **{bounds_name(*bounds): Experiment(
        "size", "other bounds", seeds=1, crf_seeds=0,
        loss={**PAPERS, **dict(zip(("fg_lower", "bg_lower", "bg_upper"), bounds))}) for *bounds, _ in BOUNDS[1:]},
}

# The rows of the table of systems, in its order.
COMPARED = ("mil_fcn", "mil_base", "em_adapt", "tags_cells", "tags_paper", "tags", "crops", "size", "size_10", "boxes",
            "full")

# Which of two experiments should score more.
ORDERINGS = (("em_adapt", "mil_fcn"), ("em_adapt", "mil_base"), ("tags_cells", "em_adapt"), ("tags", "em_adapt"),
             ("tags", "tags_cells"), ("tags", "tags_paper"), ("crops", "tags"), ("size", "tags"), ("size_10", "size"),
             ("boxes", "size"), ("boxes", "size_10"), ("full", "boxes"))
