"""ccnn learn as a child process, watched through the files that it writes: its log, its snapshots.

    await trainer.start(check=False)
    trainer.poll()                      # now and then, in a thread: reads what is new
    trainer.status(), trainer.snapshot, trainer.curve()
"""
import contextlib
import re
import time
from pathlib import Path
from typing import NamedTuple, Optional

from ccnn.project.learn import RECIPE
from ccnn.studio.processes import Child
from ccnn.training.caffe_log import Curves, read_line
from ccnn.training.snapshots import snapshots


class Snapshot(NamedTuple):
    weights: Path
    version: str
    iterations: int


class Round:
    """The log of one of the two rounds of a training, read as it grows."""

    def __init__(self, log: Path) -> None:
        self.log, self.prefix, self.read = log, log.with_suffix(""), 0
        self.curves = Curves()
        self.steps = self.max_iter()

    @property
    def name(self) -> str:
        return f"{self.log.parent.name[:8]}-{self.prefix.name}"

    def max_iter(self) -> int:
        try:
            found = re.search(r"^max_iter: (\d+)", Path(f"{self.prefix}.solver.prototxt").read_text(), re.M)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def poll(self) -> None:
        with open(self.log, "rb") as file:
            file.seek(self.read)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read += whole
        for line in filter(None, map(read_line, text[:whole].decode(errors="replace").splitlines())):
            self.curves.add(line)
        self.steps = self.steps or self.max_iter()

    @property
    def iteration(self) -> int:
        return max(self.curves.loss, default=0)

    def newest(self) -> Optional[Snapshot]:
        """The newest snapshot that is written to its end: Caffe writes the state after the weights."""
        for number, state in reversed(snapshots(self.prefix).items()):
            weights = state.with_suffix(".caffemodel")
            if weights.is_file():
                return Snapshot(weights, f"{self.name}-{number}", number)
        return None


class Trainer(Child):
    def __init__(self, root: Path, work: Path, steps: Optional[int]) -> None:
        super().__init__()
        self.root, self.work, self.steps = root, work, steps
        self.kind: Optional[str] = None
        self.stopping = False
        self.photographs = 0
        self.logs: dict = {}                            # {log: size} when it began
        self.rounds: dict = {}                          # {"first": Round, "second": Round} of this training
        self.first: Optional[tuple] = None              # (time, iteration) when the rate was first known
        self.snapshot: Optional[Snapshot] = None

    async def begin(self, check: bool, photographs: int) -> None:
        self.kind, self.stopping, self.photographs = "check" if check else "train", False, photographs
        self.logs, self.rounds, self.first, self.snapshot = self.find_logs(), {}, None, None
        await self.start("learn", str(self.root), *([] if check else ["--no-check"]),
                         *(["--steps", str(self.steps)] if self.steps else []))

    def stop(self) -> None:
        self.stopping = True
        self.interrupt()

    def poll(self) -> None:
        """Read what is new."""
        if not self.kind:
            return
        for log, size in sorted(self.find_logs().items()):
            name = log.stem
            if name not in self.rounds and self.logs.get(log) != size:
                self.rounds[name] = Round(log)
                before = log.with_name("first.log")     # it went on in the second round: the first is as it was
                if name == "second" and "first" not in self.rounds and before.is_file():
                    self.rounds = {"first": Round(before), **self.rounds}
        for one in list(self.rounds.values()):
            one.poll()
            self.snapshot = one.newest() or self.snapshot

    def find_logs(self) -> dict:
        """{log: size}"""
        found = {}
        for log in (self.work / "runs").glob("*/*.log"):
            with contextlib.suppress(FileNotFoundError):        # a training removes those before it
                found[log] = log.stat().st_size
        return found

    @property
    def ready(self) -> bool:
        """The model is written; what is left is the report."""
        return any(line.endswith(": ready") for line in list(self.lines))

    @property
    def present(self) -> Optional[Round]:
        """The round that is running, or was the last."""
        return list(self.rounds.values())[-1] if self.rounds else None

    def curve(self) -> dict:
        """The loss over the steps of both rounds.

        run     its name: another run, another curve
        steps   of both rounds together
        rounds  the step at which each round begins
        points  [[step, loss]]
        """
        rounds, begin = list(self.rounds.values()), 0
        curve: dict = {"run": rounds[0].name if rounds else None, "steps": self.progress()[1], "rounds": [],
                       "points": []}
        for one in rounds:
            curve["rounds"].append(begin)
            curve["points"] += [[begin + step, round(loss, 5)] for step, loss in list(one.curves.loss.items())
                                if step < one.steps or one is rounds[-1]]       # the next round begins with that step
            begin += one.steps
        return curve

    def progress(self) -> tuple:
        """(steps done, steps in all) over both rounds."""
        rounds = dict(self.rounds)
        done, total = sum(one.iteration for one in rounds.values()), sum(one.steps for one in rounds.values())
        if list(rounds) == ["first"]:
            steps = self.steps or max(RECIPE.steps, round(RECIPE.epochs * self.photographs / 4))
            total += round(steps * RECIPE.second)
        return done, total

    def seconds(self, done: int, total: int) -> Optional[int]:
        """The time that is left, from the rate so far."""
        if self.first is None or done < self.first[1]:
            self.first = (time.time(), done) if done else None
            return None
        passed, steps = time.time() - self.first[0], done - self.first[1]
        return round(passed / steps * (total - done)) if steps else None

    def status(self) -> dict:
        done, total = self.progress() if self.running else (0, 0)
        phase = "idle"
        if self.running:
            phase = ("stopping" if self.stopping else "report" if self.ready else "training" if self.rounds
                     else "features")
        loss = list(self.present.curves.loss.values())[-1:] if self.present and self.running else []
        return {"phase": phase, "kind": self.kind if self.running else None, "iteration": done, "iterations": total,
                "loss": round(loss[0], 5) if loss else None,
                "seconds": self.seconds(done, total) if phase == "training" else None,
                "lines": list(self.lines), "problem": self.problem}
