"""The region under the mouse: a piece of even colour, or a connected piece of the mask. No model is asked.

    pieces = find_pieces(rgb)                   # once per photograph
    region = at(pieces, x, y, (height, width))  # (height, width) bool
    runs = to_runs(region)                      # [start, length, ...], row by row: what a page draws and sends back
"""
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

SIDE = 640              # long side of the copy of a photograph in which pieces are found

SPACING = 24            # pixels of that copy between two seeds

SMOOTH = 1.5            # standard deviation of the gradient's gaussian, in pixels of that copy


def find_pieces(rgb: np.ndarray) -> np.ndarray:
    """h x w int32: the piece of each pixel. A watershed of the colours' gradient, flooded from a grid of seeds."""
    gradient = np.max([ndimage.gaussian_gradient_magnitude(channel.astype(np.float32), SMOOTH)
                       for channel in np.moveaxis(rgb, 2, 0)], axis=0)
    seeds, half = np.zeros(gradient.shape, np.int32), SPACING // 2
    for y in range(half, max(gradient.shape[0], half + 1), SPACING):
        for x in range(half, max(gradient.shape[1], half + 1), SPACING):
            near = gradient[max(0, y - half // 2):y + half // 2, max(0, x - half // 2):x + half // 2]
            if near.size:           # the seed moves to where the colour changes least, off the edges
                down, right = np.unravel_index(near.argmin(), near.shape)
                seeds[max(0, y - half // 2) + down, max(0, x - half // 2) + right] = seeds.max() + 1
    if not seeds.any():
        seeds[0, 0] = 1
    return ndimage.watershed_ift(np.minimum(255, 2 * gradient).astype(np.uint8), seeds)


def at(labels: np.ndarray, x: float, y: float, size: Sequence[int], smooth: bool = False) -> np.ndarray:
    """The pixels of a photograph of `size`, (height, width), that hang together and have the label at (x, y), in 0..1.

    smooth : without holes, and without spikes of a pixel
    """
    place = tuple(min(int(at * side), side - 1) for at, side in zip((y, x), labels.shape))
    region = connected(labels == labels[place], place)
    if smooth:
        region = ndimage.binary_fill_holes(region)
        opened = ndimage.binary_opening(region, np.ones((3, 3), bool))
        region = connected(opened, place) if opened[place] else region
    rows, columns = ((np.arange(side) + 0.5) * small / side for side, small in zip(size, region.shape))
    return region[np.ix_(rows.astype(int), columns.astype(int))]


def connected(region: np.ndarray, place: tuple) -> np.ndarray:
    """The part of a region that hangs together with a place in it."""
    parts, _ = ndimage.label(region)
    return parts == parts[place]


def to_runs(region: np.ndarray) -> list:
    """[start, length, ...] of the pixels of a region, counted row by row."""
    flat = np.concatenate([[False], region.ravel(), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.column_stack([edges[::2], edges[1::2] - edges[::2]]).ravel().tolist()


def fill_runs(mask: np.ndarray, runs: Sequence[int], label: int) -> None:
    """Give the pixels of runs a label. mask : H x W, contiguous"""
    flat = mask.reshape(-1)
    for start, length in zip(runs[::2], runs[1::2]):
        flat[start:start + length] = label
