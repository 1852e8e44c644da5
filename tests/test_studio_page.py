"""The studio's page in a real browser, with the real server and real trainings."""
import csv
import io
import itertools
import json
import re
import shutil
import signal
import time
import zipfile

import numpy as np
import pytest
from browser import CHROMIUM
from drawn_photographs import photograph
from PIL import Image
from repository_copy import copy_of_repository
from studio_server import Studio
from test_pictures import contrast
from waiting import LIMIT, wait_for

from ccnn.project.learn import RECIPE

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: make .caffe/packages/test-studio.txt")
pytest.importorskip("uvicorn", reason="needs the studio's packages: make .caffe/packages/studio.txt")
if not CHROMIUM:
    pytest.skip("needs chromium", allow_module_level=True)

expect = playwright_api.expect
PATIENCE = 1000 * LIMIT                         # milliseconds

expect.set_options(timeout=PATIENCE)

KINDS = ((1,), (2,), (1, 2), ())                # labels on the drawn photographs, in turn: cat, dog, both, none

HOSTILE = "<img src=x onerror=window.hit=1>"

SHORT = ("--steps", "40")                       # of a training: enough for masks that are not empty


@pytest.fixture(scope="module")
def browser():
    with playwright_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    return copy_of_repository(root, tmp_path_factory.mktemp("repository"))


def draw_photographs(folder, number, seed):
    """Write 00.jpg, 01.jpg, ...: small, drawn, in turn of KINDS."""
    folder.mkdir()
    for k in range(number):
        image, _ = photograph(np.random.default_rng([seed, k]), KINDS[k % 4])
        image.save(folder / f"{k:02}.jpg", quality=95)
    return folder


@pytest.fixture
def open_page(browser):
    """open_page(studio, ...): a page that is there. No script may fail in it."""
    contexts, errors = [], []

    def open_page(studio, width=1280, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(studio.address)
        expect(page.locator("#folder")).to_have_text(studio.folder.name)
        return page
    yield open_page
    for context in contexts:
        context.close()
    assert not errors


@pytest.fixture(scope="module")
def studio(root, place, tmp_path_factory):
    """Twelve photographs, two classes, no tags; tests may tag as they like."""
    folder = draw_photographs(tmp_path_factory.mktemp("studio") / "photos", 12, 1)
    (folder / "classes.txt").write_text("cat\ndog\n")
    with Studio(root, place, folder) as studio:
        yield studio


@pytest.fixture(scope="module")
def trained(root, place, browser, tmp_path_factory):
    """A studio whose twelve photographs were tagged by keyboard on an empty page, and learned from."""
    folder = draw_photographs(tmp_path_factory.mktemp("trained") / "photos", 12, 2)
    with Studio(root, place, folder, *SHORT) as studio:
        tag_and_train(browser, studio)
        yield studio


def tag_and_train(browser, studio):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(studio.address)
    expect(page.locator("#steps li")).to_have_count(3)          # it teaches
    for name in ("cat", "dog"):
        page.keyboard.press("/")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        expect(key(page, name)).to_be_visible()
    for k in range(12):
        for label in KINDS[k % 4] or (0,):
            page.keyboard.press(f"{label}")
        if k < 11:
            page.keyboard.press("ArrowRight")
    expect(page.locator("#tally")).to_have_text("12 of 12 photographs tagged")
    cell(page, "11.jpg").click()
    train(page)
    expect(page.locator(".cell.focused")).to_have_attribute("aria-posinset", "1")   # disputed, and seen
    assert selected(page) == [] and page.locator("#grid").evaluate("grid => grid.scrollTop") == 0
    page.close()


def key(page, name):
    return page.locator("#classbar .key", has=page.get_by_text(name, exact=True))


def train(page, button="#train"):
    page.locator(button).click()
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator("#train")).to_be_visible()
    assert page.locator("#train-problem").text_content() == ""
    expect(page.locator("#model")).to_contain_text("Model:")


def cell(page, name):
    return page.locator(f".cell[title='{name}']")


def open_large(page, name="00.jpg"):
    page.locator("#order").select_option("folder")          # news of the model move nothing under the mouse
    cell(page, name).dblclick()
    expect(page.locator("#viewer-title")).to_have_text(name)
    page.locator("#picture").evaluate("picture => picture.decode().then(() => new Promise(requestAnimationFrame))")


def spot(page, x, y):
    """A place of the photograph that is open, from its left and top in 0..1, on the screen."""
    box = page.locator("#sheet").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def draw_line(page, *points):
    page.mouse.move(*spot(page, *points[0]))
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*spot(page, *point), steps=8)
    page.mouse.up()


def marks(folder, name="00"):
    """The pixels that are marked: the label ids of a PNG, 255 where nothing is."""
    return np.asarray(Image.open(folder / f"scribbles/{name}.png"))


def tags_file(folder):
    """{name: tags} of tags.csv, which is not there before the first tag."""
    if not (folder / "tags.csv").exists():
        return {}
    with open(folder / "tags.csv", newline="") as file:
        return {row["image"]: row["tags"] for row in csv.DictReader(file)}


def wait_until(page, condition):
    """Wait while the page lives on: what playwright does for it, it does within calls of its own."""
    wait_for(lambda: condition() or page.wait_for_timeout(50), "a change on the page, or in its folder")


def covered(image):
    """The share of an <img> that is not transparent, as the browser decoded it."""
    return image.evaluate("""async image => {
        await image.decode()
        const canvas = document.createElement("canvas")
        canvas.width = image.naturalWidth
        canvas.height = image.naturalHeight
        const context = canvas.getContext("2d")
        context.drawImage(image, 0, 0)
        const {data} = context.getImageData(0, 0, canvas.width, canvas.height)
        let solid = 0
        for (let k = 3; k < data.length; k += 4) solid += data[k] > 0
        return solid / (data.length / 4)
    }""")


# --- tag, train, look, correct, take away ----------------------------------------------------------------------------

def test_tags_typed_by_keyboard_are_in_the_file(trained):
    wanted = ["cat", "dog", "cat;dog", ""]
    assert tags_file(trained.folder) == {f"{k:02}.jpg": wanted[k % 4] for k in range(12)}
    assert (trained.folder / "classes.txt").read_text().split() == ["cat", "dog"]


def test_masks_lie_on_the_photographs(trained, open_page):
    page = open_page(trained)
    expect(cell(page, "00.jpg").locator("img.mask")).to_be_visible()
    shares = [covered(cell(page, f"{k:02}.jpg").locator("img.mask")) for k in (0, 1, 2)]
    assert any(0.01 < share < 0.99 for share in shares), shares
    page.keyboard.press("m")
    expect(page.locator("img.mask")).to_have_count(0)
    page.reload()
    expect(cell(page, "00.jpg").locator("img.mask")).to_be_visible()


def test_loss_is_drawn(trained, open_page):
    """One curve over both rounds, the second of which is marked."""
    page = open_page(trained)
    lines = page.locator("#loss polyline")
    expect(lines).to_have_count(2)
    first, second = ([float(point.split(",")[0]) for point in line.get_attribute("points").split()]
                     for line in lines.all())
    assert len(first) >= 2 and len(second) >= 2
    assert first[-1] < float(page.locator("#loss .round").get_attribute("x1")) <= second[0]
    spoken = page.locator("#loss svg").get_attribute("aria-label")
    steps = re.fullmatch(r"Loss: .* at first, .* after (\d+) steps", spoken)[1]
    assert 40 < int(steps) <= 80                                        # 40 in each of the rounds


def test_a_photograph_opened_large(trained, open_page):
    page = open_page(trained)
    open_large(page)
    overlay = page.locator("#overlay")
    expect(overlay).to_be_visible()
    for layer in ("outline", "probability", "mask"):
        page.locator(f"#layers [value={layer}]").check()
        expect(overlay).to_have_attribute("src", re.compile({"outline": "style=outline", "mask": "style=fill"}.get(
            layer, "probability.png")))
    assert covered(overlay) < 1
    page.locator("#opacity").fill("30")
    assert overlay.evaluate("e => getComputedStyle(e).opacity") == "0.3"
    page.locator("#viewer-title").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-title")).to_have_text("01.jpg")
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    assert page.locator(".cell.focused").get_attribute("title") == "01.jpg"


def test_p_follows_a_bound(trained, open_page):
    """By keyboard and by mouse. The background's bound is hard, so p keeps it. Nothing is written."""
    page = open_page(trained)
    before = tags_file(trained.folder)
    open_large(page)
    least = page.get_by_role("slider", name="background: at least")
    expect(least).to_be_visible()
    first = least.get_attribute("aria-valuenow")
    page.get_by_role("slider", name="background: at most").press("End")
    p = page.locator(".area", has=page.get_by_text("background", exact=True)).locator("i.p")
    wanted = round(min(95, p.evaluate("e => parseFloat(e.style.width)") + 10))
    while int(least.get_attribute("aria-valuenow")) < wanted:
        least.press("ArrowRight")
    page.wait_for_function("([e, least]) => parseFloat(e.style.width) > least - 0.5",
                           arg=[p.element_handle(), wanted])
    assert page.locator("#layers [value=p]").is_checked()               # and its mask is shown
    expect(page.locator("#overlay")).to_have_attribute("src", re.compile("^data:image/png"))
    expect(page.locator("#areas-preview")).to_contain_text("A preview")
    most = page.get_by_role("slider", name="cat: at most")
    track = page.locator(".area", has=page.get_by_text("cat", exact=True)).locator(".track").bounding_box()
    handle = most.bounding_box()
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] * 0.5, track["y"] + 10, steps=5)
    page.mouse.up()
    expect(most).to_have_attribute("aria-valuenow", "50")
    page.locator("#areas-reset").click()
    expect(least).to_have_attribute("aria-valuenow", first)
    assert tags_file(trained.folder) == before


def test_marks_by_brush_eraser_click_and_keyboard(trained, open_page):
    """What is drawn is in the file, undone and redone, by one history with the tags, which survives a reload."""
    page, file = open_page(trained), trained.folder / "scribbles/00.png"
    open_large(page)
    page.keyboard.press("b")
    kept = page.locator("#draw-class option").first.element_handle()
    draw_line(page, (0.4, 0.5), (0.6, 0.5))
    wait_until(page, file.exists)
    height, width = marks(trained.folder).shape
    assert (width, height) == Image.open(trained.folder / "00.jpg").size
    assert marks(trained.folder)[height // 2, width // 2] == 1
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.keyboard.press("e")
    draw_line(page, (0.5, 0.4), (0.5, 0.6))
    wait_until(page, lambda: marks(trained.folder)[height // 2, width // 2] == 255)
    assert (marks(trained.folder) == 1).any()
    assert kept.evaluate("option => option.isConnected")                # the list of classes may be open just then
    page.reload()                                                       # the photograph is open again
    expect(page.locator("#viewer-title")).to_have_text("00.jpg")
    page.keyboard.press("Control+z")
    wait_until(page, lambda: marks(trained.folder)[height // 2, width // 2] == 1)
    page.keyboard.press("Control+z")
    wait_until(page, lambda: not file.exists())
    page.keyboard.press("Control+Shift+z")
    wait_until(page, file.exists)
    page.keyboard.press("Control+z")
    wait_until(page, lambda: not file.exists())
    page.keyboard.press("r")
    page.keyboard.press("x")                                            # background, with the keyboard alone
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    wait_until(page, file.exists)
    assert marks(trained.folder)[height // 2, round(0.52 * width)] == 0
    assert (marks(trained.folder) == 0).sum() > 20                      # a region, not a point
    page.locator("#draw-undo").click()
    wait_until(page, lambda: not file.exists())
    assert tags_file(trained.folder)["00.jpg"] == "cat"


def test_undo_of_a_mark_takes_its_tag_back(studio, open_page):
    """Also after a reload. A tag that was there before stays."""
    page, file = open_page(studio), studio.folder / "scribbles/00.png"
    forget_tags(page)
    wait_until(page, lambda: not tags_file(studio.folder))
    open_large(page)
    page.keyboard.press("b")
    draw_line(page, (0.2, 0.5), (0.4, 0.5))
    page.keyboard.press("2")
    draw_line(page, (0.6, 0.5), (0.8, 0.5))
    draw_line(page, (0.6, 0.6), (0.8, 0.6))
    wait_until(page, lambda: tags_file(studio.folder) == {"00.jpg": "cat;dog"} and marks(studio.folder)[48, 68] == 2)
    expect(page.locator("#viewer-classes [aria-pressed=true]")).to_have_count(2)
    page.reload()
    expect(page.locator("#viewer-title")).to_have_text("00.jpg")
    for press, tags in (("z", "cat;dog"), ("z", "cat"), ("Shift+z", "cat;dog"), ("z", "cat")):
        page.keyboard.press(f"Control+{press}")
        expect(page.locator("#viewer-said")).to_have_text(re.compile("Redone" if "Shift" in press else "Undone"))
        wait_until(page, lambda tags=tags: tags_file(studio.folder) == {"00.jpg": tags})
    page.keyboard.press("Control+z")
    wait_until(page, lambda: not tags_file(studio.folder) and not file.exists())
    expect(page.locator("#messages")).to_be_empty()


def test_a_mark_that_is_refused_is_no_step_of_undo(trained, open_page):
    page, table = open_page(trained), trained.folder / "tags.csv"
    expect(page.locator("#undo")).to_be_disabled()
    text = table.read_bytes()
    open_large(page)
    page.keyboard.press("b")
    try:
        table.write_bytes(b"image,tags\n00.jpg,nobody\n")
        draw_line(page, (0.4, 0.5), (0.6, 0.5))
        expect(page.locator("#messages")).to_contain_text("tag 'nobody' is not a class")
        expect(page.locator("#draw-undo")).to_be_disabled()
    finally:
        table.write_bytes(text)
    assert not (trained.folder / "scribbles/00.png").exists()
    wait_until(page, lambda: trained.status["problem"] is None)


def test_zoom_and_pan(trained, open_page):
    """The point under the wheel stays; a mark drawn then lies where the pointer was; 0 shows all, and is no tag."""
    page, file = open_page(trained), trained.folder / "scribbles/00.png"
    open_large(page)
    whole = page.locator("#sheet").bounding_box()
    page.mouse.move(*spot(page, 0.25, 0.75))
    page.mouse.wheel(0, -600)
    wait_until(page, lambda: page.locator("#sheet").bounding_box()["width"] > 2 * whole["width"])
    x, y = spot(page, 0.25, 0.75)
    assert abs(x - (whole["x"] + 0.25 * whole["width"])) < 2 and abs(y - (whole["y"] + 0.75 * whole["height"])) < 2
    before = page.locator("#sheet").bounding_box()
    page.keyboard.press("ArrowRight")                                   # moves, and does not go on
    expect(page.locator("#viewer-title")).to_have_text("00.jpg")
    assert page.locator("#sheet").bounding_box()["x"] < before["x"]
    page.keyboard.press("l")
    page.keyboard.press("b")
    draw_line(page, (0.3, 0.7), (0.31, 0.7))
    wait_until(page, file.exists)
    height, width = marks(trained.folder).shape
    rows, columns = np.nonzero(marks(trained.folder) == 1)
    assert abs(rows.mean() / height - 0.7) < 0.02 and abs(columns.mean() / width - 0.305) < 0.02
    page.keyboard.press("v")
    page.keyboard.press("0")
    expect(page.locator("#zoom-whole")).to_have_text("100 %")
    assert page.locator("#sheet").bounding_box() == whole
    page.locator("#viewer-title").focus()
    for key, wanted in (("+", "150 %"), ("-", "100 %")):
        page.keyboard.press(key)
        expect(page.locator("#zoom-whole")).to_have_text(wanted)
    page.keyboard.press("Control+z")
    wait_until(page, lambda: not file.exists())
    assert tags_file(trained.folder)["00.jpg"] == "cat"


def test_train_by_itself_is_remembered(studio, open_page):
    page = open_page(studio)
    forget_tags(page)                                                   # so that it does not train now
    for checked in ("true", "false"):
        page.locator("#auto").click()
        expect(page.locator("#auto")).to_have_attribute("aria-checked", checked)
        page.reload()
        expect(page.locator("#auto")).to_have_attribute("aria-checked", checked)


def test_disputed_photographs_come_first(trained, open_page):
    """Without asking for it. A name or a filter leaves few of them."""
    page = open_page(trained)
    expect(page.locator("#order")).to_have_value("doubt")
    predictions = {}

    def disputed_first():
        shown = page.locator(".cell").evaluate_all("""cells => cells.sort(
            (a, b) => a.ariaPosInSet - b.ariaPosInSet).map(cell => Number(cell.dataset.number))""")
        predictions.update((one["number"], one) for one in trained.get("/api/predictions").json["predictions"])
        return len(predictions) == 12 and shown == sorted(predictions, key=lambda n: (-predictions[n]["rank"], n))
    wait_until(page, disputed_first)
    assert page.locator(".cell.focused").get_attribute("aria-posinset") == "1"      # on which keys act
    assert len({one["doubt"] for one in predictions.values()}) > 1
    page.locator("#filter").select_option("doubtful")
    expect(page.locator(".cell")).to_have_count(3)
    page.locator("#filter").select_option("all")
    page.locator("#find").fill("0")
    expect(page.locator(".cell")).to_have_count(11)                     # 00 to 10
    page.locator("#find").fill("")
    page.locator("#order").select_option("folder")
    page.add_init_script("""new MutationObserver((_, observer) => {
        if (!document.getElementById("folder")?.textContent) return
        window.first = [...document.querySelectorAll(".cell")].find(cell => cell.ariaPosInSet === "1").title
        observer.disconnect()
    }).observe(document, {subtree: true, childList: true})""")
    page.reload()
    expect(page.locator("#order")).to_have_value("folder")
    wait_until(page, lambda: shown(page) == names(*range(12)))
    assert page.evaluate("window.first") == "00.jpg"                    # from the beginning, not after the next news


def test_files_to_take_away(trained, open_page, tmp_path):
    page = open_page(trained)
    formats = {one["title"]: one["file"] for one in trained.get("/api/state").json["exports"]}
    assert len(formats) >= 9
    for link, name in {"model.ccnn": "model.ccnn", "tags.csv": "tags.csv", **formats}.items():
        if link in formats and page.locator("#exports").is_hidden():
            page.locator("#export").click()
        with page.expect_download() as download:
            page.get_by_role("link", name=link, exact=True).click()
        assert download.value.suggested_filename.endswith(name.split(".")[1])
        download.value.save_as(tmp_path / name)
    assert zipfile.ZipFile(tmp_path / "model.ccnn").testzip() is None
    assert (tmp_path / "tags.csv").read_text() == (trained.folder / "tags.csv").read_text()
    assert len([name for name in zipfile.ZipFile(tmp_path / "masks.zip").namelist() if name.endswith("0.png")]) >= 2
    coco = json.loads((tmp_path / "coco.json").read_text())
    assert len(coco["images"]) == 12 and {c["name"] for c in coco["categories"]} == {"cat", "dog"}
    page.keyboard.press("Escape")
    assert "learn" in page.locator("#commands code").first.text_content()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    said = page.locator("#commands button").first.evaluate("""button => new Promise(done => {
        new MutationObserver(() => done(button.textContent)).observe(button, {childList: true})
        button.click()
    })""")                                                              # not for long
    assert said == "Copied"
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#commands code").first.text_content()


def test_another_folder_is_segmented(trained, open_page, tmp_path):
    page = open_page(trained)
    others = draw_photographs(tmp_path / "others", 3, 9)
    before = sorted(trained.folder.glob("*.jpg"))
    page.locator("#batch-files").set_input_files(sorted(others.glob("*.jpg")))
    expect(page.locator("#batch-results img")).to_have_count(3)
    assert page.locator("#batch-results img").first.evaluate("async e => (await e.decode(), e.naturalWidth)") > 0
    with page.expect_download() as download:
        page.locator("#batch-zip").click()
    download.value.save_as(tmp_path / "batch.zip")
    assert len(zipfile.ZipFile(tmp_path / "batch.zip").namelist()) >= 6
    assert sorted(trained.folder.glob("*.jpg")) == before


def test_corrected_killed_and_trained_again(root, trained, place, open_page, tmp_path):
    """Correct a mask with brush and click, stop, train, reload, kill, go on: nothing is lost, and what was drawn holds
    in the mask that is exported."""
    folder = tmp_path / "killed"
    shutil.copytree(trained.folder, folder, ignore=shutil.ignore_patterns("*.lock", "*.part*"))
    studio = Studio(root, place, folder, "--steps", "5000")              # of which it sees no end
    try:
        page = open_page(studio)
        expect(page.locator("#model")).to_contain_text("cat, dog")
        model = page.locator("#model").text_content()
        open_large(page)
        page.keyboard.press("b")
        draw_line(page, (0.02, 0.1), (0.4, 0.02))                       # a cat where the model sees none
        page.keyboard.press("r")
        page.mouse.click(*spot(page, 0.98, 0.98), button="right")       # a piece of even colour is background
        wait_until(page, lambda: (folder / "scribbles/00.png").exists() and (marks(folder) == 0).sum() > 20)
        expect(page.locator("#connection")).to_be_hidden()
        drawn = marks(folder)
        assert (drawn == 1).any() and (exported(studio)[drawn != 255] == drawn[drawn != 255]).all()
        page.keyboard.press("Escape")
        cell(page, "11.jpg").click()                                    # nothing, now a dog
        page.keyboard.press("2")
        wait_until(page, lambda: tags_file(folder)["11.jpg"] == "dog")
        page.locator("#train").click()
        expect(page.locator("#phase")).to_contain_text("Step")
        page.locator("#stop").click()
        expect(page.locator("#outcome")).to_contain_text("Stopped")
        page.locator("#train").click()
        expect(page.locator("#phase")).to_contain_text("Step")
        expect(page.locator("#outcome")).to_be_hidden()
        page.reload()
        expect(page.locator("#phase")).to_contain_text("Step")
        expect(page.locator("#stop")).to_be_visible()
    finally:
        studio.end(signal.SIGKILL)
    expect(page.locator("#connection")).to_contain_text("does not answer")
    cell(page, "00.jpg").click()
    page.keyboard.press("2")                                            # not saved, but kept in the browser
    cell(page, "11.jpg").dblclick()
    page.keyboard.press("b")
    page.keyboard.press("2")
    draw_line(page, (0.2, 0.2), (0.4, 0.2))
    page.keyboard.press("Escape")
    expect(page.locator("#connection")).to_contain_text("2 changes wait to be saved; this browser keeps them")
    with Studio(root, place, folder, *SHORT) as studio:                 # at the same address
        expect(page.locator("#connection")).to_contain_text("open the address that it printed. 2 changes wait")
        assert tags_file(folder)["00.jpg"] == "cat" and not (folder / "scribbles/11.png").exists()
        there = page.context.new_page()
        there.goto(studio.address)
        wait_until(there, lambda: tags_file(folder)["00.jpg"] == "cat;dog")
        wait_until(there, lambda: (folder / "scribbles/11.png").exists())
        assert (marks(folder, "11") == 2).any() and (marks(folder) == drawn).all()
        expect(page.locator("#connection")).to_be_hidden()              # that page is let in again
        expect(page.locator("#folder")).to_have_text(folder.name)
        page.evaluate("""() => {
            const messages = document.getElementById("messages")
            new MutationObserver(() => { window.said = messages.textContent }).observe(messages, {childList: true})
        }""")
        cell(page, "11.jpg").click()                                    # somebody is at it
        expect(there.locator("#model")).to_have_text(model)
        train(there, "#check")
        expect(there.locator("#why-not")).to_have_text("The model knows all tags.")
        wait_until(page, lambda: "Trained." in (page.evaluate("window.said") or ""))
        assert selected(page) == names(11)                              # it was not asked for there: nothing moves
        assert (exported(studio)[drawn != 255] == drawn[drawn != 255]).all()
        expect(there.locator("#results tbody tr")).to_have_count(2)     # what was found on photographs held out
        expect(there.locator("#results")).to_contain_text(re.compile(r"\d of \d"))
        open_large(there)
        there.keyboard.down("f")
        expect(there.locator("#overlay")).to_have_attribute("src", re.compile("of=previous"))
        there.keyboard.up("f")
        expect(there.locator("#overlay")).not_to_have_attribute("src", re.compile("of=previous"))
        there.keyboard.press("Escape")
        for size in RECIPE.sizes:                                       # so that its features cannot be written
            (folder / f".ccnn/features/{size}/12.npy").mkdir()
        shutil.copyfile(folder / "00.jpg", folder / "12.jpg")
        there.locator("#export").click()
        expect(there.locator("#export-missing")).to_contain_text("1 photograph is not read yet")


def exported(studio, name="00"):
    """A mask of masks.zip, as labels."""
    with zipfile.ZipFile(io.BytesIO(studio.get("/api/export/masks.zip").body)) as archive:
        return np.asarray(Image.open(archive.open(f"{name}.png")))


# --- selecting and tagging -------------------------------------------------------------------------------------------

def selected(page):
    return sorted(page.locator(".cell[aria-selected=true]").evaluate_all("cells => cells.map(cell => cell.title)"))


def shown(page):
    """The names of the photographs, in the order in which the page shows them."""
    return page.locator(".cell").evaluate_all(
        "cells => cells.sort((a, b) => a.ariaPosInSet - b.ariaPosInSet).map(cell => cell.title)")


def names(*numbers):
    return [f"{k:02}.jpg" for k in numbers]


def state(page, *numbers):
    return [cell(page, name).get_attribute("data-state") for name in names(*numbers)]


def forget_tags(page):
    page.keyboard.press("Control+a")
    page.keyboard.press("Backspace")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")


def test_selecting_with_the_mouse(studio, open_page):
    page = open_page(studio)
    cell(page, "01.jpg").click()
    assert selected(page) == names(1)
    cell(page, "05.jpg").click(modifiers=["Shift"])
    assert selected(page) == names(1, 2, 3, 4, 5)
    cell(page, "03.jpg").click(modifiers=["Control"])
    assert selected(page) == names(1, 2, 4, 5)
    a, b = (cell(page, name).bounding_box() for name in names(0, 5))
    page.mouse.move(a["x"] + 30, a["y"] + 30)
    page.mouse.down()
    page.mouse.move(b["x"] + 30, b["y"] + 30, steps=4)
    page.mouse.up()
    assert selected(page) == names(0, 1, 4, 5)                          # four columns
    page.keyboard.press("Escape")
    assert selected(page) == []


def test_selecting_with_the_keyboard(studio, open_page):
    page = open_page(studio)
    for press in ("Space", "ArrowRight", "ArrowRight", "Space"):
        page.keyboard.press(press)
    assert selected(page) == names(0, 2)
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowDown")
    assert selected(page) == names(0, 1, 2, 3, 4)
    page.keyboard.press("Control+a")
    assert selected(page) == names(*range(12))
    assert (page.locator("#grid").get_attribute("aria-activedescendant")
            == page.locator(".cell.focused").get_attribute("id"))


def test_keys_act_on_all_that_are_selected_and_are_undone(studio, open_page):
    page = open_page(studio)
    forget_tags(page)
    assert state(page, 0, 1) == ["undecided", "undecided"]
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("1")
    page.keyboard.press("Shift+2")
    assert state(page, 0, 1, 2) == ["tagged", "tagged", "undecided"]
    assert "dog, large" in cell(page, "01.jpg").get_attribute("aria-label")
    assert key(page, "cat").get_attribute("aria-pressed") == "true"
    page.keyboard.press("0")
    assert state(page, 0, 1) == ["none", "none"]
    wait_until(page, lambda: tags_file(studio.folder) == {"00.jpg": "", "01.jpg": ""})
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    wait_until(page, lambda: tags_file(studio.folder) == {"00.jpg": "cat", "01.jpg": "cat"})
    page.keyboard.press("Control+Shift+z")
    wait_until(page, lambda: tags_file(studio.folder) == {"00.jpg": "cat;dog", "01.jpg": "cat;dog"})
    page.reload()
    expect(cell(page, "01.jpg")).to_have_attribute("aria-label", "01.jpg, cat, dog, large")
    forget_tags(page)
    wait_until(page, lambda: not tags_file(studio.folder))


def test_undecided_and_none_look_different(studio, open_page):
    page = open_page(studio)
    forget_tags(page)
    page.keyboard.press("n")
    seen = [cell(page, name).evaluate("""cell => [cell.textContent, getComputedStyle(cell, "::after").borderStyle,
        getComputedStyle(cell.querySelector(".chips")).backgroundImage]""") for name in names(0, 1)]
    assert all(a != b for a, b in zip(*seen)), seen


def test_a_list_of_undecided_photographs_does_not_jump(studio, open_page):
    page = open_page(studio)
    forget_tags(page)
    page.locator("#filter").select_option("undecided")
    page.locator("#grid").focus()
    before = page.locator("#grid").bounding_box()
    page.keyboard.press("1")
    expect(page.locator("#update")).to_contain_text("1 no longer fit")
    assert page.locator(".cell").count() == 12 and page.locator("#grid").bounding_box() == before
    page.locator("#update").click()
    expect(page.locator(".cell")).to_have_count(11)
    page.locator("#filter").select_option("class 1")
    expect(page.locator(".cell")).to_have_count(1)


def test_a_class_is_added_renamed_removed(studio, open_page):
    page = open_page(studio)
    forget_tags(page)
    page.keyboard.press("/")
    page.keyboard.type("bird")
    page.keyboard.press("Enter")
    expect(key(page, "bird")).to_be_visible()
    page.get_by_role("button", name="Edit classes").click()
    page.get_by_role("textbox", name="Name of the class bird").fill("swan")
    page.get_by_role("button", name="Rename bird").click()
    expect(key(page, "swan")).to_have_count(1)
    page.get_by_role("button", name="Remove swan").click()
    expect(key(page, "swan")).to_have_count(0)
    rules = studio.folder / "constraints.toml"
    kind = page.get_by_role("combobox", name="Is cat an object or a surface?")
    kind.select_option("surface")
    wait_until(page, lambda: rules.exists() and 'kind = "surface"' in rules.read_text())
    expect(kind).to_have_value("surface")
    kind.select_option("")
    wait_until(page, lambda: "kind" not in rules.read_text())
    assert (studio.folder / "classes.txt").read_text().split() == ["cat", "dog"]


def cut_off(page, pattern, address):
    """Requests of the page get no answer. The browser may let the first of them through: wait until one fails."""
    page.route(pattern, lambda route: route.abort())
    wait_until(page, lambda: page.evaluate("address => fetch(address).then(() => false, () => true)", address))


# --- two pages, no server, hostile names -----------------------------------------------------------------------------

def test_two_pages_do_not_overwrite_each_other(studio, open_page):
    here, there = open_page(studio), open_page(studio)
    forget_tags(here)
    expect(cell(there, "00.jpg")).to_have_attribute("data-state", "undecided")
    wait_until(here, lambda: not tags_file(studio.folder))
    cut_off(here, "**/api/tags", "/api/tags")                           # this page's changes do not arrive
    here.keyboard.press("1")
    expect(here.locator("#connection")).to_contain_text("1 change waits")
    there.locator("#grid").focus()
    there.keyboard.press("2")
    wait_until(there, lambda: tags_file(studio.folder) == {"00.jpg": "dog"})
    here.unroute("**/api/tags")
    expect(here.locator("#messages")).to_contain_text("Changed elsewhere meanwhile, and shown as it is now: 00.jpg")
    expect(cell(here, "00.jpg")).to_have_attribute("aria-label", "00.jpg, dog")
    assert tags_file(studio.folder) == {"00.jpg": "dog"}


def test_changes_wait_while_the_server_is_away(studio, open_page):
    page = open_page(studio)
    forget_tags(page)
    wait_until(page, lambda: not tags_file(studio.folder))
    cut_off(page, "**/api/**", "/api/state")
    for press in ("1", "ArrowRight", "2", "ArrowRight", "0"):
        page.keyboard.press(press)
    expect(page.locator("#connection")).to_contain_text("3 changes wait to be saved")
    assert not tags_file(studio.folder)
    page.unroute("**/api/**")
    expect(page.locator("#connection")).to_be_hidden()
    wait_until(page, lambda: tags_file(studio.folder) == {"00.jpg": "cat", "01.jpg": "dog", "02.jpg": ""})


def test_news_that_come_late_do_not_undo_newer_ones(studio, open_page):
    """The page asks for everything; before the last answer is there, an event tells of something newer."""
    page, other = open_page(studio), open_page(studio)
    forget_tags(page)                                                   # so that it does not train
    expect(page.locator("#auto")).to_have_attribute("aria-checked", "false")
    held, released = [], []
    page.route("**/api/loss", lambda route: route.continue_() if released else held.append(route))
    with page.expect_response("**/api/state"):
        studio.ask("POST", "/api/classes", {"add": "bird"})             # of which the page asks for everything
    wait_until(page, lambda: held)
    page.evaluate("""() => {
        const auto = document.getElementById("auto"), seen = window.seen = []
        new MutationObserver(() => seen.push(auto.getAttribute("aria-checked"))).observe(auto, {attributes: true})
    }""")
    studio.ask("PUT", "/api/auto", {"auto": True})
    expect(other.locator("#auto")).to_have_attribute("aria-checked", "true")        # both pages were told
    with page.expect_response("**/api/photographs"):                    # the last that it asks for
        released.append(True)
        for route in held:
            route.continue_()
    page.evaluate("fetch('/api/photographs').then(answer => answer.text())")        # by now it has used that
    expect(key(page, "bird")).to_be_visible()
    expect(page.locator("#auto")).to_have_attribute("aria-checked", "true")
    seen = page.evaluate("window.seen")
    assert "false" not in seen[seen.index("true"):], seen
    page.locator("#auto").click()
    expect(page.locator("#auto")).to_have_attribute("aria-checked", "false")
    studio.ask("POST", "/api/classes", {"remove": "bird"})
    expect(key(page, "bird")).to_have_count(0)


def test_keys_and_lists_stay_under_the_pointer(studio, open_page):
    """Only what differs is made anew: a click has two ends, and news may come between them."""
    page = open_page(studio)
    forget_tags(page)
    expect(page.locator("#tally")).to_have_text("0 of 12 photographs tagged")
    kept = [page.locator(where).first.element_handle() for where in (
        "#classbar .key", "#filter option", "#commands button", "#train")]
    before = page.locator("#train").bounding_box()
    page.keyboard.press("1")
    expect(page.locator("#tally")).to_have_text("1 of 12 photographs tagged")
    assert all(element.evaluate("element => element.isConnected") for element in kept)
    assert page.locator("#train").bounding_box() == before
    forget_tags(page)


def test_hostile_names_are_text(root, place, open_page, tmp_path):
    folder = draw_photographs(tmp_path / HOSTILE, 1, 3)
    (folder / "00.jpg").rename(folder / f"{HOSTILE}.jpg")
    with Studio(root, place, folder) as studio:
        page = open_page(studio)
        page.keyboard.press("/")
        page.keyboard.type(HOSTILE)
        page.keyboard.press("Enter")
        expect(key(page, HOSTILE)).to_be_visible()
        page.keyboard.press("1")
        expect(page.locator(".cell .chip")).to_have_text(HOSTILE)
        page.keyboard.press("Enter")
        expect(page.locator("#viewer-title")).to_have_text(f"{HOSTILE}.jpg")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Edit classes").click()
        page.wait_for_timeout(500)
        assert page.evaluate("window.hit") is None


# --- adding photographs ----------------------------------------------------------------------------------------------

def test_an_empty_folder_teaches_and_takes_photographs(root, place, open_page, tmp_path):
    folder = tmp_path / "empty"
    with Studio(root, place, folder) as studio:
        page = open_page(studio)
        expect(page.locator("#welcome li")).to_have_count(3)
        source = draw_photographs(tmp_path / "source", 2, 4)
        page.locator("#add-files").set_input_files(source / "00.jpg")
        expect(cell(page, "00.jpg")).to_be_visible()
        data = (source / "01.jpg").read_bytes()
        dropped = page.evaluate_handle("""bytes => {
            const transfer = new DataTransfer()
            transfer.items.add(new File([new Uint8Array(bytes)], "01.jpg", {type: "image/jpeg"}))
            return transfer
        }""", list(data))
        page.dispatch_event("#grid", "drop", {"dataTransfer": dropped})
        expect(cell(page, "01.jpg")).to_be_visible()
        assert (folder / "01.jpg").read_bytes() == data
        expect(page.locator("#welcome")).to_be_hidden()
        album = draw_photographs(tmp_path / "album", 1, 5)              # a folder, chosen as a whole
        (album / "day").mkdir()
        (album / "00.jpg").rename(album / "day/a.jpg")
        (album / "broken.jpg").write_bytes(b"no picture")
        (album / "notes.txt").write_text("no picture")
        page.locator("#add-directory").set_input_files(album)
        expect(cell(page, "day-a.jpg")).to_be_visible()
        refused = page.locator("#messages .stays")
        expect(refused).to_contain_text("2 files refused")
        for name in ("broken.jpg", "notes.txt"):
            expect(refused).to_contain_text(f"{name}: ")
        expect(page.locator("#selected")).to_have_text("Photographs added: 1 of 3, 2 refused")
        refused.get_by_role("button").click()                           # it stays until then
        expect(refused).to_have_count(0)
        trip = draw_photographs(tmp_path / "trip", 8, 6)                # a folder, dropped: by name, not as they arrive
        (trip / "more").mkdir()
        (trip / "07.jpg").rename(trip / "more/b.jpg")
        for number in (0, 1):
            (trip / f"0{number}.jpg").rename(trip / f"1{number}.jpg")
        mouse, box = page.context.new_cdp_session(page), page.locator("#grid").bounding_box()
        for kind in ("dragEnter", "dragOver", "drop"):
            mouse.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 50, "y": box["y"] + 50, "data": {
                "items": [], "files": [str(trip)], "dragOperationsMask": 1}})
        expect(page.locator("#selected")).to_have_text("8 photographs added.")
        expect(page.locator("#dropping")).to_be_hidden()
        wait_until(page, lambda: shown(page) == [*names(*range(7), 10, 11), "day-a.jpg", "more-b.jpg"])


# --- phone, screen reader, colours -----------------------------------------------------------------------------------

def test_a_phone(studio, open_page):
    page = open_page(studio, 375, 720, has_touch=True, is_mobile=True)
    fingers = page.context.new_cdp_session(page)
    fingers.send("Emulation.setCPUThrottlingRate", {"rate": 6})         # a slow one
    cell(page, "00.jpg").tap()                                          # the browser makes a click of it later
    expect(cell(page, "00.jpg")).to_have_attribute("aria-selected", "true")
    cell(page, "01.jpg").tap()
    expect(cell(page, "01.jpg")).to_have_attribute("aria-selected", "true")
    assert selected(page) == names(0, 1)
    key(page, "cat").tap()
    for name in names(0, 1):
        expect(cell(page, name)).to_have_attribute("data-state", "tagged")
    for shown in ("#tally", "#help", "#undo"):
        expect(page.locator(shown)).to_be_visible()
    for view in ("photographs", "learn", "out"):
        page.locator(f"nav [data-view={view}]").tap()
        expect(page.locator("body")).to_have_attribute("data-view", view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert beyond(page) == []
    page.locator("nav [data-view=photographs]").tap()
    page.locator("#open").tap()
    expect(page.locator("#viewer")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert beyond(page) == []
    page.locator("#tool [data-tool=brush]").tap()
    expect(page.locator("#tool [data-tool=brush]")).to_have_attribute("aria-checked", "true")
    ticks = itertools.count(time.time(), 0.01)                          # seconds: quick strokes on a busy machine too

    def touch(kind, *points):
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "timestamp": next(ticks), "touchPoints": [
            dict(zip("xy", spot(page, *point)), id=k) for k, point in enumerate(points)]})
    touch("touchStart", (0.4, 0.5))
    touch("touchStart", (0.4, 0.5), (0.6, 0.5))                         # two fingers: no mark, but
    touch("touchMove", (0.3, 0.5), (0.7, 0.5))
    touch("touchEnd")
    assert not (studio.folder / "scribbles/00.png").exists()
    expect(page.locator("#zoom-whole")).not_to_have_text("100 %")
    page.locator("#zoom-whole").tap()
    expect(page.locator("#zoom-whole")).to_have_text("100 %")           # fingers go where the photograph is then
    number = page.locator("#viewer-title").text_content()[:2]
    file = studio.folder / f"scribbles/{number}.png"
    with page.expect_response(lambda answer: "/api/scribbles/" in answer.url and answer.request.method == "POST"):
        touch("touchStart", (0.4, 0.5))
        touch("touchMove", (0.6, 0.5))
        touch("touchEnd")
    assert file.exists()
    assert (marks(studio.folder, number) == 1).any()
    page.locator("#draw-undo").tap()
    wait_until(page, lambda: not file.exists())


def beyond(page):
    """Elements that reach beyond the screen."""
    return page.evaluate("""() => [...document.querySelectorAll("body *")].filter(element =>
        element.checkVisibility() && element.getBoundingClientRect().right > innerWidth + 1
        ).map(element => element.outerHTML.slice(0, 80))""")


@pytest.mark.parametrize("part", ["page", "viewer", "classes"])
def test_every_control_has_a_name(trained, open_page, part):
    """As the browser tells a screen reader."""
    page = open_page(trained)
    if part == "viewer":
        open_large(page)
        expect(page.get_by_role("slider", name="cat: at least")).to_be_visible()
    if part == "classes":
        page.get_by_role("button", name="Edit classes").click()
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in tree if not node["ignored"] and node["role"]["value"] in (
        "button", "switch", "textbox", "combobox", "slider", "radio", "link", "listbox", "option", "toolbar", "dialog",
        "progressbar", "ToggleButton")]
    assert len(controls) >= 8
    assert [node["role"]["value"] for node in controls if not node.get("name", {}).get("value")] == []


def test_colours_contrast(root):
    style = (root / "ccnn/studio/page/style.css").read_text()
    light, dark = ({name: tuple(bytes.fromhex(colour)) for name, colour in
                    re.findall(r"--([a-z-]+): #([0-9a-f]{6})", block)}
                   for block in re.findall(r":root \{([^}]*)\}", style))
    assert light.keys() == dark.keys()
    for c in (light, dark):
        for surface in ("paper", "card", "chosen", "track"):
            assert contrast(c["ink"], c[surface]) > 7
            assert contrast(c["soft"], c[surface]) > 4.5, surface
        for surface in ("paper", "card"):
            assert contrast(c["accent"], c[surface]) > 4.5 and contrast(c["alarm"], c[surface]) > 4.5
            assert contrast(c["line"], c[surface]) > 3                  # borders of controls
        assert contrast(c["on-accent"], c["accent"]) > 4.5 and contrast(c["alarm"], c["alarm-card"]) > 4.5
        assert contrast(c["code-ink"], c["code"]) > 7


def test_no_text_outside_texts_js_and_nothing_from_elsewhere(root):
    """English in one file; no address; no HTML made of text."""
    page = root / "ccnn/studio/page"
    shell = re.sub(r"<!--.*?-->|<title>.*?</title>|<noscript>.*?</noscript>|<[^>]*>", " ",
                   (page / "index.html").read_text(), flags=re.S)
    assert not re.findall(r"[A-Za-z]{2,}", shell)
    for file in page.iterdir():
        source = file.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", source), file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", source), file
    spoken = json.dumps((page / "texts.js").read_text())
    for word in re.findall(r'data-(?:text|label|hint)="(\w+)"', (page / "index.html").read_text()):
        assert re.search(rf"\b{word}:", spoken), word
