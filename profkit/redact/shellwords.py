"""The words of a command as a shell takes them, and where they stand in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from .later import later

_PIECES_OF_SHELL: Final = later(
    r"""(\s+)|([;&|<>()]+)|("(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\;&|<>()]+|.)""", re.DOTALL
)
_VARIABLE: Final = later(r"[A-Za-z_]\w*=")
_QUOTED: Final = later(r"""(?s)"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)""")
_ESCAPED: Final = later(r"""(?s)\\([$`"\\\n])""")


def spans_of_words(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a command begin and end, quotes with them."""
    start = -1
    for found in _PIECES_OF_SHELL.finditer(text):
        is_part = found[3] is not None
        if is_part and start < 0:
            start = found.start()
        elif not is_part and start >= 0:
            yield start, found.start()
            start = -1
    if start >= 0:
        yield start, len(text)


def quoted(word: str) -> str:
    """Quote a word as a shell takes it; an assignment before a command is none if its name is quoted."""
    variable = _VARIABLE.match(word)
    return shlex.quote(word) if variable is None else variable[0] + shlex.quote(word[variable.end() :])


def unquoted(word: str) -> str:
    """A word without its quotes."""
    return _QUOTED.sub(_inside, word) if _QUOTED.search(word) is not None else word


def _inside(found: re.Match[str]) -> str:
    doubly, singly, escaped = found.groups()
    return _ESCAPED.sub(r"\1", doubly) if doubly is not None else singly if singly is not None else escaped
