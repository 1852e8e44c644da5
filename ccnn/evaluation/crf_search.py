"""Search for the CRF's parameters on images with masks, coarse to fine.

    search = Search(Path("mine.json"), choose(sources, photographs, masks, count=100), labels=21, jobs=2)
    best = search.run()             # also in mine.json, for load_preset
    search.miou[best]

The search is DeepLab's: gaussian kernel fixed at 3 / 3, ten iterations; first three values of each parameter of the
bilateral kernel, then the neighbours of the best, one step away, until no neighbour is better. Distances are for
photographs of 500 pixels and scale with the photograph: what is found on small ones holds for large ones.
"""
import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import digest, whole_file
from ccnn._util.foreign_files import load_json
from ccnn._util.progress import Progress
from ccnn._util.workers import Jobs, in_processes
from ccnn.crf.dense import LONG_SIDE, PRESETS, Preset
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.listing import pair_with_photographs
from ccnn.images.reading import read_mask
from ccnn.inference.probabilities import refine

COARSE = {"bilateral_weight": (5, 7, 10), "bilateral_xy": (50, 70, 100), "bilateral_rgb": (3, 6, 10)}

STEPS = {"bilateral_weight": 1, "bilateral_xy": 10, "bilateral_rgb": 1}     # of the fine search

# what all that compete have in common; the other parameters are set by the search
FIXED = Preset(gaussian_xy=3, gaussian_weight=3, bilateral_xy=1, bilateral_rgb=1, bilateral_weight=1, iterations=10,
               long_side=LONG_SIDE, keep=PRESETS["heads"].keep)

SEARCHED = {field: getattr(FIXED, field) for field in STEPS}

log = logging.getLogger(__name__)


class Search:
    """What was tried so far, in memory and in the preset file."""

    def __init__(self, path: Path, images: Sequence[tuple[Path, Path, Path]], labels: int, jobs: Jobs) -> None:
        self.path, self.images, self.labels, self.jobs = path, images, labels, jobs
        self.miou: dict[Optional[Preset], float] = {}       # None is no CRF
        self.inputs = digest(*itertools.chain.from_iterable(images))
        if path.exists():
            self.resume()

    def resume(self) -> None:
        """Take over what an earlier search on the same files has tried."""
        try:
            kept = load_json(self.path.read_text())
            inputs, tried = kept["inputs"], kept["tried"]
            self.miou = {preset and Preset(**preset): float(miou) for preset, miou in tried}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path}: exists and is not a search of this tool; choose another --out") from None
        if inputs != self.inputs:
            raise UserError(f"{self.path}: is a search on other images or probabilities; choose another --out")
        log.info("%s: %d presets were scored before", self.path, len(self.miou))

    def best(self) -> Preset:
        """The best preset of the search. Named presets, which differ in more than what is searched, do not compete."""
        tried = [preset for preset in self.miou if preset and preset._replace(**SEARCHED) == FIXED]
        return max(tried, key=lambda preset: self.miou[preset])

    def run(self) -> Preset:
        """Score the named presets and no CRF, then the coarse values, then neighbours of the best until none is
        better; return the best."""
        self.score([None, *PRESETS.values()], "presets")
        self.score(combinations(COARSE), "coarse")
        while True:
            best = self.best()
            self.score(neighbours(best), "fine")
            if self.best() == best:
                self.save(done=True)
                return best

    def score(self, presets: Iterable[Optional[Preset]], what: str) -> None:
        """Score those that are not yet; every finished one is saved. what: the name of the progress bar."""
        todo = [preset for preset in presets if preset not in self.miou]
        tasks = ((preset, *files, self.labels) for preset in todo for files in self.images)
        total = {preset: np.zeros((self.labels, self.labels), int) for preset in todo}
        left = dict.fromkeys(todo, len(self.images))
        with Progress(total=len(todo) * len(self.images), desc=what, unit="image") as bar:
            for preset, confusions, error in in_processes(score_one, tasks, self.jobs, failed=left_out):
                if error:
                    raise UserError(error)
                bar.update()
                total[preset] += confusions
                left[preset] -= 1
                if not left[preset]:
                    self.miou[preset] = float(scored("truth", "", True, total[preset]).miou)
                    self.save()

    def save(self, done: bool = False) -> None:
        kept = {"done": done, "images": len(self.images), "inputs": self.inputs,
                "tried": [[preset and preset._asdict(), miou] for preset, miou in self.miou.items()]}
        if done:
            kept = {"preset": self.best()._asdict(), "miou": self.miou[self.best()], **kept}
        with whole_file(self.path) as part:
            part.write_text(json.dumps(kept, indent=1))


def choose(sources: Sequence[Path], images: Path, masks: Path, count: int) -> list[tuple[Path, Path, Path]]:
    """[(probabilities, photograph, mask)]: `count` of them, evenly spaced in the order of their names."""
    pairs = sorted(pair_with_photographs(sources, images))
    found = [(path, image, masks / f"{path.stem}.png") for path, image in pairs]
    found = [files for files in found if files[2].is_file()]
    if len(found) < count:
        raise UserError(f"{len(found)} of the .npz files have a mask in {masks}, need {count}; "
                        "give more, or set --count")
    return [found[i * len(found) // count] for i in range(count)]


def combinations(values: Mapping[str, Sequence]) -> list[Preset]:
    """Every combination of the values."""
    return [FIXED._replace(**dict(zip(values, point))) for point in itertools.product(*values.values())]


def neighbours(preset: Preset) -> list[Preset]:
    """The presets at most one step away in every parameter."""
    around = {field: [getattr(preset, field) + k * step for k in (-1, 0, 1)] for field, step in STEPS.items()}
    return combinations({field: [value for value in values if value > 0] for field, values in around.items()})


def left_out(why: str, preset: Optional[Preset], source: Path, photograph: Path, *_) -> tuple:
    """The result of score_one for an image that ends its worker."""
    return preset, None, f"{photograph}: {why}"


def score_one(preset: Optional[Preset], source: Path, photograph: Path, mask: Path, labels: int) -> tuple:
    """(preset, confusion matrix, None), or an error's text as the third."""
    try:
        truth = read_mask(mask, labels)
        found, _ = refine(source, photograph, preset)
        if truth.shape != found.shape:
            raise UserError(f"{mask}: {truth.shape} is not the size of {photograph}, {found.shape}")
        if found.max() >= labels:
            raise UserError(f"{source}: finds label {found.max()}, but there are {labels} classes; "
                            "give them with --classes")
        return preset, confusion(truth, found, labels), None
    except UserError as e:
        return preset, None, str(e)
