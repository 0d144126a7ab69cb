"""`compare`: two sides to the one value that renderers show: judge, account, read, warn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from profkit.compare.captures.measured import Measured
from profkit.compare.captures.pair import Pair, counts_moved, is_within
from profkit.compare.captures.readings import medians, readings, without_slow_step
from profkit.compare.captures.sides import Side, alike, shared_work
from profkit.compare.captures.waits import launches
from profkit.compare.captures.waterfall import per_step
from profkit.compare.stats.judge import DEFAULT_MARGIN, judge
from profkit.compare.stats.sample import Sample
from profkit.compare.stats.sentences import UNLIKE_WINDOWS, of_unlike_windows
from profkit.errors import UnsupportedTraceError
from profkit.findings import changes, kind_of
from profkit.findings.capture import QUALITY, TINY
from profkit.findings.comparison import CASTS, COMPILED, PER_WORK, PRECISION, PRODUCTS, RECOMPUTE, WORK_CHANGED
from profkit.model.documents.comparison import (
    Answer,
    Comparison,
    FindingChange,
    Judgement,
    Presence,
    SideReport,
    Unlike,
    Waterfall,
)
from profkit.model.finding import Finding
from profkit.model.grouped import grouped
from profkit.units import format_bytes, format_count

_NOT_OF_THE_PROGRAM: Final = frozenset({QUALITY.id})
_OTHER_LAUNCHES: Final = frozenset(
    {
        *(WORK_CHANGED.id, COMPILED.id, RECOMPUTE.id, PRODUCTS.id, PRECISION.id, CASTS.id),
        *(changes.ACCUMULATION.id, changes.ATTENTION.id, changes.UPDATES.id, changes.CHANNELS.id, changes.DEVICE.id),
    }
)
"""Readings that say why a side launches more kernels than the other."""
_PRESENCE: Final = {
    (True, True): Presence.BOTH,
    (False, True): Presence.APPEARED,
    (True, False): Presence.VANISHED,
}
"""By whether the baseline and the candidate have it."""
_FEW_STEPS: Final = 2
"""Ratio of recorded steps from which the sides are called unlike (chosen)."""


def compare(baseline: Side, candidate: Side, *, margin: float = DEFAULT_MARGIN) -> Comparison:
    """The comparison of two sides of traces."""
    stepped = tuple(side.name for side in (baseline, candidate) if all(trace.has_steps for trace in side.traces))
    baseline, candidate = sides = alike(baseline, candidate)
    is_unprofiled = all(run.has_unprofiled for side in sides for run in side.runs)
    has_steps = baseline.traces[0].has_steps
    kind = shared_work(sides) if has_steps or is_unprofiled else ""
    unit = "ns/step" if has_steps or is_unprofiled else "ns/window"
    samples = [_sample(side, unit, is_unprofiled=is_unprofiled) for side in sides]
    if kind:
        samples = [_throughput(side, sample, kind) for side, sample in zip(sides, samples, strict=True)]
    pair = Pair(baseline=baseline, candidate=candidate)
    why = readings(pair)
    metric = "recorded window" if unit == "ns/window" else "unprofiled step" if is_unprofiled else "step time"
    metric = f"{kind} per second{' (unprofiled)' if is_unprofiled else ''}" if kind else metric
    work = next((item for item in why if item.id == WORK_CHANGED.id), None) if not kind else None
    if work is not None:
        samples = [samples[0], _per_work(samples[1], pair.waterfall, work)]
        metric = f"{metric} per unit of work"
    judgement = judge(*samples, margin=margin, metric=metric)
    against = (
        f"{work.title}: {work.seen(PER_WORK).statement}" if work is not None else "" if kind else _too_little(sides)
    )
    found = _findings(*sides)
    unseen = [item for item in found if pair.hidden and item.presence is not Presence.BOTH]
    is_same, of_windows = True, ""
    if unit == "ns/window" and not against:
        is_same, of_windows = _windows_hold(pair, stepped=stepped[0] if len(stepped) == 1 else "")
        if pair.lost or not is_same:
            sentence = of_unlike_windows(judgement, *samples)  # what was seen stands, what was tested does not
            judgement = replace(_untested(judgement, sentence, UNLIKE_WINDOWS), method_note="")
    if not against and unit == "ns/step" and not is_unprofiled and (beside := without_slow_step(pair)):
        judgement = replace(judgement, sentence=f"{judgement.sentence}; {beside}")
    caveats = [*_unsaid(pair, unseen, why), *([of_windows] if of_windows and not pair.lost else [])]
    caveats += _caveats(sides, is_unprofiled=is_unprofiled)
    return Comparison(
        judgement=replace(_untested(judgement, against, "not comparable"), is_comparable=False)
        if against
        else judgement,
        baseline=_report(baseline, samples[0]),
        candidate=_report(candidate, samples[1]),
        waterfall=None if pair.lost else pair.waterfall,
        compute=None if pair.hidden else pair.compute,
        comm=pair.comm if not pair.hidden and (pair.comm.baseline_ns or pair.comm.candidate_ns) else None,
        findings=tuple(item for item in found if item not in unseen),
        readings=why,
        unlike=tuple(_unlike(*sides)),
        caveats=tuple(dict.fromkeys(caveats)),
        failures=baseline.failures + candidate.failures,
    )


def _sample(side: Side, unit: str, *, is_unprofiled: bool) -> Sample:
    steps = tuple(
        run.steps_ns(is_unprofiled=is_unprofiled)
        if unit == "ns/step"  # else the longest window stands for the run, as the slowest rank does
        else (max(trace.device.budget.window_ns for trace in run.traces),)
        for run in side.runs
    )
    for run, lengths in zip(side.runs, steps, strict=True):
        if not any(lengths):
            lasting = "steps last" if unit == "ns/step" else "window lasts"
            raise UnsupportedTraceError(f"{run.name}: its {lasting} 0 ns: nothing to compare")
    values = tuple(sum(run) / len(run) for run in steps)
    return Sample(name=side.name, values=values, unit=unit, higher_is_better=False, steps=steps)


def _throughput(side: Side, sample: Sample, kind: str) -> Sample:
    """The work per second of each run: what the script told of a step, over the step's time."""
    works = [run.work[kind] for run in side.runs]
    values = tuple(work * 1e9 / step_ns for work, step_ns in zip(works, sample.values, strict=True))
    return Sample(name=side.name, values=values, unit=f"{kind}/s", higher_is_better=True)


def _too_little(sides: tuple[Side, Side]) -> str:
    """Why a side holds too little to be compared, "" where both hold enough."""
    return next((f"{side.name}: {side.failed[TINY.id][0]}" for side in sides if TINY.id in side.failed), "")


def _per_work(sample: Sample, whole: Waterfall, work: Finding) -> Sample:
    """The times of the candidate as if it did the work of the baseline."""
    ratio = whole.candidate_ns / whole.baseline_ns / work.seen(PER_WORK).value
    steps = tuple(tuple(value / ratio for value in run) for run in sample.steps)
    return replace(sample, values=tuple(value / ratio for value in sample.values), steps=steps)


def _untested(judgement: Judgement, sentence: str, why: str) -> Judgement:
    """The judgement without what was tested: an answer would say too much of what may not be compared, or hardly."""
    return replace(
        judgement,
        answer=Answer.INCONCLUSIVE,
        sentence=sentence,
        interval=None,
        p_value=None,
        minimum_detectable_effect=None,
        runs_to_settle=None,
        test=f"none: {why}",
    )


def _report(side: Side, sample: Sample) -> SideReport:
    traces, runs = side.traces, [run.traces for run in side.runs]
    step = float(per_step(runs, lambda trace: trace.device.budget.window_ns))

    def share(value: Callable[[Measured], int]) -> float:
        return float(per_step(runs, value)) / step if step else 0.0

    return SideReport(
        name=side.name,
        sources=tuple(trace.report.source for trace in traces),
        n_runs=len(side.runs),
        n_traces=len(traces),
        n_steps=sum(trace.report.steps.n for trace in traces) if traces[0].has_steps else 0,
        device=_usual(trace.device.name for trace in traces),
        is_cpu=traces[0].is_cpu,
        bottleneck=_usual(run.bottleneck for run in side.runs),
        late_rank=side.late_rank,
        occupancy={
            "compute": share(lambda trace: trace.device.busy_compute_ns),
            "comm": share(lambda trace: trace.device.busy_comm_ns),
            "copy": share(lambda trace: trace.device.busy_copy_ns),
            "idle": 1 - share(lambda trace: trace.device.busy_any_ns),
        },
        busy_comm_ns=round(per_step(runs, lambda trace: trace.comm.busy_ns)),
        hidden_comm_ns=round(per_step(runs, lambda trace: trace.comm.hidden_ns)),
        peak_memory_bytes=side.peak_bytes,
        run_values=sample.values,
    )


def _usual(values: Iterable[str]) -> str:
    return Counter(values).most_common(1)[0][0]


def _findings(baseline: Side, candidate: Side) -> tuple[FindingChange, ...]:
    """The findings that at least half of a side's runs have, with the mean of their shares there."""
    first, second = _shares(baseline), _shares(candidate)
    titles = {f.id: f.title for side in (baseline, candidate) for trace in side.traces for f in trace.report.findings}
    changes = [
        FindingChange(
            id=name,
            title=titles.get(name) or kind_of(name).title,
            presence=_PRESENCE[name in first, name in second],
            baseline_fraction=first.get(name),
            candidate_fraction=second.get(name),
        )
        for name in dict.fromkeys((*first, *second))
    ]
    return tuple(sorted(changes, key=lambda item: -max(item.baseline_fraction or 0, item.candidate_fraction or 0)))


def _shares(side: Side) -> dict[str, float]:
    of_runs = (item for run in side.runs for item in run.shares.items())
    found = grouped((name, share) for name, share in of_runs if name not in _NOT_OF_THE_PROGRAM)
    return {name: sum(shares) / len(shares) for name, shares in found.items() if 2 * len(shares) >= len(side.runs)}


def _unlike(baseline: Side, candidate: Side) -> Iterable[Unlike]:
    """Name what differs between the sides and may be why they differ, other than the change that was meant."""
    facts: tuple[tuple[str, Callable[[Measured], object]], ...] = (
        ("device", lambda trace: trace.device.name or None),
        ("torch", lambda trace: trace.meta.torch_version),
        ("ranks in the job", lambda trace: trace.meta.world_size),
        ("Python stacks recorded", lambda trace: trace.meta.has_stacks),
        ("shapes recorded", lambda trace: trace.meta.has_shapes),
        ("memory events recorded", lambda trace: trace.meta.has_memory),
        ("steps found by", lambda trace: trace.report.steps.source),
    )
    for what, fact in facts:
        first, second = (_said(fact(trace) for trace in side.traces) for side in (baseline, candidate))
        if first != second and first and second:
            yield Unlike(what=what, baseline=first, candidate=second)
    traces = [len(side.traces) / len(side.runs) for side in (baseline, candidate)]
    if traces[0] != traces[1]:
        yield Unlike(what="traces per run", baseline=format_count(traces[0]), candidate=format_count(traces[1]))
    steps = [sum(trace.n_steps for trace in side.traces) / len(side.traces) for side in (baseline, candidate)]
    if max(steps) >= _FEW_STEPS * min(steps):
        yield Unlike(what="steps recorded", baseline=format_count(steps[0]), candidate=format_count(steps[1]))


def _said(values: Iterable[object]) -> str:
    """The distinct values in words, "" where none is known."""
    words = {True: "yes", False: "no"}
    known = {words[value] if isinstance(value, bool) else str(value) for value in values if value is not None}
    return ", ".join(sorted(known))


def _unsaid(pair: Pair, unseen: Iterable[FindingChange], why: Iterable[Finding]) -> Iterable[str]:
    """What is not said because a trace does not hold it, and what no reading says."""
    if pair.lost:
        yield "records are lost: only the whole time is compared, not what it was spent on"
    elif pair.hidden:
        yield "CUDA graphs hide kernels: which of them changed is not told"
    if (told := launches(pair)) and not {item.id for item in why} & _OTHER_LAUNCHES:
        yield told
    if names := [item.id for item in unseen]:
        yield f"whether these came or went is not known, since records are missing: {', '.join(names)}"


def _windows_hold(pair: Pair, *, stepped: str) -> tuple[bool, str]:
    """Whether windows hold the same work, and what that does to the comparison; `stepped` alone has steps.

    A recording that is cut by the clock is as long as ever, however fast the job is: its length proves nothing. A fixed
    piece of work, recorded whole, runs the same operations; compiled or fused it runs fewer of them, but as many
    products of matrices; and whatever runs for it, it takes the same input.
    """
    share = WORK_CHANGED.limit("window")
    operations = pair.rates(lambda trace: trace.counts.operators)
    products = pair.rates(lambda trace: trace.compute.n_products)
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    found = f"steps were found in {stepped} only" if stepped else "no steps were found"
    if is_within(share, operations):
        text = f"{found}, so the recorded windows are compared; they hold as many operations"
        return True, text if stepped else ""
    is_fused = min(products) >= 1 and is_within(share, products)
    is_same_input = min(copied) >= WORK_CHANGED.limit("input") and is_within(share, copied)  # more than a few scalars
    so = "the same work in other kernels"
    if not is_fused:
        is_input = f"{so}, since both copied {format_bytes(copied[1])} to the device"
        so = is_input if is_same_input else "whether that is the same work is not recorded"
    held = f"{counts_moved(operations, 'operations')}, {counts_moved(products, 'products of matrices')}"
    return is_fused or is_same_input, f"{found}, so the recorded windows are compared: they hold {held}: {so}"


def _caveats(sides: tuple[Side, Side], *, is_unprofiled: bool) -> Iterable[str]:
    if told := medians(sides):
        yield told
    for side in sides:
        yield from (f"{side.name}: {trace.note}" for trace in side.traces if trace.note)
    if {trace.report.source for trace in sides[0].traces} & {trace.report.source for trace in sides[1].traces}:
        yield "both sides have the same file"
    yield from _of_one_recording(sides)
    yield from _failed_checks(sides)
    has_steps = sides[0].traces[0].has_steps
    if not is_unprofiled:
        what = "step times" if has_steps else "times"
        stacks = any(trace.meta.has_stacks for side in sides for trace in side.traces)
        how = ", with Python stacks, which lengthen the host's part most" if stacks else ""
        yield f"{what} were taken with the profiler on{how}; profkit capture also times steps without it"
    if any(len({trace.rank for trace in run.traces}) > 1 for side in sides for run in side.runs):
        what = "the slowest rank's step" if has_steps else "the longest window"
        yield f"first line: {what}; all else: means over ranks"
    if sides[0].traces[0].is_cpu:
        yield "CPU trace: dispatch is estimated"


def _failed_checks(sides: tuple[Side, Side]) -> Iterable[str]:
    """The checks of captures that fail, each once a side, once for both where they say the same.

    Of many ranks they never do: there each is said once, with the message of the first rank that fails.
    """
    said: dict[str, list[str]] = {}
    places: dict[str, list[tuple[str, str, str]]] = {}
    for side in sides:
        for check_id, messages in side.failed.items():
            if len(side.traces) == 1:
                said.setdefault(f"check {check_id} fails: {messages[0]}", []).append(side.name)
            else:
                on = f"{len(messages)} of {len(side.traces)}"
                one = ", one of them: " if len(set(messages)) > 1 else ": "
                places.setdefault(check_id, []).append((side.name, on, one + messages[0]))
    for text, names in said.items():
        yield f"{'both sides' if len(names) > 1 else names[0]}: {text}"
    for check_id, found in places.items():
        where = " and ".join(f"{on} traces of {name}" for name, on, _ in found)
        yield f"check {check_id} fails on {where}{found[0][2]}"


def _of_one_recording(sides: tuple[Side, Side]) -> Iterable[str]:
    """Say that the sides are two ranks of one recording, where each is one trace and their windows overlap."""
    if any(len(side.traces) != 1 for side in sides):
        return
    first, second = (side.traces[0] for side in sides)
    (low, high), (begin, end) = first.span_unix_ns, second.span_unix_ns
    is_one_job = None not in (first.rank, second.rank) and first.meta.world_size == second.meta.world_size
    if is_one_job and first.rank != second.rank and begin < high and low < end:
        yield (
            f"the sides are ranks {first.rank} and {second.rank} of one recording: profkit triage on all its ranks"
            " tells which waits for which"
        )
