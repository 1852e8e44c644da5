"""The state of the studio: the folder, the running training, the model's predictions, the list of photographs.

    session = Session(root)
    await session.open()               # and from now on it works in the background
    await session.close()              # ends every child
"""
import asyncio
import contextlib
import itertools
import json
import os
import re
import secrets
import time
import traceback
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import digest, remove_parts, save
from ccnn._util.foreign_files import parse_json
from ccnn._util.paths import typed
from ccnn._util.work_folder import PART, claim, remove
from ccnn.images.ids import inside
from ccnn.images.overlays import colours
from ccnn.images.reading import read_image, shrink, upright_shape
from ccnn.images.regions import SIDE, at, find_pieces, to_runs
from ccnn.project.mark_history import digest_of
from ccnn.studio.album import CLASSES, TAGS, Album, NotThere, Photograph
from ccnn.studio.batches import Batches
from ccnn.studio.events import Hub
from ccnn.studio.predictions import (
    Head,
    Known,
    PredictionRequest,
    computed,
    data_url,
    features_stamp,
    known_of,
    own_mask,
    predict_all,
    read_features,
    read_head,
    read_model_head,
    read_version,
    region_png,
    rounded,
)
from ccnn.studio.processes import Child, Pool
from ccnn.studio.thumbnails import make_copy
from ccnn.studio.trainer import Trainer
from ccnn.supervision.rules_file import RULES_FILE

TICK = 0.4              # seconds between two looks at what the children have done

THOROUGH = 8            # of so many looks at the folder, one is at every photograph

MOST = 3                # seconds; where a look takes long, they are rarer

IDLE = 8                # seconds without a change after which it trains by itself

AGAIN = 60              # seconds after which features that failed are tried again

BATCH = 20              # photographs per task of the pool

SCORED = 200            # photographs whose scores are remembered

PIECES = 8              # photographs whose pieces are remembered

REGION = 1280           # long side of the mask in which a whole region is found

EVENT_PHOTOGRAPHS = 500              # photographs in one event; of more the page asks by itself


class Session:
    def __init__(self, root: Path, steps: Optional[int] = None) -> None:
        """steps : of a training; None: as many as ccnn learn finds right"""
        self.album = Album(root)
        self.root, self.work = self.album.root, self.album.work
        self.place = self.work / "studio"                   # of what is the studio's alone
        self.server = secrets.token_urlsafe(6)              # stands for this run
        self.identity = secrets.token_urlsafe(12)           # for the folder, unless its settings say another
        self.hub, self.pool = Hub(), Pool(2)
        self.trainer, self.ahead = Trainer(self.root, self.work, steps), Child()
        self.batches = Batches(self)
        self.changing = asyncio.Lock()                      # one change of the album at a time
        self.starting = asyncio.Lock()                      # one training
        self.uploads, self.uploaded = 0, 0                  # at this moment; in all
        self.head: Optional[Head] = None
        self.previous: Optional[Head] = None                # the finished model before the present one
        self.model_stamp: object = None
        self.scored: dict = {}                              # {(id, model): (of what, Scores)} asked for last
        self.found_pieces: dict = {}                        # {(path, stamp): pieces of even colour}
        self.predictions: dict = {}                             # {number: prediction} of the head
        self.predicted: set = set()                          # (number, revision) that were predicted
        self.predicting: Optional[asyncio.Task] = None
        self.predict_again = False
        self.taking: Optional[asyncio.Task] = None
        self.auto = False
        self.changed_at = time.monotonic()
        self.learned = self.failed = None                   # what the last training began with, or the last in vain
        self.computed: set = set()                          # ids of the photographs that have features
        self.features_done, self.features_total, self.features_rate = 0, 0, None
        self.tried, self.tried_at = None, 0.0               # what features were computed of, and when
        self.noticed = 0
        self.sent_status, self.sent_curve = "", self.trainer.curve()
        self.serial = 0                                     # of the statuses that were made
        self.ending: Optional[asyncio.Task] = None          # what is left to do after a training
        self.reading = asyncio.Lock()                       # one model at a time
        self.tasks: list = []
        self.cached_listing: tuple = 0, b""                        # (revision, all photographs as JSON)
        self.cached_inputs: tuple = 0, None                         # (revision, inputs)

    # Life

    async def open(self) -> None:
        await asyncio.to_thread(claim, self.root)
        self.place.mkdir(exist_ok=True)
        await asyncio.to_thread(self.album.refresh)
        await asyncio.to_thread(self.album.finish_renaming)
        await asyncio.to_thread(self.tidy)
        await asyncio.to_thread(self.read_settings)
        self.learned = await asyncio.to_thread(self.read_inputs)
        self.pool.warm()
        await asyncio.to_thread(colours)                    # computed once, in a tenth of a second
        self.tasks = [asyncio.ensure_future(self.forever(step, pause)) for step, pause in (
            (self.refresh_folder, 2.0), (self.watch_training, TICK), (self.work_ahead, 1.0),
            (self.send_status, TICK / 2))]

    def tidy(self) -> None:
        """Remove what a killed studio has left."""
        remove(self.place / "uploads")
        self.batches.clear()
        remove_parts(self.work)
        if self.album.scribbles and inside(self.album.scribbles.folder, self.root):
            remove_parts(Path(self.album.scribbles.folder))
        for name in map(Path, (CLASSES, TAGS, RULES_FILE)):
            for part in self.root.glob(f".{name.stem}.*.part{name.suffix}"):
                if PART.fullmatch(part.name):
                    part.unlink(missing_ok=True)

    async def close(self) -> None:
        self.hub.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(self.trainer.end(), self.ahead.end(), self.batches.close())
        self.pool.close()

    async def forever(self, step, pause: float) -> None:
        said = None
        while True:
            begin = time.monotonic()
            try:
                await step()
            except (UserError, OSError) as error:
                if str(error) != said:                      # once is enough
                    said = str(error)
                    self.hub.send("message", {"text": self.plain(" ".join(said.split()))})
            except Exception:                               # a mistake of ours: the terminal tells, the rest goes on
                traceback.print_exc()
            await asyncio.sleep(max(pause, min(5 * (time.monotonic() - begin), MOST)))      # never busy with this alone

    # The folder

    async def change(self, function, *arguments):
        """Change the album in a thread, one change at a time, and tell every page what is new."""
        async with self.changing:
            before, classes = self.album.revision, self.album.classes
            try:
                return await asyncio.to_thread(function, *arguments)
            finally:
                self.send_changes(before, classes)

    def send_changes(self, before: int, classes: tuple) -> None:
        revision = self.album.revision
        if revision == before:
            return
        self.changed_at = time.monotonic()
        changed = [photograph for photograph in self.album.photographs if photograph.revision > before]
        if len(changed) > EVENT_PHOTOGRAPHS or classes != self.album.classes:
            self.hub.send("changed", {"revision": revision, "all": True})
        else:
            self.hub.send("changed", {"revision": revision, "photographs": [*map(self.album.describe, changed)]})
        self.hub.send("classes", self.classes())
        self.predict_later()

    async def refresh_folder(self) -> None:
        """What others have changed in the folder."""
        problem = self.album.problem
        self.noticed += 1
        changed = await self.change(self.album.refresh, self.noticed % THOROUGH == 0)
        if changed and self.sent_status:
            self.hub.send("message", {"text": f"the folder was changed outside; {len(changed)} photographs differ"})
        if self.album.problem and self.album.problem != problem:
            self.hub.send("message", {"text": self.album.problem})
        await self.refresh_model()

    def classes(self) -> dict:
        counts, table, kinds = self.album.images_with(), colours(), self.album.kinds()
        return {"revision": self.album.revision, "counts": self.album.counts(), "classes": [
            {"label": label, "name": name, "colour": "#" + bytes(table[label]).hex(),
             "photographs": counts[name] if label else 0, "kind": kinds.get(name), "found": self.found_kind(name)}
            for label, name in enumerate(self.album.classes)]}

    def found_kind(self, name: str) -> Optional[str]:
        """The kind of a class as the model has it; None if it has no cue, or does not know the class."""
        if not self.head or not self.head.cue or name not in self.head.classes[1:]:
            return None
        return "surface" if self.head.classes.index(name) in self.head.cue["surfaces"] else "object"

    def photographs(self) -> bytes:
        """The JSON of all photographs; made once per revision."""
        if self.cached_listing[0] != self.album.revision:
            listed = {"server": self.server, "revision": self.album.revision,
                    "photographs": [*map(self.album.describe, self.album.photographs)]}
            text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
            self.cached_listing = self.album.revision, text.encode()
        return self.cached_listing[1]

    def read_settings(self) -> None:
        """The folder's identity stays as long as its .ccnn does: a page keeps under it what it could not send."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found = parse_json(self.place / "settings.json")
            self.auto, identity = found.get("auto") is True, found.get("identity")
            if isinstance(identity, str) and re.fullmatch(r"[\w-]{16}", identity):
                self.identity = identity
                return
        self.write_settings()

    def write_settings(self) -> None:
        save(self.place / "settings.json", json.dumps({"auto": self.auto, "identity": self.identity}).encode())

    def set_auto(self, auto: bool) -> None:
        self.auto, self.changed_at = auto, time.monotonic()
        self.write_settings()

    # Smaller copies

    async def copy(self, photograph: Photograph, side: int) -> Path:
        """A smaller copy of a photograph, made once."""
        source = self.album.file(photograph)
        name = digest_of(photograph.path)
        path = self.work / "thumbnails" / f"{name}-{photograph.version}-{side}.jpg"
        if not path.is_file():
            try:
                await self.pool.run(make_copy, source, path, side)
            except ImageError as error:
                why = str(error).replace(f"{source}: ", "")
                await self.change(self.album.mark_unreadable, [photograph], why)
                raise
        return path

    def next_upload(self) -> int:
        self.uploaded += 1
        return self.uploaded

    # Features

    def count_features(self) -> None:
        self.computed = computed(self.work)
        photographs = [photograph for photograph in self.album.there() if not photograph.problem]
        self.features_total = len(photographs)
        self.features_done = sum(photograph.id in self.computed for photograph in photographs)

    async def work_ahead(self) -> None:
        """Compute features as long as some are missing and nothing else is to be done."""
        before = self.features_done
        await asyncio.to_thread(self.count_features)
        wanted = {(photograph.path, photograph.stamp) for photograph in self.album.there() if not photograph.problem}
        missing, now = self.features_total - self.features_done, time.monotonic()
        if self.ahead.running:
            if self.features_rate is None and self.features_done > before:
                self.features_rate = now, self.features_done
        elif missing and not self.training:
            self.features_rate = None
            if self.ahead.code == 0 and self.tried == wanted:
                await self.change(self.album.mark_unreadable, self.without_features())
            elif self.tried != wanted or now - self.tried_at > AGAIN:
                self.tried, self.tried_at = wanted, now
                await self.ahead.start("ahead", str(self.root), "--jobs", str(os.cpu_count()), ahead=True)
        if self.features_done > before:
            self.predict_later()

    def without_features(self) -> list:
        return [photograph for photograph in self.album.there()
                if not photograph.problem and photograph.id not in self.computed]

    def features(self) -> dict:
        seconds = None
        if self.features_rate and self.features_done > self.features_rate[1]:
            passed, done = time.monotonic() - self.features_rate[0], self.features_done - self.features_rate[1]
            seconds = round(passed / done * (self.features_total - self.features_done))
        return {"done": self.features_done, "total": self.features_total, "seconds": seconds,
                "problem": self.ahead.problem}

    # Training

    def inputs(self) -> tuple:
        """What a training depends on, as far as the album knows; made once per revision."""
        if self.cached_inputs[0] != self.album.revision:
            self.cached_inputs = self.album.revision, (self.album.classes, self.album.rules_stamp, tuple(
                (photograph.path, photograph.stamp, photograph.tags, photograph.large, photograph.scribble_stamp)
                for photograph in self.album.decided()))
        return self.cached_inputs[1]

    def read_inputs(self) -> Optional[tuple]:
        """The present inputs, if the model was trained on the same tags and classes."""
        try:
            before = parse_json(self.work / "state.json")["inputs"]
            decided = self.album.decided()
            tags = {photograph.path: sorted(photograph.tags) for photograph in decided}
            large = {photograph.path: sorted(photograph.large) for photograph in decided}
            rules = self.root / RULES_FILE
            same = (before["classes"], before["tags"], before["large"], before["constraints"]) == (
                list(self.album.classes), tags, large, digest(rules) if rules.is_file() else None)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return self.inputs() if same and (self.root / "model.ccnn").is_file() else None

    @property
    def stale(self) -> bool:
        return self.learned != self.inputs()

    @property
    def training(self) -> bool:
        """A training runs, or its end is not yet known: its model is being read."""
        return self.trainer.running or (self.ending is not None and not self.ending.done())

    async def train(self, check: bool = False) -> None:
        why = self.album.why_not()
        if why:
            raise UserError(why)
        await self.ahead.end()
        self.tried = None
        self.learned = self.inputs()
        await self.trainer.begin(check, len(self.album.decided()))
        self.ending = asyncio.ensure_future(self.after_training())

    async def after_training(self) -> None:
        assert self.trainer.listening
        status = await self.trainer.listening
        if status:
            self.failed, self.learned = self.learned, None
        self.changed_at = time.monotonic()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self.trainer.poll)
        self.send_curve()
        await self.refresh_model()

    async def watch_training(self) -> None:
        """What the training has done; train by itself if it is time to."""
        if self.trainer.running:
            await asyncio.to_thread(self.trainer.poll)
            self.send_curve()
            if self.trainer.ready:
                await self.refresh_model()
            elif not self.taking or self.taking.done():
                self.taking = asyncio.ensure_future(self.take_snapshot())
        elif self.auto and time.monotonic() - self.changed_at > IDLE and not self.album.why_not() \
                and self.inputs() not in (self.learned, self.failed):
            async with self.starting:
                if not self.training:
                    await self.train()

    def send_curve(self) -> None:
        """Tell the pages what is new of the loss: the points from a place on."""
        listed, now = self.sent_curve, self.trainer.curve()
        if now == listed or not now["points"]:
            return
        same = zip(listed["points"], now["points"]) if now["run"] == listed["run"] else ()
        place = sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], same))
        self.hub.send("loss", {**now, "from": place, "points": now["points"][place:]})
        self.sent_curve = now

    async def take_snapshot(self) -> None:
        found, head = self.trainer.snapshot, self.head
        if not found or (head and head.version == found.version) or not self.learned:
            return
        with contextlib.suppress(UserError, OSError):           # removed meanwhile, or not of this net
            taken = await self.pool.run(read_head, found.weights, found.version, self.learned[0], {
                "final": False, "iterations": found.iterations, "photographs": self.trainer.photographs, "date": ""})
            if self.head is head:       # else the final model came meanwhile
                self.use(taken)

    async def refresh_model(self) -> None:
        """Read model.ccnn if it is new."""
        path = self.root / "model.ccnn"
        async with self.reading:
            try:
                found = path.stat()
            except OSError:
                return
            now = found.st_mtime_ns, found.st_size, found.st_ino
            if now == self.model_stamp or (self.trainer.running and self.head and not self.head.about["final"]
                                           and not self.trainer.ready):
                return
            self.model_stamp = now
            head = await self.pool.run(read_model_head, path)
            if self.head and head.version == self.head.version:     # the same, with scores on photographs held out
                self.head = head
            else:
                self.previous = await self.keep(path, head)
                self.use(head)

    async def keep(self, path: Path, head: Head) -> Optional[Head]:
        """Keep a copy of the model; the previous model, of which there is a copy."""
        latest, previous = (self.place / f"{name}.ccnn" for name in ("latest", "previous"))

        def copy() -> None:
            if latest.is_file() and read_version(latest) != head.version:
                os.replace(latest, previous)
            if not latest.is_file():
                save(latest, path.read_bytes())
        try:
            await asyncio.to_thread(copy)
            found = await self.pool.run(read_model_head, previous) if previous.is_file() else None
        except (UserError, OSError):            # of another backbone, or damaged: there is nothing to compare with
            return None
        return found if found and found.version != head.version else None

    def use(self, head: Head) -> None:
        """Predict with this model from now on."""
        self.head, self.predictions, self.predicted = head, {}, set()
        self.hub.send("predictions", {"version": head.version, "predictions": []})
        self.predict_later()

    # Predictions

    def known(self, photograph: Photograph) -> Optional[Known]:
        return known_of(self.album, photograph)

    def scores(self, photograph: Photograph, head: Optional[Head]) -> tuple:
        """(Scores, (height, width)); NotThere if there is no model, or not yet its features. Milliseconds."""
        if not head:
            raise NotThere("there is no model yet")
        size = upright_shape(str(self.album.file(photograph)))
        key = size, features_stamp(self.work, photograph.id)
        known, scores = self.scored.get((photograph.id, head.version), (None, None))
        if known != key:
            scores = head.scores(read_features(self.work, photograph.id), size)
            self.scored[photograph.id, head.version] = key, scores
            for old in list(self.scored)[:-SCORED]:
                self.scored.pop(old, None)
        return scores, size

    def region(self, photograph: Photograph, x: float, y: float, whole: bool, label: int) -> dict:
        """A region for the page: a piece of even colour; or whole, a connected piece of the mask that is shown."""
        file = self.album.file(photograph)
        size = upright_shape(str(file))
        if whole:
            scores, _ = self.scores(photograph, self.head)
            labels = own_mask(self.head, scores, size, photograph.id, self.known(photograph), self.work, REGION).labels
        else:
            labels = self.pieces(photograph, file)
        region = at(labels, x, y, size, smooth=not whole)
        return {"size": list(size), "runs": to_runs(region), "area": rounded(region.mean()),
                "mask": data_url(region_png(region, label))}

    def pieces(self, photograph: Photograph, file: Path) -> np.ndarray:
        key = photograph.path, photograph.stamp
        if key not in self.found_pieces:
            self.found_pieces[key] = find_pieces(shrink(read_image(file, least_side=SIDE), SIDE))
            for old in list(self.found_pieces)[:-PIECES]:
                self.found_pieces.pop(old, None)
        return self.found_pieces[key]

    def predict_later(self) -> None:
        """Predict, or do it again after the predictions under way: something is new."""
        self.predict_again = True
        if self.head and (not self.predicting or self.predicting.done()):
            self.predicting = asyncio.ensure_future(self.predict_all())

    async def predict_all(self) -> None:
        while self.predict_again and self.head:
            self.predict_again = False
            todo = self.to_predict()
            for start in range(0, len(todo), BATCH):
                await self.predict(self.head, todo[start:start + BATCH])

    def to_predict(self) -> list:
        """[(key, photograph)] that have changed since the model was asked, or whose features are new."""
        return [(key, photograph) for photograph in self.album.there()
                if (key := (photograph.number, photograph.revision, self.album.sizes)) not in self.predicted
                and not photograph.problem and photograph.id in self.computed]

    async def predict(self, head: Head, part: list) -> None:
        requests = [PredictionRequest(photograph.number, photograph.id, self.album.images / photograph.path,
                              self.known(photograph)) for _, photograph in part]
        try:
            found = await self.pool.run(predict_all, head, self.work, requests,
                                        self.previous if head.about["final"] else None)
        except UserError:
            return
        if self.head is head:
            self.predicted.update(key for key, _ in part)
            self.predictions.update((one["number"], one) for one in found)
            self.hub.send("predictions", {"version": head.version, "predictions": found})

    # Status

    def status(self) -> dict:
        """serial : a page that has seen a later status passes this one over"""
        self.serial += 1
        why, head, busy = self.album.why_not(), self.head, self.training
        model = head and {"version": head.version, "classes": list(head.classes), "results": None, **head.about,
                          "previous": self.previous.version if self.previous and head.about["final"] else None}
        training = self.trainer.status()
        training["lines"] = [*map(self.plain, training["lines"])]
        training["problem"] = training["problem"] and self.plain(training["problem"])
        if busy and not self.trainer.running:
            training["phase"] = "report"
        return {"serial": self.serial, "problem": self.album.problem, "features": self.features(),
                "training": training, "auto": self.auto, "stale": self.stale, "can_train": not why and not busy,
                "why_not": why or ("a training is running" if busy else None), "model": model,
                "report": (self.root / "report.html").is_file()}

    async def send_status(self) -> None:
        status = self.status()
        text = json.dumps({**status, "serial": None})
        if text != self.sent_status:
            self.sent_status = text
            self.hub.send("status", status)

    def plain(self, text: str) -> str:
        """A line without the place of the folder."""
        return text.replace(f"{self.root}/", "").replace(str(self.root), self.root.name)

    def state(self) -> dict:
        folder = os.path.relpath(self.root)
        return {"server": self.server, "identity": self.identity, "folder": self.root.name, **self.classes(),
                "status": self.status(),
                "commands": [
                    {"what": "train", "line": typed("learn", folder)},
                    {"what": "segment", "line": typed("segment", "--model", f"{folder}/model.ccnn", "--out", "masks",
                                                      "new_photos")},
                    {"what": "tags", "line": typed("import-tags", "export.json", "--photos", folder, "--write")}]}
