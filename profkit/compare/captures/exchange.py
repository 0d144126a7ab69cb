"""What ranks exchange otherwise (gradients in other buckets, buffers of layers, copies of gradients), and its overlap.

Did more overlap make the step shorter, and if not, where did the gain go?
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profkit.compare.captures.contention import Slowdown, beside, stretch
from profkit.compare.captures.counts import NO_CALLS
from profkit.compare.captures.pair import Pair, Reading, change, counts_moved, is_within, measure, moved, reading
from profkit.findings import changes
from profkit.findings.comparison import BOUGHT_NOTHING, GAINED, LOST
from profkit.model.budget import IDLE_PARTS
from profkit.model.finding import Evidence
from profkit.units import format_bytes, format_fraction, format_ns

_WITHIN: Final = "DtoD"


def buckets(pair: Pair) -> Reading | None:
    """As many bytes are all-reduced in fewer, or in more pieces."""
    kind = changes.BUCKET_SIZE
    n, time, size = (_of(pair, "all-reduce", field) for field in ("n", "total_ns", "n_bytes"))
    if min(n) < 1 or max(n) < max(kind.limit("ratio") * min(n), min(n) + 1):
        return None
    if not _is_same(size, kind.limit("bytes")) or not _has_same_kernels(pair):
        return None
    told = f", {moved(size, format_bytes)}" if all(size) else ""
    return reading(
        kind,
        f"gradients are all-reduced in {'fewer, larger' if n[1] < n[0] else 'more, smaller'} buckets (bucket_cap_mb)",
        change(f"all-reduces {counts_moved(n)}{told}, {moved(time, format_ns, pair.per)}", "all_reduces", n, "count"),
        fix="the last bucket is exposed: larger ones cost fewer launches, smaller ones overlap more",
        confidence=0.7 if all(size) else 0.6,
        claims=("comm_exposed",),
    )


def broadcasts(pair: Pair) -> Reading | None:
    """Buffers are (no longer) broadcast in every step."""
    kind = changes.BUFFERS
    n, time = (_of(pair, "broadcast", field) for field in ("n", "total_ns"))
    if max(n) < kind.limit("broadcasts") or min(n) > kind.limit("gone") * max(n):
        return None
    if min(_of(pair, "all-reduce", "n")) < 1:
        return None
    is_more = n[1] > n[0]
    return reading(
        kind,
        f"buffers are {'broadcast' if is_more else 'no longer broadcast'} in each step (broadcast_buffers)",
        change(f"broadcasts {counts_moved(n)}, {moved(time, format_ns, pair.per)}", "broadcasts", n, "count"),
        fix="broadcast_buffers=False where no layer has buffers that must agree"
        if is_more
        else "keep it, unless buffers must agree between ranks (BatchNorm's statistics)",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def bucket_copies(pair: Pair) -> Reading | None:
    """Beside all-reduces, copies within the device come or go: gradients that leave their buckets.

    Buffers that are broadcast are copied, too: where these come or go, nothing tells whose copies they are.
    """
    kind = changes.BUCKET_COPIES
    if broadcasts(pair) is not None:
        return None
    n, time, size = (_copies(pair, place) for place in (0, 1, 2))
    if min(_of(pair, "all-reduce", "n")) < 1 or abs(n[1] - n[0]) < kind.limit("copies"):
        return None
    if min(size) > kind.limit("gone") * max(size) or not _has_same_kernels(pair):
        return None
    is_more = n[1] > n[0]
    said = f"{counts_moved(n)}, {moved(size, format_bytes)}, {moved(time, format_ns, pair.per)}"
    return reading(
        kind,
        f"DDP {'copies its gradients out of' if is_more else 'no longer copies its gradients out of'} their buckets"
        " (gradient_as_bucket_view)",
        change(f"copies within the device {said}", "bucket_copies", n, "count"),
        fix="gradient_as_bucket_view=True saves these copies, and the memory of the gradients"
        if is_more
        else "keep gradient_as_bucket_view=True",
        confidence=0.6,
        claims=("copy_exposed", "comm_exposed"),
    )


def collectives(pair: Pair) -> Reading | None:
    """Ranks exchange by collectives of another kind: a sharded job instead of a replicated one."""
    least = changes.COLLECTIVES.limit("calls")
    names = {name for trace in pair.traces for name in trace.counts.collectives}
    calls = {name: _of(pair, name, "n") for name in sorted(names - {"broadcast"})}
    came, went = (
        [name for name, both in calls.items() if both[side] >= least and both[1 - side] == 0] for side in (1, 0)
    )
    if not came or not went:
        return None
    return reading(
        changes.COLLECTIVES,
        f"ranks exchange by {' and '.join(came)}, before by {' and '.join(went)}",
        pair.comm_shown(),
        fix="compare peak memory as well: sharding trades communication for memory",
        confidence=0.8,
        claims=("comm_exposed",),
    )


def _of(pair: Pair, kind: str, field: str) -> tuple[float, float]:
    """A number of the collectives of one kind, per step, on both sides."""
    return pair.rates(lambda trace: getattr(trace.counts.collectives.get(kind, NO_CALLS), field))


def _copies(pair: Pair, place: int) -> tuple[float, float]:
    """How many copies within the device, for how long, with how many bytes, per step, on both sides."""
    return pair.rates(
        lambda trace: sum(counts[place] for name, counts in trace.counts.copies.items() if _WITHIN in name)
    )


def _has_same_kernels(pair: Pair) -> bool:
    return _is_same(pair.rates(lambda trace: trace.compute.work.size), changes.BUCKET_SIZE.limit("kernels"))


def _is_same(both: tuple[float, float], share: float) -> bool:
    """Whether two numbers agree within a share, or one is not known."""
    return is_within(share, both) or min(both) == 0


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
        return reading(
            LOST,
            f"less {_what(pair)} runs under compute",
            *(_shares(pair), _step(pair), _bound(pair, side=0)),
            fix="check what orders the collectives: prefetch, bucket sizes, streams that wait for each other",
            confidence=0.7,
            claims=("comm_exposed",),
        )
    data = max(pair.waterfall.bar("idle_data").delta_ns, 0)  # a slower loader is not the overlap's doing
    if -pair.waterfall.delta_ns + data < BOUGHT_NOTHING.limit("bought") * more_hidden:
        return _bought_nothing(pair, more_hidden)
    if abs(busy[1] - busy[0]) > more_hidden:  # that moves the step by itself: `readings.communication` says so
        return None
    return reading(
        GAINED,
        f"more {_what(pair)} runs under compute, and the step is shorter for it",
        *(_shares(pair), _step(pair), _bound(pair, side=1)),
        fix="keep it; more overlap cannot make the step shorter than compute or communication alone",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def _what(pair: Pair) -> str:
    """What is overlapped: all communication, or as many all-gathers as before, which are then prefetched otherwise."""
    n, time = (_of(pair, _GATHER, field) for field in ("n", "total_ns"))
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
    exposed = _rose(pair.waterfall.bar("comm_exposed").delta_ns)
    said = f"the step {_rose(pair.waterfall.delta_ns)}, {pair.part_name('comm_exposed')} {exposed}"
    return change(said, "step", pair.steps_ns)


def _rose(change_ns: float) -> str:
    if change_ns == 0:
        return "did not change"
    return f"{'rose' if change_ns > 0 else 'fell'} by {format_ns(abs(change_ns))}"


def _bought_nothing(pair: Pair, more_hidden_ns: float) -> Reading | None:
    """Name what took the gain: kernels slowed under it, collectives stretched, a link that was busy, idle time.

    Without any of them the step is longer for another reason (another program, another device): nothing is said.
    """
    known = [*_kernels_slowed(pair), *_stretched(pair), *_busy_link(pair)]
    causes = known or list(_went_to_idle(pair))
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


def _kernels_slowed(pair: Pair) -> Iterator[Evidence]:
    """The slow-down of kernels under communication, beyond what the baseline's overlapped kernels had already."""
    before, after = pair.kernels
    drift = pair.drift
    slowed = beside(after, before, drift.factor if drift is not None else None)
    if slowed is None or not _counts(pair, slowed):
        return
    had = beside(before, after, 1 / drift.factor if drift is not None else None)
    if had is not None and pair.fraction(slowed.cost_ns - had.cost_ns) < BOUGHT_NOTHING.limit("effect"):
        return
    said = (
        f"kernels take {slowed.factor:.2f}x as long under communication as alone ({slowed.n_rows:,} kernels"
        f" of {slowed.n_twins:,} kinds): contention costs {format_ns(slowed.cost_ns)} {pair.per}"
    )
    yield _factor(said, "contention_factor", slowed)


def _stretched(pair: Pair) -> Iterator[Evidence]:
    """That the collectives of both sides take longer, and by how much, as the table of collectives has it."""
    stretched = stretch(*pair.collectives)
    longer_ns = sum(row.by_duration_ns for row in (*pair.comm.rows, pair.comm.rest))
    if stretched is None or not _counts(pair, stretched) or longer_ns <= 0:
        return
    has_ranks = all(side.waits_ns is not None for side in pair.sides)
    who = "profkit triage of each side tells which" if has_ranks else "one rank cannot tell which"
    said = (
        f"the same collectives take {stretched.factor:.2f}x as long (median of {stretched.n_rows:,}), in all"
        f" {format_ns(longer_ns)} {pair.per} longer: contention or waiting for a peer; {who}"
    )
    yield _factor(said, "stretch_factor", stretched)


def _factor(said: str, metric: str, slowdown: Slowdown) -> Evidence:
    return measure(said, metric, slowdown.factor, "ratio", expected=f"< {BOUGHT_NOTHING.limit('factor')}")


def _busy_link(pair: Pair) -> Iterator[Evidence]:
    least = BOUGHT_NOTHING.limit("busy_link")
    if pair.fraction(pair.comm_busy_ns[0]) < least:
        return
    busy = min(pair.fraction(pair.comm_busy_ns[0]), 1.0)  # of the mean step, in whole ns, which may be a hair shorter
    said = (
        f"communication already took {format_fraction(busy)} of the baseline's step: the link is the limit,"
        " and no schedule moves bytes faster"
    )
    yield measure(said, "link_busy_fraction", busy, "fraction", expected=f"< {format_fraction(least)}")


def _went_to_idle(pair: Pair) -> Iterator[Evidence]:
    """The idle time that took the gain, where compute and the collectives stayed as they were; else nothing."""
    worst = max(pair.waterfall.bars, key=lambda bar: bar.delta_ns)
    same = abs(pair.comm.delta_ns) <= _SAME_COMM * pair.comm.baseline_ns
    if worst.name in IDLE_PARTS and worst.name != "idle_data" and same:
        said = f"the gain is lost in {pair.part_name(worst.name)}: +{format_ns(worst.delta_ns)} {pair.per}"
        yield measure(said, "largest_rise_ns", worst.delta_ns)


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
