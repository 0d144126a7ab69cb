"""The parts of a window that a verdict may rule out: what looks for them, and how they are called."""

from __future__ import annotations

from typing import Final

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the budget that one analyzer explains."""

    words: str
    analyzer: str
    """Who looks for it: where that one was skipped, nothing is ruled out."""
    budget: tuple[str, ...]
    late_phase: str = ""
    """The phase of a late rank in which it has this, whatever the usual rank's budget says."""


DATA: Final = Part(words="data", analyzer="input", budget=("idle_data",), late_phase="data")
COMM: Final = Part(words="exposed communication", analyzer="overlap", budget=("comm_exposed",))
COPIES: Final = Part(words="exposed copies", analyzer="transfers", budget=("copy_exposed",), late_phase="copy")
SYNC: Final = Part(words="synchronisation", analyzer="syncs", budget=("idle_sync",))
LAUNCHES: Final = Part(
    words="launch and host overhead", analyzer="launches", budget=("idle_launch", "idle_host"), late_phase="host"
)
PARTS: Final = (DATA, COMM, COPIES, SYNC, LAUNCHES)
"""In the order in which they are named."""
