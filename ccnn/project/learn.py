"""From a folder of photographs with tags to a model: features, nets, training, one file.

    project = Project(read_folder("photos"))
    print(project.summary)              # what will be done, and why
    project.compute_features(jobs=2)
    stopped = project.train()           # in NumPy, or by `caffe train`; resumes a training that was stopped
    project.write_model()               # photos/model.ccnn

A training has two rounds. In the first, the tags are constraints. The trained net, held to the constraints, then labels
every cell of the photographs, and the second round trains on these labels. Every training starts from random weights:
weights that were trained on a wrong tag would not forget it.

RECIPE holds every number of the method that differs from ccnn.nets.prototxt and ccnn.nets.solvers. Working files are in
photos/.ccnn (ccnn._util.work_folder):

    features/SIZE/      ccnn.project.feature_cache
    cues/NAME-SIZE/     maps of what stands out in the photographs; ccnn.project.feature_cache
    labels/             masks of the photographs, for the second round
    first.prototxt, second.prototxt, deploy.prototxt
    runs/RUN/           snapshots and logs of a training. RUN is a hash of all inputs, so a snapshot is never resumed
                        with different ones
    state.json          the inputs that model.ccnn was trained on, and which weights are in it
"""
import datetime
import json
import logging
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ccnn._util.errors import UserError
from ccnn._util.files import digest, lock, whole_file
from ccnn._util.foreign_files import parse_json
from ccnn._util.progress import Progress
from ccnn._util.text import plural
from ccnn._util.work_folder import claim, remove
from ccnn.data.dataset import read_map
from ccnn.images.formats import SUFFIX
from ccnn.images.grid import Scores
from ccnn.images.masks import save_mask
from ccnn.inference.cue_maps import weigh
from ccnn.inference.model_file import read_model, write_model
from ccnn.inference.predict import cue_with_labels
from ccnn.nets import cues
from ccnn.nets.backbones import DEFAULT, Backbone
from ccnn.nets.caffe_files import parse_solver
from ccnn.nets.cues import Cue, find_cue
from ccnn.nets.prototxt import SYSTEMS, own_nets
from ccnn.nets.solvers import solver_texts
from ccnn.project.checks import check_rules
from ccnn.project.class_kinds import DECISION, ClassKind, decide
from ccnn.project.feature_cache import maps_folder, update_features, update_maps
from ccnn.project.folder import PhotoFolder, json_digest, reasons
from ccnn.project.predictions import Prediction, label_mask, predict, small_shape
from ccnn.supervision.cue_rows import BOUNDS as CUE_BOUNDS
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.rules import Rules
from ccnn.supervision.rules_file import RULES_FILE
from ccnn.training import head
from ccnn.training.caffe_training import prepare

SOLVER = "head_tags"            # of ccnn.nets.solvers

WEIGHTS = re.compile(r"runs/[0-9a-f]{16}/second_iter_\d+\.caffemodel")

TRAINERS = ("numpy", "caffe")       # the first by default; the other is the reference, and needs Caffe

LABELS = "labels"           # folder of the masks that the second round learns from

log = logging.getLogger(__name__)


class Recipe(NamedTuple):
    """How to learn from a folder of sixty to a few thousand photographs."""
    backbone: Backbone = DEFAULT
    sizes: tuple = (224, 321)   # long sides of the photographs that the backbone sees, in pixels; each sample has one
    steps: int = 400            # of the first round, of 4 photographs each; at least
    second: float = 1.0         # share of the steps that the second round takes
    epochs: float = 6           # at least: sets the steps where there are more than 270 photographs
    # of Adam in each round; falls to zero at the last step. What counts is rate times steps: at half of it the second
    # round has not converged, at twice of it the first round's p has drifted from what the tags say (docs/cues.md)
    rate: float = 1e-3
    second_rate: float = 2e-3
    mirror: bool = True         # every other sample shows the mirrored features
    cells_only: bool = True     # sixty images are too few to learn what an image's mean says
    bounds: dict = {            # {system: settings of its loss layer in place of those in ccnn.nets.prototxt}
        "tags": {"bg_upper": 0.6}, "size": {"bg_upper": 0.6}}       # 0.7 leaves objects too small; 0.5 is no better
    exponent: float = 1.0       # of the cue where photographs are segmented; ccnn.inference.cue_maps
    check: float = 0.5          # share of the steps of a training that is there to be tested on photographs held out


RECIPE = Recipe()


def bounds_of(recipe: Recipe, system: str) -> dict:
    """The numbers that the constraints of a system are made with, as JSON holds them: infinity is "inf"."""
    settings = {**SYSTEMS[system].settings, **SYSTEMS[system].frozen, **recipe.bounds.get(system, {})}
    return {key: value for key, value in settings.items() if key != "supervision"}


def choose_cue(rules: Optional[Rules], name: Optional[str] = None) -> tuple[Optional[Cue], list[str]]:
    """(the cue to learn with or None, [why not, if its net is not to be had])"""
    said = rules and rules.cue
    cue = find_cue(name or said or cues.DEFAULT.name)
    if cue is None:
        return None, []
    try:
        cue.fetch_net()
        return cue, []
    except (UserError, OSError) as e:
        if name or said:
            raise
        return None, [f"learning without a cue: {e}"]


class State(NamedTuple):
    """What state.json says."""
    inputs: dict                # of the training
    weights: str                # of the model: a file in photos/.ccnn
    model: str                  # fingerprint of model.ccnn
    report: Optional[str]       # "plain"; "checked" on photographs held out; None: there is no report yet
    steps: Sequence = ()        # of each round
    scores: Optional[dict] = None       # on photographs held out
    before: Optional[dict] = None       # the same of the last model before this one that was checked


class Project:
    """A folder of photographs, the recipe to learn from it, and the state of the last training.

    inputs      everything that the model depends on
    state       of the last training; None if there is none
    reasons     why the model is stale; empty if it is still valid
    """

    def __init__(self, folder: PhotoFolder, steps: Optional[int] = None, seed: int = 1, again: bool = False,
                 recipe: Recipe = RECIPE, trainer: str = TRAINERS[0], cue: Optional[str] = None) -> None:
        """again : train even if nothing has changed   trainer : of TRAINERS   cue : of ccnn.nets.cues, or "none"; None:
        as constraints.toml says, else the default"""
        self.folder, self.recipe, self.seed, self.again, self.trainer = folder, recipe, seed, again, trainer
        self.steps = steps or max(recipe.steps, round(recipe.epochs * len(folder.photographs) / 4))
        self.notes = check_rules(folder, self.supervision, self.numbers)
        self.decided: Optional[dict[int, ClassKind]] = None
        self.cue, without = choose_cue(folder.rules, cue)
        self.notes += without
        # the net is the same wherever the folder lies
        first, deploy = self.nets(Path())
        second, _ = self.nets(Path(), labels=True)
        self.digests = folder.digests()
        self.inputs = {**folder.inputs(self.digests),
                         "train": [first, second], "deploy": deploy, "solver": str(self.solver(self.steps)),
                         "second_rate": recipe.second_rate,
                         "features": {"sizes": list(recipe.sizes), "weights": digest(recipe.backbone.fetch_weights()),
                                      "trunk": digest(recipe.backbone.net)},
                         "settings": {"steps": steps, "seed": seed,
                                      **({} if trainer == TRAINERS[0] else {"trainer": trainer}),
                                      **({"cue": self.cue.name} if self.cue else {})}}
        if self.cue:
            self.inputs["cue"] = {"sha256": self.cue.sha256, "size": self.cue.size, "bounds": CUE_BOUNDS._asdict(),
                                  "exponent": recipe.exponent, "decision": list(DECISION)}
        claim(folder.path)
        self.lock = lock(self.work / "lock", "process {holder} is learning from this folder; wait for its end, or stop "
                         "it (kill {holder})")
        self.state = self.read_state()
        self.reasons = reasons(self.state.inputs, self.inputs) if self.state else []

    # Files

    @property
    def work(self) -> Path:
        return self.folder.work

    @property
    def model(self) -> Path:
        return self.folder.path / "model.ccnn"

    @property
    def report(self) -> Path:
        return self.folder.path / "report.html"

    def read_state(self) -> Optional[State]:
        path = self.work / "state.json"
        try:
            stored = parse_json(path)
            if "question" in stored:                                # as version 2 called them
                stored["inputs"] = stored.pop("question")
            state = State(**stored)
            reasons(state.inputs, self.inputs)                  # fails where a part is missing
            if WEIGHTS.fullmatch(state.weights) and [type(steps) for steps in state.steps] == [int, int] \
                    and isinstance(state.scores, (dict, type(None))) and isinstance(state.before, (dict, type(None))):
                return state
            raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            if path.exists():
                log.warning("%s: is damaged; training again", path)
            return None

    def write_state(self, state: State) -> None:
        with whole_file(self.work / "state.json") as part:
            part.write_text(json.dumps(state._asdict(), indent=1))
        self.state = state

    # What is to be done

    @cached_property
    def trained(self) -> bool:
        """Whether the last weights were trained on the present inputs."""
        return bool(self.state) and not self.reasons and not self.again and self.last_weights is not None

    @property
    def last_weights(self) -> Optional[Path]:
        """The weights of the last training, if it was finished."""
        path = self.work / self.state.weights if self.state else None
        return path if path and path.is_file() else None

    @property
    def weights(self) -> Path:
        """The weights in the model."""
        assert self.last_weights, "train() comes first"
        return self.last_weights

    @property
    def model_is_there(self) -> bool:
        """Whether model.ccnn is what the last training wrote."""
        try:
            return self.state is not None and read_model(self.model).fingerprint == self.state.model
        except (UserError, OSError):
            return False

    def is_reported(self, kind: str) -> bool:
        """Whether report.html is about the model, and of this kind: "plain", or "checked" on photographs held out."""
        return self.state is not None and self.report.is_file() and self.state.report in (kind, "checked")

    @property
    def summary(self) -> str:
        """What will be done, in one line."""
        if self.trained and self.model_is_there:
            return f"{self.model}: nothing has changed since it was trained; --again trains it again"
        if self.trained:
            return f"{self.model}: is missing or was replaced; writing it again from the trained weights"
        counts = ", ".join(f"{name} in {number}" for name, number in self.folder.images_with().items())
        text = f"{self.folder.path}: {plural(len(self.folder.photographs), 'photograph')}, {counts}"
        if self.state and not self.again:
            text += f"; training again, because {'; '.join(self.reasons) or 'the last weights are gone'}"
        return text

    # The nets

    def nets(self, root: Path, labels: bool = False, split: Optional[Path] = None, shuffle: bool = True,
             sizes: Optional[Sequence[int]] = None) -> tuple:
        """(training net, deploy net) as text.

        labels  : train on the labels of the first round; else on the tags
        shuffle : if not, take the photographs in their order, each once
        sizes   : of the features to train on; None: all
        """
        folder = self.folder
        name = {"classes": str(root / "classes.txt"), "priors": str(root / RULES_FILE)}
        mirror = self.recipe.mirror and not (folder.rules and folder.rules.handed)
        data = {**folder.settings, "root": str(root), "classes": name["classes"],
                "features": [str(root / self.work.name / f"features/{size}") for size in sizes or self.recipe.sizes],
                "seed": self.seed, "mirror": mirror and shuffle,
                **({} if shuffle else {"shuffle": False}), **({"split": str(split)} if split else {})}
        if self.cue and not labels:
            data["cues"] = str(maps_folder(root / self.work.name, self.cue.name))
            surfaces = [label for label in self.kinds if not self.kinds[label].is_object]
        if labels:
            data.pop("scribbles", None)         # the labels obey them
            return own_nets("full", {**data, "masks": f"{self.work.name}/{LABELS}"}, len(folder.classes),
                            self.recipe.cells_only, self.recipe.backbone)
        return own_nets(folder.system, data, len(folder.classes), self.recipe.cells_only, self.recipe.backbone,
                        **self.recipe.bounds.get(folder.system, {}),
                        **(name if folder.rules else {}), **({"surfaces": surfaces} if self.cue and surfaces else {}))

    @property
    def kinds(self) -> dict:
        """{label: ClassKind}, of every class but the background; decided when the features are there."""
        return self.decided or {}

    @property
    def decisions(self) -> list[str]:
        """One sentence on the classes of which the cue tells nothing, if there are some."""
        surfaces = [f"{self.folder.classes[label]} ({kind.why})" for label, kind in self.kinds.items()
                    if not kind.is_object]
        return [f"the cue is not used for surfaces: {', '.join(surfaces)}; kind = \"object\" in {RULES_FILE} changes "
                "that"] if surfaces else []

    @property
    def model_cue(self) -> Optional[dict]:
        """What the model carries: the cue that weighs its scores; None if no class is an object."""
        surfaces = [self.folder.classes[label] for label, kind in self.kinds.items() if not kind.is_object]
        if not self.cue or len(surfaces) == len(self.folder.classes) - 1:
            return None
        return {"name": self.cue.name, "exponent": self.recipe.exponent, "surfaces": surfaces}

    def write_net(self, path: Path, **options) -> Path:
        """Write the training net; options as for nets()."""
        with whole_file(path) as part:
            part.write_text(self.nets(self.folder.path.resolve(), **options)[0], encoding="utf-8")
        return path

    def solver(self, steps: int, net: Path = Path(), prefix: Path = Path(), rate: Optional[float] = None):
        """SolverParameter; rate : by default the first round's"""
        solver = parse_solver(solver_texts()[SOLVER].encode(), SOLVER)
        solver.net, solver.snapshot_prefix = str(net), str(prefix)
        solver.max_iter = max(1, steps)
        solver.base_lr, solver.random_seed = rate or self.recipe.rate, self.seed
        solver.snapshot = max(50, solver.max_iter // 20)
        return solver

    @property
    def bounds(self) -> dict:
        return bounds_of(self.recipe, self.folder.system)

    @property
    def numbers(self) -> dict:
        return {key: float(value) for key, value in self.bounds.items()}

    @property
    def supervision(self):
        return SUPERVISION[SYSTEMS[self.folder.system].settings["supervision"]]

    # The work

    def compute_features(self, jobs: int) -> None:
        """Compute the features that are missing. The studio may have computed those of photographs without tags: they
        stay."""
        broken = update_features(
            self.work, self.recipe.backbone, self.recipe.sizes,
            {id: one.file for id, one in self.folder.photographs.items()}, self.digests, jobs,
            keep=[SUFFIX.sub("", name) for name in self.folder.untagged])
        if broken:                          # since check_folder has read them
            raise next(iter(broken.values()))
        if self.cue:
            update_maps(self.work, self.cue.name, {id: one.file for id, one in self.folder.photographs.items()},
                        self.digests, jobs, keep=[SUFFIX.sub("", name) for name in self.folder.untagged])
            self.decided = decide(self)

    def train(self) -> bool:
        """Train, or resume, unless the last weights are still valid. True if ^C stopped it."""
        if self.trained:
            return False
        run = self.work / f"runs/{json_digest(self.inputs)}"
        first = self.begin_round(run / "first", self.steps)
        if first.run():
            return True
        self.write_labels(first.model)
        second = self.begin_round(run / "second", self.steps * self.recipe.second, first.model)
        if second.run():
            return True
        self.new_weights, self.new_steps = second.model, (first.solver.max_iter, second.solver.max_iter)
        return False

    @cached_property
    def memory(self) -> head.FeatureMemory:
        """The features of the photographs, shared by all trainings and predictions."""
        return head.FeatureMemory()

    def prepare(self, solver, weights: Optional[Path] = None, restart: bool = False) -> Any:
        """A training by the trainer that was chosen, ready to run."""
        if self.trainer == "caffe":
            return prepare(solver, weights, restart=restart)
        return head.prepare(solver, weights, restart, self.memory)

    def begin_round(self, prefix: Path, steps: float, weights: Optional[Path] = None) -> Any:
        """One of the two rounds, from these weights or from random ones."""
        net = self.write_net(self.work / f"{prefix.name}.prototxt", labels=prefix.name == "second")
        rate = self.recipe.second_rate if prefix.name == "second" else self.recipe.rate
        training = self.prepare(self.solver(round(steps), net, prefix, rate), weights, restart=self.again)
        if training.start_at and not training.finished:
            log.info("resuming at step %d of %d", training.start_at, training.solver.max_iter)
        return training

    def write_labels(self, weights: Path) -> None:
        """Masks of all photographs, from the net of the first round and the constraints."""
        out, ids = self.work / LABELS, list(self.folder.photographs)
        remove(out)
        for prediction in Progress(predict(self, weights, ids), total=len(ids), unit="image", desc="labels"):
            mask = label_mask(prediction, small_shape(prediction.shape, self.recipe.sizes))
            save_mask(out / f"{prediction.id}.png", mask, {}, self.folder.classes)

    def write_model(self) -> None:
        """Write photos/model.ccnn, then remove the snapshots of this and earlier trainings."""
        if self.model.exists() and not self.model_is_there:
            log.warning("replacing %s", self.model)
        if self.trained:
            assert self.state
            self.pack(self.weights, self.state.steps, self.state.scores)
            return
        self.pack(self.new_weights, self.new_steps)
        before = self.state and (self.state.scores or self.state.before)
        if before:
            before.get("held out", {}).pop("before", None)          # no chain of all there ever were
        self.write_state(State(self.inputs, str(self.new_weights.relative_to(self.work)),
                               read_model(self.model).fingerprint, None, self.new_steps, before=before or None))
        self.remove_snapshots(self.new_weights)

    def write_scores(self, scores: Optional[dict]) -> None:
        """Write the scores into the model."""
        assert self.state, "write_model() comes first"
        self.pack(self.weights, self.state.steps, scores)
        self.write_state(self.state._replace(scores=scores))

    def pack(self, weights: Path, steps: Sequence[int], scores: Optional[dict] = None) -> None:
        """photos/model.ccnn"""
        deploy = self.work / "deploy.prototxt"
        with whole_file(deploy) as part:
            part.write_text(self.inputs["deploy"], encoding="utf-8")
        write_model(self.model, deploy, weights, self.folder.classes, list(self.recipe.sizes),
                    {"supervision": self.folder.system, "bounds": self.bounds,
                     **({"cue": self.model_cue} if self.model_cue else {})},
                    {"photographs": len(self.folder.photographs), "tags": self.folder.images_with(),
                     "iterations": sum(steps), "seed": self.seed, "date": datetime.date.today().isoformat()}, scores)

    def final_scores(self, prediction: Prediction) -> Scores:
        """The scores of a photograph as ccnn segment has them: weighed by the cue, if there is one."""
        cue = cue_with_labels(self.model_cue, self.folder.classes)
        if not cue:
            return prediction.scores
        S = read_map(maps_folder(self.work, cue["name"]) / f"{prediction.id}.npy")
        return weigh(prediction.scores, S, prediction.shape, cue["exponent"], cue["surfaces"])

    def remove_snapshots(self, weights: Path) -> None:
        """Remove all trainings but these weights and the logs beside them."""
        for run in (self.work / "runs").iterdir():
            if run != weights.parent:
                remove(run)
        for path in weights.parent.iterdir():
            if path != weights and path.suffix != ".log":
                remove(path)
