"""maximize_batch: the solutions of maximize, on threads, in processes that fork."""
import os
import pickle

import numpy as np
import pytest
from problems import KINDS, flags, run

import ccnn
from ccnn import Constraints, tag_constraints


def images(kind, count=7):
    """F, [c, ...] of one size."""
    problems = [KINDS[kind](np.random.default_rng(seed), 12) for seed in range(count)]
    return np.stack([f for f, _ in problems]), [c for _, c in problems]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_solutions_are_those_of_maximize_bit_for_bit(kind, dtype):
    F, C = images(kind)
    F = F.astype(dtype)
    diff, one = np.full_like(F, np.nan), np.full_like(F, np.nan)
    for options in (dict(), dict(hardness=30.0, tol=1e-4), dict(method="pga", tol=1e-3)):
        alone = [ccnn.maximize(f, c, **options, diff=d) for f, c, d in zip(F, C, one)]
        for threads in (0, 1, 2, 5):
            together = ccnn.maximize_batch(F, C, **options, threads=threads, diff=diff)
            assert diff.tobytes() == one.tobytes() and len(together) == len(F)
            for s, t in zip(alone, together):
                assert s.p.tobytes() == t.p.tobytes() and s.lam.tobytes() == t.lam.tobytes()
                for name in ("gap", "value", "iterations", "status", "loss"):
                    assert getattr(s, name) == getattr(t, name)
        assert pickle.loads(pickle.dumps(together))[0].p.tobytes() == alone[0].p.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_an_image_may_have_a_weight_in_the_gradient(kind, dtype):
    F, C = images(kind)
    F = F.astype(dtype)
    plain, weighted = np.empty_like(F), np.empty_like(F)
    losses = [s.loss for s in ccnn.maximize_batch(F, C, diff=plain)]
    assert [s.loss for s in ccnn.maximize_batch(F, C, diff=weighted, weight=0.3)] == losses
    np.testing.assert_allclose(weighted, 0.3 * plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max())
    assert plain.any()


def test_without_a_gradient_there_is_no_loss():
    F, C = images("tags")
    assert all(s.loss is None and s.status == "optimal" for s in ccnn.maximize_batch(F, C))


def test_kinds_may_mix_and_a_list_of_scores_is_taken():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(3, 5, 90))
    C = [tag_constraints(flags(5, 0, 2)),
         Constraints(np.eye(5)[[1]], [0.4], [np.inf], None, rng.random((1, 90))),
         Constraints.from_matrix(rng.normal(size=(1, 450)), [0.1], [1.0])]
    for s, f, c in zip(ccnn.maximize_batch(list(F), iter(C)), F, C):
        assert s.p.tobytes() == ccnn.maximize(f, c).p.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bad", [[3], [2, 5], [6], [0, 1, 2, 3, 4, 5, 6]])
def test_an_error_names_the_first_bad_image(bad, threads):
    F, C = images("tags")
    F[bad, 1, 2] = np.nan
    diff = np.ones_like(F)
    with pytest.raises(ValueError, match=f"^image {bad[0]}: scores hold 1 NaN .* label 1, pixel 2$"):
        ccnn.maximize_batch(F, C, threads=threads, diff=diff)
    assert not diff.any()


def test_the_first_bad_image_is_named_whatever_its_rows():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(4, 3, 200))
    C = [Constraints(np.eye(3)[[1]], [0.4], [np.inf], None, rng.random((1, 200)))] * 3 + [tag_constraints(np.ones(3))]
    F[1:, 0, 0] = np.inf
    with pytest.raises(ValueError, match="^image 1: "):
        ccnn.maximize_batch(F, C)


@pytest.mark.parametrize("change, words", [
    (dict(constraints=3), "4 images.*3"), (dict(threads=-1), "threads"), (dict(diff=np.zeros((4, 3, 7))), "diff"),
    (dict(F=np.zeros((3, 8))), "images x labels x pixels"), (dict(F=np.zeros((4, 5, 8))), "image 0: .*5.*3|3.*5"),
    (dict(hardness=-1.0), "hardness"), (dict(method="adam"), "method"), (dict(tol=0.0), "tol"),
    (dict(diff=np.zeros((4, 3, 8), np.float32)), "diff must be like the scores, .*float64"),
    (dict(diff=np.zeros((8, 3, 4)).T), "diff must be contiguous"), (dict(diff=[0.0]), "got list"),
])
def test_wrong_arguments_are_named(change, words):
    arguments = dict(F=np.zeros((4, 3, 8)), constraints=4) | change
    arguments["constraints"] = [tag_constraints(np.ones(3))] * arguments["constraints"]
    with pytest.raises(ValueError, match=words):
        ccnn.maximize_batch(**arguments)


def test_a_gradient_that_overlaps_the_scores_is_refused():
    F, C = images("tags")
    with pytest.raises(ValueError, match="overlaps"):
        ccnn.maximize_batch(F, C, diff=F)


def test_no_images_give_no_solutions():
    with pytest.raises(ValueError, match=r"\(0, 3, 8\)"):
        ccnn.maximize_batch(np.zeros((0, 3, 8)), [])


def in_child(work):
    """The child's exit status; 0 if work() was true."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FORKS = """
import os, sys
sys.path.insert(0, {tests!r})
import ccnn
import test_batch
F, C = test_batch.images("tags")
solve = lambda: [s.p.tobytes() for s in ccnn.maximize_batch(F, C, threads=2)]
assert test_batch.in_child(lambda: len(solve()) == 7) == 0          # before any threads ran here
here = solve()
assert test_batch.in_child(lambda: solve() == here) == 0            # after they did
assert test_batch.in_child(lambda: test_batch.in_child(lambda: solve() == here) == 0) == 0
assert solve() == here
"""


def test_processes_that_fork_before_and_after():
    said = run(FORKS.format(tests=os.path.dirname(os.path.abspath(__file__))))
    assert said.returncode == 0, said.stderr


def test_a_gradient_that_overlaps_another_image_is_refused():
    shared = np.zeros((4, 2, 8))
    with pytest.raises(ValueError, match="diff overlaps the scores"):
        ccnn.maximize_batch(shared[:-1], [ccnn.tag_constraints([1, 1])] * 3, diff=shared[1:])


def test_an_error_has_the_number_of_its_image():
    F = np.zeros((3, 2, 8))
    F[2, 0, 1] = np.nan
    with pytest.raises(ValueError, match="image 2: scores hold 1 NaN") as caught:
        ccnn.maximize_batch(F, [ccnn.tag_constraints([1, 1])] * 3)
    assert caught.value.image == 2
