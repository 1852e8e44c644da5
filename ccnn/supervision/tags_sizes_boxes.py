"""From what is known of an image to linear constraints on its latent distribution: tags, sizes, boxes, masks."""
from typing import NamedTuple

import numpy as np

from ccnn.solver.constraints import BACKGROUND, VOID, Constraints


def tag_constraints(present, fg_lower=0.05, fg_beta=2.0, bg_lower=0.3, bg_upper=0.7):
    """Constraints from image-level tags (paper, section 5).

    present : (L,) bool, labels in the image; the background always is.

    suppression   p_i(l)    = 0               for every absent l
    foreground    mean p(l) >= fg_lower - xi  for every present l > 0, xi at price fg_beta
    background    mean p(0) >= bg_lower
                  mean p(0) <= bg_upper       unless only background is present

    The background rows are hard, the foreground rows soft: however many labels are present, p exists.
    """
    allowed = _labels("present", present)
    _check_fractions(fg_lower=fg_lower, bg_lower=bg_lower, bg_upper=bg_upper)
    _check_order(bg_lower, bg_upper)
    foreground = np.flatnonzero(allowed)[1:]
    rows = [(l, fg_lower, fg_beta) for l in foreground]
    upper = [(BACKGROUND, bg_upper, np.inf)] if foreground.size else []
    return _label_rows(allowed, [*rows, (BACKGROUND, bg_lower, np.inf)], upper)


def size_constraints(present, large, fg_lower=0.1, fg_beta=np.inf, small_upper=0.01, bg_lower=0.2, bg_upper=0.7,
                     conflict_beta=2.0):
    """Constraints from tags and one bit of size per tag (paper, section 5).

    present : (L,) bool, labels in the image
    large   : (L,) bool, labels that cover more than a tenth of it

    suppression   p_i(l)    = 0                for every absent l
    large         mean p(l) >= fg_lower - xi   for every present, large l > 0, xi at price fg_beta
    small         mean p(l) <= small_upper     for every other present l > 0
    background    mean p(0) >= bg_lower
                  mean p(0) <= bg_upper        unless no class is large: small ones cannot fill the rest

    All rows are hard by default, as in the authors' experiments, but one case: where so many classes
    are large that their bounds leave no room for the background's (count * fg_lower + bg_lower >= 1),
    the large rows are soft at conflict_beta. So p exists for every combination of tags and sizes.
    """
    allowed = _labels("present", present)
    large = _labels("large", large)
    if large.size != allowed.size:
        raise ValueError(f"present has {allowed.size} labels, large has {large.size}")
    _check_fractions(fg_lower=fg_lower, small_upper=small_upper, bg_lower=bg_lower, bg_upper=bg_upper)
    _check_order(bg_lower, bg_upper)
    foreground = np.flatnonzero(allowed)[1:]
    big, small = foreground[large[foreground]], foreground[~large[foreground]]
    if big.size * fg_lower + bg_lower >= 1:
        fg_beta = min(fg_beta, conflict_beta)
    rows = [(l, fg_lower, fg_beta) for l in big] + [(BACKGROUND, bg_lower, np.inf)]
    upper = [(l, small_upper, np.inf) for l in small]
    if big.size:
        upper.append((BACKGROUND, bg_upper, np.inf))
    return _label_rows(allowed, rows, upper)


def box_constraints(boxes, shape, labels=21, fraction=0.75, beta=10.0):
    """Constraints from bounding boxes (paper, section 7.4).

    boxes : [(label, y0, x0, y1, x1)] on the score grid of `shape` (H, W), half-open: rows y0 .. y1 - 1

    inside    sum over the box of p_i(l) >= fraction * its pixels - xi, xi at price beta
    outside   p_i(l) = 0 for every l > 0 and every pixel in none of l's boxes

    Boxes of different classes overlap, and two of them cannot both own three quarters of the same
    pixels: the rows are soft. At the default price a row may raise the odds of its label e^10-fold,
    which is hard in all but name where boxes do not compete.
    """
    height, width = shape
    n = height * width
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1; got {fraction}")
    allowed = np.zeros((labels, n), bool)
    allowed[BACKGROUND] = True
    A, b, regions = np.zeros((len(boxes), labels)), np.zeros(len(boxes)), np.zeros((len(boxes), n))
    for j, box in enumerate(boxes):
        if len(box) != 5 or not all(float(x).is_integer() for x in box):
            raise ValueError(f"box {j}: need five whole numbers (label, y0, x0, y1, x1); got {tuple(box)}")
        label, y0, x0, y1, x1 = (int(x) for x in box)
        if not 0 < label < labels:
            raise ValueError(f"box {j}: label {label} is not one of 1 .. {labels - 1}")
        if not (0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width):
            raise ValueError(f"box {j}: ({y0}, {x0}, {y1}, {x1}) is empty or not inside the {height} x {width} grid")
        inside = np.zeros(shape, bool)
        inside[y0:y1, x0:x1] = True
        inside = inside.ravel()
        A[j, label] = 1
        b[j] = fraction * ((y1 - y0) * (x1 - x0)) / n
        regions[j] = inside
        allowed[label] |= inside
    return Constraints(A, b, np.full(len(boxes), float(beta)), allowed, regions)


def mask_constraints(mask, labels=21):
    """Pixels whose label is known: full masks, points, scribbles. mask: label ids, 255 where unknown."""
    mask = np.asarray(mask).ravel()
    known = mask != VOID
    wrong = known & ((mask < 0) | (mask >= labels))
    if wrong.any():
        raise ValueError(f"mask holds label {mask[wrong][0]}; need 0 .. {labels - 1} or {VOID}")
    allowed = ~known | (mask == np.arange(labels)[:, None])
    return Constraints(np.zeros((0, labels)), [], [], allowed)


# Rows that bound the area of one label

class AreaRow(NamedTuple):
    """mean p(label) >= bound, or <= bound."""
    row: int            # its number
    label: int
    lower: bool         # whether it is a lower bound
    bound: float        # a fraction of the image


def area_rows(c):
    """[AreaRow] of the rows of c that bound the area of one label in the whole image."""
    found = []
    for j, row in enumerate(c.A):
        labels = np.flatnonzero(row)
        if labels.size == 1 and (c.regions is None or (c.regions[j] == 1).all()):
            label, a = int(labels[0]), row[labels[0]]
            found.append(AreaRow(j, label, bool(a > 0), float(c.b[j] / a)))
    return found


def area_bounds(c):
    """{label: (lower, upper)}, the tightest of the rows that bound an area, within 0..1; None where there is no such
    row."""
    bounds: dict = {}
    for _, label, lower, bound in area_rows(c):
        pair = bounds.setdefault(label, [None, None])
        k, tighter, weakest = (0, max, 0.0) if lower else (1, min, 1.0)
        pair[k] = tighter(weakest if pair[k] is None else pair[k], bound)
    return {label: tuple(pair) for label, pair in bounds.items()}


def with_area_bounds(c, bounds):
    """c with other bounds on the areas of some labels. bounds : {label: (lower or None, upper or None)}

    A new row has the price of the row that it replaces; if it replaces none, it is hard.
    """
    old = [row for row in area_rows(c) if row.label in bounds]
    prices = {(label, lower): c.beta[j] for j, label, lower, _ in old}
    kept = c.rows(~np.isin(np.arange(len(c)), [row.row for row in old]))
    rows = [(sign * np.eye(c.A.shape[1])[label], sign * bound, prices.get((label, sign > 0), np.inf))
            for label, pair in bounds.items() for sign, bound in zip((1, -1), pair) if bound is not None]
    return kept & Constraints(*map(np.array, zip(*rows))) if rows else kept


def _label_rows(allowed, lower, upper):
    """mean p(l) >= bound for (l, bound, price) in lower, mean p(l) <= bound for those in upper."""
    A = np.zeros((len(lower) + len(upper), allowed.size))
    for j, (l, _, _) in enumerate(lower):
        A[j, l] = 1
    for j, (l, _, _) in enumerate(upper, len(lower)):
        A[j, l] = -1
    b = [bound for _, bound, _ in lower] + [-bound for _, bound, _ in upper]
    return Constraints(A, b, [price for _, _, price in lower + upper], allowed)


def _labels(name, flags):
    """A copy as booleans; the background is always there."""
    flags = np.array(flags, bool)
    if flags.ndim != 1 or not flags.size:
        raise ValueError(f"{name} must be 1-d, one entry per label; got shape {flags.shape}")
    flags[BACKGROUND] = True
    return flags


def _check_fractions(**bounds):
    for name, value in bounds.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be a fraction of the image, 0 .. 1; got {value}")


def _check_order(bg_lower, bg_upper):
    if bg_lower > bg_upper:
        raise ValueError(f"bg_lower = {bg_lower} is above bg_upper = {bg_upper}")
