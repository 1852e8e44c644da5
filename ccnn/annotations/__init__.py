"""Tags and boxes of other programs: tables as people have them, a folder per class, VOC, COCO, Label Studio, CVAT."""
from ccnn.annotations.importers import read_source
from ccnn.annotations.tags import parse_tags, read_tags

__all__ = ["parse_tags", "read_source", "read_tags"]
