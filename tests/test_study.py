"""study/study.py on drawn images: what a run scores, what is done once only, and the tables."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import caffe
import crf_sizes
import experiments
import extra_knowledge
import fill_pages
import hyperparameters
import numpy as np
import own_photographs
import points
import pytest
import small_objects
import study_runs as runs
import study_tables
import superpixels
import teacher_masks
from PIL import Image
from test_training import workplace
from tiny_voc import make_voc
from waiting import LIMIT, wait_for

import ccnn
import study
from ccnn import paper
from ccnn._util.errors import UserError
from ccnn.cli import cache_features, init_weights, score
from ccnn.cli import segment as infer
from ccnn.crf import dense as crf
from ccnn.images import reading as images
from ccnn.nets import caffe_files
from ccnn.nets import prototxt as nets
from ccnn.nets.prototxt import SYSTEMS

SIZE = 40               # what the trunk sees; the images are larger
ROOT, FEATURES, POOL4, POOL3 = "data/VOCdevkit/VOC2012", "data/features", "data/pool4", "data/pool3"
TRUNK = "data/vgg16_conv.caffemodel"

long = pytest.mark.faults       # several trainings each: make test-faults


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, root):
    """40 images in train_aug and 10 in val, with features, pool4 and pool3 of a random trunk. All classes are in val,
    and in every fourth image of train_aug: image k has class k, of 20, and if k is odd the next class too."""
    folder = tmp_path_factory.mktemp("drawn")
    voc = make_voc(folder / ROOT, images=50, size=(57, 46))
    names = [path.stem for path in sorted((voc / "JPEGImages").glob("*.jpg"))]
    val, every_fourth = names[1:20:2], names[21:40:2]
    train = [name for name in names if name not in val + every_fourth]
    for k, name in enumerate(every_fourth):
        train.insert(4 * k + 3, name)
    for split, some in (("train_aug", train), ("train", train[:20]), ("val", val)):
        (voc / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(some) + "\n")
    caffe.set_random_seed(1)
    caffe.Net(str(root / "prototxt/trunk.prototxt"), caffe.TEST).save(str(folder / TRUNK))
    for blob, out in (("features", FEATURES), ("pool4", POOL4), ("pool3", POOL3)):
        cache_features.main([str(voc), "--split", "train_aug", "--split", "val", "--out", str(folder / out), "--blob",
                             blob, "--size", str(SIZE), "--weights", str(folder / TRUNK), "--jobs", "1"])
    return folder


@pytest.fixture
def here(drawn, tmp_path, monkeypatch):
    """A workplace, the current folder, with these images. What other rows start with is trained in a moment."""
    for name in ("classifier", "classifier_long", "tags", "full"):
        experiment = experiments.EXPERIMENTS[name]
        monkeypatch.setitem(experiments.EXPERIMENTS, name, experiment._replace(changes=("max_iter=4", "snapshot=4")))
    monkeypatch.setattr(runs, "BACKBONE", runs.BACKBONE._replace(file=drawn / TRUNK))
    workplace(tmp_path)
    (tmp_path / "data").symlink_to(drawn / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    study.main([*map(str, arguments), "--jobs", "1"])


def result(place):
    """What a run scored: {"iou": {kind: one number per class}, ...}"""
    return json.loads(Path(place, "score.json").read_text())


def split(name, root=ROOT):
    return Path(root, f"ImageSets/Segmentation/{name}.txt").read_text().split()


# --- runs

def test_a_run_is_trained_and_scored_once(here, monkeypatch, capfd):
    short = "--seeds", 1, "--set", "max_iter=2"
    wanted = "tags", "mil_base", "semi_25_percent"
    run(*wanted, *short, "--crf", "authors")
    kinds = {name: list(result(f"output/study/{name}/1")["iou"]) for name in wanted}
    assert kinds == {"tags": ["", "authors"], "mil_base": ["", "ilp", "authors"], "semi_25_percent": [""]}
    for name in kinds:
        found = result(f"output/study/{name}/1")
        assert (found["row"], found["seed"]) == (name, 1) and found["seconds"] >= 0
        assert all(len(iou) == 21 and 0 <= min(iou) < max(iou) <= 100 for iou in found["iou"].values())
        assert Path(f"output/study/{name}/1/head_iter_2.caffemodel").is_file()
    masks = Path("output/study/semi_25_percent/1/masks.txt").read_text().split()
    assert len(masks) == 10 and set(masks) < set(split("train_aug"))

    # 1. once more: nothing to do
    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", None)
        run(*wanted, *short, "--crf", "authors")

    # 2. another CRF: that alone, of the model that is there
    place, model = Path("output/study/tags/1"), Path("output/study/tags/1/head_iter_2.caffemodel")
    changed = result(place)
    for kind in ("", "authors"):
        changed["iou"][kind] = [1.0] * 21
    (place / "score.json").write_text(json.dumps(changed))
    stamp = model.stat().st_mtime_ns
    run("tags", "semi_25_percent", *short, "--crf", "authors", "--crf", "heads")
    whole, found = result(place), result(place)
    heads = [found[key].pop("heads") for key in ("iou", "draws", "half", "crf")]
    assert found == changed and max(heads[0]) > 1 and model.stat().st_mtime_ns == stamp
    assert list(result("output/study/semi_25_percent/1")["iou"]) == [""]       # a row that is shown without CRF

    # 3. another seed: other images and weights first
    run("tags", "--seeds", 2, *short[2:], "--crf", "authors")
    assert list(result("output/study/tags/2")["iou"]) == [""]           # CRFs are scored on the first run
    one, two = (caffe_files.read_caffemodel(f"output/study/tags/{seed}/head_iter_2.caffemodel") for seed in (1, 2))
    assert one.keys() == two.keys() == {"fc8_cell", "fc8_image"}
    assert np.corrcoef(one["fc8_cell"][0].ravel(), two["fc8_cell"][0].ravel())[0, 1] < 0.9
    assert '"seed": 2' in Path("output/study/tags/2/net.prototxt").read_text()
    assert result(place) == whole

    # 4. the report is made of all that
    capfd.readouterr()
    run("--report", "--out", "docs")
    results = runs.collect(Path("output/study"))
    assert [(r["row"], r["seed"]) for r in results] == [
        ("classifier_long", 1), ("mil_base", 1), ("tags", 1), ("tags", 2), ("semi_25_percent", 1)]
    assert json.loads(Path("docs/study.json").read_text()) == study_tables.summary(results)
    assert capfd.readouterr().out == "\n".join(tables(results).values()) + "\n"
    assert Path("docs/study.png").read_bytes().startswith(b"\x89PNG")


@long
def test_a_run_belongs_to_its_net_its_solver_and_its_crf(here, monkeypatch):
    short = "tags", "--seeds", 1, "--set", "max_iter=2"
    run(*short, "--crf", "authors")
    place = Path("output/study/tags/1")
    first, stamp = result(place), (place / "head_iter_2.caffemodel").stat().st_mtime_ns
    assert first["crf"] == {"authors": {**crf.PRESETS["authors"]._asdict(), "side": runs.CRF_SIDE}}

    # 1. a preset of other values under the same name, or another size, is scored again, of the same model
    marked = {**first, "iou": dict.fromkeys(first["iou"], [1.0] * 21)}
    (place / "score.json").write_text(json.dumps(marked))
    run(*short, "--crf", "authors")
    assert result(place) == marked
    monkeypatch.setitem(crf.PRESETS, "authors", crf.PRESETS["authors"]._replace(bilateral_weight=1))
    run(*short, "--crf", "authors")
    second = result(place)
    assert second["crf"]["authors"]["bilateral_weight"] == 1
    assert second["iou"]["authors"] != marked["iou"]["authors"] and second["iou"][""] == marked["iou"][""]
    monkeypatch.setattr(runs, "CRF_SIDE", 40)
    (place / "score.json").write_text(json.dumps({**second, "iou": marked["iou"]}))
    run(*short, "--crf", "authors")
    third = result(place)
    assert third["crf"]["authors"]["side"] == 40 and third["iou"]["authors"] != marked["iou"]["authors"]
    assert (place / "head_iter_2.caffemodel").stat().st_mtime_ns == stamp

    # 2. another net or solver, other changes of it, or another start, are refused
    for file in ("net.prototxt", "solver.prototxt", "experiment.json"):
        text = (place / file).read_text()
        (place / file).write_text(text + "# of last year\n")
        with pytest.raises(UserError, match=f"study/tags/1/{file}: is not what the repository has now; remove"):
            run(*short)
        (place / file).write_text(text)
    tags = experiments.EXPERIMENTS["tags"]
    with monkeypatch.context() as patch, pytest.raises(UserError, match="study/tags/1: was made with other settings"):
        patch.setitem(experiments.EXPERIMENTS, "tags", tags._replace(changes=("max_iter=4", "base_lr=1")))
        run("--report")
    for other in (tags._replace(changes=("max_iter=4", "base_lr=1")), tags._replace(start="classifier")):
        with monkeypatch.context() as patch, pytest.raises(UserError, match="experiment.json: is not what the repos"):
            patch.setitem(experiments.EXPERIMENTS, "tags", other)
            run(*short)
    run(*short)


def test_rows_are_made_of_what_their_titles_say(here):
    settings = runs.Settings(Path("output/study"), Path("output/study"), Path(ROOT), Path(FEATURES), Path(POOL4),
                             Path(POOL3), "train_aug", "train", "val", [], {})

    def net(name):
        return runs.sources(runs.Run(name, 1, settings))["net.prototxt"]
    assert '"small_upper": 0.01' in net("size") and '"small_upper": 0.1,' in net("size_10")
    assert all('"small_upper": 0.01' in net(name) for name in experiments.EXPERIMENTS if name.startswith("bounds"))
    cells_only = {name for name in experiments.COMPARED if "lr_mult: 0" in net(name)}
    assert {name for name, e in experiments.EXPERIMENTS.items() if "cells only" in e.title} <= cells_only
    assert not cells_only & {"tags", "size", "boxes", "full", "em_adapt_image"}
    for name, key in (("semi_25_percent", "supervised"), ("alone_25_percent", "split")):
        assert re.findall(r'"(\w+)": "[^"]*masks.txt"', net(name)) == [key]
    assert "masks.txt" not in net("tags")
    assert '"fg_lower": 0.2' in net("bounds_0.2_0.2_0.7")
    for name, system in (("tags_no_upper", "tags"), ("crops_no_upper", "crops")):
        assert '"bg_upper": 1' in net(name) and '"bg_upper": 0.7' in net(system)
    assert '"hold": 2' in net("tags_kept") and "hold" not in net("tags")

    def having(text):
        return {name for name in experiments.EXPERIMENTS if text in net(name)}
    assert having("scribbles") == having('"supervised": 0') == {"points"}
    assert having("shares.csv") == {"shares", "conv5_shares"} and having('"crop":') == {
        "crops", "crops_cells", "em_adapt_crops", "crops_no_upper"}
    assert having(f'"features": "{POOL4}"') == having('name: "conv5_3"') - having('name: "conv4_3"') == {
        name for name, e in experiments.EXPERIMENTS.items() if "conv5 learns" in e.title}
    assert having(f'"features": "{POOL3}"') == having('name: "conv4_3"') == {"conv4_full"} == {
        name for name, e in experiments.EXPERIMENTS.items() if "conv4 and conv5 learn" in e.title}
    assert having('"hold": 2') == having('"number"') == {"tags_held", "tags_kept"}
    assert having('"hardness": 1000') == {
        name for name, e in experiments.EXPERIMENTS.items() if "hardness 1000" in e.title and not e.taught}
    assert having(f'"features": "{FEATURES}_321"') == {
        name for name, e in experiments.EXPERIMENTS.items() if "321 pixels" in e.title}
    assert having("stride: 4") == {"tags_32s"} and having("std: 1 ") == {"tags_std_1"}
    assert having("std: 0.1 ") == {"tags_std_0.1"} and having("SigmoidCrossEntropyLoss") == {
        "classifier", "classifier_long", "classifier_train", "classifier_train_321"}
    assert having('"split": "train"') == {name for name, e in experiments.EXPERIMENTS.items() if "1,464" in e.title}


@long
def test_an_experiment_trains_its_start_first(here):
    """At a rate of 0 it keeps the weights of its start; the start is trained as the repository has it, and once, and
    scored without CRFs, for which nobody asked."""
    run("mil_fcn", "--seeds", 1, "--set", "base_lr=0", "--set", "max_iter=1", "--set", "snapshot=1", "--crf", "authors")
    start, place = Path("output/study/classifier/1"), Path("output/study/mil_fcn/1")
    begun, found = (caffe_files.read_caffemodel(path)["fc8_cell"]
                    for path in (start / "head_iter_4.caffemodel", place / "head_iter_1.caffemodel"))
    assert np.array_equal(found[0], begun[0]) and np.array_equal(found[1], begun[1])
    assert begun[0][1:].any() and not begun[0][0].any()
    assert result(start)["set"] == [] and result(place)["set"] == ["base_lr=0", "max_iter=1", "snapshot=1"]
    assert (start / "head_iter_4.caffemodel").stat().st_mtime_ns < (start / "score.json").stat().st_mtime_ns
    assert [list(result(folder)["iou"]) for folder in (start, place)] == [[""], ["", "authors"]]


@long
@pytest.mark.parametrize("name, start, blocks", [("conv5_tags", "tags", [5]), ("conv4_full", "full", [4, 5])])
def test_the_last_blocks_start_as_vggs_with_a_trained_head(here, drawn, name, start, blocks):
    """At a rate of 0 they keep the trunk's weights and the head's, and score from the cached pool what the head scores
    from the features, but for float16."""
    run(name, "--seeds", 1, "--set", "base_lr=0", "--set", "max_iter=1", "--set", "snapshot=1")
    trunk = caffe_files.read_caffemodel(drawn / TRUNK)
    head = caffe_files.read_caffemodel(f"output/study/{start}/1/head_iter_4.caffemodel")
    for file in ("start.caffemodel", "head_iter_1.caffemodel"):
        found = caffe_files.read_caffemodel(Path(f"output/study/{name}/1", file))
        assert found.keys() == {"fc8_cell", "fc8_image", *(f"conv{b}_{k}" for b in blocks for k in (1, 2, 3))}
        for layer, blobs in found.items():
            for mine, its in zip(blobs, {**trunk, **head}[layer]):
                assert np.array_equal(mine, its), layer
    learnt, frozen = (np.array(result(f"output/study/{row}/1")["iou"][""]) for row in (name, start))
    np.testing.assert_allclose(learnt, frozen, atol=1)
    assert frozen.max() > 1


@long
@pytest.mark.parametrize("name, other", [("tags_cue_train_321", "tags_train_321"),
                                         ("em_adapt_image_cue_train_321", "em_adapt_image_train_321")])
def test_rows_with_a_cue(here, drawn, monkeypatch, name, other):
    """Maps change what they learn, what they teach and, at inference, their masks; CRFs see the weighed scores."""
    rng, maps = np.random.default_rng(0), drawn / "data/cues/u2netp-224"
    maps.mkdir(parents=True, exist_ok=True)
    for id in (*split("train_aug"), *split("val")):
        np.save(maps / f"{id}.npy", np.kron(rng.random((8, 8)), np.ones((28, 28))).astype(np.float16))
    started = experiments.EXPERIMENTS["classifier"]
    monkeypatch.setitem(experiments.EXPERIMENTS, "classifier_train_321", started)
    for row in (name, other, f"taught_{name}"):
        monkeypatch.setitem(experiments.EXPERIMENTS, row, experiments.EXPERIMENTS[row]._replace(
            size=0, changes=("max_iter=8", "snapshot=8", "base_lr=1e-4")))
    run(name, other, f"taught_{name}", "--seeds", 1, "--cue", "--crf", "authors")
    for row in (name, f"taught_{name}"):
        iou = result(f"output/study/{row}/1")["iou"]
        assert list(iou) == ["", "authors", "cue", "cue_authors"]
        assert iou["cue"] != iou[""] and iou["cue_authors"] != iou["cue"]
    weights = [caffe_files.read_caffemodel(f"output/study/{row}/1/head_iter_8.caffemodel")["fc8_cell"][0]
               for row in (name, other)]
    assert np.abs(weights[0] - weights[1]).max() > 1e-5
    share = {True: [], False: []}           # of what stands out, and of the rest, that the taught masks call an object
    for id in split("train"):
        mask = images.read_mask(Path(f"output/study/{name}/1/taught/{id}.png"))
        S = Image.fromarray(np.load(maps / f"{id}.npy").astype(np.float32)).resize(mask.shape[::-1], Image.NEAREST)
        for stands_out, shares in share.items():
            shares.append((mask[(np.asarray(S) > 0.5) == stands_out] > 0).mean())
    assert np.mean(share[True]) > 2 * np.mean(share[False])
    assert experiments.EXPERIMENTS[f"taught_{name}"].cued and not experiments.EXPERIMENTS[f"taught_{other}"].cued


@long
def test_the_row_of_guessed_areas(here, monkeypatch):
    """Its shares are guessed from as many masks as it says."""
    monkeypatch.setitem(experiments.EXPERIMENTS, "shares", experiments.EXPERIMENTS["shares"]._replace(areas=5))
    told, guess = [], runs.guess_shares
    monkeypatch.setattr(runs, "guess_shares", lambda *arguments: told.append(arguments) or guess(*arguments))
    run("shares", "--seeds", 1, "--set", "max_iter=2")
    (_, features, names, known, out), = told
    assert (features, names, len(known), len(set(known))) == (Path(FEATURES), split("train_aug"), 5, 5)
    assert out == Path("output/study/shares/1/shares.csv").resolve() and len(out.read_text().split()) == 40


@long
def test_the_prior_has_the_r_of_its_row(here, monkeypatch):
    told, prior = [], runs.image_level_prior
    monkeypatch.setattr(runs, "image_level_prior", lambda f, r: told.append(r) or prior(f, r))
    other = experiments.EXPERIMENTS["mil_base"]._replace(loss={"r": 2})
    monkeypatch.setitem(experiments.EXPERIMENTS, "mil_base", other)
    run("mil_base", "--seeds", 1, "--set", "max_iter=2")
    assert told == [2] * 10
    assert '"r": 2' in Path("output/study/mil_base/1/net.prototxt").read_text()


@long
def test_the_row_of_points(here):
    """The loss sees a point of each class, and nothing more of the masks."""
    run("points", "--seeds", 1, "--set", "max_iter=2")
    folder = Path("output/study/points/1/points")
    assert sorted(path.stem for path in folder.iterdir()) == sorted(split("train_aug"))
    for name in split("train_aug"):
        marked, truth = (images.read_mask(place / f"{name}.png") for place in (folder, Path(ROOT, "SegmentationClass")))
        y, x = np.nonzero(marked != 255)
        assert sorted(marked[y, x]) == sorted(set(np.unique(truth)) - {0, 255}) == sorted(truth[y, x])
    net = caffe.Net("output/study/points/1/net.prototxt", caffe.TRAIN)
    for _ in range(5):
        net.forward()
        seen, tags = net.blobs["labels"].data.ravel(), net.blobs["tags"].data.ravel()
        assert sorted(seen[seen != 255]) == [label for label in range(1, 21) if tags[label]]

    stamps = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    points.mark_points(Path(ROOT), split("train_aug"), 1, folder)
    assert stamps == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    points.mark_points(Path(ROOT), split("train_aug"), 2, Path("other"))
    assert any(path.read_bytes() != Path("other", path.name).read_bytes() for path in folder.iterdir())


@long
def test_what_p_becomes_if_more_is_known(here, monkeypatch, capsys):
    monkeypatch.setitem(experiments.EXPERIMENTS, "shares", experiments.EXPERIMENTS["shares"]._replace(areas=5))
    monkeypatch.setattr(extra_knowledge, "EVERY", 4)
    run("classifier", "tags", "shares", "--seeds", 1)
    capsys.readouterr()
    extra_knowledge.main(["--out", "docs"])
    result = json.loads(Path("docs/extra_knowledge.json").read_text())
    assert capsys.readouterr().out.startswith(extra_knowledge.table(result))
    assert all(0 <= part <= 1 for part in result["right cues"].values())
    found = result["miou"]
    assert len(found) == 15 and len(set(found.values())) > 8
    assert found["tags, and a point of each class"] > 2 * found["tags"]         # on images of few cells


def test_the_rim_and_the_nets_own_area():
    edge = extra_knowledge.rim(16, 24)
    assert edge.dtype == bool and np.array_equal(~edge.reshape(16, 24)[2:-2, 3:-3], np.ones((12, 18), bool))
    assert edge.sum() == 16 * 24 - 12 * 18
    tags = ccnn.tag_constraints(np.isin(np.arange(21), (0, 3)))
    f = np.zeros((21, edge.size))
    row = extra_knowledge.with_rows(tags, [(0, edge)], extra_knowledge.RIM[1])
    assert ccnn.maximize(f, row).p[0, edge].mean() == pytest.approx(0.8, abs=1e-4)
    assert ccnn.maximize(f, tags).p[0, edge].mean() < 0.6
    f[0, :192], f[0, 192:] = np.log(20), -np.inf            # q is a half there, and nothing elsewhere
    assert extra_knowledge.own_area(f) == pytest.approx(0.25)


def test_cues_are_the_hottest_and_the_coldest_cells():
    heat = np.zeros((21, 40))
    heat[3, :4], heat[7, 2:8] = (9, 8, 7, 6), (8, 3, 9, 9, 2, 1)
    heat[5] = 99                # not tagged
    heat[3, 30:] = heat[7, 30:] = -1
    found = extra_knowledge.cells_of_cues(heat, np.array([3, 7]))
    assert np.flatnonzero(found == 3).tolist() == [0, 1] and np.flatnonzero(found == 7).tolist() == [4, 5]
    assert np.count_nonzero(found == 0) == 8 and set(np.flatnonzero(found == 0)) <= set(range(30, 40))
    assert np.count_nonzero(found == 255) == 28


def test_cues_as_rows(monkeypatch):
    monkeypatch.setattr(extra_knowledge, "CUE_PRICE", np.inf)
    cells = np.full(50, 255)
    cells[:10], cells[10:14] = 0, 3
    tags = ccnn.tag_constraints(np.isin(np.arange(21), (0, 3)))
    p = ccnn.maximize(np.zeros((21, 50)), extra_knowledge.with_rows(tags, extra_knowledge.by_label(cells))).p
    assert p[0, :10].mean() == pytest.approx(0.7, abs=1e-4) and p[3, 10:14].mean() == pytest.approx(0.7, abs=1e-4)
    assert p[0, 14:].mean() < 0.65
    p = ccnn.maximize(np.zeros((21, 50)), extra_knowledge.known(tags, cells)).p
    assert p[0, :10].min() == p[3, 10:14].min() == 1 and p[0, 14:].max() < 1


def test_superpixels_keep_to_the_edges_of_a_photograph():
    """A disc on noise: no superpixel lies on both; without colours they are squares."""
    y, x = np.mgrid[:28, :21]
    disc = np.hypot(y - 12, x - 9) < 7
    colours = np.where(disc[..., None], (200, 60, 60), (60, 90, 160))
    found = superpixels.superpixels(colours + np.random.default_rng(1).normal(0, 5, colours.shape))
    assert found.shape == (28, 21) and set(found.ravel()) == set(range(found.max() + 1)) and 20 < found.max() < 50
    assert not set(found[disc]) & set(found[~disc])
    plain = superpixels.superpixels(np.zeros((28, 20, 3)))
    assert (np.bincount(plain.ravel()) == 16).all() and (plain[:4, :4] == plain[0, 0]).all()
    assert superpixels.superpixels(np.zeros((1, 2, 3))).tolist() == [[0, 0]]


def test_cues_grow_to_their_superpixels():
    parts, cues = np.repeat(np.arange(5), 10), np.full(50, 255)
    cues[[0, 1, 12, 13, 20]], cues[[11, 29]] = 3, 0             # a cue of 0 among those of 3; one of each
    found = extra_knowledge.by_superpixel(cues, parts)
    assert [label for label, _ in found] == [3, 3, 0]
    assert [np.flatnonzero(region).tolist() for _, region in found] == [[*range(k, k + 10)] for k in (0, 10, 20)]


def test_averaged_scores_make_one_p_of_a_superpixel():
    """The same as rows that say that p is equal in the cells of a part."""
    f, parts = np.random.default_rng(2).normal(0, 2, (3, 12)), np.repeat(np.arange(4), 3)
    c = ccnn.tag_constraints([True, True, False], bg_upper=0.4)
    p = ccnn.maximize(extra_knowledge.averaged(f, parts), c).p
    assert np.ptp(p.reshape(3, 4, 3), axis=2).max() < 1e-9 < np.ptp(p)
    equal = np.zeros((4, 2, 3, 12))
    for part in range(4):
        for k in range(2):
            equal[part, k, 0, 3 * part + k], equal[part, k, 0, 3 * part + k + 1] = 1, -1
    equal = equal.reshape(8, -1)
    tied = ccnn.Constraints.from_matrix(np.vstack([equal, -equal]), np.zeros(16), np.full(16, np.inf), c.allowed)
    np.testing.assert_allclose(ccnn.maximize(f, c & tied).p, p, atol=1e-3)


def test_bounds_are_learnt_from_masks():
    """Label 3 covers 0.1, 0.2 .. 1 of ten masks, and label 5 none."""
    masks = [np.repeat([3, 0, 255], [k, 10 - k, 7]) for k in range(1, 11)]
    lower, upper = extra_knowledge.learn_bounds(masks)
    assert lower[3] == pytest.approx(0.19) and lower[0] == pytest.approx(0.18) and upper == pytest.approx(0.81)
    assert lower[5] == paper.TAG_BOUNDS["fg_lower"]
    c = extra_knowledge.with_bounds(ccnn.tag_constraints(np.isin(np.arange(21), (0, 3, 5)), bg_upper=upper), lower)
    assert c.b.tolist() == [lower[3], lower[5], 0.3, -upper]


@long
def test_a_net_is_taught_by_the_masks_of_another(here):
    """They have the size of the photographs, only labels that are tagged, and both of them; the net learns from them,
    and what is there is not made again."""
    run("taught_tags", "--seeds", 1, "--set", "max_iter=2", "--set", "snapshot=2")
    folder = Path("output/study/tags/1/taught")
    assert sorted(path.stem for path in folder.iterdir()) == sorted(split("train_aug"))
    seen = set()
    for name in split("train_aug"):
        mask, truth = (images.read_mask(place / f"{name}.png") for place in (folder, Path(ROOT, "SegmentationClass")))
        assert mask.shape == truth.shape and set(np.unique(mask)) <= {0, *np.unique(truth)} - {255}
        seen |= set(np.unique(mask))
    assert len(seen) > 5
    assert f'"masks": "{folder.resolve()}"' in Path("output/study/taught_tags/1/net.prototxt").read_text()
    made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    run("taught_tags", "--seeds", 2, "--set", "max_iter=2", "--set", "snapshot=2")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made


def test_a_taught_mask_is_p_with_the_edges_of_the_photograph():
    """p tells two halves apart, two pixels beside the edge that the photograph shows."""
    rgb = np.full((80, 112, 3), 30, np.uint8)
    rgb[:, 58:] = 220
    p = np.zeros((21, 11, 15), np.float32)
    p[0, :, :8], p[3, :, :8], p[0, :, 8:], p[3, :, 8:] = 0.8, 0.2, 0.2, 0.8
    found = np.asarray(teacher_masks.mask(np.log(p[[0, 3]]), rgb, np.array([0, 3]), 112, crf.PRESETS["heads"]))
    assert np.array_equal(found, np.where(np.arange(112) < 58, 0, 3) * np.ones((80, 1), int))


@pytest.mark.parametrize("cue", [False, True])
def test_em_adapt_teaches_what_it_trains_with(cue):
    """The best labels of its scores are those of the loss layer's E-step: the gradient at them alone is negative."""
    rng = np.random.default_rng(3)
    f, S = rng.normal(0, 1, (21, 9, 11)).astype(np.float32), rng.random((1, 9, 11)).astype(np.float32)
    f[0] += 3                   # without a bias, the background would win nearly everywhere
    tags = np.zeros(21, np.float32)
    tags[[0, 4, 9]] = 1
    names, latent = teacher_masks.adapted(SYSTEMS["em_adapt"].settings)
    labels, scores = latent([tags], f, S if cue else None)
    assert (names, labels.tolist(), scores.shape) == (("tags",), [0, 4, 9], (3, 9, 11))
    best = labels[scores.argmax(axis=0)]
    assert np.bincount(best.ravel(), minlength=10)[[4, 9]].min() >= 0.2 * best.size
    assert ((best > 0) == (S[0] > 0.5)).mean() > 0.7 or not cue

    net = net_of_loss("em_adapt", f.shape, **({"cue": True} if cue else {}))
    for name, blob in {"fc8": f, "tags": tags, **({"cue": S} if cue else {})}.items():
        net.blobs[name].data[...] = blob
    net.forward()
    net.backward()
    assert np.array_equal(net.blobs["fc8"].diff[0].argmin(axis=0), best)


def net_of_loss(system, shape, **settings):
    """The loss layer of a system alone."""
    given = {"fc8": shape, "tags": shape[:1], **({"cue": (1, *shape[1:])} if settings else {})}
    text = "force_backward: true\n" + "".join(
        nets.input_layer(name, 1, *sides).replace('"data"', f'"{name}"') for name, sides in given.items())
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(text + nets.loss_layer(system, **settings))
        file.flush()
        return caffe.Net(file.name, caffe.TRAIN)


def test_small_and_large_things(tmp_path, monkeypatch, capsys):
    """Of things that are known by hand: three quarters of a large cat are found; of two small birds one, all of it,
    with as much of the background, and none of the other."""
    monkeypatch.setattr(small_objects, "ROWS", ("tags",))
    C = np.zeros((2, 21, 21), np.int32)
    C[0, 8, 8], C[0, 8, 0], C[0, 0, 0], C[0, 3, 3], C[0, 0, 3] = 300, 100, 460, 40, 40
    C[1, 3, 0], C[1, 0, 0] = 60, 940
    with pytest.raises(UserError, match=r"confusions.npz: no such file; run study/study.py tags"):
        small_objects.main(["--folder", str(tmp_path)])
    (tmp_path / "tags/1").mkdir(parents=True)
    for damaged in (b"", b"PK\3\4 cut"):
        (tmp_path / "tags/1/confusions.npz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"confusions.npz: is damaged; remove .*score.json, and run"):
            small_objects.main(["--folder", str(tmp_path)])
    np.savez_compressed(tmp_path / "tags/1/confusions.npz", C)
    small_objects.main(["--folder", str(tmp_path), "--out", str(tmp_path)])
    found, = json.loads((tmp_path / "small_objects.json").read_text())
    for size, things, *means in (("small", 2, 50.0, 50.0, 25.0), ("large", 1, 0.0, 75.0, 75.0)):
        assert found[size]["things"] == things
        assert [found[size][what][0] for what in ("missed", "found", "iou")] == means
    told = cells(capsys.readouterr().out)["CCNN, tags"]
    assert [cell.split(" ± ")[0] for cell in told] == ["50.0", "0.0", "50.0", "75.0", "25.0", "75.0"]


def test_the_deviation_of_things_over_images():
    """Half of 400 things, one an image, are found: sqrt(0.25 / 400) = 2.5 %."""
    values = np.repeat([0.0, 1.0], 200)[:, None]
    mean, error = small_objects.mean_of_things(values, np.ones((400, 1), bool))
    assert mean == 50 and 2.1 < error < 2.9


@long
def test_crfs_at_other_sizes_of_the_photograph(here, monkeypatch, capsys):
    """At the study's size they score what the study says."""
    monkeypatch.setattr(crf_sizes, "EVERY", 1)
    monkeypatch.setattr(runs, "CRF_SIDE", 25)
    monkeypatch.setattr(crf_sizes, "SIDES", (500, 57, 25))
    monkeypatch.setattr(crf_sizes, "ROW", "full")           # it learns the drawn shapes soon
    run("full", "--seeds", 1, "--set", "max_iter=100", "--set", "base_lr=1e-2", "--crf", "authors", "--crf", "heads")
    capsys.readouterr()
    crf_sizes.main(["--out", "docs"])
    found = json.loads(Path("docs/crf_sizes.json").read_text())
    assert capsys.readouterr().out == crf_sizes.table(found) + "\n"
    miou = {(one["crf"], one["side"]): one["miou"] for one in found}
    assert miou.keys() == {(kind, side) for kind in ("authors", "untuned", "heads") for side in (500, 57, 25)}
    for kind in ("authors", "heads"):
        assert miou[kind, 25] == pytest.approx(runs.miou(result("output/study/full/1")["iou"][kind]), abs=0.02)
        assert miou[kind, 500] == miou[kind, 57] != miou[kind, 25]          # the photographs have 57 pixels
    assert all(one["images"] == 10 and one["seconds"] > 0 for one in found)


@long
def test_draws_are_scores_of_sets_of_images(here):
    """The same by putting the images of a set together one by one; and on every second image."""
    run("full", "--seeds", 1, "--set", "max_iter=20", "--set", "base_lr=1e-2")
    found = result("output/study/full/1")
    C = np.load("output/study/full/1/confusions.npz")["arr_0"]
    assert C.shape == (10, 21, 21)

    def score_of(numbers):
        total = sum(C[number].astype(int) for number in numbers)
        iou = [100 * total[l, l] / (total[l].sum() + total[:, l].sum() - total[l, l]) for l in range(21)
               if total[l].any() or total[:, l].any()]
        return sum(iou) / len(iou)
    counts = np.random.default_rng(0).multinomial(10, [0.1] * 10, runs.DRAWS)
    expected = [score_of([number for number, times in enumerate(row) for _ in range(times)]) for row in counts]
    np.testing.assert_allclose(found["draws"][""], expected, atol=0.006)
    assert np.std(expected) > 0.1 and len(expected) == 200
    assert found["half"][""] == pytest.approx(score_of(range(0, 10, 2)), abs=0.006)
    assert runs.miou(found["iou"][""]) == pytest.approx(score_of(range(10)), abs=0.006)


@long
def test_settings_are_chosen_without_a_look_at_val(here, drawn, monkeypatch):
    """Nothing of val's images is there, and all the same the run ends."""
    val, names = split("val"), split("train_aug")
    Path("data").unlink()
    shutil.copytree(drawn / "data", "data", ignore=lambda _, files: [f for f in files if Path(f).stem in val])
    scored = []
    read = images.read_mask
    monkeypatch.setattr(runs, "read_mask", lambda path: scored.append(path.stem) or read(path))
    run("tags", "tags_train", "--held-out", "--seeds", 1, "--set", "max_iter=2")

    held = Path("output/study/held_out")
    lists = {part: (held / f"{part}.txt").read_text().split() for part in ("train", "own", "val")}
    assert {part: len(some) for part, some in lists.items()} == {"train": 30, "own": 15, "val": 10}
    assert set(lists["train"]) | set(lists["val"]) == set(names)
    assert set(lists["own"]) == set(lists["train"]) & set(split("train"))
    assert scored == lists["val"] * 2
    for row, part in (("tags", "train"), ("tags_train", "own")):
        assert f'"split": "{held}/{part}.txt"' in (held / row / "1/net.prototxt").read_text()
    assert not list(Path("output/study").glob("*/*/score.json"))
    assert len(runs.collect(held)) == 2


@long
def test_the_score_is_that_of_infer_and_score(here, root, monkeypatch):
    """A few pixels may differ: the study's features are rounded to float16."""
    monkeypatch.setitem(experiments.EXPERIMENTS, "full", experiments.EXPERIMENTS["full"]._replace(ilp=True))
    run("full", "--seeds", 1, "--set", "max_iter=100", "--set", "base_lr=1e-2", "--crf", "authors")
    ours = result("output/study/full/1")["iou"]
    assert sum(iou > 25 for iou in ours[""]) >= 5           # shapes, whose edges the grid moves
    assert len({tuple(iou) for iou in ours.values()}) == 3

    net = root / "prototxt/head_deploy.prototxt"
    init_weights.main(["--net", str(net), "--out", "ccnn.caffemodel", TRUNK,
                       "output/study/full/1/head_iter_100.caffemodel"])
    for kind, options in (("", []), ("ilp", ["--ilp"]), ("authors", ["--crf", "authors"])):
        infer.main([f"{ROOT}/JPEGImages", "--only", f"{ROOT}/ImageSets/Segmentation/val.txt", "--out", f"masks{kind}",
                    "--net", str(net), "--weights", "ccnn.caffemodel", "--size", str(SIZE), "--jobs", "1", *options])
        score.main([f"masks{kind}", "--voc", ROOT, "--out", f"score{kind}.json"])
        row, = json.loads(Path(f"score{kind}.json").read_text())["rows"]
        np.testing.assert_allclose(ours[kind], row["iou"], atol=0.2)
        assert np.mean(ours[kind]) == pytest.approx(row["miou"], abs=0.02)


def test_mistakes_end_in_one_line(here):
    for arguments, message in (
            (["tag"], "tag: no such row; there are classifier, classifier_long, mil_fcn, "),
            (["tags", "--crf", "sharp"], "no CRF preset 'sharp'"),
            (["classifier", "mil_fcn", "--set", "max_iter=2"], "--set would change classifier, too, which others of"),
            (["tags", "--features", "none"], "none/index.json: is missing or damaged; ccnn cache-features makes"),
            (["tags", "--set", "max_itre=2"], "max_itre")):
        with pytest.raises(UserError) as error:
            run(*arguments, "--seeds", 1)
        assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(Path("output/study").glob("*/*/score.json"))


# --- the report

def test_a_report_of_nothing_is_refused(tmp_path, monkeypatch):
    """And leaves what docs/ has."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for tool in (study, hyperparameters):
        with pytest.raises(UserError, match="has no finished (run|trial); run study/(study|hyperparameters).py first"):
            tool.main(["--report", "--out", "docs"])
    assert not list(Path("docs").iterdir())


@pytest.mark.parametrize("text", ["", "[1]", '{"row": "tags"}', '{"row": "no", "seed": 1}'])
def test_a_damaged_score_is_named(tmp_path, text):
    (tmp_path / "tags/1").mkdir(parents=True)
    (tmp_path / "tags/1/score.json").write_text(text)
    with pytest.raises(UserError, match="tags/1/score.json: is not a score of this tool .* remove it"):
        runs.collect(tmp_path)


def made(row, *mious, spread=0.0, seconds=60, **kinds):
    """Runs of a row with these mIoU: one point more of background than the mean, and one less of the last class.
    `kinds` are those of the first of them by CRF or prior. Three sets of images have a standard deviation of spread."""
    def iou(mean):
        return [mean + 1, *[mean] * 19, mean - 1]
    found = []
    for k, mean in enumerate(mious):
        means = {"": mean, **{kind: values[k] for kind, values in kinds.items() if k < len(values)}}
        found.append({"row": row, "seed": k + 1, "seconds": seconds + k,
                      "iou": {kind: iou(v) for kind, v in means.items()},
                      "draws": {kind: [v - spread, v, v + spread] for kind, v in means.items()},
                      "half": {kind: v - 10 for kind, v in means.items()}})
    return found


RESULTS = [
    *made("mil_base", 40, ilp=[45], spread=1),
    *made("em_adapt", 25, 27, 29, spread=2),
    *made("tags_cells", 30, 31, 32, spread=1.5),
    *made("tags", 30, 31, 32, authors=[33, 35], heads=[36], spread=1),
    *made("size", 30.5, 31.5, 32.5, spread=1),
    *made("semi_5_percent", 33, 35),
    *[r for bounds, miou in zip(paper.BOUNDS_TRIED[1:], (32.5, 33.5, 34.5,  32.5, 33.5, 34.5, 35.5,  29.5, 33.5, 35.5))
      for r in made(experiments.bounds_name(*bounds[:3]), miou)],
]


def tables(results):
    return study_tables.tables(study_tables.summary(results))


def cells(table):
    """{first cell: the others} of a Markdown table's lines."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {first: others for first, *others in lines[2:]}


def test_the_systems_table_has_means_and_deviations():
    assert cells(tables(RESULTS)["systems"]) == {
        "MIL-Base, longer classifier first": [
            "`mil_base`", "1", "40.0", "1.0", "-", "-", "-", "17.8", "-"],
        "MIL-Base, longer classifier first, image-level prior": [
            "`mil_base`", "1", "45.0", "1.0", "-", "-", "-", "32.6", "-"],
        "EM-Adapt, classifier first": [
            "`em_adapt`", "3", "27.0 ± 2.0", "2.0", "-", "-", "-", "32.0", "33.8"],
        "CCNN, tags, cells only": [
            "`tags_cells`", "3", "31.0 ± 1.0", "1.5", "-", "-", "-", "33.3", "35.3"],
        "CCNN, tags": [
            "`tags`", "3", "31.0 ± 1.0", "1.0", "34.0 ± 1.4", "-", "36.0", "33.3", "35.3"],
        "CCNN, tags and sizes": [
            "`size`", "3", "31.5 ± 1.0", "1.0", "-", "-", "-", "40.5", "42.4"],
    }


def test_an_ordering_holds_beyond_two_standard_errors():
    """The usual deviation is 1. Errors of the means: MIL-Base, of one run, 1; EM-Adapt 2/sqrt(3) = 1.15; tags and size
    1/sqrt(3) = 0.58; of the gaps sqrt(4/3) = 1.15, sqrt(5/3) = 1.29, sqrt(2/3) = 0.82. Over sets of images, the spreads
    are of one sign: their gap is the error."""
    assert cells(tables(RESULTS)["orderings"]) == {
        "CCNN, tags > MIL-Base, longer classifier first": ["no", "-9.0", "1.2", "0.0", "+15.5"],
        "CCNN, tags, cells only > EM-Adapt, classifier first": ["yes", "+4.0", "1.3", "0.5", "+1.3"],
        "CCNN, tags and sizes > CCNN, tags": ["undecided", "+0.5", "0.8", "0.0", "+7.2"],
    }
    assert cells(tables(RESULTS)["further_orderings"]) == {
        "CCNN, tags > CCNN, tags, cells only": ["undecided", "+0.0", "0.8", "0.5", "-"]}

    def told(*rows):
        return cells(tables([*rows[0], *rows[1]])["orderings"])[
            "CCNN, tags, cells only > EM-Adapt, classifier first"][:4]
    close = made("em_adapt", 26, 28, 30), made("tags_cells", 29.5, 30.5, 31.5)
    assert told(*close) == ["undecided", "+2.5", "1.4", "0.0"]      # usual: 1.5; not twice sqrt((4 + 1.5^2) / 3) = 1.44
    steady = made("em_adapt", 27, 27, 27)
    assert told(steady, made("tags_cells", 29, 29, 29, spread=1.1)) == ["undecided", "+2.0", "0.0", "1.1"]
    assert told(steady, made("tags_cells", 29, 29, 29, spread=0.9)) == ["yes", "+2.0", "0.0", "0.9"]


def test_the_bounds_deviation():
    """Of runs of the first seed. Along a_l 30.5 32.5 33.5 34.5: 1.71; a_0 30.5, and 32.5 to 35.5 by ones: 1.92; b_0
    30.5 29.5 33.5 35.5: 2.75. The paper's: 0.49, 0.05 and 1.68."""
    table = tables(RESULTS)["bounds"]
    lines = [line for line in table.splitlines() if line.startswith("| 0.")]
    assert len(lines) == 11
    assert lines[0] == "| 0.1 | 0.2 | 0.7 | 30.5 | 40.5 |" and lines[-1] == "| 0.1 | 0.2 | 0.8 | 35.5 | 39.7 |"
    assert "mean of the three: 2.13 (the paper's figures: 0.74)" in table
    assert "mean of the three" not in tables(RESULTS[:-1])["bounds"]


def test_the_tables_of_masks_and_of_classes():
    made = tables(RESULTS)
    assert cells(made["half"])["CCNN, tags"] == ["3", "21.0 ± 1.0"]
    assert cells(made["semi"]) == {"0": ["0 %", "3", "31.0 ± 1.0", "-"], "529": ["5 %", "2", "34.0 ± 1.4", "-"]}
    classes = cells(made["classes"])
    assert list(classes) == [                                   # the paper says nothing on the classes of its sizes
        "paper: MIL-Base", "MIL-Base, longer classifier first", "paper: EM-Adapt tags", "EM-Adapt, classifier first",
        "paper: CCNN tags", "CCNN, tags, cells only", "CCNN, tags", "paper: CCNN tags w/ CRF", "CCNN, tags w/ CRF",
        "CCNN, tags and sizes"]
    assert classes["paper: CCNN tags"][:3] == ["val", "66.3", "24.6"] and classes["paper: CCNN tags"][-1] == "33.3"
    assert classes["CCNN, tags"] == ["val", "32.0", *["31.0"] * 19, "30.0", "31.0"]
    assert classes["CCNN, tags w/ CRF"] == ["val", "37.0", *["36.0"] * 19, "35.0", "36.0"]


def test_the_tables_of_second_nets():
    """Of the seeds that both have: tags 30 and 31."""
    more = [*RESULTS, *made("conv5_tags", 33, 35), *made("taught_tags", 29),
            *made("full", 50), *made("conv5_full", 52), *made("conv4_full", 55)]
    assert cells(tables(more)["conv5"]) == {
        "CCNN, tags, conv5 learns": ["2", "30.5 ± 0.7", "34.0 ± 1.4", "+3.5"],
        "full supervision, conv5 learns": ["1", "50.0", "52.0", "+2.0"],
        "full supervision, conv4 and conv5 learn": ["1", "50.0", "55.0", "+5.0"]}
    assert cells(tables(more)["taught"]) == {"taught by CCNN, tags": ["1", "30.0", "29.0", "-1.0"]}


def test_a_report_keeps_what_is_stored(tmp_path):
    """Runs that are not here, and scores of other kinds; not those of a row that has changed since."""
    def of(row, *mious, **kinds):
        now = runs.with_changes(runs.made_of(experiments.EXPERIMENTS[row]), ["max_iter=2"])
        return [{**found, "set": ["max_iter=2"], "made_of": now} for found in made(row, *mious, **kinds)]
    path = tmp_path / "study.json"
    empty = runs.read_stored(path)
    assert [found["row"] for found in study_tables.summary(of("size", 40), empty)["runs"]] == ["size"]
    changed = {**of("boxes", 50)[0], "made_of": {"changes": {"base_lr": "1"}}}
    stored = [*of("tags", 30, 31, authors=[33], spread=1), *of("crops", 37, spread=3), changed]
    study_tables.write(study_tables.summary(stored), path)
    assert '"draws"' not in path.read_text()
    found = study_tables.summary([*of("size", 40), *of("tags", 29, heads=[36], spread=2)], runs.read_stored(path))
    one, *others = found["runs"]
    assert [(one["row"], one["seed"]), *((other["row"], other["seed"]) for other in others)] == [
        ("tags", 1), ("tags", 2), ("crops", 1), ("size", 1)]
    assert {kind: runs.miou(iou) for kind, iou in one["iou"].items()} == {"": 29, "authors": 33, "heads": 36}
    assert one["half"] == {"": 19, "authors": 23, "heads": 26} and runs.miou(others[0]["iou"][""]) == 31
    # of the second run of tags there are no draws any more: the stored deviation stays
    assert found["images"] == {"tags": {"": 1, "authors": 1, "heads": 2}, "crops": {"": 3}, "size": {"": 0}}
    assert found["gaps"] == {"crops > tags": 2}
    path.write_text('{"runs": [{')
    with pytest.raises(UserError, match="study.json: is damaged .*; restore it, or remove it"):
        runs.read_stored(path)


def test_the_tables_of_larger_images_and_of_a_tuned_crf():
    more = [*RESULTS, *made("tags_train", 30, 31), *made("tags_train_321", 32),
            *made("size_10", 40, 41, authors=[42], crf_100=[44])]
    assert cells(tables(more)["pixels"]) == {
        "CCNN, tags, 1,464 images, 321 pixels": ["1", "30.0", "32.0", "+2.0"]}
    assert cells(tables(more)["tuned"]) == {
        "CCNN, tags and sizes, small up to 0.1": ["40.0", "42.0", "-", "-", "44.0"]}


# --- what is documented

def test_the_pages_are_those_of_the_stored_runs(root):
    """`study/fill_pages.py` filled them in from study/results/."""
    for path, text in fill_pages.pages(fill_pages.Study.read()).items():
        assert (root / path).read_text() == text, f"{path}: run study/fill_pages.py"


def test_the_pages_have_every_table(root):
    texts = "".join((root / page).read_text() for page in fill_pages.PAGES)
    assert set(re.findall(r"<!-- table (\w+) -->", texts)) == fill_pages.Study.read().tables.keys()
    assert not re.findall(r"^\s*(?:- )?<!-- (?!table|/).*", texts, re.M)         # Markdown ends a paragraph there


BEST = crf.Preset(3, 3, 40, 9, 4, 10, long_side=500)._asdict()
SEARCH = {"preset": BEST, "images": 100, "tried": [[None, 40.04], [BEST, 44.06], *(
    [preset._asdict(), 41.0] for preset in crf.PRESETS.values())]}


THINGS = {"things": 1234, "missed": [5.0, 1.0], "found": [70.2, 1.0], "iou": [9.0, 1.0]}


def test_the_table_of_the_search():
    assert cells(fill_pages.search_table(SEARCH)) == {
        "no CRF": ["40.0"], **{f"`{name}`": ["41.0"] for name in crf.PRESETS}, "the best found": ["44.1"]}


def test_a_figure_of_the_pages(tmp_path):
    trials = [{"row": "tags", "set": ["base_lr=1e-3", "max_iter=1984"], "miou": 34.44, "ilp": 20.04},
              {"row": "tags", "set": ["base_lr=2e-3", "max_iter=3968"], "miou": 36.06}]
    sizes = [{"crf": kind, "side": side, "images": 104, "miou": 40 - side / 1000, "seconds": 0.5}
             for kind in study_tables.CRFS for side in crf_sizes.SIDES]
    solved = [{"row": "size", "method": "pga", "iterations": [49, 50, 1, 7], "ms": [0.1] * 4}]
    found = fill_pages.Study(study_tables.summary(RESULTS), trials, solved, {
        "miou": {"tags": 37.8}, "contradictory": {"tags": 0}, "images": 265, "right cues": {"classes": 0.613}}, sizes,
        [{"row": "tags", "small": THINGS, "large": THINGS}], SEARCH,
        [{"set": classes, "seed": 1, "kind": "tags", "version": version, "miou": miou}
         for classes in own_photographs.SETS for version, miou in (("none", 50), ("after", 75.04))], [], [])
    page = tmp_path / "page.md"
    for words, figure in (
            ("mean tags", "31.0 ± 1.0"), ("mean tags authors", "34.0 ± 1.4"), ("mean mil_base ilp", "45.0"),
            ("gap size tags", "+0.5"),
            ("verdict size tags", "undecided: +0.5"), ("paper mil_base", "17.8"),
            ("paper mil_base ilp", "32.6"), ("paper_gap crops tags", "+1.1"), ("paper_deviation", "0.74"),
            ("paper_bounds 0.1 0.2 0.5", "-3.9"), ("gain tags heads", "+6.0"), ("half tags", "21.0 ± 1.0"),
            ("held tags 1e-3", "34.4"), ("held tags", "36.1"), ("held_after tags 3968", "36.1"),
            ("held tags 1e-3 ilp", "20.0"),
            ("found_crf", "weight 4, 40 pixels of 500, 9 levels"),
            ("bounds 0.1 0.2 0.8", "+4.0"), ("deviation", "2.13"), ("below_50 size", "75"), ("cues classes", "61"),
            ("p_with tags", "37.8"), ("things tags small things", "1,234"), ("things tags large found", "70.2"),
            ("own easy tags after", "75.0"), ("own_gain easy", "+25.0")):
        page.write_text(f"It is <!-- {words} -->old\n<!-- / -->.")
        assert fill_pages.filled(page, found) == f"It is <!-- {words} -->{figure}<!-- / -->.", words
    for words in ("mean crops", "mode tags", "gap tags", "gain size heads", "half crops",
                  "below_50 tags", "verdict crops tags", "paper_gap tags tags", "held tags 7", "held boxes",
                  "table none", "mean tags a", "own hard tags after", "own easy size after"):
        page.write_text(f"It is <!-- {words} --><!-- / -->.")
        with pytest.raises(UserError, match=f"page.md: {words}: is not a figure of study/fill_pages.py, or its"):
            fill_pages.filled(page, found)
    page.write_text("<!-- not_run --><!-- / -->")
    assert fill_pages.filled(page, found).startswith(
        "<!-- not_run -->Not run: `classifier`, `classifier_long`, `mil_fcn`, ")
    for text in ("<!-- mean tags -->31.0, <!-- mean tags -->31.0<!-- / -->", "31.0<!-- / -->"):
        page.write_text(text)
        with pytest.raises(UserError, match="page.md: has . markers .* of which . belong together; close each"):
            fill_pages.filled(page, found)


def test_what_the_pages_need(tmp_path, monkeypatch):
    monkeypatch.setattr(fill_pages, "RESULTS", tmp_path)
    with pytest.raises(UserError, match=r"study.json: is missing or damaged .*; run study/study.py --report "):
        fill_pages.Study.read()
    (tmp_path / "study.json").write_text("[]")
    (tmp_path / "hyperparameters.json").write_text("[")
    with pytest.raises(UserError, match=r"hyperparameters.json: is missing or damaged .*; run study/hyper"):
        fill_pages.Study.read()


def test_no_stored_run_is_older_than_its_row(root):
    """A row that has changed since has another start, rate or length, and the pages would show it under its title."""
    study, trials = (json.loads((root / f"study/results/{name}.json").read_text()) for name in
                     ("study", "hyperparameters"))
    for result in [*study["runs"], *trials]:
        now = runs.with_changes(runs.made_of(experiments.EVERY_EXPERIMENT[result["row"]]), result["set"])
        assert result["made_of"] == now, result["row"]


def test_every_row_was_run_or_is_named(root):
    results = json.loads((root / "study/results/study.json").read_text())["runs"]
    told = re.search(r"Not run: (.*?)\.<!--", (root / "docs/reproduction.md").read_text())
    not_run = set(re.findall(r"`([\w.]+)`", told[1])) if told else set()
    assert {result["row"] for result in results} == set(experiments.EXPERIMENTS) - not_run
    short = [name for name, experiment in experiments.EXPERIMENTS.items() if name not in not_run
             and sum(result["row"] == name for result in results) < experiment.seeds]
    assert not short, "rows with fewer runs than study/study.py makes"


# --- what was chosen

@long
def test_trials_are_runs_on_images_held_out(here, monkeypatch, capsys):
    """One for every rate; what they start with is trained once, beside them."""
    monkeypatch.setattr(hyperparameters, "GRIDS", (
        hyperparameters.Grid("mil_fcn", {"max_iter": 2}, ("1e-3", "1e-4", "1e-5")),))
    monkeypatch.setattr(hyperparameters, "LENGTHS", {"mil_fcn": (2, 4)})
    monkeypatch.setattr(hyperparameters, "STARTS", (hyperparameters.Grid("mil_fcn_long", {"max_iter": 2}, ("1e-4",)),))
    monkeypatch.setattr(hyperparameters, "SETTINGS", {"decay": ("classifier", "classifier_decay_3e-3")})
    decay = experiments.TRIALS["classifier_decay_3e-3"]
    monkeypatch.setitem(experiments.TRIALS, "classifier_decay_3e-3", decay._replace(
        changes=(*decay.changes, "max_iter=4", "snapshot=4")))
    hyperparameters.main(["--jobs", "1", "--out", "docs"])
    held = Path("output/study/held_out")
    tried = ("1e-3", 2), ("1e-4", 2), ("1e-5", 2), ("1e-4", 4)      # the rates, and the length at the study's rate
    assert sorted(str(path.relative_to(held)) for path in held.rglob("score.json")) == [
        *sorted([*(f"base_lr={rate}_max_iter={steps}/mil_fcn/1/score.json" for rate, steps in tried),
                 "base_lr=1e-4_max_iter=2/mil_fcn_long/1/score.json",
                 *(f"base_lr=2e-3_max_iter=3/{row}/1/score.json" for row in ("classifier", "classifier_decay_3e-3"))]),
        "classifier/1/score.json", "classifier_long/1/score.json"]
    trials = json.loads(Path("docs/hyperparameters.json").read_text())
    rates = "1e-3", "1e-4", "1e-5"
    assert [trial["row"] for trial in trials] == [*["mil_fcn"] * 4, "mil_fcn_long", "classifier",
                                                  "classifier_decay_3e-3"]
    assert [trial["set"] for trial in trials] == [[f"base_lr={rate}", f"max_iter={steps}"] for rate, steps in (
        *tried, ("1e-4", 2), ("2e-3", 3), ("2e-3", 3))]         # three quarters of the study's steps
    assert trials[-1]["made_of"]["changes"]["weight_decay"] == "3e-3"
    assert all(0 < trial["miou"] < 100 for trial in trials)
    one, two, _ = (caffe_files.read_caffemodel(held / f"base_lr={rate}_max_iter=2/mil_fcn/1/head_iter_2.caffemodel")
                   ["fc8_cell"] for rate in rates)
    assert not np.array_equal(one[0], two[0])
    assert '"split": "output/study/held_out/train.txt"' in (
        held / "base_lr=1e-3_max_iter=2/mil_fcn/1/net.prototxt").read_text()
    told = ", ".join(f"{bold}{rate}: {trial['miou']:.1f}{bold}" for rate, bold, trial in zip(
        rates, ("", "**", ""), trials))
    of_rates, of_lengths, of_starts, of_settings = capsys.readouterr().out.strip().split("\n\n")
    of_rates, of_lengths, of_starts = map(cells, (of_rates, of_lengths, of_starts))
    assert of_rates == {"MIL-FCN, classifier first": ["2", told]}
    assert of_lengths == {"MIL-FCN, classifier first": ["1e-4", ", ".join(
        f"{steps}: {trials[k]['miou']:.1f}" for steps, k in ((2, 1), (4, 3)))]}
    assert of_starts == {"MIL-FCN, longer classifier first": ["2", f"**1e-4: {trials[4]['miou']:.1f}**"]}
    assert of_settings.splitlines()[2:] == [f"| decay | **tag classifier** | {trials[5]['miou']:.1f} |",
                                            f"| decay | tag classifier, weight decay 3e-3 | {trials[6]['miou']:.1f} |"]

    with monkeypatch.context() as patch:        # once more: nothing to do
        patch.setattr(runs, "execute", None)
        hyperparameters.main(["--jobs", "1"])
    stored = Path("docs/hyperparameters.json").read_bytes()
    shutil.rmtree(held / "base_lr=1e-5_max_iter=2")
    hyperparameters.main(["--report", "--out", "docs"])     # what is gone from the folder stays
    assert Path("docs/hyperparameters.json").read_bytes() == stored
    with pytest.raises(UserError, match="no: no such row; there are mil_fcn, mil_fcn_long, classifier, classifier_"):
        hyperparameters.main(["no"])


@pytest.mark.parametrize("grid", hyperparameters.GRIDS, ids=lambda grid: grid.row)
def test_the_rate_of_a_row_is_the_best_of_its_trials_and_not_at_the_edge(grid, root):
    """Or as good: less than a tenth, which one run cannot tell."""
    trials = hyperparameters.scores(json.loads((root / "study/results/hyperparameters.json").read_text()), grid.row)
    scores = [trials[tuple(changes)] for changes in grid.trials]
    best = int(np.argmax(scores))
    assert [*map(float, grid.rates)] == sorted(map(float, grid.rates))
    chosen = grid.rates.index(hyperparameters.chosen(grid.row, "base_lr"))
    assert scores[best] - scores[chosen] < 0.1
    assert 0 < best < len(scores) - 1 and 0 < chosen < len(scores) - 1


@pytest.mark.parametrize("row", hyperparameters.rows())
def test_every_trial_was_made(row, root):
    found = hyperparameters.scores(json.loads((root / "study/results/hyperparameters.json").read_text()), row)
    assert found.keys() == set(map(tuple, hyperparameters.trials(row)))


def test_trials_are_made_of_what_their_titles_say(here):
    """Of the study's rows they differ in what is tried."""
    settings = runs.Settings(Path("output"), Path("output"), Path(ROOT), Path(FEATURES), Path(POOL4), Path(POOL3),
                             "train_aug", "train", "val", [], {})
    texts = {name: runs.sources(runs.Run(name, 1, settings))["net.prototxt"] for name in experiments.EVERY_EXPERIMENT}
    assert set(experiments.TRIALS) <= set(hyperparameters.rows())
    assert not experiments.TRIALS.keys() & experiments.EXPERIMENTS
    for name, trial in experiments.TRIALS.items():
        for number in re.findall(r"(?:hardness|margin|classes|background|\.\.) ([\d.]+)", trial.title):
            assert f": {number}" in texts[name], name
        for decay in re.findall("weight decay ([^ ,]+)", trial.title):
            changed = experiments.EVERY_EXPERIMENT[trial.start] if trial.start else trial
            assert f"weight_decay={decay}" in changed.changes, name
        for key in trial.loss:
            assert f'"{key}"' in texts[name], name
    assert hyperparameters.as_in_study("tags_hardness_10") == ["base_lr=2e-3", "max_iter=3968"]
    assert hyperparameters.as_in_study("mil_fcn_long") == ["base_lr=1e-4", "max_iter=1984"]


# a training: at ^C it finishes its step, and leaves a snapshot
TRAINING = """#!/bin/sh
trap 'sleep 1; touch snapshot; exit 130' INT
touch started
while :; do sleep 0.05; done
"""


def test_an_interrupted_largefov_waits_for_the_snapshot(tmp_path, root, python_bin):
    """^C reaches the whole group of processes."""
    (tmp_path / "ccnn").write_text(TRAINING)
    (tmp_path / "ccnn").chmod(0o755)
    code = f"import sys, largefov; sys.executable = {str(tmp_path / 'python')!r}; largefov.ccnn('train')"
    run = subprocess.Popen([python_bin, "-c", code], cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE,
                           text=True, env={**os.environ, "PYTHONPATH": f"{root / 'study'}:{root}"})
    wait_for((tmp_path / "started").exists, "the training", run)
    os.killpg(run.pid, signal.SIGINT)
    assert run.communicate(timeout=LIMIT)[1] == "" and run.returncode == 130
    assert (tmp_path / "snapshot").exists()
