"""Every docs/bench_*.md ends with fingerprints of the sources whose speed it states.

    python bench/fingerprints.py            # pages that are older than their sources get a line that says so

`measure.publish` appends them to a page; a test fails if a page is older than its sources and does not say it.
Comments, docstrings, imports and places do not count: neither words nor a move change a figure.
"""
import ast
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SOLVER = ("cython/ccnn/solver/*.pyx", "cython/ccnn/solver/*.pxd", "cython/ccnn/solver/*.h")

CRF = ("ccnn/crf/dense.py", "ccnn/crf/engines.py", "ccnn/crf/mean_field.py", "cython/ccnn/crf/*.pyx",
       "cython/ccnn/crf/*.pxd", "cython/ccnn/crf/*.h")

LOSSES = ("ccnn/supervision/constrained_loss.py", "ccnn/supervision/losses.py", "layers/loss_layer.py")

NETS = ("prototxt/ccnn_tags.prototxt", "solvers/ccnn_tags.prototxt", "prototxt/head_size.prototxt",
        "solvers/head_size.prototxt")

SOURCES = {             # page of docs/: patterns of the sources whose speed it states
    "bench_solver.md": SOLVER,
    "bench_training.md": (*SOLVER, *LOSSES, *NETS),
    "bench_head.md": ("ccnn/training/head.py", *SOLVER),
    "bench_torch.md": ("ccnn/torch.py", "ccnn/training/torch_engine/*.py", *SOLVER),
    "bench_studio.md": ("ccnn/studio/album.py", "ccnn/studio/page/grid.js", "ccnn/studio/page/listing.js",
                        "ccnn/studio/page/store.js"),
    "bench_inference.md": ("ccnn/images/grid.py", *CRF, "ccnn/inference/leading_layers.py", "cython/ccnn/inference/*",
                           "prototxt/head_deploy.prototxt"),
    "bench_crf.md": CRF,
}


NOTE = "> Measured before the last change of"

IMPORTS = ast.Import, ast.ImportFrom


def structure(node):
    """A syntax tree as nested tuples, without docstrings and imports; the same in every version of Python."""
    if isinstance(node, list):
        return tuple(structure(item) for item in node if not (is_text(item) or isinstance(item, IMPORTS)))
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
    if path.suffix == ".prototxt":
        return "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return text


def fingerprints(page, root=ROOT):
    """{digest of its code: source} for a page."""
    paths = {path for pattern in SOURCES[page] for path in root.glob(pattern) if path.suffix != ".c"}
    return {hashlib.sha256(code(path).encode()).hexdigest()[:12]: str(path.relative_to(root)) for path in sorted(paths)}


def with_fingerprints(page, text, root=ROOT):
    """The text of a page, and after it a comment with the fingerprints of its sources."""
    if page not in SOURCES:
        raise KeyError(f"{page} has no row in SOURCES of bench/fingerprints.py: add the sources of its figures")
    lines = (f"{source} {digest}" for digest, source in fingerprints(page, root).items())
    return "\n".join([text.rstrip("\n"), "", "<!-- measured with", *lines, "-->", ""])


def changed(page, root=ROOT):
    """The sources of a page that were added, changed or removed since its figures were measured; a move is none."""
    path = root / "docs" / page
    text = path.read_text() if path.exists() else ""
    noted = {digest: source for source, digest in
             re.findall(r"^(\S+) ([0-9a-f]{12})$", text.partition("<!-- measured with\n")[2], re.M)}
    now = fingerprints(page, root)
    return sorted({noted.get(digest) or now[digest] for digest in noted.keys() ^ now.keys()})


def with_note(page, root=ROOT):
    """The text of a page in docs/, under its title a line that names the sources that changed since, if any did."""
    title, *lines = (root / "docs" / page).read_text().splitlines(keepends=True)
    body = "".join(lines[2:] if lines[1:2] and lines[1].startswith(NOTE) else lines)
    older = changed(page, root)
    return title + (f"\n{NOTE} {', '.join(older)}. `make bench` measures again.\n" if older else "") + body


if __name__ == "__main__":
    for name in SOURCES:
        if (ROOT / "docs" / name).exists():
            (ROOT / "docs" / name).write_text(with_note(name))
