"""Rows that weigh labels, over the whole image or over regions: a_jil = A_jl * regions_ji.

Pixels are grouped by the labels they may take and by their weight in every row. In a group, row j adds the same
lam_j a_jl to the score of label l at every pixel, so the exponentials are taken once,

    E_li = exp(f_li + made_for_l - max_l),    p_i(l) = w_l E_li / sum_m w_m E_mi,    w = exp(bias - made_for)

and a later pass is a product and a division per pixel. E is made again where w would leave exp(+-DRIFT).
A pixel with one label left has p = 1 and costs nothing.
"""
from libc.math cimport exp, fabs
from libc.string cimport memset

from ._constants cimport BLOCK, CLIP, HARD, NEGLIGIBLE
from ._exponential cimport exp_within
from ._grouping cimport group_pixels
from ._label_pass cimport FEW, exponentiate_few, exponentiate_few_f, padded, pass_over_pixels
from ._memory cimport Memory, integers, reals, unset_integers, unset_reals
from ._problem cimport Dual
from ._softmax cimport real

cdef extern from *:
    """
    #define DRIFT 30.0      /* E is made again when a bias is this far from the one that E was made for */
    """
    const double DRIFT


cdef class LabelSums(Dual):

    def __init__(self, constraints, f, diff, double hardness, double tol, double weight):
        self.A, self.regions, self.every = constraints.A, constraints.regions, 1

    cdef bint prepare(self) noexcept nogil:
        """Group the pixels, arrange labels and rows by group, gather the scores."""
        cdef Py_ssize_t G, j, l, labels, most, entries = 0
        cdef Memory* m = &self.memory
        cdef const double* regions = NULL
        if self.regions is not None:
            regions = &self.regions[0, 0]
        # each group is padded to whole blocks: with fewer pixels per group, general rows are faster
        if not group_pixels(self.allowed, self.L if self.per_pixel else 0, regions, 0 if regions == NULL else self.k,
                            self.n, 16 + self.n // 64, m, &self.groups):
            self.too_many_groups = not m.failed
            return False
        G = self.groups.count
        for j in range(self.k):
            for l in range(self.L):
                entries += self.A[j, l] != 0
        self.fixed, self.only, self.E_at = reals(m, self.k), integers(m, G), integers(m, G + 1)
        self.label, self.label_at = unset_integers(m, G * self.L), integers(m, G + 1)
        self.row, self.row_at = unset_integers(m, G * self.k), integers(m, G + 1)
        self.entry_at = integers(m, G * self.k + 1)
        self.entry, self.entry_label = unset_reals(m, G * entries), unset_integers(m, G * entries)
        if m.failed:
            return False
        most = self.arrange_rows()
        labels = self.label_at[G]
        self.made_for, self.bias, self.w = reals(m, labels), reals(m, labels), reals(m, labels)
        self.mean, self.cov, self.cov_row = reals(m, most), unset_reals(m, most * most), reals(m, most)
        self.p = unset_reals(m, most * BLOCK)
        self.E = unset_reals(m, (1 if self.groups.pixel == NULL else 2) * self.E_at[G])
        if m.failed:
            return False
        if self.groups.pixel != NULL:
            self.F = self.E + self.E_at[G]
            self.gather_scores()
        return True

    cdef Py_ssize_t arrange_rows(self) noexcept nogil:
        """Fill label, row and entry, the rows' ranges, and what pixels with one label add to the rows.

        Return the largest number of labels in a group.
        """
        cdef Py_ssize_t g, i, j, l, m, r, e, pixel, most = 0
        cdef Py_ssize_t* label
        cdef double a, x, size, low, high, magnitude
        r = e = 0
        for g in range(self.groups.count):
            pixel, label, m = self.groups.example[g], self.label + self.label_at[g], 0
            for l in range(self.L):
                if self.allows(l, pixel):
                    label[m] = l
                    m += 1
            size = (self.groups.first[g + 1] - self.groups.first[g]) / <double>self.n
            for j in range(self.k):
                a = 1 if self.regions is None else self.regions[j, pixel]
                low, high, self.entry_at[r] = HARD, -HARD, e
                for l in range(m):
                    x = a * self.A[j, label[l]]
                    low, high = min(low, x), max(high, x)
                    if x != 0 and m > 1:
                        self.entry[e], self.entry_label[e] = x, l
                        e += 1
                self.add_range(j, low, high, size)
                if m == 1:
                    self.fixed[j] += size * high
                if e > self.entry_at[r]:
                    self.row[r] = j
                    r += 1
            if m == 1:
                l = self.only[g] = label[0]
                for i in range(self.groups.first[g], self.groups.first[g + 1]):
                    self.known += self.score(l, i if self.groups.pixel == NULL else self.groups.pixel[i])
                m = 0
            most = max(most, m)
            self.label_at[g + 1] = self.label_at[g] + m
            self.row_at[g + 1] = r
            self.E_at[g + 1] = self.E_at[g] + m * padded(self.groups.first[g + 1] - self.groups.first[g])
        self.entry_at[r] = e
        self.known *= self.hardness / self.n
        return most

    cdef void gather_scores(self) noexcept nogil:
        """F: the scores, group by group."""
        cdef Py_ssize_t g, l, i, at, size
        cdef const Py_ssize_t* pixel
        cdef double* F
        for g in range(self.groups.count):
            size, pixel = self.groups.first[g + 1] - self.groups.first[g], self.groups.pixel + self.groups.first[g]
            for l in range(self.label_at[g + 1] - self.label_at[g]):
                F, at = self.F + self.E_at[g] + l * padded(size), self.label[self.label_at[g] + l] * self.n
                if self.f32 != NULL:
                    for i in range(size):
                        F[i] = self.f32[at + pixel[i]]
                else:
                    for i in range(size):
                        F[i] = self.f64[at + pixel[i]]

    cdef void set_weights(self, const double* lam) noexcept nogil:
        """w for this lam; E too, where w would be too large or too small."""
        cdef Py_ssize_t g, l, r, e
        cdef double x, drift = 0
        cdef double* bias
        memset(self.bias, 0, self.label_at[self.groups.count] * sizeof(double))
        for g in range(self.groups.count):
            bias = self.bias + self.label_at[g]
            for r in range(self.row_at[g], self.row_at[g + 1]):
                x = lam[self.row[r]]
                for e in range(self.entry_at[r], self.entry_at[r + 1]):
                    bias[self.entry_label[e]] += self.entry[e] * x
        for l in range(self.label_at[self.groups.count]):
            drift = max(drift, fabs(self.bias[l] - self.made_for[l]))
        if drift > DRIFT or not self.made:
            for l in range(self.label_at[self.groups.count]):
                self.made_for[l] = self.bias[l]
            self.maxima = 0
            for g in range(self.groups.count):
                if self.groups.pixel != NULL:
                    self.maxima += exponentiate(self, g, self.F + self.E_at[g],
                                                padded(self.groups.first[g + 1] - self.groups.first[g]))
                elif self.f32 != NULL:
                    self.maxima += exponentiate(self, g, self.f32, self.n)
                else:
                    self.maxima += exponentiate(self, g, self.f64, self.n)
            self.made = True
        for l in range(self.label_at[self.groups.count]):
            self.w[l] = exp(self.bias[l] - self.made_for[l])

    cdef double evaluate(self, const double* lam, double* v, double* H) noexcept nogil:
        cdef Py_ssize_t g, r, e, j, h, size, labels, k = self.k
        cdef double logs, x, share
        self.set_weights(lam)
        logs = self.maxima
        for j in range(k):
            v[j] = self.fixed[j]
            logs += lam[j] * self.fixed[j]
        if H != NULL:
            memset(H, 0, k * k * sizeof(double))
        for g in range(self.groups.count):
            labels = self.label_at[g + 1] - self.label_at[g]
            if labels == 0:
                continue
            size = self.groups.first[g + 1] - self.groups.first[g]
            share = size / <double>((size + self.every - 1) // self.every * self.n)
            logs += share * pass_over_pixels(self.E + self.E_at[g], self.w + self.label_at[g], labels,
                                             (size + self.every - 1) // self.every, self.p, self.mean,
                                             self.cov if H != NULL else NULL)
            for r in range(self.row_at[g], self.row_at[g + 1]):
                x = 0
                for e in range(self.entry_at[r], self.entry_at[r + 1]):
                    x += self.entry[e] * self.mean[self.entry_label[e]]
                v[self.row[r]] += share * x
            if H != NULL:
                self.add_covariance(g, share, H)
        if H != NULL:
            for j in range(k):
                for h in range(j):
                    H[h * k + j] = H[j * k + h]
        return -logs

    cdef void add_covariance(self, Py_ssize_t g, double share, double* H) noexcept nogil:
        """H += share * A cov A' for the entries of group g, rows j >= h only."""
        cdef Py_ssize_t r, h, e, l, labels = self.label_at[g + 1] - self.label_at[g]
        cdef double x
        cdef double* row
        for r in range(self.row_at[g], self.row_at[g + 1]):
            memset(self.cov_row, 0, labels * sizeof(double))
            for e in range(self.entry_at[r], self.entry_at[r + 1]):
                x, row = share * self.entry[e], self.cov + self.entry_label[e] * labels
                for l in range(labels):
                    self.cov_row[l] += x * row[l]
            for h in range(self.row_at[g], r + 1):
                x = 0
                for e in range(self.entry_at[h], self.entry_at[h + 1]):
                    x += self.entry[e] * self.cov_row[self.entry_label[e]]
                H[self.row[r] * self.k + self.row[h]] += x

    cdef double support(self, const double* d) noexcept nogil:
        cdef Py_ssize_t g, j, l, r, e, labels
        cdef double total = 0, top
        for j in range(self.k):
            total += self.fixed[j] * d[j]
        for g in range(self.groups.count):
            labels = self.label_at[g + 1] - self.label_at[g]
            if labels == 0:
                continue
            memset(self.mean, 0, labels * sizeof(double))
            for r in range(self.row_at[g], self.row_at[g + 1]):
                for e in range(self.entry_at[r], self.entry_at[r + 1]):
                    self.mean[self.entry_label[e]] += self.entry[e] * d[self.row[r]]
            top = self.mean[0]
            for l in range(1, labels):
                top = max(top, self.mean[l])
            total += top * (self.groups.first[g + 1] - self.groups.first[g]) / self.n
        return total

    cdef double spread(self) noexcept nogil:
        cdef Py_ssize_t g, s, l, at, count = 0
        cdef double x, total = 0
        for g in range(self.groups.count):
            for s in range(64):
                at = self.groups.first[g] + s * (self.groups.first[g + 1] - self.groups.first[g]) // 64
                at = at if self.groups.pixel == NULL else self.groups.pixel[at]
                for l in range(self.label_at[g] + 1, self.label_at[g + 1]):
                    x = self.score(self.label[l], at) - self.score(self.label[l - 1], at)
                    total += x * x
                    count += 1
        return (0.5 * total / count) ** 0.5 if count else 0

    cdef void set_hardness(self, double hardness, Py_ssize_t every) noexcept nogil:
        self.hardness, self.every, self.made = hardness, every, False

    cdef void set_p(self, const double* lam) noexcept nogil:
        self.set_weights(lam)

    cdef double write_p(self, float* out32, double* out64, bint gradient) noexcept nogil:
        if out32 != NULL:
            return write_groups(self, self.f32, out32, gradient)
        return write_groups(self, self.f64, out64, gradient)


cdef double exponentiate(LabelSums s, Py_ssize_t g, const real* f, Py_ssize_t stride) noexcept nogil:
    """E of group g for the biases made_for. Return what the maxima that E leaves out add to the mean over pixels."""
    cdef Py_ssize_t labels = s.label_at[g + 1] - s.label_at[g], all = s.groups.first[g + 1] - s.groups.first[g]
    cdef Py_ssize_t size = (all + s.every - 1) // s.every, length = padded(size), start = 0, count, l, i, at
    cdef const double* bias = s.made_for + s.label_at[g]
    cdef const Py_ssize_t* label = s.label + s.label_at[g]
    cdef double* E = s.E + s.E_at[g]
    cdef const real* few[8]
    cdef double total = 0
    if labels == 0:
        return 0
    if labels <= FEW and s.every == 1:
        for l in range(labels):
            few[l] = f + (label[l] if s.groups.pixel == NULL else l) * stride
        if real is float:
            total = exponentiate_few_f(<int>labels, few, s.hardness, bias, CLIP, size, E, length)
        else:
            total = exponentiate_few(<int>labels, few, s.hardness, bias, CLIP, size, E, length)
    else:
        while start < size:
            count = min(<Py_ssize_t>BLOCK, size - start)
            for l in range(labels):
                at = (label[l] if s.groups.pixel == NULL else l) * stride + start * s.every
                scale_scores(f + at, s.every, s.hardness, bias[l], count, E + l * length + start)
            total += exponentiate_block(E + start, labels, length, count)
            start += BLOCK
    for l in range(labels):
        for i in range(size, length):
            E[l * length + i] = l == 0
    return total * all / (size * s.n)


cdef inline void scale_scores(
    const real* f, Py_ssize_t every, double hardness, double bias, Py_ssize_t count, double* x) noexcept nogil:
    """x = hardness * f + bias, for one of `every` scores."""
    cdef Py_ssize_t i
    if every == 1:
        for i in range(count):
            x[i] = hardness * f[i] + bias
    else:
        for i in range(count):
            x[i] = hardness * f[i * every] + bias


cdef double exponentiate_block(double* x, Py_ssize_t labels, Py_ssize_t stride, Py_ssize_t count) noexcept nogil:
    """x_li becomes exp(x_li - max_l x_li). Return sum_i max_l x_li."""
    cdef Py_ssize_t l, i
    cdef double top[BLOCK]
    cdef double total = 0
    cdef double* row
    for i in range(count):
        top[i] = x[i]
    for l in range(1, labels):
        row = x + l * stride
        for i in range(count):
            top[i] = row[i] if row[i] > top[i] else top[i]
    for l in range(labels):
        row = x + l * stride
        for i in range(count):
            row[i] = exp_within(max(row[i] - top[i], CLIP))
    for i in range(count):
        total += top[i]
    return total


cdef double write_groups(LabelSums s, const real* f, real* out, bint gradient) noexcept nogil:
    """See Dual.write_p."""
    cdef Py_ssize_t g, l, i, at, start, count, size, labels
    cdef double total[BLOCK]
    cdef double p[BLOCK]
    cdef double weight, scores = 0, scale = s.share if gradient else -1, least = NEGLIGIBLE if gradient else -1
    cdef bint sharper = gradient and s.hardness != 1
    cdef double* E
    cdef const Py_ssize_t* pixel
    for g in range(s.groups.count):
        size, labels = s.groups.first[g + 1] - s.groups.first[g], s.label_at[g + 1] - s.label_at[g]
        start = 0
        while start < size:
            count = min(<Py_ssize_t>BLOCK, size - start)
            pixel = NULL if s.groups.pixel == NULL else s.groups.pixel + s.groups.first[g] + start
            for i in range(count):
                total[i] = 0
            for l in range(labels):
                E, weight = s.E + s.E_at[g] + l * padded(size) + start, s.w[s.label_at[g] + l]
                for i in range(count):
                    total[i] += weight * E[i]
            for i in range(count):
                total[i] = 1 / total[i]
            for l in range(max(labels, 1)):
                if labels == 0:
                    at = s.only[g] * s.n
                    for i in range(count):
                        p[i] = 1
                else:
                    at = s.label[s.label_at[g] + l] * s.n
                    E, weight = s.E + s.E_at[g] + l * padded(size) + start, s.w[s.label_at[g] + l]
                    for i in range(count):
                        p[i] = weight * E[i] * total[i]
                        p[i] = p[i] if p[i] > least else 0
                if pixel == NULL:
                    at += start
                    for i in range(count):
                        out[at + i] = (out[at + i] if gradient else 0) - <real>(scale * p[i])
                else:
                    for i in range(count):
                        out[at + pixel[i]] = (out[at + pixel[i]] if gradient else 0) - <real>(scale * p[i])
                for i in range(count if sharper else 0):
                    scores += p[i] * f[at + (i if pixel == NULL else pixel[i])]
            start += BLOCK
    return (s.hardness - 1) * scores / s.n
