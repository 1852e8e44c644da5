"""What a cue says of a photograph, as constraints.

A cue (ccnn.nets.cues) is a map S, 0..1: how likely it is that a cell belongs to an object that stands out, of whatever
class. With n cells, I the cells where S >= 1/2, O the others, and B the labels that are there and are objects, not
surfaces (sky, grass, a crack in a wall):

    inside      1/n sum_{i in I} sum_{l in B} p_i(l)  >=  inside |I|/n - xi         xi at the price `price`
    outside     1/n sum_{i in O} sum_{l in B} p_i(l)  <=  outside |O|/n + xi
    share       1/n sum_i        sum_{l in B} p_i(l)  >=  s - margin - xi           s = 1/n sum_i S_i
                                                      <=  s + margin + xi

All rows are soft. Slack at price beta lets a row change the odds of its labels e^beta-fold at most, so features that
say otherwise on many photographs outvote a wrong map.

The rows tell how large the objects are. So, where every label that is there is an object, they replace the bounds on
the background's area, which are guesses about photographs in general (tag_constraints, size_constraints).

There are no rows if no label that is there is an object, or if the map is empty or full: if fewer than `least` of the
cells are in I, or in O. Then nothing stands out, and the map tells nothing.
"""
from typing import NamedTuple

import numpy as np

from ccnn.solver.constraints import BACKGROUND, Constraints
from ccnn.supervision.tags_sizes_boxes import area_rows


class CueBounds(NamedTuple):
    """The numbers of the rows."""
    inside: float = 0.85        # least share of the objects inside
    outside: float = 0.05        # largest share of the objects outside
    margin: float = 0.1        # by which the area of the objects may differ from the map's
    price: float = 3.0          # of a unit of slack
    least: float = 0.01         # of the cells: with fewer inside, or outside, the map tells nothing


BOUNDS = CueBounds()

EDGE = 0.02             # a map never says less than this, nor more than 1 - EDGE, where it weighs scores


def log_odds(S: np.ndarray) -> np.ndarray:
    """log S / (1 - S) of a map, float32: what it adds to the scores of objects, against the background's."""
    S = np.clip(S, EDGE, 1 - EDGE)
    return np.log(S / (1 - S)).astype(np.float32)


def with_cue(c: Constraints, S: np.ndarray, surfaces=(), bounds: CueBounds = BOUNDS) -> Constraints:
    """The constraints c, and the rows of the map S (n,), 0..1. surfaces : labels that are no objects"""
    S = np.asarray(S, float).ravel()
    if not ((S >= 0) & (S <= 1)).all():
        raise ValueError(f"the map of a cue must be in 0..1; it holds {S[~((S >= 0) & (S <= 1))][0]:g}")
    assert c.allowed is not None, "tags, sizes and boxes say which labels are there"
    there = c.allowed.reshape(len(c.allowed), -1).any(axis=1)
    objects = there & ~np.isin(np.arange(there.size), [BACKGROUND, *surfaces])
    inside = S >= 0.5
    if not objects.any() or not bounds.least <= inside.mean() <= 1 - bounds.least:
        return c
    if (objects | (np.arange(there.size) == BACKGROUND))[there].all():
        guesses = [row.row for row in area_rows(c) if row.label == BACKGROUND]
        c = c.rows(~np.isin(np.arange(len(c)), guesses))
    weights, everywhere = objects.astype(float), np.ones(S.size)
    rows = [(weights, bounds.inside * inside.mean(), inside),
            (-weights, -bounds.outside * (~inside).mean(), ~inside),
            (weights, S.mean() - bounds.margin, everywhere),
            (-weights, -(S.mean() + bounds.margin), everywhere)]
    A, b, regions = (np.array(part, float) for part in zip(*rows))
    return c & Constraints(A, b, np.full(len(rows), bounds.price), regions=regions)
