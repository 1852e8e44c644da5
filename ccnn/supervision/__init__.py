"""From what is known of an image to the constraints on its latent distribution.

`builder` combines everything known about an image and solves for p: start reading there. `constraints` has the paper's
rows: tags, sizes, boxes, masks. `kinds` lists the kinds of supervision, `rules` and `rules_file` read constraints.toml,
`marks` reads points and scribbles, `crops` has the annotation of a crop, and `baselines` the mathematics of the systems
that the paper compares with.
"""
from ccnn.supervision.constraints import box_constraints, mask_constraints, size_constraints, tag_constraints

__all__ = ["box_constraints", "mask_constraints", "size_constraints", "tag_constraints"]
