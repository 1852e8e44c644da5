"""Learn to segment from your own photographs and their tags: one command, one model.

    ccnn learn photos                                       # writes photos/model.ccnn and photos/report.html
    ccnn segment --model photos/model.ccnn --out masks new_photos

The folder holds photographs and two text files. classes.txt has the name of one class per line. tags.csv says what each
photograph shows:

    image,tags,large
    a.jpg,cat;dog,cat           a cat and a dog; the cat fills more than a tenth of the photograph
    b.jpg,dog,                  a dog, and it is small
    c.jpg,,                     neither; such photographs help

You may leave the column `large` out. Tags in another program, or in another kind of table: ccnn import-tags. Boxes
as VOC's XML in photos/Annotations do in place of tags.csv. photos/constraints.toml may hold what else you know of your
classes; docs/constraints.md explains it.

The first time takes about a minute for 60 photographs on two cores, and downloads VGG-16's convolutions (64 MB).
Look at report.html: photographs whose tags the model contradicts come first, because often the tag is wrong. Correct
them, add photographs, and run the same command again. It says what has changed and computes only what is needed.
If nothing has changed, it says so and ends. ^C stops it at any time; the same command resumes it.

Everything else that it writes is in photos/.ccnn, which you may delete.
"""
import os

from ccnn.cli import command
from ccnn.inference.caffe_net import load_caffe
from ccnn.nets.backbones import BACKBONES
from ccnn.nets.cues import CUES, DEFAULT, NONE
from ccnn.project.checks import check_folder, leave_out_unreadable
from ccnn.project.folder import read_folder
from ccnn.project.learn import RECIPE, TRAINERS, Project
from ccnn.project.results import HeldOut, folds, hold_out, report_entries, scores, write_results

UNCHECKED = "Nothing was held out: this was switched off with --no-check."


def main(argv=None):
    args = parse_args(argv)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # for Caffe: one process per core is faster than threads
    if args.trainer == "caffe":
        load_caffe()
    folder, left_out = leave_out_unreadable(read_folder(args.photos))
    recipe = RECIPE._replace(backbone=BACKBONES[args.backbone])
    project = Project(folder, args.steps, args.seed, args.again, recipe, args.trainer, args.cue)
    wanted = "plain" if args.no_check else "checked"
    trained = project.trained and project.model_is_there
    done = trained and project.is_reported(wanted)
    parts = [] if done or args.no_check else folds(project)
    warnings = [] if done else check_folder(folder, {id: number for number, part in enumerate(parts) for id in part})
    for sentence in [*left_out, project.summary, *project.notes, *warnings]:
        command.say(sentence)
    if done:
        return 0
    project.compute_features(args.jobs)
    for sentence in project.decisions:
        command.say(sentence)
    if not trained:
        if project.train():
            command.say("stopped; the same command resumes")
            return 130
        project.write_model()
        command.say(f"{project.model}: ready")
    photographs = report_entries(project)
    said = [*left_out, *warnings, *project.notes]
    write_results(project, said, photographs, HeldOut(None, UNCHECKED if args.no_check else "Being computed."))
    if not args.no_check:
        held = hold_out(project, parts)
        project.write_scores(scores(project, held))
        write_results(project, said, photographs, held)
    project.write_state(project.state._replace(report=wanted))
    print(project.model)
    print(project.report)
    return 0


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("photos", help="the folder of photographs, classes.txt and tags.csv")
    add("--again", action="store_true", help="train again, even if nothing has changed")
    add("--no-check", action="store_true", help="hold no photographs out: the report then says nothing about new ones")
    add("--steps", type=command.count, metavar="N",
        help=f"steps of the first round, 4 photographs each (default: {RECIPE.steps}, or as many as show each "
             f"photograph {RECIPE.epochs} times); the second round takes {RECIPE.second:.0%}% of them")
    add("--seed", type=command.count, default=1, metavar="N",
        help="random seed of the first weights and of the order of the photographs (default: %(default)s)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N",
        help="photographs whose features are computed at a time, with 1 GB of memory each (default: %(default)s)")
    add("--trainer", choices=TRAINERS, default=TRAINERS[0],
        help="numpy, or caffe: the reference, which takes longer and gives the same result (default: %(default)s)")
    command.add_backbone_option(parser)
    add("--cue", choices=(*CUES, NONE), help="the net whose map of salient objects adds constraints (docs/cues.md); "
        f"none: leave it out (default: as constraints.toml says, else {DEFAULT.name})")
    return parser.parse_args(argv)
