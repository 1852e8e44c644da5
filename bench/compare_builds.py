"""An older build of the solver against this one, in one run: two processes that solve the same problems in turn.

A machine changes its speed while it measures, so every figure is the least of many, and the two take turns. Cold is a
cycle over many images, as in a training, where the net's scores come from memory; hot is one image again and again.
"""
import os
import pickle
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from ccnn._util.errors import UserError

TIMER = Path(__file__).with_name("time_solver.py")


class Build:
    """A process that times the solver of one checkout."""

    def __init__(self, python):
        self.process = subprocess.Popen([python, TIMER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *message):
        try:
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)
        except (BrokenPipeError, EOFError):
            raise UserError(f"{self.process.args[0]} {TIMER.name} ended; its message is above") from None

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(old, sets, turns):
    """{name: {"cold" | "hot": (seconds of old, of this)}}; sets: {name: (problems, gradient, options)}."""
    python = Path(old) / ".caffe/bin/python"
    if not os.access(python, os.X_OK):
        raise UserError(f"--old {old}: there is no {python}; give a checkout in which `make` has run")
    builds = [Build(python), Build(sys.executable)]
    found = {}
    try:
        for name, (problems, *rest) in tqdm(sets.items(), desc="old and new", unit="set", leave=False):
            plain = [(f, [getattr(c, field) for field in c.__slots__]) for f, c in problems]
            for build in builds:
                build.ask("load", name, plain, *rest)
            found[name] = {state: tuple(min(times) for times in zip(*[
                [build.ask(state, name) for build in builds] for _ in range(turns)])) for state in ("cold", "hot")}
    finally:
        for build in builds:
            build.close()
    return found


def comparison_table(found):
    """Markdown: microseconds per image, and how often the old time holds the new one."""
    lines = ["| problems | old, cold | new, cold | old / new | old, hot | new, hot | old / new |",
             "|---|---|---|---|---|---|---|"]
    for name, times in found.items():
        (cold_old, cold_new), (hot_old, hot_new) = times["cold"], times["hot"]
        lines.append(f"| {name} | {1e6 * cold_old:.1f} | {1e6 * cold_new:.1f} | {cold_old / cold_new:.2f} "
                     f"| {1e6 * hot_old:.1f} | {1e6 * hot_new:.1f} | {hot_old / hot_new:.2f} |")
    return lines
