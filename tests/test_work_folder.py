"""A folder of photographs that comes from a stranger, with a .ccnn in it, changes no file outside that .ccnn."""
import asyncio
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from drawn_photographs import draw, table
from PIL import Image

from ccnn._util import files
from ccnn._util.errors import UserError
from ccnn._util.work_folder import WORK
from ccnn.annotations.import_formats import read_source
from ccnn.cli import studio as studio_command
from ccnn.images.reading import read_mask
from ccnn.inference.model_file import read_model
from ccnn.nets.backbones import Backbone
from ccnn.nets.cues import Cue
from ccnn.project import feature_cache, learn
from ccnn.project.folder import read_folder
from ccnn.studio import precompute, session
from ccnn.studio.album import Album, Change, Stroke
from ccnn.studio.thumbnails import make_copy

AWAY = 1e9          # a time long past: nobody is writing such a file


@pytest.fixture
def photos(tmp_path):
    """Four photographs with tags, and a working folder that looks used."""
    folder = tmp_path / "shared/photos"
    folder.parent.mkdir()
    masks = draw(folder, 4, seed=1)
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "tags.csv").write_text(table(masks))
    (folder / ".ccnn").mkdir()
    return folder


@pytest.fixture
def home(tmp_path):
    """What the user has elsewhere, under names that a working folder has, too."""
    home = tmp_path / "home"
    for name in ("letters/a.txt", "a.npy", "a.png", "index.json", "photographs.json", "state.json", "settings.json",
                 "uploads/1.jpg", "batches/1/masks/0001.png", "0123456789abcdef/first.log", "first.prototxt",
                 "0123456789abcdef/second_iter_5.caffemodel", "0123456789abcdef-1-1-320.jpg", ".a.01234567.part.npy"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
        os.utime(path, (AWAY, AWAY))
    return home


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def trunk(tmp_path, monkeypatch):
    """Weights that are never read; nothing is computed with them."""
    weights = tmp_path / "trunk.caffemodel"
    weights.write_text("weights")
    monkeypatch.setattr(Backbone, "fetch_weights", lambda self: weights)

    def compute(backbone, weights, files, out, size, jobs):
        for id in files:
            (out / f"{id}.npy").write_text("features")
        return {}
    monkeypatch.setattr(feature_cache, "compute", compute)

    def write_maps(writer, todo, jobs, failed):
        for _, path in todo:
            with files.whole_file(path) as part:
                part.write_text("map")
            yield None
    monkeypatch.setattr(Cue, "fetch_net", lambda self: weights)
    monkeypatch.setattr(feature_cache, "in_processes", write_maps)
    monkeypatch.setattr(learn, "decide", lambda project: {})
    monkeypatch.setattr(session.Pool, "warm", lambda self: None)


def run_learn(folder):
    """All of ccnn learn that writes and removes files, but for Caffe's own."""
    project = learn.Project(read_folder(str(folder)))
    try:
        project.compute_features(1)
        run = project.work / "runs/fedcba9876543210"
        run.mkdir(parents=True)
        weights = run / "second_iter_1.caffemodel"
        weights.write_text("weights")
        project.write_net(project.work / "first.prototxt")
        project.remove_snapshots(weights)
        return project
    finally:
        project.lock.close()


def run_ahead(folder):
    precompute.compute_features(folder, 1)


def run_studio(folder):
    async def life():
        opened = session.Session(studio_command.open_folder(folder))
        try:
            await opened.open()
            opened.set_auto(True)
        finally:
            await opened.close()
    asyncio.run(life())


PROGRAMS = {"learn": run_learn, "ahead": run_ahead, "studio": run_studio}

LINKED = ["", "features", "features/224", "cues", "cues/u2netp-224", "runs", "runs/0123456789abcdef",
          "folds", "labels", "thumbnails", "studio", "studio/uploads", "studio/batches"]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", LINKED)
def test_a_link_to_a_folder_is_refused_and_that_folder_stays(photos, home, trunk, program, name):
    link = photos / ".ccnn" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not name:
        link.rmdir()
    link.symlink_to(home)
    before = content(home)
    with pytest.raises(UserError) as refused:
        PROGRAMS[program](photos)
    assert content(home) == before
    assert f"{link}: is a link" in str(refused.value) and f"(rm {link})" in str(refused.value)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["lock", "studio.lock", "state.json", "first.prototxt", "features/224/index.json",
                                  "features/224/photographs.json", "features/224/0.npy", "studio/settings.json",
                                  "runs/0123456789abcdef/first.log"])
def test_a_link_to_a_file_is_refused_and_that_file_stays(photos, home, trunk, program, name):
    link = photos / ".ccnn" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(home / "letters/a.txt")
    before = content(home)
    with pytest.raises(UserError, match="is a link"):
        PROGRAMS[program](photos)
    assert content(home) == before


@pytest.mark.parametrize("program", ["learn", "ahead"])
def test_keys_of_our_own_files_name_nothing_elsewhere(photos, home, trunk, program):
    for size in learn.RECIPE.sizes:
        place = photos / f".ccnn/features/{size}"
        place.mkdir(parents=True)
        keys = [str(home / "a"), "../../../../../home/a", "../../../photos/../../home/a", "x" * 5000, "a\0b", "\ud800"]
        (place / "photographs.json").write_text(json.dumps(dict.fromkeys(keys, "0" * 64)))
    before = content(home)
    PROGRAMS[program](photos)
    assert content(home) == before
    known = json.loads((photos / ".ccnn/features/224/photographs.json").read_text())
    assert sorted(known) == ["0", "1", "2", "3"]


def test_features_of_photographs_that_changed_are_removed(photos, trunk):
    """The other side of the rule: what is ours and stale does go."""
    run_learn(photos)
    place, (first, second) = photos / ".ccnn/features/224", sorted(photos.glob("*.jpg"))[:2]
    for id in ("gone", "sub/gone"):
        (place / id).parent.mkdir(exist_ok=True)
        (place / f"{id}.npy").write_text("features of a photograph that is gone")
    (place / "notes.txt").write_text("the user's")
    for path in place.glob("*.npy"):
        path.write_text("old")
    shutil.copy(second, first)
    project = learn.Project(read_folder(str(photos)))
    feature_cache.remove_stale(place, project.digests, ())
    project.lock.close()
    assert sorted(path.stem for path in place.rglob("*.npy")) == ["1", "2", "3"]
    assert (place / "notes.txt").exists()


@pytest.mark.parametrize("damage", ["cut", "text", "shape", "pickle"])
def test_a_damaged_map_of_a_cue_is_made_again(photos, trunk, damage):
    files = {"0": str(photos / "0.jpg")}
    feature_cache.update_maps(photos / ".ccnn", "u2netp", files, {"0": "0" * 64}, 1)
    path = photos / ".ccnn/cues/u2netp-224/0.npy"
    whole = np.ones((224, 224), np.float16)
    np.save(path, np.array([{}]) if damage == "pickle" else whole[:9] if damage == "shape" else whole)
    good = path.read_bytes()
    path.write_bytes({"cut": good[:-3], "text": b"text"}.get(damage, good))
    feature_cache.update_maps(photos / ".ccnn", "u2netp", files, {"0": "0" * 64}, 1)
    assert path.read_text() == "map"
    np.save(path, whole)
    feature_cache.update_maps(photos / ".ccnn", "u2netp", files, {"0": "0" * 64}, 1)
    assert (np.load(path) == 1).all()               # this one is kept


def test_only_names_that_we_write_are_removed(photos, trunk):
    """Files that other programs keep everywhere stay, wherever they are."""
    work = photos / ".ccnn"
    own = ["features/a.npy", "features/100/a.npy", "features/100/index.json", "runs/0123456789abcdef/first.log",
           "studio/uploads/1.jpg", "studio/batches/1/photographs/0001.jpg", "studio/batches/1/masks/overlay/0001.jpg"]
    other = ["features/100/@eaDir/a.jpg", "features/notes.txt", "runs/notes/first.log", "studio/uploads/mine.jpg",
             "runs/0123456789abcdef/Thumbs.db", "studio/batches/1/photographs/mine.jpg", "precious/a.npy"]
    for name in own + other:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    run_learn(photos)
    run_studio(photos)
    assert [name for name in own if (work / name).exists()] == []
    assert [name for name in other if not (work / name).exists()] == []


@pytest.mark.parametrize("weights", ["/etc/passwd", "../../../home/a.npy", "runs/../../../../home/a.npy",
                                     "runs/0123456789abcdef/../../../a.txt"])
def test_the_state_names_no_weights_elsewhere(photos, home, trunk, weights):
    project = run_learn(photos)
    project.write_state(learn.State(project.inputs, weights, "0" * 64, None, (2, 1)))
    project = learn.Project(read_folder(str(photos)))
    project.lock.close()
    assert project.state is None and not project.trained


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 1_000_000, "null", '{"weights": 1}', "\xff"],
                         ids=["deep", "long", "null", "incomplete", "no text"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_damaged_files_of_our_own_are_made_again(photos, trunk, program, text):
    place = photos / ".ccnn/features/224"
    place.mkdir(parents=True)
    (photos / ".ccnn/studio").mkdir()
    for path in (photos / ".ccnn/state.json", photos / ".ccnn/studio/settings.json", place / "photographs.json",
                 place / "index.json"):
        path.write_bytes(text.encode("latin-1"))
    PROGRAMS[program](photos)
    if program != "studio":
        assert sorted(json.loads((place / "photographs.json").read_text())) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("name", ["classes.txt", "tags.csv", "constraints.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_would_never_end_is_not_read(photos, trunk, name, kind):
    """A pipe that nobody writes to, and a device: both can be in an archive."""
    (photos / name).unlink(missing_ok=True)
    os.mkfifo(photos / name) if kind == "pipe" else (photos / name).symlink_to("/dev/zero")
    if name == "constraints.toml":
        read_folder(str(photos))                # as if it were not there
    else:
        with pytest.raises(UserError, match=f"{name}: (is not a file|no such|cannot|there is no)"):
            read_folder(str(photos))


def test_pipes_among_labels_and_as_a_model_are_not_read(photos):
    os.mkfifo(photos / "labels.txt")
    os.mkfifo(photos / "model.ccnn")
    with pytest.raises(UserError, match="has neither masks"):
        read_source(str(photos))
    with pytest.raises(UserError, match="model.ccnn: is not a file"):
        read_model(photos / "model.ccnn")


def test_a_list_of_many_classes_is_refused_at_once(photos):
    (photos / "classes.txt").write_text("".join(f"class {number}\n" for number in range(300_000)))
    with pytest.raises(UserError, match="lists 300000 classes besides the background; expected 1 to 254"):
        read_folder(str(photos))


# Locks

def test_a_lock_is_an_ordinary_file_of_our_own(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    kinds = {"link": lambda path: path.symlink_to(precious), "same": lambda path: os.link(precious, path),
             "pipe": os.mkfifo, "dangling": lambda path: path.symlink_to(tmp_path / "nowhere")}
    for name, make in kinds.items():
        make(tmp_path / name)
        with pytest.raises(UserError, match=f"{name}: is "):
            files.lock(tmp_path / name, "taken")
    assert precious.read_text() == "precious" and not (tmp_path / "nowhere").exists()


def test_whatever_a_lock_holds_is_no_command(tmp_path):
    path = tmp_path / "lock"
    held = files.lock(path, "taken")
    path.write_bytes(b"\xff; rm -r ~")
    with pytest.raises(UserError, match=r"stop \(unknown\)"):
        files.lock(path, "stop {holder}", patience=0)
    held.close()


def test_the_folder_of_another_user_is_refused(photos, trunk, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for program in PROGRAMS.values():
        with pytest.raises(UserError, match="belongs to user"):
            program(photos)


def test_photographs_inside_a_working_folder_are_refused(photos, trunk):
    inner = photos / ".ccnn/photos"
    shutil.copytree(photos, inner, ignore=shutil.ignore_patterns(".ccnn"))
    with pytest.raises(UserError, match="move the photographs out"):
        run_learn(inner)


# The studio's own paths

def test_copies_and_scribbles_do_not_leave_the_folder(photos, home):
    (photos / ".ccnn/thumbnails").symlink_to(home)
    with pytest.raises(UserError, match="thumbnails: is a link"):
        make_copy(photos / "0.jpg", photos / ".ccnn/thumbnails/0123456789abcdef-2-2-320.jpg", 320)
    (photos / ".ccnn/thumbnails").unlink()

    (photos / "JPEGImages").mkdir()
    (photos / "scribbles").symlink_to("JPEGImages")
    (photos / "constraints.toml").write_text("[scribbles]\n")
    shutil.move(str(photos / "0.jpg"), photos / "JPEGImages/0.jpg")
    album = Album(photos)
    album.refresh()
    found = next(photograph for photograph in album.photographs if photograph.id == "0")
    before = content(photos)
    with pytest.raises(UserError, match="scribbles: is a link"):
        album.draw(found.number, 0, [Stroke(1, 0.1, [(0.5, 0.5)])])
    assert {path: data for path, data in content(photos).items() if path.name != "tags.csv"
            and WORK not in path.parts} == {path: data for path, data in before.items() if path.name != "tags.csv"}


def album_of(photos):
    """The album, and the photograph 0 with three states before now: nothing, one mark, two."""
    album = Album(photos)
    album.refresh()
    found = next(photograph for photograph in album.photographs if photograph.id == "0")
    for x in (0.2, 0.5, 0.8):
        album.draw(found.number, found.scribble, [Stroke(0, 0.05, [(x, 0.5)])])
    return album, found, photos / "scribbles/0.png"


@pytest.mark.parametrize("damage", [b"no picture", "another size", "a folder"])
def test_a_damaged_state_does_not_block_undo(photos, damage):
    _, found, png = album_of(photos)
    newest = max((photos / ".ccnn/studio/history").rglob("*.png"))
    if damage == "another size":
        Image.new("L", (5, 4), 255).save(newest)
    else:
        newest.unlink()
        newest.mkdir() if damage == "a folder" else newest.write_bytes(damage)
    newest.with_name("undo-999999.png").write_bytes(newest.with_name("undo-000002.png").read_bytes())
    album = Album(photos)
    album.refresh()
    found = album.photographs[found.number]
    now = read_mask(png, 3)
    assert (now[read_mask(newest.with_name("undo-000002.png"), 3) == 0] == 0).all()
    album.step_scribble(found.number, found.scribble, "undo")           # to one mark: that of two is lost
    assert 0 < (read_mask(png, 3) == 0).sum() < (now == 0).sum()
    album.step_scribble(found.number, found.scribble, "undo")
    assert not png.exists()
    with pytest.raises(UserError, match="nothing to undo"):
        album.step_scribble(found.number, found.scribble, "undo")
    album.step_scribble(found.number, found.scribble, "redo")
    album.draw(found.number, found.scribble, [Stroke(0, 0.05, [(0.5, 0.9)])])
    assert album.history.counts("0.jpg") == {"undo": 2}


def test_undo_writes_where_drawing_does(photos):
    """The rules were changed, or come from a stranger together with a history."""
    _, _, png = album_of(photos)
    shutil.rmtree(photos / "scribbles")
    (photos / "constraints.toml").unlink()
    album = Album(photos)
    album.refresh()
    number = album.by_path["0.jpg"].number
    album.step_scribble(number, 0, "undo")
    assert png.is_file() and (photos / "constraints.toml").read_text() == "[scribbles]\n"

    marks = png.read_bytes()                    # a photograph whose scribble would be itself
    shutil.move(png, photos / "1.png")
    (photos / "1.jpg").unlink()
    (photos / "constraints.toml").write_text('[scribbles]\nfolder = "."\n')
    album = Album(photos)
    album.refresh()
    found = album.by_path["1.png"]
    album.history.push("1.png", "undo", None)
    with pytest.raises(UserError, match="lie elsewhere"):
        album.step_scribble(found.number, found.scribble, "undo")
    assert (photos / "1.png").read_bytes() == marks


def test_a_link_in_the_place_of_the_history_is_not_searched(photos, home):
    (photos / ".ccnn/studio").mkdir()
    (photos / ".ccnn/studio/history").symlink_to(home)
    with pytest.raises(UserError, match="history: is a link"):
        Album(photos)


def test_parts_are_removed_by_the_name_that_we_give_them(tmp_path):
    own, others = ".a.0123abcd.part.png", [".a.part.png", ".film.part1.rar", "a.0123abcd.part.png"]
    for name in [own, *others]:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (AWAY, AWAY))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / own).touch()
    os.utime(tmp_path / "elsewhere" / own, (AWAY, AWAY))
    out = tmp_path / "out"
    out.mkdir()
    (out / "link").symlink_to("../elsewhere")
    files.remove_parts(out)
    assert (tmp_path / "elsewhere" / own).exists()
    files.remove_parts(tmp_path)
    assert not Path(tmp_path / own).exists() and all((tmp_path / name).exists() for name in others)


@pytest.mark.parametrize("name", ["scribbles/.0.0123abcd.part.png", ".tags.0123abcd.part.csv",
                                  ".ccnn/.a.0123abcd.part.json"])
def test_parts_of_a_killed_studio_are_removed_when_it_is_opened_again(photos, trunk, name):
    (photos / "constraints.toml").write_text("[scribbles]\n")
    (photos / name).parent.mkdir(exist_ok=True)
    (photos / name).touch()
    os.utime(photos / name, (AWAY, AWAY))
    run_studio(photos)
    assert not (photos / name).exists()


def test_tags_of_a_private_table_stay_private(photos):
    (photos / "tags.csv").chmod(0o600)
    album = Album(photos)
    album.refresh()
    album.put_tags([Change(0, album.get(0).revision, ("dog",), ())])
    assert (photos / "tags.csv").stat().st_mode & 0o777 == 0o600
    assert "0.jpg,dog," in (photos / "tags.csv").read_text()
