"""Plain lines that keep to the terminal: prose under itself, commands with what they show beside or below."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_GAP: Final = 2
_NARROWEST: Final = 40
_LAST_COLUMN: Final = re.compile(r"^(?:.*\s{2,}(?=\S)|\s*)")


def width_of(most: int | None = None, *, piped: int = 80) -> int:
    """Columns to keep to: the terminal's, no more than `most`, no fewer than a sentence needs; `piped` without one."""
    import shutil

    columns = shutil.get_terminal_size((piped, 24)).columns
    return max(columns if most is None else min(columns, most), _NARROWEST)


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Text in lines of that width after these indents; a word that is longer, as a path may be, stays whole."""
    import textwrap

    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(line: str, width: int) -> list[str]:
    """A line wrapped under its last column, which two spaces or more set apart."""
    found = _LAST_COLUMN.match(line)
    start = found.end() if found is not None else 0
    if len(line) <= width or start > width // 2:
        return [line]
    return wrapped(line[start:], width, first=line[:start], rest=" " * start) or [line]


def side_by_side(rows: Iterable[tuple[str, str]], width: int, indent: str = "") -> list[str]:
    """Each command with what it shows; below it where both do not fit beside each other."""
    pairs, room = list(rows), width - len(indent)
    fitting = [(len(command), len(note)) for command, note in pairs if len(command) + _GAP + len(note) <= room]
    ends = [end for end, _ in fitting if all(end + _GAP + note <= room for other, note in fitting if other <= end)]
    column = max(ends, default=0)
    lines: list[str] = []
    for command, note in pairs:
        if not note or (len(command) <= column and column + _GAP + len(note) <= room):
            lines.append(f"{indent}{command:{column + _GAP}}{note}".rstrip())
        else:
            below = indent + " " * 4
            lines += [f"{indent}{command}", *wrapped(note, width, first=below, rest=below)]
    return lines
