"""Whether a class is an object, which stands out in photographs, or a surface, such as sky, grass or a crack in a wall.

A cue finds objects, not surfaces. constraints.toml may say which a class is. For the others the photographs decide,
before any training. Let x_i be the features of cell i of a photograph and m their mean.

    1  ridge regression of "the class is tagged" on m, over all photographs, gives weights w
    2  w' x_i tells roughly where in a photograph the class is: a class activation map
    3  a photograph with the class votes "object" if the mean of w' x_i inside the map of the cue (S >= 1/2) is larger
       than outside

A class is an object if at least DECISION.votes of these photographs say so. Where fewer than DECISION.least
photographs have the class, or lack it, nothing is decided, and it is taken for an object.
"""
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np

from ccnn.data.dataset import read_map
from ccnn.images.grid import positions, sample
from ccnn.images.labels import BACKGROUND
from ccnn.project.feature_cache import maps_folder

if TYPE_CHECKING:
    from ccnn.project.learn import Project


class Decision(NamedTuple):
    """The numbers of the decision."""
    votes: float = 0.5          # share of the photographs
    least: int = 4              # photographs with the class, and without it
    ridge: float = 0.1          # of the mean of the squares
    empty: float = 0.01         # of the cells: a map with fewer inside, or outside, has no vote


DECISION = Decision()


class ClassKind(NamedTuple):
    is_object: bool
    why: str                            # for the report
    votes: Optional[float] = None       # share of the photographs that say "object"

    @property
    def word(self) -> str:
        return "object" if self.is_object else "surface"


class Pooled(NamedTuple):
    """Means of a photograph's features over its cells."""
    present: np.ndarray                 # (L,) bool, its tags
    whole: np.ndarray                   # (C,)
    apart: Optional[np.ndarray]         # (C,) inside minus outside; None: the map is empty or full


def decide(project: "Project") -> dict[int, ClassKind]:
    """{label: ClassKind} of every class but the background."""
    said = project.folder.rules.kinds if project.folder.rules else {}
    labels = [label for label in range(len(project.folder.classes)) if label != BACKGROUND]
    photographs = [] if all(label in said for label in labels) else pool(project)
    return {label: ClassKind(said[label] == "object", "constraints.toml says so") if label in said else
            kind_of(label, photographs) for label in labels}


def kind_of(label: int, photographs: list[Pooled], decision: Decision = DECISION) -> ClassKind:
    y = np.array([photograph.present[label] for photograph in photographs], float)
    apart = [one.apart for one in photographs if one.present[label] and one.apart is not None]
    if min(y.sum(), (1 - y).sum(), len(apart)) < decision.least:
        return ClassKind(True, "too few photographs to decide")
    X = np.array([photograph.whole for photograph in photographs], float)
    X -= X.mean(axis=0)
    K = X @ X.T
    w = X.T @ np.linalg.solve(K + decision.ridge * max(np.trace(K) / len(y), 1e-9) * np.eye(len(y)), y - y.mean())
    votes = float(np.mean([w @ difference > 0 for difference in apart]))
    return ClassKind(votes >= decision.votes, f"it stands out in {votes:.0%} of its photographs", votes)


def pool(project: "Project") -> list[Pooled]:
    assert project.cue
    size, maps, found = project.recipe.sizes[0], maps_folder(project.work, project.cue.name), []
    for id, photograph in project.folder.photographs.items():
        x = np.load(project.work / f"features/{size}/{id}.npy").astype(np.float32)
        S = read_map(maps / f"{id}.npy").astype(np.float32)
        inside = sample(S[None], *(positions(*sides) for sides in zip(x.shape[1:], S.shape)))[0].ravel() >= 0.5
        x, apart = x.reshape(len(x), -1), None
        if DECISION.empty <= inside.mean() <= 1 - DECISION.empty:
            apart = x[:, inside].mean(axis=1) - x[:, ~inside].mean(axis=1)
        found.append(Pooled(photograph.present, x.mean(axis=1), apart))
    return found
