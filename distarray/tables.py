"""Tables of text: as aligned columns and as HTML, and the units in which sizes are read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def format_nbytes(n: float) -> str:
    """Return a number of bytes, exact below 1 KiB and with three digits above.

    >>> format_nbytes(0), format_nbytes(1000), format_nbytes(10_000), format_nbytes(128 << 20)
    ('0', '1000 B', '9.77 KiB', '128 MiB')
    """
    if n == 0:
        return "0"
    if abs(n) < 1024:
        return f"{int(n)} B"
    power = 0
    # 1023.5 would be printed with four digits
    while abs(n) >= 1023.5 and power < len(_PREFIXES) - 1:
        n /= 1024
        power += 1
    digits = max(0, 2 - (abs(n) >= 9.995) - (abs(n) >= 99.95))
    text = f"{n:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {_PREFIXES[power]}B"


def format_seconds(seconds: float) -> str:
    """Return a duration with three digits.

    >>> format_seconds(0), format_seconds(0.0000321), format_seconds(0.25), format_seconds(90)
    ('0', '32.1 us', '250 ms', '90 s')
    """
    if seconds == 0:
        return "0"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return the rows as aligned columns, two spaces apart.

    Parameters
    ----------
    header
        One title per column; left out if all are empty.
    rows
        One text per column.
    right
        Columns that are aligned to the right: numbers.

    Examples
    --------
    >>> print(format_table(["name", "bytes"], [["a", "5 B"], ["beta", "12 B"]], right=[1]))
    name  bytes
    a       5 B
    beta   12 B
    """
    lines = [list(header), *map(list, rows)] if any(header) else list(map(list, rows))
    widths = [max((len(line[c]) for line in lines), default=0) for c in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if c in right else text.ljust(width)
            for c, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Make an HTML table of what `format_table` prints; texts are escaped."""

    def line(tag: str, texts: Sequence[str]) -> str:
        cells = (
            f'<{tag} style="text-align: {"right" if c in right else "left"}; padding: 0 0.4em">{escape(text)}</{tag}>'
            for c, text in enumerate(texts)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    inner = f"<thead>{line('th', header)}</thead><tbody>{body}</tbody>"
    # A page that is narrower than the table scrolls it, and breaks no cell.
    return f'<div style="overflow-x: auto"><table style="white-space: nowrap">{inner}</table></div>'
