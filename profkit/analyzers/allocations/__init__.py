"""Memory that is held: how much at the peak, when, by whom, and whether it grows from step to step (docs/method.md).

In: `Facts` of a trace with the allocator's events. Out: `ANALYZER`. `measured` finds peak, holders and growth, `judged` says which of them is wrong.
"""

from __future__ import annotations

from profkit.analyzers.allocations.judged import judge, present
from profkit.analyzers.allocations.measured import measure
from profkit.analyzers.base import Analyzer

ANALYZER = Analyzer(
    name="allocations",
    question="how much memory is held, by whom, and does it grow?",
    needs="memory events with totals (profile_memory=True); stacks for lines",
    measure=measure,
    judge=judge,
    present=present,
)

__all__ = ["ANALYZER"]
