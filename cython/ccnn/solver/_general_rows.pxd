from libc.stdint cimport uint8_t

from ._problem cimport Dual


cdef class GeneralRows(Dual):
    cdef const double[:, ::1] A         # in,  k x L, or k x 0 if all rows are a matrix
    cdef const double[:, ::1] regions   # in,  k x n, or None
    cdef const int[::1] matrix_start    # in,  the matrix in columns (csc): L n + 1,
    cdef const int[::1] matrix_row      #      the rows of its entries,
    cdef const double[::1] matrix_entry #      and their values
    cdef Py_ssize_t matrix_size         #      their number
    cdef Py_ssize_t labels
    cdef Py_ssize_t* label              # labels      the labels that appear
    cdef Py_ssize_t* row_at             # labels + 1  where a label's rows begin
    cdef Py_ssize_t* label_row          # the rows of A with a coefficient for the label
    cdef uint8_t* may                   # labels x n  may the label be here?
    cdef Py_ssize_t columns
    cdef Py_ssize_t* place              # columns     of p: label * n + pixel
    cdef Py_ssize_t* first              # columns + 1 where a column's entries begin
    cdef uint8_t* last                  # columns     is it the last column of its pixel?
    cdef int* row                       # entries
    cdef double* entry
    cdef double* p                      # labels x n
    cdef double* total                  # scratch, n
    cdef double* u                      # scratch, k  mean of the rows at a pixel
    cdef Py_ssize_t* seen               # scratch, k  how many entries of the row are at the pixel
    cdef Py_ssize_t* touched            # scratch, k  the rows that have one

    cdef Py_ssize_t count_entries(self) noexcept nogil
    cdef void collect_entries(self) noexcept nogil
    cdef void softmax(self, const double* lam, double* logs) noexcept nogil
    cdef void accumulate(self, double* v, double* H) noexcept nogil
