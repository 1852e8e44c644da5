"""Mean field of a dense CRF (Krähenbühl and Koltun 2011).

    q <- softmax(f + sum_k w_k K_k q),      first softmax(f)

f are the scores, L x n; K_k are normalised gaussian filters over all pairs of pixels, and w_k is the reward for two
pixels with the same label (Potts). With a compatibility matrix, f - sum_k mu_k K_k q: mu_k(l, l') is the cost of label l
beside label l'. Labels and pixels do not mix, so mu is applied to the vertices, which are fewer.

A step is one pass over the pixels: slice the messages of all kernels, softmax, splat the marginals for the next step. So
the marginals exist in registers only, and a step reads the scores and the corners of each pixel once. Then the vertices of
all kernels are summed and blurred.

Bytes: 4 for a pixel and label (the scores, labels padded to 4 or a multiple of 8), those of the lattices (_lattice.pyx),
8 for a vertex and label, and 4 for a slot and label, 8 in the parts that threads work on.
"""
import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy, memset

from ._filter cimport Filter, Rows, filter_vertices
from ._rows cimport Message, row_width, step
from ._team cimport Team, team_meet, team_run, team_take

cdef enum:
    KERNELS = 16                # most that are allowed
    SPAN = 256                  # pixels whose scores are turned into rows before the first of them is used
    TILE = 16                   # pixels that are turned from labels x pixels into rows, or back, at a time
    CHUNK = 1024                # vertices that a thread takes at a time

cdef float ABSENT = -1e30       # score of the padding: its marginals are 0


cdef struct Job:
    int labels, width, kernels, iterations
    Py_ssize_t pixels, part, parts
    Rows** filter                           # kernels
    const float** matrix                    # kernels, width x width or NULL
    const float* scores                     # L' x n, labels that do not enter included
    const Py_ssize_t* row                   # labels, of scores and q
    float* unary                            # n x width
    float* q                                # L' x n
    float* scratch                          # members x scratch_size
    Py_ssize_t scratch_size
    void* errors                            # list


cdef class MeanField:
    """The lattices of some kernels over the same pixels; scores may come and go. ccnn/crf/mean_field.py checks arguments.

    kernels : [(features, d x n float32; "after" or "symmetric"; weight)]
    """
    cdef readonly list filters

    def __init__(self, list kernels, int threads):
        if not 0 < len(kernels) <= KERNELS:
            raise ValueError(f"need 1 to {KERNELS} kernels, got {len(kernels)}")
        self.filters = [Filter(*kernel, threads) for kernel in kernels]

    def infer(self, const float[:, ::1] scores, const Py_ssize_t[::1] rows, float[:, ::1] q, int iterations,
              list matrices, int threads):
        """Write the marginals of the labels `rows` of scores to the same rows of q, both L x n.

        matrices : for each kernel None, or what multiplies the filtered values of the labels `rows`, float32
        """
        cdef Job job
        cdef Rows* filter[KERNELS]
        cdef const float* matrix[KERNELS]
        cdef Filter one
        cdef float[:, ::1] padded
        cdef Py_ssize_t most = 0
        cdef int k
        cdef list held = []
        job.labels, job.kernels, job.iterations = rows.shape[0], len(self.filters), iterations
        job.width = row_width(job.labels)
        for k in range(job.kernels):
            one = self.filters[k]
            one.prepare(job.width)
            most += one.lattice.most_slots
            filter[k], matrix[k] = &one.rows, NULL
            if matrices[k] is not None:
                square = np.zeros((job.width, job.width), np.float32)
                square[:job.labels, :job.labels] = matrices[k].T            # its rows are added up
                held.append(square)
                padded = square
                matrix[k] = &padded[0, 0]
        job.pixels, job.part, job.parts = filter[0].points, filter[0].part, filter[0].parts
        threads = max(1, min(threads, <int>job.parts))
        cdef float[::1] unary = np.empty(job.pixels * job.width, np.float32)
        job.scratch_size = (most + TILE) * job.width
        cdef float[::1] scratch = np.empty(threads * job.scratch_size, np.float32)
        job.filter, job.matrix = filter, matrix
        job.scores, job.row, job.q = &scores[0, 0], &rows[0], &q[0, 0]
        job.unary, job.scratch = &unary[0], &scratch[0]
        errors = []
        job.errors = <void*>errors
        with nogil:
            team_run(threads, run, &job)
        if errors:
            raise errors[0]


cdef void run(void* argument, Team* team, int member) noexcept nogil:
    """All steps, as every member of the team runs them."""
    cdef Job* job = <Job*>argument
    cdef float* scratch = job.scratch + member * job.scratch_size
    cdef int i
    cdef long part
    for i in range(job.iterations + 1):
        part = team_take(team, job.parts)
        while part >= 0:
            step_of_part(job, part, i, scratch)
            part = team_take(team, job.parts)
        if member == 0 and interrupted(job):
            team.stop = 1
        if team_meet(team) or i == job.iterations:
            return
        filter_vertices(job.filter, job.kernels, team)
        multiply(job, team, scratch)


cdef bint interrupted(Job* job) noexcept nogil:
    """Whether ^C was pressed. The calling thread asks, once in a step."""
    with gil:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            (<list>job.errors).append(error)
            return True
    return False


cdef void load(Job* job, Py_ssize_t start, int pixels) noexcept nogil:
    """The scores of a tile as rows, less the largest of each pixel."""
    cdef int l, t, width = job.width
    cdef float most[TILE]
    cdef const float* f = job.scores + job.row[0] * job.pixels + start
    cdef float* row = job.unary + start * width
    for t in range(pixels):
        most[t] = f[t]
    for l in range(1, job.labels):
        f = job.scores + job.row[l] * job.pixels + start
        for t in range(pixels):
            most[t] = max(most[t], f[t])
    for l in range(job.labels):
        f = job.scores + job.row[l] * job.pixels + start
        for t in range(pixels):
            row[t * width + l] = max(f[t] - most[t], ABSENT)        # no overflow to -inf
    for t in range(pixels):
        for l in range(job.labels, width):
            row[t * width + l] = ABSENT


cdef void step_of_part(Job* job, Py_ssize_t part, int iteration, float* scratch) noexcept nogil:
    """One step for the pixels of a part, tile by tile."""
    cdef Message message[KERNELS]
    cdef Rows* rows
    cdef Py_ssize_t first, count, s, start, lo = part * job.part, hi = min((part + 1) * job.part, job.pixels)
    cdef int k, l, t, some, width = job.width
    cdef bint last = iteration == job.iterations
    cdef float scale[TILE]
    cdef float* tile = scratch
    cdef float* copies = scratch + TILE * width
    cdef float* q
    for k in range(job.kernels):
        rows = job.filter[k]
        first = rows.first_slot[part]
        count = rows.first_slot[part + 1] - first
        message[k].corners = rows.corners
        message[k].corner, message[k].weight = rows.corner + lo * rows.corners, rows.weight + lo * rows.corners
        message[k].strength = rows.strength + lo
        message[k].within, message[k].out = copies, rows.slots + first * width
        if iteration > 0:
            for s in range(count):
                memcpy(copies + s * width, rows.filtered + <Py_ssize_t>rows.vertex[first + s] * width,
                       width * sizeof(float))
        copies += count * width
        if not last:
            memset(message[k].out, 0, count * width * sizeof(float))
    for start in range(lo, hi, 16):         # TILE
        some = <int>min(<Py_ssize_t>TILE, hi - start)
        if iteration == 0 and (start - lo) % SPAN == 0:
            for s in range(start, min(start + SPAN, hi), 16):           # TILE
                load(job, s, <int>min(<Py_ssize_t>TILE, hi - s))
        step(width, some, job.unary + start * width, message, job.kernels, iteration > 0, not last, tile, scale)
        for k in range(job.kernels):
            message[k].corner += some * message[k].corners
            message[k].weight += some * message[k].corners
            message[k].strength += some
        if last:
            for l in range(job.labels):
                q = job.q + job.row[l] * job.pixels + start
                for t in range(some):
                    q[t] = tile[t * width + l] * scale[t]


cdef void multiply(Job* job, Team* team, float* product) noexcept nogil:
    """Apply the compatibility matrices to the filtered vertices."""
    cdef int k, l, m, width = job.width
    cdef Py_ssize_t v, count
    cdef const float* matrix
    cdef float* row
    cdef long chunk
    for k in range(job.kernels):
        matrix = job.matrix[k]
        if matrix == NULL:
            continue
        count = job.filter[k].vertices
        chunk = team_take(team, (count + CHUNK - 1) // CHUNK)
        while chunk >= 0:
            for v in range(chunk * CHUNK, min((chunk + 1) * CHUNK, count)):
                row = job.filter[k].filtered + v * width
                memset(product, 0, width * sizeof(float))
                for m in range(job.labels):
                    for l in range(width):
                        product[l] += row[m] * matrix[m * width + l]
                memcpy(row, product, width * sizeof(float))
            chunk = team_take(team, (count + CHUNK - 1) // CHUNK)
        team_meet(team)


def leads(const float[:, ::1] f):
    """The largest lead of each label over all the others at some pixel, max_i (f_li - max_m f_mi), at most 0.

    None if a score is NaN or infinite: told from its bits, because the compiler takes all numbers to be finite.
    """
    cdef Py_ssize_t labels = f.shape[0], n = f.shape[1], start, i, l, some
    cdef float most[SPAN]
    cdef float lead
    cdef uint32_t bits
    cdef uint32_t strange = 0
    cdef const uint32_t* raw
    found = np.full(labels, -np.inf, np.float32)
    cdef float[::1] best = found
    with nogil:
        for start in range(0, n, 256):      # SPAN
            some = min(<Py_ssize_t>SPAN, n - start)
            for i in range(some):
                most[i] = f[0, start + i]
            for l in range(labels):
                raw = <const uint32_t*>&f[l, start]
                for i in range(some):
                    most[i] = max(most[i], f[l, start + i])
                    bits = raw[i] & <uint32_t>0x7f800000
                    strange |= bits == <uint32_t>0x7f800000
            for l in range(labels):
                lead = best[l]
                for i in range(some):
                    lead = max(lead, f[l, start + i] - most[i])
                best[l] = lead
    return None if strange else found
