"""A small training from tags in PyTorch, in one process or in many.

    demo/draw_demo.py data/demo                                         # 260 drawn images, five classes
    python examples/train_torch.py data/demo                            # half a minute on one core
    torchrun --nproc_per_node 2 examples/train_torch.py data/demo       # two processes, the same weights

The net is told which classes are in a training image, never where. The masks of other images score it. The processes
share the BATCH images of a step, and DistributedDataParallel averages their gradients. So any number of processes that
divides BATCH reaches the weights of one process, but for rounding.
"""
import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ccnn.evaluation.scores import confusion, scored
from ccnn.images import read_image, read_mask
from ccnn.torch import ConstrainedLoss, tag_constraints

BATCH, SIDE, STRIDE = 4, 113, 4         # images per step, their side in pixels, pixels per cell of the score grid


def read(root, split, labels):
    """(images N x 3 x SIDE x SIDE, tags N x L, masks N x h x w at the cells of the score grid) of a VOC folder."""
    images, tags, masks = [], [], []
    for name in (root / f"ImageSets/Segmentation/{split}.txt").read_text().split():
        rgb = Image.fromarray(read_image(root / f"JPEGImages/{name}.jpg")).resize((SIDE, SIDE))
        mask = Image.fromarray(read_mask(root / f"SegmentationClass/{name}.png")).resize((SIDE, SIDE), Image.NEAREST)
        images.append(np.array(rgb, np.float32).transpose(2, 0, 1) / 64 - 2)
        masks.append(np.array(mask)[::STRIDE, ::STRIDE])
        tags.append(np.isin(np.arange(labels), np.array(mask)))
    return [torch.from_numpy(np.array(arrays)) for arrays in (images, tags, masks)]


def make_net(labels):
    """Scores at every fourth pixel, from colours and textures."""
    torch.manual_seed(1)                                # every process starts with the same weights
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 24, 7, stride=2, padding=3), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.Conv2d(24, 48, 5, padding=2), torch.nn.ReLU(), torch.nn.Conv2d(48, labels, 1))


def train(net, images, tags, epochs, rank, processes, device):
    """Plain SGD with a rate that falls to zero."""
    sampler = DistributedSampler(images, processes, rank, seed=1)       # the same order for any number of processes
    loader = DataLoader(TensorDataset(images, tags), BATCH // processes, sampler=sampler)
    loss, optimiser = ConstrainedLoss(), torch.optim.SGD(net.parameters(), 4e-2, momentum=0.9, weight_decay=5e-4)
    rate = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, epochs * len(loader))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for some_images, present in loader:
            mirrored = some_images.flip(3) if epoch % 2 else some_images
            value = loss(net(mirrored.to(device)), tag_constraints(present))
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1)
            optimiser.step()
            rate.step()
            total += value.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1} of {epochs}: loss {total.item() / processes / len(loader):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="what demo/draw_demo.py has drawn")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--out", help="write the weights there")
    args = parser.parse_args()
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))     # torchrun sets them
    if BATCH % processes:
        parser.error(f"{processes} processes cannot share {BATCH} images per step; start 1, 2 or 4")
    if not (args.root / "classes.txt").is_file():
        parser.error(f"{args.root}/classes.txt does not exist; draw the images first: demo/draw_demo.py {args.root}")
    gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpus else torch.device("cpu")
    dist.init_process_group("nccl" if gpus else "gloo", rank=rank, world_size=processes,
                            store=None if "MASTER_ADDR" in os.environ else dist.HashStore())

    labels = len((args.root / "classes.txt").read_text().split())
    net = make_net(labels).to(device)
    train(DistributedDataParallel(net), *read(args.root, "train", labels)[:2], args.epochs, rank, processes, device)
    if rank == 0:
        images, _, masks = read(args.root, "val", labels)
        with torch.no_grad():
            found = net(images.to(device)).argmax(dim=1).cpu()
        miou = scored("net", "val", False, confusion(masks.numpy(), found.numpy(), labels)).miou
        print(f"mean IoU on {len(images)} images that it has not seen: {miou:.1f} %")
        if args.out:
            torch.save(net.state_dict(), args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
