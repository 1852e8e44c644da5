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
from test_training import workplace
from tiny_voc import make_voc

import study
from ccnn import crf, images, paper, weights
from ccnn.errors import UserError

SIZE = 40               # what the trunk sees; the images are larger
ROOT, FEATURES = "data/VOCdevkit/VOC2012", "data/features"
TRUNK = "data/vgg16_conv.caffemodel"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, root):
    """40 images in train and 10 in val, with features of a random trunk. All classes are in val, and in every fourth
    image of train: image k has class k, of 20, and if k is odd the next class too."""
    folder = tmp_path_factory.mktemp("drawn")
    voc = make_voc(folder / ROOT, images=50, size=(57, 46))
    names = [path.stem for path in sorted((voc / "JPEGImages").glob("*.jpg"))]
    val, every_fourth = names[1:20:2], names[21:40:2]
    train = [name for name in names if name not in val + every_fourth]
    for k, name in enumerate(every_fourth):
        train.insert(4 * k + 3, name)
    for split, some in (("train", train), ("val", val)):
        (voc / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(some) + "\n")
    caffe.set_random_seed(1)
    caffe.Net(str(root / "prototxt/trunk.prototxt"), caffe.TEST).save(str(folder / TRUNK))
    cache_features.main([str(voc), "--split", "train", "--split", "val", "--out", str(folder / FEATURES),
                         "--size", str(SIZE), "--weights", str(folder / TRUNK), "--jobs", "1"])
    return folder


@pytest.fixture
def here(drawn, tmp_path, monkeypatch):
    """A workplace, the current folder, with these images."""
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
    run("tags", "mil_base", "semi_25", *short, "--crf", "authors")
    kinds = {name: list(result(f"output/study/{name}/1")["iou"]) for name in ("tags", "mil_base", "semi_25")}
    assert kinds == {"tags": ["", "authors"], "mil_base": ["", "ilp", "authors"], "semi_25": [""]}
    for name in kinds:
        found = result(f"output/study/{name}/1")
        assert (found["row"], found["seed"]) == (name, 1) and found["seconds"] >= 0
        assert all(len(iou) == 21 and 0 <= min(iou) < max(iou) <= 100 for iou in found["iou"].values())
        assert Path(f"output/study/{name}/1/head_iter_2.caffemodel").is_file()
    masks = Path("output/study/semi_25/1/masks.txt").read_text().split()
    assert len(masks) == 10 and set(masks) < set(split("train"))

    # 1. once more: nothing to do
    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", None)
        run("tags", "mil_base", "semi_25", *short, "--crf", "authors")

    # 2. another CRF: that alone, of the model that is there
    place, model = Path("output/study/tags/1"), Path("output/study/tags/1/head_iter_2.caffemodel")
    changed = result(place)
    for kind in ("", "authors"):
        changed["iou"][kind] = [1.0] * 21
    (place / "score.json").write_text(json.dumps(changed))
    stamp = model.stat().st_mtime_ns
    run("tags", "semi_25", *short, "--crf", "authors", "--crf", "heads")
    whole, found = result(place), result(place)
    heads, _ = found["iou"].pop("heads"), found["crf"].pop("heads")
    assert found == changed and max(heads) > 1 and model.stat().st_mtime_ns == stamp
    assert list(result("output/study/semi_25/1")["iou"]) == [""]               # a row that is shown without CRF

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
    assert [(r["row"], r["seed"]) for r in results] == [("mil_base", 1), ("tags", 1), ("tags", 2), ("semi_25", 1)]
    assert json.loads(Path("docs/study.json").read_text()) == results
    assert capfd.readouterr().out == "\n".join(report.tables(results).values()) + "\n"
    assert Path("docs/study.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_belongs_to_its_net_its_solver_and_its_crf(here, monkeypatch):
    short = "tags", "--seeds", 1, "--set", "max_iter=2"
    run(*short, "--crf", "authors")
    place = Path("output/study/tags/1")
    first, stamp = result(place), (place / "head_iter_2.caffemodel").stat().st_mtime_ns
    assert first["crf"] == {"authors": crf.PRESETS["authors"]._asdict()}

    # 1. a preset of other values under the same name is scored again, of the same model
    marked = {**first, "iou": dict.fromkeys(first["iou"], [1.0] * 21)}
    (place / "score.json").write_text(json.dumps(marked))
    run(*short, "--crf", "authors")
    assert result(place) == marked
    monkeypatch.setitem(crf.PRESETS, "authors", crf.PRESETS["authors"]._replace(bilateral_weight=1))
    run(*short, "--crf", "authors")
    second = result(place)
    assert second["crf"]["authors"]["bilateral_weight"] == 1
    assert second["iou"]["authors"] != marked["iou"]["authors"] and second["iou"][""] == marked["iou"][""]
    assert (place / "head_iter_2.caffemodel").stat().st_mtime_ns == stamp

    # 2. another net or solver is refused
    for file in ("net.prototxt", "solver.prototxt"):
        text = (place / file).read_text()
        (place / file).write_text(text + "# of last year\n")
        with pytest.raises(UserError, match=f"study/tags/1/{file}: is not what the repository has now; remove"):
            run(*short)
        (place / file).write_text(text)
    run(*short)


def test_rows_are_made_of_what_their_titles_say(here):
    settings = runs.Settings(Path("output/study"), Path(ROOT), Path(FEATURES), "train", "val", [], {})

    def net(name):
        return runs.sources(runs.Run(name, 1, settings))["net.prototxt"]
    assert '"small_upper": 0.01' in net("size") and '"small_upper": 0.1,' in net("size_10")
    assert all('"small_upper": 0.01' in net(name) for name in experiments.EXPERIMENTS if name.startswith("bounds"))
    learns_from_the_image = {name for name in experiments.COMPARED if "lr_mult: 0" not in net(name)}
    assert learns_from_the_image == {*experiments.COMPARED} - {"mil_fcn", "em_adapt", "tags_cells"}
    assert "masks.txt" in net("semi_5") and "masks.txt" not in net("tags")
    assert '"fg_lower": 0.2' in net("bounds_0.2_0.2_0.7")


def test_settings_are_chosen_without_a_look_at_val(here, drawn, monkeypatch):
    """Nothing of val's images is there, and all the same the run ends."""
    val, names = split("val"), split("train")
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
            (["tag"], "tag: no such row; there are mil_fcn, "),
            (["tags", "--crf", "sharp"], "no CRF preset 'sharp'"),
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


def made(row, *mious, seconds=60, **kinds):
    """Runs of a row with these mIoU: one point more of background than the mean, and one less of the last class.
    `kinds` are those of the first of them by CRF or prior."""
    def iou(mean):
        return [mean + 1, *[mean] * 19, mean - 1]
    return [{"row": row, "seed": k + 1, "seconds": seconds + k,
             "iou": {"": iou(mean), **{kind: iou(values[k]) for kind, values in kinds.items() if k < len(values)}}}
            for k, mean in enumerate(mious)]


RESULTS = [
    *made("mil_base", 40, ilp=[45]),
    *made("em_adapt", 25, 27, 29),
    *made("tags", 30, 31, 32, authors=[33, 35], heads=[36]),
    *made("size", 30.5, 31.5, 32.5),
    *made("semi_5", 33, 35),
    *[r for bounds, miou in zip(paper.BOUNDS[1:], (32.5, 33.5, 34.5,  32.5, 33.5, 34.5, 35.5,  29.5, 33.5, 35.5))
      for r in made(experiments.bounds_name(*bounds[:3]), miou)],
]


def cells(table):
    """{first cell: the others} of a Markdown table's lines."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {first: others for first, *others in lines[2:]}


def test_the_systems_table_has_means_and_deviations():
    assert cells(report.tables(RESULTS)["systems"]) == {
        "MIL-Base": ["`study/study.py mil_base`", "1", "40.0", "-", "-", "17.8", "-", "60"],
        "MIL-Base, image-level prior": ["`study/study.py mil_base`", "1", "45.0", "-", "-", "32.6", "-", "60"],
        "EM-Adapt": ["`study/study.py em_adapt`", "3", "27.0 ± 2.0", "-", "-", "32.0", "33.8", "61"],
        "CCNN, tags": ["`study/study.py tags`", "3", "31.0 ± 1.0", "34.0 ± 1.4", "36.0", "33.3", "35.3", "61"],
        "CCNN, tags and sizes": ["`study/study.py size`", "3", "31.5 ± 1.0", "-", "-", "40.5", "42.4", "61"],
    }


def test_an_ordering_holds_beyond_two_standard_errors():
    """Errors of the means: MIL-Base 0, EM-Adapt 2/sqrt(3) = 1.15, tags and size 1/sqrt(3) = 0.58; of the gaps 1.15,
    sqrt(5/3) = 1.29, sqrt(2/3) = 0.82."""
    assert cells(report.tables(RESULTS)["orderings"]) == {
        "EM-Adapt > MIL-Base": ["no (of one run)", "-13.0 ± 1.2", "+14.2"],
        "CCNN, tags > EM-Adapt": ["yes", "+4.0 ± 1.3", "+1.3"],
        "CCNN, tags and sizes > CCNN, tags": ["undecided", "+0.5 ± 0.8", "+7.2"],
    }
    close = [*made("em_adapt", 26, 28, 30), *made("tags", 29.5, 30.5, 31.5)]        # 2.5 is not twice 1.29
    assert cells(report.tables(close)["orderings"])["CCNN, tags > EM-Adapt"][:2] == ["undecided", "+2.5 ± 1.3"]


def test_the_bounds_deviation():
    """Ours along a_l 31.5 32.5 33.5 34.5: 1.29; a_0 31.5 to 35.5 by ones: 1.58; b_0 31.5 29.5 33.5 35.5: 2.58. The
    paper's: 0.49, 0.05 and 1.68."""
    table = report.tables(RESULTS)["bounds"]
    lines = [line for line in table.splitlines() if line.startswith("| 0.")]
    assert len(lines) == 11
    assert lines[0] == "| 0.1 | 0.2 | 0.7 | 31.5 | 40.5 |" and lines[-1] == "| 0.1 | 0.2 | 0.8 | 35.5 | 39.7 |"
    assert "mean of the three: 1.82 (the paper's figures: 0.74)" in table
    assert "mean of the three" not in report.tables(RESULTS[:-1])["bounds"]


def test_the_tables_of_masks_and_of_classes():
    made = report.tables(RESULTS)
    assert cells(made["semi"]) == {"0 %": ["3", "31.0 ± 1.0"], "5 %": ["2", "34.0 ± 1.4"]}
    classes = cells(made["classes"])
    assert list(classes) == ["MIL-Base", "EM-Adapt", "CCNN, tags", "CCNN, tags w/ CRF", "CCNN, tags and sizes"]
    assert classes["CCNN, tags"] == ["val", "32.0", *["31.0"] * 19, "30.0", "31.0"]
    assert classes["CCNN, tags w/ CRF"] == ["val", "37.0", *["36.0"] * 19, "35.0", "36.0"]


def test_the_documented_tables_are_those_of_the_stored_runs(root):
    """`study/study.py --report --out docs` wrote docs/study.json; docs/reproduction.md has its tables word for word."""
    results = json.loads((root / "docs/study.json").read_text())
    text = (root / "docs/reproduction.md").read_text()
    assert {r["row"] for r in results} >= set(experiments.COMPARED)
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
