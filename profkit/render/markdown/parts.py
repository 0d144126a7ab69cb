"""What the documents in markdown are put together from: text that stays text, lists, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from profkit.shell import clean

_SPECIAL: Final = re.compile(r"[\\`*\[\]|<&~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What would become code, emphasis, a link, a table cell, HTML or strikethrough; not the `_` inside snake_case."""
_LIVE: Final = re.compile(r"://|www\.|@\w|#\d|\bgh-\d", re.IGNORECASE)
"""What GitHub makes a link, or a message to somebody, in the finished text, where no backslash helps: in code it does
not look. A step's `ProfilerStep#3` is for it an issue of the person ProfilerStep."""
_PIECE: Final = re.compile(r"[^ `|]+|[`|]")
_LINE_START: Final = re.compile(r"^(?:[#>+=-]|\d+(?=[.)](?:\s|$)))")


def escaped(raw: str) -> str:
    """Text that markdown shows as it is, on one line: no table broken, no HTML, no emphasis by accident.

    Nor does it call anyone, link or fetch anything: a word that GitHub would make live is code.
    """
    line = clean(raw)
    out = _PIECE.sub(lambda piece: _inert(piece[0]), line) if _LIVE.search(line) else _plain(line)
    start = _LINE_START.match(out)
    if start is None:
        return out
    # "1." would begin a list: the mark to escape is the one after the number.
    return f"{start[0]}\\{out[start.end() :]}" if start[0].isdigit() else "\\" + out


def _inert(piece: str) -> str:
    return f"`{piece}`" if _LIVE.search(piece) else _plain(piece)


def _plain(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + match[0], text)


def bullets(items: Iterable[str]) -> str:
    """A list of texts."""
    return "\n".join(f"- {escaped(item)}" for item in items)


def page(paragraphs: Iterable[str]) -> str:
    """The whole text; empty paragraphs are left out."""
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def titled(title: str, items: Iterable[str]) -> str:
    """A list under its title; nothing without items."""
    listed = bullets(items)
    return f"**{title}**\n\n{listed}" if listed else ""


def folded(summary: str, body: str) -> str:
    """What is read by who opens it."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, n_left: int = 0, is_text: Sequence[bool] = ()
) -> str:
    """A table whose first `n_left` columns, or those that `is_text` says, are text, the others numbers."""
    is_text = is_text or [place < n_left for place in range(len(headers))]
    rule = "|".join("---" if flag else "---:" for flag in is_text)
    lines = [" | ".join(cells) for cells in (headers, *rows)]
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def table_of_texts(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, n_left: int = 0, is_text: Sequence[bool] = ()
) -> str:
    """The same of texts that are not markdown yet."""
    shown = [tuple(map(escaped, cells)) for cells in rows]
    return table(tuple(map(escaped, headers)), shown, n_left=n_left, is_text=is_text)
