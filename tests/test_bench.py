"""The benchmarks run, write their reports, and compare with baselines that solve the same problems.

Their pages in docs/ are as new as the code that they are about.
"""
import pickle
import re
import subprocess
import sys

import fingerprints
import numpy as np
import pytest
from compare_builds import Build
from oracles import Problem

import ccnn
from ccnn._util.errors import UserError
from ccnn.nets.backbones import VGG16


@pytest.fixture
def bench_solver(monkeypatch):
    """The module, and the environment as it was: on import it limits the threads of this process."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    import bench_solver
    return bench_solver


@pytest.mark.parametrize("kind", ["tags_problem", "size_problem", "boxes_problem", "general_problem"])
def test_the_baselines_solve_the_same_problem(bench_solver, kind):
    rng = np.random.default_rng(0)
    f, c = bench_solver.biting(getattr(bench_solver, kind), rng, 9, 11)
    rows, best = bench_solver.PlainRows(c, f.shape[1]), ccnn.maximize(f, c)
    assert best.status == "optimal"
    for baseline in (bench_solver.plain_pga, bench_solver.plain_lbfgsb):
        lam = baseline(bench_solver.PlainDual(f, rows))
        assert Problem(f, c).dual(lam) == pytest.approx(best.value, abs=1e-5)


def test_the_solvers_bench_writes_its_tables_and_plot(bench_solver, tmp_path, capsys):
    bench_solver.main(["--quick", "--out", str(tmp_path / "docs")])
    text = (tmp_path / "docs/bench_solver.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    for line in ("| tags, against NumPy PGA at tol 1e-5 | >= 30 |", "| boxes | ours, newton |", " cores; "):
        assert line in text
    assert (tmp_path / "docs/bench_solver.png").stat().st_size > 10000


def test_an_older_build_is_measured_in_turn_with_this_one(bench_solver, root, monkeypatch):
    """Here the other build is this one: the same problems, four kinds, with and without gradient, cold and hot.
    No class of ours is sent: an older build has it in another module.
    """
    if not (root / ".caffe/bin/python").exists():
        pytest.skip("needs the private runtime")
    ask, sent = Build.ask, []

    def heard(build, *message):
        sent.append(pickle.dumps(message))
        return ask(build, *message)
    monkeypatch.setattr(Build, "ask", heard)
    found = bench_solver.old_and_new(root, np.random.default_rng(0), quick=True)
    assert all(min(times) > 0 for states in found.values() for times in states.values())
    text = "\n".join(bench_solver.comparison_table(found))
    for name in ("tags", "tags, with gradient", "size, hardness 1000", "boxes", "general rows"):
        assert f"| {name} | " in text
    assert sent and not any(b"ccnn" in message for message in sent)


def test_an_older_build_must_be_one(bench_solver, tmp_path):
    with pytest.raises(UserError, match="there is no .*give a checkout in which `make` has run"):
        bench_solver.old_and_new(tmp_path, np.random.default_rng(0), quick=True)


def test_a_comparison_says_how_often_the_old_time_holds_the_new_one(bench_solver):
    rows = bench_solver.comparison_table({"tags": {"cold": (3e-5, 2e-5), "hot": (2e-5, 4e-5)}})
    assert rows[2:] == ["| tags | 30.0 | 20.0 | 1.50 | 20.0 | 40.0 | 0.50 |"]


@pytest.mark.parametrize("kind, hardness", [("tags_problem", 1.0), ("size_problem", 30.0), ("boxes_problem", 1.0)])
def test_pytorch_solves_the_same_problem(bench_solver, kind, hardness):
    import against_torch
    if not against_torch.TORCH.exists():
        pytest.skip("PyTorch has an environment of its own: make test-torch")
    rng = np.random.default_rng(0)
    problems = [bench_solver.biting(getattr(bench_solver, kind), rng, 9, 11) for _ in range(5)]
    found = bench_solver.race_torch({kind: (problems, hardness, 1e-6, 1e-5)})[kind]
    assert set(found) == {"ours, newton", "PyTorch PGA", "PyTorch L-BFGS"}
    for method, (_, evaluations, residual, below) in found.items():
        assert evaluations < 1000 and residual < 3e-5 and below < 1e-6 * hardness, method


def test_without_pytorch_the_bench_says_so(bench_solver, monkeypatch):
    import against_torch
    monkeypatch.setattr(against_torch, "TORCH", against_torch.ROOT / ".torch/bin/nowhere")
    assert bench_solver.race_torch({}) == {}
    said, = bench_solver.torch_table({})
    assert said == "PyTorch was not measured: .torch/bin/nowhere is missing; `make test-torch` makes it."


def run(program, *arguments):
    """In a process of its own."""
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.faults          # it is long
def test_the_trainings_bench_writes_its_tables(root, tmp_path):
    printed = run(root / "bench/bench_training.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_training.md").read_text()
    assert report in printed
    for line in ("| CCNN, tags | ", "| one plain NumPy softmax | ", "| one iteration (4 images) | ", " cores; "):
        assert line in report


@pytest.mark.faults          # it is long
def test_the_inferences_bench_writes_its_table(root, tmp_path):
    printed = run(root / "bench/bench_inference.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_inference.md").read_text()
    assert report in printed
    for line in ("3 photographs, net at 321 pixels", "| kernels | ", "| authors | kernels | 1 | ",
                 "| authors | caffe | 1 | ", "| u2netp | ", " cores; "):
        assert line in report


@pytest.mark.faults          # it is long
def test_the_crfs_bench_writes_its_tables(root, tmp_path):
    pytest.importorskip("pydensecrf")
    printed = run(root / "bench/bench_crf.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_crf.md").read_text()
    assert report in printed and (tmp_path / "bench_crf.png").stat().st_size > 1000
    for line in ("| authors' preset, no pruning, CPU s per image | ", "| two threads against one", "| peak memory",
                 "| pydensecrf | ", "## The floor", "| labels | 64 | "):
        assert line in report


@pytest.mark.parametrize("page", fingerprints.SOURCES)
def test_a_page_older_than_its_code_says_so(root, page):
    if not (root / "docs" / page).exists():
        pytest.skip("nothing of it was measured yet")
    text = (root / "docs" / page).read_text()
    assert text == fingerprints.with_note(page), f"docs/{page}: run `make bench`, or `python bench/fingerprints.py`"
    assert "--quick" not in text


def test_every_page_and_every_program_has_fingerprints(root):
    pages = {path.name for path in root.glob("docs/bench_*.md")}
    assert pages | {path.stem + ".md" for path in root.glob("bench/bench_*.py")} == set(fingerprints.SOURCES)


@pytest.mark.parametrize("page", fingerprints.SOURCES)
def test_every_pattern_finds_a_source(root, page):
    for pattern in fingerprints.SOURCES[page]:
        assert any(root.glob(pattern)), f"{page}: nothing matches {pattern}"


def test_words_change_no_fingerprint_and_code_does(tmp_path):
    def of(name, text):
        (tmp_path / name).write_text(text)
        return fingerprints.code(tmp_path / name)
    python = 'def f(x):\n    """Twice."""\n    return 2 * x  # a number\n'
    assert of("a.py", python) == of("b.py", "def f(x):\n    return (2 *\n            x)\n")
    assert of("a.py", python) != of("b.py", python.replace("2 *", "3 *"))
    assert of("a.py", "from ccnn.a import f\n" + python) == of("b.py", "from ccnn.room.b import f\n" + python)
    assert of("a.py", "x = None") != of("b.py", "x = 0")
    cython = 'cdef int f(int x) except? -1:\n    """Twice."""\n    return 2 * x     # "a" number\n\n'
    assert of("a.pyx", cython) == of("b.pyx", "cdef int f(int x) except? -1:\n    return 2 * x\n")
    assert of("a.pyx", cython) != of("b.pyx", cython.replace("2 *", "3 *"))
    assert of("a.pyx", 'raise ValueError("# is wrong")') == 'raise ValueError("# is wrong")'
    assert of("a.h", "#define N 2") != of("b.h", "#define N 3")


def test_an_old_page_names_what_changed(tmp_path, monkeypatch):
    monkeypatch.setitem(fingerprints.SOURCES, "bench_x.md", ("*.py",))
    (tmp_path / "docs").mkdir()
    for number, name in enumerate(("kept", "edited", "removed", "moved")):
        (tmp_path / f"{name}.py").write_text(f"x = {number}")
    page = fingerprints.with_fingerprints("bench_x.md", "# Figures\n", tmp_path)
    (tmp_path / "docs/bench_x.md").write_text(page)
    assert page.startswith("# Figures\n\n<!--") and fingerprints.changed("bench_x.md", tmp_path) == []
    (tmp_path / "moved.py").rename(tmp_path / "elsewhere.py")
    assert fingerprints.changed("bench_x.md", tmp_path) == []
    (tmp_path / "edited.py").write_text("x = 20")
    (tmp_path / "added.py").write_text("x = 30")
    (tmp_path / "removed.py").unlink()
    assert fingerprints.changed("bench_x.md", tmp_path) == ["added.py", "edited.py", "removed.py"]
    (tmp_path / "docs/bench_x.md").write_text("# Figures of an unknown day\n")
    every = ["added.py", "edited.py", "elsewhere.py", "kept.py"]
    assert fingerprints.changed("bench_x.md", tmp_path) == every
    (tmp_path / "docs/bench_x.md").unlink()
    assert fingerprints.changed("bench_x.md", tmp_path) == every
    (tmp_path / "docs/bench_x.md").write_text(page)
    noted = fingerprints.with_note("bench_x.md", tmp_path)
    assert noted.startswith("# Figures\n\n> Measured before the last change of added.py, edited.py, removed.py. ")
    (tmp_path / "docs/bench_x.md").write_text(noted)
    assert fingerprints.with_note("bench_x.md", tmp_path) == noted
    (tmp_path / "edited.py").write_text("x = 1")
    (tmp_path / "added.py").unlink()
    (tmp_path / "removed.py").write_text("x = 2")
    assert fingerprints.with_note("bench_x.md", tmp_path) == page
    with pytest.raises(KeyError, match="bench_y.md has no row"):
        fingerprints.with_fingerprints("bench_y.md", "", tmp_path)


@pytest.mark.faults          # it is long
def test_the_heads_bench_compares_time_and_weights(root, tmp_path):
    if not VGG16.weights.is_file():
        pytest.skip("needs VGG-16: ccnn init-weights")
    printed = run(root / "bench/bench_head.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_head.md").read_text()
    assert report in printed and "| first | 40 | " in report and "| second | 40 | " in report
    assert float(re.search(r"The weights agree to (\S+)\.\n", report)[1]) < 1e-4
    assert re.search(r"takes \d+% of Caffe's processor time", report)
