"""What segment and crf print about the masks that they made."""
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Union

from ccnn._util.text import and_more, plural, printable
from ccnn.images.masks import Lost

NAMED = 10              # objects that are named; more are counted


def print_report(outcomes: Iterable[Union[str, Sequence[Lost]]], out: Path) -> int:
    """Print what was made, what was lost to the CRF and, at the end, what was not made; return the exit status.

    outcomes : one per photograph, what was lost in it, or one line on why there is no mask
    """
    failures, lost, made = [], [], 0
    for outcome in outcomes:
        if isinstance(outcome, str):
            failures.append(outcome)
        else:
            lost += outcome
            made += 1
    lost.sort()
    if made:
        shown = out / "overlay"
        print(printable(f"{plural(made, 'mask')} in {out}" + f"; look at {shown}" * shown.is_dir()))
    else:
        print("no new mask was made")
    print_lost("kept a part of what the CRF would have removed", [one for one in lost if one.kept])
    print_lost("the CRF has removed", [one for one in lost if not one.kept])
    for failure in failures:
        print(printable(failure), file=sys.stderr)
    if failures:
        print(f"{len(failures)} failed, see above" + "; the rest is done" * bool(made), file=sys.stderr)
    return 1 if failures else 0


def print_lost(what: str, lost: Sequence[Lost]) -> None:
    if lost:
        named = ", ".join(f"{one.name} in {one.mask}" for one in lost[:NAMED])
        masks = plural(len({one.mask for one in lost}), "mask")
        print(printable(f"{masks}: {what}: {named}{and_more(lost, NAMED)}"))
