"""How a document shows itself in a notebook. What draws it is in a room above, and is told to this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

Drawing = Callable[[object], str]

_drawings: Final[list[Drawing]] = []


def show_with(drawing: Drawing) -> None:
    """Have documents drawn by this function, which gives HTML; it is called when a notebook asks, not before."""
    _drawings[:] = [drawing]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document that notebooks draw, and that is one line wherever else it is printed."""

    def _repr_html_(self) -> str | None:
        """HTML for a notebook; None where nothing draws: then its line is shown."""
        return _drawings[0](self) if _drawings else None
