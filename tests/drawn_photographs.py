"""Photographs of cats and dogs, drawn, for tests that learn from tags; and a trunk where VGG-16's is not at hand."""
import numpy as np
from PIL import Image

from ccnn.images.reading import to_blob
from ccnn.inference.caffe_net import load_caffe

CLASSES = ("background", "cat", "dog")
SHAPE = 81, 97
COLOURS = {"cat": ((255, 150, 40), (120, 40, 0)), "dog": ((235, 235, 230), (30, 30, 30))}     # RGB: ground, figure


def photograph(rng, labels):
    """A drawn photograph and its mask: a disc for each label, a cat ginger and striped, a dog white with black spots,
    together a third of the picture, on a lawn."""
    y, x = np.mgrid[:SHAPE[0], :SHAPE[1]]
    image = rng.normal((70, 130, 60), 15) + rng.normal(0, 25, (*SHAPE, 3))
    mask = np.zeros(SHAPE, np.uint8)
    for label, column in zip(labels, rng.permutation([26, 71])):
        radius = np.sqrt(rng.uniform(0.32, 0.4) / len(labels) * mask.size / np.pi)
        column = column if len(labels) == 2 else rng.uniform(30, 67)
        inside = np.hypot(y - rng.uniform(30, 51), x - column) < radius
        angle = rng.uniform(0, np.pi)
        u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        figure = u % 10 < 5 if CLASSES[label] == "cat" else np.hypot(u % 12 - 6, v % 12 - 6) < 4
        ground, ink = COLOURS[CLASSES[label]] + rng.normal(0, 15, (2, 3))
        image[inside] = np.where(figure[inside, None], ink, ground)
        mask[inside] = label
    return Image.fromarray(image.clip(0, 255).astype(np.uint8)), mask


def draw(folder, number, seed):
    """Write `number` photographs; return {name: mask}. In turn they show a cat, a dog, both, nothing."""
    folder.mkdir()
    masks = {}
    for k in range(number):
        image, masks[f"{k}"] = photograph(np.random.default_rng([seed, k]), [(1,), (2,), (1, 2), ()][k % 4])
        image.save(folder / f"{k}.jpg", quality=95)
    return masks


def table(masks, header="image,tags,large"):
    """tags.csv of photographs with these masks."""
    lines = [header]
    for name, mask in masks.items():
        share = np.bincount(mask.ravel(), minlength=3) / mask.size
        tags, large = (";".join(CLASSES[l] for l in (1, 2) if share[l] > bound) for bound in (0, 0.1))
        lines.append(",".join([f"{name}.jpg", tags, large][:len(header.split(","))]))
    return "\n".join(lines) + "\n"


def random_trunk(prototxt):
    """Random convolutions, 3x3 in the first two blocks and 1x1 from there on, every channel balanced. Without that, all
    channels and all cells would be alike at so great a depth."""
    caffe = load_caffe()
    caffe.set_random_seed(1)
    net = caffe.Net(str(prototxt), caffe.TEST)
    images = [photograph(np.random.default_rng([3, k]), (1, 2))[0] for k in range(4)]
    net.blobs["data"].reshape(4, 3, *SHAPE)
    net.blobs["data"].data[...] = [to_blob(np.asarray(image)) for image in images]
    for name, (weights, bias) in net.params.items():
        if name > "conv3":
            weights.data[...] *= np.arange(9).reshape(3, 3) == 4
        net.forward(end=name)
        out = net.blobs[name].data
        mean, deviation = out.mean(axis=(0, 2, 3)), out.std(axis=(0, 2, 3))
        weights.data[...] /= deviation[:, None, None, None]
        bias.data[...] = -mean / deviation
    for blob in net.params["conv5_3"]:
        blob.data[...] *= 2                 # as large as VGG's
    return net
