"""docs/extending.md: every section's code runs as it stands; examples/: every script runs."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/extending.md").read_text()
SECTIONS = {title: "\n".join(re.findall(r"^```python(.*?)^```", text, re.M | re.S))        # several are one program
            for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)}


def test_every_section_has_code():
    assert set(SECTIONS) == set(re.findall(r"^## (.*)", PAGE, re.M))
    table = re.findall(r"^\| ((?:an?|rows) .*?) \|", PAGE, re.M)
    assert sorted(title.casefold() for title in SECTIONS) == sorted(map(str.casefold, table))


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                               "CCNN_HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("title", SECTIONS)
def test_the_code_of_a_section(title, tmp_path):
    need, code = SECTIONS[title].split("\n", 1)
    if need.strip():
        pytest.importorskip(need.strip())
    (tmp_path / "section.py").write_text(code)
    run([sys.executable, "section.py"], tmp_path)


def test_numpy_example(tmp_path):
    said = run([sys.executable, ROOT / "examples/numpy_solver.py"], tmp_path)
    assert re.search(r"^optimal: .*\n.*\ncat +area before 0.12, after 0.30\ndog .*after 0.00$", said, re.M), said


def test_dense_crf_example(tmp_path):
    said = run([sys.executable, ROOT / "examples/dense_crf.py"], tmp_path)
    wrong = [int(count) for count in re.findall(r": +(\d+) of 14400", said)]
    assert len(wrong) == 5 and wrong[0] > 1000 and wrong[1] < 50


def test_caffe_example(tmp_path):
    pytest.importorskip("caffe")
    said = run([sys.executable, ROOT / "examples/caffe_layer.py"], tmp_path)
    first, last = re.findall(r"^step \d+: loss (\S+); areas \S+, \S+, (\S+)$", said, re.M)
    assert float(last[0]) < float(first[0]) / 10 and float(last[1]) < 0.01 < float(first[1])


def test_torch_example(tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch: make test-torch runs it")
    said = run([sys.executable, ROOT / "examples/torch_loss.py"], tmp_path)
    assert min(map(float, re.findall(r"\d\.\d\d", said))) > 0.5, said
