"""The share of an image that is background: given, or estimated from the images for which it is given."""
import csv

import numpy as np

from ccnn._util.errors import UserError, reason
from ccnn._util.files import load_array, whole_file
from ccnn._util.text import and_more
from ccnn.images.ids import truth_paths
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.reading import read_mask


def read_shares(path, ids):
    """{id: share of the background} from a CSV file with a line `image,share` for each of the ids."""
    shares = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for line, cells in enumerate(csv.reader(file), 1):
                if cells:
                    name, share = read_line(cells, f"{path}, line {line}")
                    shares[name] = share
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: {reason(error)}; {REMEDY}") from None
    missing = [id for id in ids if id not in shares]
    if missing:
        raise UserError(f"{path}: has no line for {missing[0]!r}{and_more(missing)}; {REMEDY}")
    return shares


REMEDY = "it must have a line `image,share` for every image, as ccnn guess-shares writes them"


def read_line(cells, where):
    """(id, share)"""
    try:
        name, text = cells
        share = float(text)
    except ValueError:
        raise UserError(f"{where}: must be the name of an image and a number; got {','.join(cells)!r}") from None
    if not 0 <= share <= 1:
        raise UserError(f"{where}: a share must be in 0..1; got {text}")
    return name, share


def write_shares(path, shares):
    with whole_file(path) as part:
        part.write_text("".join(f"{name},{share:.3f}\n" for name, share in shares.items()))


def guess(features, known, ridge=1000):
    """The share of every image, 0..1, by ridge regression on its features.

    features : images x d;  known : {number of an image: its share}. With X the features of the known images, centred
    and each of standard deviation 1, and y their shares less the mean m, the guess for x is m + x' w, where w minimises
    |X w - y|^2 + ridge |w|^2. There are more features than known images: w = X' (X X' + ridge)^-1 y.
    """
    X = features[list(known)]
    y = np.array(list(known.values()))
    scale = X.std(axis=0)
    centred = np.where(scale > 0, (features - X.mean(axis=0)) / np.where(scale > 0, scale, 1), 0)
    X = centred[list(known)]
    w = X.T @ np.linalg.solve(X @ X.T + ridge * np.eye(len(X)), y - y.mean())
    return np.clip(y.mean() + centred @ w, 0, 1)


def guess_shares(root, features, names, known, out):
    """Write the file of shares of the images `names`, guessed from the masks of those that are `known`.

    An image is represented by the mean of its features over all cells; `features` is their folder.
    """
    means = np.array([image_mean(features / f"{name}.npy") for name in names])
    number = {name: k for k, name in enumerate(names)}
    shares = {number[name]: background_share(read_mask(mask)) for name, mask in zip(known, truth_paths(root, known))}
    write_shares(out, dict(zip(names, guess(means, shares))))


def background_share(mask):
    """Of the labelled pixels of a mask, those that are background."""
    return np.count_nonzero(mask == BACKGROUND) / max(1, np.count_nonzero(mask != VOID))


def image_mean(file):
    """The mean of cached features over all cells."""
    try:
        return load_array(file).mean(axis=(1, 2), dtype=np.float32)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {reason(error)}; run ccnn cache-features") from None
