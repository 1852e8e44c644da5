"""Get PASCAL VOC 2012 and SBD and build the paper's training set of 10,582 images.

    ccnn get-voc                            # downloads 3.4 GB, needs 6 GB of disk
    ccnn get-voc --archives ~/Downloads     # uses VOCtrainval_11-May-2012.tar and benchmark.tgz from there

makes data/VOCdevkit/VOC2012 as VOC's archive has it, and adds

    SegmentationClassAug/                       12,031 masks: VOC's where VOC has one, else SBD's
    ImageSets/Segmentation/train_aug.txt        10,582 ids: VOC train and all of SBD, without VOC val

train_aug.txt is written last, after every count and size was checked: if it exists, the data are complete. The
command may be stopped at any time and run again: downloads resume, finished parts are kept.
"""
from pathlib import Path

from ccnn._util.errors import UserError
from ccnn._util.paths import DATA, named
from ccnn.cli import command
from ccnn.data.voc_archive import build


def main(argv=None):
    args = parse_args(argv)
    train, val = build(args.out, args.archives)
    print(f"{args.out / 'VOCdevkit/VOC2012'}: {train:,} training images (train_aug), {val:,} validation images (val)")


def parse_args(argv):
    parser = command.parser(__doc__)
    parser.add_argument("--out", type=Path, default=DATA, metavar="DIR",
                        help=f"folder that VOCdevkit/ goes into (default: {named(DATA)})")
    parser.add_argument("--archives", type=Path, metavar="DIR",
                        help="folder with the two archives; nothing is downloaded")
    args = parser.parse_args(argv)
    if args.archives and not args.archives.is_dir():
        raise UserError(f"--archives {args.archives}: no such folder")
    return args
