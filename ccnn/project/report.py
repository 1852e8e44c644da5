"""The report of a training: one HTML file that shows what was learned, and which tags to doubt.

    write_report("photos/report.html", Report(...))

A Report holds numbers and small pictures only. Nothing is trained or segmented here.
"""
from pathlib import Path
from typing import NamedTuple, Optional

import numpy as np

from ccnn._util.files import whole_file
from ccnn._util.paths import typed
from ccnn.images.labels import BACKGROUND
from ccnn.images.overlays import percent
from ccnn.images.reading import shrink
from ccnn.project.html import Step, chart, render

NOTICED = 0.05          # a label that is not tagged and covers this share of a photograph contradicts the tags

FOUND = 0.01            # so does a tagged label that covers less than this

TOLERANCE = 0.005       # a bound that is missed by less, in shares of the photograph, is kept

SIDES = ((200, 320), (600, 200), (1500, 128))       # (up to so many photographs, long side in pixels): about 10 MB


class ReportEntry(NamedTuple):
    name: str
    picture: np.ndarray         # h x w x 3 uint8: ccnn.images.overlays.thumbnail
    tags: tuple                 # labels
    areas: np.ndarray           # (L,) share of the photograph that the model, not knowing the tags, gives each label
    bounds: dict                # {label: (least, most)}: what the constraints ask of its area; None: no such bound
    doubt: float                # how much the tags pull: the photograph's loss


class Tally(NamedTuple):
    """Tags of one class on photographs held out."""
    found: int                  # tagged, and found by the model
    missed: int                 # tagged, and not found
    false: int                  # not tagged, yet found


class Report(NamedTuple):
    title: str
    classes: tuple
    photographs: list           # [ReportEntry], in any order
    losses: dict                # {iteration: loss}
    tallies: Optional[list]     # [Tally], one per class but the background; None: nothing was held out
    held_out: str               # a sentence: how photographs were held out, or why not
    warnings: list              # [sentence]
    steps: list                 # [Step]: what to do next
    facts: dict                 # {what: value}: what the model was trained on, and how


def next_steps(folder, model="model.ccnn", new="new_photos"):
    """What to do with a model. folder: as the user typed it, so that the commands work as pasted."""
    return [Step("Segment new photographs", typed("segment", "--model", Path(folder) / model, "--out", "masks", new),
                 f"One mask and one overlay per photograph of {new}."),
            Step("Correct tags, train again", typed("learn", folder),
                 "Correct the tags that the first photographs of this page show to be wrong, or add photographs of a "
                 "class that is missed.")]


def write_report(path, report):
    """Write the page; it is whole or not there."""
    with whole_file(path) as part:
        part.write_text(page(report), encoding="utf-8")


def page(report):
    cards = sorted((card(photograph) for photograph in report.photographs), key=lambda card: -card["photograph"].doubt)
    cards.sort(key=lambda card: not card["contradictions"])             # contradictions first
    most, side = next(((most, side) for most, side in SIDES if len(cards) <= most), SIDES[-1])
    shown = [{**card, **pictured(card["photograph"], report.classes, side)} for card in cards[:most]]
    doubtful = [card for card in cards if card["contradictions"]]
    return render("report.html", {
        **report._asdict(), "photographs": len(cards), "numbers": numbers(report, len(doubtful)),
        "doubtful": shown[:len(doubtful)], "others": shown[len(doubtful):], "left_out": len(cards) - len(shown),
        "loss": loss(report.losses)})


def card(photograph):
    """What the contact sheet says of a photograph."""
    return {"photograph": photograph, "contradictions": contradictions(photograph.areas, photograph.tags),
            "bars": bars(photograph)}


def pictured(photograph, classes, side):
    """Its picture, and the same in words."""
    tags = ", ".join(classes[label] for label in photograph.tags) or "none"
    found = ", ".join(f"{classes[label]} {percent(area)}" for label, area in enumerate(photograph.areas)
                      if label != BACKGROUND and area >= FOUND) or "nothing"
    return {"picture": shrink(photograph.picture, side), "alt": f"{photograph.name}. Tags: {tags}. Found: {found}."}


def contradictions(areas, tags):
    """[(label, its area if it is not tagged, None if it is tagged and hardly found)], the largest areas first.

    areas : (L,) shares of the photograph that the model, not knowing the tags, gives each label   tags : labels
    """
    absent = [(label, area) for label, area in enumerate(areas)
              if label != BACKGROUND and label not in tags and area >= NOTICED]
    return (sorted(absent, key=lambda one: (-one[1], -one[0]))
            + [(label, None) for label in tags if areas[label] < FOUND])


def bars(photograph):
    """The share of the background and of each label that is tagged or noticed; marks at its bounds."""
    rows = []
    for label, area in enumerate(photograph.areas):
        if label not in (BACKGROUND, *photograph.tags) and area < NOTICED:
            continue
        least, most = photograph.bounds.get(label, (None, None))
        arrow = expected = ""
        if least is not None and area < least - TOLERANCE:
            arrow, expected = "↓", f"at least {percent(least)} expected"
        elif most is not None and area > most + TOLERANCE:
            arrow, expected = "↑", f"at most {percent(most)} expected"
        rows.append({"label": label, "area": area, "arrow": arrow, "expected": expected, "marks": [
            (word, bound) for word, bound in (("at least", least), ("at most", most)) if bound is not None]})
    return rows


def numbers(report, doubtful):
    entries = [(len(report.photographs), "photographs", ""), (len(report.classes) - 1, "classes", ""),
               (doubtful, "to look at", "model and tags disagree")]
    tallies = report.tallies or []
    tagged = sum(t.found + t.missed for t in tallies)
    if tagged:
        found = sum(t.found for t in tallies)
        entries.append((f"{100 * found / tagged:.0f} %", "of tags found", "on photographs held out"))
    return entries


def loss(losses):
    """Its course, as a chart; None if the log holds none."""
    if len(losses) < 2:
        return None
    # neighbours are averaged: one step's loss says more about its photographs than about the training
    groups = np.array_split(np.array(sorted(losses.items()), float), min(60, len(losses)))
    curve = {float(group[:, 0].mean()): float(group[:, 1].mean()) for group in groups}
    first, last = next(iter(curve.values())), list(curve.values())[-1]
    return {"first": first, "last": last, "chart": chart(
        [("", "var(--accent)", curve)], f"The loss went from {first:.2g} to {last:.2g}", "loss")}
