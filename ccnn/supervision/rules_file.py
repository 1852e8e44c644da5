"""Prior knowledge about classes, in a file that a person can write: constraints.toml.

    cue = "none"                        what stands out in a photograph tells nothing here; before all tables

    [background]                        areas are fractions of the photograph
    least = 0.2
    most = 0.8

    [cat]                               names with blanks or accents in quotation marks: ["polar bear"]
    least = 0.05
    most = 0.5
    touches = "lower"                   an edge: lower, upper, left, right, sides (left and right together); or a list
    share = 0.3                         of that edge; 0.1 if it is not said
    kind = "object"                     it stands out, as cats do; or "surface", as sky, grass and cracks in a wall do
                                        not. If it is not said, the photographs decide

    [[rule]]
    larger = ["cat", "mouse"]           the first is larger than the second

    [[rule]]
    together = ["sky", "sea"]           they cover most of it: at least half
    least = 0.6                         or as much as is said, or at most as much
    price = 2                           of breaking the rule; without it a rule is hard. [cat] may have one, too

    [scribbles]                         NAME.png for the photograph NAME.jpg: points, lines, areas (marks.py)
    folder = "scribbles"                from the folder of this file
    colours = {cat = "#ff0000"}         without colours the PNG holds label ids, 255 where the label is unknown

What a rule means for p, and how rules and tags go together: ccnn.supervision.rules. What no linear row can say is
refused.
"""
import os
import re

import numpy as np

from ccnn._util.errors import Mistakes, UserError, suggest
from ccnn._util.foreign_files import read_bytes
from ccnn.images.labels import BACKGROUND
from ccnn.supervision.marks import Scribbles
from ccnn.supervision.rules import EDGES, Rule, Rules

RULES_FILE = "constraints.toml"        # its name in a folder of photographs

KINDS = ("object", "surface")          # of a class

TOUCH_SHARE = 0.1       # of an edge, if a class touches it
TOGETHER_LEAST = 0.5    # "most of it"

DOTS = 100              # in a line, which may be those between the parts of a key
LONGEST = 1000          # characters of a value in a message

CHOICE = ("is a choice, and a choice is not linear in p: halfway between two masks that obey it lies one that does "
          "not; tag every photograph with what it shows")
SHAPE = ("depends on how pixels hang together, which no weighted sum over pixels can tell; "
         "mark some pixels with scribbles")
PAIRS = "is about pairs of pixels, so it needs products of p, and rows are sums; mark some pixels with scribbles"
NOT_LINEAR = {
    **dict.fromkeys(("at_most_one", "at_least_one", "exactly_one", "one_of", "either", "or", "xor", "not_both",
                     "excludes", "never_with", "if", "when", "implies"), CHOICE),
    **dict.fromkeys(("connected", "one_piece", "pieces", "count", "instances", "convex", "shape", "round"), SHAPE),
    **dict.fromkeys(("next_to", "not_next_to", "beside", "inside", "surrounds", "above", "below", "on_top_of"), PAIRS),
}


def read_rules(path, classes):
    """The Rules of a file. All its mistakes are reported at once. classes : names of the labels, background first."""
    data = _read_toml(path)
    reader = _Reader(path, classes)
    for name, table in data.items():
        if name == "cue" and not isinstance(table, dict):
            reader.cue_name(table)
        elif name == "rule":
            reader.rule_tables(table)
        elif name == "scribbles":
            reader.scribbles_table(table)
        elif name not in classes:
            reader.wrong(name, NOT_LINEAR.get(_word(name)) or
                         f"is not a class; {suggest(name, [*classes, 'rule', 'scribbles'])}")
        else:
            reader.class_table(name, table)
    if reader.mistakes:
        raise Mistakes(path, reader.mistakes)
    return Rules(path, classes, reader.rules, reader.areas, reader.scribbles, reader.cue, reader.kinds)


class _Reader:
    """Tables into rules; collects mistakes as (place, text)."""

    def __init__(self, path, classes):
        self.path, self.classes = path, list(classes)
        self.rules, self.areas, self.scribbles, self.mistakes = [], {}, None, []
        self.cue, self.kinds = None, {}

    def wrong(self, place, text):
        self.mistakes.append((place, text))

    def cue_name(self, name):
        if not isinstance(name, str):
            return self.wrong("cue", f"= {_show(name)} must be the name of a cue, or \"none\"")
        self.cue = name

    def class_table(self, name, table):
        place, label = f"[{name}]", self.classes.index(name)
        if not self.is_table(place, table, ("least", "most", "touches", "share", "price", "kind")):
            return
        if "kind" in table and (table["kind"] not in KINDS or label == BACKGROUND):
            self.wrong(place, f"kind = {_show(table['kind'])}: " + (
                "the background is neither" if label == BACKGROUND else suggest(table["kind"], list(KINDS))))
        elif "kind" in table:
            self.kinds[label] = table["kind"]
        price = self.price(place, table)
        self.area(place, table, {label: 1}, price)
        self.areas[label] = {key: table[key] for key in ("least", "most") if key in table}
        share = self.fraction(place, table, "share", TOUCH_SHARE)
        if "share" in table and "touches" not in table:
            self.wrong(place, 'share = ... needs touches = "lower" or another edge')
        edges = table.get("touches", [])
        for edge in edges if isinstance(edges, list) else [edges]:
            if not isinstance(edge, str) or edge not in EDGES:
                self.wrong(place, f"touches = {_show(edge)} is not an edge; {suggest(edge, list(EDGES))}")
            else:
                said = f", share = {share:g}" if "share" in table else ""
                self.rules.append(Rule(f"{place} touches = {_show(edge)}{said}", {label: 1}, share, price, edge))

    def rule_tables(self, tables):
        if not isinstance(tables, list):
            return self.wrong("[rule]", "write two brackets, [[rule]], because there may be several")
        for k, table in enumerate(tables, 1):
            place = f"[[rule]] {k}"
            if not self.is_table(place, table, ("larger", "together", "least", "most", "price")):
                continue
            kinds = [kind for kind in ("larger", "together") if kind in table]
            if len(kinds) != 1:
                self.wrong(place, 'needs larger = ["A", "B"] or together = ["A", "B"]; got '
                           + (" and ".join(kinds) or "neither"))
                continue
            labels = self.labels(place, kinds[0], table[kinds[0]])
            if labels and kinds == ["larger"]:
                self.larger(place, table, labels)
            elif labels:
                said = table if {"least", "most"} & set(table) else {**table, "least": TOGETHER_LEAST}
                self.area(f"[[rule]] together = {_show(table['together'])}", said, dict.fromkeys(labels, 1),
                          self.price(place, table))

    def larger(self, place, table, labels):
        if len(labels) != 2 or {"least", "most"} & set(table):
            return self.wrong(place, f"larger = {_show(table['larger'])}: expected two classes, and neither least nor "
                              "most")
        self.rules.append(Rule(f"[[rule]] larger = {_show(table['larger'])}", {labels[0]: 1, labels[1]: -1}, 0,
                               self.price(place, table)))

    def scribbles_table(self, table):
        if not self.is_table("[scribbles]", table, ("folder", "colours")):
            return
        folder = table.get("folder", "scribbles")
        inner = os.path.join(os.path.dirname(self.path), folder) if isinstance(folder, str) else ""
        if not os.path.isdir(inner):
            return self.wrong("[scribbles]", f"folder = {_show(folder)}: no such folder beside this file")
        colours = table.get("colours")
        try:
            self.scribbles = Scribbles(inner, self.classes, colours)
        except UserError as error:
            self.wrong("[scribbles]", str(error))

    def area(self, place, table, weights, price):
        """The rules of least and most."""
        least, most = self.fraction(place, table, "least", None), self.fraction(place, table, "most", None)
        if least is not None and most is not None and least > most:
            return self.wrong(place, f"least = {least:g} is more than most = {most:g}")
        said = ", " if "together" in place else " "
        if least is not None:
            self.rules.append(Rule(f"{place}{said}least = {least:g}", weights, least, price))
        if most is not None:
            self.rules.append(Rule(f"{place}{said}most = {most:g}", {l: -a for l, a in weights.items()}, -most, price))

    def is_table(self, place, table, keys):
        """Whether it is a table; its keys are checked, too."""
        if not isinstance(table, dict):
            self.wrong(place, f"must be a table, with lines such as {keys[0]} = ...; got {_show(table)}")
            return False
        for key in table:
            if key not in keys:
                self.wrong(place, f"{key} {NOT_LINEAR[_word(key)]}" if _word(key) in NOT_LINEAR else
                           f"{key!r} is not a rule; {suggest(key, list(keys))}")
        return True

    def fraction(self, place, table, key, default):
        value = table.get(key, default)
        if value is None or (type(value) in (int, float) and 0 <= value <= 1):
            return value
        percent = f"; {value:g} % is {value / 100:g}" if type(value) in (int, float) and 1 < value <= 100 else ""
        self.wrong(place, f"{key} = {_show(value)} must be a fraction, 0 to 1{percent}")
        return default

    def price(self, place, table):
        value = table.get("price", np.inf)
        if type(value) in (int, float) and value > 0:
            return float(value)
        self.wrong(place, f"price = {_show(value)} must be a number above 0; leave it out for a hard rule")
        return np.inf

    def labels(self, place, key, names):
        if not isinstance(names, list) or len(names) < 2 or len(set(map(str, names))) < len(names):
            return self.wrong(place, f"{key} = {_show(names)} must be a list of different classes, [\"A\", \"B\"]")
        unknown = [name for name in names if name not in self.classes]
        for name in unknown:
            self.wrong(place, f"{key}: {name!r} is not a class; {suggest(name, self.classes)}")
        return None if unknown else [self.classes.index(name) for name in names]


def _read_toml(path):
    try:
        import tomllib  # type: ignore[import-not-found]
    except ImportError:             # before Python 3.11
        import tomli as tomllib
    try:
        text = read_bytes(path, "the rules").decode("utf-8-sig")
        if re.search(r"[\d_]{100}|0x[\da-fA-F_]{80}", text):       # a million digits take minutes to read
            raise UserError(f"{path}: holds a number of 100 digits or more; shorten it")
        if any(line.count(".") > DOTS for line in text.splitlines()):       # a.a.a.a...: the square of them in time
            raise UserError(f"{path}: has a line with more than {DOTS} dots; split it")
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: is not a text file in UTF-8: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: is not TOML: {error}; names with blanks or accents need quotation marks: "
                        '["polar bear"], and so do words after =') from None


def _word(key):
    return re.sub(r"[\s-]", "_", key.casefold())


def _show(value):
    """A value as TOML writes it, nearly; of a long one the beginning."""
    try:
        text = f"[{', '.join(map(_show, value))}]" if isinstance(value, list) else \
            f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    except RecursionError:
        return "[...]"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
