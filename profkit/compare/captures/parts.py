"""Parts of the step that changed, where no other reading says why: copies, communication itself, compute.

Each names the row that moved most. It says what changed, and claims no cause beyond that.
"""

from __future__ import annotations

from collections.abc import Collection

from profkit.compare.captures.pair import Pair, counted, moved, part_shown, reading
from profkit.findings import comparison
from profkit.model.documents.comparison import Account, WorkChange
from profkit.model.finding import Evidence, Finding
from profkit.model.names import short_name
from profkit.units import format_bytes, format_count, format_ns, format_signed_ns

_SAYS_COMPUTE = frozenset(
    kind.id
    for kind in (
        comparison.PRECISION,
        comparison.CASTS,
        comparison.COMPILED,
        comparison.RECOMPUTE,
        comparison.SLOWER,
        comparison.FASTER,
    )
)
_SAYS_OVERLAP = frozenset(kind.id for kind in (comparison.BOUGHT_NOTHING, comparison.GAINED, comparison.LOST))


def readings(pair: Pair, said: Collection[str]) -> tuple[Finding, ...]:
    """The parts that changed; `said` are the ids of the readings that are made already."""
    found = (copies(pair), communication(pair, said), compute(pair, said))
    return tuple(item for item in found if item is not None)


def copies(pair: Pair) -> Finding | None:
    """Copies that nothing hides hold the device longer, or less long."""
    bar = pair.waterfall.bar("copy_exposed")
    if abs(pair.fraction(bar.delta_ns)) < comparison.COPIES.limit("effect"):
        return None
    evidence = [part_shown(pair, "copy_exposed"), *_copy_that_moved(pair)]
    return reading(
        comparison.COPIES,
        f"copies hold the device {'longer' if bar.delta_ns > 0 else 'less long'}",
        fraction=pair.fraction(bar.delta_ns),
        evidence=tuple(evidence),
        fix="copy less often, from pinned memory with non_blocking=True, so that copies run under compute",
        confidence=0.7,
    )


def _copy_that_moved(pair: Pair) -> list[Evidence]:
    """The kind of copy whose time changed most."""
    names = {name for side in (pair.baseline, pair.candidate) for trace in side.traces for name in trace.counts.copies}

    def rates(name: str, place: int) -> tuple[float, float]:
        return pair.rates(lambda trace: trace.counts.copies.get(name, (0, 0, 0))[place])

    times = {name: rates(name, 1) for name in sorted(names)}
    if not times:
        return []
    name = max(times, key=lambda name: abs(times[name][1] - times[name][0]))
    n_copies, n_bytes = rates(name, 0), rates(name, 2)
    told = f", {moved(*map(format_bytes, n_bytes))}" if any(n_bytes) else ""
    counts = moved(*(format_count(round(count, 1)) for count in n_copies))
    return [
        Evidence(
            statement=f"{name}: copies {counts}{told}, {moved(*map(format_ns, times[name]), of=pair.per)}",
            metric="compare.copies_change_ns",
            value=times[name][1] - times[name][0],
            unit="ns",
        )
    ]


def communication(pair: Pair, said: Collection[str]) -> Finding | None:
    """Ranks wait more or less for each other, communication takes more or less time, or more of it runs alone."""
    exposed = pair.waterfall.bar("comm_exposed").delta_ns
    if abs(pair.fraction(exposed)) < comparison.COMM.limit("effect"):
        return None
    waiting = _waiting(pair, exposed)
    if waiting is not None:
        return waiting
    busy = pair.rates(lambda trace: trace.comm.busy_ns)
    is_itself = _is_most(busy[1] - busy[0], exposed)
    if _SAYS_OVERLAP & set(said) and not is_itself:
        return None
    title = (
        f"communication takes {'longer' if exposed > 0 else 'less time'}"
        if is_itself
        else f"{'more' if exposed > 0 else 'less'} communication runs alone"
    )
    total = Evidence(
        statement=f"communication, alone or not, {moved(*map(format_ns, busy), of=pair.per)}",
        metric="compare.comm_busy_change_ns",
        value=busy[1] - busy[0],
        unit="ns",
    )
    split = _split(pair)
    return reading(
        comparison.COMM,
        title,
        fraction=pair.fraction(exposed),
        evidence=(part_shown(pair, "comm_exposed"), *split, total, *_rows(pair, pair.comm, "collectives", 1)),
        fix="compare bytes, bucket sizes and links: profkit triage -v shows them for each group of ranks"
        if split
        else "waiting for a late rank counts as well: profkit triage on all ranks of each side tells it from transfer",
        confidence=0.7 if split else 0.6,
    )


def _is_most(change_ns: float, whole_ns: float) -> bool:
    """Whether one change is the larger part of another, of the same sign."""
    return (change_ns > 0) == (whole_ns > 0) and abs(change_ns) >= comparison.COMM.limit("itself") * abs(whole_ns)


def _split(pair: Pair) -> list[Evidence]:
    """Waiting and transfer inside communication on both sides, where all ranks tell them apart."""
    before, after = pair.baseline.waits_ns, pair.candidate.waits_ns
    if before is None or after is None:
        return []
    wait, transfer = (moved(*map(format_ns, both)) for both in zip(before, after, strict=True))
    return [
        Evidence(
            statement=f"of it waiting for other ranks {wait}, transfer {transfer} {pair.per} (mean of ranks)",
            metric="compare.comm_wait_change_ns",
            value=after[0] - before[0],
            unit="ns",
        )
    ]


def _waiting(pair: Pair, exposed_ns: float) -> Finding | None:
    """The reading that ranks wait more or less for each other, where that is most of the change."""
    split = _split(pair)
    if not split or not _is_most(split[0].value, exposed_ns):
        return None
    late = [
        Evidence(
            statement=f"{side.name}: rank {run.late_rank} is late ({run.bottleneck})",
            metric=f"compare.{side.name}_late_rank",
            value=float(run.late_rank),
            unit="rank",
        )
        for side in (pair.baseline, pair.candidate)
        for run in side.runs[:1]
        if run.late_rank is not None and len({run.late_rank for run in side.runs}) == 1
    ]
    return reading(
        comparison.COMM,
        f"ranks wait {'longer' if exposed_ns > 0 else 'less'} for each other",
        fraction=pair.fraction(exposed_ns),
        evidence=(part_shown(pair, "comm_exposed"), *split, *late),
        fix="profkit triage on each side says which rank is late, and what holds it up",
        confidence=0.7,
    )


def compute(pair: Pair, said: Collection[str]) -> Finding | None:
    """Compute takes more or less time, and no other reading says why."""
    bar = pair.waterfall.bar("compute")
    kind = comparison.COMPUTE
    least = kind.limit("compute_cpu" if pair.is_cpu else "compute") * bar.baseline_ns
    is_small = abs(pair.fraction(bar.delta_ns)) < kind.limit("effect") or abs(bar.delta_ns) < least
    if is_small or _SAYS_COMPUTE & set(said):
        return None
    return reading(
        kind,
        f"compute takes {'longer' if bar.delta_ns > 0 else 'less time'}",
        fraction=pair.fraction(bar.delta_ns),
        evidence=(
            part_shown(pair, "compute"),
            counted(
                pair,
                "operators" if pair.is_cpu else "kernels and copies",
                "operations",
                lambda trace: trace.counts.operators,
            ),
            *_rows(pair, pair.compute, "compute", 2),
        ),
        fix="see which of them should have changed: -v lists them with calls and durations",
        confidence=0.5,
    )


def _rows(pair: Pair, account: Account, metric: str, most: int) -> list[Evidence]:
    """The rows that moved most, the way the whole moved."""
    rows = [row for row in account.rows if row.delta_ns and (row.delta_ns > 0) == (account.delta_ns > 0)]
    return [_row(pair, row, f"{metric}_row_{number}") for number, row in enumerate(rows[:most], 1)]


def _row(pair: Pair, row: WorkChange, metric: str) -> Evidence:
    counts = (format_count(round(count, 1)) for count in (row.baseline_count, row.candidate_count))
    name = short_name(row.name) + (f" -> {short_name(row.replaced_by)}" if row.replaced_by else "")
    return Evidence(
        statement=f"{name}: {format_signed_ns(row.delta_ns)} {pair.per} (calls {moved(*counts)})",
        metric=f"compare.{metric}_change_ns",
        value=float(row.delta_ns),
        unit="ns",
    )
