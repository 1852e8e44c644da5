"""Photographs in, masks out: which files are photographs, how they are read, the labels and their colours, the score
grid between a net's cells and the pixels, overlays. `masks` writes every mask.
"""
from ccnn.images.labels import VOC_CLASSES, read_classes
from ccnn.images.reading import read_image, read_mask

__all__ = ["VOC_CLASSES", "read_classes", "read_image", "read_mask"]
