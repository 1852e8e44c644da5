"""Write every net and every solver of the repository from the tables of ccnn/nets/.

    ccnn make-nets

Edit ccnn/nets/prototxt.py or ccnn/nets/solvers.py, then run this. Do not edit the files that it writes.
"""
import json

from ccnn._util.errors import UserError
from ccnn._util.paths import CLONE, ROOT
from ccnn.cli import command
from ccnn.nets.prototxt import ABOUT, nets
from ccnn.nets.solvers import solver_texts


def main(argv=None):
    command.parser(__doc__).parse_args(argv)
    if not CLONE:
        raise UserError(f"{ROOT}: is the installed package, whose files stay as they are; run this in a clone")
    for folder, texts in (("prototxt", nets()), ("solvers", solver_texts())):
        for name, text in texts.items():
            (ROOT / folder / f"{name}.prototxt").write_text(text)
    for name, about in ABOUT.items():
        (ROOT / f"prototxt/{name}.json").write_text(json.dumps(about) + "\n")
