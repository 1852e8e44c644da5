"""Bounding boxes from VOC's XML."""
import xml.etree.ElementTree as ElementTree

from ccnn.errors import ImageError, reason
from ccnn.labels import not_a_class


def read_boxes(path, classes):
    """(height, width), [(label, y0, x0, y1, x1)] of the image that a VOC annotation describes.

    Boxes are in pixels, counted from 0, half-open, clipped to the image. Objects marked difficult are in the image and
    therefore in the list.
    """
    def text(item, path):
        found = item.findtext(path)
        if found is None:
            raise ValueError(f"has no {path}")
        return found.strip()

    try:
        root = ElementTree.parse(path).getroot()
        height, width = (int(text(root, f"size/{side}")) for side in ("height", "width"))
        objects = [(text(item, "name"),
                    [float(text(item, f"bndbox/{side}")) for side in ("ymin", "xmin", "ymax", "xmax")])
                   for item in root.findall("object")]
    except OSError as error:
        raise ImageError(f"{path}: cannot read the annotation: {reason(error)}") from None
    except (ElementTree.ParseError, ValueError) as error:
        raise ImageError(f"{path}: is not a VOC annotation: {error}") from None
    boxes = []
    for name, (ymin, xmin, ymax, xmax) in objects:
        if name not in classes[1:]:
            raise ImageError(f"{path}: object {not_a_class(name, classes)}")
        # VOC counts pixels from 1 and includes the last one
        y0, x0, y1, x1 = max(ymin - 1, 0), max(xmin - 1, 0), min(ymax, height), min(xmax, width)
        if not (y0 < y1 and x0 < x1):
            raise ImageError(f"{path}: the box of {name!r}, x {xmin:g}..{xmax:g}, y {ymin:g}..{ymax:g}, is empty or "
                             f"outside the image of {width} x {height} pixels")
        boxes.append((classes.index(name), y0, x0, y1, x1))
    return (height, width), boxes
