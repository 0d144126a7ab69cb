"""What each pattern takes of the window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.analyzers.patterns import again, dropped, forward, modes, parameters, ranges, slow, writes
from profkit.analyzers.patterns.cost import Pattern, costs_ns, rows_of, stays_on_cpu
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings import patterns
from profkit.findings.again import BACKWARD_AGAIN, ROWS_APART, SLICE_WRITES, TASK_GRADIENTS
from profkit.model.arrays import distinct, place_among, rows_by_value
from profkit.model.code import PlaceShare
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.elsewhere import unused
from profkit.timeline.scheduled import cored_share
from profkit.timeline.steps import edges, steps_in_window

PATTERNS: Final = (
    Pattern(patterns.GC, ranges.collections, ("collection", "collections"), ranges.fix_of_collections, is_pause=True),
    Pattern(patterns.RECOMPILE, ranges.recompilations, ("compilation", "compilations"), is_pause=True),
    Pattern(
        patterns.GRAPH_BREAKS, modes.graph_breaks, ("gap between two graphs", "gaps between two graphs"), is_pause=True
    ),
    Pattern(
        patterns.OPTIMIZER_LOOP,
        parameters.optimizer_loops,
        ("optimizer step", "optimizer steps"),
        parameters.fix_of_loops,
        kept=parameters.kept_of_loops,
        proof=parameters.proof_of_loops,
    ),
    Pattern(
        patterns.PARAMETER_LOOP,
        parameters.parameter_loops,
        ("loop", "loops"),
        kept=stays_on_cpu(patterns.PARAMETER_LOOP),
        title=parameters.title_of_loop,
    ),
    Pattern(
        patterns.UNREAD,
        forward.forward_work,
        ("stretch of forward work that no backward reads", "stretches of forward work that no backward reads"),
        forward.fix_of_forward,
        kept=forward.kept_of_forward,
        title=forward.title_of_forward,
    ),
    Pattern(
        patterns.FROZEN,
        forward.frozen_work,
        ("stretch of such forward work", "stretches of such forward work"),
        forward.fix_of_frozen,
        kept=lambda _, __: 1.0,
    ),
    Pattern(
        patterns.NO_GRADIENT,
        forward.without_gradient,
        ("stretch of such operators", "stretches of such operators"),
        title=forward.title_without_gradient,
    ),
    Pattern(
        patterns.PILED,
        parameters.piled,
        ("stretch of such backward nodes", "stretches of such backward nodes"),
        halved=parameters.flowing,
        remains="half of the nodes through which gradients flow on stays",
    ),
    Pattern(
        patterns.DROPPED,
        dropped.dropped,
        ("such node", "such nodes"),
        halved=dropped.dropped_halves,
        remains="half of the nodes with products makes the gradient of an input, and stays",
        title=dropped.title_of_dropped,
    ),
    Pattern(
        BACKWARD_AGAIN,
        again.backward_again,
        ("such stretch of backward nodes", "such stretches of backward nodes"),
        again.fix_of_again,
        title=again.title_of_again,
    ),
    Pattern(
        ROWS_APART,
        again.rows_apart,
        ("such stretch of backward nodes", "such stretches of backward nodes"),
        kept=again.kept_of_rows,
        title=again.title_of_rows,
    ),
    Pattern(
        TASK_GRADIENTS,
        again.task_gradients,
        ("such stretch of backward nodes", "such stretches of backward nodes"),
        kept=lambda _, __: 1.0,
        title=again.title_of_tasks,
    ),
    Pattern(
        SLICE_WRITES,
        writes.slice_writes,
        ("backward node of such a write", "backward nodes of such writes"),
        kept=writes.kept_of_writes,
        title=writes.title_of_writes,
    ),
    Pattern(
        patterns.CPU_OPERATORS,
        ranges.cpu_operators,
        ("operator on the CPU", "operators on the CPU"),
        ranges.fix_of_cpu_operators,
    ),
    Pattern(
        patterns.ANOMALY, modes.anomaly_checks, ("check or stored stack", "checks and stored stacks"), is_pause=True
    ),
    Pattern(patterns.UNUSED_PARAMETERS, ranges.searches, ("search", "searches"), is_pause=True),
    Pattern(patterns.RECOMPUTATION, ranges.recomputed, ("stretch of forward work", "stretches of forward work")),
    Pattern(
        patterns.MATH_ATTENTION,
        modes.separate_attention,
        ("stretch of attention", "stretches of attention"),
        modes.fix_of_attention,
    ),
    Pattern(
        patterns.TRAINING_MODE,
        ranges.training_mode,
        ("layer in training mode", "layers in training mode"),
        halved=ranges.trained_norms,
        remains="of batch normalisation at least half stays: it normalises in any mode",
    ),
    Pattern(patterns.SLOW_PATH, slow.slow_paths, ("slow call", "slow calls"), slow.fix_of_slow_paths),
    Pattern(
        patterns.LAYOUT_COPIES,
        ranges.copies,
        ("copy", "copies"),
        kept=stays_on_cpu(patterns.LAYOUT_COPIES),
    ),
    Pattern(patterns.CONVERSIONS, ranges.casts, ("conversion", "conversions"), ranges.fix_of_casts),
)

_BY_PASSES: Final = {
    patterns.DROPPED.id: dropped.places_of_dropped,
    BACKWARD_AGAIN.id: again.places_of_again,
    ROWS_APART.id: again.places_of_rows,
    TASK_GRADIENTS.id: again.places_of_tasks,
}
"""What says which lines call these backward passes."""
_VALUES: Final = "profkit_subnormals"
"""What the capture tells of values."""


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
    name: str
    """What has most of their time; "" where all have one name, or none."""
    fix: str
    stays_ns: int = 0
    """What of the cost stays at least, whatever is changed."""
    most_ns: int | None = None
    """What of it a change spares at best, where that is known beside an estimate."""
    title: str = ""
    proof: str = ""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """All that were found."""

    scope: Scope
    found: tuple[Taken, ...]
    idle_device: str = ""
    """A GPU that the file lists and nobody uses; "" where there is none."""
    cored: float = 1.0
    """On a CPU the share (0-1) of the recorded time in which the training thread did not wait for a core."""
    computing: float = 0.0
    """The share (0-1) of the window that operators of the CPU take, where there is one."""


def _patterns(facts: Facts) -> tuple[Pattern, ...]:
    """All that may be found: those by shapes, modules and values are loaded where these are known."""
    trace = facts.trace
    if not trace.signatures and trace.again is None and facts.code is None and _VALUES not in trace.meta.metadata:
        return PATTERNS
    from profkit.analyzers.patterns.by_shapes import BY_SHAPES

    return PATTERNS + BY_SHAPES


def measure(facts: Facts) -> Patterns:
    """Look for each pattern."""
    seen = [
        (pattern, at) for pattern in _patterns(facts) if (at := pattern.ranges(facts)) is not None and at.start_ns.size
    ]
    halved = [
        (pattern, half)
        for pattern, _ in seen
        if pattern.halved is not None and (half := pattern.halved(facts)).start_ns.size
    ]
    every = [*seen, *halved]  # one replay for all
    costs = costs_ns(facts, [at for _, at in every], spare_work=[pattern.spares_work for pattern, _ in every])
    stays = {pattern.kind.id: ns // 2 for (pattern, _), ns in zip(halved, costs[len(seen) :], strict=True)}
    found = tuple(
        _taken(facts, pattern, at, cost_ns, stays.get(pattern.kind.id, 0))
        for (pattern, at), cost_ns in zip(seen, costs, strict=False)
        if cost_ns
    )
    device = unused(facts.trace) if facts.cpu is not None else ""
    computing = facts.budget.fraction("compute") if device else 0.0
    cored = cored_share(facts.trace) if facts.cpu is not None else 1.0
    return Patterns(scope=scope_of(facts), found=found, idle_device=device, computing=computing, cored=cored)


def _taken(facts: Facts, pattern: Pattern, at: Ranges, cost_ns: int, stays_ns: int) -> Taken:
    outer = [Intervals.of(at.start_ns[mine], at.end_ns[mine]) for _, mine in rows_by_value(at.thread)]
    lengths = np.concatenate([each.lengths_ns for each in outer])
    starts = np.concatenate([each.start_ns for each in outer])
    begins, _ = edges(steps_in_window(facts.trace))
    longest = int(lengths.argmax())
    in_steps = distinct(np.maximum(place_among(begins, starts, after=True) - 1, 0))  # before the first: in it
    return Taken(
        pattern=pattern,
        cost_ns=cost_ns,
        n=int(lengths.size),
        n_steps=int(in_steps.size),
        last_step=int(in_steps[-1]),
        longest_ns=int(lengths[longest]),
        longest_span_ns=(int(starts[longest]), int(starts[longest] + lengths[longest])),
        name=at.longest_name(facts.trace) if pattern.kind in (patterns.CPU_OPERATORS, patterns.SLOW_PATH) else "",
        stays_ns=stays_ns + (round(pattern.kept(facts, at) * cost_ns) if pattern.kept is not None else 0),
        most_ns=round((1 - pattern.kept_at_least(facts, at)) * cost_ns) if pattern.kept_at_least is not None else None,
        title=pattern.title(facts, at) if pattern.title is not None else "",
        proof=pattern.proof(facts, at) if pattern.proof is not None else "",
        fix=pattern.fix(facts, at) if pattern.fix is not None else pattern.kind.fixes[0],
    )


def rows(facts: Facts, result: Patterns) -> Mapping[str, Rows]:
    """What each of those that are findings consists of."""
    found = {}
    for taken in result.found:
        pattern = taken.pattern
        is_worth = result.scope.fraction(taken.cost_ns) >= pattern.kind.limit("window")
        at = pattern.ranges(facts) if is_worth else None
        if at is not None:
            found[pattern.kind.id] = rows_of(facts, facts.code, at, spare_work=pattern.spares_work)
    return found


def places(facts: Facts, result: Patterns) -> Mapping[str, tuple[PlaceShare, ...]]:
    """The lines that call forward work which no backward pass reads: inside it is code that trains as well."""
    found = {taken.pattern.kind.id for taken in result.found} & {
        patterns.UNREAD.id,
        patterns.FROZEN.id,
        patterns.NO_GRADIENT.id,
    }
    told = dict(facts.once(forward.places_of_forward)) if found else {}
    if patterns.FROZEN.id not in found and patterns.UNREAD.id in told:  # a copy of the weights that is evaluated
        told[patterns.UNREAD.id] = told[patterns.UNREAD.id] or told[patterns.FROZEN.id]
    lines = {name: places for name, places in told.items() if name in found}
    for taken in result.found:
        if (places_in := _BY_PASSES.get(taken.pattern.kind.id)) is not None:
            lines[taken.pattern.kind.id] = places_in(facts)
    return lines
