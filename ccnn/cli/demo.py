"""Try the product without photographs of your own: draw some, learn from their tags, segment new ones.

    ccnn demo                       # in the folder ccnn-demo; a minute on two cores

1. draws photographs of five kinds of things, with their tags      ccnn-demo/photos, ccnn-demo/new_photos
2. learns from the tags                                             ccnn learn ccnn-demo/photos
3. segments new photographs with the model                          ccnn segment --model ccnn-demo/photos/model.ccnn ...
4. says how good the masks are: the drawing knows the truth

In a clone, `make demo` does more: it trains the systems of the paper with Caffe, and compares them on a page.
"""
from pathlib import Path

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.files import whole_file
from ccnn._util.paths import typed
from ccnn.cli import command, learn, segment
from ccnn.data.drawn_scenes import CLASSES, scene
from ccnn.evaluation.scores import confusion, scored
from ccnn.images.reading import read_mask

PHOTOGRAPHS, NEW = 60, 12
SCALE = 2                       # the scenes are as small as the demonstration in Caffe needs them


def main(argv=None):
    parser = command.parser(__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("ccnn-demo"),
                        help="where everything goes (default: %(default)s)")
    parser.add_argument("--steps", help="as for ccnn learn")
    args = parser.parse_args(argv)
    truth = draw(args.folder)
    photos, new, masks = (args.folder / name for name in ("photos", "new_photos", "masks"))
    status = learn.main([str(photos), *(["--steps", args.steps] if args.steps else [])])
    if status:
        return status
    status = segment.main(["--model", str(photos / "model.ccnn"), "--out", str(masks), str(new)])
    if status:
        return status
    labels = 1 + len(CLASSES)
    C = sum(confusion(mask, read_mask(masks / f"{name}.png", labels), labels) for name, mask in truth.items())
    print(f"mean IoU on {len(truth)} new photographs: {scored('demo', 'new', False, C).miou:.1f}")
    print(f"look at {masks / 'overlay'} and {photos / 'report.html'}; then try: {typed('studio', photos)}")
    return 0


def draw(folder):
    """Write the photographs, classes.txt and tags.csv; return {name: mask} of the new ones."""
    from PIL import Image
    mark = folder / "drawn-by-ccnn"
    if folder.exists() and not mark.is_file() and any(folder.iterdir()):
        raise UserError(f"{folder}: already exists and holds something else; name another folder: ccnn demo FOLDER")
    lines, truth = ["image,tags,large"], {}
    for part, numbers in (("photos", range(PHOTOGRAPHS)), ("new_photos", range(PHOTOGRAPHS, PHOTOGRAPHS + NEW))):
        (folder / part).mkdir(parents=True, exist_ok=True)
        mark.touch()
        for number in numbers:
            background = part == "photos" and number % 10 == 9      # some photographs without any class help
            image, mask, _ = scene(np.random.default_rng([1, number]), not background)
            large = Image.fromarray(image).resize([SCALE * side for side in mask.shape[::-1]], Image.Resampling.BICUBIC)
            with whole_file(folder / part / f"{number:02d}.jpg") as path:
                large.save(path, "JPEG", quality=95)
            shares = np.bincount(mask.ravel(), minlength=256)[1:1 + len(CLASSES)] / mask.size
            tags, big = (";".join(np.array(CLASSES)[shares > bound]) for bound in (0, 0.1))
            if part == "photos":
                lines.append(f"{number:02d}.jpg,{tags},{big}")
            else:
                truth[f"{number:02d}"] = mask.repeat(SCALE, 0).repeat(SCALE, 1)
    for name, text in (("tags.csv", lines), ("classes.txt", CLASSES)):
        path, text = folder / "photos" / name, "\n".join(text) + "\n"
        if not path.exists():                       # the user may have changed it since
            with whole_file(path) as part:
                part.write_text(text)
    return truth
