"""What the marks of photographs were before: files, so that undo and redo survive a reload and a killed studio.

    history = History(work / "studio/history")
    history.push("a.jpg", "undo", data)         # before the change: the PNG of the marks; None: nothing was marked
    data = history.top("a.jpg", "undo")
    history.drop("a.jpg", "undo")               # after it has been taken back

A photograph has two stacks, undo and redo, of numbered files. Who is killed between writing a state and changing the
marks leaves a state that is the same as the marks; whoever takes a step passes over such states.
"""
import contextlib
import hashlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Optional

from ccnn._util.errors import UserError
from ccnn._util.files import save
from ccnn._util.foreign_files import read_bytes
from ccnn._util.work_folder import check, entries, remove

STEPS = 50              # changes of a photograph that can be taken back

NAME = re.compile(r"(undo|redo)-([0-8]\d{5})\.png")         # those that follow have six digits, too


class NoStep(KeyError):
    """There is nothing to take back, or to do again."""


class History:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.steps: dict = defaultdict(lambda: {"undo": [], "redo": []})        # {digest: {stack: [numbers]}}
        check(place)                                    # a link may lead to anything
        for path, _ in sorted(entries(place)):
            if found := NAME.fullmatch(path.name):
                self.steps[path.parent.name][found[1]].append(int(found[2]))

    def counts(self, name: str) -> dict:
        """{"undo": n, "redo": n} of a photograph, without those that are 0."""
        found = self.steps.get(digest_of(name), {}) if self.steps else {}
        return {stack: len(numbers) for stack, numbers in found.items() if numbers}

    def file(self, name: str, stack: str, number: int) -> Path:
        return self.place / digest_of(name) / f"{stack}-{number:06}.png"

    def push(self, name: str, stack: str, data: Optional[bytes]) -> None:
        numbers = self.steps[digest_of(name)][stack]
        number = numbers[-1] + 1 if numbers else 1
        save(self.file(name, stack, number), data or b"")
        numbers.append(number)
        while len(numbers) > STEPS:
            remove(self.file(name, stack, numbers.pop(0)))

    def top(self, name: str, stack: str, now: Optional[bytes]) -> Optional[bytes]:
        """The newest state of a stack that is not `now`; NoStep if there is none."""
        while numbers := self.steps[digest_of(name)][stack]:
            with contextlib.suppress(UserError):
                data = read_bytes(self.file(name, stack, numbers[-1])) or None
                if data != now:
                    return data
            self.drop(name, stack)
        raise NoStep(stack)

    def drop(self, name: str, stack: str) -> None:
        numbers = self.steps[digest_of(name)][stack]
        if numbers:
            remove(self.file(name, stack, numbers.pop()))

    def clear(self, name: str, stack: str) -> None:
        while self.steps[digest_of(name)][stack]:
            self.drop(name, stack)

    def forget(self) -> None:
        """Of every photograph: the numbers of the classes have changed."""
        remove(self.place)
        self.steps.clear()


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
