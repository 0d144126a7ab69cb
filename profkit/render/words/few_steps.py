"""A few steps that differ, one by one: none of them is like their mean."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.rank_report import UNEVEN, Steps
from profkit.units import format_ns

_FEW: Final = 6  # fewer are listed; chosen: what fits on the line


def few_steps(steps: Steps, varies: float | None) -> str:
    """` of 141 ms, 370 ms and 138 ms`; "" where there are more, or where a mean says as much."""
    if not 1 < steps.n < _FEW or len(steps.durations_ns) != steps.n or (varies or 0.0) <= UNEVEN:
        return ""
    *others, last = map(format_ns, steps.durations_ns)
    return f" of {', '.join(others)} and {last}"
