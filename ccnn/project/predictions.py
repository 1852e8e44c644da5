"""Predictions of a net for the photographs of a folder, and the masks that follow from them and the tags.

    for prediction in predict(project, weights, ids):
        prediction.scores, prediction.loss      # means over the sizes at which the net sees the photograph
        label_mask(prediction, shape)           # the most likely label of each cell, given all that is known

The net is the training net, with its samples and its loss, so that the loss is the one that the training minimised.
"""
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np

from ccnn.images.grid import Scores, mean_scores
from ccnn.images.reading import fit, upright_shape
from ccnn.nets.caffe_files import parse_net, read_caffemodel
from ccnn.solver.constraints import Constraints
from ccnn.supervision.constraint_builder import solve
from ccnn.training.head import HeadNet

if TYPE_CHECKING:
    from ccnn.project.learn import Project


class Prediction(NamedTuple):
    id: str
    shape: tuple                # of the photograph: height, width
    scores: Scores              # the net's output; it does not see the tags
    loss: float                 # how far the output is from what is known
    constraints: Constraints    # what is known, on the grid of the scores


def predict(project: "Project", weights: Path, ids: Sequence[str], split: Optional[Path] = None
            ) -> Iterator[Prediction]:
    """The predictions for all photographs of the folder, or of a split, in their order."""
    arrays, nets = read_caffemodel(weights), {}
    for size in project.recipe.sizes:
        text, _ = project.nets(project.folder.path.resolve(), sizes=[size], shuffle=False, split=split)
        nets[size] = HeadNet(parse_net(text.encode(), project.work), project.work, project.memory)
    for number, id in enumerate(ids):
        (height, width), predictions = upright_shape(project.folder.photographs[id].file), []
        for size, net in nets.items():
            sample = net.sample(number)
            f = net.scores(net.from_arrays(arrays), sample)
            scores = project.recipe.backbone.scores(f.reshape(len(f), *sample.grid), (height, width), size)
            loss = net.loss(f, sample.target, np.empty_like(f))
            predictions.append(Prediction(id, (height, width), scores, loss, sample.target))
        scores = mean_scores([prediction.scores for prediction in predictions])
        finest = next(prediction for prediction in predictions if prediction.scores.shape == scores.shape)
        yield finest._replace(scores=scores, loss=float(np.mean([prediction.loss for prediction in predictions])))


def label_mask(prediction: Prediction, shape: tuple) -> np.ndarray:
    """The photograph's mask on rows x columns pixels, uint8. Each cell gets the label that is most likely under p, the
    distribution nearest to the net's output that obeys the constraints."""
    f = np.asarray(prediction.scores.values, np.float32)
    labels = solve(f, prediction.constraints).p.argmax(axis=0).reshape(f.shape[1:]).astype(np.uint8)
    cells = [np.rint(at).astype(int).clip(0, size - 1)
             for at, size in zip(prediction.scores.cells(*shape), labels.shape)]
    return labels[np.ix_(*cells)]


def small_shape(shape: tuple, sizes: Sequence[int]) -> tuple:
    """(height, width) of the smallest copy of a photograph that can replace it: reduced to any of the sizes, copy and
    photograph have the same shape, in spite of rounding twice."""
    height, width = shape
    copies = (fit(height, width, side) for side in range(max(sizes), max(shape)))
    return next((copy for copy in copies if all(fit(copy[0], copy[1], size) == fit(height, width, size)
                                                for size in sizes)), shape)
