"""Tables as text and as Markdown, and the tables of scores in the paper's columns."""
from collections.abc import Sequence
from typing import Callable, Optional, Union

from ccnn.evaluation.scores import Score
from ccnn.images.labels import SHORT
from ccnn.paper import TABLES

Cell = Union[str, float, None]
Table = Callable[[Sequence[str], Sequence[Sequence[Cell]]], str]

NUMBERS = {"miou": "mIoU", "overall": "accuracy", "mean": "mean acc."}      # of a Score, and their titles


def text_table(header: Sequence[str], lines: Sequence[Sequence[Cell]]) -> str:
    """Columns padded with spaces. The first two hold words, the others numbers."""
    rows = [list(header), *cells(lines)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("  ".join(v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(row, widths))).rstrip()
                   + "\n" for row in rows)


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[Cell]]) -> str:
    rule = ["---" if i < 2 else "---:" for i in range(len(header))]
    return "".join(f"| {' | '.join(v.replace('|', '&#124;') for v in row)} |\n"
                   for row in [list(header), rule, *cells(lines)])


def cells(lines: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """Numbers with one decimal, "-" where there is none."""
    return [[v if isinstance(v, str) else "-" if v is None else f"{v:.1f}" for v in line] for line in lines]


def score_tables(scores: Sequence[Score], classes: Sequence[str], table: Table) -> str:
    """Two tables: scores without and with CRF side by side, then IoU class by class in the paper's columns."""
    lines = side_by_side(scores)
    kinds = sorted({score.crf for score in scores})
    suffix = {False: " w/o CRF", True: " w/ CRF"} if True in kinds else {False: ""}
    columns = [(key, crf) for key in NUMBERS for crf in kinds
               if any(score.crf == crf and getattr(score, key) is not None for score in scores)]
    overview = [[name, split] + [number(line.get(crf), key) for key, crf in columns]
                for (name, split, _), line in lines.items()]
    detail = [[score.name + suffix[score.crf], score.split, *score.iou, score.miou]
              for line in lines.values() for _, score in sorted(line.items()) if score.iou]
    return (table(["method", "set"] + [NUMBERS[key] + suffix[crf] for key, crf in columns], overview) + "\n"
            + table(["IoU", "set"] + [SHORT.get(name, name) for name in classes] + ["mIoU"], detail))


def side_by_side(scores: Sequence[Score]) -> dict[tuple[str, str, int], dict[bool, Score]]:
    """{(name, set, number): {with CRF or not: score}}; the number keeps two runs of one name two lines."""
    lines: dict[tuple[str, str, int], dict[bool, Score]] = {}
    for score in scores:
        number = 0
        while score.crf in lines.get((score.name, score.split, number), {}):
            number += 1
        lines.setdefault((score.name, score.split, number), {})[score.crf] = score
    return lines


def number(score: Optional[Score], key: str) -> Optional[float]:
    return getattr(score, key) if score else None


def paper_rows() -> list[Score]:
    """The rows of tables 1 to 3, in their order."""
    rows: list[Score] = []
    for line in TABLES.strip().splitlines():
        if line.startswith(" "):
            rows[-1].iou.extend(None if v == "-" else float(v) for v in line.split())
        else:
            name, split, crf, miou = map(str.strip, line.split("|"))
            rows.append(Score(name, split, crf == "yes", float(miou), []))
    return rows
