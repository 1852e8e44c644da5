"""Prior knowledge in constraints.toml: every rule bites, contradictions are named, scribbles reach the grid."""
import re

import numpy as np
import pytest
from PIL import Image

import ccnn
from ccnn._util.errors import Mistakes, UserError
from ccnn.supervision.marks import Scribbles, known_cells
from ccnn.supervision.rules import smallest_contradiction
from ccnn.supervision.rules_file import EDGES, NOT_LINEAR, read_rules

CLASSES = ("background", "cat", "dog", "sky", "große Katze")
SHAPE = (9, 13)
N = SHAPE[0] * SHAPE[1]
TOL = 1e-6


def tags(*names):
    return np.array([name in names or name == "background" for name in CLASSES])


@pytest.fixture
def rules(tmp_path):
    def read(text):
        (tmp_path / "constraints.toml").write_text(text, encoding="utf-8")
        return read_rules(tmp_path / "constraints.toml", CLASSES)
    return read


def scores(prefer, seed=0):
    """Scores that prefer one class everywhere."""
    f = np.random.default_rng(seed).normal(size=(len(CLASSES), N))
    f[CLASSES.index(prefer)] += 3
    return f


def area(p, *names):
    return sum(p[CLASSES.index(name)].mean() for name in names)


def edge_share(p, name, edge):
    return p[CLASSES.index(name)].reshape(SHAPE)[EDGES[edge]].mean()


RULES = [       # the file, scores that break it, what is measured, its least value
    ("[cat]\nleast = 0.4", "background", lambda p: area(p, "cat"), 0.4),
    ("[cat]\nmost = 0.3", "cat", lambda p: -area(p, "cat"), -0.3),
    ("[background]\nleast = 0.5", "cat", lambda p: area(p, "background"), 0.5),
    ("[background]\nmost = 0.25", "background", lambda p: -area(p, "background"), -0.25),
    ('["große Katze"]\nleast = 0.2', "cat", lambda p: area(p, "große Katze"), 0.2),
    ('[cat]\ntouches = "lower"', "background", lambda p: edge_share(p, "cat", "lower"), 0.1),
    ('[cat]\ntouches = "lower"\nshare = 0.6', "background", lambda p: edge_share(p, "cat", "lower"), 0.6),
    ('[cat]\ntouches = ["upper", "left"]\nshare = 0.6', "dog", lambda p: edge_share(p, "cat", "upper"), 0.6),
    ('[cat]\ntouches = ["upper", "left"]\nshare = 0.6', "dog", lambda p: edge_share(p, "cat", "left"), 0.6),
    ('[cat]\ntouches = "right"\nshare = 0.6', "dog", lambda p: edge_share(p, "cat", "right"), 0.6),
    ('[cat]\ntouches = "sides"\nshare = 0.6', "dog", lambda p: edge_share(p, "cat", "sides"), 0.6),
    ('[[rule]]\nlarger = ["cat", "dog"]', "dog", lambda p: area(p, "cat") - area(p, "dog"), 0),
    ('[[rule]]\nlarger = ["background", "dog"]', "dog", lambda p: area(p, "background") - area(p, "dog"), 0),
    ('[[rule]]\ntogether = ["cat", "dog"]', "background", lambda p: area(p, "cat", "dog"), 0.5),
    ('[[rule]]\ntogether = ["cat", "dog"]\nmost = 0.2', "cat", lambda p: -area(p, "cat", "dog"), -0.2),
]


@pytest.mark.parametrize("text, prefer, measure, least", RULES)
def test_every_rule_bites(rules, text, prefer, measure, least):
    f, present = scores(prefer), tags("cat", "dog", "große Katze")
    suppressed = ccnn.Constraints(np.zeros((0, 5)), [], [], present)
    c = rules(text).apply(suppressed, SHAPE)
    before = ccnn.maximize(f, suppressed).p
    s = ccnn.maximize(f, c)

    assert measure(before) < least - 0.01               # else the test proves nothing
    assert s.status == "optimal" and measure(s.p) == pytest.approx(least, abs=TOL)


@pytest.mark.parametrize("price", [None, 2.0, 0.05])
def test_solution_satisfies_kkt(rules, price):
    """All rules together, with the rows of the tags."""
    text = """
        [background]
        least = 0.25
        [cat]
        most = 0.4
        touches = "lower"
        share = 0.9
        [[rule]]
        larger = ["dog", "cat"]
        [[rule]]
        together = ["cat", "dog"]
        least = 0.7
    """.replace("[[rule]]", f"[[rule]]\nprice = {price}" if price else "[[rule]]")
    c = rules(text).apply(ccnn.tag_constraints(tags("cat", "dog")), SHAPE)
    s = ccnn.maximize(scores("background"), c, tol=1e-9)
    surplus = c.values(s.p) - c.b
    inside = s.lam < c.beta

    assert s.status == "optimal" and np.count_nonzero(s.lam) >= (2 if price == 0.05 else 3)
    assert (0 <= s.lam).all() and (s.lam <= c.beta).all()
    assert (surplus[inside] >= -TOL).all()              # violated only where slack is bought
    assert (surplus[s.lam > 0] <= TOL).all()            # complementary slackness
    assert np.abs(s.p[[3, 4]]).max() == 0               # absent classes stay absent


def test_a_price_is_the_most_that_is_added_to_a_score(rules):
    f, allowed = scores("background"), ccnn.Constraints(np.zeros((0, 5)), [], [], tags("cat"))
    for text in ("[cat]\nleast = 0.9\nprice = 0.5", '[cat]\ntouches = "lower"\nshare = 0.9\nprice = 0.5'):
        p = ccnn.maximize(f, rules(text).apply(allowed, SHAPE)).p
        added = np.log(p[1] / p[0]) - (f[1] - f[0])
        assert added.max() == pytest.approx(0.5, abs=1e-6) and added.min() > -1e-6


def test_rules_hold_only_where_all_their_classes_are_tags(rules):
    known = rules('[cat]\nleast = 0.4\n[[rule]]\nlarger = ["cat", "dog"]\n[[rule]]\nlarger = ["background", "sky"]')
    assert known.constraints(tags(), SHAPE) is None and known.constraints(tags("dog"), SHAPE) is None
    assert len(known.constraints(tags("cat"), SHAPE)) == 1
    assert len(known.constraints(tags("cat", "dog", "sky"), SHAPE)) == 3
    assert len(known.constraints(np.array([0, 0, 0, 1, 0]), SHAPE)) == 1        # the background is always there
    c = ccnn.tag_constraints(tags("dog"))
    assert known.apply(c, SHAPE) is c


# Rules and tags

def bounds(c):
    """{(class, side): bound} of the rows on single classes"""
    found = {}
    for row, b in zip(c.A, c.b):
        l, = np.flatnonzero(row)
        found.setdefault((CLASSES[l], "least" if row[l] > 0 else "most"), []).append(b * row[l])
    return found


def test_the_file_replaces_the_bounds_of_tags_and_sizes(rules):
    known = rules("[cat]\nleast = 0.01\n[dog]\nmost = 0.02\n[background]\nmost = 0.95")
    c = known.apply(ccnn.tag_constraints(tags("cat", "dog")), SHAPE)
    assert bounds(c) == {("cat", "least"): [0.01], ("dog", "most"): [0.02],         # 5 % of dog cannot be
                         ("background", "least"): [0.3], ("background", "most"): [0.95]}
    small = ccnn.size_constraints(tags("cat"), tags())          # at most 1 % of cat: too little for this background
    assert bounds(known.apply(small, SHAPE)) == {("cat", "least"): [0.01], ("background", "least"): [0.2],
                                                 ("background", "most"): [0.95]}
    assert bounds(rules("[cat]\nleast = 0.01").apply(small, SHAPE)) == {
        ("cat", "least"): [0.01], ("cat", "most"): [0.01], ("background", "least"): [0.2]}


def test_hard_bounds_of_the_tags_give_way(rules):
    """70 % of background at most, and 10 % of cat at most: there is no such photograph of one cat."""
    known = rules("[cat]\nmost = 0.1")
    tagged = {"a.jpg": ccnn.tag_constraints(tags("cat")), "b.jpg": ccnn.tag_constraints(tags("cat")),
              "c.jpg": ccnn.tag_constraints(tags("cat", "dog")), "d.jpg": ccnn.tag_constraints(tags())}
    assert known.check(tagged) == ["photographs of cat (a.jpg and 1 more): background at most 0.7 (of the tags) gives "
                                   f"way to {known.path}"]
    c = known.apply(tagged["a.jpg"], SHAPE)
    assert ("background", "most") not in bounds(c) and bounds(c)["background", "least"] == [0.3]
    assert ("background", "most") in bounds(known.apply(tagged["c.jpg"], SHAPE))       # there the dog has room
    s = ccnn.maximize(scores("cat"), c)
    assert s.status == "optimal" and area(s.p, "cat") <= 0.1 + TOL


def test_rules_combine_with_boxes(rules):
    boxes = ccnn.box_constraints([(1, 0, 0, 9, 6)], SHAPE, 5)
    c = rules('[cat]\ntouches = "lower"\nshare = 0.4\nleast = 0.01').apply(boxes, SHAPE)
    assert len(c) == 3                          # a box is no bound on the area, so least does not replace it
    s = ccnn.maximize(scores("background"), c)
    assert s.status == "optimal" and edge_share(s.p, "cat", "lower") >= 0.4 - TOL
    assert s.p[1].reshape(SHAPE)[:, 6:].max() == 0


@pytest.mark.parametrize("text, names, message", [
    ("[cat]\nleast = 0.6\nmost = 0.9\n[dog]\nleast = 0.5\n[sky]\nleast = 0.01", ["cat", "dog", "sky"],
     "[cat] least = 0.6 and [dog] least = 0.5 contradict each other; change it, or give it a price"),
    ('[cat]\nmost = 0.2\n[dog]\nleast = 0.3\n[[rule]]\nlarger = ["cat", "dog"]', ["cat", "dog"],
     '[cat] most = 0.2 and [dog] least = 0.3 and [[rule]] larger = ["cat", "dog"] contradict each other'),
    ('[[rule]]\ntogether = ["cat", "dog"]\nleast = 0.8\n[background]\nleast = 0.3', ["cat", "dog"],
     '[[rule]] together = ["cat", "dog"], least = 0.8 and [background] least = 0.3 contradict each other'),
    ('[cat]\ntouches = "lower"\nshare = 0.9\n[dog]\ntouches = "lower"\nshare = 0.2', ["cat", "dog"],
     '[cat] touches = "lower", share = 0.9 and [dog] touches = "lower", share = 0.2 contradict each other'),
    ('[cat]\ntouches = "lower"\nshare = 0.9\nmost = 0.01', ["cat"],
     '[cat] most = 0.01 and [cat] touches = "lower", share = 0.9 contradict each other'),
])
def test_contradictions_are_found_and_named_in_the_words_of_the_file(rules, text, names, message):
    known = rules(text)
    tagged = {"x.jpg": ccnn.tag_constraints(tags(*names)), "y.jpg": ccnn.tag_constraints(tags()),
              "z.jpg": ccnn.size_constraints(tags(names[0]), tags(names[0]))}
    if len(names) == 1:
        del tagged["z.jpg"]
    with pytest.raises(Mistakes) as error:
        known.check(tagged)
    line, = error.value.lines
    assert line.startswith(f"{known.path}, photographs of {' and '.join(names)} (x.jpg): {message}")
    # with a price there is no contradiction
    assert isinstance(rules(re.sub(r"(?m)^(\[.*)", r"\1\nprice = 3", text)).check(tagged), list)


def test_the_named_rules_are_exactly_those_needed(rules):
    """Against LP: the named rows have no solution, and without any one of them there is one."""
    from scipy.optimize import linprog
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(60):
        k = 6
        A, b = rng.choice([-1., 0, 1], (k, 4)), rng.uniform(-0.6, 0.9, k)
        guilty = smallest_contradiction(ccnn.Constraints(A, b, np.full(k, np.inf)))

        def feasible(rows, A=A, b=b):
            return linprog(np.zeros(4), -A[rows], -b[rows], np.ones((1, 4)), [1]).status == 0
        if guilty:
            found += 1
            assert not feasible(guilty)
            assert all(feasible([i for i in guilty if i != j]) for j in guilty)
        else:
            assert feasible(list(range(k)))
    assert 10 < found < 55


# The file

def test_left_and_right_forbid_mirroring(rules):
    assert rules('[cat]\ntouches = "left"').handed and not rules('[cat]\ntouches = ["sides", "lower"]').handed


def test_windows_files_will_do(tmp_path):
    (tmp_path / "c.toml").write_bytes('["große Katze"]\r\nleast = 0.1\r\n'.encode("utf-8-sig"))
    assert read_rules(tmp_path / "c.toml", CLASSES).areas == {4: {"least": 0.1}}


@pytest.mark.parametrize("text, message", [
    ("[cta]\nleast = 0.1", "cta: is not a class; did you mean 'cat'?"),
    ("[cat]\nleats = 0.1", "[cat]: 'leats' is not a rule; did you mean 'least'?"),
    ("[cat]\nleast = 30", "[cat]: least = 30 must be a fraction, 0 to 1; 30 % is 0.3"),
    ('[cat]\nleast = "a lot"', '[cat]: least = "a lot" must be a fraction, 0 to 1'),
    ("[cat]\nleast = nan", "[cat]: least = nan must be a fraction, 0 to 1"),
    ("[cat]\nmost = true", "[cat]: most = true must be a fraction, 0 to 1"),
    ("[cat]\nleast = 0.5\nmost = 0.4", "[cat]: least = 0.5 is more than most = 0.4"),
    ('[cat]\ntouches = "botom"', '[cat]: touches = "botom" is not an edge; known: lower, upper, left, right, sides'),
    ('[cat]\ntouches = "lowr"', "[cat]: touches = \"lowr\" is not an edge; did you mean 'lower'?"),
    ("[cat]\nshare = 0.5", '[cat]: share = ... needs touches = "lower" or another edge'),
    ("[cat]\nleast = 0.1\nprice = 0", "[cat]: price = 0 must be a number above 0; leave it out for a hard rule"),
    ("cat = 0.3", "[cat]: must be a table, with lines such as least = ...; got 0.3"),
    ('[rule]\nlarger = ["cat", "dog"]', "[rule]: write two brackets, [[rule]], because there may be several"),
    ("[[rule]]\nleast = 0.5", '[[rule]] 1: needs larger = ["A", "B"] or together = ["A", "B"]; got neither'),
    ('[[rule]]\nlarger = ["cat", "dgo"]', "[[rule]] 1: larger: 'dgo' is not a class; did you mean 'dog'?"),
    ('[[rule]]\nlarger = "cat"', '[[rule]] 1: larger = "cat" must be a list of different classes, ["A", "B"]'),
    ('[[rule]]\nlarger = ["cat", "dog", "sky"]', '[[rule]] 1: larger = ["cat", "dog", "sky"]: expected two classes'),
    ('[scribbles]\nfolder = "nowhere"', '[scribbles]: folder = "nowhere": no such folder beside this file'),
    ('[scribbles]\nfolder = "."\ncolours = {cta = "#ff0000"}', "[scribbles]: colours: 'cta' is not a class; did you"),
    ('[scribbles]\nfolder = "."\ncolours = {cat = "red"}', "[scribbles]: colours: cat = 'red' is not a colour such as"),
])
def test_wrong_files_are_named(rules, text, message):
    with pytest.raises(Mistakes) as error:
        rules(text)
    assert message in error.value.lines[0] and len(error.value.lines) == 1


def test_all_mistakes_are_reported_at_once(rules):
    with pytest.raises(Mistakes, match=r"3 mistakes \(1\) \[cat\]: .* \(2\) \[cat\]: .* \(3\) hund: is not a class"):
        rules("[cat]\nleast = 7\nmots = 0.5\n[hund]\nleast = 0.1")


@pytest.mark.parametrize("text", ["[große Katze]\nleast = 0.1", "[cat]\ntouches = lower"])
def test_what_is_not_toml_has_its_line(rules, text):
    with pytest.raises(UserError, match=r"constraints.toml: is not TOML: .*line \d.*need quotation marks"):
        rules(text)


@pytest.mark.parametrize("number", [1000 * "9", "1" + 1000 * "_1", "0x" + 5000 * "f", "0o" + 5000 * "7"])
def test_a_number_without_end_is_one_line(tmp_path, number):
    """Python from 3.11 on prints none of more than 4300 digits, in an error neither."""
    (tmp_path / "constraints.toml").write_text(f"[cat]\nleast = {number}\n")
    with pytest.raises(UserError, match="constraints.toml: holds a number of 100 digits or more; shorten it"):
        read_rules(tmp_path / "constraints.toml", ("background", "cat"))


@pytest.mark.parametrize("key", ["cat." + 40_000 * "a.", 999 * "a.", "least." + 500 * "a."])
def test_keys_of_many_parts_are_one_line(rules, key):
    """Python's reader takes the square of their number in time, and prints no table that is as deep."""
    with pytest.raises(UserError, match="constraints.toml: has a line with more than 100 dots; split it"):
        rules(f"[cat]\n{key}b = 1")


def test_a_long_value_is_not_repeated(rules):
    with pytest.raises(UserError, match=r'least = "x+\.\.\. must be a fraction') as error:
        rules(f'[cat]\nleast = "{1_000_000 * "x"}"')
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("text, reason", [
    ('[[rule]]\nat_most_one = ["cat", "dog"]', "at_most_one is a choice, and a choice is not linear in p"),
    ('[[rule]]\n"exactly one" = ["cat", "dog"]', "exactly one is a choice"),
    ('[[rule]]\neither = ["cat", "dog"]', "either is a choice"),
    ("[cat]\nconnected = true", "connected depends on how pixels hang together"),
    ('[cat]\nnot-next-to = "dog"', "not-next-to is about pairs of pixels"),
])
def test_what_is_not_linear_is_refused_with_the_reason(rules, text, reason):
    with pytest.raises(UserError) as error:
        rules(text)
    assert reason in str(error.value)


def test_the_reason_holds():
    """Halfway between two masks that obey `at most one of cat and dog` lies one that does not; with rows it does."""
    cat, dog = np.eye(5)[:, [1] * N], np.eye(5)[:, [2] * N]
    half = (cat + dog) / 2
    assert area(half, "cat") > 0 and area(half, "dog") > 0 and "at_most_one" in NOT_LINEAR
    rng = np.random.default_rng(0)
    c = ccnn.Constraints(rng.normal(size=(9, 5)), np.full(9, -1.0), np.ones(9))
    both = np.minimum(c.values(cat), c.values(dog))
    assert (c.values(half) >= both - 1e-12).all()


# Scribbles

def test_scribbles_by_ids_and_by_colours(tmp_path):
    ids = np.full((20, 30), 255, np.uint8)
    ids[3:5, 4:9], ids[15, 20] = 1, 0
    Image.fromarray(ids).save(tmp_path / "a.png")
    picture = np.random.default_rng(0).integers(0, 200, (20, 30, 3), np.uint8)     # painted on the photograph
    picture[ids == 1], picture[ids == 0] = (255, 0, 0), (0, 0, 255)
    Image.fromarray(picture).save(tmp_path / "b.png")
    layer = np.dstack([picture, np.where(ids == 1, 255, 0).astype(np.uint8)])      # on a layer; blue is transparent
    Image.fromarray(layer).save(tmp_path / "c.png")
    Image.fromarray(picture[:2]).save(tmp_path / "d.png")

    assert np.array_equal(Scribbles(tmp_path, CLASSES).read("a"), ids)
    coloured = Scribbles(tmp_path, CLASSES, {"cat": "#ff0000", "background": "#0000FF"})
    assert np.array_equal(coloured.read("b"), ids)
    assert np.array_equal(coloured.read("c"), np.where(ids == 1, 1, 255))
    assert coloured.read("nobody marked it") is None
    with pytest.raises(UserError, match="d.png: has none of the colours #ff0000, #0000ff; paint without soft edges"):
        coloured.read("d")
    with pytest.raises(UserError, match="b.png: is a picture of mode RGB"):
        Scribbles(tmp_path, CLASSES).read("b")
    with pytest.raises(UserError, match="cat and dog have the same colour"):
        Scribbles(tmp_path, CLASSES, {"cat": "#ff0000", "dog": "#FF0000"})


def test_a_point_is_not_lost_between_cells():
    rows, columns = np.arange(0, 41, 8), np.arange(0, 81, 8)
    mask = np.full((41, 81), 255, np.uint8)
    mask[13, 30] = 1                # nearest to the cells in row 16 and column 32
    mask[38:41, 78:] = 2            # 9 pixels against 4
    mask[37:39, 77:79] = 3
    mask[0, 0], mask[1, 1] = 1, 2   # a tie
    cells = known_cells(mask, rows, columns)
    assert (mask[np.ix_(rows, columns)] == 255).sum() == mask[np.ix_(rows, columns)].size - 2   # sampling: two lost
    expected = np.full((6, 11), 255)
    expected[2, 4], expected[5, 10] = 1, 2
    assert np.array_equal(cells, expected)


def test_scribbles_become_a_mask_beside_the_rules(rules, tmp_path):
    (tmp_path / "scribbles").mkdir()
    ids = np.full((72, 104), 255, np.uint8)
    ids[:8, :8] = 2
    Image.fromarray(ids).save(tmp_path / "scribbles/a.png")
    known = rules("[scribbles]\n[cat]\nleast = 0.5")
    cells = known_cells(known.scribbles.read("a"), np.arange(4, 72, 8), np.arange(4, 104, 8))
    c = known.apply(ccnn.tag_constraints(tags("cat", "dog")), SHAPE) & ccnn.mask_constraints(cells, 5)
    s = ccnn.maximize(scores("background"), c)
    assert s.status == "optimal" and s.p[2, 0] == 1 and area(s.p, "cat") >= 0.5 - TOL


def test_scribbles_are_checked_against_the_tags(rules, tmp_path):
    (tmp_path / "scribbles").mkdir()
    for name, label in (("a", 1), ("b", 2), ("bb", 1)):
        Image.fromarray(np.full((4, 4), label, np.uint8)).save(tmp_path / f"scribbles/{name}.png")
    (tmp_path / "scribbles/c.png").write_bytes(b"no picture")
    (tmp_path / "scribbles/d.jpg").write_bytes(b"no picture")
    known = rules("[scribbles]")
    with pytest.raises(Mistakes) as error:
        known.scribbles.check({"a": tags("cat"), "b": tags("cat"), "c": tags()})
    folder = tmp_path / "scribbles"
    assert error.value.lines == [
        f"{folder}, b.png: marks 'dog', which is not among the tags of 'b'",
        f"{folder}, bb.png: there is no photograph of that name; did you mean 'b'?",
        f"{folder}, c.png: {folder}/c.png: is not an image that can be read; need JPEG, PNG, WebP, TIFF, BMP or GIF",
        f"{folder}, d.jpg: is not a PNG, the format that keeps colours; save it as PNG"]


# The page

def test_the_example_of_the_page_is_valid(root, tmp_path):
    page = (root / "docs/constraints.md").read_text()
    (tmp_path / "scribbles").mkdir()
    (tmp_path / "constraints.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    classes = ("background", "cat", "polar bear", "road", "mouse", "sky", "sea")
    known = read_rules(tmp_path / "constraints.toml", classes)
    assert len(known.rules) == 9 and known.scribbles and not known.handed
    assert all(f"`{word}`" in page or f"`{word} =" in page for word in ("sides", "least", "most", "touches", "larger",
                                                                       "together", "price", "share"))
    assert all(word in NOT_LINEAR for row in page.split("| not possible |")[1].splitlines()[2:5]
               for word in re.findall("`(.*?)`", row.split("|")[1]))
