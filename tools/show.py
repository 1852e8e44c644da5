#!/usr/bin/env python3
"""Draw figures: predictions beside the truth, the course of a training, what the constraints did to an image.

    tools/show.py panel tags=masks/tags size=masks/size --out panel.png
    tools/show.py log snapshots/head_tags.log --out curves.png
    tools/show.py constraints data/VOCdevkit/VOC2012/JPEGImages/2007_000033.jpg --tags aeroplane --out aeroplane.png

`tools/show.py panel --help` and so on tell more. Figures end in .png, .pdf or .svg.
"""
import argparse
import inspect
from pathlib import Path

import _activate  # noqa: F401
import numpy as np

import ccnn
from ccnn import command, predict
from ccnn.caffelog import read_log
from ccnn.constraints import size_constraints, tag_constraints
from ccnn.crf import LONG_SIDE
from ccnn.errors import UserError
from ccnn.files import warn_if_there, whole_file
from ccnn.images import read_image, read_mask, shrink
from ccnn.labels import VOC_CLASSES, VOID, palette, read_classes
from ccnn.lists import read_split
from ccnn.net import check_scores, forward, load_net
from ccnn.runs import parse_run
from ccnn.scores import read_prediction, truth_paths
from ccnn.tags import parse_large, parse_tags

COLOURS = np.array(palette(), np.uint8).reshape(256, 3)

ALARM = "#d62728"


def main(argv=None):
    args = parse_args(argv)
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    save(args.draw(args), args.out)


def parse_args(argv):
    parser = command.parser(__doc__)
    commands = parser.add_subparsers(metavar="panel|log|constraints", required=True)

    def subcommand(draw):
        name = draw.__name__.partition("_")[2]
        sub = commands.add_parser(name, description=inspect.cleandoc(draw.__doc__),
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(draw=draw)
        sub.add_argument("--out", type=Path, required=True, metavar="PNG", help="the figure: .png, .pdf or .svg")
        return sub.add_argument

    add = subcommand(draw_panel)
    add("runs", nargs="+", metavar="RUN", help="NAME=FOLDER[,FOLDER_WITH_CRF] of masks: a column each")
    add("--ids", metavar="A,B", help="the images (default: six, evenly spread over the split)")
    add("--voc", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR",
        help="VOC folder with images and truth (default: data/VOCdevkit/VOC2012)")
    add("--split", default="val", metavar="NAME", help="list in ImageSets/Segmentation, or a file (default: val)")
    add("--classes", type=Path, metavar="FILE", help="names of the labels, one a line (default: VOC's)")

    add = subcommand(draw_log)
    add("logs", nargs="+", type=Path, metavar="LOG", help="what `caffe train` wrote to stderr; a colour each")

    add = subcommand(draw_constraints)
    add("image", type=Path, help="a photograph")
    add("--tags", required=True, metavar="A,B", help="the classes in it")
    add("--large", metavar="A,B", help="those above a tenth of the image: the size constraints ('' if none is)")
    add("--net", type=Path, metavar="FILE", help="deploy net (default: infer.py's)")
    add("--weights", type=Path, metavar="FILE", help="its weights (default: infer.py's)")
    add("--classes", type=Path, metavar="FILE", help="names of the labels (default: those of the weights)")
    add("--size", type=command.count, metavar="PIXELS", help="long side that the net sees (default: that of the weights)")

    args = parser.parse_args(argv)
    if args.out.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--out {args.out}: need a name that ends in .png, .pdf or .svg")
    return args


def save(figure, path):
    from matplotlib import pyplot as plt
    warn_if_there(path)
    with whole_file(path) as part:
        figure.savefig(part, dpi=130)
    plt.close(figure)


def patches(labels, classes):
    """Legend entries: the labels' colours."""
    from matplotlib.patches import Patch
    names = {**dict(enumerate(classes)), VOID: "void: not scored"}
    return [Patch(facecolor=COLOURS[l] / 255, edgecolor="#888888", label=names[l]) for l in sorted(labels)]


def draw_panel(args):
    """Images, their true masks, and the masks of one or several runs, side by side.

    tools/show.py panel tags=masks/tags "tags + size=masks/size,masks/size_crf" --out panel.png
    """
    from matplotlib import pyplot as plt
    runs = [parse_run(text) for text in args.runs]
    if any(run.origin for run in runs):
        raise UserError("a .json holds no masks; give their folder")
    if not args.voc.is_dir():
        raise UserError(f"--voc {args.voc}: no such folder; tools/get_voc.py makes it")
    classes = read_classes(args.classes) if args.classes else VOC_CLASSES
    names = choose(read_split(args.voc, args.split), args.ids)
    columns = [(run.name + (" with CRF" if crf else ""), folder) for run in runs for crf, folder in run.folders.items()]
    rows, labels = [], set()
    for name, path in zip(names, truth_paths(args.voc, names)):
        truth = read_mask(path, len(classes))
        masks = [truth] + [read_prediction(folder / f"{name}.png", len(classes), truth.shape, path)
                           for _, folder in columns]
        image = read_image(args.voc / f"JPEGImages/{name}.jpg")
        if image.shape[:2] != truth.shape:
            raise UserError(f"{path}: is {truth.shape[1]} x {truth.shape[0]}, "
                            f"its image {image.shape[1]} x {image.shape[0]}")
        rows.append([image] + [COLOURS[mask] for mask in masks])
        labels.update(*map(np.unique, masks))

    width = 2.2                                             # inches a picture
    heights = [width * row[0].shape[0] / row[0].shape[1] for row in rows]
    figure, axes = plt.subplots(len(rows), len(rows[0]), squeeze=False, layout="constrained", height_ratios=heights,
                                figsize=(width * len(rows[0]), sum(heights) + 0.06 * len(rows) + 0.9))
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)
    for line, row in zip(axes, rows):
        for axis, picture in zip(line, row):
            axis.imshow(picture, interpolation="nearest")
            axis.axis("off")
    for axis, title in zip(axes[0], ["image", "truth"] + [title for title, _ in columns]):
        axis.set_title(title, fontsize=11)
    handles = patches(labels, classes)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 7), frameon=False)
    return figure


def choose(names, wanted, count=6):
    """The wanted ids, or `count` of all, evenly spread."""
    if wanted is None:
        return [names[i] for i in np.linspace(0, len(names) - 1, min(count, len(names))).astype(int)]
    wanted = [name for name in wanted.split(",") if name]
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        raise UserError(f"--ids: {unknown[0] if unknown else 'nothing'} is not in the split")
    return wanted


def draw_log(args):
    """Loss, violations, solver time and learning rate of a training, from Caffe's log.

    tools/show.py log snapshots/head_tags.log snapshots/head_size.log --out curves.png

    Violation and time come from the constrained loss layer's second top, four numbers an image, and are missing
    in the logs of other losses. A loss that is NaN or infinite is marked in red. Where a training was
    resumed in one log, the iterations it repeated are shown as it did them last.
    """
    from matplotlib import pyplot as plt
    logs = [(path.stem, read_log(path)) for path in args.logs]
    titles = ["loss", "learning rate"]
    if any(log["solver"] for _, log in logs):
        titles[1:1] = ["violation by q\n(share of the image)", "solver time (ms)"]
    figure, axes = plt.subplots(len(titles), sharex=True, layout="constrained", figsize=(8, 0.6 + 2 * len(titles)))
    for k, (name, log) in enumerate(logs):
        shade = f"C{k + (k > 2)}"                           # C3 is the red of the alarm
        curve(axes[0], log["loss"], shade, name)
        curve(axes[-1], log["lr"], shade)
        if log["solver"]:
            solver = {i: np.mean(v, axis=0) for i, v in log["solver"].items()}
            scatter(axes[1], {i: v[0] for i, v in solver.items()}, shade)
            scatter(axes[2], {i: 1000 * v[3] for i, v in solver.items()}, shade)
            alarm(axes[1], [i for i, v in solver.items() if not np.isfinite(v[1])], "contradictory constraints")
    for axis, title in zip(axes, titles):
        axis.set_ylabel(title)
        axis.grid(alpha=0.25)
        stretch(axis, fraction=title.startswith("violation"))
        handles, names = axis.get_legend_handles_labels()
        if names and (len(logs) > 1 or axis is not axes[0] or len(names) > 1):
            axis.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.95))
    axes[-1].set_xlabel("iteration")
    return figure


def curve(axis, series, shade, name=None):
    """A line through the finite values; marks where a value is not."""
    x, y = np.array(list(series)), np.array(list(series.values()), float)
    good = np.isfinite(y)
    axis.plot(x, np.where(good, y, np.nan), color=shade, lw=1.5, label=name, marker="." if good.sum() < 2 else None)
    alarm(axis, x[~good], "NaN or infinite")


def scatter(axis, series, shade, window=25):
    """Dots, one an iteration shown, and their running mean."""
    x, y = np.array(list(series)), np.array(list(series.values()))
    good = np.isfinite(y)
    many = good.sum() > 4 * window
    axis.plot(x, y, ".", color=shade, ms=3 if many else 6, alpha=0.35 if many else 0.8)
    if many:
        mean = np.convolve(y[good], np.ones(window) / window, "valid")
        axis.plot(x[good][window // 2:][:len(mean)], mean, color=shade, lw=1.5)
    alarm(axis, x[~good], "NaN or infinite")


def alarm(axis, where, what):
    """Red crosses along the top of an axis."""
    if len(where):
        axis.plot(where, np.full(len(where), 0.97), "x", color=ALARM, transform=axis.get_xaxis_transform(),
                  clip_on=False, gid="alarm", label=f"{what}: {len(where)} of the iterations shown, first {min(where)}")


def stretch(axis, fraction):
    """A logarithmic scale where one value would flatten the rest; else, and for fractions, from 0."""
    from matplotlib import ticker
    y = np.concatenate([line.get_ydata() for line in axis.lines if line.get_gid() != "alarm"] or [[]])
    y = y[np.isfinite(y)]
    if not y.size:
        axis.set_yticks([])
    elif not fraction and y.min() > 0 and y.max() > 8 * np.median(y):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if y.max() < 300 * y.min() else (1,)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
    elif y.min() >= 0:
        axis.set_ylim(0, max(1.08 * y.max(), 1e-12))


def draw_constraints(args):
    """What the constraints did to one image: the net's output q, the latent distribution p nearest to it that obeys
    them, and the labels' areas in both against their bounds.

    tools/show.py constraints data/VOCdevkit/VOC2012/JPEGImages/2007_000033.jpg --tags aeroplane --out aeroplane.png
    tools/show.py constraints street.jpg --tags bus,person --large bus --out street.png
    """
    net, weights = args.net or predict.NET, args.weights or predict.HEAD
    rgb = read_image(args.image)
    about = predict.read_about(net, weights)
    classes = read_classes(args.classes) if args.classes else tuple(about.get("classes", VOC_CLASSES))
    present = parse_tags(args.tags, classes, "--tags")
    if args.large is None:
        c = tag_constraints(present)
    else:
        c = size_constraints(present, parse_large(args.large, present, classes, "--large"))
    image = shrink(rgb, args.size or about.get("size", LONG_SIDE))
    loaded = load_net(net, predict.find_weights(net, weights), shape=(1, 3, *image.shape[:2]))
    check_scores(loaded, net, classes)
    scores = forward(loaded, image)
    if not np.isfinite(scores).all():
        raise UserError(f"{weights}: the net's scores are not finite")
    return explain(image, scores, c, classes)


def explain(rgb, scores, c, classes):
    """A figure of q = softmax(scores), scores L x h x w, and of p, the solution under the constraints c."""
    from matplotlib import pyplot as plt
    from scipy.special import softmax
    shape = scores.shape[1:]
    f = np.ascontiguousarray(scores.reshape(len(scores), -1), np.float32)
    q = softmax(f.astype(float), axis=0)
    s = ccnn.maximize(f, c)
    if s.status == "infeasible":
        raise UserError("the constraints contradict each other: no distribution obeys them")
    labels = np.flatnonzero(c.allowed)

    side, chart = 2.0, 4.6                                  # inches: width of a picture, of the chart
    columns = 2 + len(labels)
    figure = plt.figure(figsize=(side * columns + chart, max(2 * side * rgb.shape[0] / rgb.shape[1], 3.4) + 0.7),
                        layout="constrained")
    grid = figure.add_gridspec(2, columns + 1, width_ratios=[side] * columns + [chart])
    axes = np.array([[figure.add_subplot(grid[row, column]) for column in range(columns)] for row in (0, 1)])
    for axis in axes.flat:
        axis.axis("off")
    axes[0, 0].imshow(rgb)
    axes[0, 0].set_title("image")
    seen = set(labels)
    for line, distribution, name in zip(axes, (q, s.p), "qp"):
        best = distribution.argmax(axis=0)
        seen.update(l for l in np.unique(best) if (best == l).mean() > 0.02)
        line[1].imshow(COLOURS[best.reshape(shape)], interpolation="nearest")
        line[1].set_title(f"labels of {name}")
        for axis, label in zip(line[2:], labels):
            shown = axis.imshow(distribution[label].reshape(shape), vmin=0, vmax=1, cmap="magma",
                                interpolation="nearest")
            axis.set_title(f"{name}({classes[label]})")
    axes[1, 0].legend(handles=patches(seen, classes), loc="center", frameon=False)
    figure.colorbar(shown, ax=axes[:, -1], shrink=0.7, label="probability")
    draw_areas(figure.add_subplot(grid[:, -1]), q, s, c, labels, classes)
    return figure


def draw_areas(axis, q, s, c, labels, classes):
    """Bars: the share of the image that q and p give each label. Brackets: what its rows demand."""
    y = np.arange(len(labels) + 1)[::-1]                    # the last line: all labels that are not allowed
    absent = ~np.isin(np.arange(len(q)), labels)
    for values, offset, shade, name in ((q, 0.16, "#b8c4d6", "q, the net's output"),
                                        (s.p, -0.16, "#3b5b8c", "p, constrained")):
        means = values.mean(axis=1)
        axis.barh(y + offset, [*means[labels], means[absent].sum()], 0.32, color=shade, label=name)
    for row, bound, beta, lam in zip(c.A, c.b, c.beta, s.lam):
        label, = np.flatnonzero(row)
        at, edge, inwards = y[list(labels).index(label)], bound / row[label], 0.02 * np.sign(row[label])
        style = dict(color=ALARM if lam > 0 else "#222222", ls="-" if np.isinf(beta) else (0, (2, 1)))
        axis.plot(edge + np.array([inwards, 0, 0, inwards]), at + np.array([0.42, 0.42, -0.42, -0.42]), lw=1.6, **style)
        if lam > 0:
            axis.text(edge, at + 0.43, f" λ = {lam:.2g}", color=ALARM, fontsize=8, va="bottom")
    axis.plot([], [], color="#222222", lw=1.6, label="bound that holds by itself")
    axis.plot([], [], color=ALARM, lw=1.6, label="bound that acts, with its dual λ")
    if not np.isinf(c.beta).all():
        axis.plot([], [], color="#222222", lw=1.6, ls=(0, (2, 1)), label="dashed: soft, may be missed at a price")
    axis.set_yticks(y, [*(classes[l] for l in labels), "all others"])
    axis.set_xlim(0, 1)
    axis.set_ylim(-0.6, len(labels) + 0.75)
    axis.set_xlabel("share of the image")
    axis.set_title(f"{s.iterations} iteration{'s' * (s.iterations != 1)} of the solver, gap {s.gap:.0e}")
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.11), ncols=2)


if __name__ == "__main__":
    command.run(main)
