"""Every docs/bench_*.md ends with fingerprints of the sources that its figures depend on.

`measure.publish` appends them to a page; tests/test_bench.py names the pages that are older than their sources.
Comments and docstrings do not count: words change no figure.
"""
import ast
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SOLVER = ("bench/measure.py", "setup.py", "cython/ccnn/[!w]*.pyx", "cython/ccnn/*.pxd", "cython/ccnn/[!w]*.h",
          "ccnn/constraints.py")

SOURCES = {             # page of docs/: patterns of the sources that decide its figures
    "bench_solver.md": ("bench/bench_solver.py", *SOLVER),
    "bench_training.md": (
        "bench/bench_training.py", *SOLVER, "layers/*.py", "ccnn/samples.py", "ccnn/shown.py", "ccnn/dataset.py",
        "ccnn/images.py", "ccnn/supervision.py", "ccnn/baselines.py", "ccnn/trunk.py", "ccnn/net.py",
        "prototxt/ccnn_tags.prototxt", "solvers/ccnn_tags.prototxt",
        "prototxt/head_size.prototxt", "solvers/head_size.prototxt"),
    "bench_torch.md": ("bench/bench_torch.py", "ccnn/torch.py", *SOLVER),
    "bench_mpi.md": (
        "bench/bench_mpi.py", "bench/bench_training.py", *SOLVER, "layers/*.py", "tools/train.py", "ccnn/parallel.py",
        "ccnn/ranks.py", "ccnn/training.py", "ccnn/samples.py", "ccnn/net.py",
        "prototxt/demo_tags.prototxt", "prototxt/head_size.prototxt", "prototxt/ccnn_tags.prototxt"),
    "bench_studio.md": ("bench/bench_studio.py", "bench/measure.py", "studio/*.py", "studio/page/*"),
    "bench_inference.md": (
        "bench/bench_inference.py", "bench/measure.py", "tools/infer.py", "prototxt/head_deploy.prototxt",
        "ccnn/predict.py", "ccnn/net.py", "ccnn/grid.py", "ccnn/images.py", "ccnn/crf.py", "ccnn/masks.py",
        "ccnn/pictures.py", "ccnn/workers.py", "ccnn/scores.py", "ccnn/engines.py", "ccnn/onnx_export.py",
        "ccnn/leading_layers.py", "cython/ccnn/winograd.[hp]*", "bench/net_alone.py"),
}

NEUTRAL = {             # modules of ccnn/ that decide no figure: arguments, messages, names and places of files
    "command", "errors", "files", "labels", "lists", "paths", "photographs", "processor", "progress", "proto",
    "weights"}


def structure(node):
    """A syntax tree as nested tuples, without docstrings; the same in every version of Python."""
    if isinstance(node, list):
        return tuple(structure(item) for item in node if not is_text(item))
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, structure(value)) for name, value in ast.iter_fields(node) if value is not None and value != [])
    return (type(node).__name__, *fields)


def is_text(node):
    """Whether a statement is a string and no more: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code(path):
    """What a source says to the machine."""
    text = path.read_text()
    if path.suffix == ".py":
        return repr(structure(ast.parse(text)))
    if path.suffix in (".pyx", ".pxd"):             # triple quotes are docstrings there
        kept = re.sub(r'"""[\s\S]*?"""|("[^"\n]*")|#.*', lambda found: found[1] or "", text)
        return "\n".join(line.rstrip() for line in kept.splitlines() if line.strip())
    return text


def fingerprints(page, root=ROOT):
    """{source: digest of its code} for a page."""
    paths = {path for pattern in SOURCES[page] for path in root.glob(pattern)}
    return {str(path.relative_to(root)): hashlib.sha256(code(path).encode()).hexdigest()[:12]
            for path in sorted(paths)}


def with_fingerprints(page, text, root=ROOT):
    """The text of a page, and after it a comment with the fingerprints of its sources."""
    if page not in SOURCES:
        raise KeyError(f"{page} has no row in SOURCES of bench/fingerprints.py: add the sources of its figures")
    lines = (f"{source} {digest}" for source, digest in fingerprints(page, root).items())
    return "\n".join([text.rstrip("\n"), "", "<!-- measured with", *lines, "-->", ""])


def changed(page, root=ROOT):
    """The sources of a page that were added, changed or removed since its figures were measured."""
    path = root / "docs" / page
    text = path.read_text() if path.exists() else ""
    noted = dict(re.findall(r"^(\S+) ([0-9a-f]{12})$", text.partition("<!-- measured with\n")[2], re.M))
    now = fingerprints(page, root)
    return sorted(source for source in {*noted, *now} if noted.get(source) != now.get(source))
