"""A run of the study: an experiment with a seed, trained on cached features and scored on them."""
import json
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments import BACKBONE, EVERY_EXPERIMENT, EXPERIMENTS
from points import mark_points
from teacher_masks import teach

from ccnn._util.cluster import connected
from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn._util.progress import Progress
from ccnn._util.system import end_with_parent
from ccnn._util.workers import in_processes
from ccnn.cli import command
from ccnn.crf.dense import PRESETS, dense_crf
from ccnn.data.background_shares import guess_shares
from ccnn.data.dataset import read_map
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.grid import label_map, positions, sample
from ccnn.images.ids import read_split, truth_paths
from ccnn.images.labels import LABELS
from ccnn.images.reading import read_image, read_mask, shrink
from ccnn.inference.caffe_net import load_caffe, load_net
from ccnn.inference.cue_maps import weigh
from ccnn.nets import cues
from ccnn.nets import prototxt as nets
from ccnn.nets.caffe_files import read_caffemodel, write_caffemodel
from ccnn.nets.weights import convolutions, fill
from ccnn.project.feature_cache import compute_maps, maps_folder
from ccnn.project.learn import RECIPE
from ccnn.supervision.baselines import image_level_prior

HELD_OUT = Path("output/study/held_out")

CUE, EXPONENT = cues.DEFAULT, RECIPE.exponent           # as `ccnn learn` has them

WITH_CUE = "cue"        # kinds of scores with the cue at inference begin with it


def add_places(add):
    """The options that all programs of the study have."""
    add("--root", type=Path, default=Path("data/VOCdevkit/VOC2012"), metavar="DIR", help="(default: %(default)s)")
    add("--features", type=Path, default=Path("data/features"), metavar="DIR", help="(default: %(default)s)")


def arguments(doc, argv):
    """The arguments of a program that measures finished runs."""
    parser = command.parser(doc)
    add_places(parser.add_argument)
    add_folders(parser.add_argument)
    return parser.parse_args(argv)


def add_folders(add, folder=HELD_OUT.parent):
    add("--folder", type=Path, default=folder, metavar="DIR",
        help=f"of the runs (default: {folder or HELD_OUT.parent})")
    add("--out", type=Path, metavar="DIR", help="also write the results here: study/results is what the pages show")


def add_trainings(add, folder):
    """The options of a program that trains; folder: where runs go, None for output/study or output/study/held_out."""
    add("rows", nargs="*", metavar="ROW", help="see study/experiments.py (default: all)")
    add_places(add)
    add_folders(add, folder)
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="runs at a time (default: all cores)")
    command.add_cluster_option(add)
    add("--report", action="store_true", help="no runs, only the tables")


def with_rows(args, rows):
    """The arguments with the rows that are wanted, which must be some of these."""
    unknown = [name for name in args.rows if name not in rows]
    if unknown:
        raise UserError(f"{unknown[0]}: no such row; there are {', '.join(rows)}")
    args.rows = args.rows or list(rows)
    return args


def write_results(out, name, found):
    """Write results as JSON into the folder `out`, if one is given: a list with one line for each entry."""
    if out:
        with whole_file(out / name) as part:
            part.write_text(json.dumps(found, indent=1) + "\n" if isinstance(found, dict)
                            else "[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


class Settings(NamedTuple):
    """What all runs of a study share."""
    folder: Path                # of nets, snapshots, logs and scores
    starts: Path                # of those that others start with or learn from
    root: Path                  # of VOC
    features: Path
    pool4: Path
    pool3: Path
    train: str                  # lists of images: names of VOC's, or paths
    own: str                    # those of `train` that are VOC's own
    val: str
    changes: list               # of the solver, as "key=value"
    crf: dict                   # {name: preset} of the CRFs to be scored
    cue: bool = False           # score with the cue at inference, too


class Run(NamedTuple):
    name: str                   # of EVERY_EXPERIMENT
    seed: int
    settings: Settings

    def __str__(self):
        return f"{self.name} {self.seed}"

    @property
    def experiment(self):
        return EVERY_EXPERIMENT[self.name]

    def other(self, name):
        """The run of another experiment with the same seed, as the repository has its solver, and its labels alone."""
        settings = self.settings._replace(folder=self.settings.starts, changes=[])
        return self._replace(name=name, settings=settings).alone

    @property
    def alone(self):
        """The same run, scored without CRFs and without a cue."""
        return self._replace(settings=self.settings._replace(crf={}, cue=False))

    @property
    def folder(self):
        return (self.settings.folder / self.name / str(self.seed)).resolve()

    @property
    def candidates(self):
        """The list of the images that it may know something of."""
        return self.settings.own if self.experiment.own else self.settings.train

    @property
    def with_masks(self):
        """The list of those that keep their masks, if not all do."""
        return str(self.folder / "masks.txt")

    @property
    def split(self):
        """The list of the training images."""
        return self.with_masks if self.experiment.alone else self.candidates

    @property
    def inputs(self):
        """The folder of what is cached of the images."""
        folder, size = getattr(self.settings, self.experiment.cached), self.experiment.size
        return folder.with_name(f"{folder.name}_{size}") if size else folder

    @property
    def maps(self):
        """The folder of the maps of the cue."""
        return maps_folder(self.settings.features.parent, CUE.name)

    @property
    def result(self):
        return self.folder / "score.json"


def execute_all(wanted, cluster, jobs):
    """Train and score what is not done of these runs and of what they start with."""
    needed = {(run.settings.folder, run.name, run.seed): run for run in wanted}
    for run in wanted:
        for name in needs(run.name):
            other = run.other(name)
            needed.setdefault((other.settings.folder, name, run.seed), other)
    make_maps(needed.values(), jobs)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"            # each run on one core; read when Caffe is loaded
    with connected(cluster, jobs) as jobs:
        for count in sorted({len(needs(run.name)) for run in needed.values()}):     # what others need comes first
            execute_some([run.alone for run in needed.values() if len(needs(run.name)) == count], jobs)
        execute_some(needed.values(), jobs)             # CRFs come last, because nothing waits for them


def make_maps(runs, jobs):
    """The maps of the cue that these runs train on, or are scored with."""
    for run in runs:
        lists = [run.candidates] * run.experiment.cue + [run.settings.val] * run.settings.cue
        ids = [id for split in lists for id in read_split(run.settings.root, split)]
        if ids:
            run.maps.mkdir(parents=True, exist_ok=True)
            compute_maps(run.maps, CUE.name, {id: str(run.settings.root / f"JPEGImages/{id}.jpg") for id in ids}, jobs)


def execute_some(runs, jobs):
    """Train and score what is not done of some runs, none of which needs another."""
    tasks = [(run,) for run in runs if missing(run)]
    with Progress(total=len(tasks), unit="run") as bar:
        for line in in_processes(execute, tasks, jobs):
            bar.write(line)
            bar.update()


def needs(name):
    """The experiments that must be trained before this one."""
    experiment = EVERY_EXPERIMENT[name]
    return {other for first in (experiment.taught, experiment.start) if first for other in {first, *needs(first)}}


def hold_out(root):
    """Paths of three lists: three quarters of the training images, those of them that are VOC's own, and every fourth
    image."""
    names, own = read_split(root, "train_aug"), set(read_split(root, "train"))
    held = names[3::4]
    train = [name for name in names if name not in set(held)]
    lists = {HELD_OUT / "train.txt": train, HELD_OUT / "own.txt": [name for name in train if name in own],
             HELD_OUT / "val.txt": held}
    for path, some in lists.items():
        with whole_file(path) as part:
            part.write_text("\n".join(some) + "\n")
    return tuple(map(str, lists))


def execute(run):
    """Train and score what of a run is not done; one line on it."""
    began = time.monotonic()
    kinds = missing(run)
    run.folder.mkdir(parents=True, exist_ok=True)
    result = read_result(run.result) or {"row": run.name, "seed": run.seed, "set": run.settings.changes, "iou": {}}
    prepare(run)
    trained = time.monotonic()
    model = train(run)
    result.setdefault("seconds", round(time.monotonic() - trained))
    result["iou"].update(score(run, model, kinds))
    result.setdefault("draws", {}).update({kind: resampled(run, kind) for kind in kinds})
    result.setdefault("half", {}).update({kind: on_half(run, kind) for kind in kinds})
    result.setdefault("crf", {}).update({kind: seen_by(run.settings.crf[preset_of(kind)]) for kind in kinds
                                         if preset_of(kind) in run.settings.crf})
    with whole_file(run.result) as part:
        part.write_text(json.dumps(result))
    figures = ", ".join(f"{miou(iou):.1f} {kind}".strip() for kind, iou in result["iou"].items())
    return (f"{run}: mIoU {figures}; {result['seconds']} s to train, "
            f"{time.monotonic() - began:.0f} in all")


def missing(run):
    """What of a run is still to be scored: "" for the net's own labels, "ilp", and names of CRF presets.

    UserError if what is there was made with other settings.
    """
    experiment, presets, changes = run.experiment, run.settings.crf, run.settings.changes
    done = read_result(run.result) or {"iou": {}, "set": changes}
    if done["set"] != changes:
        raise UserError(f"{run.result}: is of a run with --set {' --set '.join(done['set']) or 'nothing'}; "
                        "choose another --folder")
    for file, text in sources(run).items() if any(run.folder.glob("head_iter_*")) else ():
        file = run.folder / file
        if file.exists() and file.read_text() != text:
            raise UserError(f"{file}: is not what the repository has now; remove {run.folder} and all that was "
                            "made with it, or choose another --folder")
    crfs = list(presets) if experiment.crf and run.seed == 1 else []
    kinds = ["", *["ilp"] * experiment.ilp, *crfs]
    if run.settings.cue:
        kinds += [WITH_CUE, *(f"{WITH_CUE}_{name}" for name in crfs)]
    used = done.get("crf", {})
    return [kind for kind in kinds if kind not in done["iou"]
            or (preset_of(kind) in presets and used.get(kind) != seen_by(presets[preset_of(kind)]))]


def preset_of(kind):
    """The name of the CRF in a kind of score: "authors" and "cue_authors" have the same; "" and "cue" have none."""
    return kind.removeprefix(WITH_CUE).removeprefix("_")


def sources(run):
    """What a run is made of: {name of a file in its folder: text}."""
    experiment, settings = run.experiment, run.settings
    data = {**nets.CACHED, "root": str(settings.root), "features": str(run.inputs), "split": run.split,
            "seed": run.seed, "supervised": run.with_masks, "shares": str(run.folder / "shares.csv")}
    if experiment.points:
        data.update(supervised=0, scribbles=str(run.folder / "points"))
    if experiment.learns:
        data["blob"] = experiment.cached
    if experiment.cue:
        data["cues"] = str(run.maps)
    if experiment.taught:
        data["masks"] = str(run.other(experiment.taught).folder / "taught")
    if experiment.learns:
        net = nets.last_blocks_net(experiment.learns, experiment.system, data, cells_only=experiment.only_cells,
                                   **experiment.settings)
    elif experiment.system == "classifier":
        net = nets.data_layer("tags", data) + nets.tag_classifier("fc8_cell", "features")
    else:
        net = (nets.data_layer(experiment.system, data, held=experiment.loss.get("hold", 1) > 1)
               + (nets.coarse_features(experiment.every) if experiment.every > 1 else "")
               + nets.trained_head(experiment.system, cells_only=experiment.only_cells, bottom=experiment.bottom,
                                   **experiment.settings))
        net = net.replace("std: 0.01", f"std: {experiment.std:g}")
    return {"net.prototxt": net, "solver.prototxt": solver_text(experiment),
            "experiment.json": json.dumps(made_of(experiment))}


def made_of(experiment):
    """What a run is made of beside its net and its solver."""
    return {field: getattr(experiment, field) for field in ("changes", "areas", "supervised", "start", "taught")}


def solver_text(experiment):
    part = f"conv{experiment.learns}" if experiment.learns else "head"
    return (ROOT / f"solvers/{part}_{experiment.solver or experiment.system}.prototxt").read_text()


def prepare(run):
    """Make what a training reads: its net, lists of images, guessed areas, masks of another system."""
    experiment, folder = run.experiment, run.folder
    names = read_split(run.settings.root, run.candidates)
    if experiment.areas:
        known = random.Random(run.seed).sample(names, experiment.areas)
        guess_shares(run.settings.root, run.settings.features, names, known, folder / "shares.csv")
    if experiment.points:
        mark_points(run.settings.root, names, run.seed, folder / "points")
    if experiment.taught:
        make_masks(run.other(experiment.taught), run.split)
    if experiment.supervised:
        kept = random.Random(run.seed).sample(names, round(len(names) * int(experiment.supervised[:-2]) / 100))
        Path(run.with_masks).write_text("\n".join(kept) + "\n")
    for file, text in sources(run).items():
        (folder / file).write_text(text)


def train(run):
    """The path of the trained model."""
    experiment, folder = run.experiment, run.folder
    changes = [f"net={folder / 'net.prototxt'}", f"snapshot_prefix={folder / 'head'}", f"random_seed={run.seed}",
               *experiment.changes, *run.settings.changes]
    command = [sys.executable, ROOT / "tools/train.py", folder / "solver.prototxt",
               *(word for change in changes for word in ("--set", change))]
    if experiment.start:
        command += ["--weights", start_weights(run)]
    with open(folder / "train.log", "a") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True,
                              preexec_fn=partial(end_with_parent, os.getpid()))
    if done.returncode:
        raise UserError((folder / "train.log").read_text().strip().splitlines()[-1])
    return done.stdout.strip()


def make_masks(run, split):
    """The masks that a finished run makes of a list of training images; those that are there stay."""
    experiment = run.experiment
    knows = {"root": str(run.settings.root), "split": split, "features": str(run.inputs), "blob": experiment.cached}
    if experiment.areas:
        knows["shares"] = str(run.folder / "shares.csv")
    if experiment.cue:
        knows["cues"] = str(run.maps)
    load_caffe()
    deploy = run.folder / "deploy.prototxt"
    deploy.write_text(deploy_net(experiment))
    net = load_net(deploy, last_model(run.folder))
    teach(experiment.trained, experiment.settings, knows, lambda name: forward(net, run.inputs / f"{name}.npy"),
          PRESETS["heads"], run.folder / "taught")


def last_model(folder):
    """The model of a run that is finished."""
    models = sorted(folder.glob("head_iter_*.caffemodel"), key=lambda path: int(path.stem.rpartition("_")[2]))
    if not models:
        raise UserError(f"{folder}: has no model; run study/study.py {folder.parent.name}")
    return models[-1]


def side_of(inputs):
    """Long side of the images that the cached features are of."""
    return json.loads((inputs / "index.json").read_text())["size"]


def start_weights(run):
    """The model of the experiment that this one starts with; with VGG's last blocks, if they learn."""
    model = last_model(run.other(run.experiment.start).folder)
    if not run.experiment.learns:
        return model
    joined, _ = fill(convolutions(run.folder / "net.prototxt"),
                     {path: read_caffemodel(path) for path in (model, BACKBONE.fetch_weights())})
    write_caffemodel(run.folder / "start.caffemodel", joined)
    return run.folder / "start.caffemodel"


def score(run, model, kinds):
    """{kind: IoU of every class} on the list `val`. What every image adds is kept in a file for each kind."""
    settings = run.settings
    load_caffe()
    deploy = run.folder / "deploy.prototxt"
    deploy.write_text(deploy_net(run.experiment))
    net = load_net(deploy, model)
    size = side_of(run.inputs)
    names = read_split(settings.root, settings.val)
    found = {kind: np.zeros((len(names), LABELS, LABELS), np.int32) for kind in kinds}
    for number, (name, mask) in enumerate(zip(names, truth_paths(settings.root, names))):
        f = forward(net, run.inputs / f"{name}.npy")
        truth = read_mask(mask)
        rgb = read_image(settings.root / f"JPEGImages/{name}.jpg") if {*map(preset_of, kinds)} & {*settings.crf} \
            else None
        scores = BACKBONE.scores(f, truth.shape, size)
        scores = scores._replace(stride=scores.stride * run.experiment.every)
        cued = weigh(scores, read_map(run.maps / f"{name}.npy"), truth.shape, EXPONENT) if settings.cue else scores
        for kind in kinds:
            labels = label(preset_of(kind), rgb, cued if kind.startswith(WITH_CUE) else scores, truth.shape,
                           settings.crf, run.experiment.loss.get("r", MIL_BASE_R))
            found[kind][number] = confusion(truth, labels, LABELS)
    for kind, C in found.items():
        with whole_file(confusions_file(run, kind)) as part, open(part, "wb") as file:
            np.savez_compressed(file, C)
    return {kind: [v if v is None else round(v, 2)
                   for v in scored(str(run.folder), settings.val, False, C.sum(axis=0)).iou]
            for kind, C in found.items()}


def deploy_net(experiment):
    """From what is cached to the scores."""
    channels, fewer = BACKBONE.blobs[experiment.cached]
    side = BACKBONE.cells(BACKBONE.size) - fewer
    text = nets.input_layer(experiment.cached, 1, channels, side, side)
    if experiment.learns:
        return text + nets.backbone_layers(experiment.learns) + nets.head()
    if experiment.system == "classifier":
        return text + nets.score("fc8_cell", "features", LABELS)
    return text + (nets.coarse_features(experiment.every) if experiment.every > 1 else "") + nets.head(
        bottom=experiment.bottom)


def confusions_file(run, kind):
    return run.folder / confusions_name(kind)


def confusions_name(kind):
    """The file in a run's folder that has the confusion matrix of every image."""
    return f"confusions{'_' * bool(kind)}{kind}.npz"


def forward(net, file):
    """The scores of an image, L x h x w, from the file of what is cached of it."""
    try:
        cached = np.load(file)
    except (ValueError, EOFError) as e:
        raise UserError(f"{file}: is damaged: {e}; run tools/cache_features.py again") from None
    blob = net.blobs[net.inputs[0]]
    if cached.shape[0] != blob.shape[1]:
        raise UserError(f"{file}: has {cached.shape[0]} channels, need {blob.shape[1]}; remove {file.parent} and "
                        "run tools/cache_features.py again")
    blob.reshape(1, *cached.shape)
    blob.data[0] = cached
    net.forward()
    return net.blobs["fc8"].data[0].copy()


CRF_SIDE = 167          # long side that the CRF sees: it takes less time than 500 (study/crf_sizes.py compares)


def seen_by(preset):
    """What decides the labels after a CRF: the preset, and the long side of what it sees."""
    return {**preset._asdict(), "side": CRF_SIDE}


MIL_BASE_R = nets.SYSTEMS["mil_base"].settings["r"]


def label(kind, rgb, scores, shape, presets, r):
    """The label of every pixel: by the scores alone (""), with an image-level prior ("ilp"), or after a CRF."""
    if kind not in presets:
        f = image_level_prior(scores.values, r) if kind == "ilp" else scores.values
        return label_map(f, *scores.cells(*shape))
    return after_crf(rgb, scores, presets[kind], CRF_SIDE)


def after_crf(rgb, scores, preset, side):
    """The label of every pixel after a CRF, which sees the photograph reduced to a long side of `side` pixels."""
    small = shrink(rgb, side)
    if not preset.long_side:                            # its distances shrink with the photograph
        preset = preset._replace(long_side=max(rgb.shape[:2]))
    q = dense_crf(small, sample(scores.values, *scores.cells(*small.shape[:2])), preset, threads=1)
    return label_map(q, *(positions(*sides) for sides in zip(rgb.shape[:2], small.shape)))


# Results

def read_result(path):
    """What a run scored so far: its row, seed, settings, seconds and IoU of each kind; None if it has not begun."""
    try:
        result = json.loads(path.read_text()) if path.exists() else None
        needed = {"seed", "set", "seconds", "iou", "draws", "half"}
        if result and not (result["row"] in EVERY_EXPERIMENT and result.keys() >= needed):
            raise ValueError("of other rows or keys")
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path}: is not a score of this tool ({e}); remove it, and the run is scored again") from None
    return result


def collect(folder):
    """What the finished runs of a folder scored, in the order of EXPERIMENTS. UserError if there is none."""
    found = [finished(path.parent) for path in folder.glob("*/*/score.json")]
    if not found:
        raise UserError(f"{folder}: has no finished run; run study/study.py first")
    return in_order(found)


def finished(folder):
    """What a run scored, and what it is made of; None if it is not finished. UserError if the row has changed since."""
    result = read_result(folder / "score.json")
    if not result:
        return None
    kept = folder / "experiment.json"
    then, now = (with_changes(made, result["set"]) for made in (
        json.loads(kept.read_text()) if kept.exists() else {"changes": ()}, made_of(EVERY_EXPERIMENT[result["row"]])))
    if then != now:
        raise UserError(f"{folder}: was made with other settings than study/experiments.py has now; remove it, and "
                        "run the command again")
    return {**result, "made_of": now}


def with_stored(results, stored):
    """The results, and what stored ones have besides: runs of other rows and seeds, and scores of other kinds."""
    kept = {}
    for result in [*stored, *results]:
        key = result["row"], result["seed"]
        before = kept.get(key, {})
        kept[key] = {**result, **{field: {**before.get(field, {}), **result.get(field, {})} for field in OF_KINDS}}
    return in_order(kept.values())


OF_KINDS = ("iou", "draws", "half", "crf")      # of a result: {kind of score: ...}


def read_stored(path):
    """A file of study_tables.write, with those of its runs whose rows are as they were; empty if there is none."""
    if not path.exists():
        return {"runs": [], "images": {}, "gaps": {}}
    try:
        stored = json.loads(path.read_text())
        kept = [result for result in stored["runs"] if result["row"] in EXPERIMENTS
                and result["made_of"] == with_changes(made_of(EXPERIMENTS[result["row"]]), result["set"])]
        rows = {result["row"] for result in kept}
        return {"runs": kept, "images": {row: kinds for row, kinds in stored["images"].items() if row in rows},
                "gaps": {pair: gap for pair, gap in stored["gaps"].items() if rows.issuperset(pair.split(" > "))}}
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path}: is damaged ({type(e).__name__} {e}); restore it, or remove it") from None


def in_order(results):
    """The results in the order of EXPERIMENTS."""
    return sorted(results, key=lambda result: (list(EXPERIMENTS).index(result["row"]), result["seed"]))


def with_changes(made, others):
    """What a run is made of, its changes of the solver as {key: value}, after others by --set."""
    return {**made, "changes": dict(change.split("=") for change in (*made["changes"], *others))}


DRAWS = 200             # sets of images; their standard deviation is known to 5 % of itself


def resampled(run, kind):
    """mIoU of DRAWS sets of as many images as were scored, drawn from them with replacement.

    The sets are the same for every run, so that gaps can be compared set by set.
    """
    C = np.load(confusions_file(run, kind))["arr_0"]
    drawn = (drawn_images(len(C)) @ C.reshape(len(C), -1).astype(float)).reshape(DRAWS, *C.shape[1:])
    right = np.diagonal(drawn, axis1=1, axis2=2)
    with np.errstate(invalid="ignore"):             # a class that a set does not show
        return (100 * np.nanmean(right / (drawn.sum(axis=1) + drawn.sum(axis=2) - right), axis=1)).round(2).tolist()


def drawn_images(number):
    """How often every image is in each of DRAWS sets of as many images, drawn with replacement: DRAWS x number."""
    return np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), DRAWS)


def on_half(run, kind):
    """mIoU on every second image, from the first on: of val, the 725 that the first version of the study scored."""
    C = np.load(confusions_file(run, kind))["arr_0"][::2].sum(axis=0)
    return round(miou(scored(str(run.folder), "every second image", False, C).iou), 2)


def miou(iou):
    """The mean over the classes; None is one that occurs nowhere."""
    return float(np.nanmean(np.array(iou, float)))
