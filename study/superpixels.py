"""Superpixels: parts of a photograph that have about one colour, as SLIC makes them (Achanta et al., 2012)."""
import numpy as np
from scipy.cluster.vq import vq

SPACING = 4             # cells from one superpixel to the next at first
LEVELS = 40             # of colour, of 256: as far as SPACING cells
ROUNDS = 10             # of k-means


def superpixels(colours):
    """The number of every cell's superpixel, h x w. colours : h x w x 3, of the cells

    k-means on position and colour, which starts on a regular grid. A superpixel may have several pieces.
    """
    height, width = colours.shape[:2]
    y, x = np.mgrid[:height, :width]
    cells = np.dstack([y / SPACING, x / SPACING, colours / LEVELS])
    first = [(size - 1) % SPACING // 2 for size in (height, width)]         # as far from one border as from the other
    centres = cells[first[0]::SPACING, first[1]::SPACING].reshape(-1, 5)
    cells = cells.reshape(-1, 5)
    for _ in range(ROUNDS):
        numbers = np.unique(vq(cells, centres)[0], return_inverse=True)[1]  # an empty one is left out
        centres = np.array([cells[numbers == number].mean(axis=0) for number in range(numbers.max() + 1)])
    return numbers.reshape(height, width)
