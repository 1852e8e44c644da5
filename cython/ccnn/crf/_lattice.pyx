"""The permutohedral lattice of a set of points: which vertices each point touches, and which vertices are neighbours.

    lattice = Lattice(features)         # d x n float32, in units of the kernel's standard deviation

The points are divided into parts of consecutive ones. Each part numbers the vertices that it touches by itself, in the
order of its points: these are its slots. So threads build parts, and later sum into slots, without sharing anything, and
what a part works on fits into the caches. The division depends on n alone, so every sum has the same order of terms on
any number of threads.

Bytes: 8 (d + 1) for a point, and 8 (d + 1) + 4 for a vertex, 8 for a slot.
"""
import numpy as np

from libc.stdint cimport int32_t

from ._simplex cimport DIMENSIONS, Vertices, locate, next_along, vertices_add, vertices_free, vertices_init
from ._team cimport Team, team_run, team_take

cdef enum:
    PARTS = 8                           # of a photograph: as many threads have work
    SMALLEST = 2048                     # points of a part
    LARGEST = 65536                     # a float32 sum of more would not be exact enough


cdef Py_ssize_t part_size(Py_ssize_t points) noexcept nogil:
    return min(max((points + PARTS - 1) // PARTS, <Py_ssize_t>SMALLEST), <Py_ssize_t>LARGEST)


cdef struct Job:
    const float* f                      # d x n
    int d
    Py_ssize_t n, part, parts
    int32_t* corner
    float* weight
    Vertices* of_part                   # parts
    int failed                          # 0; 1 without memory; 2 if points are too far out
    Vertices* all
    int32_t* before
    int32_t* after


cdef void locate_parts(void* argument, Team* team, int member) noexcept nogil:
    cdef Job* job = <Job*>argument
    cdef long p = team_take(team, job.parts)
    cdef Py_ssize_t start
    cdef int found
    while p >= 0:
        start = p * job.part
        found = 0
        if vertices_init(&job.of_part[p], 4096):
            found = locate(&job.of_part[p], job.d, min(job.part, job.n - start), job.f + start, job.n,
                           job.corner + start * (job.d + 1), job.weight + start * (job.d + 1))
        if found != 1:
            job.failed = 1 if found == 0 else 2
        p = team_take(team, job.parts)


cdef void find_neighbours(void* argument, Team* team, int member) noexcept nogil:
    cdef Job* job = <Job*>argument
    cdef int32_t v, other, count = job.all.count
    cdef long j = team_take(team, job.d + 1)
    while j >= 0:
        for v in range(count):
            job.before[j * count + v] = count
        for v in range(count):
            other = next_along(job.all, job.d, j, v, count)
            job.after[j * count + v] = other
            if other < count:
                job.before[j * count + other] = v
        j = team_take(team, job.d + 1)


cdef class Lattice:
    def __init__(self, features, int threads=1):
        cdef const float[:, ::1] f = np.ascontiguousarray(features, np.float32)
        cdef Vertices whole
        cdef Job job
        cdef Py_ssize_t p
        self.dimensions, self.points = f.shape[0], f.shape[1]
        if not 1 <= self.dimensions <= DIMENSIONS:
            raise ValueError(f"features must have 1 to {DIMENSIONS} rows, got {self.dimensions}")
        if not 1 <= self.points < 2 ** 31 // (DIMENSIONS + 1):
            raise ValueError(f"features must be of 1 to {2 ** 31 // (DIMENSIONS + 1) - 1} points, got {self.points}")
        self.part = part_size(self.points)
        self.parts = (self.points + self.part - 1) // self.part
        corners = self.points * (self.dimensions + 1)
        self.corner, self.weight = np.empty(corners, np.int32), np.empty(corners, np.float32)
        job.f, job.d, job.n, job.part, job.parts = &f[0, 0], self.dimensions, self.points, self.part, self.parts
        job.corner, job.weight, job.failed = &self.corner[0], &self.weight[0], 0
        sets = np.zeros(self.parts * sizeof(Vertices), np.uint8)
        cdef unsigned char[::1] memory = sets
        job.of_part = <Vertices*>&memory[0]
        job.all = &whole
        whole.key, whole.colour, whole.place = NULL, NULL, NULL
        try:
            with nogil:
                team_run(threads, locate_parts, &job)
            if job.failed == 2:
                raise ValueError("features spread too far for float32: give the kernel larger distances")
            if job.failed:
                raise MemoryError(f"lattice of {self.points} points")
            merge(self, &job, threads)
        finally:
            for p in range(self.parts):
                vertices_free(&job.of_part[p])
            vertices_free(&whole)


cdef int merge(Lattice self, Job* job, int threads) except -1:
    """One numbering for the vertices of all parts, in the order of the points; the neighbours of each."""
    cdef Py_ssize_t p, slot = 0
    cdef int32_t i, v
    cdef Vertices* part
    cdef int32_t[::1] cursor
    self.first_slot = np.zeros(self.parts + 1, np.intp)
    for p in range(self.parts):
        self.first_slot[p + 1] = self.first_slot[p] + job.of_part[p].count
        self.most_slots = max(self.most_slots, <Py_ssize_t>job.of_part[p].count)
    self.slots = self.first_slot[self.parts]
    if self.slots >= 2 ** 31:
        raise MemoryError(f"lattice of {self.points} points")
    self.vertex = np.empty(self.slots, np.int32)
    if not vertices_init(job.all, max(self.most_slots, 16)):
        raise MemoryError(f"lattice of {self.points} points")
    with nogil:
        for p in range(self.parts):
            part = &job.of_part[p]
            for i in range(part.count):
                v = vertices_add(job.all, part.key[i], part.colour[i])
                if v < 0:
                    with gil:
                        raise MemoryError(f"lattice of {self.points} points")
                self.vertex[slot] = v
                slot += 1
    self.vertices = job.all.count

    self.first_copy, self.copy = np.zeros(self.vertices + 1, np.int32), np.empty(self.slots, np.int32)
    for slot in range(self.slots):
        self.first_copy[self.vertex[slot] + 1] += 1
    for slot in range(self.vertices):
        self.first_copy[slot + 1] += self.first_copy[slot]
    cursor = np.array(self.first_copy)
    for slot in range(self.slots):
        v = self.vertex[slot]
        self.copy[cursor[v]] = slot
        cursor[v] += 1

    self.before = np.empty((self.dimensions + 1, self.vertices), np.int32)
    self.after = np.empty((self.dimensions + 1, self.vertices), np.int32)
    job.before, job.after = &self.before[0, 0], &self.after[0, 0]
    with nogil:
        team_run(threads, find_neighbours, job)
    return 0
