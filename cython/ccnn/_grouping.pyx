"""Pixels that no row tells apart: the same labels allowed, the same weight in every row.

Each pixel gets a 64-bit fingerprint of its column of `allowed` and `regions`; a hash table numbers the fingerprints.
The columns themselves are compared afterwards, so a collision costs time, never a wrong result. NumPy's unique would
take longer than the whole solution.
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
    cdef Py_ssize_t i, s, r, runs, size, count = 0
    cdef uint64_t* key = <uint64_t*>integers(scratch, n)
    cdef uint8_t* varies = <uint8_t*>allocate(scratch, masks, True)     # is the label allowed here and not there?
    cdef Py_ssize_t* run = unset_integers(scratch, n + 1)       # where a run of equal fingerprints begins
    cdef Py_ssize_t* group = unset_integers(scratch, n)         # and its group
    cdef Py_ssize_t* slot
    if scratch.failed:
        return False
    fingerprint(allowed, masks, regions, rows, n, key, varies)

    # neighbours are alike: from here on the loops go over runs of pixels, not over pixels
    runs = 0
    for i in range(n):
        if i == 0 or key[i] != key[i - 1]:
            run[runs] = i
            runs += 1
    run[runs] = n

    # number the fingerprints by a hash table with open addressing, at most half full
    limit, size = min(limit, runs), 1
    while size < 2 * limit + 2:
        size *= 2
    slot = integers(scratch, size)                              # a group's number + 1, or 0
    groups.example = unset_integers(memory, limit)
    if scratch.failed or memory.failed:
        return False
    for r in range(runs):
        i = run[r]
        s = <Py_ssize_t>(key[i] >> 20) & (size - 1)
        while slot[s] and key[groups.example[slot[s] - 1]] != key[i]:
            s = (s + 1) & (size - 1)
        if slot[s] == 0:
            if count == limit:
                return False
            groups.example[count] = i
            count += 1
            slot[s] = count
        group[r] = slot[s] - 1
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


cdef void fingerprint(
    const uint8_t* allowed, Py_ssize_t masks, const double* regions, Py_ssize_t rows, Py_ssize_t n,
    uint64_t* key,              # out, n      zeros before
    uint8_t* varies,            # out, masks  zeros before
) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef uint64_t salt = 0x9e3779b97f4a7c15, bits
    cdef const uint8_t* may
    cdef const uint64_t* weight
    cdef uint8_t differs
    for j in range(masks):
        may, differs = allowed + j * n, 0
        for i in range(n):
            differs |= may[i] ^ may[0]
        varies[j] = differs
        salt = salt * MULTIPLIER + 1
        for i in range(n if differs else 0):
            key[i] += salt & -<uint64_t>may[i]
    for j in range(rows):
        salt = salt * MULTIPLIER + 1
        weight = <const uint64_t*>(regions + j * n)
        for i in range(n):
            bits = (weight[i] ^ (weight[i] >> 32)) * salt
            key[i] += bits ^ (bits >> 29)


cdef bint same_columns(
    const uint8_t* allowed, Py_ssize_t masks, const uint8_t* varies, const double* regions, Py_ssize_t rows,
    Py_ssize_t n, const Py_ssize_t* run, const Py_ssize_t* group, Py_ssize_t runs, const Py_ssize_t* example,
) noexcept nogil:
    """Does every pixel have the column of its group's example?"""
    cdef Py_ssize_t i, j, r
    cdef uint64_t differs = 0, value
    cdef uint8_t flag
    cdef const uint8_t* may
    cdef const uint64_t* weight
    for j in range(masks):
        may = allowed + j * n
        for r in range(runs if varies[j] else 0):
            flag = may[example[group[r]]]
            for i in range(run[r], run[r + 1]):
                differs |= may[i] ^ flag
    for j in range(rows):
        weight = <const uint64_t*>(regions + j * n)
        for r in range(runs):
            value = weight[example[group[r]]]
            for i in range(run[r], run[r + 1]):
                differs |= weight[i] ^ value
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
