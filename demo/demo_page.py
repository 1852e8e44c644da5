"""The page of the demonstration: one HTML file with every picture inside.

    page(story) -> str

A Story holds numbers and arrays only (demo/story.py makes it); everything about looks is here. Charts are SVG and
pictures are data URIs, so that the file can be opened, mailed or archived alone, and needs no network.
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

OURS, BASELINES = ("tags", "size"), ("em_adapt", "mil_fcn", "mil_base")


class Result(NamedTuple):
    """What a system has learned: one line of the score table, and one curve."""
    system: str             # of ccnn.nets
    title: str
    knows: str              # what training knows of an image
    iou: list               # percent, one entry per label, None where there is none
    miou: float
    losses: dict            # {iteration: loss}
    course: dict            # {iteration: mIoU in percent}


class Example(NamedTuple):
    """A validation image and its masks."""
    image: np.ndarray       # H x W x 3 uint8
    truth: np.ndarray       # H x W label ids, 255 void
    found: dict             # {system: H x W label ids}


class Step(NamedTuple):
    """What the solver made of one image at one iteration; one entry per label that its tags allow."""
    iteration: int
    labels: list
    q: np.ndarray           # len(labels) x h x w
    p: np.ndarray
    bounds: list            # [(lower, upper)], shares of the image; None where there is no bound
    forces: list            # [lambda], signed: > 0 enlarges the label's area
    absent: float           # share of q on labels that are not in the image
    iterations: int
    gap: float


class Story(NamedTuple):
    """All that the page tells."""
    classes: tuple
    images: tuple           # numbers of training and validation images
    minutes: float
    results: list
    examples: list
    image: np.ndarray       # the one that the steps are about
    steps: list
    diagnostics: np.ndarray  # iterations shown x 5: iteration, violation by q, gap, solver iterations, seconds
    photographs: list       # [(name, H x W x 3)]
    no_photographs: Optional[str]    # why there are none


# Pictures

def rgb(colour):
    """#rrggbb as three numbers."""
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
    """The labels' colours."""
    return '<p class="legend">' + "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for colour, name in zip(COLOURS[1:], classes[1:])) + "</p>"


# Charts

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
    """The least of 1, 2, 4, 6, 8, 10 times a power of ten that is not below value, so that its quarters are round."""
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


# Sections

def gallery(story):
    """The examples, as the systems of ours see them."""
    rows = []
    for example in story.examples:
        tags = ", ".join(story.classes[l] for l in np.unique(example.truth) if 0 < l < len(story.classes))
        cells = [(picture(example.image, "image", "jpeg"), f"tags: {escape(tags)}"),
                 (picture(painted(example.image, example.truth), "truth"), ""),
                 *((picture(painted(example.image, example.found[system]), system), "") for system in OURS)]
        rows.append("".join(f"<figure>{image}<figcaption>{text}</figcaption></figure>" for image, text in cells))
    heads = "".join(f"<h3>{text}</h3>" for text in
                    ("image", "truth, not seen in training", "learned from tags", "learned from tags and sizes"))
    return f'<div class="gallery four">{heads}{"".join(rows)}</div>'


def others(story):
    """The first examples, as the other systems see them."""
    results = [result for result in story.results if result.system not in OURS]
    heads = "".join(f"<h3>{escape(result.title)}</h3>" for result in results)
    rows = "".join(f"<figure>{picture(painted(e.image, e.found[result.system]), result.title)}</figure>"
                   for e in story.examples[:3] for result in results)
    return f'<div class="gallery" style="grid-template-columns:repeat({len(results)},1fr)">{heads}{rows}</div>'


def table(story):
    """The scores of all systems, the worst first."""
    best = max(result.miou for result in story.results)
    head = "".join(f"<th>{escape(name)}</th>" for name in story.classes)
    rows = []
    for result in sorted(story.results, key=lambda result: result.miou):
        cells = "".join(f"<td>{'–' if v is None else f'{v:.0f}'}</td>" for v in result.iou)
        rows.append(f'<tr class="{"ours" if result.system in OURS else ""}"><th>{escape(result.title)}</th>'
                    f'<td class="knows">{escape(result.knows)}</td>{cells}<td class="bar">'
                    f'<span style="width:{70 * result.miou / best:.0f}%;background:{LINES[result.system]}"></span>'
                    f"<b>{result.miou:.1f}</b></td></tr>")
    return (f'<div class="wide"><table><thead><tr><th>system</th><th>training knows of an image</th>{head}'
            f'<th>mean IoU, %</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>')


def solver(story):
    """What the solver did over the whole training, and for one image at two iterations."""
    d = story.diagnostics
    quarter = max(1, len(d) // 4)
    early, late = d[:quarter, 1].mean(), d[-quarter:, 1].mean()
    return (f"<p>In the first quarter of the training the net broke a constraint by {early:.0%} of the image on "
            f"average, in the last quarter by {late:.0%}. The solver took {np.median(d[:, 3]):.0f} steps and "
            f"{1e3 * np.median(d[:, 4]):.2f} ms per image (median). Its largest duality gap was "
            f"{d[:, 2].max():.0e}.</p>" + "".join(solver_step(step, story.classes) for step in story.steps))


def solver_step(step, classes):
    """q and p of one image as maps, and their areas against the bounds."""
    maps = []
    for name, values in (("q, the net's output", step.q), ("p, nearest to q within the bounds", step.p)):
        cells = "".join(
            f'<figure>{picture(heat(v, label), f"{name}: {classes[label]}", classes="cells")}'
            f"<figcaption>{name[0]}({escape(classes[label])})</figcaption></figure>"
            for label, v in zip(step.labels, values))
        maps.append(f'<h4>{name}</h4><div class="maps">{cells}</div>')
    return (f'<div class="step"><div><h3>after {step.iteration} iterations</h3>{"".join(maps)}</div>'
            f'<div>{areas(step, classes)}<p class="note">Pale: area in q. Full: area in p. Brackets: bounds. '
            f"The solver took {step.iterations} Newton steps; the duality gap is {step.gap:.0e}. "
            f"{step.absent:.0%} of q lies on labels that are not in the image, and nothing of p.</p></div></div>")


def photographs(story):
    """The shipped model on photographs, or why there are none."""
    if story.no_photographs:
        return (f"<p>This page shows none: {escape(story.no_photographs)}. With the model and a network, this command "
                "segments any photograph:</p><pre>tools/infer.py --out masks holiday/*.jpg</pre>")
    cells = "".join(f"<figure>{picture(image, name, 'jpeg')}</figure>" for name, image in story.photographs)
    return ("<p>The model in <code>models/</code> learned the 20 classes of VOC from tags and one bit of size per tag. "
            "It has seen no mask. Here it segments photographs that scikit-image carries; a CRF sharpens the edges.</p>"
            f'<div class="gallery three">{cells}</div>')


def page(story):
    """The whole page."""
    by_system = {result.system: result for result in story.results}
    tags, size, full = (by_system[system] for system in ("tags", "size", "full"))
    baseline = max((by_system[system] for system in BASELINES), key=lambda result: result.miou)
    curves = [(result.title, LINES[result.system], result.course) for result in story.results]
    losses = [(result.title, LINES[result.system], result.losses) for result in (tags, size)]
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
<p class="lead">Nobody outlined anything for this net. Of each of its {story.images[0]} training images it knows only
which kinds of objects are in it: <q>fish, snail</q>. Linear constraints on its output and Caffe's own SGD did the rest.
All {len(story.results)} systems on this page took {story.minutes:.1f} minutes.</p>
<div class="tiles">
<div><b>{baseline.miou:.0f}</b>best baseline on tags<small>{escape(baseline.title)}</small></div>
<div style="color:{LINES['tags']}"><b>{tags.miou:.0f}</b>{tags.title}</div>
<div style="color:{LINES['size']}"><b>{size.miou:.0f}</b>{size.title}<small>one more bit per tag</small></div>
<div><b>{full.miou:.0f}</b>{full.title}<small>the ceiling</small></div>
</div>
<p class="note">Mean IoU in percent on {story.images[1]} images that no training saw.</p>
</header>

<section>
<h2>What it learned</h2>
<p>These are the first wide images of the validation set, not the best. Colour does not give the classes away: the
clutter has the same colours, and one object in twelve has the colour of another class. Size is one bit per tag: does
the class cover more than a tenth of the image? It keeps small objects small.</p>
{legend(story.classes)}
{gallery(story)}
</section>

<section>
<h2>Scores</h2>
<p>The systems share the net, the schedule and the order of the images. Only the loss differs. IoU of every class, in
percent:</p>
{table(story)}
<p>The first of the images above, as the other systems see them:</p>
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
<p>At every step the net says q: how likely each label is at each pixel. The tags say what must hold of the areas: a
label that is absent gets nothing, each tag gets at least 5 % of the image, and the background 30 to 70 %. The solver
finds p, the distribution nearest to q that obeys, and the net learns from p.</p>
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
    --crf heads holiday/*.jpg</pre><p>This writes one label PNG and one overlay per photograph.</p></div>
<div><h3>Your own data</h3><pre>image,tags
cow_01.jpg,cow;grass
cow_02.jpg,cow</pre><p>A folder of images and such a table are enough. The README has the commands.</p></div>
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
th:first-child, td.knows, thead th:nth-child(2) { text-align: left; }
td.knows { color: var(--soft); }
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
