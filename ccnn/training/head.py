"""Train the linear head of a folder's model in NumPy: what `caffe train` does with the nets of own_nets, in less time.

    training = prepare(solver)          # a SolverParameter, whose net is one of ccnn.nets.prototxt.own_nets
    training.run()                      # to the end, with a progress bar; continues from the newest snapshot
    training.model                      # the trained weights

The samples, the loss, Adam and the files are those of Caffe. After the same steps from the same weights, the weights
agree with Caffe's to 1e-4 (tests/test_head.py), and each of the two can continue a snapshot of the other. Only the
random numbers with which a training begins are others.
"""
import collections
import logging
import math
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.progress import Progress
from ccnn._util.settings import parse
from ccnn._util.workers import one_blas_thread
from ccnn.data.float16 import widen
from ccnn.data.samples import FeatureSamples
from ccnn.images.labels import VOID, read_classes
from ccnn.nets.caffe_files import (
    Arrays,
    TrainingState,
    read_caffemodel,
    read_net,
    read_state,
    write_caffemodel,
    write_state,
)
from ccnn.nets.weights import check_weights, convolutions
from ccnn.supervision.baselines import log_softmax
from ccnn.supervision.constraint_builder import ConstraintBuilder, solve_batch
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.rules_file import read_rules
from ccnn.training import caffe_log, schedule
from ccnn.training.caffe_training import data_layer, signals_call
from ccnn.training.snapshots import check_space, newest_snapshot, remove_snapshots

HEAD_LAYERS = ("data", "fc8_cell", "image", "fc8_image", "vector", "scores", "loss")     # of a net that is trained here

MEMORY = 1 << 30            # bytes of features that are kept; the others are read whenever they are needed

log = logging.getLogger(__name__)


def prepare(solver: Any, weights: Optional[Path] = None, restart: bool = False,
            memory: Optional["FeatureMemory"] = None) -> "HeadTraining":
    """Check a training, and find where it begins. The arguments are those of ccnn.training.caffe_training.prepare.

    memory : where features are kept, for trainings that share them
    """
    prefix, shapes = Path(solver.snapshot_prefix), convolutions(solver.net)
    check_solver(solver)
    training = HeadTraining(solver, HeadNet(read_net(solver.net), solver.net, memory))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    if restart:
        remove_snapshots(prefix)
        training.log.unlink(missing_ok=True)
    training.start_at, snapshot = newest_snapshot(solver, shapes)
    if not training.finished:
        check_space(solver, shapes, training.start_at)
        if weights:
            check_weights(weights, shapes)
        training.begin(snapshot, weights)
    return training


def check_solver(solver: Any) -> None:
    wanted = {"type": "Adam", "lr_policy": "poly", "regularization_type": "L2", "clip_gradients": -1}
    for name, value in wanted.items():
        if getattr(solver, name) != value:
            raise UserError(f"{solver.net}: the solver's {name} is {getattr(solver, name)!r}; the NumPy trainer has "
                            f"{value!r} only: use --trainer caffe")


# What a sample shows

class FeatureMemory:
    """Features in memory, {file: C x h x w float32}, as many as fit."""

    def __init__(self, most: int = MEMORY) -> None:
        self.kept: dict[str, np.ndarray] = {}
        self.room = most

    def keep(self, file: str, features: np.ndarray) -> np.ndarray:
        if features.nbytes <= self.room:
            self.room -= features.nbytes
            self.kept[file] = features
        return features


class RememberedSamples(FeatureSamples):
    """Samples whose features are float32, and read from their files once."""

    def __init__(self, options: Any, memory: FeatureMemory) -> None:
        self.memory = memory
        super().__init__(options)

    def read_features(self, file: str) -> np.ndarray:
        found = self.memory.kept.get(file)
        if found is None:
            half = super().read_features(file)
            found = self.memory.keep(file, widen(half, np.empty(half.shape, np.float32)))
        return found


class Sample(NamedTuple):
    features: np.ndarray        # C x n, never mirrored
    grid: tuple[int, ...]       # rows, columns
    mirrored: bool              # what the target describes
    target: Any                 # what the loss makes of the supervision


class HeadNet:
    """The classifier f_i = W x_i + b + V mean_i(x_i) + c of a cell's features x_i, and its loss.

    The parameters of a head are [W, b, V, c]: L x C, L, L x C, L.
    """

    def __init__(self, net: Any, where: object, memory: Optional[FeatureMemory] = None) -> None:
        """net : NetParameter   where : its name in an error"""
        layers = {layer.name: layer for layer in net.layer}
        data, loss = data_layer(net), layers.get("loss")
        kind = LOSSES.get(loss.python_param.layer or loss.type) if loss else None
        if tuple(layers) != HEAD_LAYERS or not data or data.layer != "FeatureDataLayer" or not kind:
            raise UserError(f"{where}: is not the net of a linear head on cached features, which the NumPy trainer "
                            "needs; use --trainer caffe")
        self.samples = RememberedSamples(data.param_str, memory or FeatureMemory())
        if self.samples.crop:
            raise UserError(f"{where}: shows crops, which the NumPy trainer does not know; use --trainer caffe")
        self.convolutions = [layers[name] for name in HEAD_LAYERS if layers[name].type == "Convolution"]
        rates = [param for layer in self.convolutions for param in layer.param]
        self.rates, self.decays = [param.lr_mult for param in rates], [param.decay_mult for param in rates]
        self.loss = kind(loss)
        self.targets: dict = {}

    # Parameters

    def random(self, seed: int) -> list[np.ndarray]:
        """A head to begin with, as the net's fillers say."""
        rng, parameters = np.random.default_rng(None if seed < 0 else seed), []
        for layer in self.convolutions:
            p = layer.convolution_param
            shape = p.num_output, self.samples.cached.channels
            filler = p.weight_filler
            parameters += [rng.normal(filler.mean, filler.std, shape).astype(np.float32) if filler.type == "gaussian"
                           else np.full(shape, filler.value, np.float32), np.zeros(p.num_output, np.float32)]
        return parameters

    def from_arrays(self, arrays: Arrays) -> list[np.ndarray]:
        """The parameters in a .caffemodel, which was checked to be of this net."""
        W, b, V, c = (array for layer in self.convolutions for array in arrays[layer.name])
        return [W[:, :, 0, 0].copy(), b.copy(), V[:, :, 0, 0].copy(), c.copy()]

    def to_arrays(self, parameters: list[np.ndarray]) -> Arrays:
        """In the shapes that Caffe stores."""
        return {layer.name: in_caffes_shapes(parameters[2 * k:2 * k + 2])
                for k, layer in enumerate(self.convolutions)}

    # Scores and gradients

    def sample(self, t: int) -> Sample:
        """Sample t. What the loss makes of its supervision is kept, because the same few samples return."""
        samples = self.samples
        toss, _, _, s = samples.chance(t)
        index, mirrored = samples.index(t), samples.mirror and toss < 0.5
        file, size = samples.input_at(index, s)
        key = index, mirrored, size
        if key not in self.targets:
            blobs, skipped = samples[t]
            for reason in skipped:
                log.warning("skipped: %s", reason)
            self.targets[key] = self.loss.target(blobs, self.labels, blobs[samples.INPUT].shape[1:])
        features = samples.read_features(file)
        return Sample(features.reshape(len(features), -1), features.shape[1:], mirrored, self.targets[key])

    @property
    def labels(self) -> int:
        return self.convolutions[0].convolution_param.num_output

    def scores(self, parameters: list[np.ndarray], sample: Sample) -> np.ndarray:
        """L x n, as the sample shows them: mirrored, if it is."""
        W, b, V, c = parameters
        x = sample.features
        with np.errstate(over="ignore", invalid="ignore"):          # the loss refuses what is not finite
            bias = b + c + V @ x.mean(axis=1) if V.any() else b + c
            return self.turned(W @ x + bias[:, None], sample)

    @staticmethod
    def turned(values: np.ndarray, sample: Sample) -> np.ndarray:
        """Cells of the sample as they lie in the features, or the other way round."""
        if not sample.mirrored:
            return values
        return np.ascontiguousarray(values.reshape(len(values), *sample.grid)[:, :, ::-1]).reshape(values.shape)

    def add_gradient(self, parameters: list[np.ndarray], sample: Sample, gradients: list[np.ndarray]) -> float:
        """The loss of a sample; its gradient is added to `gradients`."""
        f = self.scores(parameters, sample)
        diff = np.empty_like(f)
        loss = self.loss(f, sample.target, diff)
        diff = self.turned(diff, sample)
        of_bias = diff.sum(axis=1)
        gradients[0] += diff @ sample.features.T
        gradients[1] += of_bias
        if self.rates[2]:
            gradients[2] += np.outer(of_bias, sample.features.mean(axis=1))
            gradients[3] += of_bias
        return loss


# Losses: target(what a sample shows, labels, grid), kept for a sample; loss(f, target, diff) fills diff (L x n)

class ConstrainedHeadLoss:
    """Of layers/constrained_loss.py, as the nets of own_nets use it."""

    def __init__(self, layer: Any) -> None:
        settings = parse(layer.python_param.param_str)
        kind = settings.pop("supervision", "tags")
        rules, classes = settings.pop("priors", None), settings.pop("classes", None)
        self.knows_cue, surfaces = settings.pop("cue", False), settings.pop("surfaces", ())
        strange = settings.keys() - SUPERVISION[kind].bounds.keys()
        if strange:
            raise UserError(f"layer {layer.name!r}: the NumPy trainer does not know the setting {min(strange)!r}; use "
                            "--trainer caffe")
        self.builder = ConstraintBuilder(SUPERVISION[kind], settings,
                                         read_rules(rules, read_classes(classes)) if rules else None,
                                         surfaces=surfaces)
        self.knows_pixels = "labels" in layer.bottom
        self.counts: collections.Counter = collections.Counter()

    def target(self, blobs: dict, labels: int, grid: tuple[int, int]) -> Any:
        arrays = [blobs[name] for name in self.builder.kind.names]
        return self.builder.build(arrays, labels, grid, blobs["labels"] if self.knows_pixels else None,
                                  cue=blobs["cue"] if self.knows_cue else None)

    def __call__(self, f: np.ndarray, target: Any, diff: np.ndarray) -> float:
        solved, = solve_batch(f[None], [target], diff[None], threads=1)
        self.counts[solved.status] += 1
        return solved.loss


class LabelLoss:
    """Caffe's SoftmaxWithLoss: the mean of -log q over the cells whose label is known."""

    def __init__(self, layer: Any) -> None:
        self.counts: collections.Counter = collections.Counter()

    def target(self, blobs: dict, labels: int, grid: tuple[int, int]) -> Any:
        cells = blobs["labels"].ravel().astype(int)
        known = np.flatnonzero(cells != VOID)
        return known, cells[known]

    def __call__(self, f: np.ndarray, target: Any, diff: np.ndarray) -> float:
        known, labels = target
        if not np.isfinite(f).all():
            raise ValueError(f"scores hold {np.count_nonzero(~np.isfinite(f))} NaN or infinite values")
        log_q = log_softmax(f)
        count = max(1, known.size)
        diff[...] = 0
        diff[:, known] = np.exp(log_q[:, known])
        diff[labels, known] -= 1
        diff /= count
        return -float(log_q[labels, known].sum(dtype=float)) / count


LOSSES: dict = {"ConstrainedLossLayer": ConstrainedHeadLoss, "SoftmaxWithLoss": LabelLoss}


# The optimiser

class NumpyAdam:
    """Caffe's: the correction of the moments is in the rate, and delta is added to the square root.

    g = sum of the gradients / iter_size + weight_decay decay_mult w
    m = momentum m + (1 - momentum) g        v = momentum2 v + (1 - momentum2) g^2
    w -= rate lr_mult sqrt(1 - momentum2^t) / (1 - momentum^t) m / (sqrt(v) + delta)      in step t = 1, 2, ...
    """

    def __init__(self, solver: Any, rates: list[float], decays: list[float], parameters: list[np.ndarray]) -> None:
        self.solver, self.rates, self.decays = solver, rates, decays
        self.m, self.v = ([np.zeros_like(w) for w in parameters] for _ in range(2))

    def step(self, iteration: int, parameters: list[np.ndarray], gradients: list[np.ndarray]) -> None:
        s, t = self.solver, iteration + 1
        rate = schedule.rate(s, iteration) * math.sqrt(1 - s.momentum2 ** t) / (1 - s.momentum ** t)
        for w, g, m, v, own, decay in zip(parameters, gradients, self.m, self.v, self.rates, self.decays):
            if own:
                g = g / np.float32(s.iter_size) + np.float32(s.weight_decay * decay) * w
                m += np.float32(1 - s.momentum) * (g - m)
                v += np.float32(1 - s.momentum2) * (g * g - v)
                w -= np.float32(rate * own) * m / (np.sqrt(v) + np.float32(s.delta))


# A training

class HeadTraining:
    """One round of a training; it writes what `caffe train` writes.

    start_at    the iteration at which it begins
    """

    def __init__(self, solver: Any, net: HeadNet) -> None:
        self.solver, self.net = solver, net
        self.start_at = 0
        self.log = Path(f"{solver.snapshot_prefix}.log")
        self.model = self.snapshot_path(solver.max_iter, ".caffemodel")
        self.stopping = False
        self.parameters: list[np.ndarray] = []

    @property
    def finished(self) -> bool:
        """Nothing was left to do."""
        return self.start_at >= self.solver.max_iter

    @property
    def name(self) -> str:
        return Path(self.solver.snapshot_prefix).name

    def snapshot_path(self, iteration: int, suffix: str) -> Path:
        return Path(f"{self.solver.snapshot_prefix}_iter_{iteration}{suffix}")

    def begin(self, snapshot: Optional[Path], weights: Optional[Path]) -> None:
        state = read_state(snapshot) if snapshot else None
        source = state.weights if state else weights
        self.parameters = self.net.random(self.solver.random_seed)
        if source:
            self.parameters = self.net.from_arrays({**self.net.to_arrays(self.parameters), **read_caffemodel(source)})
        self.adam = NumpyAdam(self.solver, self.net.rates, self.net.decays, self.parameters)
        if state:
            count = len(self.parameters)
            for moments, kept in ((self.adam.m, state.history[:count]), (self.adam.v, state.history[count:])):
                for old, new in zip(moments, kept):
                    old[...] = new.reshape(old.shape)

    def run(self) -> bool:
        """Train to the end, with a progress bar. True if ^C has stopped it, with a snapshot."""
        if self.finished:
            return False
        s = self.solver
        with whole_file(f"{s.snapshot_prefix}.solver.prototxt") as part:
            part.write_text(f"# Written by ccnn/training/head.py.\n{s}", encoding="utf-8")
        losses: collections.deque = collections.deque(maxlen=s.average_loss)
        with signals_call(self.stop), one_blas_thread(), caffe_log.Writer(self.log) as kept, Progress(
                total=s.max_iter, initial=self.start_at, unit="it", desc=self.name, smoothing=0.1,
                mininterval=1) as bar:
            for iteration in range(self.start_at, s.max_iter):
                losses.append(self.step(iteration))
                if s.display and iteration % s.display == 0:
                    kept.loss(iteration, float(np.mean(losses)))
                    kept.rate(iteration, schedule.rate(s, iteration))
                    bar.set_postfix_str(f"loss {losses[-1]:.4g}", refresh=False)
                bar.update()
                done = iteration + 1
                if self.stopping or done == s.max_iter or (s.snapshot and done % s.snapshot == 0):
                    self.write_snapshot(done)
                if self.stopping and done < s.max_iter:
                    return True
            kept.loss(s.max_iter, float(np.mean(losses)))
        return False

    def stop(self) -> None:
        """End after this step, with a snapshot; called again, at once and without."""
        if self.stopping:
            raise KeyboardInterrupt
        log.info("stopping after this iteration, with a snapshot; once more to stop at once, without")
        self.stopping = True

    def step(self, iteration: int) -> float:
        """One step of the optimiser; the mean loss of its samples."""
        gradients = [np.zeros_like(w) for w in self.parameters]
        first, loss = iteration * self.solver.iter_size, 0.0
        for t in range(first, first + self.solver.iter_size):
            try:
                loss += self.net.add_gradient(self.parameters, self.net.sample(t), gradients)
            except UserError:
                raise
            except ValueError as e:             # of the solver, or of the constraints
                raise UserError(f"{e} (at iteration {iteration}, {self.net.samples.image(t)}; log: {self.log})") \
                    from None
        if not math.isfinite(loss):
            raise UserError(f"the loss is {loss} (at iteration {iteration}; log: {self.log})")
        with np.errstate(over="ignore", invalid="ignore"):          # the next step reports it
            self.adam.step(iteration, self.parameters, gradients)
        return loss / self.solver.iter_size

    def write_snapshot(self, iteration: int) -> None:
        """The state comes last: it says that both are whole."""
        weights = self.snapshot_path(iteration, ".caffemodel")
        write_caffemodel(weights, self.net.to_arrays(self.parameters))
        history = in_caffes_shapes([*self.adam.m, *self.adam.v])
        write_state(self.snapshot_path(iteration, ".solverstate"), TrainingState(iteration, str(weights), history, 0))


def in_caffes_shapes(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Weights are L x C x 1 x 1."""
    return [array.reshape(*array.shape, 1, 1) if array.ndim == 2 else array for array in arrays]
