"""The page of the demonstration: one HTML file with every picture inside, for tools/demo.py.

    page(story) -> str

`story` (Story) holds numbers and arrays only; everything about looks is here. Charts are SVG, pictures data URIs, so
the file can be opened, mailed or archived alone, and needs no network.
"""
import base64
import io
from html import escape
from typing import NamedTuple, Optional

import numpy as np
from PIL import Image

from ccnn.labels import BACKGROUND, VOID

COLOURS = ("#ffffff", "#d1495b", "#e9a227", "#00798c", "#7b4fa3", "#57a639")      # of the labels

LINES = {"tags": "#2463a6", "size": "#0a7d5c", "em_adapt": "#c2702a", "mil_fcn": "#b5507c", "mil_base": "#8c7ab8",
         "full": "#5b6470"}


class System(NamedTuple):
    """One line of the score table, and one curve."""
    key: str
    title: str
    told: str               # what its training knew of an image
    iou: list               # percent, one entry a label, None where there is none
    miou: float
    losses: dict            # {iteration: loss}
    scores: dict            # {iteration: mIoU in percent}


class Example(NamedTuple):
    """A validation image and its masks."""
    image: np.ndarray       # H x W x 3 uint8
    truth: np.ndarray       # H x W label ids, 255 void
    found: dict             # {system: H x W label ids}


class Step(NamedTuple):
    """What the solver made of one image at one iteration; rows are the labels that its tags allow."""
    iteration: int
    labels: list
    q: np.ndarray           # len(labels) x h x w
    p: np.ndarray
    bounds: list            # [(lower, upper)], shares of the image; None where there is no bound
    forces: list            # [lambda], signed: > 0 pushes the label's area up
    absent: float           # share of the image that q gives to labels that are not in it
    iterations: int
    gap: float


class Story(NamedTuple):
    classes: tuple
    images: tuple           # numbers of training and validation images
    minutes: float
    systems: list
    examples: list
    image: np.ndarray       # the one that the steps are about
    steps: list
    diagnostics: np.ndarray  # iterations shown x 5: iteration, violation by q, gap, solver iterations, seconds
    photographs: list       # [(name, H x W x 3)]
    no_photographs: Optional[str]    # why there are none


def rgb(colour):
    return np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)], float)


def picture(array, alt, kind="png", classes=""):
    """An <img> that carries its own pixels."""
    data = io.BytesIO()
    Image.fromarray(array).save(data, kind, **({"quality": 88} if kind == "jpeg" else {}))
    uri = f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
    height, width = array.shape[:2]
    return f'<img src="{uri}" width="{width}" height="{height}" alt="{escape(alt)}" class="{classes}">'


def painted(image, mask):
    """The labels in their colours over a pale grey image; void stays grey."""
    grey = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)
    out = 0.35 * grey + 0.65 * 255
    for label in range(1, len(COLOURS)):
        where = mask == label
        out[where] = 0.22 * grey[where] + 0.78 * rgb(COLOURS[label])
    out[mask == VOID] = 120
    return out.round().astype(np.uint8)


def heat(p, label):
    """h x w probabilities as shades from white to the label's colour."""
    dark = rgb(COLOURS[label]) if label != BACKGROUND else np.full(3, 70.0)
    return (255 + p[..., None] * (dark - 255)).round().astype(np.uint8)


def legend(classes):
    return '<p class="legend">' + "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for colour, name in zip(COLOURS[1:], classes[1:])) + "</p>"


def chart(curves, title, unit, top=None):
    """Lines over iterations. curves: [(name, colour, {x: y})]; names stand at the lines' ends, moved apart."""
    width, height, left, right, base = 540, 300, 40, 124, 262
    x_max = max(max(c[2]) for c in curves)
    y_max = top or nice(max(max(c[2].values()) for c in curves))

    def fx(x):
        return left + (width - left - right) * x / x_max

    def fy(y):
        return base - (base - 16) * min(y, y_max) / y_max

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for k in range(5):
        y = y_max * k / 4
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{fy(y):.1f}" y2="{fy(y):.1f}" class="grid"/>'
                     f'<text x="{left - 6}" y="{fy(y) + 4:.1f}" class="tick" text-anchor="end">{y:.3g}</text>')
    for k in range(5):
        x = x_max * k / 4
        parts.append(f'<text x="{fx(x):.1f}" y="{base + 16}" class="tick" text-anchor="middle">{x:.0f}</text>')
    parts.append(f'<text x="{left}" y="{height - 4}" class="tick">iterations</text>'
                 f'<text x="{left}" y="9" class="tick">{escape(unit)}</text>')
    ends = sorted(((fy(list(c[2].values())[-1]), c) for c in curves), key=lambda end: end[0])
    at = -100.0
    for y, (name, colour, values) in ends:
        points = " ".join(f"{fx(a):.1f},{fy(b):.1f}" for a, b in values.items())
        at = max(y, at + 14)
        parts.append(f'<polyline points="{points}" style="stroke:{colour}"/>'
                     f'<text x="{width - right + 6}" y="{at + 4:.1f}" style="fill:{colour}" class="name">'
                     f"{escape(name)}</text>")
    return "".join(parts) + "</svg>"


def nice(value):
    """The least of 1, 2, 4, 6, 8, 10 times a power of ten that is not below value: its quarters are round too."""
    power = 10.0 ** np.floor(np.log10(value))
    return next(k * power for k in (1, 2, 4, 6, 8, 10) if k * power >= value)


def areas(step, classes):
    """Bars: the share of the image that q and p give each label; brackets: its bounds."""
    width, line, left = 430, 62, 84

    def fx(share):
        return left + (width - left - 12) * share

    height = line * len(step.labels) + 24
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="areas in q and p against their bounds">']
    for k, label in enumerate(step.labels):
        y = k * line + 8
        colour = COLOURS[label] if label != BACKGROUND else "#6b7280"
        q, p = step.q[k].mean(), step.p[k].mean()
        low, high = step.bounds[k]
        parts.append(f'<text x="{left - 8}" y="{y + 20}" text-anchor="end" class="name">{escape(classes[label])}</text>'
                     f'<rect x="{left}" y="{y + 2}" width="{fx(q) - left:.1f}" height="12" style="fill:{colour}" '
                     'opacity=".35"/>'
                     f'<rect x="{left}" y="{y + 16}" width="{fx(p) - left:.1f}" height="12" style="fill:{colour}"/>')
        for bound, hook in ((low, 6), (high, -6)):
            if bound is not None:
                x = fx(bound)
                parts.append(f'<path d="M{x + hook:.1f} {y - 2}H{x:.1f}V{y + 32}h{hook}" class="bound"/>')
        force = step.forces[k]
        note = f"q {q:.0%} → p {p:.0%}" + (f", λ = {abs(force):.2g}" if force else "")
        parts.append(f'<text x="{left + 4}" y="{y + 47}" class="tick">{note}</text>')
    return "".join(parts) + "</svg>"


def gallery(story):
    columns = (("size", "tags + size"), ("tags", "tags alone"))
    rows = []
    for example in story.examples:
        tags = ", ".join(story.classes[l] for l in np.unique(example.truth) if 0 < l < len(story.classes))
        cells = [(picture(example.image, "image", "jpeg"), f"tags: {escape(tags)}"),
                 (picture(painted(example.image, example.truth), "truth"), "")]
        cells += [(picture(painted(example.image, example.found[key]), name), "") for key, name in reversed(columns)]
        rows.append("".join(f"<figure>{image}<figcaption>{text}</figcaption></figure>" for image, text in cells))
    heads = "".join(f"<h3>{text}</h3>" for text in
                    ("image", "truth, never seen in training", "learned from tags alone", "learned from tags + size"))
    return f'<div class="gallery four">{heads}{"".join(rows)}</div>'


def others(story):
    systems = [s for s in story.systems if s.key not in ("tags", "size")]
    heads = "".join(f"<h3>{escape(s.title)}</h3>" for s in systems)
    rows = "".join(f"<figure>{picture(painted(e.image, e.found[s.key]), s.title)}</figure>"
                   for e in story.examples[:3] for s in systems)
    return f'<div class="gallery" style="grid-template-columns:repeat({len(systems)},1fr)">{heads}{rows}</div>'


def table(story):
    best = max(s.miou for s in story.systems)
    head = "".join(f"<th>{escape(name)}</th>" for name in story.classes)
    rows = []
    for s in sorted(story.systems, key=lambda s: s.miou):
        cells = "".join(f"<td>{'–' if v is None else f'{v:.0f}'}</td>" for v in s.iou)
        rows.append(f'<tr class="{"ours" if s.key in ("tags", "size") else ""}"><th>{escape(s.title)}</th>'
                    f'<td class="told">{escape(s.told)}</td>{cells}<td class="bar">'
                    f'<span style="width:{70 * s.miou / best:.0f}%;background:{LINES[s.key]}"></span>'
                    f"<b>{s.miou:.1f}</b></td></tr>")
    return (f'<div class="wide"><table><thead><tr><th>system</th><th>training knows of an image</th>{head}'
            f'<th>mean IoU, %</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>')


def solver(story):
    blocks = []
    for step in story.steps:
        maps = []
        for name, values in (("q, the net's output", step.q), ("p, nearest to q within the bounds", step.p)):
            cells = "".join(
                f'<figure>{picture(heat(v, label), f"{name}: {story.classes[label]}", classes="cells")}'
                f"<figcaption>{name[0]}({escape(story.classes[label])})</figcaption></figure>"
                for label, v in zip(step.labels, values))
            maps.append(f'<h4>{name}</h4><div class="maps">{cells}</div>')
        lost = f"; {step.absent:.0%} of q, and nothing of p, lies on labels that are not in the image"
        blocks.append(f'<div class="step"><div><h3>after {step.iteration} iterations</h3>{"".join(maps)}</div>'
                      f'<div>{areas(step, story.classes)}<p class="note">Pale: area in q; full: area in p; brackets: '
                      f"bounds. Solved in {step.iterations} Newton steps, duality gap {step.gap:.0e}{lost}.</p></div>"
                      "</div>")
    d = story.diagnostics
    quarter = max(1, len(d) // 4)
    early, late = d[:quarter], d[-quarter:]
    sentence = (f"In the first quarter of the training the net broke a constraint by {early[:, 1].mean():.0%} of the "
                f"image on average, in the last by {late[:, 1].mean():.0%}. The solver took {np.median(d[:, 3]):.0f} "
                f"steps and {1e3 * np.median(d[:, 4]):.2f} ms an image (median); its largest duality gap was "
                f"{d[:, 2].max():.0e}.")
    return f"<p>{sentence}</p>" + "".join(blocks)


def photographs(story):
    if story.no_photographs:
        return (f"<p>This run has none: {escape(story.no_photographs)}. With the model and a network, any photograph "
                "will do:</p><pre>tools/infer.py --out masks holiday/*.jpg</pre>")
    cells = "".join(f"<figure>{picture(image, name, 'jpeg')}</figure>" for name, image in story.photographs)
    return ("<p>The model in <code>models/</code> learned the 20 classes of VOC from tags and one bit of size a tag, "
            "without any mask. Here it is on photographs that scikit-image carries, its edges sharpened by a CRF.</p>"
            f'<div class="gallery three">{cells}</div>')


def page(story):
    tags, size = (next(s for s in story.systems if s.key == key) for key in ("tags", "size"))
    baseline = max((s for s in story.systems if s.key in ("em_adapt", "mil_fcn", "mil_base")), key=lambda s: s.miou)
    full = next(s for s in story.systems if s.key == "full")
    curves = [(s.title, LINES[s.key], s.scores) for s in story.systems]
    losses = [(s.title, LINES[s.key], s.losses) for s in story.systems if s.key in ("tags", "size")]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>CCNN on Caffe: segmentation from image tags</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>Segmentation learned from tags</h1>
<p class="lead">Nobody outlined anything for this net. Of each of its {story.images[0]} training images it was told only
which kinds of objects are in it: <q>fish, snail</q>. Linear constraints on its output and Caffe's own SGD did the rest,
in {story.minutes:.1f} minutes for all {len(story.systems)} systems on this page.</p>
<div class="tiles">
<div><b>{baseline.miou:.0f}</b>best baseline on tags<small>{escape(baseline.title)}</small></div>
<div style="color:{LINES['tags']}"><b>{tags.miou:.0f}</b>CCNN, tags alone</div>
<div style="color:{LINES['size']}"><b>{size.miou:.0f}</b>CCNN, tags + size<small>one more bit a tag</small></div>
<div><b>{full.miou:.0f}</b>every pixel labelled<small>the ceiling</small></div>
</div>
<p class="note">Mean IoU in percent on {story.images[1]} images that no training saw.</p>
</header>

<section>
<h2>What it learned</h2>
<p>The first wide images of the validation set, not the best. Colour does not give the classes away: clutter has the
same colours, and one object in twelve wears another class's. Size is one bit a tag: does the class cover more than a
tenth of the image? It keeps small objects small.</p>
{legend(story.classes)}
{gallery(story)}
</section>

<section>
<h2>Scores</h2>
<p>One net, one schedule, one order of images; only the loss differs. IoU in percent, class by class.</p>
{table(story)}
<p>The same images as above, seen by the other systems:</p>
{others(story)}
</section>

<section>
<h2>Training</h2>
<div class="two">
{chart(curves, "mean IoU during training", "mean IoU on the validation images, %", 100)}
{chart(losses, "loss during training", "loss: KL(p || q) per pixel")}
</div>
</section>

<section>
<figure class="one">{picture(story.image, "the image of this section", "jpeg")}
<figcaption>the training image shown below</figcaption></figure>
<h2>What the solver did</h2>
<p>At every step the net says q: how likely each pixel is each label. The tags say what must hold of areas: labels that
are absent get nothing, each tag at least 5 % of the image, the background 30 to 70 %. The solver finds p, the
distribution nearest to q that obeys, and the net learns from p.</p>
{solver(story)}
</section>

<section>
<h2>Real photographs</h2>
{photographs(story)}
</section>

<section class="next">
<h2>Next</h2>
<div class="three">
<div><h3>Your photographs</h3><pre>source .caffe/activate
tools/infer.py --out masks \\
    --crf tuned holiday/*.jpg</pre><p>One label PNG and one overlay a photograph.</p></div>
<div><h3>Your own data</h3><pre>image,tags
cow_01.jpg,cow;grass
cow_02.jpg,cow</pre><p>A folder of images and such a CSV are enough; the README has the commands.</p></div>
<div><h3>The paper, on VOC 2012</h3><pre>tools/get_voc.py
tools/train.py \\
    solvers/ccnn_tags.prototxt</pre><p><code>docs/reproduction.md</code> has every row of the paper with its
command.</p></div>
</div>
</section>
<footer>Drawn, trained, scored and written by <code>make demo</code>. Method: Pathak, Krähenbühl, Darrell,
<cite>Constrained
Convolutional Neural Networks for Weakly Supervised Segmentation</cite>, ICCV 2015.</footer>
</body>
</html>
"""


STYLE = """
:root { --ink: #1f2733; --soft: #5b6470; --rule: #e3e6ea; --paper: #fbfbf9; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 56px 28px 40px; max-width: 1120px; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 44px; line-height: 1.1; letter-spacing: -.02em; margin: 0 0 18px; }
h2 { font-size: 27px; letter-spacing: -.01em; margin: 0 0 10px; }
h3 { font-size: 14px; font-weight: 600; margin: 0; }
h4 { font-size: 13px; font-weight: 500; color: var(--soft); margin: 10px 0 4px; }
p { max-width: 760px; margin: 0 0 14px; }
q { quotes: "\\201c" "\\201d"; }
section { border-top: 1px solid var(--rule); margin-top: 44px; padding-top: 34px; }
.lead { font-size: 19px; color: #3b4452; }
.note, figcaption, footer { font-size: 13px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 14px; margin: 26px 0 12px; }
.tiles div { background: #fff; border: 1px solid var(--rule); border-radius: 10px; padding: 14px 18px;
             font-size: 15px; }
.tiles b { display: block; font-size: 42px; line-height: 1.15; font-weight: 650; }
.tiles small { display: block; color: var(--soft); font-size: 13px; }
.legend span { display: inline-block; margin-right: 20px; font-size: 14px; }
.legend i { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 6px;
            vertical-align: -1px; }
.gallery { display: grid; gap: 12px; align-items: start; margin: 14px 0; }
.four { grid-template-columns: repeat(4, 1fr); }
.three { display: grid; grid-template-columns: repeat(3, 1fr); gap: 20px; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 26px; }
figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; border-radius: 5px; }
figure.one { float: right; width: 220px; margin: 0 0 14px 26px; }
img.cells { image-rendering: pixelated; border: 1px solid var(--rule); }
.maps { display: flex; gap: 10px; }
.maps figure { width: 148px; }
.step { display: grid; grid-template-columns: 1.1fr 1fr; gap: 34px; clear: both; padding: 18px 0 6px;
        align-items: center; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums;
        margin: 8px 0 18px; }
th, td { padding: 7px 8px; text-align: right; border-bottom: 1px solid var(--rule); font-weight: 400; }
thead th { color: var(--soft); font-size: 13px; }
th:first-child, td.told, thead th:nth-child(2) { text-align: left; }
td.told { color: var(--soft); }
tr.ours th { font-weight: 650; }
td.bar { text-align: left; width: 25%; white-space: nowrap; }
thead th:last-child { text-align: left; }
td.bar span { display: inline-block; height: 14px; border-radius: 3px; margin-right: 8px; vertical-align: -2px; }
svg { width: 100%; height: auto; display: block; }
svg polyline { fill: none; stroke-width: 2.4; stroke-linejoin: round; stroke-linecap: round; }
svg .grid { stroke: var(--rule); }
svg .bound { fill: none; stroke: #111827; stroke-width: 2; }
svg .tick { font-size: 11.5px; fill: var(--soft); }
svg .name { font-size: 12.5px; }
pre { background: #20262f; color: #eef1f5; padding: 14px 16px; border-radius: 8px; font-size: 13px; line-height: 1.5;
      overflow-x: auto; margin: 8px 0 10px; }
code { font-size: .92em; }
.next h3 { font-size: 16px; }
.next p { font-size: 14px; color: var(--soft); }
footer { border-top: 1px solid var(--rule); margin-top: 44px; padding-top: 16px; }
@media (max-width: 760px) {
  .four, .tiles { grid-template-columns: 1fr 1fr; }
  .two, .three, .step { grid-template-columns: 1fr; }
  .gallery.four h3 { display: none; } }
"""
