"""What changes the outcome of a trace besides its bytes."""

from __future__ import annotations

import msgspec

from profkit.shell import typed


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are read and judged. Raises UsageError for a `command` that is not one program and its arguments."""

    lenient: bool = False
    step_range: tuple[int, int] | None = None
    command: str | None = None
    tracks_room: int = 0
    """How many intervals are kept of each trace to draw it; 0: none is drawn."""

    def __post_init__(self) -> None:
        if self.command:
            typed(self.command)
