"""Learn from arrays and tags in memory, in scikit-learn's manner: a few lines over `ccnn learn`."""
import csv
import functools
import inspect
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import save, unlock
from ccnn._util.text import plural
from ccnn.evaluation.scores import confusion, scored
from ccnn.inference.model import Model, checked
from ccnn.project.folder import check_class_names, read_folder
from ccnn.project.learn import Project
from ccnn.project.report import FOUND, NOTICED


class Segmenter:
    """A segmenter of your own classes, learned from photographs and the names of what they show.

        s = ccnn.Segmenter().fit(photographs, [["cat"], ["cat", "dog"], []])
        masks = s.predict(others)           # a list of H x W label numbers; s.classes_ has their names
        s.save("pets.ccnn")                 # for ccnn.load_model, ccnn segment, ccnn studio

    classes     names of the classes; None: all that occur in the tags, sorted
    steps       of the training, of 4 photographs each; None: as `ccnn learn` has it
    seed        of the first weights and of the order of the photographs
    n_jobs      processes that compute features. More than one needs `if __name__ == "__main__":` in the script
    crf         sharpen the masks of predict with the dense CRF

    After fit: classes_, the names of the labels, the background first; model_, a ccnn.Model. It needs ccnn[photos];
    scikit-learn is not needed, but clone, cross_val_score and pickle work.
    """

    def __init__(self, classes: Optional[Sequence[str]] = None, steps: Optional[int] = None, seed: int = 1,
                 n_jobs: int = 1, crf: bool = False) -> None:
        self.classes, self.steps, self.seed, self.n_jobs, self.crf = classes, steps, seed, n_jobs, crf

    def fit(self, photographs: Sequence[np.ndarray], tags: Sequence[Collection[str]]) -> "Segmenter":
        """Learn. photographs : H x W x 3 uint8 arrays of any sizes   tags : for each, the names of its classes"""
        photographs, tags = check_pairs(photographs, tags)
        given = sorted({name for names in tags for name in names}) if self.classes is None else list(self.classes)
        check_class_names(["background", *given], "tags")
        with tempfile.TemporaryDirectory(prefix="ccnn-") as folder:
            write_folder(Path(folder), photographs, tags, given)
            project = Project(read_folder(folder), self.steps, self.seed)
            try:
                check_written(project, tags)
                project.compute_features(self.n_jobs)
                if project.train():
                    raise KeyboardInterrupt
                project.write_model()
            finally:
                unlock(project.lock)
            self._file = project.model.read_bytes()
        self.__dict__.pop("model_", None)
        self.classes_ = self.model_.classes
        return self

    @functools.cached_property
    def model_(self) -> Model:
        if not hasattr(self, "_file"):
            raise UserError("this Segmenter has learned nothing yet; call fit(photographs, tags) first")
        with tempfile.TemporaryDirectory(prefix="ccnn-") as folder:
            path = Path(folder, "model.ccnn")
            path.write_bytes(self._file)
            return Model(path)

    def predict(self, photographs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The mask of each photograph, H x W uint8."""
        return [self.model_.segment(checked(rgb, f"photographs[{k}]"), crf=self.crf)
                for k, rgb in enumerate(photographs)]

    def score(self, photographs: Sequence[np.ndarray], truth: Sequence[Any]) -> float:
        """How well photographs are segmented, 0 to 1.

        truth   masks, H x W arrays of label numbers, 255 where unknown: the mean IoU. Or tags, as for fit: the share
                of all pairs of photograph and class that are right. A tagged class is found if it covers 1 % of the
                mask; another one is seen wrongly if it covers 5 %.
        """
        masks = self.predict(photographs)
        if len(masks) != len(truth):
            raise UserError(f"need the truth of each photograph; got {len(masks)} photographs and {len(truth)} truths")
        labels = len(self.classes_)
        if all(isinstance(one, np.ndarray) and one.ndim == 2 for one in truth):
            for k, (true, mask) in enumerate(zip(truth, masks)):
                if true.shape != mask.shape or not ((true < labels) | (true == 255)).all():
                    raise UserError(f"truth[{k}] must be {mask.shape[0]} x {mask.shape[1]} labels below {labels}, or "
                                    f"255; got shape {true.shape}, labels up to {true.max()}")
            C = np.sum([confusion(true, mask, labels) for true, mask in zip(truth, masks)], axis=0)
            return scored("masks", "", False, C).miou / 100
        _, tags = check_pairs(photographs, truth)
        areas = np.array([np.bincount(mask.ravel(), minlength=labels)[1:labels] / mask.size for mask in masks])
        present = np.array([[name in names for name in self.classes_[1:]] for names in tags])
        return float(np.where(present, areas >= FOUND, areas < NOTICED).mean())

    def save(self, path: Any) -> None:
        """Write the model as a file, NAME.ccnn."""
        assert self.model_
        save(path, self._file)

    # What scikit-learn asks of an estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(Segmenter).parameters}

    def set_params(self, **params: Any) -> "Segmenter":
        for name, value in params.items():
            if name not in self.get_params():
                raise UserError(f"Segmenter has no parameter {name!r}; it has {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags
        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "model_"}

    def __repr__(self) -> str:
        return f"Segmenter({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"


def check_pairs(photographs: Sequence[np.ndarray], tags: Sequence[Collection[str]]) -> tuple[list, list]:
    photographs = [checked(rgb, f"photographs[{k}]") for k, rgb in enumerate(photographs)]
    if len(photographs) != len(tags):
        raise UserError(f"need the tags of each photograph; got {plural(len(photographs), 'photograph')} and tags of "
                        f"{len(tags)}")
    for k, names in enumerate(tags):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise UserError(f"tags[{k}] must be a list of class names, got {names!r}")
    return photographs, [list(names) for names in tags]


def write_folder(folder: Path, photographs: list, tags: list, classes: list) -> None:
    """The folder that `ccnn learn` reads."""
    from PIL import Image
    (folder / "classes.txt").write_text("\n".join(classes), encoding="utf-8")
    with open(folder / "tags.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "tags"])
        for k, (rgb, names) in enumerate(zip(photographs, tags)):
            Image.fromarray(rgb).save(folder / f"{k:06d}.png", compress_level=1)
            rows.writerow([f"{k:06d}.png", ";".join(names)])


def check_written(project: Project, tags: list) -> None:
    """A name that a table cannot hold, such as one with a semicolon, must not become two."""
    for k, (known, names) in enumerate(zip(project.folder.photographs.values(), tags)):
        found = project.folder.names(known.present)
        if found != sorted(set(names)):
            raise UserError(f"tags[{k}]: a table of tags cannot hold {sorted(set(names))!r}; rename the class")
