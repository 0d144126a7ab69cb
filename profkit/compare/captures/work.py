"""Does a step do the same amount of work on both sides? If not, its time says nothing; only time per unit of work does.

Told by the script, where it tells `profkit.capture.step`. Else by the shapes of what operators work on, where they were
recorded: they say that it changed, and that it did not. Else by grids: a kernel that both sides launch equally often,
launch by launch, has another number of blocks; or kernels of the same grids are all launched more often by one factor.
The bytes copied to the device must have moved the same way as the grids, where they are known; alone they may mean
something else (half as many bytes are also inputs of half the width). Where nobody marked the steps, and other kernels
run, what does not depend on the kernels must agree: bytes copied, products, and the kernels that both sides share.
Accumulation of gradients is the same work in more passes forward and backward.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import COMPUTE, Pair, Reading, counts_moved, is_within, measure, moved, reading
from profkit.compare.captures.program import precision
from profkit.compare.captures.sides import shared_work
from profkit.compare.captures.work_rows import OPTIMIZER
from profkit.findings.changes import ACCUMULATION
from profkit.findings.comparison import PER_WORK, WORK_CHANGED
from profkit.model.budget import HOST_PARTS
from profkit.model.finding import Evidence
from profkit.model.grouped import grouped
from profkit.units import format_bytes, format_ns, format_speedup, format_time_change

_FIX: Final = (
    "compare samples or tokens per second: record them with profkit.capture.step(samples=...), or give a table"
)
_ALIKE: Final = 0.05
"""By which the bytes of a batch differ that is taken in parts. Chosen, padding of parts."""
_BLOCKS: Final = 0.3
"""By which the blocks of all kernels differ then. Chosen: small parts leave blocks half empty."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the elements that operators work on changed, counted by operator."""

    ratio: float
    """Elements per step, candidate over baseline: the median of the operators that changed; 1 where hardly any did."""
    middle: tuple[float, float]
    """The same of the quarter below and the quarter above that median."""
    n_changed: int
    n_operators: int
    is_alike: bool
    """Whether half of them changed by that factor, or hardly any changed."""


def _same() -> float:
    return math.log(WORK_CHANGED.limit("same"))


def work_changed(pair: Pair) -> Reading | None:
    """The reading that a step's work differs, or None: it is the same, or nothing tells."""
    kind = shared_work(pair.sides)
    if kind:
        return _told(pair, kind)
    change = _shapes_changed(pair)
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
    works = [sum(run.work[kind] for run in side.runs) / len(side.runs) for side in pair.sides]
    ratio = works[1] / works[0]
    if abs(math.log(ratio)) < _same():
        return None
    told = _ratio(f"the script reports {counts_moved(works, f'{kind} per step')}", f"{kind}_ratio", ratio)
    title = f"the step does {format_speedup(ratio)} the work"
    fix = f"{kind} per second, judged above, count the work; the times below do not"
    return _finding(pair, ratio, told, title=title, confidence=0.9, fix=fix)


def _shaped(pair: Pair, change: Change) -> Reading | None:
    """By the shapes of the operators' inputs, which are the program's own, whatever kernels run for it."""
    if change.ratio == 1:
        return None
    low, high = map(format_speedup, change.middle)
    between = "" if change.is_alike else f", the middle half of them {low} to {high}"
    seen = _ratio(
        f"operators work on {format_speedup(change.ratio)} the elements {pair.per} (median of the"
        f" {change.n_changed:,} that changed, of {change.n_operators:,}{between})",
        "input_elements_ratio",
        change.ratio,
    )
    confidence = 0.9 if change.is_alike else 0.6
    batches = _batches(pair)
    if min(batches) and batches[0] != batches[1]:
        title = f"the batch is {batches[1]}, before {batches[0]}"
        return _finding(pair, batches[1] / batches[0], seen, title=title, confidence=confidence, unit="sample")
    return _finding(pair, change.ratio, seen, confidence=confidence)


def _batches(pair: Pair) -> tuple[int, int]:
    """The samples in a batch of a pass, on both sides; 0 where that is not known."""
    first, second = ({trace.inputs.batch for trace in side.traces} for side in pair.sides)
    return (first.pop(), second.pop()) if len(first) == len(second) == 1 else (0, 0)


def _copied_bytes(pair: Pair) -> tuple[float, float] | None:
    """Bytes copied to the device per step on both sides; None where they are too few to be batches."""
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    return copied if min(copied) >= WORK_CHANGED.limit("copied") else None


def _blocks(pair: Pair) -> tuple[float, float]:
    """The blocks of all kernels per step, on both sides."""
    return pair.rates(lambda trace: int(trace.compute.blocks.sum()))


def _is_against(copied: tuple[float, float] | None, ratio: float) -> bool:
    """Whether the bytes copied are known, and did not move the way of the work."""
    if copied is None:
        return False
    return abs(math.log(copied[1] / copied[0])) < _same() or (copied[1] > copied[0]) != (ratio > 1)


def _seen(pair: Pair) -> Reading | None:
    """The reading by what ran: grids, and bytes copied."""
    ratio = None if pair.hidden else _grid_ratio(pair)
    copied = _copied_bytes(pair)
    if ratio is None or _is_against(copied, ratio):
        return None
    said = f"kernels launched equally often on both sides have grids {format_speedup(ratio)} as large (median by time)"
    grids = _ratio(said, "grid_ratio", ratio)
    if copied is None:
        return _finding(pair, ratio, grids, confidence=0.7)
    of_work = copied[1] / copied[0]
    said = f"copied to the device: {moved(copied, format_bytes, pair.per)} ({format_speedup(of_work)})"
    return _finding(pair, of_work, _ratio(said, "copied_bytes_ratio", of_work), grids, confidence=0.8)


def _copied(pair: Pair) -> Reading | None:
    """By the bytes of a batch: other kernels run for it, of more or fewer blocks in all, but as many products."""
    if not pair.shows_kernels or precision(pair) is not None:
        return None
    copied, blocks = _copied_bytes(pair), _blocks(pair)
    products = pair.rates(lambda trace: trace.compute.n_products)
    if copied is None or min(*blocks, *products) <= 0:
        return None
    by_bytes, by_blocks, by_products = (math.log(after / before) for before, after in (copied, blocks, products))
    if abs(by_bytes) < _same() or abs(by_products) >= _same() or by_bytes * by_blocks <= 0:
        return None
    if abs(by_blocks) < WORK_CHANGED.limit("blocks") * abs(by_bytes):
        return None
    ratio = math.exp(by_bytes)
    said = (
        f"copied to the device: {moved(copied, format_bytes, pair.per)}; kernels have"
        f" {format_speedup(math.exp(by_blocks))} as many blocks in all, for as many products of matrices"
    )
    return _finding(pair, ratio, _ratio(said, "copied_bytes_ratio", ratio), confidence=0.6)


def _counted(pair: Pair) -> Reading | None:
    """Where steps are not marked on both sides: by bytes copied, products and shared kernels, if all of them agree."""
    if not pair.shows_kernels or all(trace.is_marked for trace in pair.traces):
        return None
    both = {
        "bytes copied to the device": _copied_bytes(pair) or (0.0, 0.0),
        "products of matrices": pair.rates(lambda trace: trace.compute.n_products),
        "launches of kernels that both sides run": (1.0, _shared_ratio(pair)),
    }
    logs = {name: math.log(after / before) for name, (before, after) in both.items() if min(before, after) > 0}
    if len(logs) < 2 or max(logs.values()) - min(logs.values()) >= _same():
        return None
    if min(map(abs, logs.values())) < math.log(WORK_CHANGED.limit("passes")):
        return None
    ratio = math.exp(next(iter(logs.values())))
    told = " and ".join(f"{format_speedup(math.exp(log))} the {name}" for name, log in logs.items())
    return _finding(pair, ratio, _ratio(f"{pair.each} has {told}", "passes_ratio", ratio), confidence=0.6)


def _shared_ratio(pair: Pair) -> float:
    """How much more often the kernels of one grid run that both sides have; 0 where they do not agree."""
    first, second = (pool.counts() for pool in pair.kernels)
    rates = np.array([second[name] / first[name] for name in first if name in second])
    if len(rates) < WORK_CHANGED.limit("kinds"):
        return 0.0
    middle = float(np.median(rates))
    is_near = np.abs(np.log(rates / middle)) <= WORK_CHANGED.limit("factor")
    return middle if is_near.mean() >= WORK_CHANGED.limit("repeated") else 0.0


def _repeated(pair: Pair) -> Reading | None:
    """By how often kernels of one grid and block run: all by one factor more or less."""
    if not pair.shows_kernels:  # no grids
        return None
    counts = [pool.counts() for pool in pair.kernels]
    times = [pool.total_ns(np.ones(pool.twin.size, np.bool_)) for pool in pair.kernels]
    whole = sum(times[0].values()) + sum(times[1].values())
    names = [name for name in counts[0] if name in counts[1]]
    if len(names) < WORK_CHANGED.limit("kinds"):
        return None
    before, after = (np.array([count[name] for name in names]) for count in counts)
    time = np.array([times[0][name] + times[1][name] for name in names])
    ratio = _middle(after / before, time)
    is_near = np.abs(np.log(after / before / ratio)) <= WORK_CHANGED.limit("factor")
    is_near |= np.abs(after - before * ratio) <= 1
    if abs(math.log(ratio)) < _same() or time[is_near].sum() < WORK_CHANGED.limit("repeated") * whole:
        return None
    if _is_against(_copied_bytes(pair), ratio):
        return None
    n_near = f"{int(is_near.sum()):,} of {len(names):,} kinds"
    said = f"kernels of the same grids are launched {format_speedup(ratio)} as often ({n_near})"
    title = f"a step has {format_speedup(ratio)} as many passes of the same size (gradient accumulation)"
    title = title if _is_accumulated(pair, ratio) else ""
    return _finding(pair, ratio, _ratio(said, "launches_ratio", ratio), title=title, confidence=0.7)


def _middle(values: NDArray[np.float64], time: NDArray[Any]) -> float:
    """The median of values that each stand for a time."""
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(time[order]), time.sum() / 2)])


def _ratio(statement: str, metric: str, ratio: float) -> Evidence:
    return measure(statement, metric, ratio, "ratio", expected="1.00")


def _finding(
    pair: Pair,
    ratio: float,
    *evidence: Evidence,
    confidence: float,
    title: str = "",
    fix: str = _FIX,
    unit: str = "unit of work",
) -> Reading:
    before, after = pair.steps_ns
    per_work = after / before / ratio if before else 0.0
    said = format_time_change(per_work).replace("time", f"time per {unit}")
    time = Evidence(
        statement=f"{said}: {format_ns(before)} -> {format_ns(after)} {pair.per}",
        metric=PER_WORK,
        value=per_work,
        unit="ratio",
    )
    title = title or f"{pair.each} does {format_speedup(ratio)} the work"
    return reading(WORK_CHANGED, title, *evidence, time, fix=fix, confidence=confidence)


def _grid_ratio(pair: Pair) -> float | None:
    """The median, by time, of candidate's over baseline's grid where it changed; None where most did not."""
    first, second = (side.traces[0] for side in pair.sides)
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
    median = _middle(log, time)
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


def _shapes_changed(pair: Pair) -> Change | None:
    """How the shapes changed; None where one side has none, worlds differ in size, or the operators do not agree."""
    first, second = (side.traces[0] for side in pair.sides)
    if first.meta.world_size != second.meta.world_size:
        return None  # each rank's part of a step changes with their number
    logs = list(_elements_by_operator(first, second).values())
    least = _same()
    moved = sorted(log for log in logs if abs(log) >= least)
    if len(logs) < WORK_CHANGED.limit("operators"):
        return None
    if len(moved) <= WORK_CHANGED.limit("unchanged") * len(logs):
        return Change(ratio=1.0, middle=(1.0, 1.0), n_changed=len(moved), n_operators=len(logs), is_alike=True)
    low, median, high = (moved[len(moved) * quarter // 4] for quarter in (1, 2, 3))
    one_way = sum((log > 0) == (median > 0) for log in moved)
    alike = sum(abs(log - median) < least for log in moved)
    is_alike = alike >= WORK_CHANGED.limit("alike") * len(moved)
    most = WORK_CHANGED.limit("shapes" if is_alike else "shapes_apart")
    if len(moved) < most * len(logs) or one_way < WORK_CHANGED.limit("agreeing") * len(moved):
        return None
    return Change(
        ratio=math.exp(median),
        middle=(math.exp(low), math.exp(high)),
        n_changed=len(moved),
        n_operators=len(logs),
        is_alike=is_alike,
    )


def _elements_by_operator(first: Measured, second: Measured) -> dict[str, float]:
    """By operator, the log of its elements per step, candidate over baseline: of the input that changed least, if any.

    A weight stays as it is when the batch is another, and is read again for each part of a batch; attention's products
    grow with the square of a sequence.
    """
    before, after = first.inputs.shapes, second.inputs.shapes
    shared = sorted(before.keys() & after.keys())
    out = {}
    for name, logs in grouped((key.partition(" ")[0], math.log(after[key] / before[key])) for key in shared).items():
        n_calls = [trace.op_calls.get(name, 0) / trace.n_steps for trace in (first, second)]
        if min(n_calls) > 0:
            moved = [log for log in logs if abs(log) >= _same()]
            out[name] = min(moved or logs, key=abs) + math.log(n_calls[1] / n_calls[0])
    return out


def accumulated(pair: Pair) -> Reading | None:
    """The reading that the optimizer steps after more, or fewer, passes."""
    ratio = _by_optimizer(pair) or _by_kernels(pair)
    if ratio is None:
        return None
    said = f"{'more' if ratio > 1 else 'fewer'} passes forward and backward for a step of the optimizer"
    return reading(
        ACCUMULATION,
        f"the optimizer steps after {format_speedup(ratio)} as many passes (gradient accumulation)",
        measure(said, "passes_ratio", ratio, "ratio"),
        pair.counted("steps of the optimizer", "optimizer_steps", lambda trace: trace.counts.optimizer_steps),
        fix="compare the loss by samples seen: a batch of another size learns otherwise",
        confidence=0.7,
        claims=(*COMPUTE, *HOST_PARTS),
    )


def _is_accumulated(pair: Pair, ratio: float) -> bool:
    """Whether passes that are so many times as many are parts of one step: what updates the weights runs as often."""
    if not _is_whole(ratio) or not pair.baseline.traces[0].has_steps:
        return False
    updates = [{work: use.count for work, use in side.items() if work.family == OPTIMIZER} for side in pair.uses]
    return bool(updates[0]) and updates[0] == updates[1]


def _by_optimizer(pair: Pair) -> float | None:
    """By the ranges of the optimizer: steps are passes, and some of them do not update."""
    before, after = pair.rates(lambda trace: trace.counts.optimizer_steps)
    if min(before, after) <= 0 or min(before, after) >= 1:
        return None
    ratio = before / after
    return ratio if max(ratio, 1 / ratio) >= ACCUMULATION.limit("ratio") else None


def _by_kernels(pair: Pair) -> float | None:
    """By kernels of one name, whatever their grids: all but the optimizer's run more often by one whole factor."""
    if not pair.shows_kernels:
        return None
    if len({round(rate, 1) for rate in pair.rates(lambda trace: trace.counts.optimizer_steps)}) > 1:
        return None
    first, second = pair.uses
    shared = [work for work in first if work in second]
    if len(shared) < WORK_CHANGED.limit("kinds"):
        return None
    rates = np.array([float(second[work].count / first[work].count) for work in shared])
    time = np.array([first[work].total_ns + second[work].total_ns for work in shared])
    middle = _middle(rates, time)
    is_near = np.abs(np.log(rates / middle)) <= ACCUMULATION.limit("factor")
    whole = sum(use.total_ns for side in (first, second) for use in side.values())
    if not _is_whole(middle) or time[is_near].sum() < ACCUMULATION.limit("repeated") * whole:
        return None
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    return middle if is_within(_ALIKE, copied) and is_within(_BLOCKS, _blocks(pair)) else None


def _is_whole(ratio: float) -> bool:
    """Whether one side has so many times as much as the other, a whole number of times."""
    factor = max(ratio, 1 / ratio)
    return factor >= ACCUMULATION.limit("ratio") and abs(factor - round(factor)) <= ACCUMULATION.limit("factor")
