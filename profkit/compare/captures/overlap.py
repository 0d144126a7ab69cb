"""Did more overlap make the step shorter, and if not, where did the gain go?"""

from __future__ import annotations

from typing import Final

from profkit.compare.captures.contention import Slowdown, beside, stretch
from profkit.compare.captures.counts import NO_CALLS
from profkit.compare.captures.pair import Pair, Reading, change, measure, reading
from profkit.findings.comparison import BOUGHT_NOTHING, GAINED, LOST
from profkit.model.budget import IDLE_PARTS
from profkit.model.finding import Evidence
from profkit.units import format_fraction, format_ns

_WORTH_A_NUMBER: Final = 0.1  # chosen: below a tenth of what was hidden it is called nothing
_SAME_COMM: Final = 0.1  # chosen: more than that is another set of collectives
_GATHER: Final = "all-gather"
_MOSTLY: Final = 0.5  # chosen: the larger part


def overlap(pair: Pair) -> Reading | None:
    """What overlap did: bought nothing, gained, or was lost; nothing without communication on both sides."""
    busy, hidden = pair.comm_busy_ns, pair.comm_hidden_ns
    if not all(busy):
        return None
    before, after = _hidden_shares(pair)
    rise, more_hidden = after - before, hidden[1] - hidden[0]
    is_little = abs(rise) < BOUGHT_NOTHING.limit("hidden")
    is_little |= abs(pair.fraction(more_hidden)) < BOUGHT_NOTHING.limit("effect")
    if is_little or (rise > 0) != (more_hidden > 0):
        return None
    if rise < 0:
        return _lost(pair)
    data = max(pair.waterfall.bar("idle_data").delta_ns, 0)  # a slower loader is not the overlap's doing
    if -pair.waterfall.delta_ns + data < BOUGHT_NOTHING.limit("bought") * more_hidden:
        return _bought_nothing(pair, more_hidden)
    # less or more communication moves the step by itself: `parts` says so
    return _gained(pair) if abs(busy[1] - busy[0]) <= more_hidden else None


def _what(pair: Pair) -> str:
    """What is overlapped: all communication, or as many all-gathers as before, which are then prefetched otherwise."""
    n = pair.rates(lambda trace: trace.counts.collectives.get(_GATHER, NO_CALLS).n)
    time = pair.rates(lambda trace: trace.counts.collectives.get(_GATHER, NO_CALLS).total_ns)
    is_most = all(part >= _MOSTLY * whole for part, whole in zip(time, pair.comm_busy_ns, strict=True))
    is_same = min(n) > 0 and abs(n[1] - n[0]) <= _SAME_COMM * n[0]
    return "communication (all-gathers: prefetch)" if is_most and is_same else "communication"


def _hidden_shares(pair: Pair) -> tuple[float, float]:
    """Hidden share of communication on both sides, 0-1."""
    before, after = (hidden / busy for hidden, busy in zip(pair.comm_hidden_ns, pair.comm_busy_ns, strict=True))
    return before, after


def _shares(pair: Pair) -> Evidence:
    first, second = _hidden_shares(pair)
    times = " -> ".join(map(format_ns, pair.comm_hidden_ns))
    return measure(
        f"hidden communication {format_fraction(first)} -> {format_fraction(second)}: {times} {pair.per} run under"
        " compute",
        "comm_hidden_fraction_change",
        second - first,
        "fraction",
        expected=f"a step shorter by at least {format_fraction(BOUGHT_NOTHING.limit('bought'))} of what was hidden",
    )


def _step(pair: Pair) -> Evidence:
    exposed = _moved(pair.waterfall.bar("comm_exposed").delta_ns)
    said = f"the step {_moved(pair.waterfall.delta_ns)}, {pair.part_name('comm_exposed')} {exposed}"
    return change(said, "step", pair.steps_ns)


def _moved(change_ns: float) -> str:
    if change_ns == 0:
        return "did not change"
    return f"{'rose' if change_ns > 0 else 'fell'} by {format_ns(abs(change_ns))}"


def _gained(pair: Pair) -> Reading:
    return reading(
        GAINED,
        f"more {_what(pair)} runs under compute, and the step is shorter for it",
        *(_shares(pair), _step(pair), _bound(pair, side=1)),
        fix="keep it; more overlap cannot make the step shorter than compute or communication alone",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def _lost(pair: Pair) -> Reading:
    return reading(
        LOST,
        f"less {_what(pair)} runs under compute",
        *(_shares(pair), _step(pair), _bound(pair, side=0)),
        fix="check what orders the collectives: prefetch, bucket sizes, streams that wait for each other",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def _bought_nothing(pair: Pair, more_hidden_ns: float) -> Reading | None:
    """Name what took the gain: kernels slowed under it, collectives stretched, a link that was busy, idle time.

    Without any of them the step is longer for another reason (another program, another device): nothing is said.
    """
    causes: list[Evidence] = []
    kernels = _kernels_slowed(pair)
    if kernels is not None:
        causes.append(kernels)
    stretched = stretch(*pair.collectives)
    if stretched is not None and _counts(pair, stretched) and _longer_ns(pair) > 0:
        causes.append(_stretched(pair, stretched))
    if pair.fraction(pair.comm_busy_ns[0]) >= BOUGHT_NOTHING.limit("busy_link"):
        causes.append(_busy_link(pair))
    known = bool(causes)
    causes += [] if known else _went_to_idle(pair)
    if not causes:
        return None
    gained = -pair.waterfall.delta_ns / more_hidden_ns
    bought = f"only {format_fraction(gained)}" if gained >= _WORTH_A_NUMBER else "none"
    return reading(
        BOUGHT_NOTHING,
        f"more {_what(pair)} is hidden, but {bought} of that shortens the step",
        *(_shares(pair), _step(pair), *causes, _bound(pair, side=0)),
        fix="send fewer bytes: lower precision, HSDP, reshard_after_forward=False (needs more memory)"
        + ("" if pair.is_cpu else "; or use fewer NCCL channels (NCCL_MAX_CTAS)")
        + "; no schedule beats the bound above",
        confidence=0.7 if known else 0.5,
        claims=("comm_exposed",),
    )


def _counts(pair: Pair, slowdown: Slowdown) -> bool:
    is_costly = pair.fraction(slowdown.cost_ns) >= BOUGHT_NOTHING.limit("effect")
    return is_costly and slowdown.factor >= BOUGHT_NOTHING.limit("factor")


def _kernels_slowed(pair: Pair) -> Evidence | None:
    """The slow-down of kernels under communication, beyond what the baseline's overlapped kernels had already."""
    before, after = pair.kernels
    drift = pair.drift
    slowed = beside(after, before, drift.factor if drift is not None else None)
    if slowed is None or not _counts(pair, slowed):
        return None
    had = beside(before, after, 1 / drift.factor if drift is not None else None)
    if had is not None and pair.fraction(slowed.cost_ns - had.cost_ns) < BOUGHT_NOTHING.limit("effect"):
        return None
    said = (
        f"kernels take {slowed.factor:.2f}x as long under communication as alone ({slowed.n_rows:,} kernels"
        f" of {slowed.n_twins:,} kinds): contention costs {format_ns(slowed.cost_ns)} {pair.per}"
    )
    return _factor(said, "contention_factor", slowed)


def _longer_ns(pair: Pair) -> int:
    """What the collectives of both sides take longer, as the table of collectives has it, ns per step."""
    return sum(row.by_duration_ns for row in (*pair.comm.rows, pair.comm.rest))


def _stretched(pair: Pair, stretched: Slowdown) -> Evidence:
    has_ranks = all(side.waits_ns is not None for side in pair.sides)
    who = "profkit triage of each side tells which" if has_ranks else "one rank cannot tell which"
    said = (
        f"the same collectives take {stretched.factor:.2f}x as long (median of {stretched.n_rows:,}), in all"
        f" {format_ns(_longer_ns(pair))} {pair.per} longer: contention or waiting for a peer; {who}"
    )
    return _factor(said, "stretch_factor", stretched)


def _factor(said: str, metric: str, slowdown: Slowdown) -> Evidence:
    return measure(said, metric, slowdown.factor, "ratio", expected=f"< {BOUGHT_NOTHING.limit('factor')}")


def _busy_link(pair: Pair) -> Evidence:
    busy = min(pair.fraction(pair.comm_busy_ns[0]), 1.0)  # of the mean step, in whole ns, which may be a hair shorter
    said = (
        f"communication already took {format_fraction(busy)} of the baseline's step: the link is the limit,"
        " and no schedule moves bytes faster"
    )
    least = format_fraction(BOUGHT_NOTHING.limit("busy_link"))
    return measure(said, "link_busy_fraction", busy, "fraction", expected=f"< {least}")


def _went_to_idle(pair: Pair) -> list[Evidence]:
    """The idle time that took the gain, where compute and the collectives stayed as they were; else nothing."""
    worst = max(pair.waterfall.bars, key=lambda bar: bar.delta_ns)
    same = abs(pair.comm.delta_ns) <= _SAME_COMM * pair.comm.baseline_ns
    if worst.name not in IDLE_PARTS or worst.name == "idle_data" or not same:
        return []
    said = f"the gain is lost in {pair.part_name(worst.name)}: +{format_ns(worst.delta_ns)} {pair.per}"
    return [measure(said, "largest_rise_ns", worst.delta_ns)]


def _bound(pair: Pair, *, side: int) -> Evidence:
    """`T - max(compute, comm)`: both must still run, each on its own resource."""
    step = pair.steps_ns[side]
    compute, comm = pair.compute_busy_ns[side], pair.comm_busy_ns[side]
    limit = max(compute, comm)
    left = max(step - limit, 0.0)
    what = "communication" if comm > compute else "compute"
    share = format_fraction(left / step if step else 0.0)
    said = (
        f"no schedule can save more than {format_ns(left)} ({share}) of the {('baseline', 'candidate')[side]}'s step:"
        f" {what} alone takes {format_ns(limit)}"
    )
    return measure(said, "overlap_bound_ns", left)
