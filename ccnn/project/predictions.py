"""What a net says of the photographs of a folder, without their tags; and which masks follow with them.

    for answer in ask(lesson, weights, ids):
        answer.scores, answer.loss          # the mean over the sizes at which the net sees a photograph
        label_mask(answer, shape)           # the most likely label of each cell under all that is known

The net is the training net, with its samples and its loss: a photograph's doubt is its own loss.
"""
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np

from ccnn.images.grid import Scores, mean_scores
from ccnn.images.reading import fit, upright_shape
from ccnn.nets.backbones import VGG16
from ccnn.nets.caffe_files import parse_net, read_caffemodel
from ccnn.solver.constraints import Constraints
from ccnn.supervision.known import solve
from ccnn.training.head import HeadNet

if TYPE_CHECKING:
    from ccnn.project.learn import Lesson


class Answer(NamedTuple):
    id: str
    shape: tuple                # of the photograph: height, width
    scores: Scores              # of the net, which does not know the tags
    loss: float                 # how far it is from what is known
    constraints: Constraints    # what is known, on the grid of the scores


def ask(lesson: "Lesson", weights: Path, ids: Sequence[str], split: Optional[Path] = None) -> Iterator[Answer]:
    """The answers about all photographs of the folder, or of a split, in their order."""
    arrays, nets = read_caffemodel(weights), {}
    for size in lesson.recipe.sizes:
        text, _ = lesson.nets(lesson.folder.path.resolve(), sizes=[size], shuffle=False, split=split)
        nets[size] = HeadNet(parse_net(text.encode(), lesson.work), lesson.work, lesson.memory)
    for number, id in enumerate(ids):
        (height, width), answers = upright_shape(lesson.folder.photographs[id].file), []
        for size, net in nets.items():
            sample = net.sample(number)
            f = net.scores(net.from_arrays(arrays), sample)
            scores = Scores(f.reshape(len(f), *sample.grid), fit(height, width, size), VGG16.stride, VGG16.offset)
            loss = net.loss(f, sample.target, np.empty_like(f))
            answers.append(Answer(id, (height, width), scores, loss, sample.target))
        scores = mean_scores([answer.scores for answer in answers])
        finest = next(answer for answer in answers if answer.scores.shape == scores.shape)
        yield finest._replace(scores=scores, loss=float(np.mean([answer.loss for answer in answers])))


def label_mask(answer: Answer, shape: tuple) -> np.ndarray:
    """The photograph's mask on rows x columns pixels, uint8: at every cell the label that is most likely under p, the
    distribution nearest to the net's output that obeys what is known."""
    f = np.asarray(answer.scores.values, np.float32)
    labels = solve(f, answer.constraints).p.argmax(axis=0).reshape(f.shape[1:]).astype(np.uint8)
    cells = [np.rint(at).astype(int).clip(0, size - 1)
             for at, size in zip(answer.scores.cells(*shape), labels.shape)]
    return labels[np.ix_(*cells)]


def small_shape(shape: tuple, sizes: Sequence[int]) -> tuple:
    """(height, width) of the smallest copy of a photograph that, reduced to any of the sizes, is as large as the
    photograph reduced to it: rounding twice may make a difference."""
    height, width = shape
    copies = (fit(height, width, side) for side in range(max(sizes), max(shape)))
    return next((copy for copy in copies if all(fit(copy[0], copy[1], size) == fit(height, width, size)
                                                for size in sizes)), shape)
