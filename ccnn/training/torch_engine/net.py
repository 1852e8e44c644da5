"""A net of Caffe, built from its prototxt as a module of PyTorch: no net is written a second time."""
from typing import Any

import numpy as np
import torch

from ccnn._util.errors import Unable, UserError
from ccnn._util.files import PathLike
from ccnn.nets.caffe_files import Arrays
from ccnn.training.torch_engine.layers import LAYERS, Convolution, Layer, LayerContext


class Net(torch.nn.Module):
    """The layers of a net in their order, from what the data layer delivers to the loss.

    loss_weights  {blob: weight}, what is added up
    outputs       the blobs that nobody uses: Caffe logs them
    on_the_cpu    what the data layer delivers for the losses alone: supervision, which they want there
    """

    def __init__(self, net: Any, where: PathLike, context: LayerContext) -> None:
        """net : NetParameter   where : its name in an error"""
        super().__init__()
        self.where = where
        self.layers = [layer for layer in net.layer if not is_source(layer)]
        self.parts = torch.nn.ModuleList(self.build(layer, context) for layer in self.layers)
        self.sources = [top for layer in net.layer if is_source(layer) for top in layer.top]
        self.loss_weights = {blob: weight for layer in self.layers for blob, weight in loss_weights(layer).items()}
        used = {blob for layer in self.layers for blob in layer.bottom}
        self.outputs = sorted({blob for layer in net.layer for blob in layer.top} - used)
        elsewhere = {blob for layer, part in zip(self.layers, self.parts)
                     for blob in (layer.bottom[:1] if part.takes_supervision else layer.bottom)}
        self.on_the_cpu = set(self.sources) - elsewhere
        if not self.loss_weights:
            raise UserError(f"{where}: has no loss to train with")

    def build(self, layer: Any, context: LayerContext) -> Layer:
        if layer.type not in LAYERS:
            raise self.unknown(layer, f"is of type {layer.type!r}")
        if layer.include or layer.exclude or layer.propagate_down or any(param.name for param in layer.param):
            raise self.unknown(layer, "has rules of inclusion or propagation, or shares its weights")
        try:
            return LAYERS[layer.type](layer, context)
        except UserError:
            raise
        except ValueError as problem:
            raise self.unknown(layer, str(problem)) from None

    def unknown(self, layer: Any, what: str) -> Unable:
        return Unable(f"{self.where}: layer {layer.name!r} {what}, which PyTorch's engine does not know; it knows "
                      f"{', '.join(sorted(LAYERS))} as our nets use them: use --engine caffe")

    def forward(self, blobs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """(loss, {output: its values}) of what the data layer has delivered."""
        blobs = dict(blobs)
        uses = [blob for layer in self.layers for blob in layer.bottom]
        total = torch.zeros(())
        for layer, part in zip(self.layers, self.parts):
            found = part(*(blobs[blob] for blob in layer.bottom))
            for blob in layer.bottom:
                uses.remove(blob)
            blobs.update(zip(layer.top, found if isinstance(found, tuple) else [found]))
            for top in layer.top:
                if top in self.loss_weights:
                    total = total.to(blobs[top].device) + self.loss_weights[top] * blobs[top].sum()
            for blob in {*layer.bottom}.difference(uses, self.outputs):
                del blobs[blob]             # a blob's memory is free as soon as nobody needs it
        return total, {name: blobs[name].detach() for name in self.outputs}

    # Weights

    @property
    def convolutions(self) -> dict[str, Convolution]:
        return {layer.name: part for layer, part in zip(self.layers, self.parts) if isinstance(part, Convolution)}

    def multiples(self) -> tuple[list[float], list[float]]:
        """Of the rate and of the decay, for every parameter."""
        pairs = [pair for part in self.convolutions.values()
                 for pair, _ in zip(zip(part.rates, part.decays), part.parameters())]
        return [rate for rate, _ in pairs], [decay for _, decay in pairs]

    @torch.no_grad()
    def load(self, weights: Arrays) -> None:
        """Weights of a .caffemodel that was checked to be of this net; layers that it lacks stay as they are."""
        for name, part in self.convolutions.items():
            for parameter, array in zip(part.parameters(), weights.get(name, [])):
                parameter.copy_(torch.from_numpy(array.reshape(parameter.shape)))

    def arrays(self) -> Arrays:
        return {name: [to_array(parameter) for parameter in part.parameters()]
                for name, part in self.convolutions.items()}


def to_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy(force=True)


def is_source(layer: Any) -> bool:
    """A layer that delivers what it got from outside: our data layers, Input."""
    return not layer.bottom and layer.type in ("Python", "Input")


def loss_weights(layer: Any) -> dict[str, float]:
    """The weights of a layer's tops in the loss: those it names, else 1 for the first top of a loss of Caffe's."""
    given = list(layer.loss_weight) or [1.0] * layer.type.endswith("Loss")
    return {top: weight for top, weight in zip(layer.top, given) if weight}
