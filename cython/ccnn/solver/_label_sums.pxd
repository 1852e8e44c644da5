from ._grouping cimport Groups
from ._problem cimport Dual


cdef class LabelSums(Dual):
    cdef const double[:, ::1] A         # in,  k x L
    cdef const double[:, ::1] regions   # in,  k x n, or None
    cdef Groups groups
    # the labels, the rows, their entries and E of all groups lie end to end; group g's begin at ..._at[g]
    cdef Py_ssize_t* label              # the labels of a group
    cdef Py_ssize_t* label_at           # G + 1
    cdef Py_ssize_t* only               # G       the label of a group that has just one
    cdef Py_ssize_t* row                # the rows with an entry in the group
    cdef Py_ssize_t* row_at             # G + 1
    cdef Py_ssize_t* entry_at           # like row, + 1: where a row's entries in the group begin
    cdef Py_ssize_t* entry_label        # an entry's label, counted within the group,
    cdef double* entry                  # and A_jl * regions_jg
    cdef Py_ssize_t* E_at               # G + 1
    cdef double* E                      # labels x pixels, padded to whole blocks
    cdef double* F                      # the scores in the order of E; NULL if there is only one group
    cdef double* bias                   # like label: sum_j lam_j a_jl,
    cdef double* made_for               # the bias for which E was made,
    cdef double* w                      # and exp(bias - made_for)
    cdef double* fixed                  # k       what pixels with a single label add to the rows
    cdef double* mean                   # scratch, labels
    cdef double* cov                    # scratch, labels x labels
    cdef double* cov_row                # scratch, labels
    cdef double* p                      # scratch, labels x BLOCK
    cdef double maxima                  # mean over the pixels of max_l, which E leaves out
    cdef bint made                      # is E valid?
    cdef Py_ssize_t every               # E holds one pixel of so many

    cdef Py_ssize_t arrange_rows(self) noexcept nogil
    cdef void gather_scores(self) noexcept nogil
    cdef void set_weights(self, const double* lam) noexcept nogil
    cdef void add_covariance(self, Py_ssize_t g, double share, double* H) noexcept nogil
