"""Pixels that no row tells apart: the same labels allowed, the same weight in every row.

Neighbours are alike: the pixels are cut into runs where a column of `allowed` or `regions` differs from the one before.
Each run gets a 64-bit fingerprint of its column; a hash table numbers the fingerprints. The columns of runs with the same
number are compared afterwards, so a collision costs time, never a wrong result. NumPy's unique would take longer than
the whole solution.
"""
import numpy as np

from libc.stdint cimport uint8_t, uint64_t

from ._memory cimport Memory, allocate, integers, release, unset_integers

cdef extern from *:
    """
    #define MULTIPLIER 0xd1342543de82ef95ULL    /* of a linear congruential generator: one salt per row */
    """
    const uint64_t MULTIPLIER


cdef bint group_pixels(
    const uint8_t* allowed,     # in,  masks x n
    Py_ssize_t masks,
    const double* regions,      # in,  rows x n
    Py_ssize_t rows,
    Py_ssize_t n,
    Py_ssize_t limit,           # in   the largest number of groups that is of use
    Memory* memory,
    Groups* groups,             # out  in `memory`
) noexcept nogil:
    """False if there are more groups, or no memory (memory.failed tells which)."""
    cdef Memory scratch = Memory(NULL, NULL, 0, 0)
    cdef bint found = False
    if masks == 0 and rows == 0:
        groups.pixel, groups.first, groups.example = NULL, integers(memory, 2), integers(memory, 1)
        if memory.failed:
            return False
        groups.count, groups.first[1] = 1, n
        return True
    found = group_columns(allowed, masks, regions, rows, n, limit, memory, &scratch, groups)
    if scratch.failed:
        memory.failed = scratch.failed
    release(&scratch)
    return found


cdef bint group_columns(
    const uint8_t* allowed, Py_ssize_t masks, const double* regions, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t limit,
    Memory* memory, Memory* scratch, Groups* groups,
) noexcept nogil:
    cdef Py_ssize_t i, s, r, runs = 0, size, count = 0
    cdef uint8_t* begins = <uint8_t*>allocate(scratch, n, True)         # does a run begin at this pixel?
    cdef uint8_t* varies = <uint8_t*>allocate(scratch, masks, True)     # is the label allowed here and not there?
    cdef Py_ssize_t* run = unset_integers(scratch, n + 1)       # where a run begins,
    cdef Py_ssize_t* group = unset_integers(scratch, n)         # and its group
    cdef uint64_t* key
    cdef Py_ssize_t* slot
    if scratch.failed:
        return False
    find_runs(allowed, masks, regions, rows, n, begins, varies)
    for i in range(n):
        run[runs] = i
        runs += begins[i]
    run[runs] = n

    # number the fingerprints by a hash table with open addressing, at most half full
    limit, size = min(limit, runs), 1
    while size < 2 * limit + 2:
        size *= 2
    key, slot = <uint64_t*>integers(scratch, runs), integers(scratch, size)         # slot: a group's number + 1, or 0
    groups.example = unset_integers(memory, limit)              # the first run of a group; in the end its first pixel
    if scratch.failed or memory.failed:
        return False
    fingerprint(allowed, masks, varies, regions, rows, n, run, runs, key)
    for r in range(runs):
        s = <Py_ssize_t>(key[r] >> 20) & (size - 1)
        while slot[s] and key[groups.example[slot[s] - 1]] != key[r]:
            s = (s + 1) & (size - 1)
        if slot[s] == 0:
            if count == limit:
                return False
            groups.example[count] = r
            count += 1
            slot[s] = count
        group[r] = slot[s] - 1
    for s in range(count):
        groups.example[s] = run[groups.example[s]]
    if not same_columns(allowed, masks, varies, regions, rows, n, run, group, runs, groups.example):
        return False                                            # one chance in 2^64

    # counting sort; `first` runs one group ahead until it is done
    groups.first, groups.pixel = integers(memory, count + 2), unset_integers(memory, n)
    if memory.failed:
        return False
    for r in range(runs):
        groups.first[group[r] + 2] += run[r + 1] - run[r]
    for i in range(count):
        groups.first[i + 2] += groups.first[i + 1]
    for r in range(runs):
        s = groups.first[group[r] + 1] - run[r]
        for i in range(run[r], run[r + 1]):
            groups.pixel[s + i] = i
        groups.first[group[r] + 1] = s + run[r + 1]
    groups.count = count
    return True


cdef void find_runs(
    const uint8_t* allowed, Py_ssize_t masks, const double* regions, Py_ssize_t rows, Py_ssize_t n,
    uint8_t* begins,            # out, n      zeros before; 1 where a column differs from the one before, and at 0
    uint8_t* varies,            # out, masks  zeros before
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef const uint8_t* may
    cdef const uint64_t* weight
    cdef uint8_t differs
    for j in range(masks):
        may, differs = allowed + j * n, 0
        for i in range(1, n):
            differs |= may[i] ^ may[i - 1]
        varies[j] = differs
        for i in range(1, n if differs else 1):
            begins[i] |= may[i] ^ may[i - 1]
    for j in range(rows):
        weight = <const uint64_t*>(regions + j * n)
        for i in range(1, n):
            begins[i] |= weight[i] != weight[i - 1]
    begins[0] = 1


cdef void fingerprint(
    const uint8_t* allowed, Py_ssize_t masks, const uint8_t* varies, const double* regions, Py_ssize_t rows,
    Py_ssize_t n, const Py_ssize_t* run, Py_ssize_t runs,
    uint64_t* key,              # out, runs   zeros before
) noexcept nogil:
    cdef Py_ssize_t j, r
    cdef uint64_t salt = 0x9e3779b97f4a7c15, bits
    cdef const uint8_t* may
    cdef const uint64_t* weight
    for j in range(masks):
        salt, may = salt * MULTIPLIER + 1, allowed + j * n
        for r in range(runs if varies[j] else 0):
            key[r] += salt & -<uint64_t>may[run[r]]
    for j in range(rows):
        salt, weight = salt * MULTIPLIER + 1, <const uint64_t*>(regions + j * n)
        for r in range(runs):
            bits = weight[run[r]]
            bits = (bits ^ (bits >> 32)) * salt
            key[r] += bits ^ (bits >> 29)


cdef bint same_columns(
    const uint8_t* allowed, Py_ssize_t masks, const uint8_t* varies, const double* regions, Py_ssize_t rows,
    Py_ssize_t n, const Py_ssize_t* run, const Py_ssize_t* group, Py_ssize_t runs, const Py_ssize_t* example,
) noexcept nogil:
    """Does every run have the column of its group's example?"""
    cdef Py_ssize_t j, r
    cdef uint64_t differs = 0
    cdef const uint8_t* may
    cdef const uint64_t* weight
    for j in range(masks):
        may = allowed + j * n
        for r in range(runs if varies[j] else 0):
            differs |= may[run[r]] ^ may[example[group[r]]]
    for j in range(rows):
        weight = <const uint64_t*>(regions + j * n)
        for r in range(runs):
            differs |= weight[run[r]] ^ weight[example[group[r]]]
    return differs == 0


def groups_of_pixels(allowed, regions, Py_ssize_t limit):
    """(n,) the group of every pixel, or None if there are more than `limit`; for tests.

    allowed: (L, n) bool; regions: (k, n) float64.
    """
    cdef const uint8_t[:, ::1] may = np.ascontiguousarray(allowed, bool).view(np.uint8)
    cdef const double[:, ::1] weights = np.ascontiguousarray(regions, float)
    cdef Py_ssize_t n = max(may.shape[1], weights.shape[1]), g, i
    cdef Memory memory = Memory(NULL, NULL, 0, 0)
    cdef Groups groups
    if (may.shape[0] + weights.shape[0] == 0 or n == 0
            or may.shape[0] and weights.shape[0] and may.shape[1] != weights.shape[1]):
        raise ValueError(f"allowed has shape {allowed.shape}, regions {regions.shape}: need the same number of pixels")
    found = group_pixels(&may[0, 0] if may.shape[0] else NULL, may.shape[0],
                         &weights[0, 0] if weights.shape[0] else NULL, weights.shape[0], n, limit, &memory, &groups)
    result = None
    if found:
        result = np.zeros(n, np.intp)
        for g in range(groups.count):
            for i in range(groups.first[g], groups.first[g + 1]):
                result[groups.pixel[i]] = g
    release(&memory)
    return result
