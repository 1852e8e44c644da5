"""`caffe train`: started, watched, continued from its newest whole snapshot."""
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from ccnn.caffelog import GLOG, ITERATION, PER_ITERATION, TRACE
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.paths import ROOT
from ccnn.samples import LAYERS
from ccnn.weights import blob_array, by, read_caffemodel, read_message

MOMENTS = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2}    # blobs kept per parameter


def read_solver(path, changes):
    """The SolverParameter of a file, with "key=value" changes."""
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format
    solver = caffe_pb2.SolverParameter()
    try:
        text_format.Parse(Path(path).read_text(), solver)
    except (text_format.ParseError, UnicodeDecodeError) as e:
        raise UserError(f"{path}: is not a solver: {e}") from None
    for change in changes:
        key, _, value = change.partition("=")
        field = solver.DESCRIPTOR.fields_by_name.get(key)
        try:
            quoted = f'"{value}"' if field and field.type == field.TYPE_STRING else value
            text_format.Merge(f"{key}: {quoted}", solver)
        except text_format.ParseError as e:
            raise UserError(f"--set {change}: {str(e).split(' : ')[-1]}; "
                            "give key=value as in Caffe's solver files") from None
    for key in ("net", "snapshot_prefix", "max_iter", "iter_size"):
        if not getattr(solver, key):
            raise UserError(f"{path}: has no {key}")
    if solver.type not in MOMENTS:
        raise UserError(f"{path}: type {solver.type!r} is none of {', '.join(MOMENTS)}")
    if solver.snapshot_format != solver.BINARYPROTO:
        raise UserError(f"{path}: snapshot_format must be BINARYPROTO (Caffe's default)")
    return solver


def check_weights(path, shapes):
    """Whether Caffe can load a .caffemodel into a net; the layers it does not fill."""
    stored = read_caffemodel(path)
    for name in shapes.keys() & stored.keys():
        had = stored[name][0].shape
        if had != shapes[name]:
            raise UserError(f"{path}: layer {name} is {by(had)}, but the net's is {by(shapes[name])}; "
                            "tools/init_weights.py makes weights that fit")
    missing = [name for name in shapes if name not in stored]
    if len(missing) == len(shapes):
        raise UserError(f"{path}: holds no layer of the net; it has {', '.join(list(stored)[:5])} ...")
    return missing


def check_snapshot(state_file, shapes, solver):
    """The iteration of a snapshot; UserError unless state and weights are whole, finite and of this net.

    A file cut between two of its fields is still valid protobuf, so the blobs are counted and compared too.
    """
    from caffe.proto import caffe_pb2
    state = read_message(state_file, caffe_pb2.SolverState())
    weights = read_caffemodel(state.learned_net)
    for name, shape in shapes.items():
        had = [array.shape for array in weights.get(name, [])]
        if had != [shape, shape[:1]]:
            raise UserError(f"{state.learned_net}: has no whole layer {name}, or that of another net")
    wanted = [array.shape for arrays in weights.values() for array in arrays] * MOMENTS[solver.type]
    history = [blob_array(blob, state_file).shape for blob in state.history]
    if history != wanted or not state.HasField("current_step"):          # the last field that Caffe writes
        raise UserError(f"{state_file}: keeps {len(history)} of {len(wanted)} blobs, or another net's")
    return state.iter


def newest_snapshot(solver, shapes):
    """(iteration, .solverstate file) of the newest whole snapshot; (0, None) if there is none."""
    prefix = Path(solver.snapshot_prefix)
    name = re.compile(re.escape(prefix.name) + r"_iter_(\d+)\.solverstate")
    found = [(name.fullmatch(path.name), path) for path in prefix.parent.iterdir()]
    for _, path in sorted(((int(match[1]), path) for match, path in found if match), reverse=True):
        try:
            return check_snapshot(path, shapes, solver), path
        except (UserError, OSError) as e:
            say(f"passing over a snapshot: {e}")
    return 0, None


def check_space(solver, shapes, start):
    """UserError unless all the snapshots to come fit on the disk."""
    size = 4 * sum(math.prod(shape) + shape[0] for shape in shapes.values()) * (1 + MOMENTS[solver.type])
    number = 1 + ((solver.max_iter - start - 1) // solver.snapshot if solver.snapshot else 0)
    free = shutil.disk_usage(Path(solver.snapshot_prefix).parent).free
    if size * number > free:
        raise UserError(f"{number} snapshots of {size / 1e6:.1f} MB do not fit into the {free / 1e6:.0f} MB free at "
                        f"{solver.snapshot_prefix}: free some, or take fewer with --set snapshot=N")


def open_samples(net):
    """The training images of a net, by number of the sample; None if its data come from elsewhere than voc_data."""
    for layer in net.layer:
        if layer.type == "Python" and layer.python_param.module == "voc_data":
            return LAYERS[layer.python_param.layer](layer.python_param.param_str)
    return None


def find_caffe():
    own = os.environ.get("CAFFE") or ROOT / ".caffe/bin/caffe"
    found = shutil.which(own) or shutil.which("caffe")
    if not found:
        raise UserError(f"{own}: no such program; `make` brings Caffe")
    return found


class Training:
    """One run of `caffe train`: its log, its progress, its end."""

    def __init__(self, solver, start, samples):
        self.solver, self.start, self.samples = solver, start, samples
        self.next = start                   # the iteration that Caffe is computing
        self.process, self.signals, self.solving = None, 0, False
        self.dump = False                   # Caffe prints a net or a solver, over many lines
        self.complaint = self.fatal = self.printed = None
        self.log = Path(f"{solver.snapshot_prefix}.log")

    def run(self, options):
        """Run Caffe to its end. True if a signal stopped it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.stop)
        environment = dict(os.environ, GLOG_logtostderr="1", GLOG_minloglevel="0",
                           CCNN_START_ITERATION=str(self.start * self.solver.iter_size))
        # a session of its own: ^C reaches Caffe once, from here, and not the processes its layers have started
        self.process = subprocess.Popen(
            [find_caffe(), "train", "-solver", self.write_solver(), *options], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        if self.signals:
            self.process.kill()
        with open(self.log, "a") as log, tqdm(
                total=self.solver.max_iter, initial=self.start, unit="it", desc=Path(self.solver.snapshot_prefix).name,
                smoothing=0.1, mininterval=1 if sys.stderr.isatty() else 30) as bar:
            self.follow(log, bar)
        status = self.process.wait()
        stopped = self.signals == 1 and status in (0, -signal.SIGINT, -signal.SIGKILL)
        if self.complaint or status and not stopped:
            raise UserError(self.why(status))
        return stopped

    def write_solver(self):
        """The solver file that Caffe gets: the user's, but every iteration is logged, and a continued run does not draw
        the same dropout again."""
        solver = type(self.solver).FromString(self.solver.SerializeToString())
        solver.display = 1
        if solver.random_seed >= 0:
            solver.random_seed += self.start
        path = f"{solver.snapshot_prefix}.solver.prototxt"
        with whole_file(path) as part:
            part.write_text(f"# Written by tools/train.py.\n{solver}")
        return path

    def follow(self, log, bar):
        """Read what Caffe says as long as it runs; of the iterations, the log keeps those that `display` asks for."""
        keep = True
        for line in self.process.stderr:
            iteration = ITERATION.search(line)
            if iteration:
                number, loss = int(iteration[1]), float(iteration[2])
                keep = number % (self.solver.display or 1) == 0 or not math.isfinite(loss)
                self.next = number + 1
                bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
                bar.update(min(self.next, self.solver.max_iter) - bar.n)
                if not math.isfinite(loss):
                    self.process.kill()     # before it writes a snapshot of this
                    self.next, self.complaint = number, f"the loss is {loss}"
            if keep or not (iteration or PER_ITERATION.search(line)):
                log.write(line)
                log.flush()
            self.note(line)
            if self.complaint:
                return

    def stop(self, number, frame):
        self.signals += 1
        if not self.process:
            return
        if self.signals == 1:
            say("stopping after this iteration, with a snapshot; once more to stop at once, without")
            self.process.send_signal(signal.SIGINT)
        else:
            self.process.kill()

    def note(self, line):
        """Remember what may be the reason of an end: Caffe's fatal line, or the last one that a layer printed."""
        log = GLOG.match(line)
        if log:
            self.dump = line.rstrip().endswith("from parameters:")
        self.solving |= "Starting Optimization" in line
        if log and line[0] == "F":
            self.fatal = line[log.end():]
        elif not log and not self.dump and not TRACE.match(line):
            self.printed = line

    def why(self, status):
        reason = self.complaint or self.fatal
        if not reason and status == -signal.SIGKILL and self.signals > 1:
            reason = "stopped at once, without a snapshot"
        elif not reason and status < 0:         # what a layer printed may be long ago
            reason = f"caffe was ended by {signal.Signals(-status).name}"
            reason += "; is there enough memory?" if status == -signal.SIGKILL else \
                f"; the last that it wrote: {self.printed}" if self.printed else ""
        reason = reason or self.printed or f"caffe ended with status {status}"
        where = f"at iteration {self.next}" if self.solving else "before the first iteration"
        if self.solving and self.samples:
            size = self.solver.iter_size
            images = [self.samples.image(t) for t in range(self.next * size, (self.next + 1) * size)]
            where += f", {', '.join(images)}"
        return f"{reason.strip()} ({where}; log: {self.log})"


def say(text):
    tqdm.write(f"train.py: {text}", file=sys.stderr)
