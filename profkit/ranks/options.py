"""What changes the outcome of a trace besides its bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How traces are read and judged."""

    lenient: bool = False
    step_range: tuple[int, int] | None = None
    command: str | None = None
