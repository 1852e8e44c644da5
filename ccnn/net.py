"""Caffe nets, loaded so that no wrong file can abort the process."""
import os
import resource
import signal
import sys
import tempfile

import numpy as np

from ccnn.errors import UserError
from ccnn.images import to_blob
from ccnn.proto import read_net
from ccnn.weights import stored_layers


def load_caffe(gpu=None):
    """Import Caffe without its log, on the CPU or on the GPU of that number; return the module."""
    os.environ.setdefault("GLOG_minloglevel", "2")      # errors only; read when Caffe is loaded
    try:
        import caffe
    except ImportError as e:
        raise UserError(f"Caffe does not load ({e}); run `source .caffe/activate` first, "
                        "or `make` if there is no .caffe yet") from None
    if gpu is None:
        caffe.set_mode_cpu()
        return caffe

    def use_gpu():
        caffe.set_device(gpu)
        caffe.set_mode_gpu()
    error = rehearse(use_gpu)
    if error:
        raise UserError(f"--gpu {gpu}: {error}; leave --gpu out to use the CPU")
    use_gpu()
    return caffe


def load_net(prototxt, weights, gpu=None, shape=None):
    """A caffe.Net in the TEST phase, every parameter taken from the weights.

    prototxt : path of the net
    weights  : path of a .caffemodel, or a list of them (a trunk and a head)
    shape    : also try this shape, 1 x 3 x h x w, at the blob `data`: a net that runs at one size only
               fails here

    Caffe answers a damaged file with abort(), leaves a layer that the weights lack at its filler, and
    ignores NaN. Here a child process rehearses the loading, and each of these is a UserError.
    """
    weights = [weights] if isinstance(weights, (str, os.PathLike)) else list(weights)
    for path in (prototxt, *weights):
        with open(path, "rb"):          # a missing or unreadable file is an OSError that names it
            pass
    caffe = load_caffe(gpu)
    # what its filler defines needs no weights: bilinear upsampling
    given = {layer.name for layer in read_net(prototxt).layer
             if layer.convolution_param.weight_filler.type == "bilinear"}.union(*map(stored_layers, weights))

    def load():
        net = caffe.Net(str(prototxt), caffe.TEST)
        for path in weights:
            net.copy_from(str(path))
        return net

    def rehearsal():
        net = load()
        missing = [name for name in net.params if name not in given]
        if missing:
            raise ValueError(f"no weights for {', '.join(missing)} in {' or '.join(map(str, weights))}")
        for name, blobs in net.params.items():
            if not all(np.isfinite(blob.data).all() for blob in blobs):
                raise ValueError(f"the weights of {name} hold NaN or infinite values")
        if shape:
            if "data" not in net.inputs:
                raise ValueError("the net has no input blob `data`; is it a training net?")
            net.blobs["data"].reshape(*shape)
            net.forward()

    error = rehearse(rehearsal)
    if error:
        raise UserError(f"{prototxt} with {' and '.join(map(str, weights))}: {error}")
    return load()



def rehearse(action):
    """Call action() in a forked child. None if it returns; else one line: why it did not."""
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                signal.signal(signal.SIGABRT, signal.SIG_DFL)       # no handler's traceback
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))  # a damaged size must not swap
                action()
                status = 0
            except BaseException as e:
                os.write(2, f"\n! {' '.join(str(e).split()) or type(e).__name__}".encode())
            finally:
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    if status == 0:
        return None
    # our own line, or what Caffe logged as errors: "F0101 12:00:00.000000  1234 net.cpp:757] why"
    said = [line[2:] for line in lines if line.startswith("! ")]
    said = said or [line.partition("] ")[2] for line in lines if line[:1] in "EF" and "] " in line]
    if not said and os.WIFSIGNALED(status):
        said = [f"Caffe ended with signal {os.WTERMSIG(status)}; is there enough memory?"]
    return "; ".join(said) or f"Caffe ended with status {status}"


def score_grid(prototxt):
    """(stride, offset) in pixels: cell k of `fc8` is centred on pixel offset + stride * k of `data`.

    From fc8 up to data, a layer of kernel extent e, padding p and stride s centres its cell k on cell
    s k + (e - 1) / 2 - p of its bottom. The 8s nets have (8, 0), head_deploy (8, -0.5), the 32s net (32, 15.5).
    """
    stride, offset, blob = 1, 0, "fc8"
    for layer in reversed(read_net(prototxt).layer):
        if blob not in layer.top:
            continue
        if layer.type == "Convolution":
            p = layer.convolution_param
            kernel, step, pad, dilation = ((list(v) or [d])[0] for v, d in (
                (p.kernel_size, 1), (p.stride, 1), (p.pad, 0), (p.dilation, 1)))
        elif layer.type == "Pooling":
            p = layer.pooling_param
            kernel, step, pad, dilation = p.kernel_size, p.stride, p.pad, 1
        elif layer.type in ("Deconvolution", "Crop", "Interp"):
            raise UserError(f"{prototxt}: {layer.name} ({layer.type}) enlarges before fc8; "
                            "let fc8 be the coarse scores")
        else:
            kernel, step, pad, dilation = 1, 1, 0, 1
        stride, offset = step * stride, step * offset + dilation * (kernel - 1) / 2 - pad
        blob = layer.bottom[0] if layer.bottom else blob
    return stride, offset


def check_scores(net, prototxt, classes):
    if "fc8" not in net.blobs or net.blobs["fc8"].data.ndim != 4:
        raise UserError(f"{prototxt}: has no score blob `fc8`, 1 x L x h x w; give a deploy net")
    if net.blobs["fc8"].channels != len(classes):
        raise UserError(f"{prototxt}: scores {net.blobs['fc8'].channels} labels, but {len(classes)} class names are "
                        "known; give them with --classes")


def forward(net, rgb):
    """The net's scores for an image, L x h x w on its grid."""
    net.blobs["data"].reshape(1, 3, *rgb.shape[:2])
    net.blobs["data"].data[0] = to_blob(rgb)
    net.forward()
    return net.blobs["fc8"].data[0].copy()
