"""Layers of Caffe as modules of PyTorch, one entry of LAYERS per type.

    module = LAYERS[layer.type](layer, context)     # ValueError: a setting of the layer that has no counterpart
    top = module(*bottoms)                          # a tensor, or a tuple of them

The names of the tops, and where the bottoms come from, are the net's concern (ccnn.training.torch_engine.net).
"""
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ccnn._util.errors import UserError
from ccnn.nets.geometry import pair
from ccnn.nets.weights import Shapes
from ccnn.supervision.constrained_loss import LOSSES


class LayerContext(NamedTuple):
    """What a layer cannot know from its own message."""
    shapes: Shapes                  # of the convolutions' weights
    generator: torch.Generator      # of the first weights
    processes: int = 1              # that train together


class Layer(torch.nn.Module):
    """A layer without weights."""

    takes_supervision = False       # all bottoms but the first stay on the CPU, if they come from the data layer

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__()
        self.in_place = len(layer.bottom) == 1 and list(layer.bottom) == list(layer.top)


class Convolution(Layer):
    """Weights O x C x h x w and a bias, each with its multiples of the solver's rate and decay."""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.convolution_param
        self.stride, self.padding, self.dilation = (pair(p, *default) for default in (
            ("stride", 1), ("pad", 0), ("dilation", 1)))
        self.groups = p.group
        if p.axis != 1 or len(layer.bottom) != 1:
            raise ValueError("has another axis or several bottoms")
        shape = context.shapes[layer.name]
        self.weight = filled(shape, p.weight_filler, context.generator)
        self.bias = filled(shape[:1], p.bias_filler, context.generator) if p.bias_term else None
        self.rates, self.decays = ([getattr(layer.param[k], name) if k < len(layer.param) else 1.0 for k in range(2)]
                                   for name in ("lr_mult", "decay_mult"))
        for parameter, rate in zip(self.parameters(), self.rates):
            parameter.requires_grad_(rate != 0)

    def forward(self, x):
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def filled(shape: tuple[int, ...], filler: Any, generator: torch.Generator) -> torch.nn.Parameter:
    """A parameter as Caffe begins with it."""
    if filler.type == "constant":
        return torch.nn.Parameter(torch.full(shape, filler.value))
    if filler.type == "gaussian" and filler.sparse < 0:
        mean, deviation = filler.mean, filler.std
    elif filler.type == "msra" and filler.variance_norm == filler.FAN_IN:
        mean, deviation = 0.0, math.sqrt(2 / math.prod(shape[1:]))
    else:
        raise ValueError(f"has a filler of type {filler.type!r} with settings")
    return torch.nn.Parameter(torch.empty(shape).normal_(mean, deviation, generator=generator))


class Pooling(Layer):
    """Caffe rounds the number of windows up; one that would begin behind the image and its padding is left out."""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.pooling_param
        if p.pool == p.STOCHASTIC:
            raise ValueError("pools at random")
        self.average, self.whole, self.up = p.pool == p.AVE, p.global_pooling, p.round_mode == p.CEIL
        if not self.whole:
            self.kernel, self.stride, self.padding = (pair(p, *default) for default in (
                ("kernel_size", 0), ("stride", 1), ("pad", 0)))
            if self.up and any(s > k for s, k in zip(self.stride, self.kernel)):
                raise ValueError("has a stride that exceeds its kernel")

    def forward(self, x):
        if self.whole:
            return (x.mean if self.average else x.amax)(dim=(2, 3), keepdim=True)
        pool = functional.avg_pool2d if self.average else functional.max_pool2d
        return pool(x, self.kernel, self.stride, self.padding, ceil_mode=self.up)


class ReLU(Layer):
    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        if layer.relu_param.negative_slope:
            raise ValueError("has a negative slope")

    def forward(self, x):
        return functional.relu(x, inplace=self.in_place)


class Dropout(Layer):
    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        self.ratio = layer.dropout_param.dropout_ratio

    def forward(self, x):
        return functional.dropout(x, self.ratio, self.training)


class Power(Layer):
    """(shift + scale x)^power"""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.power_param
        self.power, self.scale, self.shift = p.power, p.scale, p.shift

    def forward(self, x):
        x = x * self.scale if self.scale != 1 else x
        x = x + self.shift if self.shift else x
        return x.sqrt() if self.power == 0.5 else x if self.power == 1 else x ** self.power


class Concat(Layer):
    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        self.axis = layer.concat_param.axis

    def forward(self, *bottoms):
        return torch.cat(bottoms, self.axis)


class Slice(Layer):
    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.slice_param
        self.axis, self.points, self.tops = p.axis, list(p.slice_point), len(layer.top)

    def forward(self, x):
        return torch.tensor_split(x, self.points or self.tops, self.axis)


class Reshape(Layer):
    """0 keeps a side, -1 finds it."""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.reshape_param
        self.sides = list(p.shape.dim)
        if p.axis or p.num_axes != -1:
            raise ValueError("reshapes some axes only")

    def forward(self, x):
        return x.reshape([side or x.shape[k] for k, side in enumerate(self.sides)])


class Bias(Layer):
    """x + b, the axes of b being those of x from `axis` on."""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        self.axis = layer.bias_param.axis
        if len(layer.bottom) != 2:
            raise ValueError("has a bias of its own")

    def forward(self, x, b):
        first = self.axis % x.dim()
        return x + b.reshape([1] * first + list(b.shape) + [1] * (x.dim() - first - b.dim()))


class Silence(Layer):
    def forward(self, *_):
        return ()


class SoftmaxWithLoss(Layer):
    """The mean of -log q over the cells whose label is not to be ignored."""

    takes_supervision = True

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        p = layer.loss_param
        self.ignored = p.ignore_label if p.HasField("ignore_label") else -1
        if p.HasField("normalize") or p.normalization != p.VALID or layer.softmax_param.axis != 1:
            raise ValueError("is normalised in another way, or along another axis")

    def forward(self, scores, labels):
        labels = labels.reshape(len(scores), *scores.shape[2:]).long()
        known = labels != self.ignored
        top = int((labels * known).amax())
        if top >= scores.shape[1]:
            raise UserError(f"a pixel has the label {top}, but the net has {scores.shape[1]} scores, 0 to "
                            f"{scores.shape[1] - 1}")
        total = functional.cross_entropy(scores.float(), labels.to(scores.device, non_blocking=True),
                                         ignore_index=self.ignored, reduction="sum")
        return total / max(1, int(known.sum()))


class SigmoidCrossEntropyLoss(Layer):
    """The sum over the entries, the mean over the images."""

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        if layer.HasField("loss_param"):
            raise ValueError("has a normalisation of its own")

    def forward(self, scores, targets):
        targets = targets.reshape(scores.shape)
        return functional.binary_cross_entropy_with_logits(scores.float(), targets, reduction="sum") / len(scores)


class PythonLoss(Layer):
    """A loss of ccnn.supervision, on the CPU: the class that Caffe's layer in layers/ calls too."""

    takes_supervision = True

    def __init__(self, layer: Any, context: LayerContext) -> None:
        super().__init__(layer, context)
        name = layer.python_param.layer
        if name not in LOSSES:
            raise ValueError(f"is the Python layer {name!r}")
        self.loss = LOSSES[name](layer.python_param.param_str, len(layer.bottom), len(layer.top), name,
                                 context.processes)
        self.diagnostics = len(layer.top) > 1

    def forward(self, scores, *supervision):
        found = np.zeros((len(scores), 4), np.float32) if self.diagnostics else None
        loss = OnTheCPU.apply(scores, self.loss, [blob.numpy(force=True) for blob in supervision], found)
        return loss if found is None else (loss, torch.from_numpy(found))


class OnTheCPU(torch.autograd.Function):
    """A loss that gives its gradient with its value."""

    @staticmethod
    def forward(ctx, scores, loss, supervision, diagnostics):
        f = np.ascontiguousarray(scores.detach().float().numpy(force=True))
        blobs = [f, *supervision]
        shapes = [blob.shape for blob in blobs]
        if shapes != loss.shapes:
            loss.fit(shapes)
        diff = np.empty_like(f)
        value = loss.compute(blobs, diff, diagnostics)
        ctx.gradient, ctx.factor, ctx.scores_type = torch.from_numpy(diff), loss.factor, (scores.device, scores.dtype)
        return torch.tensor(value, dtype=torch.float32)             # on the CPU: the log wants it there

    @staticmethod
    def backward(ctx, slope):
        factor = slope.item() * ctx.factor
        if factor != 1:
            ctx.gradient.mul_(factor)
        return ctx.gradient.to(*ctx.scores_type), None, None, None


LAYERS: dict[str, type[Layer]] = {
    **{kind.__name__: kind for kind in (Convolution, Pooling, ReLU, Dropout, Power, Concat, Slice, Reshape, Bias,
                                        Silence, SoftmaxWithLoss, SigmoidCrossEntropyLoss)},
    "Python": PythonLoss,
}
