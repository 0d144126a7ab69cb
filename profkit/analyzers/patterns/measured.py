"""What each pattern takes of the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.analyzers.patterns import ranges
from profkit.analyzers.patterns.breaks import graph_breaks
from profkit.analyzers.patterns.cost import cost, rows_of
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import (
    CONVERSIONS,
    GC,
    GRAPH_BREAKS,
    MATH_ATTENTION,
    OPTIMIZER_LOOP,
    RECOMPILE,
    RECOMPUTATION,
    UNUSED_PARAMETERS,
)
from profkit.model.arrays import distinct, place_among, rows_by_value
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.steps import steps_in_window


class Pattern(msgspec.Struct, frozen=True):
    """One kind of finding and how its ranges are found; None where the trace cannot tell."""

    kind: FindingKind
    ranges: Callable[[Facts], Ranges | None]
    is_pause: bool
    """Whether the host does nothing for the step meanwhile: else it launches work there."""
    what: tuple[str, str]
    """One range, and several, in a sentence."""


PATTERNS: Final = (
    Pattern(GC, ranges.collections, True, ("collection", "collections")),
    Pattern(RECOMPILE, ranges.compilations, True, ("compilation", "compilations")),
    Pattern(GRAPH_BREAKS, graph_breaks, True, ("gap between two graphs", "gaps between two graphs")),
    Pattern(
        OPTIMIZER_LOOP,
        lambda facts: ranges.optimizer_loops(
            facts, least_operators=OPTIMIZER_LOOP.limit("operators"), longest_ns=OPTIMIZER_LOOP.limit("each")
        ),
        False,
        ("optimizer step", "optimizer steps"),
    ),
    Pattern(UNUSED_PARAMETERS, ranges.searches, True, ("search", "searches")),
    Pattern(RECOMPUTATION, ranges.recomputed, False, ("stretch of forward work", "stretches of forward work")),
    Pattern(MATH_ATTENTION, ranges.math_attention, False, ("attention call", "attention calls")),
    Pattern(CONVERSIONS, ranges.casts, False, ("conversion", "conversions")),
)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What one pattern takes of the window."""

    pattern: Pattern
    cost_ns: int
    n: int
    """Ranges that lie in no other one of the pattern."""
    n_steps: int
    """Steps in which one begins."""
    last_step: int
    """The last of these, counted from 0."""
    longest_ns: int
    longest_span_ns: tuple[int, int]


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """All that were found, in the order of `PATTERNS`."""

    scope: Scope
    found: tuple[Taken, ...]


def measure(facts: Facts) -> Patterns:
    """Look for each pattern."""
    found = []
    for pattern in PATTERNS:
        at = pattern.ranges(facts)
        if at is not None and at.start_ns.size:
            found.append(_taken(facts, pattern, at))
    return Patterns(scope=scope_of(facts), found=tuple(found))


def _taken(facts: Facts, pattern: Pattern, at: Ranges) -> Taken:
    outer = [Intervals.of(at.start_ns[mine], at.end_ns[mine]) for _, mine in rows_by_value(at.thread)]
    lengths = np.concatenate([each.lengths_ns for each in outer])
    starts = np.concatenate([each.start_ns for each in outer])
    begins = np.array([step.start_ns for step in steps_in_window(facts.trace)], np.int64)
    longest = int(lengths.argmax())
    in_steps = distinct(np.maximum(place_among(begins, starts, after=True) - 1, 0))  # before the first: in it
    return Taken(
        pattern=pattern,
        cost_ns=cost(facts, at, is_pause=pattern.is_pause).total_ns,
        n=int(lengths.size),
        n_steps=int(in_steps.size),
        last_step=int(in_steps[-1]),
        longest_ns=int(lengths[longest]),
        longest_span_ns=(int(starts[longest]), int(starts[longest] + lengths[longest])),
    )


def rows(facts: Facts, result: Patterns) -> Mapping[str, Rows]:
    """What each of those that are findings consists of."""
    found = {}
    for taken in result.found:
        pattern = taken.pattern
        is_worth = result.scope.fraction(taken.cost_ns) >= pattern.kind.limit("window")
        at = pattern.ranges(facts) if is_worth else None
        if at is not None:
            found[pattern.kind.id] = rows_of(facts, facts.code, at, is_pause=pattern.is_pause)
    return found
