"""The page of the demonstration: one HTML file with every picture inside.

    page(story) -> str

A Story holds numbers and arrays only (demo/story.py makes it); looks are here and in ccnn/project/html.py.
"""
from typing import NamedTuple, Optional

import numpy as np

from ccnn.images.labels import BACKGROUND
from ccnn.images.overlays import colours, percent, thumbnail
from ccnn.project.html import Step, chart, commands, document, hexadecimal, legend, name, picture, swatch, text, tiles
from ccnn.project.report import next_steps

MINUTES = 2             # that `make demo` takes on two cores

# of the systems; visible on paper and in the dark
LINES = {"tags": "#3a7fc8", "size": "#1b9a70", "em_adapt": "#c8752f", "mil_fcn": "#c45b8d", "mil_base": "#8f7bd0",
         "full": "#7d8794"}

OURS, BASELINES = ("tags", "size"), ("em_adapt", "mil_fcn", "mil_base")

# mean IoU of output/demo/solvers/demo_mil_fcn.prototxt with --weights snapshots/demo_tags_iter_2400.caffemodel
INITIALISED = 29

NOTICED = 0.01          # share of a photograph from which on a label counts as found


class Result(NamedTuple):
    """What a system has learned: one line of the score table, and one curve."""
    system: str             # of ccnn.nets.prototxt
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


class Solved(NamedTuple):
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


class Photograph(NamedTuple):
    """A real photograph under the mask of the shipped model."""
    what: str               # a sentence without its full stop
    shows: tuple            # the classes that are in it
    image: np.ndarray       # H x W x 3 uint8
    mask: np.ndarray        # H x W label ids
    classes: tuple          # of the model


class Story(NamedTuple):
    """All that the page tells."""
    classes: tuple
    images: tuple           # numbers of training and validation images
    minutes: float
    results: list
    examples: list
    image: np.ndarray       # the one that `solved` is about
    solved: list            # [Solved]
    diagnostics: np.ndarray  # iterations shown x 5: iteration, violation by q, gap, solver iterations, seconds
    photographs: list       # [Photograph]
    no_photographs: Optional[str]    # why there are none


INFER, LEARN = next_steps("tools", "photos")

NEXT = (
    Step("Your photographs", "tools/infer.py --crf --out sharp photos",
         "photos is a folder of yours; sharp gets one label PNG and one picture per photograph."),
    Step("Your own classes", f"{LEARN.command}\n{INFER.command}",
         "photos also holds a table, tags.csv, with lines such as cow_01.jpg,cow;grass. The README shows it."),
    Step("The paper, on VOC 2012", "tools/get_voc.py\ntools/init_weights.py\n"
         "tools/train.py solvers/ccnn_tags.prototxt --weights data/vgg16_8s.caffemodel",
         "The whole net wants a GPU. docs/reproduction.md has every row of the paper with its command, and what two "
         "cores can do."),
)


# --- pictures ------------------------------------------------------------------------------------------------------

def painted(image, mask):
    """The labels over the image without its colours, twice as large: the drawn images are small."""
    grey = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8)
    return thumbnail(*(np.repeat(np.repeat(a, 2, axis=0), 2, axis=1) for a in (grey, mask)), long_side=10**4)


def heat(p, label):
    """h x w probabilities as opacities of the label's colour."""
    shade = colours()[label] if label != BACKGROUND else np.full(3, 128, np.uint8)
    return np.dstack([np.broadcast_to(shade, (*p.shape, 3)), (255 * p).round().astype(np.uint8)])


def gallery(heads, rows):
    """Rows of (picture, note). Narrow screens show two columns, and each head under its picture."""
    lines = "".join('<div class="row">' + "".join(
        f"<figure>{image}<figcaption><b>{text(head)}</b>{note}</figcaption></figure>"
        for head, (image, note) in zip(heads, row)) + "</div>" for row in rows)
    return (f'<div class="gallery" style="--columns:{len(heads)}"><div class="row heads">'
            f'{"".join(f"<h3>{text(head)}</h3>" for head in heads)}</div>{lines}</div>')


def areas(solved, classes):
    """Bars: the share of the image that q and p give each label; brackets: its bounds."""
    width, line, left = 430, 62, 96

    def fx(share):
        return left + (width - left - 12) * share

    parts = [f'<svg viewBox="0 0 {width} {line * len(solved.labels) + 8}" role="img" '
             'aria-label="areas in q and p against their bounds">']
    for k, label in enumerate(solved.labels):
        y = k * line + 8
        colour = hexadecimal(label) if label != BACKGROUND else "var(--soft)"
        q, p = solved.q[k].mean(), solved.p[k].mean()
        parts.append(f'<text x="{left - 8}" y="{y + 20}" text-anchor="end" class="name">{text(classes[label])}</text>'
                     f'<rect x="{left}" y="{y + 2}" width="{fx(q) - left:.1f}" height="12" style="fill:{colour}" '
                     'opacity=".45"/>'
                     f'<rect x="{left}" y="{y + 16}" width="{fx(p) - left:.1f}" height="12" style="fill:{colour}"/>')
        for bound, hook in zip(solved.bounds[k], (6, -6)):
            if bound is not None:
                x = fx(bound)
                parts.append(f'<path d="M{x + hook:.1f} {y - 2}H{x:.1f}V{y + 32}h{hook}" class="bound"/>')
        force = solved.forces[k]
        note = f"q {q:.0%} → p {p:.0%}" + (f", λ = {abs(force):.2g}" if force else "")
        parts.append(f'<text x="{left + 4}" y="{y + 48}" class="tick">{note}</text>')
    return "".join(parts) + "</svg>"


# --- sections ------------------------------------------------------------------------------------------------------

def examples(story):
    """The examples, as the systems of ours see them."""
    rows = []
    for example in story.examples:
        tags = [l for l in np.unique(example.truth) if 0 < l < len(story.classes)]
        rows.append([(picture(example.image, "a drawn image", "jpeg"),
                      f"tags: {', '.join(name(story.classes[l]) for l in tags)}"),
                     (picture(painted(example.image, example.truth), "its true mask", "jpeg"), ""),
                     *((picture(painted(example.image, example.found[system]), f"its mask by {system}", "jpeg"), "")
                       for system in OURS)])
    return gallery(("image", "truth, not seen in training", "learned from tags", "learned from tags and sizes"), rows)


def others(story):
    """The first examples, as the other systems see them."""
    results = [result for result in story.results if result.system not in OURS]
    return gallery([result.title for result in results],
                   [[(picture(painted(e.image, e.found[r.system]), f"its mask by {r.title}", "jpeg"), "")
                     for r in results] for e in story.examples[:3]])


def table(story):
    """The scores of all systems, the worst first. Narrow screens show each system as a card, with these heads in it."""
    best = max(result.miou for result in story.results)
    heads = "".join(f"<th scope=col>{text(label)}</th>" for label in story.classes)
    rows = []
    for result in sorted(story.results, key=lambda result: result.miou):
        cells = "".join(f'<td class="iou" data-head="{text(label)}">{"–" if v is None else f"{v:.0f}"}</td>'
                        for label, v in zip(story.classes, result.iou))
        rows.append(f'<tr class="{"ours" if result.system in OURS else ""}"><th scope=row>{text(result.title)}</th>'
                    f'<td class="knows">{text(result.knows)}</td>{cells}<td class="bar" data-head="mean IoU, %">'
                    f'<span style="width:{60 * result.miou / best:.0f}%;background:{LINES[result.system]}"></span>'
                    f"<b>{result.miou:.1f}</b></td></tr>")
    return (f'<table class="scores"><thead><tr><th scope=col>system</th><th scope=col>training knows of an image</th>'
            f'{heads}<th scope=col>mean IoU, %</th></tr></thead><tbody>{"".join(rows)}</tbody></table>')


def why_flat(result):
    """Why MIL-FCN does not learn."""
    last = list(result.losses.values())[-1]
    return (f'<p class="after"><b>Why {text(result.title)} stays flat.</b> It asks one pixel per class to be sure: the '
            f"one with the highest score. Its loss went to {last:.0e}, so it got that, and nothing tells it where the "
            "pixel should be. The classifier starts at random, so the pixel lies anywhere, and training confirms it. "
            "The paper says so too (section 7.2): MIL needs a classifier that is well initialised, and the constraints "
            f"do not. When we started it from the net that CCNN had trained, it ended at {INITIALISED} %.</p>")


def solver(story):
    """What the solver did over the whole training, and for one image at two iterations."""
    d = story.diagnostics
    quarter = max(1, len(d) // 4)
    early, late = d[:quarter, 1].mean(), d[-quarter:, 1].mean()
    return (f"<p>In the first quarter of the training the net broke a constraint by {early:.0%} of the image on "
            f"average, in the last quarter by {late:.0%}. The solver took {np.median(d[:, 3]):.0f} steps and "
            f"{1e3 * np.median(d[:, 4]):.2f} ms per image (median). Its largest duality gap was "
            f"{d[:, 2].max():.0e}.</p>" + "".join(solver_step(solved, story.classes) for solved in story.solved))


def solver_step(solved, classes):
    """q and p of one image as maps, and their areas against the bounds."""
    maps = []
    for title, values in (("q, the net's output", solved.q), ("p, nearest to q within the bounds", solved.p)):
        cells = "".join(
            f'<figure>{picture(heat(v, label), f"{title}: {classes[label]}", classes="cells")}'
            f"<figcaption>{title[0]}({name(classes[label])})</figcaption></figure>"
            for label, v in zip(solved.labels, values))
        maps.append(f'<h4>{title}</h4><div class="maps">{cells}</div>')
    return (f'<div class="step"><div><h3>after {solved.iteration} iterations</h3>{"".join(maps)}</div>'
            f'<div>{areas(solved, classes)}<p class="note">Pale: area in q. Full: area in p. Brackets: bounds. '
            f"The solver took {solved.iterations} Newton steps; the duality gap is {solved.gap:.0e}. "
            f"{solved.absent:.0%} of q lies on labels that are not in the image, and nothing of p.</p></div></div>")


def photographs(story):
    """The shipped model on photographs, or why there are none."""
    if story.no_photographs:
        return (f"<p>This page shows none: {text(story.no_photographs)}. With the model and a network, the first "
                "command below segments any photograph.</p>")
    return ("<p>The model in <code>models/</code> learned the 20 classes of VOC from tags and one bit of size per tag. "
            "It has seen no mask. Here it segments photographs that scikit-image carries; a dense CRF sharpens the "
            "edges. The model was not told what they show. What it gets wrong stands below the photograph.</p>"
            f'<div class="two">{"".join(map(photograph, story.photographs))}</div>')


def photograph(shown):
    share = np.bincount(shown.mask.ravel(), minlength=256)[:len(shown.classes)] / shown.mask.size
    found = [label for label in np.argsort(-share, kind="stable") if label != BACKGROUND and share[label] >= NOTICED]
    chips = "".join(f"<span>{swatch(label)}{name(shown.classes[label])} {percent(share[label])}</span>"
                    for label in found)
    wrong = [f"wrong: there is no {name(shown.classes[label])} in it" for label in found
             if shown.classes[label] not in shown.shows]
    wrong += [f"missed: {name(label)}" for label in shown.shows if label not in [shown.classes[l] for l in found]]
    image = picture(thumbnail(shown.image, shown.mask, 640), f"{shown.what}, under the colours of the labels", "jpeg")
    return (f'<figure>{image}<figcaption>{text(shown.what)}.<p class="legend">{chips or "nothing found"}</p>'
            f'{"".join(f"<p class=wrong>{sentence}</p>" for sentence in wrong)}</figcaption></figure>')


def page(story):
    """The whole page."""
    by_system = {result.system: result for result in story.results}
    tags, size, full = (by_system[system] for system in ("tags", "size", "full"))
    baseline = max((by_system[system] for system in BASELINES), key=lambda result: result.miou)
    curves = [(result.title, LINES[result.system], result.course) for result in story.results]
    losses = [(result.title, LINES[result.system], result.losses) for result in (tags, size)]
    return document("CCNN on Caffe: segmentation from image tags", f"""
<header>
<h1>Segmentation learned from tags</h1>
<p class="lead">Nobody outlined anything for this net. Of each of its {story.images[0]} training images it knows only
which kinds of objects are in it: <q>fish, snail</q>. Linear constraints on its output and Caffe's own SGD did the rest.
All {len(story.results)} systems on this page took {story.minutes:.1f} minutes.</p>
{tiles([(f"{baseline.miou:.0f}", "best baseline on tags", baseline.title),
        (f"{tags.miou:.0f}", tags.title, "image tags alone"),
        (f"{size.miou:.0f}", size.title, "one more bit per tag"),
        (f"{full.miou:.0f}", full.title, "the ceiling: trained on masks")])}
<p class="note">Mean IoU in percent on {story.images[1]} images that no training saw.</p>
</header>

<section>
<h2>What it learned</h2>
<p>These are the first wide images of the validation set, not the best. Colour does not give the classes away: the
clutter has the same colours, and one object in twelve has the colour of another class. Size is one bit per tag: does
the class cover more than a tenth of the image? It keeps small objects small.</p>
{legend(story.classes)}
{examples(story)}
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
{why_flat(by_system["mil_fcn"])}
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

<section id="next">
<h2>Next</h2>
<p>Paste these in the folder of the repository.</p>
{commands(NEXT)}
</section>
<footer>Drawn, trained, scored and written by <code>make demo</code>, which takes about {MINUTES} minutes on two cores.
Method: Pathak, Krähenbühl, Darrell, <cite>Constrained Convolutional Neural Networks for Weakly Supervised
Segmentation</cite>, ICCV 2015. This page is one file; it loads nothing from the network.</footer>""", STYLE)


STYLE = """
h4 { font-size: 13px; font-weight: 500; color: var(--soft); margin: 10px 0 4px; }
q { quotes: "\\201c" "\\201d"; }
figure img { border-radius: 5px; }
figcaption { font-size: 14px; color: var(--soft); padding-top: 4px; }
figcaption .legend { color: var(--ink); }
#next p { font-size: 14px; color: var(--soft); }
.gallery { margin: 14px 0 18px; }
.after { margin-top: 18px; }
.row { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); gap: 12px; margin-bottom: 10px; }
.row h3 { font-size: 14px; align-self: end; }
.row figcaption b { display: none; }
figure.one { float: right; width: 220px; margin: 0 0 14px 26px; }
.cells { image-rendering: pixelated; border: 1px solid var(--rule); }
.maps { display: flex; gap: 10px; max-width: 480px; }
.maps figure { flex: 1 1 0; min-width: 0; }
.step { display: grid; grid-template-columns: minmax(0, 1.1fr) minmax(0, 1fr); gap: 34px; clear: both;
        padding: 18px 0 6px; align-items: center; }
svg .bound { fill: none; stroke: var(--ink); stroke-width: 2; }
svg .name { font-size: 13px; fill: var(--ink); }
.scores { margin: 8px 0 18px; }
.scores thead th { overflow-wrap: normal; }
.scores .knows { color: var(--soft); font-size: 14px; }
.scores .knows, .scores thead th:nth-child(2), .scores .bar, .scores thead th:last-child { text-align: left; }
.scores .ours th { font-weight: 650; }
.scores .bar { width: 22%; white-space: nowrap; }
.scores .bar span { display: inline-block; height: 14px; border-radius: 3px; margin-right: 8px; vertical-align: -2px; }
@media (max-width: 760px) {
  .row { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); margin-bottom: 22px; }
  .row.heads { display: none; }
  .row figcaption b { display: block; font-weight: 500; color: var(--ink); }
  figure.one { float: none; width: 100%; max-width: 260px; margin: 0 0 18px; }
  .step { grid-template-columns: minmax(0, 1fr); gap: 12px; }
  .scores, .scores tbody { display: block; }
  .scores thead { display: none; }
  .scores tr { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 2px 12px; padding: 12px 0;
               border-bottom: 1px solid var(--rule); }
  .scores th, .scores td { border: 0; padding: 0; text-align: left; }
  .scores th, .scores .knows, .scores .bar { grid-column: 1 / -1; width: auto; }
  .scores .bar { order: 1; }
  .scores .iou { order: 2; }
  .scores td[data-head]::before { content: attr(data-head); display: block; font-size: 13px; color: var(--soft); } }
"""
