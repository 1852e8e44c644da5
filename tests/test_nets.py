"""The nets, with their solvers, say what the paper says, and fit together."""
import json
import math
import re
import subprocess
from pathlib import Path

import caffe
import numpy as np
import pytest
from caffe.proto import caffe_pb2
from google.protobuf import text_format

from ccnn import paper
from ccnn.images.grid import score_size
from ccnn.inference.caffe_net import score_grid
from ccnn.nets import caffe_files, weights
from ccnn.nets import prototxt as nets
from ccnn.nets.backbones import VGG16
from ccnn.project.learn import RECIPE

ROOT = Path(__file__).resolve().parent.parent

CCNN = ["ccnn_tags", "ccnn_shares", "ccnn_size", "ccnn_crops", "ccnn_boxes", "ccnn_semi"]
BASELINES = ["em_adapt", "em_adapt_crops", "mil_fcn", "mil_base", "filled_boxes", "full"]
SYSTEMS = ["tags", "shares", "size", "crops", "boxes", "semi", *BASELINES]
CONV5 = ["conv5_tags", "conv5_shares", "conv5_size", "conv5_boxes", "conv5_full"]
CONV4 = ["conv4_full"]
LARGE_FIELD = ["largefov_tags", "largefov_size", "largefov_boxes", "largefov_full", "largefov_em_adapt"]
CLASSIFIERS = ["classifier", "head_classifier"]
VGG_8S = CCNN + BASELINES
VGG_LAYERS = ["conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1", "conv3_2", "conv3_3",
              "conv4_1", "conv4_2", "conv4_3", "conv5_1", "conv5_2", "conv5_3", "fc6", "fc7", "fc8"]
SOLVERS = sorted(path.stem for path in (ROOT / "solvers").glob("*.prototxt"))


def read(folder, name):
    message = caffe_pb2.SolverParameter() if folder == "solvers" else caffe_pb2.NetParameter()
    return text_format.Parse(nets.demo_nets()[name] if name.startswith("demo_")
                             else (ROOT / folder / f"{name}.prototxt").read_text(), message)


def layer(net, name):
    found = [l for l in read("prototxt", net).layer if l.name == name]
    assert len(found) == 1, f"{net}: {len(found)} layers {name}"
    return found[0]


def settings(net, name="loss"):
    return json.loads(layer(net, name).python_param.param_str)


def conv(net, name):
    p = layer(net, name).convolution_param
    return {"outputs": p.num_output, "kernel": list(p.kernel_size), "pad": list(p.pad), "dilation": list(p.dilation)}


def pool(net, name):
    p = layer(net, name).pooling_param
    return p.kernel_size, p.stride, p.pad


def test_nets_are_those_that_make_nets_writes():
    written = {path.stem: path.read_text() for path in (ROOT / "prototxt").glob("*.prototxt")}
    assert written == nets.nets()
    about = {path.stem: json.loads(path.read_text()) for path in (ROOT / "prototxt").glob("*.json")}
    assert about == nets.ABOUT


def test_there_is_a_net_and_a_solver_for_every_system():
    training = [*VGG_8S, "ccnn_tags_32s", *CONV5, *CONV4, *LARGE_FIELD, *CLASSIFIERS,
                *(f"head_{system}" for system in SYSTEMS)]
    assert sorted([*training, "head_tags_paper"]) == SOLVERS
    deploy = ["trunk", "deploy_8s", "deploy_32s", "head_deploy", "largefov_deploy"]
    assert sorted(training + deploy) == sorted(path.stem for path in (ROOT / "prototxt").glob("*.prototxt"))


# The paper (sections 5 to 7) and the authors' release, in one table: what, where it is found, its value.
PAPER = [
    *[row for name in VGG_8S for row in [
        ("initial learning rate", lambda n=name: read("solvers", n).base_lr, paper.TRAINING["base_lr"]),
        ("weight decay", lambda n=name: read("solvers", n).weight_decay, 5e-7)]],
    ("learning rate for a summed loss", lambda: read("solvers", "ccnn_tags_32s").base_lr, 1e-8),
    ("loss of the 32s net is summed", lambda: settings("ccnn_tags_32s")["normalize"], False),
    *[row for name in [*VGG_8S, "ccnn_tags_32s"] for row in [
        ("decreased in steps", lambda n=name: read("solvers", n).lr_policy, "step"),
        ("by a factor of 0.1", lambda n=name: read("solvers", n).gamma, paper.TRAINING["gamma"]),
        ("every 20000 iterations", lambda n=name: read("solvers", n).stepsize, paper.TRAINING["stepsize"]),
        ("train for 60000 iterations", lambda n=name: read("solvers", n).max_iter, paper.TRAINING["max_iter"]),
        ("momentum", lambda n=name: read("solvers", n).momentum, paper.TRAINING["momentum"]),
        ("SGD", lambda n=name: read("solvers", n).type, "SGD"),
        ("batch size", lambda n=name: read("solvers", n).iter_size, paper.TRAINING["iter_size"]),
        ("10,582 training images", lambda n=name: settings(n, "data")["split"], "train_aug"),
        ("21 outputs", lambda n=name: conv(n, "fc8"), {"outputs": 21, "kernel": [1], "pad": [], "dilation": []}),
        ("last layer Gaussian", lambda n=name: layer(n, "fc8").convolution_param.weight_filler.type, "gaussian"),
        ("its deviation", lambda n=name: layer(n, "fc8").convolution_param.weight_filler.std, 0.01),
        ("dropout after fc6", lambda n=name: layer(n, "drop6").dropout_param.dropout_ratio, 0.5),
        ("dropout after fc7", lambda n=name: layer(n, "drop7").dropout_param.dropout_ratio, 0.5)]],
    *[row for name in [*VGG_8S, "deploy_8s"] for row in [
        *[(f"pool{k} halves", lambda n=name, k=k: pool(n, f"pool{k}"), (3, 2, 1)) for k in (1, 2, 3)],
        *[(f"pool{k} keeps the size", lambda n=name, k=k: pool(n, f"pool{k}"), (3, 1, 1)) for k in (4, 5)],
        *[(f"conv5_{k} is dilated", lambda n=name, k=k: conv(n, f"conv5_{k}"),
           {"outputs": 512, "kernel": [3], "pad": [2], "dilation": [2]}) for k in (1, 2, 3)],
        ("fc6 is 4x4, dilated", lambda n=name: conv(n, "fc6"),
         {"outputs": 4096, "kernel": [4], "pad": [6], "dilation": [4]}),
        ("fc7 is 1x1", lambda n=name: conv(n, "fc7"), {"outputs": 4096, "kernel": [1], "pad": [], "dilation": []})]],
    *[row for name in ["ccnn_tags", "ccnn_crops", "ccnn_semi", "ccnn_tags_32s", "head_tags", "demo_tags"] for row in [
        ("a_l", lambda n=name: settings(n)["fg_lower"], paper.TAG_BOUNDS["fg_lower"]),
        ("the price of slack, beta", lambda n=name: settings(n)["fg_beta"], paper.TAG_BOUNDS["fg_beta"]),
        ("a_0", lambda n=name: settings(n)["bg_lower"], paper.TAG_BOUNDS["bg_lower"]),
        ("b_0", lambda n=name: settings(n)["bg_upper"], paper.TAG_BOUNDS["bg_upper"])]],
    *[row for name in ["ccnn_shares", "head_shares", "conv5_shares", "demo_shares"] for row in [
        ("a_l", lambda n=name: settings(n)["fg_lower"], paper.TAG_BOUNDS["fg_lower"]),
        ("the price of slack, beta", lambda n=name: settings(n)["fg_beta"], paper.TAG_BOUNDS["fg_beta"])]],
    *[row for name in ["ccnn_size", "head_size", "conv5_size", "demo_size"] for row in [
        ("large classes: a_l", lambda n=name: settings(n)["fg_lower"], paper.SIZE_BOUNDS["fg_lower"]),
        ("which is hard", lambda n=name: float(settings(n)["fg_beta"]), math.inf),
        ("small classes: b_l; a deviation, which the README states, where the trunk is frozen",
         lambda n=name: settings(n)["small_upper"],
         0.1 if name in ("head_size", "conv5_size") else paper.SIZE_BOUNDS["small_upper"]),
        ("a_0 (supplement, III)", lambda n=name: settings(n)["bg_lower"], paper.SIZE_BOUNDS["bg_lower"]),
        ("b_0", lambda n=name: settings(n)["bg_upper"], paper.SIZE_BOUNDS["bg_upper"])]],
    *[row for name in ["ccnn_boxes", "head_boxes"] for row in [
        ("three quarters of a box", lambda n=name: settings(n)["fraction"], paper.BOX_BOUNDS["fraction"]),
        ("at a price", lambda n=name: settings(n)["beta"], 10)]],
    *[("random crops", lambda n=name: settings(n, "data")["crop"], 321) for name in ["ccnn_crops", "em_adapt_crops"]],
    ("momentum of the paper's schedule on features", lambda: read("solvers", "head_tags_paper").momentum,
     paper.TRAINING["momentum"]),
    ("its batch size", lambda: read("solvers", "head_tags_paper").iter_size, paper.TRAINING["iter_size"]),
]


def test_the_papers_numbers():
    for what, found, value in PAPER:
        found = found()
        assert found == (pytest.approx(value) if isinstance(value, float) else value), what


def test_weights_decay_and_biases_learn_twice_as_fast():
    for path in (ROOT / "prototxt").glob("*.prototxt"):
        for l in read("prototxt", path.stem).layer:
            if l.type == "Convolution":
                frozen = l.name == "fc8_image" and path.stem in ("head_em_adapt", "head_em_adapt_crops", "head_mil_fcn")
                fast = 10 if path.stem.startswith("largefov") and l.name in ("fov", "fc8") else 1
                rates = [(0, 0), (0, 0)] if frozen else [(fast, 1), (2 * fast, 0)]
                assert [(p.lr_mult, p.decay_mult) for p in l.param] == rates, (path, l.name)


def made(path, text):
    """A net of this text, its weights random."""
    path.write_text(text)
    return caffe.Net(str(path), caffe.TEST)


@pytest.mark.parametrize("kernel, cells", [(3, score_size), (2, VGG16.cells)])
def test_stride_8(tmp_path, kernel, cells):
    net = made(tmp_path / "net.prototxt", nets.input_layer("data", 1, 3, 9, 9) + nets.vgg16(kernel=kernel))
    for size in (321, 320, 314, 313, 224, 500, 33, 9, 1):
        net.blobs["data"].reshape(1, 3, size, 2 * size)
        net.reshape()
        assert net.blobs["conv5_3"].data.shape == (1, 512, cells(size), cells(2 * size))
    assert score_size(321) == 41 and VGG16.cells(224) == 29


def test_the_frozen_trunk_has_vggs_own_features(tmp_path):
    """VGG-16 as published, on the image moved by 8 k pixels, gives every second cell of the trunk's map."""
    rng = np.random.default_rng(0)
    trunk = caffe.Net(str(ROOT / "prototxt/trunk.prototxt"), caffe.TEST)
    own = made(tmp_path / "own.prototxt", nets.input_layer("data", 1, 3, 224, 224) + nets.vgg16(32, kernel=2))
    for name, blobs in trunk.params.items():
        for mine, theirs in zip(blobs, own.params[name]):
            theirs.data[...] = mine.data
    image = rng.normal(scale=50, size=(3, 240, 240)).astype(np.float32)
    trunk.blobs["data"].reshape(1, *image.shape)
    trunk.blobs["data"].data[0] = image
    trunk.forward()
    dense = trunk.blobs["conv5_3"].data[0]
    for start in (0, 8):
        own.blobs["data"].data[0] = image[:, start:start + 224, start:start + 224]
        coarse = own.forward()["conv5_3"][0]
        inside = slice(6, 8)            # away from the border, where either sees padding
        cells = slice(2 * 6 + 1 + start // 8, 2 * 8 + start // 8, 2)
        assert np.allclose(coarse[:, inside, inside], dense[:, cells, cells], rtol=1e-3, atol=1e-3 * coarse.max())


def test_a_cell_of_pool4_lies_between_two_of_pool3(tmp_path):
    """It is the maximum of the cells j - 1 and j. So pool3 has one fewer, and mirrored it gives pool4 mirrored."""
    rows, columns = 5, 7
    net = made(tmp_path / "net.prototxt", nets.input_layer("pool3", 1, 256, rows, columns) + nets.backbone_layers(4))
    x = np.random.default_rng(0).exponential(size=(512, rows, columns)).astype(np.float32)

    def pool4(conv4):
        net.blobs["conv4_3"].data[0] = conv4
        return net.forward(start="pool4", end="pool4")["pool4"][0].copy()
    found = pool4(x)
    assert found.shape == (512, rows + 1, columns + 1) == (512, *net.blobs["features"].data.shape[2:])
    for j in range(rows + 1):
        for k in range(columns + 1):
            window = x[:, max(j - 1, 0):j + 1, max(k - 1, 0):k + 1]
            assert np.array_equal(found[:, j, k], window.max(axis=(1, 2)))
    assert np.array_equal(pool4(x[:, :, ::-1]), found[:, :, ::-1])


def test_scores_lie_on_the_grid_of_the_features(tmp_path):
    assert score_grid(ROOT / "prototxt/head_deploy.prototxt") == (VGG16.stride, VGG16.offset)
    net = caffe.Net(str(ROOT / "prototxt/head_deploy.prototxt"), caffe.TEST)
    assert net.blobs["fc8"].data.shape == (1, 21, 29, 29)
    net = caffe.Net(str(ROOT / "prototxt/deploy_8s.prototxt"), caffe.TEST)
    assert net.blobs["fc8"].data.shape == (1, 21, 41, 41)
    net = caffe.Net(str(ROOT / "prototxt/deploy_32s.prototxt"), caffe.TEST)
    assert net.blobs["fc8"].data.shape == (1, 21, 11, 11)
    net = made(tmp_path / "net.prototxt", nets.demo_nets()["demo_deploy"])
    assert net.blobs["fc8"].data.shape == (1, 6, score_size(120, 4), score_size(160, 4))


@pytest.mark.parametrize("cells_only", [False, True])
def test_the_head_is_linear_in_the_cell_and_the_image(tmp_path, cells_only):
    shape = 2, 6, 5, 4                  # two images of 6 channels
    net = made(tmp_path / "net.prototxt", nets.input_layer("features", *shape) + nets.head(3, cells_only))
    (W, w), (V, v) = ([blob.data for blob in net.params[name]] for name in ("fc8_cell", "fc8_image"))
    assert W.std() > 0 and (V.std() == 0) == cells_only
    w[...], v[...] = (1, 2, 3), 0 if cells_only else (10, 20, 30)
    x = np.random.default_rng(0).normal(size=shape)
    net.blobs["features"].data[...] = x
    scores = net.forward()["fc8"]
    cells = np.einsum("lc,ncyx->nlyx", W[..., 0, 0], x) + w[:, None, None]
    context = x.mean(axis=(2, 3)) @ V[..., 0, 0].T + v
    assert np.allclose(scores, cells + context[..., None, None], atol=1e-4)


@pytest.mark.parametrize("shape", [(29, 29), (29, 22), (23, 29), (9, 12), (3, 1)])
def test_coarse_features_are_those_of_every_fourth_cell(tmp_path, shape):
    """At stride 32 the scores are those at stride 8 of every fourth row and column, whatever the size."""
    text = nets.input_layer("features", 2, 6, *shape)
    fine = made(tmp_path / "fine.prototxt", text + nets.head(3, cells_only=True))
    coarse = made(tmp_path / "coarse.prototxt",
                  text + nets.coarse_features(4) + nets.head(3, cells_only=True, bottom="coarse"))
    x = np.random.default_rng(0).normal(size=(2, 6, *shape))
    for net in (fine, coarse):
        net.blobs["features"].data[...] = x
    coarse.share_with(fine)
    found = coarse.forward()["fc8"]
    assert found.std() > 0
    np.testing.assert_allclose(found, fine.forward()["fc8"][:, :, ::4, ::4], atol=1e-6)
    np.testing.assert_allclose(coarse.blobs["image"].data[..., 0, 0], x[:, :, ::4, ::4].mean(axis=(2, 3)), atol=1e-5)


def classifier_problem(folder, shape=(30, 6, 3, 4), labels=4):
    """A net of the tag classifier on images whose tags are linear in the mean of their features, and the tags."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    x += 2 * rng.normal(size=(*shape[:2], 1, 1)).astype(np.float32)
    tags = (x.mean(axis=(2, 3)) @ rng.normal(size=(shape[1], labels)) > 0.3).astype(np.float32)
    tags[:, 0] = 1
    (folder / "net.prototxt").write_text(
        nets.input_layer("features", *shape) + nets.input_layer("tags", shape[0], labels).replace('"data"', '"more"')
        + nets.tag_classifier("fc8_cell", "features", labels))
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" base_lr: 1 lr_policy: "fixed" weight_decay: 0 random_seed: 1 snapshot: 0')
    solver = caffe.get_solver(str(folder / "solver.prototxt"))
    solver.net.blobs["features"].data[...], solver.net.blobs["tags"].data[...] = x, tags
    return solver, x, tags


def test_the_tag_classifier_learns_the_tags_and_leaves_the_background_alone(tmp_path):
    solver, x, tags = classifier_problem(tmp_path)
    W, w = (blob.data for blob in solver.net.params["fc8_cell"])
    assert not W.any() and not w.any()
    solver.step(1)
    first = solver.net.blobs["loss"].data.item()
    classes = tags.shape[1] - 1
    assert first == pytest.approx(classes * np.log(2), rel=1e-5)          # the sum over classes, the mean over images
    solver.step(300)
    assert solver.net.forward()["loss"].item() < 0.3 * first
    assert not W[0].any() and w[0] == 0 and W[1:].any(axis=1).all()
    scores = x.mean(axis=(2, 3)) @ W[..., 0, 0].T + w
    assert ((scores > 0) == tags)[:, 1:].mean() > 0.95 and (tags[:, 1:].mean(axis=0) < 0.8).all()

    # a head that starts with it scores cells as it scored images, and its image layer adds nothing
    solver.net.save(str(tmp_path / "classifier.caffemodel"))
    head = made(tmp_path / "head.prototxt", nets.input_layer("features", *x.shape) + nets.head(4, cells_only=True))
    head.copy_from(str(tmp_path / "classifier.caffemodel"))
    head.blobs["features"].data[...] = x
    cells = np.einsum("lc,ncyx->nlyx", W[..., 0, 0], x) + w[:, None, None]
    np.testing.assert_allclose(head.forward()["fc8"], cells, atol=1e-4)


def test_a_head_starts_from_the_classifier_by_caffe_train(tmp_path, caffe_bin):
    """As the solvers say it: caffe train -solver ... -weights ...; with a rate of 0 the weights stay what they were."""
    solver, x, tags = classifier_problem(tmp_path)
    solver.step(20)
    solver.net.save(str(tmp_path / "classifier.caffemodel"))
    started = caffe_files.read_caffemodel(tmp_path / "classifier.caffemodel")["fc8_cell"]
    (tmp_path / "head.prototxt").write_text("""
layer { name: "data" type: "DummyData" top: "features" top: "tags"
  dummy_data_param { shape { dim: 1 dim: 6 dim: 3 dim: 4 } shape { dim: 1 dim: 4 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
""" + nets.trained_head("mil_fcn", labels=4))
    (tmp_path / "head_solver.prototxt").write_text(
        f'net: "{tmp_path}/head.prototxt" base_lr: 0 lr_policy: "fixed" max_iter: 1 snapshot: 1 '
        f'snapshot_prefix: "{tmp_path}/head"')
    subprocess.run([caffe_bin, "train", "-solver", str(tmp_path / "head_solver.prototxt"),
                    "-weights", str(tmp_path / "classifier.caffemodel")], check=True, capture_output=True)
    trained = caffe_files.read_caffemodel(tmp_path / "head_iter_1.caffemodel")
    assert started[0].std() > 0.01
    for mine, its in zip(trained["fc8_cell"], started):
        assert np.array_equal(mine, its)
    assert not trained["fc8_image"][0].any()


def test_features_are_roots_and_their_means_around(tmp_path):
    """With zeros beyond the border, as in VGG-16's own layers."""
    net = made(tmp_path / "net.prototxt", nets.input_layer("conv5_3", 1, 2, 12, 11) + nets.features())
    x = np.random.default_rng(0).exponential(size=(2, 12, 11))
    net.blobs["conv5_3"].data[0] = x
    found = net.forward()["features"][0]
    roots = np.sqrt(x + 0.01)
    padded = np.pad(roots, ((0, 0), (4, 4), (4, 4)))
    means = np.lib.stride_tricks.sliding_window_view(padded, (9, 9), axis=(1, 2)).mean(axis=(3, 4))
    assert np.allclose(found, np.concatenate([roots, means]), atol=1e-5)


def test_training_and_deploy_nets_have_the_same_layers():
    def shapes(name):
        return weights.convolutions(ROOT / "prototxt" / f"{name}.prototxt")
    vgg = shapes("deploy_8s")
    assert list(vgg) == VGG_LAYERS
    assert vgg["conv1_1"] == (64, 3, 3, 3) and vgg["fc6"] == (4096, 512, 4, 4)
    assert all(shapes(name) == vgg for name in VGG_8S)
    assert shapes("ccnn_tags_32s") == shapes("deploy_32s")
    assert shapes("deploy_32s")["fc6"] == (4096, 512, 7, 7)
    assert shapes("trunk") == {name: vgg[name] for name in VGG_LAYERS[:13]}
    for system in SYSTEMS:
        assert shapes("head_deploy") == {**shapes("trunk"), **shapes(f"head_{system}")}
        names = {l.name for l in read("prototxt", f"head_{system}").layer}
        assert not names & set(VGG_LAYERS)                               # VGG's fc6 must not load into a head
    for first, names in ((10, CONV5), (7, CONV4)):
        last_blocks = {name: vgg[name] for name in VGG_LAYERS[first:13]}
        assert all(shapes(name) == {**last_blocks, **shapes("head_tags")} for name in names)
    assert shapes("classifier") == vgg                                   # a start for all of them
    assert shapes("head_classifier") == {"fc8_cell": shapes("head_tags")["fc8_cell"]}


def test_only_some_systems_see_crops_masks_or_shares():
    """Each net tells its data layer what its system may see, and no more."""
    for prefix in ("head_", "demo_"):
        seen = {system: {"crop", "supervised", "shares"}.intersection(settings(f"{prefix}{system}", "data"))
                for system in SYSTEMS}
        assert {system: keys for system, keys in seen.items() if keys} == {
            "shares": {"shares"}, "crops": {"crop"}, "em_adapt_crops": {"crop"}, "semi": {"supervised"}}


@pytest.mark.parametrize("page, changes", [
    ("docs/photographs.md", RECIPE.bounds), ("demo/templates/demo.html", {"tags": {}, "size": {}})])
def test_pages_tell_the_bounds_that_the_nets_have(page, changes):
    """Where a page says how much background there may be, it says what we train with."""
    words = " ".join((ROOT / page).read_text().split())
    told = re.findall(r"background (?:of )?(\d+) to (\d+) %(?: \((\d+) to (\d+) %)?", words)
    tags, size = ((f"{100 * settings['bg_lower']:.0f}", f"{100 * settings['bg_upper']:.0f}")
                  for settings in ({**nets.TAG_SETTINGS, **changes["tags"]}, {**nets.SIZE_SETTINGS, **changes["size"]}))
    assert all(numbers[:2] == tags and numbers[2:] in (size, ("", "")) for numbers in told)
