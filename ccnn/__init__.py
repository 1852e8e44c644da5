"""CCNN: pixel-wise segmentation from cheap labels, each label a linear constraint on the net's output."""
from ccnn.constraints import Constraints, box_constraints, mask_constraints, size_constraints, tag_constraints
from ccnn.dual import maximize

__version__ = "2.0.0"
__all__ = ["Constraints", "box_constraints", "mask_constraints", "maximize", "size_constraints", "tag_constraints"]
