"""What the tools share: one-line errors, files written whole, a Caffe that cannot abort the tool.

    if __name__ == "__main__":
        cli.run(main)
"""
import argparse
import contextlib
import ctypes
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from concurrent import futures
from multiprocessing import get_context
from pathlib import Path

try:
    import numpy as np
    from images import InputError
except ImportError as e:                # status 2 and one line, as for every other error of a tool
    print(f"{Path(sys.argv[0]).name}: error: {e}; run `source .caffe/activate` first", file=sys.stderr)
    sys.exit(2)


class UserError(Exception):
    """Something the user can mend. The text is one line: what is wrong, where, and the remedy."""


def parser(doc):
    """An ArgumentParser whose --help opens with the tool's docstring, line breaks kept."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def count(text):
    """An argparse type: a whole number, at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"need a whole number, at least 1; got {text!r}")
    return value


def run(main):
    """Call main() and leave: status 0 or what it returns, 2 after a one-line error, 130 after ^C."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        fail("stopped", 130)
    except BrokenPipeError:              # `tool | head`: the reader has seen enough
        sys.stdout = open(os.devnull, "w")
        sys.exit(0)
    except MemoryError as e:
        fail(f"out of memory ({e or 'no details'}); use a smaller size or fewer jobs", 2)
    except OSError as e:
        fail(f"{e.filename}: {e.strerror}" if e.filename and e.strerror else e, 2)
    except (UserError, InputError) as e:
        fail(e, 2)
    except ModuleNotFoundError as e:     # of a Caffe of one's own, whose Python need not have all
        fail(f"{e}; get it with: {sys.executable} -m pip install -r requirements.txt", 2)


def fail(message, status):
    print(f"{Path(sys.argv[0]).name}: error: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(status)


def machine():
    """One line for benchmarks: processor, cores, compiler, versions."""
    try:
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):        # no such file, no such line
        cpu = platform.machine()
    try:
        said = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True)
        compiler = said.stdout.partition("\n")[0]
    except OSError:
        compiler = "unknown compiler"
    return f"{cpu}, {os.cpu_count()} cores; {compiler}; Python {platform.python_version()}, NumPy {np.__version__}"


@contextlib.contextmanager
def whole_file(path):
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    The suffix stays, for libraries that read the format from it; missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def spread(function, tasks, jobs):
    """Yield function(*task) for every task, in any order, from `jobs` processes; in this one if jobs is 1.

    tasks may be a generator that computes: it runs in this process while the workers do, and is asked
    for at most two tasks a worker in advance, which bounds the memory.
    """
    if jobs == 1:
        for task in tasks:
            yield function(*task)
        return
    # spawn: the workers hold neither Caffe nor its threads
    pool = futures.ProcessPoolExecutor(jobs, get_context("spawn"), become_worker, [os.getpid()])
    running = set()
    try:
        for task in tasks:
            if len(running) == 2 * jobs:
                done, running = futures.wait(running, return_when=futures.FIRST_COMPLETED)
                yield from (future.result() for future in done)
            running.add(pool.submit(function, *task))
        yield from (future.result() for future in futures.as_completed(running))
    except futures.process.BrokenProcessPool:
        raise UserError(f"one of {jobs} worker processes was ended, most likely for lack of memory; "
                        "what is finished is kept: run again with fewer --jobs") from None
    finally:
        pool.shutdown(cancel_futures=True)


def become_worker(parent):
    """^C is for the parent, which then ends its workers; and they end with it, whatever ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent:              # it has ended before
        os._exit(1)


def end_with_parent():
    """Have the kernel send SIGTERM to this process when its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)      # PR_SET_PDEATHSIG


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


def stored_layers(path):
    """The names of the layers that have weights in a .caffemodel."""
    from caffe.proto import caffe_pb2
    model = read_message(path, caffe_pb2.NetParameter())
    names = {layer.name for layer in (*model.layer, *model.layers) if layer.blobs}
    if not names:
        raise UserError(f"{path}: holds no weights; give a .caffemodel")
    return names


def read_message(path, message):
    """The protobuf message in a file, which must be whole."""
    from google.protobuf.message import DecodeError
    kind = {"NetParameter": ".caffemodel", "SolverState": ".solverstate"}[message.DESCRIPTOR.name]
    try:
        with warnings.catch_warnings(record=True) as stopped:
            warnings.simplefilter("always")         # protobuf only warns where it stops before the end
            message.ParseFromString(Path(path).read_bytes())
        whole = not stopped
    except DecodeError:
        whole = False
    if not whole:
        raise UserError(f"{path}: is not a whole {kind}: damaged, cut off or something else; "
                        "fetch or train it again")
    return message


def read_net(prototxt):
    """A net's description: caffe.proto's NetParameter."""
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format
    try:
        return text_format.Parse(Path(prototxt).read_text(encoding="utf-8"), caffe_pb2.NetParameter())
    except text_format.ParseError as e:
        raise UserError(f"{prototxt}: is not a net: line {e}") from None
    except ValueError as e:             # bytes that are no text
        raise UserError(f"{prototxt}: is not a net: {e}") from None


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
