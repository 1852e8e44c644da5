"""From what is known of an image to the constraints on its latent distribution.

`constraints` has the paper's: tags, sizes, boxes, masks. `kinds` lists what a training may be supervised by, `rules`
and `rules_file` read constraints.toml, `marks` reads points and scribbles, and `baselines` has the mathematics of the
systems that the paper compares with.
"""
from ccnn.supervision.constraints import box_constraints, mask_constraints, size_constraints, tag_constraints

__all__ = ["box_constraints", "mask_constraints", "size_constraints", "tag_constraints"]
