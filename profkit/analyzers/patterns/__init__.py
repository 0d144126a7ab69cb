"""Work and pauses known by what stands in the trace: collections, compilations, loops, recomputation, conversions.

In: `Facts`. Out: `ANALYZER`, `SCHEDULING` for the scheduler of the host and other threads, and `CLOCKS` for clocks held back. Begin with `PATTERNS` in `measured`;
`ranges` finds each in a trace, `cost` says what it takes.
"""

from __future__ import annotations

from profkit.analyzers.base import Analyzer
from profkit.analyzers.patterns.clocks import CLOCKS
from profkit.analyzers.patterns.judged import judge, present
from profkit.analyzers.patterns.measured import measure, places, rows
from profkit.analyzers.patterns.scheduling import SCHEDULING

ANALYZER = Analyzer(
    name="patterns",
    question="does the step hold pauses or work that a setting would spare?",
    needs="operators and ranges of the host; types of arguments for conversions",
    measure=measure,
    judge=judge,
    present=present,
    rows=rows,
    places=places,
)

__all__ = ["ANALYZER", "CLOCKS", "SCHEDULING"]
