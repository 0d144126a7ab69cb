"""Does a step do the same amount of work on both sides? If not, its time says nothing; only time per unit of work does.

Told by the script, where it tells `profkit.capture.step`. Else by the shapes of what operators work on, where they were
recorded: they say that it changed, and that it did not. Else by grids: a kernel that both sides launch equally often,
launch by launch, has another number of blocks; or kernels of the same grids are all launched more often by one factor.
The bytes copied to the device must have moved the same way as the grids, where they are known; alone they may mean
something else (half as many bytes are also inputs of half the width). Where nobody marked the steps, and other kernels
run, what does not depend on the kernels must agree: bytes copied, products, and the kernels that both sides share.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.compare.captures.groups import n_products
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import Pair, Reading, moved, reading
from profkit.compare.captures.passes import is_accumulated
from profkit.compare.captures.program import precision
from profkit.compare.captures.shapes import Change, changed
from profkit.compare.captures.sides import shared_work
from profkit.findings.comparison import PER_WORK, WORK_CHANGED
from profkit.model.finding import Evidence
from profkit.units import format_bytes, format_count, format_ns, format_speedup, format_time_change

_FIX: Final = (
    "compare samples or tokens per second: record them with profkit.capture.step(samples=...), or give a table"
)


def _same() -> float:
    return math.log(WORK_CHANGED.limit("same"))


def work_changed(pair: Pair) -> Reading | None:
    """The reading that a step's work differs, or None: it is the same, or nothing tells."""
    kind = shared_work((pair.baseline, pair.candidate))
    if kind:
        return _told(pair, kind)
    change = changed(pair)
    if change is not None and change.is_alike:
        return _shaped(pair, change)
    return (
        _seen(pair)
        or _repeated(pair)
        or (_shaped(pair, change) if change is not None else None)
        or (_copied(pair) if change is None else None)
        or _counted(pair)
    )


def _told(pair: Pair, kind: str) -> Reading | None:
    """The reading by what the script told of each step: the best evidence, and final."""
    before, after = (
        sum(run.work[kind] for run in side.runs) / len(side.runs) for side in (pair.baseline, pair.candidate)
    )
    if abs(math.log(after / before)) < _same():
        return None
    counts = moved(format_count(round(before, 1)), format_count(round(after, 1)), of=f"{kind} per step")
    told = Evidence(
        statement=f"the script reports {counts}",
        metric=f"compare.{kind}_ratio",
        value=after / before,
        unit="ratio",
        expected="1.00",
    )
    title = f"the step does {format_speedup(after / before)} the work"
    fix = f"{kind} per second, judged above, count the work; the times below do not"
    return _finding(pair, after / before, [told], title, confidence=0.9, fix=fix)


def _shaped(pair: Pair, change: Change) -> Reading | None:
    """By the shapes of the operators' inputs, which are the program's own, whatever kernels run for it."""
    if change.ratio == 1:
        return None
    low, high = map(format_speedup, change.middle)
    between = "" if change.is_alike else f", the middle half of them {low} to {high}"
    seen = Evidence(
        statement=f"operators work on {format_speedup(change.ratio)} the elements {pair.per} (median of the"
        f" {change.n_changed:,} that changed, of {change.n_operators:,}{between})",
        metric="compare.input_elements_ratio",
        value=change.ratio,
        unit="ratio",
        expected="1.00",
    )
    confidence = 0.9 if change.is_alike else 0.6
    batches = _batches(pair)
    if min(batches) and batches[0] != batches[1]:
        title = f"the batch is {batches[1]}, before {batches[0]}"
        return _finding(pair, batches[1] / batches[0], [seen], title, confidence=confidence, unit="sample")
    return _finding(pair, change.ratio, [seen], _title(pair, change.ratio), confidence=confidence)


def _batches(pair: Pair) -> tuple[int, int]:
    """The samples in a batch of a pass, on both sides; 0 where that is not known."""
    first, second = ({trace.inputs.batch for trace in side.traces} for side in pair.sides)
    return (first.pop(), second.pop()) if len(first) == len(second) == 1 else (0, 0)


def _title(pair: Pair, ratio: float) -> str:
    return f"{pair.each} does {format_speedup(ratio)} the work"


def _seen(pair: Pair) -> Reading | None:
    """The reading by what ran: grids, and bytes copied."""
    ratio = None if pair.hidden else _grid_ratio(pair)
    if ratio is None:
        return None
    before, after = pair.rates(lambda trace: trace.counts.copied_bytes)
    is_copied = min(before, after) >= WORK_CHANGED.limit("copied")
    copied = math.log(after / before) if is_copied else 0.0
    if is_copied and (abs(copied) < _same() or (copied > 0) != (ratio > 1)):
        return None
    ratio_of_work = after / before if is_copied else ratio
    evidence = [
        Evidence(
            statement="kernels launched equally often on both sides have grids"
            f" {format_speedup(ratio)} as large (median by time)",
            metric="compare.grid_ratio",
            value=ratio,
            unit="ratio",
            expected="1.00",
        )
    ]
    if is_copied:
        evidence.insert(
            0,
            Evidence(
                statement=f"copied to the device: {moved(format_bytes(before), format_bytes(after), of=pair.per)}"
                f" ({format_speedup(ratio_of_work)})",
                metric="compare.copied_bytes_ratio",
                value=ratio_of_work,
                unit="ratio",
                expected="1.00",
            ),
        )
    title = _title(pair, ratio_of_work)
    return _finding(pair, ratio_of_work, evidence, title, confidence=0.8 if is_copied else 0.7)


def _copied(pair: Pair) -> Reading | None:
    """By the bytes of a batch: other kernels run for it, of more or fewer blocks in all, but as many products."""
    if pair.is_cpu or pair.hidden or precision(pair) is not None:
        return None
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    blocks = pair.rates(lambda trace: int(trace.compute.blocks.sum()))
    products = pair.rates(n_products)
    if min(copied) < WORK_CHANGED.limit("copied") or min(*blocks, *products) <= 0:
        return None
    by_bytes, by_blocks, by_products = (math.log(after / before) for before, after in (copied, blocks, products))
    if abs(by_bytes) < _same() or abs(by_products) >= _same() or by_bytes * by_blocks <= 0:
        return None
    if abs(by_blocks) < WORK_CHANGED.limit("blocks") * abs(by_bytes):
        return None
    ratio = math.exp(by_bytes)
    seen = Evidence(
        statement=f"copied to the device: {moved(*map(format_bytes, copied), of=pair.per)}; kernels have"
        f" {format_speedup(math.exp(by_blocks))} as many blocks in all, for as many products of matrices",
        metric="compare.copied_bytes_ratio",
        value=ratio,
        unit="ratio",
        expected="1.00",
    )
    return _finding(pair, ratio, [seen], _title(pair, ratio), confidence=0.6)


def _counted(pair: Pair) -> Reading | None:
    """Where steps are not marked on both sides: by bytes copied, products and shared kernels, if all of them agree."""
    if pair.is_cpu or pair.hidden or all(trace.is_marked for side in pair.sides for trace in side.traces):
        return None
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    both = {
        "bytes copied to the device": copied if min(copied) >= WORK_CHANGED.limit("copied") else (0.0, 0.0),
        "products of matrices": pair.rates(n_products),
        "launches of kernels that both sides run": (1.0, _shared_ratio(pair)),
    }
    logs = {name: math.log(after / before) for name, (before, after) in both.items() if min(before, after) > 0}
    if len(logs) < 2 or max(logs.values()) - min(logs.values()) >= _same():
        return None
    if min(map(abs, logs.values())) < math.log(WORK_CHANGED.limit("passes")):
        return None
    ratio = math.exp(next(iter(logs.values())))
    told = " and ".join(f"{format_speedup(math.exp(log))} the {name}" for name, log in logs.items())
    seen = Evidence(
        statement=f"{pair.each} has {told}", metric="compare.passes_ratio", value=ratio, unit="ratio", expected="1.00"
    )
    return _finding(pair, ratio, [seen], _title(pair, ratio), confidence=0.6)


def _shared_ratio(pair: Pair) -> float:
    """How much more often the kernels of one grid run that both sides have; 0 where they do not agree."""
    counts = [pool.counts() for pool in pair.kernels]
    names = [name for name in counts[0] if name in counts[1]]
    if len(names) < WORK_CHANGED.limit("kinds"):
        return 0.0
    rates = np.array([counts[1][name] / counts[0][name] for name in names])
    middle = float(np.median(rates))
    is_near = np.abs(np.log(rates / middle)) <= WORK_CHANGED.limit("factor")
    return middle if is_near.mean() >= WORK_CHANGED.limit("repeated") else 0.0


def _repeated(pair: Pair) -> Reading | None:
    """By how often kernels of one grid and block run: all by one factor more or less."""
    if pair.is_cpu or pair.hidden:  # no grids
        return None
    counts = [pool.counts() for pool in pair.kernels]
    times = [pool.total_ns(np.ones(pool.twin.size, np.bool_)) for pool in pair.kernels]
    whole = sum(times[0].values()) + sum(times[1].values())
    names = [name for name in counts[0] if name in counts[1]]
    if len(names) < WORK_CHANGED.limit("kinds"):
        return None
    before, after = (np.array([count[name] for name in names]) for count in counts)
    time = np.array([times[0][name] + times[1][name] for name in names])
    order = np.argsort(after / before)
    ratio = float((after / before)[order][np.searchsorted(np.cumsum(time[order]), time.sum() / 2)])
    is_near = np.abs(np.log(after / before / ratio)) <= WORK_CHANGED.limit("factor")
    is_near |= np.abs(after - before * ratio) <= 1
    if abs(math.log(ratio)) < _same() or time[is_near].sum() < WORK_CHANGED.limit("repeated") * whole:
        return None
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    is_copied = min(copied) >= WORK_CHANGED.limit("copied")
    if is_copied and (abs(math.log(copied[1] / copied[0])) < _same() or (copied[1] > copied[0]) != (ratio > 1)):
        return None
    seen = Evidence(
        statement=f"kernels of the same grids are launched {format_speedup(ratio)} as often ({int(is_near.sum()):,} of"
        f" {len(names):,} kinds)",
        metric="compare.launches_ratio",
        value=ratio,
        unit="ratio",
        expected="1.00",
    )
    title = _title(pair, ratio)
    if is_accumulated(pair, ratio):
        title = f"a step has {format_speedup(ratio)} as many passes of the same size (gradient accumulation)"
    return _finding(pair, ratio, [seen], title, confidence=0.7)


def _finding(  # noqa: PLR0913 - each by name
    pair: Pair,
    ratio: float,
    evidence: list[Evidence],
    title: str,
    *,
    confidence: float,
    fix: str = _FIX,
    unit: str = "unit of work",
) -> Reading:
    steps = pair.waterfall.baseline_ns, pair.waterfall.candidate_ns
    per_work = steps[1] / steps[0] / ratio if steps[0] else 0.0
    change = format_time_change(per_work).replace("time", f"time per {unit}")
    time = Evidence(
        statement=f"{change}: {format_ns(steps[0])} -> {format_ns(steps[1])} {pair.per}",
        metric=PER_WORK,
        value=per_work,
        unit="ratio",
    )
    return reading(
        WORK_CHANGED,
        title,
        evidence=(*evidence, time),
        fix=fix,
        confidence=confidence,
    )


def _grid_ratio(pair: Pair) -> float | None:
    """The median, by time, of candidate's over baseline's grid where it changed; None where most did not."""
    first, second = (side.traces[0] for side in (pair.baseline, pair.candidate))
    rows = _by_name(first), _by_name(second)
    logs, times = [], []
    for name in rows[0].keys() & rows[1].keys():
        n_mine, n_other = rows[0][name].size, rows[1][name].size
        if n_mine * second.n_steps != n_other * first.n_steps:
            continue
        both = np.stack((rows[0][name][:n_other], rows[1][name][:n_mine]))
        mine, other = both[:, (first.compute.blocks[both[0]] > 0) & (second.compute.blocks[both[1]] > 0)]
        logs.append(np.log(second.compute.blocks[other] / first.compute.blocks[mine]))
        times.append(first.compute.duration_ns[mine] + second.compute.duration_ns[other])
    n_others = sum(bool((np.abs(one) > _same()).any()) for one in logs)
    log, time = np.concatenate(logs or [np.empty(0)]), np.concatenate(times or [np.empty(0, np.int64)])
    is_other = np.abs(log) > _same()
    whole = int(first.compute.duration_ns.sum() + second.compute.duration_ns.sum())
    is_little = time.sum() < WORK_CHANGED.limit("matched") * whole
    is_little |= n_others < WORK_CHANGED.limit("names") * len(logs)
    if is_little or time[is_other].sum() < WORK_CHANGED.limit("changed") * time.sum() or not is_other.any():
        return None
    log, time = log[is_other], time[is_other]
    order = np.argsort(log)
    median = float(log[order][np.searchsorted(np.cumsum(time[order]), time.sum() / 2)])
    agreeing = time[np.abs(log - median) <= WORK_CHANGED.limit("near") * abs(median)].sum()
    return math.exp(median) if agreeing >= WORK_CHANGED.limit("agreeing") * time.sum() else None


def _by_name(trace: Measured) -> dict[str, NDArray[np.intp]]:
    """The compute rows of each kernel name, in order."""
    rows = trace.compute
    codes: dict[str, int] = {}
    code_of = np.array([codes.setdefault(work.name, len(codes)) for work in rows.works], np.int64)
    code = code_of[rows.work] if code_of.size else np.empty(0, np.int64)
    order = np.argsort(code, kind="stable")
    edges = np.searchsorted(code[order], np.arange(len(codes) + 1))
    return {name: order[edges[number] : edges[number + 1]] for name, number in codes.items()}
