"""Bounding boxes from VOC's XML."""
import xml.etree.ElementTree as ElementTree

from ccnn.errors import ImageError


def read_boxes(path, classes):
    """(height, width), [(label, y0, x0, y1, x1)] from a VOC annotation: in pixels from 0, half-open, clipped to the
    image. Objects marked difficult are kept: they are in the image."""
    try:
        root = ElementTree.parse(path).getroot()
        height, width = (int(root.findtext(f"size/{side}")) for side in ("height", "width"))
        objects = [(item.findtext("name").strip(),
                    [float(item.findtext(f"bndbox/{side}")) for side in ("ymin", "xmin", "ymax", "xmax")])
                   for item in root.findall("object")]
    except OSError as error:
        raise ImageError(f"{path}: cannot read the annotation: {error.strerror}") from None
    except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"{path}: is not a VOC annotation: {error}") from None
    boxes = []
    for name, (ymin, xmin, ymax, xmax) in objects:
        if name not in classes:
            raise ImageError(f"{path}: object {name!r} is not a class; expected one of {', '.join(classes[1:])}")
        # VOC counts pixels from 1 and includes the last
        y0, x0, y1, x1 = max(ymin - 1, 0), max(xmin - 1, 0), min(ymax, height), min(xmax, width)
        if not (y0 < y1 and x0 < x1):
            raise ImageError(f"{path}: the box of {name!r}, x {xmin:g}..{xmax:g}, y {ymin:g}..{ymax:g}, is empty or "
                             f"outside the image of {width} x {height} pixels")
        boxes.append((classes.index(name), y0, x0, y1, x1))
    return (height, width), boxes
