"""Pictures for people: colours that differ, lines that stay visible, names without boxes."""
import json

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image, ImageDraw

from ccnn.images import overlays as pictures
from ccnn.images.labels import VOC_CLASSES, indexed, palette
from ccnn.images.overlays import DARK, LIGHT, colours, difference, linear, overlay, thumbnail


def least(values):
    apart = difference(values, values)
    return apart[~np.eye(len(values), dtype=bool)].min()


def luminance(rgb):
    return linear(rgb) @ (0.2126, 0.7152, 0.0722)


def contrast(a, b):
    """WCAG's ratio, 1..21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# --- colours -------------------------------------------------------------------------------------------------------

def test_colours_differ_for_every_eye():
    voc = np.array(palette()).reshape(-1, 3)
    assert least(colours()[1:8]) > 0.09 > 3 * least(voc[1:8])
    assert least(colours()[1:21]) > 0.06 > 5 * least(voc[1:21])
    assert len(np.unique(colours()[:255], axis=0)) == 255
    assert difference(colours()[1:21], [DARK, LIGHT]).min() > 0.06


def test_sights_of_the_colour_blind():
    """Red and green of one lightness are one colour to them; blue and yellow are not; grey is grey to all."""
    red, green, blue, yellow, grey = (190, 60, 40), (120, 110, 40), (0, 90, 200), (220, 200, 60), (90, 90, 90)
    full, deuteranopia, protanopia = pictures.seen([red, green, blue, yellow, grey])
    for sight in (deuteranopia, protanopia):
        assert np.linalg.norm(sight[0] - sight[1]) < 0.6 * np.linalg.norm(full[0] - full[1])
        assert np.linalg.norm(sight[2] - sight[3]) > 0.8 * np.linalg.norm(full[2] - full[3])
        assert np.allclose(sight[4], full[4], atol=1e-3)
    assert np.allclose(full[4, 1:], 0, atol=1e-4)
    assert np.allclose(pictures.seen([(255, 0, 0)])[0, 0], (0.62796, 0.22486, 0.12585), atol=1e-4)      # published


# --- photographs under their labels --------------------------------------------------------------------------------

MASK = np.zeros((60, 80), np.uint8)
MASK[20:40, 20:60] = 1


@pytest.mark.parametrize("photograph", [*map(tuple, colours()[1:8]), (0, 0, 0), (255, 255, 255), (128, 128, 128)])
def test_a_region_is_visible_on_any_colour(photograph):
    """Also where the photograph has the label's own colour: one of the two lines contrasts with it."""
    picture = thumbnail(np.full((60, 80, 3), photograph, np.uint8), MASK)
    assert (picture[20, 20:60] == DARK).all() and (picture[39, 20:60] == DARK).all()
    assert (picture[20:40, 20] == DARK).all() and (picture[20:40, 59] == DARK).all()
    assert (picture[19, 20:60] == LIGHT).all() and (picture[20:40, 60] == LIGHT).all()
    assert max(contrast(DARK, photograph), contrast(LIGHT, photograph)) > 3 and contrast(DARK, LIGHT) > 15
    assert (picture[22, 25:55] == colours()[1]).all()
    untouched = np.ones(MASK.shape, bool)
    untouched[19:41, 19:61] = False
    assert (picture[untouched] == photograph).all()


def test_the_photograph_shines_through():
    photograph = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    inner = thumbnail(photograph, MASK)[25:35, 25:55].astype(float)
    assert np.corrcoef(inner.ravel(), photograph[25:35, 25:55].ravel())[0, 1] > 0.7
    assert np.abs(inner.mean(axis=(0, 1)) - colours()[1]).sum() < np.abs(127 - colours()[1].astype(float)).sum()


def test_sizes_and_void():
    mask = np.full((300, 900), 255, np.uint8)
    mask[:, :300] = 2
    picture = thumbnail(np.zeros((300, 900, 3), np.uint8), mask)
    assert picture.shape == (107, 320, 3) and not picture[:, 130:].any()      # unlabelled pixels stay as they are
    assert overlay(np.zeros((300, 900, 3), np.uint8), mask, VOC_CLASSES, 600).width == 600
    empty = thumbnail(np.zeros((300, 900, 3), np.uint8), np.zeros((300, 900), np.uint8))
    assert not empty.any()


# --- the legend ----------------------------------------------------------------------------------------------------

def entries(monkeypatch, *arguments):
    """The picture, and the texts that were drawn, name and share together."""
    drawn, draw_text = [], pictures.draw_text
    monkeypatch.setattr(pictures, "draw_text", lambda draw, at, text, size: (
        drawn.append((text, at)), draw_text(draw, at, text, size))[1])
    sheet = overlay(*arguments)
    return sheet, [(name + share, at) for (name, at), (share, _) in zip(drawn[::2], drawn[1::2])]


def test_legend_names_what_is_there(monkeypatch):
    mask = np.zeros((100, 1000), np.uint8)
    mask[:40], mask[40, :300], mask[41, :50] = 8, 15, 3         # 40 %, 0.3 %, and 0.05 %: too small to name
    sheet, drawn = entries(monkeypatch, np.zeros((100, 1000, 3), np.uint8), mask, VOC_CLASSES)
    assert [text for text, _ in drawn] == ["background 60\u00a0%", "cat 40\u00a0%", "person <1\u00a0%"]
    assert sheet.size == (1000, 156)
    colour = np.asarray(sheet)[100:]
    assert (colour == colours()[8]).all(axis=2).sum() > 600 and not (colour == colours()[3]).all(axis=2).any()


def test_legend_wraps_and_widens(monkeypatch):
    mask = np.arange(21, dtype=np.uint8).repeat(100).reshape(21, 100)
    sheet, drawn = entries(monkeypatch, np.zeros((21, 100, 3), np.uint8), mask, VOC_CLASSES)
    assert len(drawn) == 21 and len({at[1] for _, at in drawn}) > 10
    assert sheet.width > 100                                        # "pottedplant 5 %" needs it
    below = np.asarray(sheet)[21:].astype(int)
    assert (below[:, -3:] == 255).all() and (below[-3:] == 255).all()           # nothing is cut off


def drawn(text):
    image = Image.new("RGB", (400, 60), LIGHT)
    pictures.draw_text(ImageDraw.Draw(image), (5, 30), text, 28)
    return np.asarray(image.convert("L"))


@pytest.fixture
def no_system_fonts(monkeypatch, tmp_path):
    monkeypatch.setattr(pictures, "FOLDERS", (str(tmp_path),))
    pictures.font_files.cache_clear(), pictures.runs.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    pictures.font_files.cache_clear(), pictures.runs.cache_clear()


BOX = "\U0010fffe"          # no font has it


def box_in(text):
    """Whether the picture of the text holds a box: the font's sign for a character that it lacks."""
    return any(not pictures.has_glyph(path, c) for path, part in pictures.runs(text) for c in part)


@pytest.mark.parametrize("text", ["große Katze", "éléphant", "Жираф", "γάτα", "חתול", "قطة"])
def test_scripts_that_come_with_matplotlib(no_system_fonts, text):
    assert [part for _, part in pictures.runs(text)] == [text] and not box_in(text)
    assert not pictures.has_glyph(pictures.font_files()[0], BOX)
    for c in set(text) - {" "}:
        assert (drawn(text) != drawn(text.replace(c, ""))).any()


def test_a_script_that_no_font_has_is_spelt(no_system_fonts):
    assert pictures.runs("猫 cat") == [(None, "[732B]"), (pictures.font_files()[0], " cat")]
    for text, said in (("ねこ", "neko"), ("고양", "goyang"), ("🐈", "[cat]"), ("ﬁ", "ﬁ"), ("𝐜𝐚𝐭", "cat")):
        assert "".join(part for _, part in pictures.runs(text)) == said and not box_in(text)


def test_a_font_of_the_machine_is_used(no_system_fonts):
    """A font with one ideograph, made here; a damaged one beside it does no harm."""
    pen = TTGlyphPen(None)
    for k, point in enumerate([(100, 0), (900, 0), (500, 700)]):
        (pen.lineTo if k else pen.moveTo)(point)
    pen.closePath()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "cat"])
    font.setupCharacterMap({ord("猫"): "cat"})
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "cat": pen.glyph()})
    font.setupHorizontalMetrics({".notdef": (1000, 0), "cat": (1000, 100)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "One", "styleName": "Regular"})
    font.setupOS2(), font.setupPost()
    font.save(no_system_fonts / "one.ttf")
    (no_system_fonts / "a.ttf").write_bytes(b"no font")
    assert pictures.runs("猫 1") == [(no_system_fonts / "one.ttf", "猫"), (pictures.font_files()[0], " 1")]
    ink = (drawn("猫") < 128).sum(axis=1)
    ink = ink[ink > 0]
    assert len(ink) > 10 and (np.diff(ink) >= 0).all()              # the triangle, point up: not a box


# --- masks as files ------------------------------------------------------------------------------------------------

def test_a_mask_carries_its_names(tmp_path):
    names = ["background", "große Katze", "猫"]
    indexed(MASK).save(tmp_path / "m.png", pnginfo=pictures.mask_text(names, {"size": 65}))
    with Image.open(tmp_path / "m.png") as image:
        assert json.loads(image.info["classes"]) == names and json.loads(image.info["settings"]) == {"size": 65}
        assert image.getpalette()[3:6] == [128, 0, 0] and np.array_equal(np.array(image), MASK)
    assert "große Katze".encode() in (tmp_path / "m.png").read_bytes()       # for exiftool and people
