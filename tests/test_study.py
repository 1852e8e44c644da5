"""study/study.py on drawn images: what a run scores, what is done once only, and the tables."""
import json
import re
import shutil
from pathlib import Path

import cache_features
import caffe
import experiments
import infer
import init_weights
import numpy as np
import pytest
import report
import runs
import score
import teach
from test_training import workplace
from tiny_voc import make_voc

import study
from ccnn import crf, images, paper, weights
from ccnn.errors import UserError

SIZE = 40               # what the trunk sees; the images are larger
ROOT, FEATURES, POOL4 = "data/VOCdevkit/VOC2012", "data/features", "data/pool4"
TRUNK = "data/vgg16_conv.caffemodel"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, root):
    """40 images in train_aug and 10 in val, with pool4 and features of a random trunk. All classes are in val, and in
    every fourth image of train_aug: image k has class k, of 20, and if k is odd the next class too."""
    folder = tmp_path_factory.mktemp("drawn")
    voc = make_voc(folder / ROOT, images=50, size=(57, 46))
    names = [path.stem for path in sorted((voc / "JPEGImages").glob("*.jpg"))]
    val, every_fourth = names[1:20:2], names[21:40:2]
    train = [name for name in names if name not in val + every_fourth]
    for k, name in enumerate(every_fourth):
        train.insert(4 * k + 3, name)
    for split, some in (("train_aug", train), ("val", val)):
        (voc / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(some) + "\n")
    caffe.set_random_seed(1)
    caffe.Net(str(root / "prototxt/trunk.prototxt"), caffe.TEST).save(str(folder / TRUNK))
    for blob, out in (("features", FEATURES), ("pool4", POOL4)):
        cache_features.main([str(voc), "--split", "train_aug", "--split", "val", "--out", str(folder / out), "--blob",
                             blob, "--size", str(SIZE), "--weights", str(folder / TRUNK), "--jobs", "1"])
    return folder


@pytest.fixture
def here(drawn, tmp_path, monkeypatch):
    """A workplace, the current folder, with these images. What other rows start with is trained in a moment."""
    for name in ("classifier", "tags"):
        experiment = experiments.EXPERIMENTS[name]
        monkeypatch.setitem(experiments.EXPERIMENTS, name, experiment._replace(changes=("max_iter=4", "snapshot=4")))
    monkeypatch.setattr(runs, "trunk_weights", lambda: drawn / TRUNK)
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
    run("tags", "--seeds", 2, *short[2:])
    one, two = (weights.read_caffemodel(f"output/study/tags/{seed}/head_iter_2.caffemodel") for seed in (1, 2))
    assert one.keys() == two.keys() == {"fc8_cell", "fc8_image"}
    assert np.corrcoef(one["fc8_cell"][0].ravel(), two["fc8_cell"][0].ravel())[0, 1] < 0.9
    assert '"seed": 2' in Path("output/study/tags/2/net.prototxt").read_text()
    assert result(place) == whole

    # 4. the report is made of all that
    capfd.readouterr()
    run("--report", "--out", "docs")
    results = runs.collect(Path("output/study"))
    assert [(r["row"], r["seed"]) for r in results] == [
        ("classifier", 1), ("mil_base", 1), ("tags", 1), ("tags", 2), ("semi_25_percent", 1)]
    assert json.loads(Path("docs/study.json").read_text()) == results
    assert capfd.readouterr().out == "\n".join(report.tables(results).values()) + "\n"
    assert Path("docs/study.png").read_bytes().startswith(b"\x89PNG")


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
    for other in (tags._replace(changes=("max_iter=4", "base_lr=1")), tags._replace(start="classifier")):
        with monkeypatch.context() as patch, pytest.raises(UserError, match="experiment.json: is not what the repos"):
            patch.setitem(experiments.EXPERIMENTS, "tags", other)
            run(*short)
    run(*short)


def test_rows_are_made_of_what_their_titles_say(here):
    settings = runs.Settings(Path("output/study"), Path(ROOT), Path(FEATURES), Path(POOL4), "train_aug", "val", [], {})

    def net(name):
        return runs.sources(runs.Run(name, 1, settings))["net.prototxt"]
    assert '"small_upper": 0.01' in net("size") and '"small_upper": 0.1,' in net("size_10")
    assert all('"small_upper": 0.01' in net(name) for name in experiments.EXPERIMENTS if name.startswith("bounds"))
    cells_only = {name for name in experiments.COMPARED if "lr_mult: 0" in net(name)}
    assert cells_only == {"mil_fcn", "mil_fcn_random", "mil_fcn_train", "em_adapt", "em_adapt_random", "em_adapt_train",
                          "em_adapt_crops", "tags_cells", "tags_cells_started", "tags_cells_train", "tags_std_0.1",
                          "tags_std_1"}
    assert {name for name, e in experiments.EXPERIMENTS.items() if "cells only" in e.title} <= cells_only
    assert "masks.txt" in net("semi_5_percent") and "masks.txt" not in net("tags")
    assert '"fg_lower": 0.2' in net("bounds_0.2_0.2_0.7")

    def having(text):
        return {name for name in experiments.EXPERIMENTS if text in net(name)}
    assert having("shares.csv") == {"shares", "conv5_shares"} and having('"crop":') == {"crops", "em_adapt_crops"}
    assert having(f'"features": "{POOL4}"') == having('name: "conv5_3"') == {
        name for name, e in experiments.EXPERIMENTS.items() if "conv5 learns" in e.title}
    assert having('"hold": 2') == having('"number"') == {"tags_held"} and having('"hardness": 1000') == {"size_hard"}
    assert having("stride: 4") == {"tags_32s"} and having("std: 1 ") == {"tags_std_1"}
    assert having("std: 0.1 ") == {"tags_std_0.1"} and having("SigmoidCrossEntropyLoss") == {
        "classifier", "classifier_train"}
    assert having('"split": "train"') == {name for name, e in experiments.EXPERIMENTS.items() if "1,464" in e.title}


def test_an_experiment_trains_its_start_first(here):
    """At a rate of 0 it keeps the weights of its start; the start is trained as the repository has it, and once."""
    run("mil_fcn", "--seeds", 1, "--set", "base_lr=0", "--set", "max_iter=1", "--set", "snapshot=1")
    start, place = Path("output/study/classifier/1"), Path("output/study/mil_fcn/1")
    begun, found = (weights.read_caffemodel(path)["fc8_cell"]
                    for path in (start / "head_iter_4.caffemodel", place / "head_iter_1.caffemodel"))
    assert np.array_equal(found[0], begun[0]) and np.array_equal(found[1], begun[1])
    assert begun[0][1:].any() and not begun[0][0].any()
    assert result(start)["set"] == [] and result(place)["set"] == ["base_lr=0", "max_iter=1", "snapshot=1"]
    assert (start / "head_iter_4.caffemodel").stat().st_mtime_ns < (start / "score.json").stat().st_mtime_ns


def test_the_last_block_starts_as_vggs_with_a_trained_head(here, drawn):
    """At a rate of 0 it keeps the trunk's conv5 and the head, and scores from pool4 what the head scores from the
    features, but for float16."""
    run("conv5_tags", "--seeds", 1, "--set", "base_lr=0", "--set", "max_iter=1", "--set", "snapshot=1")
    trunk = weights.read_caffemodel(drawn / TRUNK)
    head = weights.read_caffemodel("output/study/tags/1/head_iter_4.caffemodel")
    for file in ("start.caffemodel", "head_iter_1.caffemodel"):
        found = weights.read_caffemodel(Path("output/study/conv5_tags/1", file))
        assert found.keys() == {"conv5_1", "conv5_2", "conv5_3", "fc8_cell", "fc8_image"}
        for name, blobs in found.items():
            for mine, its in zip(blobs, {**trunk, **head}[name]):
                assert np.array_equal(mine, its), name
    learnt, frozen = (np.array(result(f"output/study/{name}/1")["iou"][""]) for name in ("conv5_tags", "tags"))
    np.testing.assert_allclose(learnt, frozen, atol=1)
    assert frozen.max() > 1


def test_the_row_of_guessed_areas(here, monkeypatch):
    """Its shares are guessed from as many masks as it says."""
    monkeypatch.setitem(experiments.EXPERIMENTS, "shares", experiments.EXPERIMENTS["shares"]._replace(areas=5))
    told, guess = [], runs.guess_shares
    monkeypatch.setattr(runs, "guess_shares", lambda *arguments: told.append(arguments) or guess(*arguments))
    run("shares", "--seeds", 1, "--set", "max_iter=2")
    (_, features, names, known, out), = told
    assert (features, names, len(known), len(set(known))) == (Path(FEATURES), split("train_aug"), 5, 5)
    assert out == Path("output/study/shares/1/shares.csv").resolve() and len(out.read_text().split()) == 40


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
    found = np.asarray(teach.mask(p, rgb, np.array([0, 3]), 112, crf.PRESETS["heads"]))
    assert np.array_equal(found, np.where(np.arange(112) < 58, 0, 3) * np.ones((80, 1), int))


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


def test_settings_are_chosen_without_a_look_at_val(here, drawn, monkeypatch):
    """Nothing of val's images is there, and all the same the run ends."""
    val, names = split("val"), split("train_aug")
    Path("data").unlink()
    shutil.copytree(drawn / "data", "data", ignore=lambda _, files: [f for f in files if Path(f).stem in val])
    scored = []
    read = images.read_mask
    monkeypatch.setattr(runs, "read_mask", lambda path: scored.append(path.stem) or read(path))
    run("tags", "--held-out", "--seeds", 1, "--set", "max_iter=2")

    lists = [Path(f"output/study/held_out/{part}.txt").read_text().split() for part in ("train", "val")]
    assert [len(part) for part in lists] == [30, 10] and set(lists[0]) | set(lists[1]) == set(names)
    assert scored == lists[1]
    assert '"split": "output/study/held_out/train.txt"' in Path("output/study/held_out/tags/1/net.prototxt").read_text()
    assert not runs.collect(Path("output/study")) and len(runs.collect(Path("output/study/held_out"))) == 1


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
            (["tag"], "tag: no such row; there are classifier, mil_fcn, "),
            (["tags", "--crf", "sharp"], "no CRF preset 'sharp'"),
            (["classifier", "mil_fcn", "--set", "max_iter=2"], "--set would change classifier, too, which others of"),
            (["tags_train", "--held-out"], "tags_train: trains on images that --held-out may score; leave"),
            (["tags", "--features", "none"], "none/index.json: is missing or damaged; tools/cache_features.py makes"),
            (["tags", "--set", "max_itre=2"], "max_itre")):
        with pytest.raises(UserError) as error:
            run(*arguments, "--seeds", 1)
        assert message in str(error.value) and "\n" not in str(error.value)
    assert not list(Path("output/study").glob("*/*/score.json"))


# --- the report

@pytest.mark.parametrize("text", ["", "[1]", '{"row": "tags"}', '{"row": "no", "seed": 1}'])
def test_a_damaged_score_is_named(tmp_path, text):
    (tmp_path / "tags/1").mkdir(parents=True)
    (tmp_path / "tags/1/score.json").write_text(text)
    with pytest.raises(UserError, match="tags/1/score.json: is not a score of this tool .* remove it"):
        runs.collect(tmp_path)


def test_bounds_are_the_supplements(shared):
    source = shared / "paper/ccnn.tex"
    if not source.is_file():
        pytest.skip("needs the paper's source in ../shared")
    table = source.read_text().split("III. Ablation Study")[1].split(r"\end{tabular}")[0]
    rows = re.findall(r"(?m)^([\d.]+) & ([\d.]+) & ([\d.]+) & ([\d.]+) ", re.sub(r"\\textbf{([\d.]+)}", r"\1", table))
    assert len(rows) == 11 and [tuple(map(float, row)) for row in rows] == paper.BOUNDS


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
    *[r for bounds, miou in zip(paper.BOUNDS[1:], (32.5, 33.5, 34.5,  32.5, 33.5, 34.5, 35.5,  29.5, 33.5, 35.5))
      for r in made(experiments.bounds_name(*bounds[:3]), miou)],
]


def cells(table):
    """{first cell: the others} of a Markdown table's lines."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {first: others for first, *others in lines[2:]}


def test_the_systems_table_has_means_and_deviations():
    assert cells(report.tables(RESULTS)["systems"]) == {
        "MIL-Base, classifier first": [
            "`study/study.py mil_base`", "1", "40.0", "1.0", "-", "-", "-", "17.8", "-", "60"],
        "MIL-Base, classifier first, image-level prior": [
            "`study/study.py mil_base`", "1", "45.0", "1.0", "-", "-", "-", "32.6", "-", "60"],
        "EM-Adapt, classifier first": [
            "`study/study.py em_adapt`", "3", "27.0 ± 2.0", "2.0", "-", "-", "-", "32.0", "33.8", "61"],
        "CCNN, tags, cells only": [
            "`study/study.py tags_cells`", "3", "31.0 ± 1.0", "1.5", "-", "-", "-", "33.3", "35.3", "61"],
        "CCNN, tags": [
            "`study/study.py tags`", "3", "31.0 ± 1.0", "1.0", "34.0 ± 1.4", "-", "36.0", "33.3", "35.3", "61"],
        "CCNN, tags and sizes": [
            "`study/study.py size`", "3", "31.5 ± 1.0", "1.0", "-", "-", "-", "40.5", "42.4", "61"],
    }


def test_an_ordering_holds_beyond_two_standard_errors():
    """Errors of the means: MIL-Base 0, EM-Adapt 2/sqrt(3) = 1.15, tags and size 1/sqrt(3) = 0.58; of the gaps 1.15,
    sqrt(5/3) = 1.29, sqrt(2/3) = 0.82. Over sets of images, the spreads are of one sign: their gap is the error."""
    assert cells(report.tables(RESULTS)["orderings"]) == {
        "EM-Adapt, classifier first > MIL-Base, classifier first": ["no (of one run)", "-13.0", "1.2", "1.0", "+14.2"],
        "CCNN, tags, cells only > EM-Adapt, classifier first": ["yes", "+4.0", "1.3", "0.5", "+1.3"],
        "CCNN, tags > CCNN, tags, cells only": ["undecided", "+0.0", "0.8", "0.5", "-"],
        "CCNN, tags and sizes > CCNN, tags": ["undecided", "+0.5", "0.8", "0.0", "+7.2"],
    }

    def told(*rows):
        return cells(report.tables([*rows[0], *rows[1]])["orderings"])[
            "CCNN, tags, cells only > EM-Adapt, classifier first"][:4]
    close = made("em_adapt", 26, 28, 30), made("tags_cells", 29.5, 30.5, 31.5)
    assert told(*close) == ["undecided", "+2.5", "1.3", "0.0"]                      # not twice 1.29
    steady = made("em_adapt", 27, 27, 27)
    assert told(steady, made("tags_cells", 29, 29, 29, spread=1.1)) == ["undecided", "+2.0", "0.0", "1.1"]
    assert told(steady, made("tags_cells", 29, 29, 29, spread=0.9)) == ["yes", "+2.0", "0.0", "0.9"]


def test_the_bounds_deviation():
    """Of runs of the first seed. Along a_l 30.5 32.5 33.5 34.5: 1.71; a_0 30.5, and 32.5 to 35.5 by ones: 1.92; b_0
    30.5 29.5 33.5 35.5: 2.75. The paper's: 0.49, 0.05 and 1.68."""
    table = report.tables(RESULTS)["bounds"]
    lines = [line for line in table.splitlines() if line.startswith("| 0.")]
    assert len(lines) == 11
    assert lines[0] == "| 0.1 | 0.2 | 0.7 | 30.5 | 40.5 |" and lines[-1] == "| 0.1 | 0.2 | 0.8 | 35.5 | 39.7 |"
    assert "mean of the three: 2.13 (the paper's figures: 0.74)" in table
    assert "mean of the three" not in report.tables(RESULTS[:-1])["bounds"]


def test_the_tables_of_masks_and_of_classes():
    made = report.tables(RESULTS)
    assert cells(made["half"])["CCNN, tags"] == ["3", "21.0 ± 1.0"]
    assert cells(made["semi"]) == {"0": ["0 %", "3", "31.0 ± 1.0"], "529": ["5 %", "2", "34.0 ± 1.4"]}
    classes = cells(made["classes"])
    assert list(classes) == [                                   # the paper says nothing on the classes of its sizes
        "paper: MIL-Base", "MIL-Base, classifier first", "paper: EM-Adapt tags", "EM-Adapt, classifier first",
        "paper: CCNN tags", "CCNN, tags, cells only", "CCNN, tags", "paper: CCNN tags w/ CRF", "CCNN, tags w/ CRF",
        "CCNN, tags and sizes"]
    assert classes["paper: CCNN tags"][:3] == ["val", "66.3", "24.6"] and classes["paper: CCNN tags"][-1] == "33.3"
    assert classes["CCNN, tags"] == ["val", "32.0", *["31.0"] * 19, "30.0", "31.0"]
    assert classes["CCNN, tags w/ CRF"] == ["val", "37.0", *["36.0"] * 19, "35.0", "36.0"]


def test_the_documented_tables_are_those_of_the_stored_runs(root):
    """`study/study.py --report --out docs` wrote docs/study.json; docs/reproduction.md has its tables word for word,
    and names the rows that were not run."""
    results = json.loads((root / "docs/study.json").read_text())
    text = (root / "docs/reproduction.md").read_text()
    told = re.search(r"Not run: (.*)\.\n", text)
    not_run = set(re.findall(r"`(\w+)`", told[1])) if told else set()
    assert {r["row"] for r in results} == set(experiments.EXPERIMENTS) - not_run
    for title, table in report.tables(results).items():
        assert table in text, title


def test_the_readmes_results_are_those_of_the_stored_runs(root):
    results = json.loads((root / "docs/study.json").read_text())
    rows = cells((root / "README.md").read_text().split("\n## Results\n")[1].split("\n## ")[0])
    assert len(rows) >= 5
    for title, (plain, sharpened, *_) in rows.items():
        name, = (name for name in experiments.COMPARED if experiments.EXPERIMENTS[name].title == title)
        ours = [report.said(report.mious(results, name, kind)) or "" for kind in ("", "heads")]
        assert [plain, sharpened] == ours, title
