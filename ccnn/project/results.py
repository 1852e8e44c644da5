"""What a model has learned from a folder: its masks, the tags it finds on photographs held out, the report.

    entries = report_entries(project)                       # one per photograph
    held = hold_out(project, folds(project))                # short trainings, each without some of the photographs
    write_results(project, warnings, entries, held)
"""
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

import ccnn
from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.progress import Progress
from ccnn._util.text import plural
from ccnn._util.work_folder import remove
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.grid import label_map
from ccnn.images.overlays import thumbnail
from ccnn.images.reading import fit, read_image
from ccnn.project.checks import near_duplicates, perceptual_hashes
from ccnn.project.folder import json_digest
from ccnn.project.learn import Project
from ccnn.project.predictions import Prediction, predict
from ccnn.project.report import FOUND, NOTICED, SIDES, Report, ReportEntry, Tally, next_steps, write_report
from ccnn.supervision.tags_sizes_boxes import area_bounds
from ccnn.training.caffe_log import read_log
from ccnn.training.caffe_training import run_all

FEW = 300               # with fewer photographs, each is held out once, in FOLDS parts; else one of PARTS parts is

FOLDS, PARTS = 3, 10

LEAST = 2 * FOLDS       # photographs; with fewer, none is held out


def shares(mask: np.ndarray, labels: int) -> np.ndarray:
    return np.bincount(mask.ravel(), minlength=labels)[:labels] / mask.size


def report_entries(project: Project) -> list:
    """The model's masks of the photographs it was trained on, for the report."""
    folder, found = project.folder, []
    side = next((side for most, side in SIDES if len(folder.photographs) <= most), SIDES[-1][1])
    ids = list(folder.photographs)
    for prediction in Progress(predict(project, project.weights, ids), total=len(ids), unit="image", desc="report"):
        photograph = folder.photographs[prediction.id]
        rgb = read_image(photograph.file)
        scores = project.final_scores(prediction)
        mask = label_map(scores.values, *scores.cells(*fit(rgb.shape[0], rgb.shape[1], side)))
        found.append(ReportEntry(
            photograph.name, thumbnail(rgb, mask, side), tuple(np.flatnonzero(photograph.present[1:]) + 1),
            shares(mask, len(folder.classes)), area_bounds(prediction.constraints), prediction.loss))
    return found


# Photographs held out

def folds(project: Project) -> list:
    """[ids to hold out together]. Photographs with the same tags are spread over the folds. Near-duplicates stay
    together: a net that was trained on one of them knows the other."""
    photographs = project.folder.photographs
    groups = {id: [id] for id in photographs}
    for a, b in near_duplicates(perceptual_hashes(project.folder)):
        if groups[a] is not groups[b]:
            groups[a] += groups[b]
            groups.update(dict.fromkeys(groups[b], groups[a]))
    order = sorted({id(group): group for group in groups.values()}.values(), key=lambda group: (
        photographs[group[0]].present.tolist(), json_digest([project.seed, group[0]])))
    number = FOLDS if len(photographs) < FEW else PARTS
    parts = [sum(order[k::number], []) for k in range(number)]
    return parts if number == FOLDS else parts[:1]


class HeldOut(NamedTuple):
    """What short trainings found on photographs that they did not see."""
    tallies: Optional[list]     # [Tally] of each class but the background; None: nothing was held out
    sentence: str               # how they were held out, or why none was
    confusion: Optional[np.ndarray] = None      # C[marked, found] in pixels, on those that somebody has marked


def hold_out(project: Project, parts: list) -> HeldOut:
    """Train shortly without the photographs held out, and look at these. parts : folds(project)"""
    ids = list(project.folder.photographs)
    if len(ids) < LEAST:
        return HeldOut(None, f"Nothing was held out: that takes at least {LEAST} photographs.")
    place, trainings = project.work / f"folds/{json_digest(project.inputs)}", []
    for k, held in enumerate(parts):
        split = write_list(place / f"{k}.txt", [id for id in ids if id not in set(held)])
        net = project.write_net(place / f"{k}.prototxt", split=split)
        steps = round(project.steps * project.recipe.check)
        trainings.append(project.prepare(project.solver(steps, net, place / f"fold{k}")))
    if project.trainer == "caffe":
        run_all(trainings, jobs=2)
    elif any(training.run() for training in trainings):
        raise KeyboardInterrupt
    labels = len(project.folder.classes)
    tallies, C = np.zeros((labels - 1, 3), int), np.zeros((labels, labels), np.int64)
    for k, (held, training) in enumerate(zip(parts, trainings)):
        split = write_list(place / f"{k}-held.txt", held)
        for prediction in predict(project, training.model, held, split):
            tallies += tally(project, prediction)
            C += marked_pixels(project, prediction)
    remove(place.parent)
    how = f"{len(parts[0])} of {len(ids)} photographs were held out of a short training."
    if len(parts) > 1:
        how = f"Each photograph was held out once: {len(parts)} short trainings, each without a part of them."
    return HeldOut([Tally(*map(int, row)) for row in tallies], (
        f"{how} A class is found if it covers {FOUND:.0%} of a photograph or more; if it is not tagged, {NOTICED:.0%}."
        ), C)


def marked_pixels(project: Project, prediction: Prediction) -> np.ndarray:
    """C[marked, found] in pixels of one photograph: how the mask, made without the marks, agrees with them."""
    scribbles, labels = project.folder.rules and project.folder.rules.scribbles, len(project.folder.classes)
    marks = scribbles.read(prediction.id) if scribbles else None
    if marks is None:
        return np.zeros((labels, labels), np.int64)
    scores = project.final_scores(prediction)
    return confusion(marks, label_map(scores.values, *scores.cells(*marks.shape)), labels)


def tally(project: Project, prediction: Prediction) -> np.ndarray:
    """found, missed, false of each class, on one photograph."""
    present = project.folder.photographs[prediction.id].present[1:]
    f = project.final_scores(prediction).values
    area = shares(f.argmax(axis=0), len(f))[1:]                                # on the grid: nobody will see this mask
    return np.stack([present & (area >= FOUND), present & (area < FOUND), ~present & (area >= NOTICED)], axis=1)


def write_list(path, ids: Sequence[str]) -> Path:
    with whole_file(path) as part:
        part.write_text("".join(f"{id}.jpg\n" for id in ids), encoding="utf-8")     # the reader drops one suffix
    return Path(path)


def scores(project: Project, held: HeldOut) -> Optional[dict]:
    """The scores on photographs held out, as the model file keeps them."""
    if not held.tallies or held.confusion is None:
        return None
    names, C = project.folder.classes, held.confusion
    iou = scored("marks", "held out", False, C).iou if C.any() else [None] * len(names)
    iou = [round(float(share) / 100, 4) if C[label].any() else None         # of classes that somebody has marked
           for label, share in enumerate(iou)]
    classes = [{"name": name, **tally._asdict(), "iou": iou[label], "pixels": int(C[label].sum())}
               for label, (name, tally) in enumerate(zip(names[1:], held.tallies), 1)]
    known = [share for share in iou if share is not None]
    before = project.state and project.state.before
    return {"tags held out": {name: tally._asdict() for name, tally in zip(names[1:], held.tallies)},
            "held out": {"held_out": held.sentence, "classes": classes,
                         "mean_iou": round(sum(known) / len(known), 4) if known else None,
                         "before": (before or {}).get("held out")}}


# The report

def write_results(project: Project, warnings: list, photographs: list, held: HeldOut) -> None:
    """photos/report.html"""
    folder = project.folder
    assert project.state, "train() comes first"
    counts = ", ".join(f"{name} {number}" for name, number in folder.images_with().items())
    write_report(project.report, Report(
        title=folder.path.resolve().name, classes=folder.classes, photographs=photographs, losses=losses(project),
        tallies=held.tallies, held_out=held.sentence, warnings=warnings, steps=next_steps(folder.path),
        facts={"photographs": f"{plural(len(photographs), 'photograph')} ({counts})",
               "learned from": {"tags": "tags", "size": "tags and sizes", "boxes": "boxes"}[folder.system],
               "bounds": ", ".join(f"{key} {value}" for key, value in project.bounds.items()),
               "training": "{} steps of 4 photographs from what is known of them, then {} from the labels that "
                           "followed; seed {}".format(*project.state.steps, project.seed),
               "size": f"photographs are seen with long sides of {' and '.join(map(str, project.recipe.sizes))} pixels",
               **cue_facts(project),
               "model": f"{project.model.name}, written by ccnn {ccnn.__version__}"}))


def cue_facts(project: Project) -> dict[str, str]:
    """What the report says of the cue, and whether each class is an object or a surface, and why."""
    if not project.cue:
        return {}
    cue, names = project.cue, project.folder.classes
    return {"cue": f"{cue.name} tells where objects are ({cue.licence}; trained on {cue.trained_on})",
            **{f"kind of {names[label]}": f"{kind.word}: {kind.why}" for label, kind in project.kinds.items()}}


def losses(project: Project) -> dict:
    try:
        return read_log(project.weights.with_name("first.log")).loss
    except (UserError, OSError):
        return {}
