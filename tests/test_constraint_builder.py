"""Everything known about an image becomes its constraints, and these p: the order of the sources, the fallback."""
import numpy as np
import pytest
from scipy.special import softmax

import ccnn
from ccnn.images.labels import VOID
from ccnn.solver.constraints import Constraints
from ccnn.supervision.constraint_builder import (
    ConstraintBuilder,
    solve,
    solve_batch,
    violation,
    with_known_pixels,
    without_rows,
)
from ccnn.supervision.kinds import SUPERVISION
from ccnn.supervision.rules_file import read_rules
from ccnn.supervision.tags_sizes_boxes import (
    AreaRow,
    area_bounds,
    area_rows,
    box_constraints,
    mask_constraints,
    size_constraints,
    tag_constraints,
    with_area_bounds,
)

CLASSES = ["background", "cat", "dog"]
SHAPE = (4, 5)
CAT = np.array([True, True, False])


def equal(c, expected):
    return all(np.array_equal(getattr(c, name), getattr(expected, name)) for name in ("A", "b", "beta", "allowed"))


@pytest.fixture
def f():
    return np.random.default_rng(0).normal(0, 2, (3, *SHAPE)).astype(np.float32)


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "constraints.toml").write_text("[cat]\nmost = 0.1\n[background]\nmost = 0.95\n")
    return read_rules(str(tmp_path / "constraints.toml"), CLASSES)


# The sources and their order

def test_tags_alone_and_with_bounds_as_json_has_them():
    assert equal(ConstraintBuilder(SUPERVISION["tags"]).build([CAT], 3, SHAPE), tag_constraints(CAT))
    hard = ConstraintBuilder(SUPERVISION["tags"], {"fg_lower": 0.2, "fg_beta": "inf"}).build([CAT], 3, SHAPE)
    assert equal(hard, tag_constraints(CAT, fg_lower=0.2, fg_beta=np.inf))


def test_constraints_of_equal_tags_are_built_once():
    builder = ConstraintBuilder(SUPERVISION["size"])
    first = builder.build([CAT, CAT], 3, SHAPE)
    assert builder.build([CAT.astype(np.float32), CAT.astype(np.float32)], 3, (7, 9)) is first
    assert builder.build([CAT, ~CAT], 3, SHAPE) is not first
    boxes = ConstraintBuilder(SUPERVISION["boxes"])
    several = [boxes.build([np.array([(1, 0, 0, 2, 2)], np.float32)], 3, shape) for shape in (SHAPE, (5, 4))]
    assert not np.array_equal(several[0].regions, several[1].regions)


def test_every_source_is_there_and_a_later_one_overrides(rules, f):
    marks = np.full(SHAPE, VOID)
    marks[0, :2] = 2                                            # which the tags deny
    left = np.zeros((1, 20))
    left[0, ::5] = 1
    extra = Constraints([[0, 1, 0], [0, 1, 0]], [0.03, 0.5], [3.0, np.inf], None, np.vstack([left, np.ones(20)]))
    c = ConstraintBuilder(SUPERVISION["tags"], rules=rules).build([CAT], 3, SHAPE, marks, extra)

    assert area_bounds(c) == {0: (0.3, 0.95), 1: (0.05, 0.1)}   # the rules override 0.7 of the tags, 0.5 of extra
    assert (c.regions != 1).any(axis=1).sum() == 1              # the row on the left column stays
    assert c.allowed[:, :2].T.tolist() == [[False, False, True]] * 2 and not c.allowed[2, 2:].any()
    s = solve(f, c)
    assert s.status == "optimal" and not s.dropped.any() and violation(c, s.p) < 1e-4
    assert (s.p[2, :2] == 1).all()


def test_a_mask_of_most_pixels_replaces_the_rows(rules):
    marks = np.full(SHAPE, VOID)
    marks[:2] = 1
    builds = [ConstraintBuilder(SUPERVISION["tags"], rules=rules, mask_share=share).build([CAT], 3, SHAPE, marks[None])
              for share in (0.5, 0.6)]
    assert [len(c) for c in builds] == [0, 4]


def test_known_pixels_win_and_a_mask_replaces_the_rows():
    c = tag_constraints([1, 1, 0])
    some = mask_constraints([2, VOID, VOID, VOID], 3)               # a label that the tags deny
    both = with_known_pixels(c, some, mask_share=0.5)
    assert both.allowed.T.tolist() == [[False, False, True]] + [[True, True, False]] * 3
    assert len(both) == len(c)
    assert len(with_known_pixels(c, some, mask_share=0.25)) == 0    # a quarter of the pixels is a segmentation now
    assert with_known_pixels(c, mask_constraints([VOID] * 4, 3), 0.5) is c


@pytest.mark.parametrize("c", [Constraints([[1, 0, 0]], [0.5], [1]),
                               Constraints.from_matrix(np.ones((1, 12)), [0.5], [1])])
def test_known_pixels_with_rows_of_any_kind(c):
    both = with_known_pixels(c, mask_constraints([2, VOID, VOID, VOID], 3), 0.5)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 4).T
    assert np.allclose(both.values(p), c.values(p)) and both.allowed[:, 0].tolist() == [False, False, True]
    assert both.allowed[:, 1:].all()
    assert len(without_rows(c, 3)) == 0 and violation(c, p) >= 0


def test_violation_is_the_largest_of_all():
    q = np.array([[0.9, 0.7], [0.1, 0.1], [0.0, 0.2]])
    assert violation(tag_constraints([1, 1, 1]), q) == pytest.approx(0.1)          # background: 0.8 of at most 0.7
    assert violation(tag_constraints([1, 1, 0], bg_upper=0.8), q) == pytest.approx(0.1)        # the mass of label 2
    assert violation(without_rows(tag_constraints([1, 1, 1]), 3), q) == 0


# Contradictions

CONTRADICTION = Constraints([[1, 0, 0], [-1, 0, 0]], [0.9, -0.1], [np.inf, np.inf], allowed=CAT)


def test_contradictory_rows_are_dropped(f):
    s = solve(f, CONTRADICTION, diff=np.empty_like(f))
    q = softmax(f.reshape(3, -1).astype(float), axis=0)
    expected = np.vstack([q[:2] / q[:2].sum(axis=0), np.zeros((1, 20))])
    assert s.status == "infeasible" and s.gap == np.inf and s.dropped.all() and not s.lam.any() and len(s.lam) == 2
    assert np.allclose(s.p, expected, atol=1e-6)
    assert s.loss == pytest.approx(-np.log(q[:2].sum(axis=0)).mean(), rel=1e-5)
    assert s.attempt.ray is not None and s.iterations == s.attempt.iterations


def test_a_solution_is_what_maximize_finds(f):
    c, diff = tag_constraints(CAT), np.empty((3, 20), np.float32)
    s, expected = solve(f, c, diff=diff, hardness=2), ccnn.maximize(f.reshape(3, -1), c, hardness=2)
    assert np.array_equal(s.p, expected.p) and np.array_equal(s.lam, expected.lam)
    assert (s.status, s.gap, s.iterations) == (expected.status, expected.gap, expected.iterations)
    assert not s.dropped.any() and s.solution is s.attempt


def test_a_batch_drops_rows_only_where_they_contradict(f):
    F = np.stack([f, f + 1, f]).reshape(3, 3, -1)
    diff = np.empty_like(F)
    constraints = [tag_constraints(CAT), CONTRADICTION, tag_constraints([1, 1, 1])]
    for k, s in enumerate(solve_batch(F, constraints, diff=diff)):
        alone = np.empty_like(F[k])
        expected = solve(F[k], constraints[k], diff=alone)
        assert s.dropped.tolist() == expected.dropped.tolist() == [k == 1] * len(constraints[k])
        assert np.array_equal(s.p, expected.p) and np.array_equal(diff[k], alone) and s.loss == expected.loss


# Rows on an area

def test_area_rows_are_those_of_one_label_in_the_whole_image():
    c = Constraints([[0, 2, 0], [0, 1, -1], [0, 0, -1], [1, 0, 0]], [0.1, 0, -0.4, 0.2], [1, 2, 3, 4], None,
                    [[1, 1], [1, 1], [1, 1], [1, 0]])
    assert area_rows(c) == [AreaRow(0, 1, True, 0.05), AreaRow(2, 2, False, 0.4)]
    assert area_bounds(c) == {1: (0.05, None), 2: (None, 0.4)}
    assert not area_rows(box_constraints([(1, 0, 0, 2, 2)], SHAPE, 3))


def test_bounds_are_replaced_at_their_old_price():
    c = size_constraints([1, 1, 1], [1, 1, 0])
    other = with_area_bounds(c, {1: (0.4, 0.5), 2: (None, None)})
    assert area_bounds(other) == {0: area_bounds(c)[0], 1: (0.4, 0.5)}
    soft = with_area_bounds(tag_constraints(CAT), {1: (0.4, 0.5)})
    assert {(row.label, row.lower): soft.beta[row.row] for row in area_rows(soft) if row.label} == {
        (1, True): 2.0, (1, False): np.inf}
