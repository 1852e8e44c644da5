"""How well masks follow the edges of objects.

    counts = sum(boundary_counts(truth, mask, labels) for ...)      # over photographs
    boundary_f(counts)                                              # 0..100, mean over the classes
    C = sum(band_confusion(truth, mask, labels) for ...)            # as ccnn.evaluation.scores.confusion, near edges

The boundary of a label in a mask is the set of its pixels that touch another label (4 neighbours). With tolerance r,

    precision   share of the mask's boundary with a pixel of the truth's at most r away
    recall      share of the truth's boundary with a pixel of the mask's at most r away
    F           2 precision recall / (precision + recall)

VOC's masks have a void band of some 5 pixels around objects. It is filled first, each void pixel with the label nearest
to it: the edge then lies in the band's middle. Void that touches no label's edge, such as a difficult object, is filled
as well, so compare numbers of the same set only.
"""
import numpy as np
from scipy import ndimage

from ccnn.images.labels import VOID

TOLERANCE = 2           # pixels

BAND = 5                # pixels on each side of an edge


def without_void(mask: np.ndarray) -> np.ndarray:
    """The mask with every void pixel as the nearest label; void alone becomes background."""
    void = mask == VOID
    if not void.any():
        return mask
    if void.all():
        return np.zeros_like(mask)
    rows, columns = ndimage.distance_transform_edt(void, return_distances=False, return_indices=True)
    return mask[rows, columns]


def boundary(region: np.ndarray) -> np.ndarray:
    """The pixels of a region, H x W bool, that touch a pixel outside it; the photograph's border is no edge."""
    return region & ~ndimage.binary_erosion(region, border_value=1)


def boundary_counts(truth: np.ndarray, mask: np.ndarray, labels: int, tolerance: float = TOLERANCE) -> np.ndarray:
    """labels x 4: pixels of the mask's boundary that are near the truth's, all of them; of the truth's near the
    mask's, all of them. The background's boundary is that of the objects, and is left out: row 0 is 0."""
    truth, counts = without_void(truth), np.zeros((labels, 4), int)
    for label in range(1, labels):
        edges = [boundary(array == label) for array in (mask, truth)]
        for k, (edge, other) in enumerate((edges, edges[::-1])):
            near = ndimage.distance_transform_edt(~other)[edge] <= tolerance if other.any() else np.zeros(0, bool)
            counts[label, 2 * k:2 * k + 2] = near.sum(), edge.sum()
    return counts


def boundary_f(counts: np.ndarray) -> float:
    """The mean F over the labels that the truth has, in percent."""
    there = counts[:, 3] > 0
    if not there.any():
        return float("nan")
    near_mask, of_mask, near_truth, of_truth = counts[there].astype(float).T
    precision, recall = near_mask / np.maximum(of_mask, 1), near_truth / of_truth
    return float(100 * np.mean(2 * precision * recall / np.maximum(precision + recall, 1e-12)))


def band_confusion(truth: np.ndarray, mask: np.ndarray, labels: int, band: float = BAND) -> np.ndarray:
    """The confusion matrix, labels x labels, of the pixels at most `band` away from an edge of the truth."""
    truth = without_void(truth)
    edge = np.zeros(truth.shape, bool)
    for label in np.unique(truth):
        edge |= boundary(truth == label)
    near = ndimage.distance_transform_edt(~edge) <= band if edge.any() else edge
    return np.bincount(truth[near].astype(int) * labels + mask[near], minlength=labels ** 2).reshape(labels, labels)
