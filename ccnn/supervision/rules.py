"""Rules about classes as rows on p. ccnn.supervision.rules_file reads them from a file.

Every rule is one linear row on p, for photographs whose tags have all of its classes. n cells, E of them on an edge:

    least       1/n sum_i p_i(l)                        >=  least
    most        1/n sum_i p_i(l)                        <=  most
    touches     1/n sum_{i on the edge} p_i(l)          >=  share E/n
    larger      1/n sum_i p_i(A) - 1/n sum_i p_i(B)     >=  0
    together    1/n sum_i sum_{l of the rule} p_i(l)    >=  least,   <=  most

A scribble is a mask: p_i(l) = 1 where it says l. What a linear row cannot express is refused.

The file overrides the default bounds of tags and sizes (tag_constraints, size_constraints): `apply` leaves out their
bound on an area if the file gives the same bound, and any hard bound that contradicts the file.
"""
from typing import NamedTuple, Optional

import numpy as np

from ccnn._util.errors import Mistakes
from ccnn._util.text import and_more
from ccnn.images.labels import BACKGROUND
from ccnn.solver.constraints import Constraints
from ccnn.solver.dual import maximize
from ccnn.supervision.tags_sizes_boxes import area_rows

EDGES = {               # cells of the grid
    "lower": np.s_[-1:, :], "upper": np.s_[:1, :], "left": np.s_[:, :1], "right": np.s_[:, -1:],
    "sides": np.s_[:, [0, -1]],
}


class Rule(NamedTuple):
    """One row on p."""
    text: str                   # as the file says it
    weights: dict               # {label: coefficient}; the rule holds where all of them are present
    bound: float
    price: float
    edge: Optional[str] = None  # the cells that count; None: all


class Rules:
    """The rules of a constraints.toml.

    rules      [Rule]
    areas      {label: {"least": 0.1, "most": 0.5}}, what it says of single classes
    scribbles  Scribbles or None
    cue        the name of the cue to use, or "none"; None: it does not say
    kinds      {label: "object" or "surface"}, of classes of which it says that
    """

    def __init__(self, path, classes, rules, areas, scribbles, cue=None, kinds=None):
        self.path, self.classes, self.rules, self.areas, self.scribbles = path, classes, rules, areas, scribbles
        self.cue, self.kinds = cue, kinds or {}
        self._left_out = {}

    def of_first(self, labels):
        """The rules about the first labels alone: for a model that does not know those that were added since."""
        if labels >= len(self.classes):
            return self
        return Rules(self.path, self.classes[:labels], [rule for rule in self.rules if max(rule.weights) < labels],
                     self.areas, self.scribbles, self.cue, self.kinds)

    @property
    def handed(self):
        """Whether a rule tells left from right: then photographs must not be mirrored."""
        return any(rule.edge in ("left", "right") for rule in self.rules)

    def holding(self, present):
        """The rules of a photograph whose tags are `present`, (L,) bool. The background is always there."""
        return [rule for rule in self.rules if all(present[l] or l == BACKGROUND for l in rule.weights)]

    def constraints(self, present, shape):
        """The rows of the rules on a grid of `shape`, (H, W); None if there are none."""
        rules, n = self.holding(present), shape[0] * shape[1]
        if not rules:
            return None
        A, b = np.zeros((len(rules), len(self.classes))), np.zeros(len(rules))
        regions = np.ones((len(rules), n))
        for j, rule in enumerate(rules):
            A[j, list(rule.weights)] = list(rule.weights.values())
            b[j] = rule.bound
            if rule.edge:
                cells = np.zeros(shape)
                cells[EDGES[rule.edge]] = 1
                regions[j] = cells.ravel()
                b[j] *= cells.mean()
        return Constraints(A, b, [rule.price for rule in rules],
                           regions=regions if any(rule.edge for rule in rules) else None)

    def apply(self, c, shape):
        """c, what tags, sizes or boxes say of a photograph, and the rules, which take precedence."""
        rules = self.constraints(_present(c), shape)
        if rules is None:
            return c
        return c.rows(~self.left_out(c, rules, shape)) & rules

    def left_out(self, c, rules, shape):
        """(rows of c,) bool: those that give way to the rules. Depends on c and the grid alone, and is remembered."""
        key = tuple(array.tobytes() for array in (c.A, c.b, c.beta, c.allowed)) + tuple(shape) \
            if c.allowed is not None and c.allowed.ndim == 1 and c.regions is None else None
        if key in self._left_out:
            return self._left_out[key]
        out = self.replaced(c)
        while True:
            ray = contradiction(c.rows(~out) & rules)
            kept = np.flatnonzero(~out)
            if ray is None or not ray[:kept.size].any():
                break
            out[kept[ray[:kept.size].argmax()]] = True
        if key is not None:
            self._left_out[key] = out
        return out

    def replaced(self, c):
        """(rows of c,) bool: rows that bound the area of a class of which the file gives the same bound, or one that
        excludes it."""
        out = np.zeros(len(c), bool)
        for j, label, lower, bound in area_rows(c):
            area = self.areas.get(label, {})
            out[j] = "least" in area or bound > area.get("most", 1) if lower else \
                "most" in area or bound < area.get("least", 0)
        return out

    def check(self, photographs, shape=(41, 41)):
        """Find contradictions before the training. photographs : {name: its Constraints from tags, sizes or boxes}.

        Raises Mistakes, one for every set of tags with a contradiction. Returns a line for everything that gives way.
        """
        cases = {}
        for name, c in photographs.items():
            key = tuple(None if a is None else a.tobytes() for a in (c.A, c.b, c.beta, c.allowed, c.regions))
            cases.setdefault(key, (c, []))[1].append(name)
        mistakes, notes = [], []
        for c, names in cases.values():
            tags = " and ".join(self.classes[l] for l in np.flatnonzero(_present(c))[1:]) or "no class"
            where = f"photographs of {tags} ({names[0]}{and_more(names)})"
            yielding, guilty = self.judge(c, shape)
            notes += [f"{where}: {text} gives way to {self.path}" for text in yielding]
            if guilty:
                verdict = f"{' and '.join(guilty)} contradict each other" if guilty[1:] else f"{guilty[0]} cannot hold"
                mistakes.append((where, f"{verdict}; change it, or give it a price"))
        if mistakes:
            raise Mistakes(self.path, mistakes)
        return notes

    def judge(self, c, shape):
        """(what of c gives way because it contradicts the rules, which rules contradict each other), in words."""
        rules = self.constraints(_present(c), shape)
        if rules is None:
            return [], []
        out = self.left_out(c, rules, shape)
        yielding = [self.describe(c, j) for j in np.flatnonzero(out & ~self.replaced(c))]
        texts = [self.describe(c, j) for j in np.flatnonzero(~out)] + [rule.text for rule in self.holding(_present(c))]
        return yielding, [texts[j] for j in smallest_contradiction(c.rows(~out) & rules)]

    def describe(self, c, j):
        """A row of tags, sizes or boxes in words."""
        terms = [f"{a:+g} {self.classes[l]}" if abs(a) != 1 else self.classes[l] for l, a in enumerate(c.A[j]) if a]
        lower = c.A[j].sum() > 0
        return f"{' + '.join(terms)} {'at least' if lower else 'at most'} {abs(c.b[j]):g} (of the tags)"


def contradiction(c):
    """None, or (k,) weights >= 0 of the hard rows, proof that no p obeys them (Solution.ray). Scores do not matter."""
    solution = maximize(np.zeros((c.labels, c.pixels or 1), np.float32), c)
    return solution.ray if solution.status == "infeasible" else None


def smallest_contradiction(c):
    """The numbers of rows that contradict each other, each of which is needed for it; [] if no rows do."""
    ray = contradiction(c)
    if ray is None:
        return []
    guilty = list(np.flatnonzero(ray > 1e-6 * ray.max()))
    for j in list(guilty):
        fewer = [i for i in guilty if i != j]
        if fewer and contradiction(c.rows(fewer)) is not None:
            guilty = fewer
    return guilty


def _present(c):
    """(L,) bool: the labels that c allows somewhere."""
    return c.allowed.reshape(len(c.allowed), -1).any(axis=1)
