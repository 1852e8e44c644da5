"""The benchmarks run, write their reports, and compare with baselines that solve the same problems."""
import subprocess
import sys

import numpy as np
import pytest
from oracles import Problem

import ccnn


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


def run(program, *arguments):
    """In a process of its own."""
    done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_trainings_bench_writes_its_tables(root, tmp_path):
    printed = run(root / "bench/bench_training.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_training.md").read_text()
    assert report in printed
    for line in ("| CCNN, tags | ", "| one plain NumPy softmax | ", "| one iteration (4 images) | ", " cores; "):
        assert line in report


def test_the_inferences_bench_writes_its_table(root, tmp_path):
    printed = run(root / "bench/bench_inference.py", "--quick", "--out", tmp_path)
    report = (tmp_path / "bench_inference.md").read_text()
    assert report in printed
    for line in ("3 photographs, net at 321 pixels", "| onnx | float32 | ", "| authors | onnx | 1 | ",
                 "| authors | caffe | 1 | ", " cores; ", "through `dense_crf`"):
        assert line in report
