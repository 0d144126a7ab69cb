"""What changes the outcome of a trace besides its bytes."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are read and judged."""

    lenient: bool = False
    step_range: tuple[int, int] | None = None
    command: str | None = None
