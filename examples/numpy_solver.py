"""The solver from NumPy: what a tag does to a score map.

    python examples/numpy_solver.py         # needs NumPy, SciPy and this package, no framework

Two labels compete on 32 x 32 pixels. The net sees almost no cat; the tag says that there is one.
"""
import numpy as np

import ccnn

LABELS, SIDE = 3, 32                                    # background, cat, dog
y, x = np.mgrid[:SIDE, :SIDE] / SIDE

f = np.zeros((LABELS, SIDE * SIDE), np.float32)         # scores: labels x pixels
f[0] = 2.0                                              # background is ahead everywhere
f[1] = (1.5 - 8 * ((x - 0.6) ** 2 + (y - 0.4) ** 2)).ravel()        # the cat is nearest to winning here
f[2] = 1.0                                              # the dog scores well, but is not in the image

present = np.array([True, True, False])                 # the tag: a cat, no dog
s = ccnn.maximize(f, ccnn.tag_constraints(present))
q = np.exp(f) / np.exp(f).sum(axis=0)

print(f"{s.status}: duality gap {s.gap:.0e} after {s.iterations} passes over the pixels")
for label, name in enumerate(("background", "cat", "dog")):
    print(f"{name:11} area before {q[label].mean():.2f}, after {s.p[label].mean():.2f}")

# A rule of your own: the upper half holds at least as much cat as the lower half.
rows = ccnn.Constraints(A=[[0, 1, 0]], b=[0], beta=[np.inf],
                        regions=[np.where(np.arange(SIDE * SIDE) < SIDE * SIDE // 2, 1, -1)])
t = ccnn.maximize(f, ccnn.tag_constraints(present) & rows)
half = t.p[1].reshape(2, -1).mean(axis=1)
print(f"with the rule: upper half {half[0]:.2f}, lower half {half[1]:.2f}")
