"""Compute the features of all photographs of a folder, tagged or not, ahead of a training.

    ccnn ahead photos

The studio starts this while you tag. `ccnn learn photos` then has less to do.
"""
import os
from pathlib import Path

from ccnn.cli import command
from ccnn.studio.precompute import compute_features


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("photos", type=Path, help="the folder of photographs")
    parser.add_argument("--jobs", type=command.count, default=os.cpu_count(), metavar="N",
                        help="photographs at a time (default: %(default)s)")
    args = parser.parse_args(argv)
    compute_features(args.photos, args.jobs)
