"""3 x 3 convolutions and max-pooling of one image, on one thread: winograd.h as functions of arrays.

Images are rows x columns x channels, float32.
"""
import numpy as np

cdef extern from "winograd.h" nogil:
    ctypedef struct tile_place:
        pass
    ctypedef struct convolution:
        const float* x
        const float* weights
        const float* bias
        float* y
        Py_ssize_t height, width, inputs, outputs, dilation
        int relu
        Py_ssize_t block
        const float* zeros
        float* U
        float* V
        float* M
        tile_place* places
    enum:
        C_LANES "LANES"
        C_PANEL "PANEL"
    Py_ssize_t V_STRIDE(Py_ssize_t inputs)
    void winograd(const convolution* c)
    void direct(const convolution* c)
    void largest(const float* x, Py_ssize_t height, Py_ssize_t width, Py_ssize_t channels, Py_ssize_t kernel,
                 Py_ssize_t stride, Py_ssize_t pad, float* y, Py_ssize_t rows, Py_ssize_t columns)

LANES, PANEL = C_LANES, C_PANEL

BLOCK = 96          # tiles in work at the same time: the weights are transformed once per block


def prepare(weights):
    """Weights, outputs x inputs x 3 x 3, as `convolve` takes them: panels x inputs x 9 x PANEL."""
    outputs, inputs = weights.shape[:2]
    if weights.shape[2:] != (3, 3) or outputs % PANEL:
        raise ValueError(f"weights must be outputs x inputs x 3 x 3, outputs a multiple of {PANEL}; "
                         f"got {weights.shape}")
    panels = weights.reshape(-1, PANEL, inputs, 9).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(panels, np.float32)


def convolve(const float[:, :, ::1] x, const float[:, :, :, ::1] weights, const float[::1] bias, Py_ssize_t dilation=1,
             bint relu=False):
    """The convolution of x with weights that `prepare` has arranged: stride 1, `dilation` zeros around the image.

    Winograd's algorithm takes channels of x by LANES; for another number of them, the sums are computed as they stand.
    relu : negative values become 0
    """
    cdef convolution c
    cdef bint by_tiles = x.shape[2] % C_LANES == 0
    c.height, c.width, c.inputs, c.outputs = x.shape[0], x.shape[1], x.shape[2], bias.shape[0]
    c.dilation, c.relu = dilation, relu
    expected = (c.outputs // PANEL, c.inputs, 9, PANEL)
    found = (weights.shape[0], weights.shape[1], weights.shape[2], weights.shape[3])
    if found != expected or c.outputs % PANEL or dilation < 1 or not x.size:
        raise ValueError(f"weights must be {expected} for {c.inputs} inputs and {c.outputs} outputs, and dilation 1 or "
                         f"more; got {found}, {dilation}")
    c.block = BLOCK if by_tiles else 2 * BLOCK
    cdef float[::1] U = np.empty(36 * c.inputs * PANEL, np.float32)
    cdef float[::1] V = np.empty(36 * c.block * V_STRIDE(c.inputs), np.float32)
    cdef float[::1] M = np.empty(36 * c.block * c.outputs, np.float32)
    cdef float[::1] zeros = np.zeros(c.inputs, np.float32)
    cdef char[::1] places = np.empty(c.block * sizeof(tile_place), np.int8)
    cdef float[:, :, ::1] y = np.empty((c.height, c.width, c.outputs), np.float32)
    c.x, c.weights, c.bias, c.y = &x[0, 0, 0], &weights[0, 0, 0, 0], &bias[0], &y[0, 0, 0]
    c.zeros, c.U, c.V, c.M, c.places = &zeros[0], &U[0], &V[0], &M[0], <tile_place*>&places[0]
    with nogil:
        if by_tiles:
            winograd(&c)
        else:
            direct(&c)
    return np.asarray(y)


def max_pool(const float[:, :, ::1] x, Py_ssize_t kernel, Py_ssize_t stride, Py_ssize_t pad):
    """The largest value of windows of kernel x kernel; their number is rounded up, as Caffe does."""
    if not 0 < stride + pad <= kernel or stride < 1 or pad < 0 or not x.size:
        raise ValueError(f"stride and pad must not exceed the kernel together; got {kernel}, {stride}, {pad}")
    cdef Py_ssize_t rows = windows(x.shape[0], kernel, stride, pad), columns = windows(x.shape[1], kernel, stride, pad)
    cdef float[:, :, ::1] y = np.empty((rows, columns, x.shape[2]), np.float32)
    with nogil:
        largest(&x[0, 0, 0], x.shape[0], x.shape[1], x.shape[2], kernel, stride, pad, &y[0, 0, 0], rows, columns)
    return np.asarray(y)


def windows(size, kernel, stride, pad):
    return max(0, -(-(size + 2 * pad - kernel) // stride)) + 1
