#!/usr/bin/env python3
"""Write docs/api.md from the docstrings of the public surface.

    .caffe/bin/python docs/make_api.py

A test compares the page with what this writes, so the page is never older than the code.
"""
import ast
import inspect
from pathlib import Path

import ccnn
from ccnn.inference.model import Model

HERE = Path(__file__).resolve().parent
PACKAGE = Path(inspect.getfile(ccnn)).resolve().parent

SECTIONS = {
    "What is known about an image": ["tag_constraints", "size_constraints", "box_constraints", "mask_constraints",
                                     "Constraints"],
    "The solver": ["maximize", "maximize_batch", "Solution"],
    "The dense CRF": ["dense_crf"],
    "Models for arrays": ["load_model", "Segmenter"],
}
METHODS = {"Constraints": ["from_matrix", "__and__", "with_prices", "rows", "values", "as_matrix"],
           "Solution": ["write"], "Segmenter": ["fit", "predict", "score", "save"]}
TORCH = ["ConstrainedLoss", "tag_constraints", "size_constraints", "box_constraints", "mask_constraints",
         "with_known_pixels", "dense_crf"]
OPENING = """# The public surface

`docs/make_api.py` writes this page from the docstrings. Everything here is importable from `ccnn`, or from the module
that the heading names. Shapes: L labels, n pixels, k rows, N images. What is not on this page may change.
"""


def signatures(*files):
    """{name or Class.name: arguments as text}, from the sources: compiled functions tell none."""
    found = {}
    for file in files:
        for node in ast.parse((PACKAGE / file).read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = arguments(node)
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef):
                        name = node.name if item.name == "__init__" else f"{node.name}.{item.name}"
                        found[name] = arguments(item, skip=1)
    return found


def arguments(function, skip=0):
    """The arguments with their defaults, without types."""
    names = [argument.arg for argument in function.args.args]
    defaults = [ast.unparse(value) for value in function.args.defaults]
    pairs = zip(names, [None] * (len(names) - len(defaults)) + defaults)
    texts = [name if value is None else f"{name}={value}" for name, value in list(pairs)[skip:]]
    return ", ".join(texts + ([f"**{function.args.kwarg.arg}"] if function.args.kwarg else []))


def entry(title, text):
    return f"### `{title}`\n\n{indented(text)}"


def indented(text):
    return "".join(f"    {line}".rstrip() + "\n" for line in inspect.cleandoc(text).splitlines())


def torch_docstrings():
    """{name: docstring} of ccnn/torch.py, read without PyTorch."""
    tree = ast.parse((PACKAGE / "torch.py").read_text())
    return {node.name: ast.get_docstring(node) for node in tree.body if hasattr(node, "name")}


def page():
    known = signatures("solver/constraints.py", "supervision/tags_sizes_boxes.py", "solver/dual.pyi", "crf/dense.py",
                       "__init__.py", "inference/model.py", "project/estimator.py")
    parts = [OPENING]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for name in names:
            thing = getattr(ccnn, name)
            title = f"ccnn.{name}" if name == "Solution" else f"ccnn.{name}({known[name]})"
            parts.append(entry(title, thing.__doc__))
            for method in METHODS.get(name, []):
                shown = f"{name} & other" if method == "__and__" else f"{name}.{method}({known[f'{name}.{method}']})"
                parts.append(entry(shown, getattr(thing, method).__doc__))
            if name == "load_model":
                parts.append(entry(f"model.segment({known['Model.segment']})", Model.segment.__doc__))
    parts.append("## For PyTorch: `ccnn.torch`\n")
    known, docstrings = signatures("torch.py"), torch_docstrings()
    for name in TORCH:
        parts.append(entry(f"ccnn.torch.{name}({known[name]})", docstrings[name]))
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "api.md").write_text(page())
