#!/usr/bin/env python3
"""Whether a cue harms classes that do not stand out: three textures in composed photographs, learned and scored.

    study/surfaces.py                               # three seeds, four core-minutes each
    study/surfaces.py --report --out study/results  # the table of what is done, and surfaces.json there

A photograph is a crop of one of scikit-image's, of which a texture of scikit-image (brick, grass, gravel), in some
colour, covers a side up to a wavy border: 18 to learn from of each texture and 8 of none, and 60 others to score.
Crops to learn from are of the left halves of photographs and textures, those to score of the right. Every run types
what a user types: tools/learn.py, once with the cue, once without, once with constraints.toml calling the textures
objects, which they are not; then tools/infer.py. Scores are mean IoU without a CRF. Stop at any time.
"""
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
from own_photographs import PER_CLASS, WITHOUT, said

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import ROOT
from ccnn._util.progress import Progress
from ccnn.cli import command
from ccnn.evaluation.scores import confusion, scored
from ccnn.evaluation.tables import markdown_table
from ccnn.images.reading import read_mask

TEXTURES = "brick", "grass", "gravel"

PHOTOGRAPHS = "astronaut", "chelsea", "coffee", "rocket", "retina", "hubble_deep_field"

NEW = 60                # photographs that are scored

SHAPE = 240, 320        # of a photograph: height, width

VERSIONS = {"none": "no cue", "after": "the cue, as `ccnn learn` decides", "object": "the cue, all called objects"}


def main(argv=None):
    args = parse_args(argv)
    if not args.report:
        for seed in range(1, 1 + args.seeds):
            for version in Progress(VERSIONS, desc=f"seed {seed}", unit="version"):
                execute(args.folder.resolve() / str(seed), seed, version)
    found = [json.loads(path.read_text()) for path in sorted(args.folder.glob("*/*.json"))]
    if not found:
        raise UserError(f"{args.folder}: has no finished run; run study/surfaces.py first")
    print(table(found))
    if args.out:
        with whole_file(args.out / "surfaces.json") as part:
            part.write_text("[" + ",\n".join(map(json.dumps, found)) + "]\n")


def parse_args(argv):
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--folder", type=Path, default=Path("output/surfaces"), metavar="DIR", help="(default: %(default)s)")
    add("--seeds", type=command.count, default=3, metavar="N", help="draws (default: %(default)s)")
    add("--report", action="store_true", help="no runs, only the table")
    add("--out", type=Path, metavar="DIR", help="write surfaces.json there")
    return parser.parse_args(argv)


# Photographs

def crop(rgb, half, rng):
    """A part of the left (0) or right (1) half of an image that is SHAPE; smaller images are repeated."""
    width = rgb.shape[1] // 2
    rgb = rgb[:, half * width:(half + 1) * width]
    rgb = np.tile(rgb, (*(-(-wanted // there) for wanted, there in zip(SHAPE, rgb.shape)), 1))
    y, x = (rng.integers(0, there - wanted + 1) for wanted, there in zip(SHAPE, rgb.shape))
    return rgb[y:y + SHAPE[0], x:x + SHAPE[1]]


def load(name):
    from skimage import data
    image = getattr(data, name)()
    return image[..., :3] if image.ndim == 3 else np.stack([image] * 3, axis=-1)


def compose(label, half, rng):
    """(photograph, mask); label 0: without a texture"""
    rgb, mask = crop(load(rng.choice(PHOTOGRAPHS)), half, rng).astype(float), np.zeros(SHAPE, np.uint8)
    if label:
        along, across = np.meshgrid(*(np.linspace(0, 1, side) for side in SHAPE), indexing="ij")
        if rng.random() < 0.5:
            along, across = across, along
        along = along if rng.random() < 0.5 else 1 - along
        border = rng.uniform(0.25, 0.6) + 0.05 * np.sin(across * rng.uniform(3, 12) + rng.uniform(0, 6))
        mask[along < border] = label
        tint = rng.uniform(0.6, 1.2, 3)
        texture = crop(load(TEXTURES[label - 1]), half, rng) * tint
        rgb[mask > 0] = texture[mask > 0]
    return rgb.clip(0, 255).astype(np.uint8), mask


def write(folder, labels, half, rng):
    """Photographs K.jpg with one label each, tags.csv and classes.txt; [masks]"""
    from PIL import Image
    folder.mkdir(parents=True)
    masks, rows = [], ["image,tags"]
    for k, label in enumerate(labels):
        rgb, mask = compose(label, half, rng)
        Image.fromarray(rgb).save(folder / f"{k:02d}.jpg", quality=92)
        masks.append(mask)
        rows.append(f"{k:02d}.jpg,{TEXTURES[label - 1] if label else ''}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    (folder / "classes.txt").write_text("\n".join(TEXTURES) + "\n")
    return masks


# Runs

def execute(place, seed, version):
    """Learn, segment and score, unless it is done."""
    result = place / f"{version}.json"
    if result.exists():
        return
    rng, photos, new = np.random.default_rng(seed), place / "photos", place / "new"
    for folder in (photos, new):
        shutil.rmtree(folder, ignore_errors=True)
    labels = range(1, 1 + len(TEXTURES))
    write(photos, [*np.repeat(labels, PER_CLASS), *[0] * WITHOUT], 0, rng)
    truths = write(new, [k % (1 + len(TEXTURES)) for k in range(NEW)], 1, rng)
    if version == "object":
        (photos / "constraints.toml").write_text("".join(f'[{name}]\nkind = "object"\n' for name in TEXTURES))
    masks = place / f"masks_{version}"
    shutil.rmtree(masks, ignore_errors=True)
    type_in("learn.py", "--no-check", "--jobs", "1", *(["--cue", "none"] if version == "none" else []), photos)
    type_in("infer.py", "--model", photos / "model.ccnn", "--out", masks, "--no-overlay", "--jobs", "1", new)
    C = sum(confusion(truth, read_mask(masks / f"{k:02d}.png", len(TEXTURES) + 1), len(TEXTURES) + 1)
            for k, truth in enumerate(truths))
    with whole_file(result) as part:
        part.write_text(json.dumps({"seed": seed, "version": version, "miou": scored("", "", False, C).miou}))


def type_in(tool, *words):
    done = subprocess.run([ROOT / "tools" / tool, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    if done.returncode:
        raise UserError(f"tools/{tool} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")


def table(found):
    """Markdown: mean ± standard deviation over the seeds."""
    by_version = {version: [one["miou"] for one in found if one["version"] == version] for version in VERSIONS}
    return markdown_table(["textures", "seeds", "mean IoU"], [
        [VERSIONS[version], str(len(scores)), said([scores])] for version, scores in by_version.items() if scores])


if __name__ == "__main__":
    command.run(main)
