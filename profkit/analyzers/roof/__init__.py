"""How far is the work from what its device can do? FLOPs, bytes, MFU, and the time at the roof (docs/roof.md).

Formulas and peaks are loaded where a trace has shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from profkit.analyzers.base import Analyzer
from profkit.model.finding import Finding, Skipped
from profkit.model.trace import ShapesDoubt, Trace
from profkit.timeline.elsewhere import is_of_torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profkit.analyzers.roof.distance import Distance
    from profkit.model.documents.rank_report import Section
    from profkit.timeline import Facts
    from profkit.timeline.code import Rows

_DOUBTS: Final = {
    ShapesDoubt.COUNTS: "those of the later steps do not fit, since the script counted other tokens or samples there",
    ShapesDoubt.LAUNCHES: "those of the later steps may not fit, since kernels, grids or copies differ from step to step",
    ShapesDoubt.TIMES: "those of the later steps may not fit, since products take much longer in one step than in another"
    " (larger batches, or a busy machine)",
}
"""Why none of the later steps' shapes are taken."""


def measure(facts: Facts) -> Distance | Skipped:
    """The distance of the busiest device's work from its roof."""
    if not facts.trace.signatures:
        return without_work(facts.trace)
    from profkit.analyzers.roof.measured import measure

    return measure(facts)


def without_work(trace: Trace) -> Skipped:
    """What is said of a trace in which no operator has known work."""
    has_ops = len(trace.ops) > 0
    reason = "operators were recorded without shapes" if has_ops else "no operators in this trace"
    how = "record them: profkit capture --shapes, or torch.profiler.profile(record_shapes=True)"
    if not is_of_torch(trace):
        how = "profkit ncu measures them, a kernel at a time"
    if trace.shapes_carried == 0:
        doubt = "the later steps do not tell them for certain"
        if trace.shapes_doubt is not None:
            doubt = _DOUBTS[trace.shapes_doubt]
        reason = f"operators were recorded without shapes, and {doubt}"
    elif trace.meta.has_shapes or (trace.signatures and has_ops):
        reason, how = "no operator with recorded shapes has a formula", ""
    return Skipped(reason=f"{reason}: FLOPs and bytes are not known", how_to_get=how)


def judge(result: Distance) -> tuple[Finding, ...]:
    """The family that its roof leaves most of, products of unaligned sizes, and whether the roof is wrong."""
    from profkit.analyzers.roof.judged import judge

    return judge(result)


def present(result: Distance) -> Section:
    """Show rates and roofs."""
    from profkit.analyzers.roof.shown import present

    return present(result)


def rows(facts: Facts, result: Distance) -> Mapping[str, Rows]:
    """The operators of each finding, with what could be spared of the time of each."""
    from profkit.analyzers.roof.judged import rows

    return rows(facts, result)


def roof_summary(result: Distance | None) -> str:
    """The line of the report; "" where nothing was measured."""
    if result is None:
        return ""
    from profkit.analyzers.roof.shown import roof_summary

    return roof_summary(result)


def for_headline(result: Distance | None) -> dict[str, str]:
    """Clauses of a verdict: what a step takes with all at its roof, and products that are slow; "" where neither is known."""
    if result is None:
        return {}
    from profkit.analyzers.roof.shown import at_roof, slow_products

    return {"at_roof": at_roof(result), "slow_products": slow_products(result)}


ANALYZER = Analyzer(
    name="roof",
    question="how far is the work from what the device can do?",
    needs="operators with recorded shapes (profkit capture --shapes)",
    measure=measure,
    judge=judge,
    rows=rows,
    present=present,
)

__all__ = ["ANALYZER", "for_headline", "judge", "measure", "roof_summary"]
