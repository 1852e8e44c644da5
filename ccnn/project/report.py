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
from ccnn.project.html import Step, chart, commands, document, hexadecimal, legend, name, picture, swatch, text, tiles

NOTICED = 0.05          # a label that is not tagged and covers this share of a photograph contradicts the tags

FOUND = 0.01            # so does a tagged label that covers less than this

TOLERANCE = 0.005       # a bound that is missed by less, in shares of the photograph, is kept

SIDES = ((200, 320), (600, 200), (1500, 128))       # (up to so many photographs, long side in pixels): about 10 MB


class Photograph(NamedTuple):
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
    photographs: list           # [Photograph], in any order
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
    ordered = sorted(report.photographs, key=lambda p: -p.doubt)
    most, side = next(((most, side) for most, side in SIDES if len(ordered) <= most), SIDES[-1])
    doubtful = [p for p in ordered if contradictions(p, report.classes)]
    others = [p for p in ordered if not contradictions(p, report.classes)]
    shown = [card(p, report.classes, side) for p in (doubtful + others)[:most]]
    left_out = len(ordered) - len(shown)
    return document(report.title, f"""
<header>
<h1>{text(report.title)}</h1>
<p class="lead">{lead(report, len(doubtful))}</p>
{tiles(numbers(report, len(doubtful)))}
{legend(report.classes)}
<nav><a href="#doubtful">Tags to check</a><a href="#held-out">Held out</a><a href="#others">Photographs</a>
<a href="#next">Next</a></nav>
</header>
{warnings(report.warnings)}
<section id="doubtful">
<h2>Check these tags first</h2>
{f'<p>The model contradicts the tags of {counted(len(doubtful), "photograph")}. The strongest contradictions come '
 'first: often the tag is wrong.</p>' if doubtful else '<p>On every photograph the model agrees with the tags.</p>'}
<div class="sheet">{"".join(shown[:len(doubtful)])}</div>
</section>
<section class="two">
<div id="held-out">
<h2>Tags on photographs held out</h2>
<p>{text(report.held_out)}</p>
{tag_table(report)}
</div>
<div>
<h2>Training</h2>
{loss_chart(report.losses)}
</div>
</section>
<section id="others">
<h2>{"The other photographs" if doubtful else "Every photograph"}</h2>
<p>The model agrees with their tags. A bar is the share of the photograph that the model gives a class; marks on its
track are the least and the most that the training asks for, and an arrow says that the share lies below or above.</p>
<div class="sheet">{"".join(shown[len(doubtful):])}</div>
{f'<p class="note">{left_out} more are left out, to keep this file small.</p>' if left_out else ""}
</section>
<section id="next">
<h2>Next</h2>
{commands(report.steps)}
</section>
<section>
<h2>What it was trained on</h2>
<dl>{"".join(f"<dt>{text(what)}</dt><dd>{text(value)}</dd>" for what, value in report.facts.items())}</dl>
</section>
<footer>Method: Pathak, Krähenbühl, Darrell, <cite>Constrained Convolutional Neural Networks for Weakly Supervised
Segmentation</cite>, ICCV 2015. This page is one file; it loads nothing from the network.</footer>""", STYLE)


def contradictions(photograph, classes):
    """Where the model contradicts the tags: sentences in HTML, the largest label that lacks a tag first."""
    absent = [(area, label) for label, area in enumerate(photograph.areas)
              if label != BACKGROUND and label not in photograph.tags and area >= NOTICED]
    return ([f"{name(classes[label])} is not tagged, but covers {percent(area)}" for area, label in
             sorted(absent, reverse=True)]
            + [f"{name(classes[label])} is tagged, but hardly found" for label in photograph.tags
               if photograph.areas[label] < FOUND])


def lead(report, doubtful):
    classes = len(report.classes) - 1
    return (f"{counted(classes, 'class', 'classes')} learned from the tags of "
            f"{counted(len(report.photographs), 'photograph')}. "
            + (f"{counted(doubtful, 'photograph')} should be looked at first." if doubtful else
               "The model agrees with every tag."))


def counted(number, one, many=None):
    return f"{number} {one if number == 1 else many or one + 's'}"


def numbers(report, doubtful):
    entries = [(len(report.photographs), "photographs", ""), (len(report.classes) - 1, "classes", ""),
               (doubtful, "to look at", "model and tags disagree")]
    tallies = report.tallies or []
    tagged = sum(t.found + t.missed for t in tallies)
    if tagged:
        found = sum(t.found for t in tallies)
        entries.append((f"{100 * found / tagged:.0f} %", "of tags found", "on photographs held out"))
    return entries


def warnings(sentences):
    if not sentences:
        return ""
    return ('<section class="alarm"><h2>Warnings</h2><ul>'
            + "".join(f"<li>{text(sentence)}</li>" for sentence in sentences) + "</ul></section>")


def card(photograph, classes, side):
    """One photograph of the contact sheet."""
    tags = ", ".join(classes[label] for label in photograph.tags) or "none"
    found = ", ".join(f"{classes[label]} {percent(area)}" for label, area in enumerate(photograph.areas)
                      if label != BACKGROUND and area >= FOUND) or "nothing"
    image = picture(shrink(photograph.picture, side), f"{photograph.name}. Tags: {tags}. Found: {found}.", "jpeg")
    chips = "".join(f"<span>{swatch(label)}{name(classes[label])}</span>" for label in photograph.tags)
    said = "".join(f"<p class=wrong>{sentence}</p>" for sentence in contradictions(photograph, classes))
    return (f"<figure>{image}<figcaption><h3>{name(photograph.name)}</h3>"
            f'<p class="legend">{chips or "no tags"}</p>{said}{bars(photograph, classes)}</figcaption></figure>')


def bars(photograph, classes):
    """The share of the background and of each label that is tagged or noticed; marks at its bounds."""
    rows = []
    for label, area in enumerate(photograph.areas):
        if label not in (BACKGROUND, *photograph.tags) and area < NOTICED:
            continue
        least, most = photograph.bounds.get(label, (None, None))
        marks = "".join(f'<s style="left:{100 * bound:.1f}%" title="{word} {percent(bound)}"></s>'
                        for word, bound in (("at least", least), ("at most", most)) if bound is not None)
        share = percent(area)
        if least is not None and area < least - TOLERANCE:
            share = f'<b title="at least {percent(least)} expected">↓ {share}</b>'
        elif most is not None and area > most + TOLERANCE:
            share = f'<b title="at most {percent(most)} expected">↑ {share}</b>'
        rows.append(f"<tr><th scope=row>{name(classes[label])}</th><td><div class=track>"
                    f'<i style="width:{100 * area:.1f}%;background:{hexadecimal(label)}"></i>{marks}</div></td>'
                    f"<td>{share}</td></tr>")
    return f'<table class="bars"><tbody>{"".join(rows)}</tbody></table>'


def tag_table(report):
    if not report.tallies:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{swatch(label)}{name(report.classes[label])}</th><td>{t.found}</td><td>{t.missed}</td>"
        f"<td>{t.false}</td></tr>" for label, t in enumerate(report.tallies, start=1))
    return ('<table><thead><tr><th scope=col>class</th><th scope=col>found</th><th scope=col>missed</th>'
            f"<th scope=col>found, not tagged</th></tr></thead><tbody>{rows}</tbody></table>")


def loss_chart(losses):
    if len(losses) < 2:
        return "<p>The log of this training holds no losses.</p>"
    # neighbours are averaged: one step's loss says more about its photographs than about the training
    groups = np.array_split(np.array(sorted(losses.items()), float), min(60, len(losses)))
    curve = {float(group[:, 0].mean()): float(group[:, 1].mean()) for group in groups}
    first, last = next(iter(curve.values())), list(curve.values())[-1]
    return (f"<p>The loss is how far the model's output is from the nearest one that obeys the tags. It went from "
            f"{first:.2g} to {last:.2g}.</p>"
            + chart([("", "var(--accent)", curve)], f"The loss went from {first:.2g} to {last:.2g}", "loss"))


STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 22px; margin: 18px 0; }
.sheet figure { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; overflow: hidden; }
.sheet figcaption { padding: 12px 14px 14px; font-size: 14px; }
.sheet figcaption .legend { color: var(--soft); font-size: 13px; margin: 2px 0 8px; }
.sheet img { aspect-ratio: 4 / 3; object-fit: contain; background: var(--track); }
#held-out th:first-child { width: 40%; }
.bars { table-layout: fixed; margin-top: 8px; }
.bars th, .bars td { border: 0; padding: 1px 0; font-size: 13px; line-height: 1.35; }
.bars th { width: 40%; padding-right: 8px; }
.bars td:last-child { width: 54px; white-space: nowrap; }
.bars b { color: var(--alarm); font-weight: 400; }
.track { position: relative; height: 10px; border-radius: 5px; background: var(--track); }
.track i { display: block; height: 10px; border-radius: 5px; min-width: 2px; }
.track s { position: absolute; top: -3px; height: 16px; width: 2px; margin-left: -1px; background: var(--ink); }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin-top: 18px; }
a { color: var(--accent); }
.alarm { background: var(--alarm-card); border: 1px solid var(--alarm); border-radius: 10px; padding: 20px 24px; }
.alarm h2 { color: var(--alarm); font-size: 20px; }
.alarm ul { margin: 0; padding-left: 20px; }
dl { display: grid; grid-template-columns: minmax(100px, 220px) minmax(0, 1fr); gap: 4px 18px; margin: 0;
     font-size: 15px; }
dt { color: var(--soft); }
dd { margin: 0; }
dt, dd { overflow-wrap: anywhere; }
@media (max-width: 760px) { .sheet { grid-template-columns: minmax(0, 1fr); } }
"""
