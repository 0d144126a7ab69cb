"""Leaves out of an export the Python calls that name no place: what torch and other libraries call among themselves.

What stays: calls of the script's own functions, of modules and of packages that models come from, and what the
script's functions call directly, each with the id of the nearest call around it that stayed. The text is cut, not
parsed: only Python calls are, each alone. Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

_EVENT: Final = re.compile(rb'\{\s*"ph"\s*:')  # how each begins; in a name its quotes are escaped
_CALL: Final = re.compile(rb'\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"python_function"')
_ENDED: Final = re.compile(rb"\}\s*,?\s*\Z")
_FRAME: Final = re.compile(r"(?P<file>.*)\(-?\d+\): (?P<function>.*)", re.DOTALL)
_WRAPPERS: Final = frozenset(("wrapper", "decorate_context", "_use_grad", "_fn", "inner", "compile_wrapper"))
_WRAPPING: Final = ("torch/", "contextlib.py")
"""Functions that only call another one, and where they are: what they call stays as well."""
_MOST_WRAPPERS: Final = 8
_ADDRESS: Final = re.compile(rb" at 0x[0-9a-f]+")
_MODULE: Final = "nn.Module: "
_ID, _PARENT = "Python id", "Python parent id"
_PARENT_TEXT: Final = re.compile(rb'"Python parent id"\s*:\s*(?:null|\d+)')
_MOST_CALLS: Final = 20_000_000
_AT_ONCE: Final = 4096


class _Call(NamedTuple):
    parent: int | None
    kind: str


class Fold:
    """The Python calls of one export that stay: `note` every part of its text, then `folded` gives the text again."""

    def __init__(self, user_files: Iterable[str], package_files: Iterable[str] = ()) -> None:
        self._user, self._packages = frozenset(user_files), frozenset(package_files)
        self._calls: dict[int, _Call] = {}

    def note(self, chunks: Iterable[bytes]) -> None:
        """Go through the text a first time."""
        for piece in _pieces(chunks):
            call = _parsed(piece) if _CALL.match(piece) else None
            if call is not None and len(self._calls) < _MOST_CALLS:
                args = call["args"]
                self._calls[args[_ID]] = _Call(args[_PARENT], self._kind(call["name"]))

    def folded(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The text without the calls that are left out; as it is where the script's own files are not known."""
        kept: list[bytes] = []
        for piece in _pieces(chunks):
            kept.append(self._kept(piece) if self._user and _CALL.match(piece) else piece)
            if len(kept) >= _AT_ONCE:
                yield b"".join(kept)
                kept.clear()
        yield b"".join(kept)

    def _kept(self, piece: bytes) -> bytes:
        """What stays of a Python call."""
        call = _parsed(piece)
        number = call["args"][_ID] if call is not None else None
        if number not in self._calls:
            return piece
        if self._stays(number):
            return self._told(piece, number)
        return b"" if _ENDED.search(piece) else piece  # the last event, and what follows it

    def _kind(self, name: str) -> str:
        if name.startswith(_MODULE):
            return "module"
        frame = _FRAME.match(name)
        if frame is None:
            return "other"
        if frame["file"] in self._user:
            return "user"
        if frame["file"] in self._packages:
            return "package"
        return "wrapper" if frame["function"] in _WRAPPERS and frame["file"].startswith(_WRAPPING) else "other"

    def _around(self, number: int) -> int | None:
        """The call around one, None where there is none."""
        parent = self._calls[number].parent
        return parent if parent in self._calls else None

    def _stays(self, number: int) -> bool:
        if self._calls[number].kind in ("user", "module", "package"):
            return True
        around = self._around(number)
        for _ in range(_MOST_WRAPPERS):
            if around is None or self._calls[around].kind != "wrapper":
                break
            around = self._around(around)
        return around is not None and self._calls[around].kind == "user"

    def _told(self, piece: bytes, number: int) -> bytes:
        """A call with its parent among those that stay."""
        parent = self._around(number)
        while parent is not None and not self._stays(parent):
            parent = self._around(parent)
        text = b"null" if parent is None else b"%d" % parent
        return _PARENT_TEXT.sub(b'"Python parent id": ' + text, _ADDRESS.sub(b"", piece))


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The text in parts that each begin where an event does, but for the first."""
    held = b""
    for chunk in chunks:
        held += chunk
        starts = [found.start() for found in _EVENT.finditer(held)]
        if not starts:
            continue
        first = 0
        for start in starts:
            if start > first:
                yield held[first:start]
            first = start
        held = held[first:]
    if held:
        yield held


def _parsed(piece: bytes) -> dict[str, Any] | None:
    """A Python call with the text of its start; None where it is not as expected."""
    end = _ENDED.search(piece)
    text = piece[: end.start() + 1] if end else piece[: piece.rfind(b"}", 0, piece.find(b"]")) + 1]
    try:
        call: Any = json.loads(text)
        args, name = call["args"], call["name"]
        is_whole = isinstance(args[_ID], int) and isinstance(args[_PARENT], (int, type(None))) and isinstance(name, str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return {"args": args, "name": name} if is_whole else None
