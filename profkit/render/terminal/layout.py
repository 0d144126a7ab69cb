"""Lines of styled text that keep to a width: wrapping, tables, bars. Knows neither reports nor terminals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

Segment = tuple[str, str]
"""Text and the name of its style."""
Line = tuple[Segment, ...]

WHOLE: Final = "whole"
"""The style of what is pasted: a command, which no width cuts."""
MARGIN: Final = "  "
LABEL_WIDTH: Final = 15
_GAP: Final = "  "
_MIN_TEXT_COLUMN: Final = 8
_MAX_TEXT_COLUMN: Final = 80
# A number and its unit stay on one line: "46.1 %", "17.5 ms", "5 steps".
_INSEPARABLE: Final = re.compile(r"(?<=\d) (?=(?:%|ns|us|ms|s|[kMGT]?B|events|steps?)(?![\w]))")
_GLUE: Final = "\0"
_JOINTS: Final = "/_-."
"""Where names of files and kernels may be broken."""


def cell_width(text: str) -> int:
    """The columns that text takes in a terminal: two for East Asian wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def label(text: str) -> str:
    """A label for the left column, as wide as all the others."""
    return f"{MARGIN}{text}".ljust(LABEL_WIDTH)


def wrapped(first: str, text: str, width: int, *, style: str = "", first_style: str = "label") -> list[Line]:
    """Text after a label, wrapped under itself so that no line is longer than `width`."""
    indent = " " * cell_width(first)
    lines: list[Line] = []
    for number, piece in enumerate(_pieces(text, max(width - len(indent), 1))):
        head = (first, first_style) if number == 0 else (indent, "")
        lines.append((head, (piece, style)))
    return lines


@lru_cache(maxsize=256)  # a report is laid out again with less in it until it fits on a screen
def _pieces(text: str, width: int) -> tuple[str, ...]:
    """Text broken at spaces; a word longer than the width is broken at a joint of it, else where the line ends."""
    lines = [""]
    for word in _INSEPARABLE.sub(_GLUE, text).split():
        rest = word.replace(_GLUE, " ")
        joined = f"{lines[-1]} {rest}" if lines[-1] else rest
        if cell_width(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        while cell_width(rest) > width:
            head = _head(rest, width) or rest[:1]
            joint = max(head.rfind(mark) for mark in _JOINTS) + 1
            head = head[:joint] if joint > len(head) // 2 else head
            lines[-1:] = [head, ""]
            rest = rest[len(head) :]
        lines[-1] = rest
    return tuple(lines)


def _head(text: str, width: int) -> str:
    """The longest beginning of text that fits."""
    size = min(len(text), max(width, 0))
    while cell_width(text[:size]) > width:
        size -= 1
    return text[:size]


def fitted(text: str, width: int) -> str:
    """Text cut in its middle, where names differ least, so that it takes at most `width` columns."""
    if cell_width(text) <= width:
        return text
    head = _head(text, (width - 1) // 2)
    tail = _head(text[::-1], width - 1 - cell_width(head))[::-1]
    return f"{head}…{tail}"


def flowed(first: Segment, entries: Iterable[Segment], width: int) -> list[Line]:
    """Entries side by side after a label, as many per line as fit; an entry is never broken unless it must be.

    What is to stay whole has a line of its own where it does not fit, as long as it is.
    """
    room = width - cell_width(first[0])
    lines: list[list[Segment]] = []
    used = room + 1
    for text, style in entries:
        shown = text if style == WHOLE else fitted(text, room)
        if used + len(MARGIN) + 1 + cell_width(shown) > room:
            lines.append([first if not lines else (" " * cell_width(first[0]), "")])
            used = 0
        else:
            lines[-1].append((MARGIN + " ", ""))
            used += len(MARGIN) + 1
        lines[-1].append((shown, style))
        used += cell_width(shown)
    return [tuple(line) for line in lines]


def bar(shares: Iterable[tuple[int, str, str]], width: int) -> Line:
    """A bar that fills the width exactly from (share in thousandths, glyph, style), which sum to 1000."""
    cells = width - 2 * len(MARGIN)
    segments: list[Segment] = [(MARGIN, "")]
    position = taken = 0
    for share, glyph, style in shares:
        position += share
        until = (position * cells + 500) // 1000
        segments.append((glyph * (until - taken), style))
        taken = until
    return tuple(segments)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool], width: int) -> list[Line]:
    """A table: text columns to the left and cut to fit, numbers to the right and never cut.

    Where even that is too wide, columns are left out from the right, and a line says which.
    """
    shown = len(headers)
    widths = _column_widths(headers, rows, is_text, width)
    while shown > 1 and _total(widths) > width:
        shown -= 1
        widths = _column_widths(headers[:shown], [row[:shown] for row in rows], is_text[:shown], width)
    lines = [_row(headers, widths, is_text, "dim"), *(_row(row, widths, is_text, "") for row in rows)]
    if shown < len(headers):
        note = f"no room for: {', '.join(headers[shown:])}"
        lines += wrapped(MARGIN, note, width, style="dim")
    return lines


def _column_widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool], width: int
) -> list[int]:
    columns = [[header, *(row[place] for row in rows)] for place, header in enumerate(headers)]
    widths = [max(cell_width(text) for text in column) for column in columns]
    texts = [place for place, flag in enumerate(is_text) if flag]
    for place in texts:
        widths[place] = min(widths[place], _MAX_TEXT_COLUMN)
    while _total(widths) > width and any(widths[place] > _MIN_TEXT_COLUMN for place in texts):
        widths[max(texts, key=lambda place: widths[place])] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return len(MARGIN) + sum(widths) + len(_GAP) * (len(widths) - 1)


def _row(cells: Sequence[str], widths: Sequence[int], is_text: Sequence[bool], style: str) -> Line:
    padded = []
    for text, width, flag in zip(cells, widths, is_text, strict=False):  # columns may have been left out
        shown = fitted(text, width)
        space = " " * (width - cell_width(shown))
        padded.append(shown + space if flag else space + shown)
    return ((MARGIN + _GAP.join(padded), style),)
