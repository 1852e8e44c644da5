"""Tags, boxes and masks of other programs, one module per format.

`export_formats` has the table of what is written; `import_formats` reads, and tells by its content what a file is. Our
own masks are files of ccnn.images.masks.
"""
from ccnn.annotations.import_formats import read_source
from ccnn.annotations.tags import parse_tags, read_tags

__all__ = ["parse_tags", "read_source", "read_tags"]
