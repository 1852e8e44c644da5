"""What supervision becomes: the paper's rows and numbers, and that no image a data set holds is infeasible."""
import copy
import itertools
import pickle

import numpy as np
import oracles
import pytest
from scipy import sparse

import ccnn
from ccnn import Constraints, box_constraints, mask_constraints, size_constraints, tag_constraints

inf = np.inf
e = np.eye(3)


def flags(labels, *on):
    return np.isin(np.arange(labels), on)


def as_set(c):
    """Rows on label means as {(label, sign): (bound, price)}."""
    assert c.regions is None and c.matrix is None
    rows = {}
    for a, b, beta in zip(c.A, c.b, c.beta):
        (label,) = np.flatnonzero(a)
        assert abs(a[label]) == 1 and (label, a[label]) not in rows
        rows[int(label), int(a[label])] = (float(a[label] * b), float(beta))
    return rows


# ---- the paper's numbers ---------------------------------------------------------------------

def test_tags_are_the_papers():
    c = tag_constraints(flags(21, 0, 3, 20))
    assert as_set(c) == {(3, 1): (0.05, 2.0), (20, 1): (0.05, 2.0), (0, 1): (0.3, inf), (0, -1): (0.7, inf)}
    assert (c.allowed == flags(21, 0, 3, 20)).all()


def test_tags_follow_their_arguments_and_the_background_is_always_there():
    c = tag_constraints(flags(4, 2), fg_lower=0.1, fg_beta=inf, bg_lower=0.2, bg_upper=0.6)
    assert as_set(c) == {(2, 1): (0.1, inf), (0, 1): (0.2, inf), (0, -1): (0.6, inf)}
    assert (c.allowed == [True, False, True, False]).all()


def test_without_foreground_the_upper_bound_goes():
    assert as_set(tag_constraints(flags(21, 0))) == {(0, 1): (0.3, inf)}


def test_present_is_left_as_it_was():
    present = flags(5, 2)
    tag_constraints(present)
    size_constraints(present, present)
    assert (present == flags(5, 2)).all()


def test_sizes_are_the_papers():
    c = size_constraints(flags(21, 0, 3, 7, 20), flags(21, 3, 20))
    assert as_set(c) == {(3, 1): (0.1, inf), (20, 1): (0.1, inf), (7, -1): (0.01, inf),
                         (0, 1): (0.2, inf), (0, -1): (0.7, inf)}
    assert (c.allowed == flags(21, 0, 3, 7, 20)).all()


def test_a_size_without_its_tag_says_nothing():
    present = flags(21, 0, 3)
    assert as_set(size_constraints(present, flags(21, 3, 9))) == as_set(size_constraints(present, flags(21, 3)))


def test_with_small_classes_only_the_background_may_fill_the_image():
    rows = as_set(size_constraints(flags(21, 0, 3), flags(21)))
    assert rows == {(3, -1): (0.01, inf), (0, 1): (0.2, inf)}


def test_boxes_are_the_papers():
    c = box_constraints([(2, 1, 0, 3, 2), (1, 0, 1, 1, 4)], (3, 4), labels=3)
    first, second = np.zeros((2, 3, 4), bool)
    first[1:3, 0:2] = second[0, 1:4] = True
    np.testing.assert_array_equal(c.A, np.eye(3)[[2, 1]])
    np.testing.assert_array_equal(c.regions, [first.ravel(), second.ravel()])
    np.testing.assert_allclose(c.b, [0.75 * 4 / 12, 0.75 * 3 / 12])
    np.testing.assert_array_equal(c.allowed, [np.ones(12), second.ravel(), first.ravel()])
    assert (c.beta == 10).all()


def test_two_boxes_of_one_class_allow_it_in_both():
    c = box_constraints([(1, 0, 0, 1, 1), (1, 0, 3, 1, 4)], (1, 4), labels=2)
    np.testing.assert_array_equal(c.allowed[1], [True, False, False, True])
    np.testing.assert_allclose(c.b, 0.75 / 4)


def test_three_quarters_of_a_lonely_box_take_its_label():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(3, 63))
    f[0] += 2
    s = ccnn.maximize(f, box_constraints([(1, 1, 2, 6, 8)], (7, 9), labels=3))
    p = s.p[1].reshape(7, 9)
    assert p[1:6, 2:8].mean() == pytest.approx(0.75, abs=1e-3)
    assert p.sum() == pytest.approx(p[1:6, 2:8].sum()) and not s.p[2].any()


def test_masks_points_and_scribbles_fix_their_pixels():
    mask = np.array([[0, 2, 255], [255, 1, 255]], np.uint8)
    c = mask_constraints(mask, labels=3)
    assert len(c.b) == 0
    f = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    s = ccnn.maximize(f, c)
    known = mask.ravel() != 255
    np.testing.assert_array_equal(s.p[:, known], np.eye(3)[mask.ravel()[known]].T)
    np.testing.assert_allclose(s.p[:, ~known], np.exp(f - np.log(np.exp(f).sum(axis=0)))[:, ~known], rtol=1e-5)
    assert s.status == "optimal"
    logs = f.astype(float) - np.log(np.exp(f.astype(float)).sum(axis=0))
    assert s.value == pytest.approx(-logs[mask.ravel()[known], known].sum() / 6, rel=1e-6)     # cross entropy


def test_full_supervision_is_cross_entropy():
    rng = np.random.default_rng(0)
    f, mask = rng.normal(size=(21, 40)), rng.integers(0, 21, 40)
    s = ccnn.maximize(f, mask_constraints(mask))
    np.testing.assert_array_equal(s.p, np.eye(21)[mask].T)
    assert s.value == pytest.approx(-(f - np.log(np.exp(f).sum(axis=0)))[mask, np.arange(40)].mean())


# ---- combining -------------------------------------------------------------------------------

def everything(rng, L=4, h=3, w=4):
    n = h * w
    M = sparse.random(2, L * n, 0.4, random_state=0, format="csr")
    yield tag_constraints(flags(L, 0, 1, 2))
    yield size_constraints(flags(L, 0, 1, 2), flags(L, 1))
    yield box_constraints([(1, 0, 0, 2, 3), (2, 1, 1, 3, 4)], (h, w), labels=L)
    yield mask_constraints(np.where(np.arange(n) < 3, 1, 255), labels=L)
    yield Constraints(rng.normal(size=(2, L)), [0.1, 0.2], [inf, 1.0], regions=rng.random((2, n)))
    yield Constraints.from_matrix(M, [0.1, 0.2], [3.0, inf])
    yield Constraints.from_matrix(M.toarray(), [0.1, 0.2], [3.0, inf], allowed=np.ones(L, bool))
    yield Constraints.from_matrix(M, [0.1, 0.2], [3.0, inf], allowed=rng.random((L, n)) < 2)


def test_and_keeps_rows_in_order_and_both_masks():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 12).T

    def mask(c):
        return np.broadcast_to(True if c.allowed is None else c.allowed.reshape(4, -1), (4, 12))

    for one, two in itertools.product(everything(rng), repeat=2):
        both = one & two
        np.testing.assert_array_equal(both.b, np.r_[one.b, two.b])
        np.testing.assert_array_equal(both.beta, np.r_[one.beta, two.beta])
        np.testing.assert_allclose(both.values(p), np.r_[one.values(p), two.values(p)], rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(mask(both), mask(one) & mask(two))
        np.testing.assert_allclose(oracles.rows(both, 12) @ p.ravel() / 12, both.values(p), atol=1e-12)


def test_values_are_the_means_of_the_contract():
    """(1/n) sum_i r_i sum_l A_l p_li, and (1/n) M p with column l n + i."""
    rng = np.random.default_rng(0)
    L, n = 3, 5
    A, r, p = rng.normal(size=(2, L)), rng.random((2, n)), rng.dirichlet(np.ones(L), n).T
    by_hand = [sum(r[j, i] * A[j, l] * p[l, i] for l in range(L) for i in range(n)) / n for j in range(2)]
    np.testing.assert_allclose(Constraints(A, [0, 0], [1, 1], regions=r).values(p), by_hand)
    M = np.stack([np.outer(A[j], r[j]).ravel() for j in range(2)])
    np.testing.assert_allclose(Constraints.from_matrix(M, [0, 0], [1, 1]).values(p), by_hand)
    np.testing.assert_allclose(Constraints(A, [0, 0], [1, 1]).values(p), A @ p.mean(axis=1))


def test_a_matrix_and_the_rows_it_spells_out_have_one_solution():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(4, 30))
    c = Constraints(rng.normal(size=(3, 4)), [0.5, 0.4, 0.3], [2.0, 0.5, 1.0], allowed=flags(4, 0, 1, 3),
                    regions=rng.integers(0, 2, (3, 30)))
    s = ccnn.maximize(f, c, tol=1e-9)
    assert s.lam.any()
    M = oracles.rows(c, 30)
    for same in (M, M.toarray(), M.tocoo(), M.tocsc()):
        t = ccnn.maximize(f, Constraints.from_matrix(same, c.b, c.beta, allowed=c.allowed), tol=1e-9)
        np.testing.assert_allclose(t.p, s.p, atol=1e-4)
        assert t.value == pytest.approx(s.value, abs=1e-8)


def test_duplicate_entries_of_a_sparse_matrix_add_up():
    M = sparse.coo_matrix(([1.0, 1.0, 3.0], ([0, 0, 0], [4, 4, 5])), shape=(1, 8))
    p = np.full((2, 4), 0.5)
    assert Constraints.from_matrix(M, [0], [1]).values(p) == pytest.approx([2.5 / 4])


# ---- immutable -------------------------------------------------------------------------------

def test_constraints_cannot_be_changed():
    """The solver reads their memory without checks of its own."""
    for c in everything(np.random.default_rng(0)):
        for name in ("A", "b", "beta", "allowed", "regions", "matrix"):
            with pytest.raises(AttributeError):
                setattr(c, name, np.zeros(1))
            with pytest.raises(AttributeError):
                delattr(c, name)
            array = getattr(c, name)
            for x in [array] if isinstance(array, np.ndarray) else [] if array is None else [array.data, array.indices]:
                with pytest.raises(ValueError, match="read-only"):
                    x[...] = 0
        with pytest.raises(AttributeError):
            c.other = 1


def test_constraints_do_not_follow_the_arrays_they_were_made_from():
    A, b, beta, allowed, regions = e[[1]], np.array([0.5]), np.array([2.0]), np.ones((3, 8), bool), np.ones((1, 8))
    M = sparse.csc_matrix(np.ones((1, 24)))
    c, m = Constraints(A, b, beta, allowed, regions), Constraints.from_matrix(M, b, beta)
    for array in (A, b, beta, allowed, regions, M.data):
        array[...] = 0                                                  # still writeable
    assert c.A.any() and c.b.all() and c.beta.all() and c.allowed.all() and c.regions.all() and m.matrix.data.all()


def test_constraints_pickle_and_copy():
    p = np.random.default_rng(1).dirichlet(np.ones(4), 12).T
    for c in everything(np.random.default_rng(0)):
        for same in (pickle.loads(pickle.dumps(c)), copy.copy(c), copy.deepcopy(c)):
            np.testing.assert_array_equal(same.values(p), c.values(p))
            np.testing.assert_array_equal(same.beta, c.beta)
            assert (same.allowed is None) == (c.allowed is None) and not same.b.flags.writeable


def test_other_prices():
    c = tag_constraints(flags(4, 0, 1))
    soft = c.with_prices([1, 2, 3])
    np.testing.assert_array_equal(soft.beta, [1, 2, 3])
    np.testing.assert_array_equal(soft.A, c.A)
    with pytest.raises(ValueError, match="3 rows"):
        c.with_prices([1])


def test_a_matrix_whose_arrays_were_replaced_is_refused():
    c = Constraints.from_matrix(np.ones((1, 24)), [0.1], [1.0])
    c.matrix.indptr = c.matrix.indptr[:5]
    with pytest.raises(ValueError, match="do not fit"):
        ccnn.maximize(np.zeros((3, 8)), c)


# ---- nothing a data set holds is infeasible --------------------------------------------------

def label_rows_agree(c):
    """Rows on label means only: one pixel stands for the mean."""
    return oracles.largest_margin(oracles.Problem(np.zeros((c.A.shape[1], 1)), c)) > -1e-12


def test_every_set_of_tags_has_a_solution():
    """By symmetry the number of tags decides; the scores favour what is forbidden or scarce."""
    rng = np.random.default_rng(0)
    for count in range(21):
        present = np.zeros(21, bool)
        present[1 + rng.permutation(20)[:count]] = True
        c = tag_constraints(present)
        assert label_rows_agree(c), count
        for favoured in (0, 1, 20):
            f = rng.normal(size=(21, 25)) + 30 * flags(21, favoured)[:, None]
            assert ccnn.maximize(f, c).status == "optimal", (count, favoured)


@pytest.mark.parametrize("hardness, tol", [(1, 1e-6), (1000, 1e-4)])
def test_every_combination_of_tags_and_sizes_has_a_solution(hardness, tol):
    """All 231 numbers of large and small classes among 20."""
    rng = np.random.default_rng(0)
    for big, small in ((b, s) for b in range(21) for s in range(21 - b)):
        order = 1 + rng.permutation(20)
        present, large = np.zeros((2, 21), bool)
        present[order[:big + small]] = large[order[:big]] = True
        c = size_constraints(present, large)
        if hardness == 1:
            assert label_rows_agree(c), (big, small)
        f = rng.normal(size=(21, 16)) + rng.choice([0, 5], (21, 1))
        s = ccnn.maximize(f, c, hardness=hardness, tol=tol)
        assert s.status == "optimal", (big, small, s)


@pytest.mark.parametrize("bounds", [dict(fg_lower=0.4), dict(bg_lower=0.5), dict(bg_upper=0.5), dict(bg_upper=0.8),
                                    dict(fg_lower=0.3, bg_lower=0.7)])
def test_the_ablation_of_the_supplement_stays_feasible(bounds):
    """The bounds of its table 1 and beyond, for up to 20 classes."""
    for big, small in ((b, s) for b in range(21) for s in range(0, 21 - b, 4)):
        present, large = np.arange(21) <= big + small, np.arange(21) <= big
        assert label_rows_agree(size_constraints(present, large, **bounds)), (bounds, big, small)
        assert label_rows_agree(tag_constraints(present, **bounds)), (bounds, big, small)


def all_boxes(height, width):
    rows, columns = ([(a, b) for a in range(size) for b in range(a + 1, size + 1)] for size in (height, width))
    return [(y0, x0, y1, x1) for y0, y1 in rows for x0, x1 in columns]


def test_every_pair_of_boxes_has_a_solution():
    """All pairs on a 2 x 4 grid, of one class and of two: one pixel, the whole image, nested, crossing, apart."""
    f = np.random.default_rng(0).normal(size=(3, 8)) * 3
    boxes = all_boxes(2, 4)
    assert (0, 0, 2, 4) in boxes and (1, 3, 2, 4) in boxes
    for one, two in itertools.product(boxes, repeat=2):
        for label in (1, 2):
            c = box_constraints([(1, *one), (label, *two)], (2, 4), labels=3)
            s = ccnn.maximize(f, c)
            assert s.status == "optimal", (one, two, label, s)


def test_many_overlapping_boxes_of_all_classes_have_a_solution():
    rng = np.random.default_rng(0)
    for count in (1, 5, 20, 40):
        boxes = []
        for j in range(count):
            y0, x0 = rng.integers(0, 9), rng.integers(0, 11)
            boxes.append((1 + j % 20, y0, x0, rng.integers(y0 + 1, 10), rng.integers(x0 + 1, 12)))
        boxes.append((1 + count % 20, 0, 0, 9, 11))                       # the size of the image
        boxes.append((2, 4, 0, 5, 11))                                    # one pixel wide
        s = ccnn.maximize(rng.normal(size=(21, 99)), box_constraints(boxes, (9, 11)))
        assert s.status == "optimal", (count, s)


def test_no_boxes_leave_the_background():
    s = ccnn.maximize(np.random.default_rng(0).normal(size=(3, 6)), box_constraints([], (2, 3), labels=3))
    assert s.status == "optimal" and (s.p[0] == 1).all()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_supervision_with_labelled_pixels_is_solved_or_refuted(share):
    """Hard bounds may contradict a mask (one with 95 % background): then that is said, and proven."""
    rng = np.random.default_rng(0)
    refuted = 0
    for _ in range(30):
        mask = np.where(rng.random(40) < rng.choice([0.05, 0.5]), rng.integers(0, 4, 40), 0)
        present = flags(4, *mask)
        mask = np.where(rng.random(40) < share, mask, 255)
        for c in (tag_constraints(present), size_constraints(present, present)):
            both = c & mask_constraints(mask, labels=4)
            twin = oracles.Problem(rng.normal(size=(4, 40)), both)
            margin = oracles.largest_margin(twin)
            s = ccnn.maximize(twin.f, both)
            if abs(margin) > 1e-9:
                assert s.status == ("optimal" if margin > 0 else "infeasible"), (margin, s)
            refuted += s.status == "infeasible"
    assert refuted or share < 1
    assert not refuted or share > 0


# ---- bad input -------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, words", [
    ((e[1], [0.5], [1.0]), r"\(3,\)"),                                   # one row needs two axes
    ((e[[1]], [0.5, 0.5], [1.0]), "b.*1.*2"),
    ((e[[1]], [0.5], [1.0, 2.0]), "beta.*1.*2"),
    ((e[[1]], [0.5], [-1.0]), "-1"),
    ((e[[1]], [0.5], [0.0]), "0"),
    ((e[[1]], [0.5], [np.nan]), "(?i)pric|beta"),
    ((e[[1]], [np.nan], [1.0]), "b"),
    ((e[[1]] * np.nan, [0.5], [1.0]), "A"),
    ((e[[1]] * 1e61, [0.5], [1.0]), "below 1e"),
    ((np.full((1, 3), inf), [0.5], [1.0]), "A"),
    ((e[[1]], [inf], [1.0]), "b"),
    ((e[[1]], [0.5], [1.0], np.ones(4, bool)), "3.*4"),
    ((e[[1]], [0.5], [1.0], np.zeros(3, bool)), "allowed"),
    ((e[[1]], [0.5], [1.0], np.array([[1, 1, 0, 0]] * 3, bool)), "2.*2|allowed at 2"),
    ((e[[1]], [0.5], [1.0], None, np.ones((2, 8))), "1.*2"),
    ((e[[1]], [0.5], [1.0], None, np.full((1, 8), np.nan)), "regions"),
    ((e[[1]], [0.5], [1.0], None, np.ones(8)), "8"),
])
def test_malformed_rows_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Constraints(*arguments)


@pytest.mark.parametrize("make, words", [
    (lambda: Constraints.from_matrix(np.ones((1, 10)), [0.1], [1.0], allowed=np.ones(3, bool)), "10.*3"),
    (lambda: Constraints.from_matrix(np.ones((1, 10)), [0.1], [1.0], allowed=np.ones((3, 4), bool)), "10.*12|10.*3"),
    (lambda: Constraints.from_matrix(np.full((1, 6), np.nan), [0.1], [1.0]), "finite"),
    (lambda: Constraints.from_matrix(np.ones((2, 6)), [0.1], [1.0]), "2.*1"),
    (lambda: tag_constraints(np.ones(3)) & tag_constraints(np.ones(4)), "3.*4"),
    (lambda: mask_constraints(np.zeros(4, int), 3) & mask_constraints(np.zeros(5, int), 3), "4.*5"),
    (lambda: mask_constraints(np.zeros(4, int), 3) & mask_constraints(np.ones(4, int), 3), "4 pixels|allowed"),
    (lambda: tag_constraints(flags(3, 0)) & mask_constraints(np.array([0, 1]), 3), "allowed"),
    (lambda: tag_constraints(np.ones((2, 21))), r"\(2, 21\)"),
    (lambda: tag_constraints([]), "present"),
    (lambda: tag_constraints(np.ones(21), fg_lower=5), "fg_lower.*5"),            # a percentage
    (lambda: tag_constraints(np.ones(21), bg_lower=-0.1), "bg_lower.*-0.1"),
    (lambda: tag_constraints(np.ones(21), bg_upper=np.nan), "bg_upper"),
    (lambda: tag_constraints(np.ones(21), bg_lower=0.8), "0.8.*0.7"),
    (lambda: tag_constraints(np.ones(21), fg_beta=-2), "-2"),
    (lambda: size_constraints(np.ones(21), np.ones(20)), "21.*20"),
    (lambda: size_constraints(np.ones(21), np.ones(21), small_upper=1.5), "small_upper.*1.5"),
    (lambda: size_constraints(np.ones(21), np.ones(21), bg_lower=0.8), "0.8.*0.7"),
    (lambda: box_constraints([(21, 0, 0, 1, 1)], (4, 4)), "21"),
    (lambda: box_constraints([(0, 0, 0, 1, 1)], (4, 4)), "label 0"),
    (lambda: box_constraints([(-1, 0, 0, 1, 1)], (4, 4)), "-1"),
    (lambda: box_constraints([(1, 0, 0, 5, 1)], (4, 4)), "4 x 4"),
    (lambda: box_constraints([(1, -1, 0, 2, 1)], (4, 4)), "4 x 4"),
    (lambda: box_constraints([(1, 2, 0, 2, 1)], (4, 4)), "empty"),
    (lambda: box_constraints([(1, 0, 0, 1, 1)], (4, 4), fraction=1.5), "1.5"),
    (lambda: box_constraints([(1, 0, 0, 1, 1)], (4, 4), fraction=np.nan), "fraction"),
    (lambda: box_constraints([(1, 0, 0, 1, 1)], (4, 4), beta=-1), "-1"),
    (lambda: box_constraints([(1, 0, 0, 1.5, 1)], (4, 4)), "1.5"),                # between two cells
    (lambda: box_constraints([(1, 0, 0, np.nan, 1)], (4, 4)), "(?i)nan"),
    (lambda: box_constraints([(1, 0, 0, 1)], (4, 4)), "box 0"),
    (lambda: mask_constraints(np.array([0, 21])), "21"),
    (lambda: mask_constraints(np.array([0, -1])), "-1"),
])
def test_malformed_supervision_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("method", ["newton", "pga"])
@pytest.mark.parametrize("A, b", [(e[[1]], 1.2), (-e[[1]], 0.1), (-e[[1]], -1.5 + 2), (0 * e[[1]], 0.1)])
def test_a_bound_that_fractions_cannot_reach_is_infeasible_when_hard_and_bought_when_soft(A, b, method):
    f = np.random.default_rng(0).normal(size=(3, 10))
    s = ccnn.maximize(f, Constraints(A, [b], [inf]), method=method)
    assert s.status == "infeasible" and s.iterations <= 5 and s.ray @ [b] > (s.ray @ A).max()
    s = ccnn.maximize(f, Constraints(A, [b], [2.0]), method=method)
    assert s.status == "optimal" and s.lam == pytest.approx([2.0])


def test_indices_of_a_sparse_matrix_are_checked():
    """SciPy takes them on trust; the solver would write out of bounds."""
    A = sparse.csc_matrix((np.ones(2), [0, 99], [0, 1, 2, 2, 2]), shape=(2, 4))
    with pytest.raises(ValueError, match="A is not a sound sparse matrix"):
        Constraints.from_matrix(A, [0, 0], [1, 1])


def test_some_rows():
    c = Constraints(np.eye(3), [0.1, 0.2, 0.3], [1, 2, np.inf], [True, True, False], np.ones((3, 4)))
    part = c.rows([2, 0])
    assert part.b.tolist() == [0.3, 0.1] and part.beta.tolist() == [np.inf, 1] and part.regions.shape == (2, 4)
    assert np.array_equal(part.allowed, c.allowed)
