"""A gaussian filter on the permutohedral lattice: splat, blur, slice (Adams, Baek and Davis 2010).

    (K v)_i = sum_j exp(-|feature_i - feature_j|^2 / 2) v_j,    approximately and up to a constant

    splat   every vertex gets the values of the points around it, times their weights in its simplex
    blur    along each of the d + 1 directions with (1/2, 1, 1/2)
    slice   every point takes from its vertices what it gave, with the same weights

The pass over the pixels, which splats and slices, is in _rows.h. What it splats lies in slots, one copy of a vertex for
each part that touches it.

A filter is normalised by what it makes of ones, t = K 1, once:

    after       K v / t                     the weights at a point sum to 1
    symmetric   (K (v / sqrt t)) / sqrt t
"""
import numpy as np

from libc.math cimport sqrtf
from libc.stdint cimport int32_t
from libc.string cimport memset

from ._lattice cimport Lattice
from ._rows cimport blur, sum_copies
from ._team cimport Team, team_meet, team_run, team_take

NORMALIZATIONS = ("after", "symmetric")

cdef float TINY = 1e-20             # keeps a point whose weights are all zero from dividing by zero

cdef enum:
    CHUNK = 1024                    # vertices that a thread takes at a time


cdef void filter_vertices(Rows** filters, int count, Team* team) noexcept nogil:
    """Sum the slots of every filter into its vertices and blur them. Ends with all members together."""
    cdef int k, j, directions = 0
    cdef Py_ssize_t lo, hi
    cdef Rows* rows
    for k in range(count):
        directions = max(directions, filters[k].corners)
    for j in range(-1, directions):
        lo = chunk(filters, count, j, team, &rows)
        while lo >= 0:
            hi = min(lo + CHUNK, rows.vertices)
            if j < 0:
                sum_copies(rows.width, lo, hi, rows.first_copy, rows.copy, rows.slots, rows.values)
            else:
                blur(rows.width, lo, hi, rows.before + j * rows.vertices, rows.after + j * rows.vertices,
                     rows.values if j % 2 == 0 else rows.other, rows.other if j % 2 == 0 else rows.values)
            lo = chunk(filters, count, j, team, &rows)
        team_meet(team)


cdef Py_ssize_t chunk(Rows** filters, int count, int direction, Team* team, Rows** rows) noexcept nogil:
    """The first vertex of the next chunk, and its filter; -1 if no chunk is left. Filters of fewer dimensions have
    nothing to do in the last directions."""
    cdef Py_ssize_t total = 0
    cdef long taken
    cdef int k
    for k in range(count):
        total += chunks(filters[k], direction)
    taken = team_take(team, total)
    if taken < 0:
        return -1
    k = 0
    while taken >= chunks(filters[k], direction):
        taken -= chunks(filters[k], direction)
        k += 1
    rows[0] = filters[k]
    return taken * CHUNK


cdef inline Py_ssize_t chunks(Rows* rows, int direction) noexcept nogil:
    return (rows.vertices + CHUNK - 1) // CHUNK if direction < rows.corners else 0


cdef class Filter:
    """One kernel: the lattice of its features, d x n float32, normalised, times `weight`."""

    def __init__(self, features, str normalization, float weight, int threads=1):
        cdef Normalising job
        if normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization must be one of {', '.join(NORMALIZATIONS)}, got {normalization!r}")
        self.lattice = Lattice(features, threads)
        self.strength = np.empty(self.lattice.points, np.float32)
        self.prepare(1)
        job.rows, job.symmetric, job.weight = &self.rows, normalization == "symmetric", weight
        with nogil:
            team_run(min(threads, <int>self.rows.parts), normalise, &job)
        self.slots = self.values = self.other = None

    cdef int prepare(self, int width) except -1:
        """Memory for rows of `width` labels. What an earlier call of the same width has left is used again."""
        cdef Lattice lattice = self.lattice
        cdef Rows* rows = &self.rows
        cdef Py_ssize_t size = (lattice.vertices + 1) * width
        if self.values is None or self.values.shape[0] != size:
            self.slots = self.values = self.other = None
            self.slots = np.empty(lattice.slots * width, np.float32)
            self.values, self.other = np.zeros(size, np.float32), np.zeros(size, np.float32)
        rows.points, rows.part, rows.parts, rows.vertices = lattice.points, lattice.part, lattice.parts, lattice.vertices
        rows.corners = lattice.dimensions + 1
        rows.first_slot, rows.vertex = &lattice.first_slot[0], &lattice.vertex[0]
        rows.corner, rows.weight = &lattice.corner[0], &lattice.weight[0]
        rows.first_copy, rows.copy = &lattice.first_copy[0], &lattice.copy[0]
        rows.before, rows.after = &lattice.before[0, 0], &lattice.after[0, 0]
        rows.width, rows.strength = width, &self.strength[0]
        rows.slots, rows.values, rows.other = &self.slots[0], &self.values[0], &self.other[0]
        rows.filtered = rows.other if rows.corners % 2 else rows.values
        return 0


cdef struct Normalising:
    Rows* rows
    bint symmetric
    float weight


cdef void normalise(void* argument, Team* team, int member) noexcept nogil:
    """Filter ones; put the normalisation into `strength`, or into the weights on both sides if it is symmetric."""
    cdef Normalising* job = <Normalising*>argument
    cdef Rows* rows = job.rows
    cdef const int32_t* corner
    cdef const int32_t* vertex
    cdef float* weight
    cdef float* slots
    cdef float total
    cdef Py_ssize_t i
    cdef int c
    cdef long part = team_take(team, rows.parts)
    while part >= 0:
        slots = rows.slots + rows.first_slot[part]
        memset(slots, 0, (rows.first_slot[part + 1] - rows.first_slot[part]) * sizeof(float))
        for i in range(part * rows.part, min((part + 1) * rows.part, rows.points)):
            corner, weight = rows.corner + i * rows.corners, rows.weight + i * rows.corners
            for c in range(rows.corners):
                slots[corner[c]] += weight[c]
        part = team_take(team, rows.parts)
    team_meet(team)
    filter_vertices(&rows, 1, team)
    part = team_take(team, rows.parts)
    while part >= 0:
        vertex = rows.vertex + rows.first_slot[part]
        for i in range(part * rows.part, min((part + 1) * rows.part, rows.points)):
            corner, weight = rows.corner + i * rows.corners, rows.weight + i * rows.corners
            total = TINY
            for c in range(rows.corners):
                total += weight[c] * rows.filtered[vertex[corner[c]]]
            rows.strength[i] = job.weight if job.symmetric else job.weight / total
            if job.symmetric:
                for c in range(rows.corners):
                    weight[c] /= sqrtf(total)
        part = team_take(team, rows.parts)
