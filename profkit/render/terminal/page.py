"""A page of a terminal: its width, its colours, its blocks; what the documents in this folder share."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN, Line, Segment
from profkit.shell import clean

T = TypeVar("T")
Block = list[Line]
"""Lines that belong together; blocks are set apart by an empty line."""

PARTS: Final = {  # compute is the lightest, idle time the strongest: what costs is seen first, without colour too
    "compute": ("·", "green"),
    "comm_exposed": ("▒", "magenta"),
    "copy_exposed": ("░", "cyan"),
    "idle_data": ("█", "yellow"),
    "idle_sync": ("▚", "red"),
    "idle_launch": ("▓", "bright_red"),
    "idle_host": ("#", "bright_blue"),
    "idle_dependency": ("%", "white"),
    "idle_unknown": ("?", "bright_black"),
}
"""Glyph and style of each part of the budget."""
_STYLES: Final = {
    "bad": "bold white on red",
    "good": "bold white on green",
    "open": "bold black on yellow",
    "label": "bold",
    "strong": "bold",
    "dim": "dim",
    "command": "bold cyan",
    layout.WHOLE: "",
}
_OBEYED: Final = dict.fromkeys((7, 8, 11, 12, 13))
"""Bell, backspace, tabs and returns: no character of a report moves the cursor."""
_MIN_WIDTH: Final = 40
_PIPED_WIDTH: Final = 80
SCREEN: Final = 50
"""Lines that a report takes by default, where what it cannot do without allows it."""
PROSE_WIDTH: Final = 110
"""Columns beyond which running text is not read well."""


def columns_of(width: int | None) -> int:
    """The columns to keep to: as said, else the terminal's, never fewer than what a report needs."""
    return max(width or _terminal_columns(), _MIN_WIDTH)


def _terminal_columns() -> int:
    """As shutil has them, which would load all that it knows of archives."""
    with suppress(KeyError, ValueError):
        columns = int(os.environ["COLUMNS"])
        if columns > 0:
            return columns
    with suppress(AttributeError, ValueError, OSError):  # closed, or no terminal
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _PIPED_WIDTH  # type: ignore[union-attr]
    return _PIPED_WIDTH


def is_colored(color: bool | None) -> bool:
    """Whether to colour: as said, else as the terminal, `NO_COLOR` and `TERM` have it."""
    if color is not None:
        return color
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printed(blocks: Iterable[Block], color: bool | None) -> str:
    """The blocks as text; every character is literal, none is read as markup, and lines are as long as they are."""
    lines: list[Line] = []
    for block in filter(None, blocks):
        lines += [(), *block]
    if is_colored(color):
        return _styled(lines)
    return "".join(f"{''.join(content for content, _ in line).translate(_OBEYED).rstrip()}\n" for line in lines)


def _styled(lines: Iterable[Line]) -> str:
    """Lines with their styles, by rich, whose import a pipe need not pay for."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out,
        width=10_000,  # lines are broken already, and commands must not be
        force_terminal=True,
        force_jupyter=False,
        color_system="standard",
        legacy_windows=False,
    )
    for line in lines:
        styled = Text.assemble(*((content, _STYLES.get(style, style)) for content, style in line))
        styled.rstrip()
        console.print(styled, soft_wrap=True, highlight=False)
    return out.getvalue()


def titled(title: str, width: int) -> Block:
    """The heading of a block."""
    return layout.wrapped(MARGIN, clean(title), width, style="label")


def answer(name: str, style: str, headline: str, width: int, *, beside: str = "") -> Block:
    """The answer's word on its colour, what stands beside it, and below it what it means."""
    first: Line = ((MARGIN, ""), (f" {name} ", style), *(((f"   {clean(beside)}", ""),) if beside else ()))
    return [first, *layout.wrapped(MARGIN, clean(headline), width, style="strong")]


def labelled(label: str, text: str, width: int, *, style: str = "") -> Block:
    """A text behind its label; nothing for none."""
    return layout.wrapped(layout.label(label), clean(text), width, style=style) if text else []


def listed(label: str, items: Iterable[str], width: int, *, style: str = "dim", mark: str = "- ") -> Block:
    """Texts below each other, each behind a mark, and the first behind the label of all."""
    block: Block = []
    for item in items:
        head = " " * layout.LABEL_WIDTH if block else layout.label(label)
        block += layout.wrapped(f"{head}{mark}", clean(item), width, style=style)
    return block


def marked(items: Iterable[tuple[str, str]], width: int, *, first_style: str = "label", style: str = "") -> Block:
    """Texts below each other, each behind a mark of its own."""
    return [
        line
        for mark, item in items
        for line in layout.wrapped(mark, clean(item), width, first_style=first_style, style=style)
    ]


def hidden(n: int) -> Block:
    """That so many rows are left out; nothing for none."""
    return [((f"{MARGIN}and {n} more: -v", "dim"),)] if n else []


def fitting(rooms: Iterable[T], blocks_in: Callable[[T], Iterable[Block]]) -> list[Block]:
    """The blocks with the most in them that take a screen at most, else those with the least; `rooms` from the most."""
    blocks: list[Block] = []
    for room in rooms:
        blocks = [block for block in blocks_in(room) if block]
        if sum(len(block) + 1 for block in blocks) <= SCREEN:
            break
    return blocks


def more(entries: Iterable[Segment], width: int) -> Block:
    """Where to go from here."""
    return layout.flowed((layout.label("more"), "label"), entries, width)
