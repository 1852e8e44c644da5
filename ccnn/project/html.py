"""What our HTML pages share: one file with everything inside, on paper or in the dark, on a desk or in the hand.

A page needs no network and runs no script: pictures are data URIs, charts are SVG. Text that is not ours goes through
text().
"""
import base64
import io
import unicodedata
from html import escape
from typing import NamedTuple

import numpy as np
from PIL import Image

from ccnn.images.overlays import colours


def document(title, body, style=""):
    """A whole page. The policy forbids scripts and every address, whatever the body holds."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def text(value):
    """Anybody's text for HTML: escaped, without control characters and bytes that are no text."""
    shown = str(value).encode("utf-8", "backslashreplace").decode()
    return escape("".join("\ufffd" if unicodedata.category(c) == "Cc" and c != "\n" else c for c in shown))


def name(value):
    """A name inside a sentence: its direction of writing stays its own."""
    return f"<bdi>{text(value)}</bdi>"


def picture(array, alt, kind="png", classes=""):
    """An <img> that carries its own pixels. array: h x w x 3, with opacity h x w x 4, or grey h x w; uint8."""
    data = io.BytesIO()
    Image.fromarray(array).save(data, kind, **({"quality": 82, "subsampling": 0} if kind == "jpeg" else {}))
    uri = f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
    height, width = array.shape[:2]
    return f'<img src="{uri}" width="{width}" height="{height}" alt="{text(alt)}" class="{classes}">'


def tiles(entries):
    """Large numbers: [(number, what it is, a smaller line or "")]."""
    return '<div class="tiles">' + "".join(
        f"<div><b>{text(number)}</b>{text(what)}{f'<small>{text(more)}</small>' if more else ''}</div>"
        for number, what, more in entries) + "</div>"


def legend(classes):
    """The labels' colours."""
    return '<p class="legend">' + "".join(
        f"<span>{swatch(label)}{name(classes[label])}</span>" for label in range(1, len(classes))) + "</p>"


def swatch(label):
    return f'<i class="swatch" style="background:{hexadecimal(label)}"></i>'


def hexadecimal(label):
    return "#" + bytes(colours()[label]).hex()


class Step(NamedTuple):
    """Something to do next."""
    title: str
    command: str
    why: str


def commands(steps):
    cells = "".join(f"<div><h3>{text(step.title)}</h3><pre>{text(step.command)}</pre><p>{text(step.why)}</p></div>"
                    for step in steps)
    return f'<div class="{"two" if len(steps) < 3 else "three"}">{cells}</div>'


def chart(curves, title, unit, top=None):
    """Lines over iterations. curves: [(name, colour, {x: y})]; names stand at the lines' ends, moved apart.

    The drawing is 420 units wide, so that its letters can be read where it is 340 pixels wide.
    """
    longest = max(len(curve[0]) for curve in curves)
    width, height, left, right, base = 420, 250, 38, 24 + 6.4 * longest if longest else 16, 210
    x_max = max(1, *(max(values) for *_, values in curves))
    y_max = top or nice(max(max(values.values()) for *_, values in curves))

    def fx(x):
        return left + (width - left - right) * x / x_max

    def fy(y):
        return base - (base - 20) * min(y, y_max) / y_max

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(title)}" class="chart">']
    for k in range(5):
        x, y = nice(x_max) * k / 4, y_max * k / 4
        parts.append(f'<line x1="{left}" x2="{width - right:.1f}" y1="{fy(y):.1f}" y2="{fy(y):.1f}" class="grid"/>'
                     f'<text x="{left - 6}" y="{fy(y) + 4:.1f}" class="tick" text-anchor="end">{y:.3g}</text>')
        if x <= x_max:
            parts.append(f'<text x="{fx(x):.1f}" y="{base + 17}" class="tick" text-anchor="middle">{x:.5g}</text>')
    parts.append(f'<text x="{left}" y="{height - 5}" class="tick">iterations</text>'
                 f'<text x="{left}" y="11" class="tick">{text(unit)}</text>')
    at = -100.0
    for y, line, colour, values in sorted((fy(list(curve[2].values())[-1]), *curve) for curve in curves):
        points = " ".join(f"{fx(a):.1f},{fy(b):.1f}" for a, b in values.items())
        at, end = max(y, at + 14), width - right
        parts.append(f'<polyline points="{points}" style="stroke:{colour}"/>')
        if line:                                # its name, after a dash of its colour
            parts.append(f'<polyline points="{end + 5:.1f},{at:.1f} {end + 13:.1f},{at:.1f}" style="stroke:{colour}"/>'
                         f'<text x="{end + 18:.1f}" y="{at + 4:.1f}" class="tick">{text(line)}</text>')
    return "".join(parts) + "</svg>"


def nice(value):
    """The least round number that is not below value; its quarters are round too."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-6)))
    return next(k * power for k in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 4.8, 6, 8, 10) if k * power >= value)


# Colours stand in variables, light and dark. tests/test_report.py computes their contrast.
STYLE = """
:root { --paper: #fbfbf9; --card: #ffffff; --ink: #1f2733; --soft: #576070; --rule: #dfe3e8; --accent: #2463a6;
        --alarm: #a8320f; --alarm-card: #fdf1ec; --track: #e9ecf0; --code: #20262f; --code-ink: #eef1f5; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #13171d; --card: #1b2129; --ink: #e9ecf1; --soft: #a7b1be; --rule: #323a45; --accent: #7fb4ee;
          --alarm: #ff9d7a; --alarm-card: #33211b; --track: #2c343e; --code: #0b0e12; --code-ink: #e4e8ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 56px 28px 40px; max-width: 1120px; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 44px; line-height: 1.1; letter-spacing: -.02em; margin: 0 0 18px; }
h2 { font-size: 27px; line-height: 1.2; letter-spacing: -.01em; margin: 0 0 10px; }
h3 { font-size: 16px; font-weight: 600; margin: 0; }
p { max-width: 760px; margin: 0 0 14px; }
section { border-top: 1px solid var(--rule); margin-top: 44px; padding-top: 34px; }
.lead { font-size: 19px; }
.note, footer { font-size: 14px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 14px; margin: 26px 0 18px; }
.tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 18px;
             font-size: 15px; }
.tiles b { display: block; font-size: 42px; line-height: 1.15; font-weight: 650; }
.tiles small { display: block; color: var(--soft); font-size: 13px; }
.three { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 20px; }
.two { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 26px; }
bdi { overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 14px; margin: 0; max-width: none; }
.swatch { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 7px;
          vertical-align: -1px; border: 1px solid var(--soft); }
.wrong { color: var(--alarm); line-height: 1.4; margin: 0 0 6px; }
figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 8px; text-align: right; border-bottom: 1px solid var(--rule); font-weight: 400; }
thead th { color: var(--soft); font-size: 14px; vertical-align: bottom; }
th:first-child { text-align: left; }
svg { width: 100%; height: auto; display: block; }
svg.chart { max-width: 560px; }
svg polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg .grid { stroke: var(--rule); }
svg .tick { font-size: 12px; fill: var(--soft); }
pre { background: var(--code); color: var(--code-ink); padding: 14px 16px; border-radius: 8px; font-size: 13px;
      line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; margin: 8px 0 10px; }
code { font-size: .92em; }
footer { border-top: 1px solid var(--rule); margin-top: 44px; padding-top: 16px; }
@media (max-width: 760px) {
  body { padding: 28px 16px 32px; }
  h1 { font-size: 32px; }
  h2 { font-size: 23px; }
  .lead { font-size: 17px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  .tiles div { padding: 10px 12px; }
  .tiles b { font-size: 32px; }
  .two, .three { grid-template-columns: minmax(0, 1fr); } }
"""
