"""Rows of any kind: a_jil from a sparse matrix, or from regions that give nearly every pixel weights of its own.

Every pixel and label has a bias of its own, so every pass exponentiates. A column is a label l at a pixel i.
The columns that have entries lie pixel by pixel, and their entries in the same order.
"""
import numpy as np

from libc.math cimport log
from libc.string cimport memset

from ._constants cimport CLIP, HARD, NEGLIGIBLE
from ._exponential cimport exp_within
from ._memory cimport Memory, allocate, integers, reals, unset_integers, unset_reals
from ._problem cimport Dual
from ._softmax cimport real


cdef class GeneralRows(Dual):

    def __init__(self, constraints, f, diff, double hardness, double tol, double weight):
        matrix = constraints.matrix
        self.A, self.regions = constraints.A, constraints.regions
        if matrix is not None:
            self.matrix_start = matrix.indptr.astype(np.intc, copy=False)
            self.matrix_row, self.matrix_entry = matrix.indices.astype(np.intc, copy=False), matrix.data
            self.matrix_size = self.matrix_entry.shape[0]
            if (self.matrix_start.shape[0] != self.L * self.n + 1 or self.matrix_row.shape[0] != self.matrix_size
                    or self.matrix_start[self.L * self.n] > self.matrix_size or self.matrix_start[0] != 0
                    or (np.diff(matrix.indptr) < 0).any()
                    or self.matrix_size and not 0 <= matrix.indices.min() <= matrix.indices.max() < self.k):
                raise ValueError("the arrays of the constraint matrix do not fit each other: they were changed")

    cdef bint prepare(self) noexcept nogil:
        cdef Py_ssize_t l, i, most, n = self.n, k = self.k
        cdef Memory* m = &self.memory
        self.label = integers(m, self.L)
        if m.failed:
            return False
        for l in range(self.L):
            if self.appears(l):
                self.label[self.labels] = l
                self.labels += 1
        self.may = <uint8_t*>allocate(m, self.labels * n, False)
        self.p, self.total = unset_reals(m, self.labels * n), unset_reals(m, n)
        self.u, self.seen, self.touched = reals(m, k), integers(m, k), integers(m, k)
        self.row_at, self.label_row = integers(m, self.labels + 1), unset_integers(m, self.labels * k)
        if m.failed:
            return False
        for l in range(self.labels):
            for i in range(n):
                self.may[l * n + i] = self.allows(self.label[l], i)
        most = self.count_entries()
        self.row, self.entry = <int*>allocate(m, most * sizeof(int), False), unset_reals(m, most)
        most = min(most, self.labels * n)
        self.place, self.first = unset_integers(m, most), unset_integers(m, most + 1)
        self.last = <uint8_t*>allocate(m, most, True)
        if m.failed:
            return False
        self.collect_entries()
        return True

    cdef Py_ssize_t count_entries(self) noexcept nogil:
        """List the rows of A with a coefficient for each label. Return a bound on the number of entries."""
        cdef Py_ssize_t i, j, l, r = 0, weights, total = 0, rows = self.k if self.A.shape[1] else 0
        cdef const double* region
        for l in range(self.labels):
            self.row_at[l] = r
            for j in range(rows):
                if self.A[j, self.label[l]] != 0:
                    self.label_row[r] = j
                    r += 1
        self.row_at[self.labels] = r
        for j in range(rows):
            weights = self.n
            if self.regions is not None:
                weights, region = 0, &self.regions[j, 0]
                for i in range(self.n):
                    weights += region[i] != 0
            for l in range(self.labels):
                total += weights if self.A[j, self.label[l]] != 0 else 0
        return total + self.matrix_size

    cdef void collect_entries(self) noexcept nogil:
        """The columns and their entries, pixel by pixel; low, high and magnitude of the rows.

        At every pixel a row's range is that of its entries; 0 is one of them if a label has none.
        """
        cdef Py_ssize_t i, j, l, c, d, e = 0, m = 0, before, here, rows, n = self.n
        cdef double x
        cdef double* low = self.u
        cdef double* high = self.spare_v
        cdef int* row = self.row
        cdef double* entry = self.entry
        cdef const int* start = &self.matrix_start[0] if self.matrix_size else NULL
        cdef const int* matrix_row = &self.matrix_row[0] if self.matrix_size else NULL
        cdef const double* matrix_entry = &self.matrix_entry[0] if self.matrix_size else NULL
        for i in range(n):
            here = rows = 0
            for l in range(self.labels):
                if not self.may[l * n + i]:
                    continue
                here += 1
                before = e
                for d in range(self.row_at[l], self.row_at[l + 1]):
                    j = self.label_row[d]
                    x = self.A[j, self.label[l]] * (1 if self.regions is None else self.regions[j, i])
                    if x != 0:
                        row[e], entry[e] = <int>j, x
                        e += 1
                if start != NULL:
                    c = self.label[l] * n + i
                    for d in range(start[c], start[c + 1]):
                        row[e], entry[e] = matrix_row[d], matrix_entry[d]
                        e += 1
                if e == before:
                    continue
                self.place[m], self.first[m] = l * n + i, before
                m += 1
                for d in range(before, e):
                    j, x = row[d], entry[d]
                    if self.seen[j] == 0:
                        low[j] = high[j] = x
                        self.touched[rows] = j
                        rows += 1
                    else:
                        low[j], high[j] = min(low[j], x), max(high[j], x)
                    self.seen[j] += 1
            if rows:
                self.last[m - 1] = 1
            for d in range(rows):
                j = self.touched[d]
                if self.seen[j] < here:
                    low[j], high[j] = min(low[j], 0), max(high[j], 0)
                self.add_range(j, low[j], high[j], 1.0 / n)
                self.seen[j] = 0
        self.first[m] = e
        self.columns = m

    cdef double evaluate(self, const double* lam, double* v, double* H) noexcept nogil:
        cdef double logs
        self.softmax(lam, &logs)
        self.accumulate(v, H)
        return -logs / self.n

    cdef void softmax(self, const double* lam, double* logs) noexcept nogil:
        """p = softmax(f + A' lam); logs = sum_i of the logarithms of its denominators."""
        cdef Py_ssize_t n = self.n, i, l, c, e
        cdef double x, sum_of_logs = 0
        cdef double* p
        cdef double* total = self.total
        cdef const uint8_t* may
        for l in range(self.labels):
            p, c = self.p + l * n, self.label[l] * n
            if self.f32 != NULL:
                for i in range(n):
                    p[i] = self.hardness * self.f32[c + i]
            else:
                for i in range(n):
                    p[i] = self.hardness * self.f64[c + i]
        for c in range(self.columns):
            x = 0
            for e in range(self.first[c], self.first[c + 1]):
                x += lam[self.row[e]] * self.entry[e]
            self.p[self.place[c]] += x
        for i in range(n):
            total[i] = -HARD                            # first the largest exponent of each pixel,
        for l in range(self.labels):
            p, may = self.p + l * n, self.may + l * n
            for i in range(n):
                p[i] = p[i] if may[i] else -HARD
                total[i] = p[i] if p[i] > total[i] else total[i]
        for i in range(n):
            sum_of_logs += total[i]
        for l in range(self.labels):
            p, may = self.p + l * n, self.may + l * n
            for i in range(n):
                x = exp_within(max(p[i] - total[i], CLIP))
                p[i] = x if may[i] else 0
        for i in range(n):
            total[i] = 0                                # then the sum of its exponentials
        for l in range(self.labels):
            p = self.p + l * n
            for i in range(n):
                total[i] += p[i]
        for i in range(n):
            sum_of_logs += log(total[i])
        for i in range(n):
            total[i] = 1 / total[i]
        for l in range(self.labels):
            p = self.p + l * n
            for i in range(n):
                p[i] *= total[i]
        logs[0] = sum_of_logs

    cdef void accumulate(self, double* v, double* H) noexcept nogil:
        """v = mean_i u_i and H = mean_i (E[a a'] - u_i u_i'), where u_i = E[a] under p_i.

        A pair of rows (j, h) is added to H[j, h] or to H[h, j]. At the end both get the sum.
        """
        cdef Py_ssize_t k = self.k, c, e, d, j, rows = 0
        cdef double x, y
        cdef double* u = self.u
        cdef Py_ssize_t* seen = self.seen
        cdef Py_ssize_t* touched = self.touched
        cdef const int* row = self.row
        cdef const double* entry = self.entry
        memset(v, 0, k * sizeof(double))
        if H != NULL:
            memset(H, 0, k * k * sizeof(double))
        for c in range(self.columns):
            y = self.p[self.place[c]]
            for e in range(self.first[c], self.first[c + 1]):
                j, x = row[e], entry[e] * y
                if seen[j] == 0:
                    seen[j] = 1
                    u[j] = 0
                    touched[rows] = j
                    rows += 1
                u[j] += x
                if H != NULL:
                    for d in range(self.first[c], e + 1):
                        H[j * k + row[d]] += x * entry[d]
            if self.last[c]:
                for e in range(rows):
                    j = touched[e]
                    seen[j] = 0
                    v[j] += u[j]
                    if H != NULL:
                        for d in range(e + 1):
                            H[j * k + touched[d]] -= u[j] * u[touched[d]]
                rows = 0
        for j in range(k):
            v[j] /= self.n
            if H != NULL:
                H[j * k + j] /= self.n
                for d in range(j):
                    H[j * k + d] = H[d * k + j] = (H[j * k + d] + H[d * k + j]) / self.n

    cdef double support(self, const double* d) noexcept nogil:
        cdef Py_ssize_t i, l, c, e
        cdef double total = 0, top
        self.measured = NULL                            # p is overwritten
        memset(self.p, 0, self.labels * self.n * sizeof(double))
        for c in range(self.columns):
            for e in range(self.first[c], self.first[c + 1]):
                self.p[self.place[c]] += d[self.row[e]] * self.entry[e]
        for i in range(self.n):
            top = -HARD
            for l in range(self.labels):
                if self.may[l * self.n + i]:
                    top = max(top, self.p[l * self.n + i])
            total += top / self.n
        return total

    cdef double spread(self) noexcept nogil:
        cdef Py_ssize_t s, i, l
        cdef double x, total = 0
        if self.labels < 2:
            return 0
        for s in range(64):
            i = s * self.n // 64
            for l in range(1, self.labels):
                x = self.score(self.label[l], i) - self.score(self.label[l - 1], i)
                total += x * x
        return (0.5 * total / (64 * (self.labels - 1))) ** 0.5

    cdef void set_hardness(self, double hardness, Py_ssize_t every) noexcept nogil:
        self.hardness = hardness                        # on all pixels: a sample would need columns of its own

    cdef void set_p(self, const double* lam) noexcept nogil:
        cdef double logs
        self.softmax(lam, &logs)

    cdef double write_p(self, float* out32, double* out64, bint gradient) noexcept nogil:
        if out32 != NULL:
            return write_rows(self, self.f32, out32, gradient)
        return write_rows(self, self.f64, out64, gradient)


cdef double write_rows(GeneralRows s, const real* f, real* out, bint gradient) noexcept nogil:
    """See Dual.write_p."""
    cdef Py_ssize_t l, i, at
    cdef double x, scores = 0, scale = s.share if gradient else -1, least = NEGLIGIBLE if gradient else -1
    cdef double* p
    for l in range(s.labels):
        p, at = s.p + l * s.n, s.label[l] * s.n
        for i in range(s.n):
            x = p[i] if p[i] > least else 0
            out[at + i] = (out[at + i] if gradient else 0) - <real>(scale * x)
        for i in range(s.n if gradient and s.hardness != 1 else 0):
            scores += p[i] * f[at + i]
    return (s.hardness - 1) * scores / s.n
