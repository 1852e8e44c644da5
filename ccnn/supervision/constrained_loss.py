"""The constrained loss (paper, sections 4 and 5)."""
import sys
import time

import numpy as np

from ccnn._util.errors import suggest
from ccnn._util.settings import COUNT, LABEL_LIST, POSITIVE, SWITCH, TEXT, Setting, optional, parse, read_settings
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.solver.dual import maximize
from ccnn.supervision.baselines import log_softmax
from ccnn.supervision.constraint_builder import MASK_SHARE, ConstraintBuilder, solve_batch, violation
from ccnn.supervision.kinds import CUE_BLOB, LABELS_BLOB, NUMBER_BLOB, SUPERVISION
from ccnn.supervision.losses import EMAdaptLoss, Loss, MILBaseLoss, MILFCNLoss, finite
from ccnn.supervision.rules_file import read_rules


class ConstrainedLoss(Loss):
    """KL(p || q), where p is the distribution nearest to q = softmax(f) that obeys what is known of the image.

    blobs[0]   scores   N x L x H x W
    then the blobs of the supervision (ccnn.supervision.kinds):
      "tags"   tags     N x L, 1 where a label is in the image
      "share"  tags, and share: N x 1, the part of the image that is background
      "size"   tags, and sizes: N x L, 1 where a label covers more than a tenth of the image
      "boxes"  boxes    N x B x 5, (label, y0, x0, y1, x1) on the score grid, half-open; label -1: no box
    then, with the setting cue,
               cue      N x 1 x H x W, 0..1: how likely a pixel belongs to an object (ccnn.supervision.cue_rows)
    then, optionally,
               labels   N x 1 x H x W, the label of a pixel, 255 where it is unknown
    and, if hold > 1,
               number   N x 2, the number of the image, and 1 if it is mirrored
    loss       mean over images of mean_i KL(p_i || q_i); of the sum over i unless normalize
    diagnostics, optional: N x 4, the largest violation of a constraint by q, the solver's duality
               gap (inf where the constraints contradict each other), its iterations, its seconds

    param_str  JSON: SETTINGS, and the keyword arguments of the constraint function: tag_constraints,
               share_constraints, size_constraints or box_constraints. "inf" is the price of a hard row

    Rules about the classes ("priors") override the bounds of the supervision, and known pixels override both; see
    ccnn.supervision.constraint_builder.

    The gradient is q - p per pixel. At hardness 1 it is the gradient of the optimal value KL + beta' xi; at any other
    hardness, of KL with p held fixed, as in the authors' experiments.

    With hold = K the layer minimises the same energy in turns, as section 4 describes it: p is found at every K-th
    visit of an image, and held fixed in between. The loss is then KL(p || q) with that p; the price beta' xi of its
    slack does not change. Held distributions are kept in memory: a resumed training starts by computing every p again.

    Contradictory constraints (status "infeasible": a scribble larger than a hard upper bound) do not end a training.
    The layer trains the image on the labels that each pixel may have, without the bounds. It counts such images, and
    also the solutions that miss tol (status "stalled"), whose p it uses. It reports the 1st, 10th, 100th ... on stderr.
    """

    SETTINGS = {
        "supervision": Setting(TEXT, "tags", "the kind of supervision; see ccnn.supervision.kinds"),
        "normalize": Setting(SWITCH, True, "divide the loss by the number of pixels"),
        "hardness": Setting(POSITIVE, 1.0, "p is nearest to softmax(hardness * f)"),
        "method": Setting(TEXT, "newton", "of ccnn.maximize"),
        "tol": Setting(POSITIVE, 1e-6, "of ccnn.maximize"),
        "hold": Setting(COUNT, 1, "visits of an image for which its p stays as it is; more than 1 needs the bottom "
                                  "`number`, and hardness 1"),
        "mask_share": Setting(POSITIVE, MASK_SHARE, "see ccnn.supervision.constraint_builder.with_known_pixels"),
        "cue": Setting(SWITCH, False, "the map of a cue is known; its blob comes after those of the supervision"),
        "surfaces": Setting(LABEL_LIST, [], "labels of which the cue tells nothing: sky, grass, a crack in a wall"),
        "priors": Setting(optional(TEXT), None, "the path of a constraints.toml: what is known of the classes; see "
                                                "ccnn.supervision.rules_file. Its rules are about whole images, so "
                                                "crop none; if they name left or right, mirror none"),
        "classes": Setting(optional(TEXT), None, "file with one class name per line, for priors; null: VOC's classes"),
    }

    def read_settings(self):
        kind = parse(self.param_str, self.name).get("supervision", "tags")
        if not isinstance(kind, str) or kind not in SUPERVISION:
            self.fail(f"supervision must be one of {', '.join(SUPERVISION)}; got {kind!r}, "
                      f"{suggest(kind, SUPERVISION)}")
        self.supervision = SUPERVISION[kind]
        settings = read_settings(self.param_str, {**self.SETTINGS, **self.supervision.settings}, self.name)
        self.given = self.supervision.blobs + ((CUE_BLOB,) if settings["cue"] else ())
        bounds = {name: float(settings[name]) for name in self.supervision.bounds}
        self.solver = {name: settings[name] for name in ("hardness", "method", "tol")}
        try:
            maximize(np.zeros((2, 4), np.float32), self.supervision.trial(**bounds), **self.solver)
        except (TypeError, ValueError) as error:
            self.fail(error)
        self.classes = read_classes(settings["classes"]) if settings["classes"] else VOC_CLASSES
        self.rules = read_rules(settings["priors"], self.classes) if settings["priors"] else None
        self.builder = ConstraintBuilder(self.supervision, bounds, self.rules, settings["mask_share"],
                                         settings["surfaces"])
        self.counts = {"infeasible": 0, "stalled": 0}
        if settings["hold"] > 1 and settings["hardness"] != 1:
            self.fail(f"hold = {settings['hold']} needs hardness 1, with which p and q share one energy")
        if settings["hold"] > 1 and self.processes > 1:
            self.fail(f"hold = {settings['hold']} needs one process: with several, an image comes to another each time")
        self.held = {}          # number of an image: (p, L x H x W float32, not mirrored; visits for which it stays)
        return settings

    def check_blobs(self, bottoms, tops):
        held = (NUMBER_BLOB,) if self.settings["hold"] > 1 else ()
        need = len(self.inputs) + len(held)
        if bottoms not in (need, need + 1) or tops not in (1, 2):
            self.fail(f"takes bottoms {', '.join(self.inputs)}[, labels]{', number' * len(held)} with supervision "
                      f"{self.settings['supervision']!r}, and tops loss[, diagnostics]; got {bottoms} and {tops}")
        self.knows_pixels = bottoms > need
        if self.knows_pixels:
            self.given += (LABELS_BLOB,)
        self.given += held

    def fit(self, shapes):
        super().fit(shapes)
        _, labels, height, width = shapes[0]
        if self.rules and labels != len(self.classes):
            self.fail(f"scores have {labels} labels; {self.settings['classes'] or 'VOC'} has {len(self.classes)}, with "
                      'the background; "classes" names the list for "priors"')
        self.scale = 1.0 if self.settings["normalize"] else float(height * width)

    def batch_loss(self, f, diff, blobs):
        """1. what is known of each image   2. p of all images, and the gradients in diff   3. what the solver did"""
        constraints = []
        for k in range(len(f)):
            with self.naming(k):
                constraints.append(self.image_constraints(k, blobs))
        if self.settings["hold"] == 1:
            return self.solved_losses(constraints, f, diff)
        losses = []
        for k, c in enumerate(constraints):
            with self.naming(k):
                losses.append(self.held_loss(k, c, f[k], diff[k], blobs))
        return losses

    def solved_losses(self, constraints, f, diff, first=0):
        """Every p is found for these scores, of the images `first`, first + 1, ... of the batch."""
        start = time.perf_counter()
        try:
            solved = solve_batch(f, constraints, **self.solver, diff=diff)
        except ValueError as error:
            if not hasattr(error, "image"):
                raise
            self.fail(f"{str(error).partition(': ')[2]} ({self.where(first + error.image)})")
        seconds = (time.perf_counter() - start) / len(f)
        return [self.outcome(first + k, c, s, f[k], diff[k], seconds)
                for k, (c, s) in enumerate(zip(constraints, solved))]

    def held_loss(self, k, c, f, diff, blobs):
        """The loss of image k, whose p stays as it was found for settings["hold"] visits."""
        number, mirrored = NUMBER_BLOB.read(blobs[len(self.given)][k])
        shape, turn = self.shapes[0][1:], -1 if mirrored else 1
        p, visits = self.held.get(number, (None, 0))
        if visits and p.shape != shape:
            self.fail(f"image {number} has scores of shape {shape}, and had {p.shape} when its p was found; hold needs "
                      f"whole images, of one size each ({self.where(k)})")
        log_q = log_softmax(finite(f))
        q = np.exp(log_q)
        if visits:
            target = p[:, :, ::turn].reshape(f.shape)
            np.divide(q - target, f.shape[1], out=diff)
            loss = divergence(target, log_q)
            if self.diagnostics is not None:
                self.diagnostics[k] = violation(c, q), 0, 0, 0
        else:
            loss, = self.solved_losses([c], f[None], diff[None], first=k)
            p = np.maximum(q - diff * f.shape[1], 0).reshape(shape)[:, :, ::turn].copy()
            visits = self.settings["hold"]
        self.held[number] = p, visits - 1
        return loss

    def outcome(self, k, c, s, f, diff, seconds):
        """The loss of image k. Reports a status other than "optimal"."""
        if s.status != "optimal":
            self.report(s.status, k)
        if self.diagnostics is not None:
            q = s.p + diff * f.shape[1]
            self.diagnostics[k] = violation(c, q), s.gap, s.iterations, seconds
        return s.loss

    def image_constraints(self, k, blobs):
        """What is known of image k."""
        _, labels, height, width = self.shapes[0]
        first = 1 + len(self.supervision.blobs)
        cue = blobs[first][k] if self.settings["cue"] else None
        pixels = blobs[first + self.settings["cue"]][k] if self.knows_pixels else None
        return self.builder.build([blob[k] for blob in blobs[1:first]], labels, (height, width), pixels,
                                  cue=cue)

    def report(self, status, k):
        self.counts[status] += 1
        count = self.counts[status]
        if count == 10 ** (len(str(count)) - 1):        # 1, 10, 100, ...
            meaning = {"infeasible": "the constraints contradict each other, trained without the bounds",
                       "stalled": f"the solver missed tol = {self.solver['tol']:g}, its best p is used"}[status]
            print(f"{self.name}: {status} image no. {count}: {meaning} ({self.where(k)})",
                  file=sys.stderr, flush=True)


def divergence(p, log_q):
    """mean_i KL(p_i || q_i), L x n each; what p gives nothing costs nothing."""
    on = p > 0
    return float((p[on] * (np.log(p[on]) - log_q[on])).sum(dtype=float)) / p.shape[1]


LOSSES = {f"{loss.__name__}Layer": loss for loss in (ConstrainedLoss, EMAdaptLoss, MILFCNLoss, MILBaseLoss)}
