"""docs/api.md is what docs/make_api.py writes, and has all that `ccnn` exports."""
import runpy
from pathlib import Path

import ccnn

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_is_written_from_the_docstrings():
    made = runpy.run_path(str(ROOT / "docs/make_api.py"))
    assert (ROOT / "docs/api.md").read_text() == made["page"](), "run docs/make_api.py"
    listed = {name for names in made["SECTIONS"].values() for name in names}
    assert listed == set(ccnn.__all__) - {"BACKGROUND", "VOID"}
