"""The rooms and the one direction of dependency between them (docs/architecture.md).

Every check is a function of a folder that returns what is wrong in it, one line per finding. The repository must give
none; a small folder with one fault must give that fault.
"""
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LIBRARY = ["cython", "ccnn", "layers"]                              # each may use those before it
PROGRAMS = ["tools", "bench", "study", "demo", "examples"]          # each may use the library and itself
ROOMS = [*LIBRARY, *PROGRAMS, "tests"]
MAY_USE = {**{room: LIBRARY[:k + 1] for k, room in enumerate(LIBRARY)},
           **{room: [*LIBRARY, room] for room in PROGRAMS}, "tests": ROOMS}

# The rooms of ccnn/: each may use those before it. `import ccnn` gives what solver/ and supervision/ make public.
INNER = ["_util", "solver", "crf", "images", "annotations", "supervision", "nets", "data", "inference", "training",
         "evaluation", "project", "studio", "serving", "cli"]
LOOSE = {"__init__": len(INNER) - 2, "paper": 0, "torch": 6, "__main__": len(INNER)}     # these may use so many;
                                                                            # the first imports late
CROWD = 14                                                                  # modules of a room; cli: one per command

TEXT = {"", ".py", ".pyi", ".pyx", ".pxd", ".h", ".sh", ".md", ".toml", ".txt", ".in", ".cff", ".yaml", ".json",
        ".prototxt", ".html", ".js", ".css"}
NOT_OURS = {"data", "snapshots", "output", "build", "dist", "ccnn.egg-info", "__pycache__"}      # ignored by git

# Names that modules had before they moved into the package.
OLD_NAMES = re.compile(
    r"^\s*(import|from) (cli|images|constraints|dual)\b|\bcython/setup\.py\b"
    r"|\btools/(study|demo|draw_demo|demo_page|cli|bench_\w+)\b|\blayers/(constraints|images|dual)\b", re.M)
MACHINE = re.compile(r"(?<![\w.*})])/(work|root|home|Users)/\w")
REGISTRY = re.compile(r"\bpypi[.]org|\bpythonhosted[.]org|\b(deb|archive|snapshot)[.]debian[.]org|\banaconda[.]org")


def python_files(root):
    """(room, path, syntax tree) of every Python file of every room."""
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            yield room, path, ast.parse(path.read_text())


def text_files(root):
    """(path, text) of every file of the repository that people read."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name == ".ci" or not (name[0] == "." or name in NOT_OURS))
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix in TEXT and path.name != Path(__file__).name:        # the faults below are meant
                yield path, path.read_text()


def imported(node):
    """The names of the modules that one statement imports; a relative import is one of its own room."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def owners(root):
    """The room of every module that is imported by its bare name, because its folder is on the path."""
    rooms = {path.stem: room for room in ROOMS if room not in ("cython", "ccnn") for path in (root / room).glob("*.py")}
    rooms.pop("_activate", None)
    return {**rooms, **{room: room for room in ROOMS if room != "cython"}}     # `import cython` is Cython's own module


def wrong_arrows(root):
    """Imports against the direction of dependency."""
    room_of = owners(root)
    for room, path, tree in python_files(root):
        for node in ast.walk(tree):
            for name in imported(node):
                other = room_of.get(name.split(".")[0])
                if other and other not in MAY_USE[room]:
                    yield f"{path.relative_to(root)}:{node.lineno}: {room} imports {name} of {other}"
    compiled = {path.stem for path in (root / "cython").rglob("*.p[yx][xd]")}
    for path in (root / "cython").rglob("*.p[yx][xd]"):
        for name in re.findall(r"^\s*(?:from|import|cimport)\s+([.\w]+)", path.read_text(), re.M):
            ours = re.match(r"(?:ccnn)?\.(\w+)", name)
            if (ours and ours[1] not in compiled) or room_of.get(name.split(".")[0], "ccnn") != "ccnn":
                yield f"{path.relative_to(root)}: the solver imports {name}"


def wrong_doors(root):
    """Imports against the direction between the rooms of ccnn/, and rooms that are not in INNER."""
    for path in sorted((root / "ccnn").rglob("*.py")):
        room, *rest = path.relative_to(root / "ccnn").with_suffix("").parts
        if rest and room not in INNER:
            yield f"ccnn/{room}: is not a room of INNER"
            continue
        reach = INNER.index(room) + 1 if rest else LOOSE.get(room, 0)
        forbidden = {*INNER[reach:], "torch"}
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{path.relative_to(root)}:{node.lineno}: a relative import"
            for name in imported(node):
                if name.startswith("ccnn.") and name.split(".")[1] in forbidden:
                    yield f"{path.relative_to(root)}:{node.lineno}: {room} imports {name}"
        if reach <= INNER.index("supervision"):
            yield from (f"{path.relative_to(root)}:{node.lineno}: {room} imports ccnn itself" for node in tree.body
                        if isinstance(node, ast.Import) and any(alias.name == "ccnn" for alias in node.names))


def strange_rooms(root):
    """Rooms of ccnn/ that do not say what they are for, or that have too many modules."""
    for room in sorted(path for path in (root / "ccnn").iterdir() if any(path.glob("*.py"))):
        about = room / "__init__.py"
        if not about.is_file() or not ast.get_docstring(ast.parse(about.read_text())):
            yield f"ccnn/{room.name}/__init__.py: does not say what the room is for"
        modules = [path for path in room.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > CROWD and room.name != "cli":
            yield f"ccnn/{room.name}: has {len(modules)} modules; {CROWD} are enough"


def double_names(root):
    """Classes of ccnn/ that are named as one of another module; PyTorch's have the names of Caffe's and of ours."""
    first = {}
    for room, path, tree in python_files(root):
        if room == "ccnn" and path.name != "torch.py" and path.parent.name != "torch_engine":
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and first.setdefault(node.name, path) != path:
                    yield f"{path.relative_to(root)}: {node.name} as in {first[node.name].relative_to(root)}"


def prints(root):
    """Modules that print to stdout, outside of the commands: a library logs, or returns."""
    for _, path, tree in python_files(root):
        room = path.relative_to(root).parts
        if room[0] == "ccnn" and room[1] != "cli":
            yield from (f"{path.relative_to(root)}:{node.lineno}: prints" for node in ast.walk(tree)
                        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
                        and "file" not in [keyword.arg for keyword in node.keywords])


def tools_of_tools(root):
    """Tools that import a tool. They share tools/_activate.py alone."""
    tools = {path.stem for path in (root / "tools").glob("*.py")} - {"_activate"}
    for room, path, tree in python_files(root):
        if room == "tools":
            for node in ast.walk(tree):
                for name in imported(node):
                    if name.removeprefix("tools.").split(".")[0] in tools:
                        yield f"{path.relative_to(root)}:{node.lineno}: imports the tool {name}"


def path_edits(root):
    """Code that changes sys.path. Reading it is fine."""
    def is_path(node):
        return isinstance(node, ast.Attribute) and node.attr == "path" and getattr(node.value, "id", None) == "sys"

    def edits(node):
        if isinstance(node, ast.Call):              # sys.path.insert(...)
            return isinstance(node.func, ast.Attribute) and is_path(node.func.value)
        if isinstance(node, ast.Subscript):         # sys.path[:0] = ..., del sys.path[0]
            return is_path(node.value) and not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.ImportFrom):
            return node.module == "sys" and "path" in [alias.name for alias in node.names]
        if isinstance(node, ast.Attribute):         # sys.path = ..., sys.path += ...
            return node.attr in ("addsitedir", "syspath_prepend") or \
                (is_path(node) and not isinstance(node.ctx, ast.Load))
        return False

    for _, path, tree in python_files(root):
        for node in ast.walk(tree):
            if edits(node):
                yield f"{path.relative_to(root)}:{node.lineno}: edits sys.path"


def eager_imports(root):
    """Imports of Caffe or PyTorch in ccnn/ that run when the module is imported."""
    def at_import(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield child
                yield from at_import(child)

    for room, path, tree in python_files(root):
        if room == "ccnn":
            for node in at_import(tree):
                for name in imported(node):
                    allowed = path.name == "torch.py" or path.parent.name == "torch_engine"     # see below
                    if name.split(".")[0] in ("caffe", "torch") and not allowed:
                        yield f"{path.relative_to(root)}:{node.lineno}: imports {name} outside a function"


def old_names(root):
    """Mentions of modules and commands by the names they had once."""
    for path, text in text_files(root):
        yield from (f"{path.relative_to(root)}: {found[0].strip()}" for found in OLD_NAMES.finditer(text))


def private_places(root):
    """Paths of somebody's machine, and hosts of package registries: users choose theirs in pip's and apt's settings."""
    for path, text in text_files(root):
        for pattern in MACHINE, REGISTRY:
            yield from (f"{path.relative_to(root)}: {found[0]}" for found in pattern.finditer(text))


def missing_files(root):
    """Files that a page, a program or the Makefile mentions by their room, and that are not there."""
    rooms = "|".join([*ROOMS, "prototxt", "solvers", "docs", "models"])
    mention = re.compile(rf"(?<![\w./$}}*-])({rooms})/[\w/.-]*\w\.(pyx|pxd|py|sh|md|prototxt)\b")
    for path, text in text_files(root):
        if path.parent.name != "tests":
            for found in mention.finditer(text):
                if not (root / found[0]).exists() and not re.search("[A-Z]{2}", found[0]):      # NAME stands for many
                    yield f"{path.relative_to(root)}: mentions {found[0]}"


def wrong_modes(root):
    """Files that start with a shebang and cannot be started, and the other way round."""
    for path, text in text_files(root):
        shebang, executable = text.startswith("#!"), bool(path.stat().st_mode & 0o111)
        if shebang != executable:
            yield (f"{path.relative_to(root)}: has {'a' if shebang else 'no'} shebang "
                   f"but is {'not ' * shebang}executable")


DURATION = re.compile(r"\b(a|one|two|three|four|five|ten|half an?|\d+)( minutes?| hours?)\b")
COMMAND = re.compile(rf"\bmake( (test|demo|bench|lint))?(?=`| *#|<)|\b({'|'.join(PROGRAMS)})/\w+\.py[^#`]*")
NUMBERS = {"a": "1", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "ten": "10"}


def durations(text):
    """[(command, duration)] of the lines that name a command and how long it takes: `make demo` ... 2 minutes."""
    for line in text.splitlines():
        command = COMMAND.search(line)
        for number, unit in DURATION.findall(line[command.end():])[:1] if command else ():
            yield " ".join(command[0].split()), NUMBERS.get(number, number) + unit.rstrip("s")


def different_durations(root):
    """Commands that take this long in one place and that long in another."""
    told = {}
    for path, text in text_files(root):
        for command, duration in durations(text):
            told.setdefault(command, {}).setdefault(duration, path.relative_to(root))
    yield from (f"{command} takes " + ", ".join(f"{duration} in {path}" for duration, path in places.items())
                for command, places in told.items() if len(places) > 1)


def unnamed_modules(root):
    """Modules of ccnn/ that docs/architecture.md does not name in its table, and names without a module."""
    named = set(re.findall(r"^\| `([\w/]+\.py)` \|", (root / "docs/architecture.md").read_text(), re.M))
    there = {path.relative_to(root / "ccnn").as_posix() for path in (root / "ccnn").rglob("*.py")
             if path.name not in ("__init__.py", "__main__.py")}
    yield from (f"docs/architecture.md: does not name ccnn/{name}" for name in sorted(there - named))
    yield from (f"docs/architecture.md: names {name}, which is not in ccnn/" for name in sorted(named - there))


# What one system or compiler has and another lacks; layers/ and try_in_child.py serve Caffe, which is Linux's.
UNPORTABLE = re.compile(r"\bimport (fcntl|msvcrt|resource)\b|\b(sched_getaffinity|prctl|geteuid|os\.fork|os\.nice|"
                        r"SIGKILL|SIGHUP|preexec_fn)\b|\"/proc/|\bpthread_\w+|__builtin_\w+|__attribute__|_Pragma|"
                        "posix_memalign")
SYSTEM = {"ccnn/_util/system.py", "ccnn/_util/try_in_child.py", "cython/ccnn/portable.h"}


def unportable(root):
    """What differs between systems, outside of the two files that are there for it."""
    for room in ("ccnn", "cython"):
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in (".py", ".pyx", ".pxd", ".h") and name not in SYSTEM:
                yield from (f"{name}: {found[0]}" for found in UNPORTABLE.finditer(path.read_text()))


CHECKS = [wrong_arrows, wrong_doors, strange_rooms, double_names, prints, tools_of_tools, path_edits, eager_imports,
          old_names, private_places, missing_files, wrong_modes, different_durations, unnamed_modules,
          unportable]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_repository(check):
    found = sorted(set(check(ROOT)))
    assert not found, "\n".join(found)


FAULTS = [
    (unportable, "ccnn/a.py", "import fcntl"),
    (unportable, "ccnn/a.py", "os.sched_getaffinity(0)"),
    (unportable, "cython/ccnn/a.h", "static inline __attribute__((always_inline)) int f(void);"),
    (wrong_arrows, "ccnn/a.py", "def f():\n    import voc_data"),
    (wrong_arrows, "ccnn/a.py", "from infer import main"),
    (wrong_arrows, "layers/a.py", "import tools.infer"),
    (wrong_arrows, "study/a.py", "import infer"),
    (wrong_arrows, "cython/a.pyx", "from ccnn.images.reading import read_image"),
    (wrong_arrows, "cython/a.pyx", "    import infer"),
    (wrong_doors, "ccnn/images/a.py", "from ccnn.data.dataset import DataSet"),
    (wrong_doors, "ccnn/images/a.py", "def f():\n    import ccnn.project.learn"),
    (wrong_doors, "ccnn/solver/a.py", "from ccnn import images"),
    (wrong_doors, "ccnn/solver/a.py", "import ccnn"),
    (wrong_doors, "ccnn/paper.py", "import ccnn.images"),
    (wrong_doors, "ccnn/images/a.py", "from . import reading"),
    (wrong_doors, "ccnn/attic/a.py", ""),
    (strange_rooms, "ccnn/images/__init__.py", "from ccnn.images.reading import f"),
    (prints, "ccnn/images/a.py", "def f():\n    print(1)"),
    (double_names, "ccnn/images/a.py", "class Scores:\n    pass"),
    (tools_of_tools, "tools/a.py", "from infer import main"),
    (tools_of_tools, "tools/a.py", "def f():\n    from tools import infer"),
    (path_edits, "tools/a.py", "import sys\nsys.path.insert(0, '.')"),
    (path_edits, "tests/a.py", "import sys\nsys.path[:0] = ['.']"),
    (path_edits, "tests/a.py", "import sys\nsys.path += ['.']"),
    (path_edits, "tests/a.py", "import sys\nsys.path = []"),
    (path_edits, "tests/a.py", "import sys\ndel sys.path[0]"),
    (path_edits, "tests/a.py", "from sys import path"),
    (path_edits, "tests/a.py", "def test(monkeypatch):\n    monkeypatch.syspath_prepend('.')"),
    (eager_imports, "ccnn/a.py", "import caffe"),
    (eager_imports, "ccnn/a.py", "try:\n    from torch import nn\nexcept ImportError:\n    pass"),
    (eager_imports, "ccnn/a.py", "class A:\n    import caffe.proto"),
    (old_names, "README.md", "import dual"),
    (old_names, "docs/a.md", "    from constraints import tag_constraints"),
    (old_names, "Makefile", "run tools/bench_solver.py"),
    (private_places, "tools/a.sh", "cd /home/somebody"),
    (private_places, "a.md", "https://pypi.org/simple"),
    (missing_files, "README.md", "see tools/nothing.py"),
    (wrong_modes, "tools/a.py", "#!/usr/bin/env python3"),
    (different_durations, "README.md", "| `make demo` | does it all | three minutes |"),
    (different_durations, "demo/demo.py", '"""Demo.\n\n    make demo    # about 1 minute on two cores\n"""'),
    (unnamed_modules, "ccnn/a.py", ""),
    (unnamed_modules, "docs/architecture.md", "| `images/reading.py` |\n| `images/gone.py` |"),
]


@pytest.mark.parametrize("check, name, text", FAULTS, ids=[f"{check.__name__}-{name}" for check, name, _ in FAULTS])
def test_each_check_finds_its_fault(tmp_path, check, name, text):
    sound = {
        "ccnn/images/__init__.py": '"""Photographs in, masks out."""',
        "ccnn/images/reading.py": "import sys\n\nclass Scores:\n    def f():\n        import caffe\n        sys.path\n",
        "cython/dual.pyx": "import numpy",
        "layers/voc_data.py": "import caffe\nimport ccnn",
        "tools/_activate.py": "",
        "tools/infer.py": "import _activate\nimport ccnn.images.reading",
        "docs/architecture.md": "| `images/reading.py` | for ccnn segment |",
        "docs/a.md": "`make demo` takes 2 minutes.",
    }
    for path, content in {**sound, name: text}.items():
        tmp_path.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(path).write_text(content)
    assert list(check(tmp_path))
    tmp_path.joinpath(name).write_text(sound.get(name, ""))
    if name not in sound:
        tmp_path.joinpath(name).unlink()
    assert not list(check(tmp_path))


def test_an_executable_file_without_a_shebang_is_found(tmp_path):
    (tmp_path / "a.py").write_text("import os")
    assert not list(wrong_modes(tmp_path))
    (tmp_path / "a.py").chmod(0o755)
    assert list(wrong_modes(tmp_path)) == ["a.py: has no shebang but is executable"]


def run_without(missing, code):
    """Run code in a Python that cannot import the packages in `missing`; return what it printed."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({sorted(missing)}))\n"
    done = subprocess.run([sys.executable, "-c", blocked + code], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = {"caffe", "google", "torch", "dask", "distributed", "onnx", "onnxruntime", "pydensecrf", "skimage",
         "sklearn", "cvxpy", "starlette", "uvicorn"}


def test_every_module_imports_without_heavy_packages():
    code = """
import importlib, pkgutil, ccnn
names = [module.name for module in pkgutil.walk_packages(ccnn.__path__, "ccnn.", onerror=lambda name: None)
         if not module.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert (name == "ccnn.torch" and "ccnn.torch needs PyTorch" in str(error)) or \
            (name.startswith("ccnn.training.torch_engine.") and "torch" in str(error)) or \
            (name.startswith(("ccnn.studio.", "ccnn.serving.")) and "'starlette" in str(error)), (name, error)
print(*names)
"""
    said = run_without(HEAVY, code).split()
    modules = (path.relative_to(ROOT).with_suffix("").parts for path in (ROOT / "ccnn").rglob("*.py"))
    assert {".".join(parts) for parts in modules if parts[-1] not in ("__init__", "__main__")} <= set(said)
    with pytest.raises(AssertionError, match="import of caffe halted"):
        run_without(HEAVY, "import caffe")


def test_import_ccnn_needs_numpy_and_scipy_only():
    """Nor SciPy's slow parts: 0.1 s at every start."""
    run_without(HEAVY | {"PIL", "tqdm", "matplotlib", "scipy.sparse"}, "import ccnn; ccnn.maximize, ccnn.dense_crf")


def test_what_ccnn_torch_imports_needs_no_pillow():
    """All of ccnn/torch.py's own imports but PyTorch's, which is not beside Caffe."""
    lines = re.findall(r"^(?:from|import) ccnn.*", (ROOT / "ccnn/torch.py").read_text(), re.M)
    assert len(lines) > 2
    run_without(HEAVY | {"PIL", "tqdm", "matplotlib"}, "\n".join(lines))
