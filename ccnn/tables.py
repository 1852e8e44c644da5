"""Tables as text and as Markdown."""



def cells(lines):
    return [[v if isinstance(v, str) else "-" if v is None else f"{v:.1f}" for v in line] for line in lines]


def text_table(header, lines):
    lines = [header] + cells(lines)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join("  ".join(v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(line, widths))).rstrip()
                   + "\n" for line in lines)


def markdown_table(header, lines):
    rule = ["---" if i < 2 else "---:" for i in range(len(header))]
    return "".join(f"| {' | '.join(v.replace('|', '&#124;') for v in line)} |\n"
                   for line in [header, rule] + cells(lines))
