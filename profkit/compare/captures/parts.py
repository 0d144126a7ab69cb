"""Parts of the step that changed, where no other reading says why: copies, communication itself, compute.

Each names the row that moved most. It says what changed, and claims no cause beyond that.
"""

from __future__ import annotations

from profkit.compare.captures.pair import COMPUTE, Pair, Reading, change, counts_moved, measure, moved, reading
from profkit.compare.captures.waterfall import PREFIX, group_of
from profkit.findings import comparison
from profkit.model.budget import HOST_PARTS
from profkit.model.documents.comparison import Account, Presence, WorkChange
from profkit.model.finding import Evidence
from profkit.model.names import short_name
from profkit.units import format_bytes, format_fraction, format_ns, format_signed_ns

IDLE_REST = ("idle_dependency", "idle_unknown")


def copies(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Copies that nothing hides hold the device longer, or less long."""
    bar = pair.waterfall.bar("copy_exposed")
    if "copy_exposed" in taken or abs(pair.fraction(bar.delta_ns)) < comparison.COPIES.limit("effect"):
        return None
    return reading(
        comparison.COPIES,
        f"copies hold the device {'longer' if bar.delta_ns > 0 else 'less long'}",
        pair.part_shown("copy_exposed"),
        *_copy_that_moved(pair),
        fix="copy less often, from pinned memory with non_blocking=True, so that copies run under compute",
        confidence=0.7,
        claims=("copy_exposed",),
    )


def _copy_that_moved(pair: Pair) -> list[Evidence]:
    """The kind of copy whose time changed most."""

    def rates(name: str, place: int) -> tuple[float, float]:
        return pair.rates(lambda trace: trace.counts.copies.get(name, (0, 0, 0))[place])

    times = {name: rates(name, 1) for name in sorted({name for trace in pair.traces for name in trace.counts.copies})}
    if not times:
        return []
    name = max(times, key=lambda name: abs(times[name][1] - times[name][0]))
    n_bytes = rates(name, 2)
    told = f", {moved(n_bytes, format_bytes)}" if any(n_bytes) else ""
    said = f"{name}: copies {counts_moved(rates(name, 0))}{told}, {moved(times[name], format_ns, pair.per)}"
    return [change(said, "copies", times[name])]


def communication(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Ranks wait more or less for each other, communication takes more or less time, or more of it runs alone."""
    exposed = pair.waterfall.bar("comm_exposed").delta_ns
    if "comm_exposed" in taken or abs(pair.fraction(exposed)) < comparison.COMM.limit("effect"):
        return None
    waiting = _waiting(pair, exposed)
    if waiting is not None:
        return waiting
    busy = pair.comm_busy_ns
    is_itself = _is_most(busy[1] - busy[0], exposed)
    title = (
        f"communication takes {'longer' if exposed > 0 else 'less time'}"
        if is_itself
        else f"{'more' if exposed > 0 else 'less'} communication runs alone"
    )
    split = _split(pair)
    return reading(
        comparison.COMM,
        title,
        *(pair.part_shown("comm_exposed"), *split, pair.comm_shown()),
        *_rows(pair, pair.comm, "collectives", 1),
        fix="compare bytes, bucket sizes and links: profkit triage -v shows them for each group of ranks"
        if split
        else "waiting for a late rank counts as well: profkit triage on all ranks of each side tells it from transfer",
        confidence=0.7 if split else 0.6,
        claims=("comm_exposed",),
    )


def _is_most(change_ns: float, whole_ns: float) -> bool:
    """Whether one change is the larger part of another, of the same sign."""
    return (change_ns > 0) == (whole_ns > 0) and abs(change_ns) >= comparison.COMM.limit("itself") * abs(whole_ns)


def _split(pair: Pair) -> list[Evidence]:
    """Waiting and transfer inside communication on both sides, where all ranks tell them apart."""
    before, after = pair.baseline.waits_ns, pair.candidate.waits_ns
    if before is None or after is None:
        return []
    waits, transfers = zip(before, after, strict=True)
    said = f"waiting for other ranks {moved(waits, format_ns)}, transfer {moved(transfers, format_ns)} {pair.per}"
    return [change(f"of it {said} (mean of ranks)", "comm_wait", waits)]


def _waiting(pair: Pair, exposed_ns: float) -> Reading | None:
    """The reading that ranks wait more or less for each other, where that is most of the change."""
    split = _split(pair)
    if not split or not _is_most(split[0].value, exposed_ns):
        return None
    late = [
        measure(f"{side.name}: rank {rank} is late ({side.runs[0].bottleneck})", f"{side.name}_late_rank", rank, "rank")
        for side in pair.sides
        if (rank := side.late_rank) is not None
    ]
    return reading(
        comparison.COMM,
        f"ranks wait {'longer' if exposed_ns > 0 else 'less'} for each other",
        *(pair.part_shown("comm_exposed"), *split, *late),
        fix="profkit triage on each side says which rank is late, and what holds it up",
        confidence=0.7,
        claims=("comm_exposed",),
    )


def compute(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """Compute takes more or less time, as far as no other reading says why."""
    kind, bar = comparison.COMPUTE, pair.waterfall.bar("compute")
    free = tuple(name for name in COMPUTE if name not in taken)
    rise = sum(pair.change(name) for name in free)
    least = kind.limit("compute_cpu" if pair.is_cpu else "compute") * bar.baseline_ns
    if abs(pair.fraction(rise)) < kind.limit("effect") or abs(rise) < least:
        return None
    what = "compute" if len(free) == len(COMPUTE) else "the rest of compute"
    return reading(
        kind,
        f"{what} takes {'longer' if rise > 0 else 'less time'}"
        f"{'' if pair.hidden else _other_kernels(pair, free, rise)}",
        *(pair.part_shown("compute"), pair.operations_shown()),
        *([] if pair.hidden else _rows(pair, pair.compute, "compute", 2, free)),
        fix="see which of them should have changed: -v lists them with calls and durations",
        confidence=0.5,
        claims=free,
    )


def _other_kernels(pair: Pair, free: tuple[str, ...], change_ns: int) -> str:
    """That other kernels took the place of these, where that is most of the change: another library, another choice."""
    rows = [row for row in pair.compute.rows if PREFIX + group_of(row) in free and row.presence is Presence.REPLACED]
    return ": other kernels do the same work" if _is_most(sum(row.delta_ns for row in rows), change_ns) else ""


def idle(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The device idles longer, or less long, for what is neither data, nor a call that waits, nor a launch."""
    names = tuple(name for name in (*IDLE_REST, *(HOST_PARTS if pair.is_cpu else ())) if name not in taken)
    rise = sum(pair.change(name) for name in names)
    if abs(pair.fraction(rise)) < comparison.IDLE.limit("effect"):
        return None
    what = "more time passes outside operators" if rise > 0 else "less time passes outside operators"
    if not pair.is_cpu:
        what = f"the device idles {'longer' if rise > 0 else 'less long'} for dependencies or unknown causes"
    return reading(
        comparison.IDLE,
        what,
        *(pair.part_shown(name) for name in names if pair.change(name)),
        fix="profkit triage on each side says what the host does meanwhile",
        confidence=0.5,
        claims=names,
    )


def slower(pair: Pair, taken: frozenset[str]) -> Reading | None:
    """The reading that the same rows take longer, or less long, across the board."""
    drift = pair.drift
    if drift is None or pair.hidden or set(COMPUTE) <= taken:
        return None
    kind = comparison.SLOWER if drift.factor > 1 else comparison.FASTER
    if drift.covered_ns < kind.limit("matched") * pair.compute.candidate_ns:
        return None
    least = kind.limit("slower_cpu" if pair.is_cpu else "slower")
    is_small = abs(drift.factor - 1) < least or abs(pair.fraction(drift.cost_ns)) < kind.limit("effect")
    if is_small or drift.shared_direction < kind.limit("one_way"):
        return None
    what = "operators" if pair.is_cpu else "kernels"
    said = (
        f"take {drift.factor:.2f}x as long ({drift.n_rows:,} rows of {drift.n_twins:,} kinds, by their medians);"
        f" {format_fraction(drift.shared_direction)} of their time changed in the same direction"
    )
    return reading(
        kind,
        f"the same {what} take {'longer' if drift.factor > 1 else 'less time'}, across the board",
        measure(f"the same {what} {said}", "same_work_factor", drift.factor, "ratio"),
        measure(
            f"these rows changed by {format_signed_ns(drift.cost_ns)} {pair.per}",
            "same_work_change_ns",
            drift.cost_ns,
        ),
        fix="check clocks, power limits, the device and other processes on the cores; run both sides in turns on"
        " one machine",
        confidence=0.7,
        claims=COMPUTE,
    )


def _rows(
    pair: Pair, account: Account, metric: str, most: int, groups: tuple[str, ...] | None = None
) -> list[Evidence]:
    """The rows that moved most, the way the whole moved; of these groups of compute alone, where they are given."""
    rows = [row for row in account.rows if groups is None or PREFIX + group_of(row) in groups]
    whole = account.delta_ns if groups is None else sum(pair.change(name) for name in groups)
    rows = [row for row in rows if row.delta_ns and (row.delta_ns > 0) == (whole > 0)]
    return [_row(pair, row, f"{metric}_row_{number}") for number, row in enumerate(rows[:most], 1)]


def _row(pair: Pair, row: WorkChange, metric: str) -> Evidence:
    calls = counts_moved((row.baseline_count, row.candidate_count))
    name = short_name(row.name) + (f" -> {short_name(row.replaced_by)}" if row.replaced_by else "")
    said = f"{name}: {format_signed_ns(row.delta_ns)} {pair.per} (calls {calls})"
    return change(said, metric, (row.baseline_ns, row.candidate_ns))
