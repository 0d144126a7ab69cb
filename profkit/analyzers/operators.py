"""Which operators stand behind the device time and the launches."""

from __future__ import annotations

import msgspec

from profkit.analyzers.base import Analyzer, by_name, launched_by_operators
from profkit.model.arrays import of_rows
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Skipped
from profkit.timeline import Facts

_MAX_SHOWN = 15


class Operators(msgspec.Struct, frozen=True, kw_only=True):
    """(operator, device operations, device ns) by device time; `known_share` is the device time that has an operator."""

    top: tuple[tuple[str, int, int], ...]
    known_share: float


def measure(facts: Facts) -> Operators | Skipped:
    """Attribute device rows to the innermost operator around their launch call."""
    main = facts.main_device
    trace = facts.trace
    if main is None or len(trace.ops) == 0 or len(trace.calls) == 0:
        return Skipped(
            reason="no operators with device work in this trace",
            how_to_get=trace.meta.traits.how_to_have_operators,
        )
    rows = main.activity.rows
    names, spent = launched_by_operators(facts, main)
    whole = int((of_rows(trace.gpu.end_ns, rows) - of_rows(trace.gpu.start_ns, rows)).sum())
    return Operators(
        top=by_name(trace, names, spent)[:_MAX_SHOWN],
        known_share=float(spent.sum() / whole) if whole else 0.0,
    )


def present(result: Operators) -> Section:
    """Show the operators."""
    return Section(
        title="operators",
        values={"known_share": result.known_share},
        tables=(
            TableView.of(
                "operators by device time",
                {"operator": "text", "device operations": "count", "device time": "ns"},
                result.top,
            ),
        )
        if result.top
        else (),
    )


ANALYZER = Analyzer(
    name="operators",
    question="which operators cause the device time?",
    needs="operators, runtime calls and device rows",
    measure=measure,
    present=present,
)
