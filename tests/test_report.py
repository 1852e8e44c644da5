"""The report: one page that needs nothing else, tells the truth, and lets nobody's text out of its place."""
import base64
import io
import re
import shlex
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from browser import Parsed, needs_browser, overflowing
from markupsafe import escape
from PIL import Image
from skimage import data
from test_pictures import contrast

from ccnn.images.overlays import colours, thumbnail
from ccnn.project.html import TEMPLATES, nice
from ccnn.project.report import SIDES, Report, ReportEntry, Step, Tally, next_steps, write_report
from ccnn.project.report import page as report_page
from ccnn.project.results import HeldOut, scores

CLASSES = ("background", "cat", "cup", "rocket")
STYLE = (TEMPLATES / "style.css").read_text()


def photograph(name="a.jpg", tags=(1,), areas=(0.6, 0.4, 0, 0), bounds=None, doubt=0.1, picture=None):
    picture = np.full((30, 40, 3), 99, np.uint8) if picture is None else picture
    return ReportEntry(name, picture, tags, np.array(areas), bounds or {0: (0.3, 0.7), 1: (0.05, None)}, doubt)


def report(photographs=None, **changes):
    values = dict(
        title="What the model learned", classes=CLASSES, photographs=photographs or [photograph()],
        losses={k: 1 / (1 + k) for k in range(100)}, tallies=[Tally(7, 1, 0), Tally(2, 2, 3), Tally(0, 0, 0)],
        held_out="Every fifth photograph was held out.", warnings=[], steps=next_steps("photos"),
        facts={"photographs": 1})
    return Report(**{**values, **changes})


def real_photographs():
    """Photographs of scikit-image under masks drawn by hand."""
    for k, (name, rgb) in enumerate((("cat.jpg", data.chelsea()), ("cup.jpg", data.coffee()),
                                     ("rocket.jpg", data.rocket())), start=1):
        y, x = np.mgrid[:rgb.shape[0], :rgb.shape[1]]
        mask = k * ((y - rgb.shape[0] / 2)**2 + (x - rgb.shape[1] / 2)**2 < 120**2).astype(np.uint8)
        yield photograph(name, (k,), np.bincount(mask.ravel(), minlength=4) / mask.size, {k: (0.05, None)},
                         picture=thumbnail(rgb, mask))


# --- one file that needs nothing else ------------------------------------------------------------------------------

def test_the_page_is_whole_and_loads_nothing(tmp_path):
    write_report(tmp_path / "photos/report.html", report(list(real_photographs())))
    found = Parsed((tmp_path / "photos/report.html").read_text(encoding="utf-8"))
    assert not {"script", "link", "iframe", "object", "form"} & {tag for tag, _ in found.elements}
    for _, attributes in found.elements:
        assert not any(key.startswith("on") for key in attributes)
        assert all(attributes[key].startswith(("data:image/", "#")) for key in ("src", "href") if key in attributes)
        assert "url(" not in attributes.get("style", "")
    assert "url(" not in STYLE and "@import" not in STYLE
    ids = {attributes["id"] for _, attributes in found.elements if "id" in attributes}
    assert {a["href"][1:] for a in found.all("a")} <= ids
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["report.html"]


def test_pictures_decode_and_are_described():
    found = Parsed(report_page(report(list(real_photographs()))))
    assert len(found.all("img")) == 3
    for image in found.all("img"):
        kind, _, code = image["src"].partition(";base64,")
        with Image.open(io.BytesIO(base64.b64decode(code))) as decoded:
            decoded.load()
            assert kind == "data:image/jpeg" and decoded.format == "JPEG" and max(decoded.size) == 320
            assert decoded.size == (int(image["width"]), int(image["height"]))
    assert "rocket.jpg. Tags: rocket. Found: rocket 17\u00a0%." in [image["alt"] for image in found.all("img")]
    red = np.asarray(Image.open(io.BytesIO(base64.b64decode(found.all("img")[0]["src"].split(",")[1]))), int)
    assert (np.abs(red - colours()[1]).sum(axis=2) < 40).sum() > 300            # its outline is in its label's colour


@pytest.mark.parametrize("count", [SIDES[0][0], SIDES[1][0], SIDES[2][0] + 100])
def test_the_size_of_the_file_is_bounded(count):
    """Of a real photograph, so many times over."""
    picture = thumbnail(data.coffee(), np.zeros(data.coffee().shape[:2], np.uint8))
    html = report_page(report([photograph(f"{k}.jpg", picture=picture) for k in range(count)]))
    found = Parsed(html)
    most, side = next(((most, side) for most, side in SIDES if count <= most), SIDES[-1])
    assert len(found.all("img")) == min(count, most) and len(html) < 12e6
    assert max(int(image["width"]) for image in found.all("img")) == side
    assert ("100 more are left out" in found.text) == (count > most)


# --- what it says --------------------------------------------------------------------------------------------------

def test_contradictions_come_first_and_are_named():
    photographs = [photograph("fits.jpg", doubt=0.5), photograph("late.jpg", (1,), (0.9, 0.005, 0.02, 0), doubt=0.2),
                   photograph("first.jpg", (1,), (0.5, 0.1, 0, 0.4), doubt=0.9)]
    found = Parsed(report_page(report(photographs)))
    text = found.text
    assert "The model contradicts the tags of 2 photographs" in text
    places = [text.index(part) for part in ("first.jpg", "late.jpg", "The other photographs", "fits.jpg")]
    assert places == sorted(places)
    assert "rocket is not tagged, but covers 40 %" in text and "cat is tagged, but hardly found" in text
    assert "cup is not tagged" not in text
    assert text.count("is tagged, but") == text.count("is not tagged, but") == 1
    calm = Parsed(report_page(report())).text
    assert "On every photograph the model agrees with the tags" in calm and "Every photograph" in calm


def test_bars_stand_against_their_bounds():
    found = Parsed(report_page(report([photograph(areas=(0.25, 0.7, 0.04, 0.01), bounds={0: (0.3, 0.7),
                                                                                        1: (0.05, 0.6)})])))
    assert [a["title"] for a in found.all("s")] == ["at least 30\u00a0%", "at most 70\u00a0%", "at least 5\u00a0%",
                                                    "at most 60\u00a0%"]
    assert [a["style"] for a in found.all("s")] == ["left:30.0%", "left:70.0%", "left:5.0%", "left:60.0%"]
    widths = [a["style"] for a in found.all("i") if "width" in a["style"]]
    assert widths == ["width:25.0%;background:#808080", "width:70.0%;background:#0072b2"]       # cup, rocket: too small
    assert "↓ 25 %" in found.text and "↑ 70 %" in found.text


def test_tags_held_out():
    found = Parsed(report_page(report()))
    assert "75 % of tags found" in found.text and "Every fifth photograph" in found.text        # 9 of 12
    assert "cat 7 1 0" in found.text and "cup 2 2 3" in found.text
    without = Parsed(report_page(report(tallies=None, held_out="There are too few."))).text
    assert "There are too few." in without and "of tags found" not in without and "not tagged" not in without


def test_a_class_that_nobody_has_marked_has_no_iou():
    """It would be 0, because some other pixels were called so: 30 of the background, 20 of the cat."""
    project = SimpleNamespace(folder=SimpleNamespace(classes=["background", "cat", "cup"]), state=None)
    C = np.array([[70, 0, 30], [0, 80, 20], [0, 0, 0]])
    found = scores(project, HeldOut([Tally(7, 1, 0), Tally(2, 2, 3)], "All.", C))["held out"]
    assert [(one["iou"], one["pixels"]) for one in found["classes"]] == [(0.8, 100), (None, 0)]
    assert found["mean_iou"] == 0.75                    # 0.7 of the background, 0.8 of the cat


def test_the_loss():
    found = Parsed(report_page(report(losses={k: 0.8 if k < 200 else 0.2 for k in range(400)})))
    assert "It went from 0.8 to 0.2." in found.text
    points = np.array([list(map(float, p.split(","))) for p in found.all("polyline")[0]["points"].split()])
    assert len(points) == 60 and (np.diff(points[:, 0]) > 0).all()
    assert points[0, 1] < points[-1, 1] and len(set(points[:, 1])) <= 3         # y points down
    assert "holds no losses" in Parsed(report_page(report(losses={}))).text


@pytest.mark.parametrize("value, top", [(1.02, 1.2), (0.16, 0.16), (97, 100), (395, 400), (0, 1e-6)])
def test_round_axes(value, top):
    assert np.isclose(nice(value), top)


def test_warnings_facts_and_steps():
    found = Parsed(report_page(report(warnings=["cup is tagged once"], facts={"seed": 7, "tags": "cat 8, cup 4"})))
    assert "Warnings cup is tagged once" in found.text and "seed 7 tags cat 8, cup 4" in found.text
    assert "Warnings" not in Parsed(report_page(report())).text


@pytest.mark.parametrize("on_path", [None, "/usr/bin/ccnn"])
def test_commands_work_as_pasted(monkeypatch, root, on_path):
    """`ccnn NAME` where that is on the PATH, else the tools of the clone, from the current folder."""
    monkeypatch.setattr(shutil, "which", lambda name: on_path)
    monkeypatch.chdir(root / "tests")
    infer, learn = next_steps("my photos/it's")
    assert shlex.split(infer.command) == [*(["ccnn", "segment"] if on_path else ["../tools/infer.py"]), "--model",
                                          "my photos/it's/model.ccnn", "--out", "masks", "new_photos"]
    assert shlex.split(learn.command) == [*(["ccnn", "learn"] if on_path else ["../tools/learn.py"]), "my photos/it's"]
    assert infer.command in Parsed(report_page(report(steps=[infer, learn]))).texts


# --- anybody's text ------------------------------------------------------------------------------------------------

NASTY = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "a&amp;b", "' onload='x", "</style></title><b>",
         "]]>", "גתול", "猫 große Ж", "{title}", "%s"]


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text(nasty):
    html = report_page(Report(
        nasty, ("background", nasty, "cup"), [photograph(nasty, (1,), (0.2, 0.0, 0.8))], {0: 1.0, 1: 0.5},
        [Tally(1, 0, 0), Tally(0, 1, 0)], nasty, [nasty], [Step(nasty, nasty, nasty)], {nasty: nasty}))
    found = Parsed(html)
    plain = Parsed(html.replace(str(escape(nasty)), "cat"))           # the same elements as with a harmless name
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(a) for _, a in found.elements] == [sorted(a) for _, a in plain.elements]
    assert found.texts.count(nasty) >= 12
    assert found.all("img")[0]["alt"].startswith(f"{nasty}. Tags: {nasty}.")


def test_bytes_that_are_no_text(tmp_path):
    """File names may hold anything: Python reads foreign bytes as halves of characters."""
    name = b"caf\xe9\x1b[31m.jpg".decode("utf-8", "surrogateescape")
    write_report(tmp_path / "r.html", report([photograph(name)]))
    assert "caf\\udce9\ufffd[31m.jpg" in Parsed((tmp_path / "r.html").read_text(encoding="utf-8")).text


# --- light and dark ------------------------------------------------------------------------------------------------

def variables():
    """[{name: colour}]: light, dark."""
    light, dark = re.findall(r":root \{([^}]*)\}", STYLE)
    return [{key: tuple(bytes.fromhex(value)) for key, value in re.findall(r"--([a-z-]+): #([0-9a-f]{6})", block)}
            for block in (light, dark)]


@needs_browser
@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_needs_no_sideways_scrolling(width, tmp_path):
    classes = ("background", "Donaudampfschifffahrtsgesellschaftskapitän" * 2, "cup", "rocket")
    wide = report([*real_photographs(), photograph("a" * 200 + ".jpg")], classes=classes, warnings=["w" * 300],
                  steps=next_steps("/somewhere/far/away/" + "d" * 80, "photos"), facts={"f" * 90: "v" * 200})
    assert overflowing(report_page(wide), width, tmp_path) == (width, "")


def test_contrast_in_light_and_dark():
    """WCAG: 4.5 for text, 7 for long text, 3 for marks and lines that mean something."""
    light, dark = variables()
    assert light.keys() == dark.keys() and set(re.findall(r"var\(--([a-z-]+)\)", STYLE)) <= light.keys()
    for c in (light, dark):
        for surface in ("paper", "card", "alarm-card"):
            assert contrast(c["ink"], c[surface]) > 7
        for surface in ("paper", "card"):
            assert contrast(c["soft"], c[surface]) > 4.5
            assert contrast(c["alarm"], c[surface]) > 4.5
        assert contrast(c["alarm"], c["alarm-card"]) > 4.5
        assert contrast(c["accent"], c["paper"]) > 4.5
        assert contrast(c["code-ink"], c["code"]) > 7
        assert contrast(c["ink"], c["track"]) > 3               # the marks of the bounds


def test_tables_have_headings():
    found = Parsed(report_page(report()))
    assert all(a.get("scope") in ("row", "col") for a in found.all("th"))
    assert next(tag for tag, _ in found.elements if tag in ("h1", "h2")) == "h1"
    assert found.all("html")[0]["lang"] == "en" and all(a.get("aria-label") for a in found.all("svg"))
