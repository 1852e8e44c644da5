"""ccnn.load_model and ccnn.Segmenter: arrays in, arrays out."""
import pickle
import resource
import subprocess
import sys

import numpy as np
import pytest
from drawn_photographs import CLASSES, photograph

import ccnn
from ccnn._util.errors import UserError
from ccnn.nets.backbones import VGG16

KINDS = ((1,), (2,), (1, 2), ())

needs_vgg16 = pytest.mark.skipif(not VGG16.weights.is_file(), reason="needs VGG-16: ccnn init-weights")


def drawn(number, seed):
    """(photographs, masks, tags)"""
    pairs = [photograph(np.random.default_rng([seed, k]), KINDS[k % 4]) for k in range(number)]
    tags = [[CLASSES[label] for label in KINDS[k % 4]] for k in range(number)]
    return [np.asarray(image) for image, _ in pairs], [mask for _, mask in pairs], tags


@pytest.fixture(scope="module")
def fitted():
    photographs, _, tags = drawn(12, 1)
    return ccnn.Segmenter(steps=60).fit(photographs, tags)


@needs_vgg16
def test_learns_predicts_and_scores(fitted, tmp_path):
    photographs, masks, tags = drawn(8, 2)
    assert fitted.classes_ == ("background", "cat", "dog")
    found = fitted.predict(photographs)
    assert all(a.shape == b.shape and a.dtype == np.uint8 for a, b in zip(found, masks))
    score = fitted.score(photographs, masks)
    assert score == pytest.approx(np.mean([np.sum([(a == l) & (b == l) for a, b in zip(found, masks)])
                             / np.sum([(a == l) | (b == l) for a, b in zip(found, masks)]) for l in range(3)]))
    assert score > 0.5 and fitted.score(photographs, tags) > 0.7
    assert fitted.score(photographs, [["cat", "dog"]] * 8) < fitted.score(photographs, tags)

    fitted.save(tmp_path / "pets.ccnn")
    again = ccnn.load_model(tmp_path / "pets.ccnn")
    assert again.classes == fitted.classes_ and "cat, dog" in repr(again)
    assert np.array_equal(again.segment(photographs[2]), found[2])
    only = again.segment(photographs[2], tags=["cat"])
    assert set(np.unique(found[2])) == {0, 1, 2} and set(np.unique(only)) == {0, 1}
    assert again.segment(photographs[2], crf=True).shape == found[2].shape
    with pytest.raises(UserError, match="'cta' is not a class of the model; did you mean 'cat'"):
        again.segment(photographs[2], tags=["cta"])


@needs_vgg16
def test_the_same_arrays_give_the_same_model_and_it_pickles(fitted):
    photographs, _, tags = drawn(12, 1)
    others, _, _ = drawn(2, 3)
    masks = fitted.predict(others)
    copy = pickle.loads(pickle.dumps(fitted))
    second = ccnn.Segmenter(steps=60).fit(photographs, tags)
    assert all(np.array_equal(a, b) and np.array_equal(a, c)
               for a, b, c in zip(masks, copy.predict(others), second.predict(others)))


@needs_vgg16
def test_scikit_learn_clones_it_and_validates_it():
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    photographs, _, tags = drawn(12, 1)
    first = ccnn.Segmenter(steps=20, seed=3)
    copy = base.clone(first)
    assert copy is not first and copy.get_params() == first.get_params() == {
        "classes": None, "steps": 20, "seed": 3, "n_jobs": 1, "crf": False}
    assert copy.set_params(steps=30) is copy and first.steps == 20
    some = np.empty(12, object)
    some[:] = tags
    scores = selection.cross_val_score(copy, photographs, some, cv=2)
    assert scores.shape == (2,) and (scores > 0.4).all()


@pytest.mark.parametrize("photographs, tags, said", [
    ([np.zeros((9, 9), np.uint8)], [["a"]], r"photographs\[0\] must be H x W x 3 uint8, got uint8 of shape \(9, 9\)"),
    ([np.zeros((9, 9, 3))], [["a"]], r"got float64"),
    ([np.zeros((9, 9, 3), np.uint8)], [["a"], []], "got 1 photograph and tags of 2"),
    ([np.zeros((9, 9, 3), np.uint8)], ["cat"], r"tags\[0\] must be a list of class names, got 'cat'"),
    ([np.zeros((9, 9, 3), np.uint8)], [[]], "classes must be"),
])
def test_wrong_arrays_are_named(photographs, tags, said):
    with pytest.raises(ValueError, match=said):
        ccnn.Segmenter().fit(photographs, tags)


def test_a_name_that_a_table_cannot_hold_is_refused():
    photographs, _, _ = drawn(2, 1)
    with pytest.raises(ValueError, match=r"^tags: the class 'a;b' holds one of ; , \|, which stand between"):
        ccnn.Segmenter().fit(photographs, [["a;b"], ["a", "b"]])


def test_what_is_not_there_is_said():
    with pytest.raises(ValueError, match=r"call fit\(photographs, tags\) first"):
        ccnn.Segmenter().predict([np.zeros((9, 9, 3), np.uint8)])
    with pytest.raises(ValueError, match="has no parameter 'step'; it has classes, steps"):
        ccnn.Segmenter().set_params(step=3)
    with pytest.raises(FileNotFoundError):
        ccnn.load_model("nothing.ccnn")
    with pytest.raises(AttributeError, match="no attribute 'segmenter'"):
        ccnn.segmenter             # noqa: B018
    assert "Segmenter" in ccnn.__all__


HEAVY = ("PIL", "onnx", "onnxruntime", "tqdm", "google.protobuf", "jinja2", "starlette", "matplotlib", "sklearn",
         "caffe", "torch")


def test_import_ccnn_is_quick_and_loads_nothing_heavy():
    """At most 0.3 s of the processor more than NumPy and SciPy alone; the best of three."""
    said = subprocess.run([sys.executable, "-c", f"import sys, ccnn; print([m for m in {HEAVY} if m in sys.modules])"],
                          capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"

    def seconds(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pairs = [(seconds("import numpy, scipy.special"), seconds("import numpy, scipy.special, ccnn")) for _ in range(3)]
    more = min(pair[1] for pair in pairs) - min(pair[0] for pair in pairs)
    print(f"import ccnn takes {more:.3f} s more than NumPy and SciPy alone")
    assert more < 0.3
