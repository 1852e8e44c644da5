"""What our HTML pages share: one file with everything inside, for light and dark mode, desktop and mobile.

A page needs no network and runs no script: pictures are data URIs, charts are SVG. Templates are in templates/; Jinja
escapes every value.
"""
import base64
import io
import re
from pathlib import Path
from typing import NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup
from PIL import Image

from ccnn._util.text import plural
from ccnn.images.overlays import colours, percent

TEMPLATES = Path(__file__).parent / "templates"


class Step(NamedTuple):
    """Something to do next."""
    title: str
    command: str
    why: str


def render(template, values, folder=TEMPLATES, **filters):
    """The text of a page. folder: of the template, which may extend and import ours; filters: of its own."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader([folder, TEMPLATES]), autoescape=True,
                                     finalize=clean, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)
    environment.filters.update(percent=percent, data_uri=data_uri, colour=hexadecimal, counted=counted, **filters)
    return environment.get_template(template).render(values)


def clean(value):
    """Anybody's text without control characters and bytes that are not text; Jinja escapes it after this."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub("[\0-\x09\x0b-\x1f\x7f-\x9f]", "\ufffd", value.encode("utf-8", "backslashreplace").decode())


def data_uri(array, kind="png"):
    """A picture inside the page. array: h x w x 3, with opacity h x w x 4, or grey h x w; uint8."""
    data = io.BytesIO()
    Image.fromarray(array).save(data, kind, **({"quality": 82, "subsampling": 0} if kind == "jpeg" else {}))
    return Markup(f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}")


def hexadecimal(label):
    return "#" + bytes(colours()[label]).hex()


def counted(one, number, many=""):
    """As a filter: {{ "photograph" | counted(2) }}"""
    return plural(number, one, many)


def chart(curves, title, unit, top=None):
    """Lines over iterations, laid out. curves: [(name, colour, {x: y})]; names stand at the lines' ends, moved apart.

    The drawing is 420 units wide, so that its letters can be read where it is 340 pixels wide.
    """
    longest = max(len(curve[0]) for curve in curves)
    width, height, left, base = 420, 250, 38, 210
    end = width - (24 + 6.4 * longest if longest else 16)
    x_max = max(1, *(max(values) for *_, values in curves))
    y_max = top or nice(max(max(values.values()) for *_, values in curves))

    def fx(x):
        return left + (end - left) * x / x_max

    def fy(y):
        return base - (base - 20) * min(y, y_max) / y_max

    quarters = [k / 4 for k in range(5)]
    lines, at = [], -100.0
    for y, name, colour, values in sorted((fy(list(curve[2].values())[-1]), *curve) for curve in curves):
        at = max(y, at + 14)
        lines.append((name, colour, [(fx(a), fy(b)) for a, b in values.items()], at))
    return {"title": title, "unit": unit, "width": width, "height": height, "left": left, "end": end, "base": base,
            "rows": [(fy(y_max * k), y_max * k) for k in quarters], "lines": lines,
            "columns": [(fx(nice(x_max) * k), nice(x_max) * k) for k in quarters if nice(x_max) * k <= x_max]}


def nice(value):
    """The least round number that is not below value; its quarters are round too."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-6)))
    return next(k * power for k in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 4.8, 6, 8, 10) if k * power >= value)
