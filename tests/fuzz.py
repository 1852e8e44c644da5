"""A mutation fuzzer over everything that reads what comes from elsewhere.

    python tests/fuzz.py --count 1000000 --seed 1       # prints what was found, the count and the peak memory

Each reader has small good inputs. A case is one of them, damaged in one to four ways: bits, cuts, repeats, odd numbers,
odd words, and in JSON odd values anywhere. A reader may take it, or say in one line what is wrong; any other exception,
a text of several lines, or more than a few seconds is a find. The same seed gives the same cases.
"""
import argparse
import contextlib
import io
import json
import logging
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image, PngImagePlugin

from ccnn._util import settings
from ccnn._util.errors import UserError
from ccnn._util.files import digest
from ccnn.annotations import label_studio
from ccnn.annotations.export_formats import FORMATS
from ccnn.annotations.import_formats import draw, read_masks, read_source
from ccnn.annotations.table_editor import TagFile
from ccnn.annotations.tags import read_tags
from ccnn.annotations.voc_boxes import read_boxes
from ccnn.crf.presets import load_preset
from ccnn.data.background_shares import read_shares
from ccnn.evaluation.mask_runs import read_result
from ccnn.images import masks
from ccnn.images.formats import suffix_of
from ccnn.images.ids import read_list
from ccnn.images.labels import read_classes
from ccnn.images.reading import MEAN_BGR, read_image, read_mask, upright_shape
from ccnn.inference.model_file import MEMBERS, check_about, read_model
from ccnn.inference.predict import read_about
from ccnn.inference.probabilities import names_of, read_probabilities
from ccnn.nets import caffe_files
from ccnn.nets.backbones import VGG16
from ccnn.nets.weights import why_unfit
from ccnn.project.feature_cache import remove_stale
from ccnn.project.learn import Project
from ccnn.supervision.marks import Scribbles
from ccnn.supervision.rules_file import read_rules
from ccnn.training.caffe_log import read_log
from ccnn.training.features import check_index, is_whole

CLASSES = ("background", "cat", "dog")

SECONDS = 5             # of the processor, for one small input

LONGEST = 20_000        # characters of a message


# Good inputs

def picture(format, mode="RGB", size=(20, 14), **options):
    values = np.arange(size[0] * size[1] * 3).reshape(size[1], size[0], 3) * 7 % 251
    image = Image.fromarray(values.astype(np.uint8))
    image = Image.fromarray(values[..., 0].astype(np.uint16) * 200) if mode == "I;16" else image.convert(mode)
    data = io.BytesIO()
    image.save(data, format, **options)
    return data.getvalue()


def exif():
    found = Image.Exif()
    found[0x0112], found[0x010F], found[0x0132] = 6, "maker", "2026:01:01 00:00:00"
    return found.tobytes()


def marked(labels=(0, 1, 2, 255), **texts):
    mask = np.resize(np.array(labels, np.uint8), (14, 20))
    info, data = PngImagePlugin.PngInfo(), io.BytesIO()
    for key, text in texts.items():
        info.add_text(key, text)
    image = Image.fromarray(mask)
    image.putpalette(bytes(range(256)) * 3)
    image.save(data, "PNG", pnginfo=info)
    return data.getvalue()


def painted():
    rgba = np.zeros((14, 20, 4), np.uint8)
    rgba[3:6] = 255, 0, 0, 255
    data = io.BytesIO()
    Image.fromarray(rgba).save(data, "PNG")
    return data.getvalue()


NET = b"""name: "n"
layer { name: "data"  type: "Input"  top: "data"  input_param { shape { dim: 1  dim: 3  dim: 33  dim: 33 } } }
layer { name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
        convolution_param { num_output: 3  kernel_size: 1  stride: 8  pad: 0  weight_filler { type: "msra" } } }
"""

SOLVER = b"""net: "train.prototxt"  base_lr: 1e-6  lr_policy: "fixed"  max_iter: 20  display: 1
snapshot: 10  snapshot_prefix: "out/tiny"  iter_size: 2  momentum: 0.9  stepvalue: 5  stepvalue: 7
"""

ABOUT = json.dumps({"format": 1, "classes": list(CLASSES), "size": [224, 321], "mean": list(MEAN_BGR), "trunk": None,
                    "ccnn": "3.0", "settings": {"supervision": "tags", "crf": "heads", "bounds": {"cat": 0.1}},
                    "training": {"photographs": 3, "tags": {"cat": 2}, "iterations": 5, "date": "2026-01-01"},
                    "scores": {"iou": 0.5}}).encode()

COCO = json.dumps({"images": [{"id": 1, "file_name": "a.jpg", "height": 14, "width": 20}],
                   "categories": [{"id": 1, "name": "cat"}],
                   "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 5, 6], "area": 30}]
                   }).encode()

STUDIO = json.dumps([{"id": 1, "data": {"image": "/data/a.jpg"}, "annotations": [{"was_cancelled": False, "result": [
    {"type": "rectanglelabels", "value": {"x": 1, "y": 2, "width": 30, "height": 40, "rotation": 0,
                                          "rectanglelabels": ["cat"]}},
    {"type": "choices", "value": {"choices": ["dog"]}}]}]}]).encode()

STUDIO_MIN = json.dumps([{"id": 1, "image": "/data/upload/a.jpg", "choice": "cat"},
                         {"id": 2, "image": "b.jpg", "choice": {"choices": ["cat", "dog"]}},
                         {"id": 3, "image": "c.jpg", "label": [{"x": 1, "y": 2, "width": 3, "height": 4,
                                                                "rectanglelabels": ["dog"]}]}]).encode()

VOC = b"""<annotation><filename>a.jpg</filename><size><width>20</width><height>14</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax>
<ymax>8</ymax></bndbox></object></annotation>"""

CVAT = b"""<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version>
<image id="0" name="a.jpg" width="20" height="14"><box label="cat" xtl="1.0" ytl="2" xbr="9" ybr="8"></box>
<tag label="dog"></tag><polygon label="cat" points="1,1;2,2;3,1"></polygon></image></annotations>"""

TABLES = [b"image,tags,large\na.jpg,cat;dog,cat\nb.jpg,,\n", b"sep=;\r\nimage;cat;dog\r\na.jpg;1;0\r\nb.jpg;0;1\r\n",
          b"filename\tlabel\na.jpg\tcat\na.jpg\tdog\n", b"a.jpg,cat dog\nb.jpg,\n",
          "\ufeffimage,tags\nstra\u00dfe.jpg,cat\n".encode(), "image,tags\na.jpg,cat\n".encode("utf-16")]

RULES = b"""[cat]
least = 0.1
most = 0.5
touches = ["lower", "left"]
share = 0.2
price = 2.0
[dog]
most = 0.5
[[rule]]
larger = ["cat", "dog"]
price = 1
[[rule]]
together = ["cat", "dog"]
least = 0.1
[scribbles]
folder = "scribbles"
colours = { cat = "#ff0000", dog = "#00ff00" }
"""

STATE = json.dumps({"inputs": {"classes": list(CLASSES), "tags": {"a.jpg": ["cat"]}, "large": {}, "constraints": None,
                               "photographs": {"a.jpg": "0" * 64}, "scribbles": {}, "settings": {"steps": 1, "seed": 0},
                               "trunk": "1" * 64, "weights": "2" * 64},
                    "weights": "runs/0123456789abcdef/second_iter_10.caffemodel", "steps": [5, 5], "model": "3" * 64,
                    "report": "plain", "scores": None}).encode()

LOG = b"".join(b"I1116 12:00:%02d.000000  1234 solver.cpp:239] Iteration %d (9.1 iter/s, 1.1s/10 iters), loss = %.1f\n"
               b"I1116 12:00:%02d.000000  1234 solver.cpp:105] Iteration %d, lr = 1e-06\n" % (k, k, 5 - k, k, k)
               for k in range(4))

PRESET = json.dumps({"preset": {"gaussian_xy": 3, "gaussian_weight": 3, "bilateral_xy": 60, "bilateral_rgb": 20,
                                "bilateral_weight": 10, "iterations": 2, "normalization": "after", "long_side": 0,
                                "keep": 0.5}, "miou": 50.0}).encode()

RESULT = json.dumps({"split": "val", "images": 3, "classes": ["a", "b"], "rows": [
    {"name": "x", "split": "val", "crf": False, "miou": 50.0, "iou": [50.0, 50.0],
     "confusion": [[1, 2], [3, 4]]}]}).encode()


def weights():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.caffemodel"
        caffe_files.write_caffemodel(path, {"fc8": [np.ones((3, 3, 1, 1), "f4"), np.ones(3, "f4")]})
        return path.read_bytes()


def solver_state():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.solverstate"
        caffe_files.write_state(path, caffe_files.TrainingState(5, "w.caffemodel", [np.ones((2, 3), "f4")], 1))
        return path.read_bytes()


def model(members=None):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in zip(MEMBERS, members or (NET, weights(), ABOUT)):
            archive.writestr(name, content)
    return data.getvalue()


def probabilities():
    data = io.BytesIO()
    p = np.full((3, 4, 5), 1 / 3)
    np.savez(data, probabilities=p.astype(np.float16), classes=list(CLASSES), crf="")
    return data.getvalue()


def npy():
    data = io.BytesIO()
    np.save(data, np.ones((4, 2, 3), np.float16))
    return data.getvalue()


def labels_of(format):
    """What ccnn convert writes of a mask."""
    mask = np.zeros((14, 20), np.uint8)
    mask[2:9, 3:12], mask[4:6, 5:8], mask[8:, 15:] = 1, 0, 2
    described = [("a.jpg", FORMATS[format].describe("a.jpg", mask, CLASSES))]
    files = dict(FORMATS[format].files(described, CLASSES))
    return next(files[name] for name in ("tasks.json", "labels/a.txt", "a.json", FORMATS[format].file) if name in files)


YAML = [b'path: .\nnames:\n  0: cat\n  1: "polar bear"\n', b"names: [cat, 'dog']\nnc: 2\n",
        b"names:\n- cat\n- dog # two\n"]


# Readers: path -> anything

def read_scribble(path, colours=None):
    Scribbles(str(path.parent), CLASSES, colours).read(path.stem)


def read_rules_file(path):
    (path.parent / "scribbles").mkdir(exist_ok=True)
    read_rules(path, CLASSES)


def read_mask_texts(path):
    masks.mask_settings(path)
    masks.mask_classes(path)
    masks.is_made_of(path, path)


def read_label_masks(path):
    read_source(path)
    try:
        source = read_masks(path)
    except UserError as error:
        if "says nothing of pixels" in str(error):
            return                      # tags or boxes alone: read_source has taken them
        raise
    for photograph in source.photographs:
        if photograph.shape is None or photograph.shape[0] * photograph.shape[1] < 1 << 20:
            draw(source, photograph, photograph.shape or (14, 20))


def read_yolo(path):
    """Names or labels: the other is whole."""
    (path.parent / "labels").mkdir(exist_ok=True)
    (path.parent / "data.yaml").write_bytes(path.read_bytes() if b"names" in path.read_bytes()[:200] else YAML[0])
    (path.parent / "labels/a.txt").write_bytes(labels_of("yolo") if b"names" in path.read_bytes()[:200] else
                                               path.read_bytes())
    read_label_masks(path.parent)


def read_tag_file(path):
    table = TagFile(path, CLASSES)
    for name in list(table.tags):
        table.put(name, ("dog",), ())
    table.write()
    read_tags(path, CLASSES)


def read_weights(path):
    caffe_files.stored_layers(path)
    caffe_files.read_caffemodel(path)
    net = path.with_name("net.prototxt")
    net.write_bytes(NET)
    why_unfit(net, [path])


def read_model_state(path):
    Project.read_state(SimpleNamespace(work=path.parent, inputs=json.loads(STATE)["inputs"]))


def read_index(path):
    remove_stale(path.parent, {"a": "1"}, ["b"])


def read_features_index(path):
    check_index(VGG16, path.parent, 224, VGG16.net)


def read_param_str(path):
    with contextlib.suppress(UnicodeDecodeError):
        table = {"fg_lower": settings.Setting(settings.NUMBER, 0.05, "a bound")}
        settings.read_settings(path.read_bytes().decode(), table)


def read_body(path):
    """Every shape of a request, as the studio's routes read them."""
    from starlette.requests import Request

    from ccnn.studio import requests
    data = path.read_bytes()

    async def receive():
        return {"type": "http.request", "body": data, "more_body": False}

    def value():
        request = Request({"type": "http", "method": "POST", "path": "/", "query_string": data[:200], "headers": [
            (b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]}, receive)
        for ask in (requests.side, requests.file_name, requests.photograph_name,
                    lambda request: requests.query_number(request, "label", 9)):
            with contextlib.suppress(requests.Wrong):
                ask(request)
        reading = requests.read_json(request)
        try:
            reading.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits for more")
    try:
        found = value()
        for check in (lambda: requests.changes(found, CLASSES), lambda: requests.strokes(found.get("strokes"), CLASSES),
                      lambda: requests.bounds(found.get("bounds"), 3), lambda: requests.text(found.get("add"), "add"),
                      lambda: requests.whole(found.get("revision"), "revision")):
            with contextlib.suppress(requests.Wrong):
                check()
    except requests.Wrong as wrong:
        raise UserError(wrong) if "\n" not in str(wrong) else wrong from None


def read_interface(path):
    """The labelling interface of a project, as ccnn serve reads it."""
    from ccnn.serving.server import Interface
    from ccnn.studio.requests import Wrong
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        Interface(text).results(label_studio.brushes(np.eye(9, dtype=np.uint8), CLASSES))
    except Wrong as wrong:
        raise UserError(wrong) if "\n" not in str(wrong) else wrong from None


BODIES = [{"changes": [{"number": 0, "revision": 1, "tags": [1, 2], "large": [1]},
                       {"number": 1, "revision": 0, "tags": None}]},
          {"revision": 1, "strokes": [{"label": 1, "radius": 0.1, "points": [[0.1, 0.2], [0.5, 0.5]]}]},
          {"bounds": {"0": [0.1, None], "2": [None, 0.5]}}, {"add": "bird"}, {"rename": "cat", "to": "lion"}]

# name: (reader, file name, [good input], how many of a hundred cases are odd JSON rather than odd bytes)
READERS = {
    "photograph": (lambda path: (read_image(path), upright_shape(path), suffix_of(path), read_image(path, 8)), "a.jpg",
                   [picture("JPEG", exif=exif()), picture("JPEG", "L"), picture("JPEG", "CMYK"), picture("PNG"),
                    picture("PNG", "I;16"), picture("PNG", "P"), picture("PNG", "LA"), picture("WEBP"),
                    picture("GIF", "P"), picture("TIFF"), picture("TIFF", "I;16", compression="tiff_lzw"),
                    picture("TIFF", "1", compression="group4"), picture("BMP")], 0),
    "mask": (lambda path: read_mask(path, 3), "a.png", [marked(), marked((0, 1))], 0),
    "mask's texts": (read_mask_texts, "a.png", [marked(settings='{"crf": [1, 2.5, null]}', source='"00ff"',
                                                       classes='["background", "cat"]')], 0),
    "scribble": (read_scribble, "a.png", [marked()], 0),
    "painted scribble": (lambda path: read_scribble(path, {"cat": "#ff0000", "dog": "#00ff00"}), "a.png",
                         [painted()], 0),
    "model": (read_model, "a.ccnn", [model()], 0),
    "model.json": (lambda path: check_about(path.read_bytes(), path), "model.json", [ABOUT], 70),
    "about": (lambda path: read_about(path, path), "net.json",
              [b'{"size": [224, 321], "classes": ["background", "cat"]}'], 50),
    "weights": (read_weights, "w.caffemodel", [weights()], 0),
    "solverstate": (caffe_files.read_state, "s.solverstate", [solver_state()], 0),
    "net": (caffe_files.read_net, "n.prototxt", [NET], 0),
    "solver": (caffe_files.read_solver, "s.prototxt", [SOLVER], 0),
    "tags.csv": (read_tag_file, "tags.csv", TABLES, 0),
    "table": (lambda path: read_source(path, CLASSES), "t.csv", TABLES, 0),
    "classes.txt": (read_classes, "classes.txt", [b"cat\ndog\n", b"background\ncat\n"], 0),
    "constraints.toml": (read_rules_file, "constraints.toml", [RULES], 0),
    "COCO": (read_label_masks, "c.json", [COCO, labels_of("coco"), labels_of("coco-polygons")], 70),
    "Label Studio": (read_label_masks, "l.json", [STUDIO, STUDIO_MIN, labels_of("label-studio"),
                                                  labels_of("label-studio-polygons")], 70),
    "YOLO": (read_yolo, "either.txt", [*YAML, labels_of("yolo"), b"0 0.5 0.5 0.2 0.3\n"], 0),
    "LabelMe": (read_label_masks, "a.json", [labels_of("labelme")], 70),
    "VOC XML": (lambda path: (read_source(path), read_boxes(path, CLASSES, "skip")), "v.xml", [VOC], 0),
    "CVAT": (read_label_masks, "annotations.xml", [CVAT, labels_of("cvat"), labels_of("cvat-polygons")], 0),
    "state.json": (read_model_state, "state.json", [STATE], 70),
    "photographs.json": (read_index, "photographs.json", [b'{"a": "1", "b": "2"}'], 50),
    "index.json": (read_features_index, "index.json", [json.dumps(dict(size=224, weights=digest(VGG16.net),
                                                                          trunk=digest(VGG16.net))).encode()], 50),
    "features": (lambda path: is_whole(path, (4, 2, 3)), "a.npy", [npy()], 0),
    "probabilities": (lambda path: (read_probabilities(path), names_of(path)), "a.npz", [probabilities()], 0),
    "shares": (lambda path: read_shares(path, ["a"]), "shares.csv", [b"a,0.5\nb,0.25\n"], 0),
    "list": (read_list, "val.txt", [b"2007_000001\n2007_000002\n"], 0),
    "preset": (lambda path: load_preset(str(path)), "p.json", [PRESET], 70),
    "result": (read_result, "r.json", [RESULT], 70),
    "log": (read_log, "train.log", [LOG], 0),
    "param_str": (read_param_str, "p.json", [b'{"fg_lower": 0.05}'], 50),
    "labelling interface": (read_interface, "config.xml", [label_studio.config("BrushLabels", CLASSES), b"""
<View><Header value="x"/><PolygonLabels name="l" toName="i"><Label value="cat"/></PolygonLabels>
<Image name="i" value="$image"/></View>"""], 0),
    "request": (read_body, "body.json", [json.dumps(body).encode() for body in BODIES], 80),
}


# Damage

TOKEN = re.compile(rb'[-\w.]+|"[^"]*"')

NUMBERS = [0, 1, -1, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]

WORDS = [b"", b"0", b"-1", b"1.5", b"1e999", b"-1e-999", b"nan", b"inf", b"NaN", b"99999999999", b"9" * 400, b"null",
         b"true", b"{}", b"[]", b'"', b"'", b"[" * 2000, b"{" * 2000, b'{"":' * 500, b"\0", b"\xff\xfe", b"\n", b"\r",
         b"\xef\xbb\xbf", b";", b",", b"\t", b"=", b"#", b"<", b">", b"&amp;", b"&x;", b"]]>", b"<!DOCTYPE a>",
         b"\\u0000", b"\\ud800", "\u202e\u0130\ufdfa".encode(), b"%", b"../", b"/etc/passwd", b"\x1b[31m", b"a" * 3000,
         b"background"]

ODD = [None, True, 0, -1, 1.5, 1e308, -1e-308, 2**53, 2**64, 10**30, "", "cat", "x" * 300, "\ud800", "\x1b[31m", [], {},
       [None], [[]], {"": None}, {"cat": None}, [1.5], float("nan"), float("inf"), "0", "a.jpg", ["cat", "cat"]]


def damaged(data, rng):
    """Bytes, damaged in one way."""
    data = bytearray(data)
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(9)
    if kind == 0 and data:
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at:at + rng.choice([1, 2, 4, 16, 100])]
    elif kind == 3:
        data[at:at] = bytes(data[at:at + rng.choice([1, 4, 30, 200])]) * rng.choice([1, 2, 20])
    elif kind == 4:
        size, order = rng.choice([1, 2, 4, 8]), rng.choice(["little", "big"])
        data[at:at + size] = (rng.choice(NUMBERS) % 256**size).to_bytes(size, order)
    elif kind == 5:
        data[at:at + rng.choice([0, 1, 4])] = rng.choice(WORDS)
    elif kind == 6:
        data[at:at + 8] = rng.randbytes(rng.choice([1, 8, 50]))
    elif kind == 7:                                             # a number, a word or a text in the place of another
        spans = [(m.start(), m.end()) for m in TOKEN.finditer(bytes(data))]
        if spans:
            start, end = rng.choice(spans)
            data[start:end] = rng.choice(WORDS)
    else:
        other = rng.randrange(len(data) + 1)
        data[at:at + 20] = data[other:other + rng.choice([5, 20, 60])]
    return bytes(data)


def odd_json(value, rng):
    """A value of JSON with something else in the place of one of its parts."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        changed = value.copy()
        what = rng.random()
        if what < 0.12:
            del changed[key]
        elif what < 0.2:
            inner = changed.pop(key)
            if isinstance(changed, dict):
                changed[rng.choice(["", "0", "x", "cat", "\ud800", str(key) * 2])] = inner
            else:
                changed += [inner, inner]
        else:
            changed[key] = odd_json(value[key], rng)
        return changed
    return rng.choice(ODD)


def case(good, json_share, rng):
    data = rng.choice(good)
    if rng.randrange(100) < json_share:
        value = json.loads(data)
        for _ in range(rng.choice([1, 1, 2, 3])):
            value = odd_json(value, rng)
        data = json.dumps(value).encode()
        return data if rng.random() < 0.9 else damaged(data, rng)
    for _ in range(rng.choice([1, 1, 2, 4])):
        data = damaged(data, rng)
    return data


def damaged_model(rng):
    """A whole zip of damaged members: a damaged zip is seldom read any further."""
    members = [NET, weights(), ABOUT]
    k = rng.randrange(3)
    members[k] = case([members[k]], 50 if k == 2 else 0, rng)
    return model(members)


# The loop

class Find(Exception):
    pass


def check(name, path, data, good=False):
    """Feed one input to a reader. Find: what it must not do; a good input it must take."""
    path.write_bytes(data)
    begin = time.process_time()
    try:
        READERS[name][0](path)
    except UserError as error:
        text = str(error)
        if good:
            raise Find(f"{name}: does not take a good input: {text}") from error
        if "\n" in text or not text or len(text) > LONGEST:
            raise Find(f"{name}: a message of {len(text)} characters in {text.count(chr(10)) + 1} lines") from error
    except Exception as error:
        raise Find(f"{name}: {type(error).__name__}: {str(error)[:200]}") from error
    if time.process_time() - begin > SECONDS:
        raise Find(f"{name}: {time.process_time() - begin:.1f} s")


def cases(name, count, seed):
    _, file, good, share = READERS[name]
    rng = random.Random(f"{name} {seed}")
    for _ in range(count):
        yield damaged_model(rng) if name == "model" and rng.random() < 0.7 else case(good, share, rng)


def fuzz(name, count, seed, folder):
    """Feed `count` inputs to one reader; stop at the first Find."""
    place = Path(folder) / "".join(filter(str.isalnum, name))
    place.mkdir(exist_ok=True)
    path = place / READERS[name][1]
    for data in READERS[name][2]:
        check(name, path, data, good=True)
    for number, data in enumerate(cases(name, count, seed)):
        try:
            check(name, path, data)
        except Find as find:
            raise Find(f"{find} (seed {seed}, case {number}: {data[:300]!r})") from find.__cause__


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=READERS, action="append")
    args = parser.parse_args()
    names, done, found, part = args.only or list(READERS), 0, 0, 0
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        while done < args.count:
            for name in names:
                size = min(500, -(-args.count // len(names)), args.count - done)
                try:
                    fuzz(name, size, f"{args.seed}.{part}", folder)
                except Find as find:
                    found += 1
                    print(f"FOUND {find}", flush=True)
                    if find.__cause__:
                        traceback.print_exception(type(find.__cause__), find.__cause__, find.__cause__.__traceback__,
                                                  limit=-4, file=sys.stdout)
                done += size
            part += 1
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{done} inputs, {found} finds, peak {peak:.0f} MB, {time.process_time():.0f} s", flush=True)
    finally:
        shutil.rmtree(folder)
    return bool(found)

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
