"""The patterns that recorded shapes tell: work that is thrown away for most of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profkit.analyzers.patterns import masked, order, pairs, repeated, smaller, spared, tables, thrown
from profkit.analyzers.patterns.cost import Pattern
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Waste
from profkit.findings.kind import FindingKind
from profkit.findings.wasted import (
    DENSE_EXPERTS,
    DENSE_TABLE,
    FULL_SORT,
    LONG_ORDER,
    MASKED_ROWS,
    MORE_ROWS,
    NO_CACHE,
    ONE_HOT,
    PAIRS,
    REBUILT,
    REPEATED,
    THROWN_AWAY,
)
from profkit.timeline import Facts


def _pattern(kind: FindingKind, find: Callable[[Facts], Waste | None], one: str, several: str) -> Pattern:
    """A pattern of which all that is said is found at once."""

    def ranges(facts: Facts) -> Ranges | None:
        found = facts.once(find)
        return found.ranges if found is not None else None

    def kept(facts: Facts, _: Ranges) -> float:
        found = facts.once(find)
        return found.kept if found is not None else 1.0

    def title(facts: Facts, _: Ranges) -> str:
        found = facts.once(find)
        return found.title if found is not None else ""

    return Pattern(kind, ranges, False, (one, several), kept=kept, title=title)


BY_SHAPES: Final = (
    _pattern(DENSE_TABLE, tables.updates, "update or zeroing of a table", "updates and zeroings of tables"),
    _pattern(REPEATED, repeated.repeated, "such product", "such products, forward and backward"),
    _pattern(THROWN_AWAY, thrown.products, "such product", "such products, forward and backward"),
    _pattern(DENSE_EXPERTS, spared.dense_experts, "stretch of such work", "stretches of such work"),
    _pattern(NO_CACHE, spared.regrown, "generation of a sequence", "generations of sequences"),
    _pattern(FULL_SORT, spared.full_sorts, "such sort", "such sorts"),
    _pattern(MORE_ROWS, smaller.gathered, "such layer", "such layers, forward and backward"),
    _pattern(PAIRS, pairs.pairs, "such operator", "such operators, forward and backward"),
    _pattern(REBUILT, smaller.rebuilt, "such copy", "such copies"),
    _pattern(MASKED_ROWS, masked.masked_rows, "such operator", "such operators, forward and backward"),
    _pattern(LONG_ORDER, order.long_orders, "such product", "such products, forward and backward"),
    _pattern(ONE_HOT, spared.one_hots, "such product", "such products"),
)
