"""Commands: errors in one line, messages of the library, and the private runtime from anywhere."""
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from tiny_voc import make_voc, save_mask

import ccnn
from ccnn._util import errors, paths
from ccnn._util.errors import ImageError
from ccnn._util.workers import own_command
from ccnn.cli import COMMANDS, command, main
from ccnn.nets.backbones import VGG16

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("error, status, text", [
    (errors.UserError("a.txt: is\n  wrong"), 2, "a.txt: is wrong"),
    (ImageError("a.jpg: is damaged"), 2, "a.jpg: is damaged"),
    (FileNotFoundError(2, "No such file or directory", "b.txt"), 2, "b.txt: No such file or directory"),
    (OSError("disk on fire"), 2, "disk on fire"),
    (ImageError("\x1b]0;x\x07.jpg: is damaged"), 2, r"\x1b]0;x\x07.jpg: is damaged"),
    (MemoryError("9 TB"), 2, "out of memory (9 TB); use a smaller size or fewer jobs"),
    (ModuleNotFoundError("No module named 'matplotlib'"), 2,
     f"No module named 'matplotlib'; get it with: {shlex.quote(sys.executable)} -m pip install -r requirements.txt"),
    (KeyboardInterrupt(), 130, "stopped"),
])
def test_an_error_is_one_line(error, status, text, capsys, monkeypatch):
    def main():
        raise error
    monkeypatch.setattr(sys, "argv", ["somewhere/infer.py"])
    with pytest.raises(SystemExit) as exit:
        command.run(main)
    assert exit.value.code == status
    assert capsys.readouterr().err == f"infer.py: error: {text}\n"


def test_several_mistakes_have_a_line_each(capsys, monkeypatch):
    def main():
        raise errors.Mistakes("tags.csv", [(f"line {k}", "is\nwrong") for k in range(1, 23)])
    monkeypatch.setattr(sys, "argv", ["ccnn learn"])
    with pytest.raises(SystemExit) as exit:
        command.run(main)
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert (exit.value.code, first, last) == (2, "ccnn learn: error: tags.csv: 22 mistakes", "  and 2 more")
    assert lines == [f"  line {k}: is wrong" for k in range(1, 21)]


def test_an_interrupt_while_a_command_is_loaded_leaves_no_trace(tmp_path):
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")           # what ^C does in the middle of an import
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ccnn.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


TOOL = '''#!/usr/bin/env python3
"""The same as `ccnn {name}`: see ccnn/cli/{module}.py."""
import _activate  # noqa: F401

from ccnn.cli.command import run
from ccnn.cli.{module} import main

if __name__ == "__main__":
    run(main)
'''


def test_every_command_has_a_module_and_a_tool():
    modules = {name: name.replace("-", "_") for name in COMMANDS}
    assert {*modules.values()} == {path.stem for path in (ROOT / "ccnn/cli").glob("*.py")} \
        - {"__init__", "command", "mask_report"}
    tools = {module.replace("segment", "infer"): sorted(TOOL.format(name=name, module=module).splitlines())
             for name, module in modules.items() if name not in ("ahead", "demo")}
    assert {path.stem: sorted(path.read_text().splitlines()) for path in (ROOT / "tools").glob("[!_]*.py")} == tools


def test_a_python_without_the_packages_is_an_error_in_one_line(python_bin):
    """-E ignores PYTHONPATH, -S the installed packages; CCNN_ACTIVATED: the private runtime has been tried."""
    done = subprocess.run([python_bin, "-E", "-S", ROOT / "tools/score.py", "--help"], capture_output=True, text=True,
                          env={**os.environ, "CCNN_ACTIVATED": "1"})
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"score.py: error: No module named .*; run `make` first\n", done.stderr)


def test_without_activate_a_tool_goes_on_in_the_private_runtime(python_bin, tmp_path):
    """Its help is that of the command."""
    done = subprocess.run([python_bin, "-E", "-S", ROOT / "tools/infer.py", "--help"], capture_output=True, text=True,
                          cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "ccnn segment" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words, status, said", [
    ([], 0, "ccnn segment --out masks"), (["--help"], 0, "tune-crf"), (["--version"], 0, "."),
    (["segmnet"], 2, "'segmnet' is not a command; did you mean 'segment'?"),
    (["score", "a", "--voc", "nowhere"], 2, "ccnn score: error: --voc nowhere: no such folder"),
    (["train", "--help"], 0, "usage: ccnn train"),
    (["segment"], 2, "ccnn segment: error: the following arguments are required: --out; ccnn segment --help explains"),
    (["show", "log", "a.log"], 2, "ccnn show log: error: the following arguments are required: --out; ccnn show log"),
    (["learn", "--steps", "nan", "."], 2, "--steps: need a whole number, at least 1; got 'nan'"),
    (["serve", "--port", "99999"], 2, "--port: need a port, at most 65535; got '99999'"),
    (["studio", "--port", "99999"], 2, "--port: need a port, at most 65535; got '99999'"),
    (["segment", "--out", __file__, "a.jpg"], 2, "is a file; name a folder for the masks"),
    (["train", str(ROOT)], 2, "is not a file"),
])
def test_the_command(words, status, said, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ccnn"])
    with pytest.raises(SystemExit) as exit:
        main(words)
    printed = capsys.readouterr()
    assert (exit.value.code or 0) == status and said in (printed.err if status else printed.out)
    assert len(printed.err.splitlines()) == (1 if status else 0)


def test_the_package_runs_as_a_module(python_bin, tmp_path):
    done = subprocess.run([python_bin, "-m", "ccnn", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ccnn.__version__}\n", "")


def test_a_strangers_folder_is_not_imported(tmp_path, monkeypatch):
    """Commands that the library starts do not look for modules in the current folder."""
    (tmp_path / "ccnn").mkdir()
    (tmp_path / "ccnn/__init__.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(own_command("--version"), capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def other_python():
    """A Python that is not the private one."""
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if ".caffe" not in folder]
    found = shutil.which("python3", path=os.pathsep.join(folders))
    if not found:
        pytest.skip("needs a python3 on PATH besides the private one")
    return found


def test_a_tool_runs_with_any_python_from_any_directory(tmp_path, other_python):
    """A path with spaces, the system's Python, a relative name of the tool, and another current directory."""
    place = tmp_path / "a place"
    (place / "tools").mkdir(parents=True)
    for name in ("_activate.py", "score.py"):
        shutil.copy(ROOT / "tools" / name, place / "tools" / name)
    (place / ".caffe").symlink_to(ROOT / ".caffe")
    (tmp_path / "else").mkdir()
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([other_python, "-E", "-S", "../a place/tools/score.py", "a mask", "--voc", "no such place"],
                          cwd=tmp_path / "else", env=clean, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "score.py: error: --voc no such place: no such folder; ccnn get-voc makes it\n"


@pytest.fixture
def elsewhere(tmp_path):
    """A folder far from the repository with a VOC folder, masks, and a photograph."""
    make_voc(tmp_path / "voc", images=2)
    (tmp_path / "voc/ImageSets/Segmentation/val.txt").write_text("2007_000000\n2007_000001\n")
    for name in ("2007_000000", "2007_000001"):
        save_mask(tmp_path / f"masks/{name}.png", np.zeros((48, 64)))
    shutil.copy(tmp_path / "voc/JPEGImages/2007_000000.jpg", tmp_path / "photo.jpg")
    return tmp_path


@pytest.mark.parametrize("command, made", [
    ("score.py mine=masks --voc voc --out new/scores.md", "new/scores.md"),
    ("infer.py --out found photo.jpg", "found/photo.png"),
])
def test_a_tool_works_in_any_directory(elsewhere, command, made):
    """Paths that the user gives begin where the user is; what a tool takes by default, in the repository."""
    if command.startswith(("infer", "pack")) and not VGG16.weights.exists():
        pytest.skip("needs VGG-16: ccnn init-weights")
    before = set(elsewhere.rglob("*"))
    done = subprocess.run([ROOT / "tools" / command.split()[0], *command.split()[1:]], cwd=elsewhere,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (elsewhere / made).is_file() and elsewhere / made not in before


def test_a_library_without_caffe_goes_on_in_the_private_runtime(tmp_path, other_python):
    """Another Python may have ccnn installed, but only the private runtime has Caffe."""
    (tmp_path / "ccnn").mkdir()
    (tmp_path / "ccnn/__init__.py").touch()
    done = subprocess.run([other_python, "-S", ROOT / "tools/infer.py", "--help"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "") and "ccnn segment" in done.stdout


def test_what_the_library_logs_is_shown(capsys, monkeypatch):
    def main():
        logging.getLogger("ccnn.training.caffe_training").info("starting\n at random")
        logging.getLogger("ccnn._util.files").warning("replacing %s", "a.png")
        logging.getLogger("elsewhere").info("not ours")
        command.say("done")
    monkeypatch.setattr(sys, "argv", ["tools/train.py"])
    with pytest.raises(SystemExit):
        command.run(main)
    assert capsys.readouterr().err == "train.py: starting at random\ntrain.py: replacing a.png\ntrain.py: done\n"


@pytest.mark.parametrize("name", ["serve", "studio"])
@pytest.mark.parametrize("clone, remedy", [(True, "make studio"), (False, r".* -m pip install \"ccnn\[photos\]\"")])
def test_without_the_servers_packages_one_line_says_how_to_get_them(name, clone, remedy, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setattr(paths, "CLONE", clone)
    done = run_command(name)
    assert done.status == 2
    assert re.fullmatch(f"ccnn {name}: error: No module named 'starlette'; get it with: {remedy}\n", done.err)


@pytest.mark.parametrize("returned", [None, 0, 1])
def test_the_status_is_what_main_returns(returned):
    with pytest.raises(SystemExit) as exit:
        command.run(lambda: returned)
    assert exit.value.code == returned


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        command.run(lambda: 1 / 0)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", ""])
def test_a_count_is_at_least_one(text, capsys):
    parser = command.parser("doc")
    parser.add_argument("--jobs", type=command.count)
    assert parser.parse_args(["--jobs", "3"]).jobs == 3
    with pytest.raises(SystemExit):
        parser.parse_args(["--jobs", text])
    assert "at least 1" in capsys.readouterr().err
