"""What changes the outcome of a trace besides its bytes."""

from __future__ import annotations

import msgspec

from profkit.shell import typed


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are read and judged. Raises UsageError for a `command` that is not one program and its arguments."""

    lenient: bool = False
    step_range: tuple[int, int] | None = None
    command: str | None = None

    def __post_init__(self) -> None:
        if self.command:
            typed(self.command)
