"""The constrained loss in a PyTorch training loop.

    python examples/torch_loss.py           # needs torch and this package

A small convolutional net learns from tags alone where red and where blue discs are; no mask is shown to it.
"""
import numpy as np
import torch

import ccnn
from ccnn.torch import ConstrainedLoss

torch.manual_seed(1)
rng = np.random.default_rng(1)


def draw(count, side=33):
    """Images of grey noise with a red disc (label 1) or a blue one (label 2), their tags, their masks."""
    images, tags, masks = rng.normal(0, 0.3, (count, 3, side, side)), np.zeros((count, 3), bool), []
    for image, tag in zip(images, tags):
        label = rng.integers(1, 3)
        y, x = np.mgrid[:side, :side] - rng.integers(10, side - 10, 2)[:, None, None]
        disc = y ** 2 + x ** 2 < 81
        image[0 if label == 1 else 2] += disc
        tag[[0, label]] = True
        masks.append(label * disc)
    return torch.tensor(images, dtype=torch.float32), tags, np.array(masks)


net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, padding=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 3, 5, padding=2))
loss, optimiser = ConstrainedLoss(), torch.optim.Adam(net.parameters(), 1e-2)
for _step in range(60):
    images, tags, _ = draw(8)
    value = loss(net(images), [ccnn.tag_constraints(present) for present in tags])
    optimiser.zero_grad()
    value.backward()
    optimiser.step()

images, _, masks = draw(50)
found = net(images).argmax(dim=1).numpy()
iou = [((found == l) & (masks == l)).sum() / ((found == l) | (masks == l)).sum() for l in range(3)]
print("IoU of background, red, blue: " + ", ".join(f"{v:.2f}" for v in iou))
