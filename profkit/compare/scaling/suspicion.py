"""Superlinear efficiency is an accusation of the base until it is explained: what speaks against it, what for it.

Every clue is looked at in the base (docs/statistics.md 5). Shares of memory only suggest: pressure is proven by
an allocator that goes to the driver inside steady steps, which takes a trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.findings.memory import PRESSURE
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.scaling import Bearing, Clue, Held, Point, Series, Standing
from profkit.shell import line_of
from profkit.units import format_bytes, format_change, format_fraction, format_quantity

HIGH_MEMORY: Final = 0.8
"""Share of capacity that is worth a word (chosen; the base of the FSDP study was sick at 0.81)."""
_CROSS_CHECK_FROM: Final = 1.05
_CARDS_BYTES: Final = tuple(
    size * 1e9 for size in (8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141, 180, 192, 288)
)
"""Memory of common devices: the smallest that holds every peak stands in where no capacity is told, and it is said."""


Told = tuple[Bearing, str]
"""What a clue speaks for, and how."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the series itself: the others of the study, the device's memory, traces by GPUs."""

    series: tuple[Series, ...]
    capacity_bytes: float | None
    traces: Mapping[int, Sequence[RankReport]]


def judged(series: Series, context: Context, rebased: Series | None) -> Series:
    """The series with its sentence and, where the base is in doubt, with what speaks for and against it.

    `rebased` is the series from its smallest base that is in no doubt.
    """
    if series.standing is Standing.SOUND:
        return replace(series, sentence=publishable(series))
    twins = _twins(series, context.series)
    honest = [publishable(one) for one in (rebased, *twins) if one is not None]
    base = series.base.gpus
    told = {
        "memory.share": _memory_share(series, context),
        "memory.allocator": _allocator(series, context),
        "work.shape": _work(series),
        "baseline.warmup": _first_runs(series),
    }
    clues = (
        *([Clue(id="baseline.alone", bearing=Bearing.ACCUSES, statement=_where(series, rebased))] if rebased else []),
        *(_cross_check(series, other) for other in twins),
        *(Clue(id=id_, bearing=bearing, statement=says) for id_, (bearing, says) in told.items()),
    )
    job = line_of("torchrun --nproc-per-node", str(base), "train.py")
    trace = job.under("profkit capture --memory -o", f"base{base}/").text
    return replace(
        series,
        clues=clues,
        honest=tuple(honest),
        next_command="" if base in context.traces else trace,
        sentence=publishable(series) if series.standing is Standing.DOUBTFUL else honest[0] if honest else "",
    )


def publishable(series: Series) -> str:
    """The one sentence that the runs support: what was held, from what to what, efficiency, interval, runs."""
    base, top = series.base, series.largest
    held = "scaling" if series.held is Held.UNKNOWN else f"{series.held.value} scaling"
    work = ""
    if base.work_per_step is not None and series.held is not Held.UNKNOWN:
        share = base.work_per_step / (1 if series.held is Held.STRONG else base.gpus)
        work = f" at {share:g} per step" + (" and GPU" if series.held is Held.WEAK else "")
    said = (
        f"{series.name}, {held}{work}: {_gpus(top.gpus)} give {top.speedup:.2f}x the throughput of {base.gpus}"
        f" (ideal {top.gpus / base.gpus:g}x), {told_efficiency(top)}, {base.n} and {top.n} runs"
    )
    if series.standing is not Standing.DOUBTFUL:
        return said
    worst = max(series.points[1:-1], key=lambda point: point.efficiency or 0)
    said += f"; in doubt, because {_gpus(worst.gpus)} give {worst.speedup:.2f}x of the same base"
    return f"{said}, {told_efficiency(worst)}"


def told_efficiency(point: Point) -> str:
    """`E = 1.02 (95 % interval 0.87 to 1.18)`."""
    told = f"E = {point.efficiency or 0:.2f}"
    if point.interval is None:
        return f"{told} (no interval: one run on a side)"
    low, high = point.interval
    return f"{told} ({'pilot ' if point.is_pilot else ''}95 % interval {low:.2f} to {high:.2f})"


def _gpus(count: int) -> str:
    return f"{count} GPU" + "s" * (count != 1)


def _memory_share(series: Series, context: Context) -> Told:
    base = series.base
    peaks = [p.memory_bytes for s in context.series for p in s.points if p.memory_bytes is not None]
    if base.memory_bytes is None:
        return Bearing.UNKNOWN, f"no column of peak memory: whether {base.gpus} GPUs were short of memory is unknown"
    told = base.capacity_bytes or context.capacity_bytes
    capacity = told or next((card for card in _CARDS_BYTES if card >= max(peaks)), None)
    if capacity is None:
        peak = format_bytes(base.memory_bytes)
        return Bearing.UNKNOWN, f"peak memory {peak}, capacity unknown: set it with --capacity"
    share = base.memory_bytes / capacity
    size = f"{capacity / 1e9:g} GB" + ("" if told else " (assumed: the smallest card that fits; --capacity sets it)")
    others = [p for p in series.points[1:] if p.memory_bytes is not None]
    rest = f", {format_bytes(others[-1].memory_bytes or 0)} on {others[-1].gpus}" if others else ""
    peaks_at = f"peaks at {base.memory_bytes / 1e9:.2f} GB of {size}, {format_fraction(share)}{rest}"
    return (
        Bearing.SUGGESTS if share >= HIGH_MEMORY else Bearing.UNKNOWN,
        f"the {base.gpus}-GPU base {peaks_at}; this is a hint; allocator calls in steady steps are the proof",
    )


def _allocator(series: Series, context: Context) -> Told:
    base = series.base.gpus
    ranks = context.traces.get(base)
    if ranks is None:
        says = f"no trace of the {base}-GPU base: whether its allocator calls the driver in steady steps is unknown"
        return Bearing.UNKNOWN, says
    found = [finding for rank in ranks for finding in rank.findings if finding.id == PRESSURE.id]
    if found:
        return Bearing.ACCUSES, found[0].measure.statement
    if not all(any(section.analyzer == "memory" for section in rank.sections) for rank in ranks):
        return Bearing.UNKNOWN, f"the trace of {base} GPUs has no device rows: its allocator is unknown"
    return Bearing.CLEARS, f"the allocator of the {base}-GPU base does not call the driver in steady steps"


def _twins(series: Series, study: Iterable[Series]) -> list[Series]:
    """The series of the same work between the same sizes whose largest size is not superlinear."""
    ends = series.base.gpus, series.largest.gpus
    return [
        other
        for other in study
        if other.standing is not Standing.ACCUSED
        and other is not series
        and (other.held, other.unit, other.base.work_per_step) == (series.held, series.unit, series.base.work_per_step)
        and (other.base.gpus, other.largest.gpus) == ends
    ]


def _cross_check(series: Series, other: Series) -> Clue:
    """Compare what one change costs at each size: work per token has no reason to depend on the number of GPUs."""
    mine = {point.gpus: point for point in series.points}
    costs = {point.gpus: point.mean / mine[point.gpus].mean for point in other.points if point.gpus in mine}
    base, top = series.base.gpus, series.largest.gpus
    slow = costs[base] / costs[top]
    told = ", ".join(f"{format_change(costs[size] - 1)} on {size}" for size in sorted(costs, reverse=True))
    says = f"{other.name} changes throughput by {told}"
    if slow < _CROSS_CHECK_FROM:
        says += ": the same at both ends, which speaks for the base"
        return Clue(id="baseline.cross_check", bearing=Bearing.CLEARS, statement=says)
    healthy = series.base.mean * slow
    says += f": at the rate of {_gpus(top)} the {base}-GPU base would reach {format_quantity(healthy, series.unit)};"
    says += f" it runs at {format_fraction(1 / slow)} of that."
    says += f" From there, the speed-up is {series.largest.mean / healthy:.2f}x"
    return Clue(id="baseline.cross_check", bearing=Bearing.ACCUSES, statement=says)


def _where(series: Series, rebased: Series) -> str:
    """Where the excess is: below the smallest base that is in no doubt."""
    base, top = rebased.base.gpus, rebased.largest
    nothing = f"from {base} GPUs on, nothing is superlinear (E = {top.efficiency or 0:.2f} on {top.gpus})"
    return f"{nothing}: the excess is between {series.base.gpus} and {base}"


def _work(series: Series) -> Told:
    """Say what else changed with the size: other shapes of work explain some excess, fewer optimizer steps none."""
    base, top = series.base, series.largest
    if base.micro_batch is None or top.micro_batch is None:
        return Bearing.UNKNOWN, "no column of the batch per GPU: whether both sizes ran the same shapes is unknown"
    if base.micro_batch != top.micro_batch:
        says = f"batch per GPU {base.micro_batch:g} on {base.gpus}, {top.micro_batch:g} on {top.gpus} GPUs:"
        if base.micro_batch < top.micro_batch:
            return Bearing.SUGGESTS, f"{says} smaller shapes may slow the base"
        return Bearing.CLEARS, f"{says} smaller shapes would slow the larger size instead"
    says = f"batch per GPU is {base.micro_batch:g} at both sizes: same shapes"
    if base.accumulation is not None and top.accumulation is not None and base.accumulation != top.accumulation:
        says += f"; accumulation {base.accumulation:g} on {base.gpus} and {top.accumulation:g} on {top.gpus} GPUs saves"
        says += " the base optimizer steps, which makes it faster, not slower"
    return Bearing.CLEARS, says


def _first_runs(series: Series) -> Told:
    """Look for a base that was still warming up: a first run slower than all later ones."""
    base = series.base
    if base.n < 2:
        return Bearing.UNKNOWN, f"one run on {base.gpus} GPUs cannot rule out noise or a slow start"
    first, rest = base.runs[0], base.runs[1:]
    lost = 1 - first / (math.fsum(rest) / len(rest))
    spread = f"{base.n} runs vary by {format_fraction(base.cv or 0)}"
    if lost > 0.05 and first < min(rest):
        slower = f"{format_fraction(lost)} slower than the others ({spread})"
        return Bearing.SUGGESTS, f"the first run on {base.gpus} GPUs is {slower}: warm-up?"
    return Bearing.CLEARS, f"the runs on {base.gpus} GPUs agree with their first ({spread}): no sign of warm-up"
