"""Memory that is held: how much at the peak, when, by whom, and whether it grows from step to step (docs/method.md).

In: `Facts` of a trace with the allocator's events, without which nothing here is loaded. Out: `ANALYZER`. `measured` finds peak, holders and growth, `judged` says which of them is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from profkit.analyzers.base import Analyzer
from profkit.model.finding import Finding, Skipped

if TYPE_CHECKING:
    from profkit.analyzers.allocations.measured import Allocations
    from profkit.model.documents.rank_report import Section
    from profkit.timeline import Facts


def measure(facts: Facts) -> Allocations | Skipped:
    """The peak of each device, what holds it, and whether memory grows."""
    if len(facts.trace.memory) == 0:
        return without_totals()
    from profkit.analyzers.allocations.measured import measure

    return measure(facts) or without_totals()


def without_totals() -> Skipped:
    """Why nothing is said of what a trace without the allocator's totals held."""
    return Skipped(
        reason="no totals of allocated memory in this trace",
        how_to_get="record allocations: profkit capture --memory -- python train.py (torch.profiler: profile_memory=True)",
    )


def judge(result: Allocations) -> tuple[Finding, ...]:
    """`memory.leak` and `memory.fragmented`, each of the device where it is largest."""
    from profkit.analyzers.allocations.judged import judge

    return judge(result)


def present(result: Allocations) -> Section:
    """Show the peaks and what holds them."""
    from profkit.analyzers.allocations.judged import present

    return present(result)


ANALYZER = Analyzer(
    name="allocations",
    question="how much memory is held, by whom, and does it grow?",
    needs="memory events with totals (profile_memory=True); stacks for lines",
    measure=measure,
    judge=judge,
    present=present,
)

__all__ = ["ANALYZER"]
