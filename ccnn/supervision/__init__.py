"""From what is known of an image to the constraints on its latent distribution.

`tags_sizes_boxes` has the paper's rows: of tags, sizes, boxes and masks. `constraint_builder` combines everything known
about an image and solves for p: start reading there. `kinds` lists the kinds of supervision, `rules` and `rules_file`
read constraints.toml, `marks` reads points and scribbles, `cue_rows` has the rows of a cue, `crops` the annotation of a
crop, and `baselines` the mathematics of the systems that the paper compares with.
"""
from ccnn.supervision.tags_sizes_boxes import box_constraints, mask_constraints, size_constraints, tag_constraints

__all__ = ["box_constraints", "mask_constraints", "size_constraints", "tag_constraints"]
