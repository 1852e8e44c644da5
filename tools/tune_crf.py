#!/usr/bin/env python3
"""Find the dense CRF's parameters for a net on 100 images with masks, coarse to fine; the result is a preset file.

    V=data/VOCdevkit/VOC2012
    tools/infer.py --probabilities --no-overlay --out coarse --only $V/ImageSets/Segmentation/val.txt $V/JPEGImages
    tools/tune_crf.py --images $V/JPEGImages --masks $V/SegmentationClass --out mine.json coarse/probabilities
    tools/infer.py --crf mine.json --out masks street.jpg

The search is DeepLab's: gaussian kernel fixed at 3 / 3, ten iterations; bilateral weight 5..10, xy 50..100, rgb 3..10.
Three values of each first; then all neighbours of the best, one step (1, 10, 1) away, until no neighbour is better:
for a net that is less sure than DeepLab's, that leads out of its ranges, to weaker terms. Goodness is the mIoU over all
the images. For comparison, the table also has the presets and no CRF at all. It takes about a third of a second for a
preset and image of 321 pixels, and a second for 500: half an hour to two hours on a core, and --jobs divides it. Run
the same command again after a stop: every finished preset is kept in the file.
"""
import hashlib
import itertools
import json
import os
from pathlib import Path

import _activate  # noqa: F401
import numpy as np
from tqdm import tqdm

from ccnn import command
from ccnn.crf import PRESETS, Preset, pair_with_images, refine
from ccnn.errors import UserError
from ccnn.files import whole_file
from ccnn.images import read_mask
from ccnn.labels import VOC_CLASSES, read_classes
from ccnn.scores import confusion, scored
from ccnn.workers import in_processes

COARSE = {"bilateral_weight": (5, 7, 10), "bilateral_xy": (50, 70, 100), "bilateral_rgb": (3, 6, 10)}

STEPS = {"bilateral_weight": 1, "bilateral_xy": 10, "bilateral_rgb": 1}     # of the fine search

START = Preset(gaussian_xy=3, gaussian_weight=3, bilateral_xy=None, bilateral_rgb=None, bilateral_weight=None,
               iterations=10)


def main(argv=None):
    args = parse_args(argv)
    classes = read_classes(args.classes) if args.classes else VOC_CLASSES
    images = choose(args.probabilities, args.images, args.masks, args.count)
    search = Search(args.out, images, len(classes), args.jobs)

    search.score([None, *PRESETS.values()], "presets")
    search.score(grid(COARSE), "coarse")
    while True:
        best = search.best()
        search.score(neighbours(best), "fine")
        if search.best() == best:
            break
    search.save(done=True)

    names = {None: "no CRF", **{preset: name for name, preset in PRESETS.items()}}
    names[best] = f"{args.out}, the best found" + (f": {names[best]}" if best in names else "")
    for preset, name in names.items():
        print(f"{search.miou[preset]:6.2f}  {name}")
    print(f"mIoU on {len(images)} images; use it: tools/infer.py --crf {args.out} ...")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("probabilities", nargs="+", type=Path, help=".npz files of tools/infer.py --probabilities, or folders of them")
    add("--images", type=Path, required=True, metavar="DIR", help="the photographs, same names")
    add("--masks", type=Path, required=True, metavar="DIR", help="the true masks, same names, .png")
    add("--out", type=Path, required=True, metavar="FILE", help="the preset file, .json")
    add("--count", type=command.count, default=100, metavar="N", help="images to use, chosen evenly (default: %(default)s)")
    add("--classes", metavar="FILE", help="class names, one a line (default: VOC's)")
    add("--jobs", type=command.count, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    return parser.parse_args(argv)


def choose(sources, images, masks, count):
    """[(probabilities, photograph, mask)]: `count` of them, evenly spaced in the order of their names."""
    found = [(path, image, masks / f"{path.stem}.png") for path, image in sorted(pair_with_images(sources, images))]
    found = [files for files in found if files[2].is_file()]
    if len(found) < count:
        raise UserError(f"{len(found)} of the .npz files have a mask in {masks}, need {count}; "
                        "give more, or set --count")
    return [found[i * len(found) // count] for i in range(count)]


def grid(values):
    return [START._replace(**dict(zip(values, point))) for point in itertools.product(*values.values())]


def neighbours(preset):
    """The presets at most one step away in every parameter."""
    return grid({field: [value for value in (getattr(preset, field) + k * step for k in (-1, 0, 1)) if value > 0]
                 for field, step in STEPS.items()})


class Search:
    """What was tried so far, in memory and in the preset file."""

    def __init__(self, path, images, labels, jobs):
        self.path, self.images, self.labels, self.jobs = path, images, labels, jobs
        self.miou = {}          # {Preset, or None for no CRF: mIoU}
        inputs = hashlib.sha256()
        for file in itertools.chain.from_iterable(images):
            inputs.update(file.read_bytes())
        self.inputs = inputs.hexdigest()
        if path.exists():
            self.resume()

    def resume(self):
        try:
            kept = json.loads(self.path.read_text())
            inputs, tried = kept["inputs"], kept["tried"]
            self.miou = {preset and Preset(**preset): float(miou) for preset, miou in tried}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{self.path}: exists and is not a search of this tool; choose another --out") from None
        if inputs != self.inputs:
            raise UserError(f"{self.path}: is a search on other images or probabilities; choose another --out")
        print(f"{self.path}: {len(self.miou)} presets were scored before")

    def best(self):
        """The best preset of the search; named ones with another gaussian kernel or fewer iterations do not compete."""
        tried = [preset for preset in self.miou if preset and preset._replace(**dict.fromkeys(STEPS)) == START]
        return max(tried, key=self.miou.get)

    def score(self, presets, what):
        """Score those that are not yet; every finished one is saved."""
        todo = [preset for preset in presets if preset not in self.miou]
        tasks = ((preset, *files, self.labels) for preset in todo for files in self.images)
        total = {preset: np.zeros((self.labels, self.labels), int) for preset in todo}
        left = dict.fromkeys(todo, len(self.images))
        with tqdm(total=len(todo) * len(self.images), desc=what, unit="image", disable=None) as bar:
            for preset, confusions, error in in_processes(score_one, tasks, self.jobs):
                if error:
                    raise UserError(error)
                bar.update()
                total[preset] += confusions
                left[preset] -= 1
                if not left[preset]:
                    self.miou[preset] = float(scored("truth", "", True, total[preset]).miou)
                    self.save()

    def save(self, done=False):
        kept = {"done": done, "images": len(self.images), "inputs": self.inputs,
                "tried": [[preset and preset._asdict(), miou] for preset, miou in self.miou.items()]}
        if done:
            kept = {"preset": self.best()._asdict(), "miou": self.miou[self.best()], **kept}
        with whole_file(self.path) as part:
            part.write_text(json.dumps(kept, indent=1))


def score_one(preset, source, photograph, mask, labels):
    """(preset, confusion matrix, None), or an error's text as the third."""
    try:
        truth = read_mask(mask, labels)
        found = refine(source, photograph, preset)
        if truth.shape != found.shape:
            raise UserError(f"{mask}: {truth.shape} is not the size of {photograph}, {found.shape}")
        if found.max() >= labels:
            raise UserError(f"{source}: finds label {found.max()}, but there are {labels} classes; "
                            "give them with --classes")
        return preset, confusion(truth, found, labels), None
    except UserError as e:
        return preset, None, str(e)


if __name__ == "__main__":
    command.run(main)
