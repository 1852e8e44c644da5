"""What a model has learned from a folder: its masks of the photographs, tags on photographs held out, the report.

    photographs = look(lesson)              # every photograph under its mask, worst first in the report
    tallies, sentence = hold_out(lesson, folds(lesson))     # learns from some and asks for the tags of the others
    write(lesson, warnings, photographs, tallies, sentence)
"""
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import numpy as np

import ccnn
from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.progress import Progress
from ccnn._util.text import plural
from ccnn._util.work_folder import remove
from ccnn.images.grid import label_map
from ccnn.images.overlays import thumbnail
from ccnn.images.reading import fit, read_image
from ccnn.project.checks import near_duplicates, read_fingerprints
from ccnn.project.folder import fingerprint
from ccnn.project.learn import Lesson
from ccnn.project.predictions import Answer, ask
from ccnn.project.report import FOUND, NOTICED, SIDES, Photograph, Report, Tally, next_steps, write_report
from ccnn.supervision.constraints import area_bounds
from ccnn.training.caffe_log import read_log
from ccnn.training.caffe_training import run_all

FEW = 300               # below so many photographs, each is held out once, in FOLDS parts; else one of PARTS parts

FOLDS, PARTS = 3, 10

LEAST = 2 * FOLDS       # photographs that are needed to hold some out


def shares(mask: np.ndarray, labels: int) -> np.ndarray:
    return np.bincount(mask.ravel(), minlength=labels)[:labels] / mask.size


def look(lesson: Lesson) -> list:
    """[Photograph] of all photographs, by the model that was trained on them."""
    folder, found = lesson.folder, []
    side = next((side for most, side in SIDES if len(folder.photographs) <= most), SIDES[-1][1])
    for answer in Progress(ask(lesson, lesson.weights, list(folder.photographs)), total=len(folder.photographs),
                           unit="image", desc="report"):
        known = folder.photographs[answer.id]
        rgb = read_image(known.file)
        mask = label_map(answer.scores.values, *answer.scores.cells(*fit(rgb.shape[0], rgb.shape[1], side)))
        found.append(Photograph(
            known.name, thumbnail(rgb, mask, side), tuple(np.flatnonzero(known.present[1:]) + 1),
            shares(mask, len(folder.classes)), area_bounds(answer.constraints), answer.loss))
    return found


# Photographs held out

def folds(lesson: Lesson) -> list:
    """[ids to hold out]. Photographs of the same tags are spread over the folds; those that look nearly the same stay
    together, because a net that has learned from the one knows the other."""
    photographs = lesson.folder.photographs
    groups = {id: [id] for id in photographs}
    for a, b in near_duplicates(read_fingerprints(lesson.folder)):
        if groups[a] is not groups[b]:
            groups[a] += groups[b]
            groups.update(dict.fromkeys(groups[b], groups[a]))
    order = sorted({id(group): group for group in groups.values()}.values(), key=lambda group: (
        photographs[group[0]].present.tolist(), fingerprint([lesson.seed, group[0]])))
    number = FOLDS if len(photographs) < FEW else PARTS
    parts = [sum(order[k::number], []) for k in range(number)]
    return parts if number == FOLDS else parts[:1]


def hold_out(lesson: Lesson, parts: list) -> tuple:
    """([Tally] of each class but the background, a sentence), from short trainings without the photographs held out.

    parts : folds(lesson)
    """
    ids = list(lesson.folder.photographs)
    if len(ids) < LEAST:
        return None, f"Nothing was held out: that takes at least {LEAST} photographs."
    place, trainings = lesson.work / f"folds/{fingerprint(lesson.question)}", []
    for k, held in enumerate(parts):
        split = write_list(place / f"{k}.txt", [id for id in ids if id not in set(held)])
        net = lesson.write_net(place / f"{k}.prototxt", split=split)
        steps = round(lesson.steps * lesson.recipe.check)
        trainings.append(lesson.prepare(lesson.solver(steps, net, place / f"fold{k}")))
    if lesson.trainer == "caffe":
        run_all(trainings, jobs=2)
    elif any(training.run() for training in trainings):
        raise KeyboardInterrupt
    tallies = np.zeros((len(lesson.folder.classes) - 1, 3), int)
    for k, (held, training) in enumerate(zip(parts, trainings)):
        split = write_list(place / f"{k}-held.txt", held)
        for answer in ask(lesson, training.model, held, split):
            tallies += tally(lesson, answer)
    remove(place.parent)
    how = f"{len(parts[0])} of {len(ids)} photographs were held out of a short training."
    if len(parts) > 1:
        how = f"Each photograph was held out once: {len(parts)} short trainings, each without a part of them."
    return [Tally(*map(int, row)) for row in tallies], (
        f"{how} A class is found if it covers {FOUND:.0%} of a photograph or more; if it is not tagged, {NOTICED:.0%}.")


def tally(lesson: Lesson, answer: Answer) -> np.ndarray:
    """found, missed, false of each class, on one photograph."""
    present = lesson.folder.photographs[answer.id].present[1:]
    f = answer.scores.values
    area = shares(f.argmax(axis=0), len(f))[1:]                                # on the grid: nobody looks at the mask
    return np.stack([present & (area >= FOUND), present & (area < FOUND), ~present & (area >= NOTICED)], axis=1)


def write_list(path, ids: Sequence[str]) -> Path:
    with whole_file(path) as part:
        part.write_text("".join(f"{id}.jpg\n" for id in ids))       # one suffix is dropped by who reads it
    return Path(path)


def scores(lesson: Lesson, tallies: Optional[list]) -> Optional[dict]:
    """What the model tells of photographs held out."""
    if not tallies:
        return None
    return {"tags held out": {name: tally._asdict() for name, tally in zip(lesson.folder.classes[1:], tallies)}}


# The report

def write(lesson: Lesson, warnings: list, photographs: list, tallies: Optional[list], held_out: str) -> None:
    """photos/report.html"""
    folder = lesson.folder
    assert lesson.state, "train() comes first"
    counts = ", ".join(f"{name} {number}" for name, number in folder.images_with().items())
    write_report(lesson.report, Report(
        title=folder.path.resolve().name, classes=folder.classes, photographs=photographs, losses=losses(lesson),
        tallies=tallies, held_out=held_out, warnings=warnings, steps=next_steps(folder.path),
        facts={"photographs": f"{plural(len(photographs), 'photograph')} ({counts})",
               "learned from": {"tags": "tags", "size": "tags and sizes", "boxes": "boxes"}[folder.system],
               "bounds": ", ".join(f"{key} {value}" for key, value in lesson.bounds.items()),
               "training": "{} steps of 4 photographs from what is known of them, then {} from the labels that "
                           "followed; seed {}".format(*lesson.state.steps, lesson.seed),
               "size": f"photographs are seen with long sides of {' and '.join(map(str, lesson.recipe.sizes))} pixels",
               "model": f"{lesson.model.name}, written by ccnn {ccnn.__version__}"}))


def losses(lesson: Lesson) -> dict:
    try:
        return read_log(lesson.weights.with_name("first.log")).loss
    except (UserError, OSError):
        return {}
