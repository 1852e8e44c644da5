"""Tags, boxes and masks of other programs, one module per format.

`label_formats` has the table of what is written; `importers` reads, and tells by its content what a file is. Our own
masks are files of ccnn.images.masks.
"""
from ccnn.annotations.importers import read_source
from ccnn.annotations.tags import parse_tags, read_tags

__all__ = ["parse_tags", "read_source", "read_tags"]
