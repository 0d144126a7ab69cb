"""Does the step wait for its data? (docs/method.md)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, idle_before, scope_of
from profkit.analyzers.tools import py_spy_loader
from profkit.findings.input import (
    ANY_FIX,
    LINE_FIXES,
    LOCK_FIX,
    LOCKS,
    MOST_FIXES,
    REPEATED_FIX,
    RESTARTED,
    SAMPLER_FIX,
    STARVED,
)
from profkit.model.arrays import I64, distinct, distinct_codes
from profkit.model.code import OF_THREAD, PlaceShare
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.names import OFF_CORE
from profkit.model.trace import SpanKind, Trace
from profkit.timeline import Facts, IdlePlaces
from profkit.timeline.code import Rows, shares
from profkit.timeline.code.loaders import (
    LoaderCode,
    Repeated,
    Restarts,
    Worker,
    is_by_index,
    loader_code,
    repeated,
    restarts,
    whole_ns,
    workers,
    workers_busy,
)
from profkit.timeline.code.threads import PythonThread, python_threads
from profkit.timeline.host import os_waits
from profkit.timeline.input import loader_ranges
from profkit.timeline.steps import edges, whole_steps
from profkit.units import format_fraction, format_ns, format_speedup

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

ONCE = "once, not every step"
OS_SHARE = 0.05  # chosen: of the waits, from which calls of the operating system are named
WORTH_A_NAME = 0.01  # chosen: a call below a percent explains nothing
UNMARKED = "unmarked"
_ASLEEP, _PLACE = 0.75, 0.55
"""Confidence where no range tells: chosen below 0.9; 0.55 where the host may as well be at work of another kind."""
_LEAST_WORKERS = 3  # chosen: of two, nobody knows which is usual
_SHORT = 0.9  # chosen: of the time that the step takes besides, what workers need for its batch at least
_CROWDED = 0.1  # chosen: of the time, for which the training thread is ready without a core
_EVEN = 1.5  # chosen: times the mean of the steps that wait; below, no step stands out


class InputWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Waits in the input pipeline. `idle_ns` is the part in which the device had nothing to do."""

    scope: Scope
    n_waits: int
    waited_ns: int
    idle_ns: int
    longest_ns: int
    shortest_ns: int
    is_once_a_step: bool
    """Whether one wait, no more, begins in each step of the window, and none beside them."""
    longest_span_ns: tuple[int, int]
    loader: str
    """"single-process", "workers", "thread", "custom", or "unmarked" where no range but its place tells that it is
    input."""
    top_step_share: float
    """Share of all waiting that the worst step holds."""
    n_steps_waiting: int
    n_steps: int
    """Steps that lie wholly in the window."""
    gain_ns: int
    """Idle time that the window would not have without the waits, debts that later gaps pay off included."""
    places: IdlePlaces = IdlePlaces()
    """Where the device is idle."""
    code: LoaderCode = LoaderCode()
    """What the workers run."""
    workers_busy: float | None = None
    """The share (0-1) of their time in which the workers fetch; None where that is not known."""
    workers: tuple[Worker, ...] = ()
    """What each of them took for a batch."""
    restarts: Restarts | None = None
    plain_step_ns: int = 0
    """The mean step without the profiler, else the recorded one."""
    usual_step_ns: int = 0
    """The median one, which holds no start of workers where these are rare."""
    own_share: float | None = None
    """Of the time of the usable cores (0-1) in which this job ran; None where that is not known."""
    is_crowded: bool = False
    """Whether the training thread is often ready without a core."""
    feeders: tuple[PythonThread, ...] = ()
    """The threads of this process that make the batches."""
    host_lines: tuple[PlaceShare, ...] = ()
    """Where this process is while the step waits, the longest first."""
    repeated: Repeated | None = None
    """What each worker does for the samples of all."""
    is_by_index: bool = False
    """Whether the dataset is known to be read by index."""
    os_waits: tuple[tuple[str, int], ...] = ()
    """Calls of the operating system in which the threads spend these waits, (name, ns), the longest first."""

    @property
    def beside(self) -> tuple[PlaceShare, ...]:
        """Where the time goes in the workers, or the thread, that make the batches."""
        if self.loader == "workers":
            return self.code.lines
        return self.feeders[0].lines if self.feeders else ()


def measure(facts: Facts) -> InputWaits | Skipped:
    """Measure the loader's ranges and the idle time below them."""
    trace = facts.trace
    low, high = trace.window_ns
    spans = trace.spans
    rows = np.flatnonzero((spans.kind == SpanKind.LOADER) & (spans.end_ns > low) & (spans.start_ns < high))
    is_unmarked = facts.main_device is not None and not facts.host.input.is_marked
    if rows.size == 0 and not is_unmarked:
        return Skipped(
            analyzer="input",
            reason="no DataLoader ranges in this trace",
            how_to_get=trace.meta.traits.how_to_mark_input,
        )
    waits = facts.cpu.data if facts.cpu is not None else facts.host.loader  # ranges within ranges are one wait
    if not waits and is_unmarked:
        return Skipped(
            analyzer="input",
            reason="no range marks a wait for input, and the host is at work before each copy to the device",
            how_to_get=trace.meta.traits.how_to_mark_input,
        )
    if not waits:
        return Skipped(
            analyzer="input",
            reason="the threads that wait in a DataLoader neither launch work nor mark steps: the trace does not show"
            " whether the step waits for them",
            how_to_get="mark where the training loop waits for a batch: with record_function('get_batch')",
        )
    kind = UNMARKED if is_unmarked else _loader_kind(trace, _of_step(facts, rows))
    worst = int(waits.lengths_ns.argmax())
    per_step = waits.covered_ns(*edges(whole_steps(trace)))
    return InputWaits(
        scope=scope_of(facts),
        n_waits=len(waits),
        waited_ns=waits.total_ns,
        idle_ns=facts.budget.idle_data,
        longest_ns=int(waits.lengths_ns[worst]),
        shortest_ns=int(waits.lengths_ns.min()),
        is_once_a_step=_is_once_a_step(trace, waits.start_ns),
        longest_span_ns=(int(waits.start_ns[worst]), int(waits.end_ns[worst])),
        loader=kind,
        top_step_share=float(per_step.max() / per_step.sum()) if per_step.sum() else 0.0,
        n_steps_waiting=int((per_step > 0).sum()),
        n_steps=per_step.size,
        gain_ns=facts.budget.idle_data if facts.main_device is None else facts.main_device.gains.data_ns,
        places=IdlePlaces() if facts.main_device is None else facts.main_device.places,
        code=loader_code(trace),
        workers_busy=workers_busy(trace),
        workers=workers(trace),
        restarts=restarts(trace),
        plain_step_ns=trace.meta.unprofiled_step_ns or facts.step_ns or 0,
        usual_step_ns=_whole(trace, "profkit_unprofiled_step_ns") or facts.step_ns or 0,
        own_share=_own_share(trace),
        is_crowded=_is_crowded(trace),
        feeders=_feeders(trace) if kind == OF_THREAD else (),
        host_lines=() if facts.code is None else shares(facts.code, _of_host(facts, facts.code)),
        repeated=repeated(trace),
        is_by_index=is_by_index(trace),
        os_waits=os_waits(trace, _waiting_threads(facts, rows), waits),
    )


def _of_step(facts: Facts, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of these ranges that are the step's own, as `loader_ranges` tells; all where none is."""
    mine = rows[loader_ranges(facts.trace.spans, facts.host.threads)[0][rows]]
    return mine if mine.size else rows


def _feeders(trace: Trace) -> tuple[PythonThread, ...]:
    """The threads that put what the step waits for into a queue, the one that it waits for longest first."""
    found = [one for one in python_threads(trace) if one.awaited_ns]
    return tuple(sorted(found, key=lambda one: -one.awaited_ns))


def _whole(trace: Trace, key: str) -> int:
    return whole_ns(trace.meta.metadata.get(key))


def _own_share(trace: Trace) -> float | None:
    told = trace.meta.scheduling
    cores, span_ns, run_ns = (told.get(key) for key in ("cores", "span_ns", "all_run_ns"))
    if not cores or not span_ns or run_ns is None or "children_run_ns" not in told:
        return None
    return min(told.get("ranks", 1) * (run_ns + told["children_run_ns"]) / (cores * span_ns), 1.0)


def _waiting_threads(facts: Facts, rows: NDArray[np.intp]) -> tuple[int, ...]:
    """The threads of these ranges; without any, the one that copies most batches."""
    if rows.size:
        return tuple(distinct_codes(facts.trace.spans.thread[rows]).tolist())
    return facts.host.input.threads


def _is_crowded(trace: Trace) -> bool:
    told = trace.meta.scheduling
    return told.get("wait_ns", 0) >= _CROWDED * told.get("span_ns", 0) > 0


def _rows(facts: Facts, _: InputWaits) -> Mapping[str, Rows]:
    """What the waiting threads do meanwhile: where the process makes its batches itself, that is the dataset's code."""
    return {} if facts.code is None else {STARVED.id: _of_host(facts, facts.code)}


def _of_host(facts: Facts, code: Code) -> Rows:
    spans = facts.trace.spans
    mine = loader_ranges(spans, facts.host.threads)[0]
    threads = distinct_codes(spans.thread[mine]).tolist() or list(facts.host.input.threads)
    waits = facts.cpu.data if facts.main_device is None and facts.cpu is not None else facts.host.loader
    return Rows.of_host(code, threads, waits & facts.parts["idle_data"])


def _places(_: Facts, result: InputWaits) -> Mapping[str, tuple[PlaceShare, ...]]:
    """What the workers do meanwhile, where the step waits for them."""
    return {STARVED.id: result.beside} if result.beside else {}


def _is_once_a_step(trace: Trace, start_ns: I64) -> bool:
    first, last = edges(whole_steps(trace))
    begun = np.searchsorted(start_ns, last) - np.searchsorted(start_ns, first)
    return first.size > 1 and start_ns.size == first.size and bool((begun == 1).all())


def _loader_kind(trace: Trace, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> str:
    names = {trace.name(code) for code in distinct(trace.spans.name[rows])}
    if any("SingleProcess" in name for name in names):
        return "single-process"
    if any("MultiProcessing" in name for name in names):
        return "workers"
    return OF_THREAD if any("batch_of_thread" in name for name in names) else "custom"


def judge(result: InputWaits) -> tuple[Finding, ...]:
    """`input.starved` where the device idles for its input, `input.restarted` where workers are started in each epoch."""
    return (*_starved(result), *_restarted(result))


def _restarted(result: InputWaits) -> tuple[Finding, ...]:
    told, step_ns = result.restarts, result.plain_step_ns
    if told is None or told.n < RESTARTED.limit("starts") or not result.n_steps or not step_ns:
        return ()
    n_batches = result.n_waits / result.n_steps if result.loader == "workers" else 1.0
    cost_ns = told.ns / told.n_batches * max(n_batches, 1 / result.n_steps)
    usual_ns = min(result.usual_step_ns, step_ns)
    share = cost_ns / (usual_ns + cost_ns)
    if share < RESTARTED.limit("window"):
        return ()
    each = told.n_batches / told.n
    often = f"every {each:.0f} batches" if each >= 1.5 else "with each batch"
    start = f"persistent_workers=True: the {told.n_workers} workers of the DataLoader then live on from epoch to epoch"
    if told.is_rebuilt:
        start = f"build the DataLoader once, before the loop over epochs, with {start}"
    return (
        RESTARTED.found(
            fraction=share,
            confidence=0.85,
            recoverable_ns=round(share * step_ns),
            evidence=(
                Evidence(
                    statement=f"workers were started {told.n:,} times after the first, {often}; each time the loop"
                    f" waits {format_ns(told.ns // told.n)}: {format_ns(round(cost_ns))} per step",
                    metric="input.restart_ns",
                    value=float(told.ns),
                    unit="ns",
                ),
            ),
            fix=start,
        ),
    )


def _starved(result: InputWaits) -> tuple[Finding, ...]:
    scope = result.scope
    fraction = scope.fraction(result.idle_ns)
    if fraction < STARVED.limit("window") or _is_handover(result):
        return ()
    per_step = scope.per_step(result.idle_ns)
    idle = f"{format_ns(per_step)} {scope.each}"
    who = (
        f"the training thread waits {idle} for" if scope.is_cpu else f"the GPU is idle {idle} while the host waits for"
    )
    what = "its input" if result.loader in ("custom", OF_THREAD) else "the DataLoader"
    if result.loader == UNMARKED:
        who, what = f"the GPU is idle {idle} before", "batches are copied to it, while the host calls nothing"
    evidence = [
        Evidence(
            statement=f"{who} {what} ({scope.share(result.idle_ns, 'idle_data')} of the window)",
            metric="budget_ns.idle_data",
            value=float(result.idle_ns),
            unit="ns",
            expected=f"< {format_fraction(STARVED.limit('window'))} of the window",
        ),
        Evidence(
            statement=_lengths(result),
            metric="input.waited_ns",
            value=float(result.waited_ns),
            unit="ns",
            span_ns=result.longest_span_ns,
        ),
    ]
    evidence += [
        *_repeats(result),
        *_in_system(result),
        _pattern(result),
        *idle_before(result.places, scope, "idle_data"),
    ]
    title = STARVED.title if result.loader in {"single-process", "workers"} else "the step waits for its input"
    slow = _slow_worker(result)
    if result.feeders:
        title = f"the step waits for the thread {result.feeders[0].shown}, which makes its batches"
    elif slow is not None and slow.n_batches > 1:
        title = f"the step waits for one slow worker of its DataLoader, number {slow.number}"
    is_once = result.top_step_share >= STARVED.limit("once") and scope.n_steps > 2
    return (
        STARVED.found(
            title=f"{title} {ONCE}" if is_once else title,
            confidence=(0.5 if is_once else _confidence(result)) - (0 if scope.has_steps else 0.15),
            recoverable_ns=scope.per_step(result.gain_ns),
            fraction=fraction,
            evidence=tuple(evidence),
            fix=_fix(result),
            next_tools=(py_spy_loader(scope.command),),
        ),
    )


def _confidence(result: InputWaits) -> float:
    """How sure it is that the host waits for input: by ranges, by what it does meanwhile, or by its place alone."""
    if result.loader != UNMARKED:
        return 0.9
    return _ASLEEP if 2 * sum(spent for _, spent in result.os_waits) >= result.waited_ns else _PLACE


def _keeps_up(result: InputWaits) -> bool:
    """Whether the workers have time left: then no batch is late but for those that take long."""
    return result.workers_busy is not None and result.workers_busy < STARVED.limit("busy")


def _falls_short(result: InputWaits) -> bool:
    """Whether workers make batches more slowly than the step takes them, whatever else they do than fetch."""
    left_ns = result.scope.window_ns - result.waited_ns
    return result.code.fetch_ns * result.n_waits > _SHORT * max(len(result.workers), 1) * left_ns


def _is_handover(result: InputWaits) -> bool:
    """Whether the step only takes over, on a CPU, what workers have ready: all waits are about as long as the shortest."""
    if not (result.scope.is_cpu and result.loader == "workers" and _keeps_up(result)):
        return False
    return result.scope.fraction(result.idle_ns - result.n_waits * result.shortest_ns) < STARVED.limit("window")


def _in_system(result: InputWaits) -> list[Evidence]:
    """What the waiting thread does in the operating system meanwhile."""
    total = sum(spent for _, spent in result.os_waits)
    if not result.waited_ns or total < OS_SHARE * result.waited_ns:
        return []
    parts = [(name, spent / result.waited_ns) for name, spent in result.os_waits[:3]]
    named = ", ".join(f"{name} takes {format_fraction(share)}" for name, share in parts if share >= WORTH_A_NAME)
    statement = f"of these waits, {named}: calls of the operating system"
    if parts[0][0] == OFF_CORE:
        statement = (
            f"for {format_fraction(parts[0][1])} of these waits the thread has no core: it sleeps until another thread,"
            " a process or a disk is ready"
        )
    return [
        Evidence(
            statement=statement,
            metric="input.os_wait_ns",
            value=float(total),
            unit="ns",
        )
    ]


def _is_repeating(result: InputWaits) -> bool:
    told = result.repeated if result.loader == "workers" else None
    return told is not None and told.share >= STARVED.limit("line")


def _repeats(result: InputWaits) -> list[Evidence]:
    """That each worker makes the samples of all and drops those that are not its own."""
    told = result.repeated
    if told is None or not _is_repeating(result):
        return []
    return [
        Evidence(
            statement=f"{told.place.name} runs {told.times:.1f} times for each sample that a worker gives, as many as there are"
            f" workers: each seems to make the samples of all {told.n_workers} and to drop the others', with"
            f" {format_fraction(told.share)} of its time",
            metric="input.repeated",
            value=told.times,
            unit="",
            expected="1",
        )
    ]


def _lengths(result: InputWaits) -> str:
    """How often and how long the host waits."""
    shortest, longest = format_ns(result.shortest_ns), format_ns(result.longest_ns)
    if result.n_waits == 1:
        return f"one wait takes {longest}"
    if result.is_once_a_step:
        return (
            f"each step waits once, for {longest}"
            if shortest == longest
            else f"each step waits once, {shortest} to {longest}"
        )
    return f"{result.n_waits:,} waits take {format_ns(result.waited_ns)} in total; the longest takes {longest}"


def _pattern(result: InputWaits) -> Evidence:
    kinds = {
        "single-process": "num_workers=0: the training process makes each batch itself, inside the step",
        "workers": _of_workers(result),
        "custom": "the script itself marks these waits",
        OF_THREAD: _of_thread(result),
        UNMARKED: "no operators and no range of a loader were recorded: that this is input is told by its place",
    }
    where = [kinds[result.loader]]
    if result.loader == "workers" and result.code.words:
        where[0] += f": {result.code.words}"
    if result.n_steps > 1 and not result.is_once_a_step:
        where.append(f"{result.n_steps_waiting} of {result.n_steps} steps wait")
    if result.n_steps > 1 and result.top_step_share * result.n_steps_waiting > _EVEN:
        where.append(f"the step that waits longest has {format_fraction(result.top_step_share)} of all waiting")
    return Evidence(
        statement="; ".join(where),
        metric="input.top_step_share",
        value=result.top_step_share,
        unit="fraction",
    )


def _of_thread(result: InputWaits) -> str:
    """What the thread does that makes the batches."""
    if not result.feeders:
        return "another thread of this process makes the batches"
    one, span_ns = result.feeders[0], result.scope.window_ns
    ran = format_fraction(min(one.run_ns / span_ns, 1.0) if span_ns else 0.0)
    return f"the thread {one.shown} puts them into a queue; it ran for {ran} of the time" + (
        ", and waits for storage, another process or a lock else" if _is_waiting(result) else ""
    )


def _is_waiting(result: InputWaits) -> bool:
    """Whether the thread that makes the batches mostly waits itself."""
    return 2 * result.feeders[0].run_ns < result.waited_ns


def _slow_worker(result: InputWaits) -> Worker | None:
    """The one worker that takes far longer for its batches than the others, which have time left."""
    if result.loader != "workers" or len(result.workers) < _LEAST_WORKERS:
        return None
    *others, slowest = sorted(result.workers, key=lambda one: one.fetch_ns)
    return slowest if slowest.fetch_ns >= STARVED.limit("slow") * others[-1].fetch_ns else None


def _of_workers(result: InputWaits) -> str:
    slow = _slow_worker(result)
    if slow is not None:
        others = format_ns(max(one.fetch_ns for one in result.workers if one is not slow))
        batches = "its one batch" if slow.n_batches == 1 else "a batch"
        return (
            f"worker {slow.number} takes {format_ns(slow.fetch_ns)} for {batches}, the others {others} at most: batches are"
            " taken in turn, so all wait for it"
        )
    if result.workers_busy is None or not _keeps_up(result) or _falls_short(result):
        return "the worker processes of the DataLoader do not keep up"
    busy = format_fraction(result.workers_busy)
    return f"the worker processes of the DataLoader fetch for {busy} of their time: some batches come late"


def _fix(result: InputWaits) -> str:
    """What is to be done about the line that takes most of the time, and what of the loader."""
    of_sampler = sum(one.share for one in result.host_lines if one.place.function == "__iter__")
    if result.is_by_index and of_sampler >= STARVED.limit("line"):  # what iterates then is the sampler
        return SAMPLER_FIX.format(share=format_fraction(of_sampler))
    if _is_repeating(result):
        return REPEATED_FIX
    first = (result.beside or result.host_lines)[:1]
    line = _known_line(result)
    if line is not None and LOCKS.search(line.place.text):
        return LOCK_FIX.format(line.place.name)
    said = (words for one in first for kind, words in LINE_FIXES if kind.search(one.place.text))
    of_line = next(said, "") if first and first[0].share >= STARVED.limit("line") else ""
    if of_line:
        return f"{of_line}; else {_fix_of_loader(result)}"
    return _of_most(result) or _fix_of_loader(result)


def _of_most(result: InputWaits) -> str:
    """What there is against one line that takes nearly all of the time, before what there is of the loader."""
    is_late_alone = result.loader == "workers" and (
        _slow_worker(result) or (_keeps_up(result) and not _falls_short(result))
    )
    first = _known_line(result)
    if first is None or first.share < STARVED.limit("most") or result.loader in (OF_THREAD, UNMARKED) or is_late_alone:
        return ""
    place = first.place
    kinds = (words for kind, words in MOST_FIXES if kind.search(f"{place.text} {place.call}"))
    what = next(kinds, ANY_FIX)
    workers = "more workers second" if result.loader == "workers" else "workers of the DataLoader (num_workers) second"
    return f"{place.name} first, which has {format_fraction(first.share)} of that time: {what}; {workers}"


def _known_line(result: InputWaits) -> PlaceShare | None:
    """The line that takes most of the time, where one does; the loop itself says nothing of what makes the batch."""
    first = next(iter(result.beside or result.host_lines), None)
    if first is None or first.share < STARVED.limit("line") or first.place.function == "<module>":
        return None
    return None if first.of == "" and first.place.text.startswith("for ") else first


def _cheaper(result: InputWaits, else_words: str) -> str:
    """How batches become cheaper: the line first that takes most of the time, where one does."""
    first = _known_line(result)
    if first is None:
        return else_words
    return f"{first.place.name} first, which has {format_fraction(first.share)} of that time"


def _fix_of_loader(result: InputWaits) -> str:
    busy = result.scope.window_ns - result.idle_ns
    if result.loader == "single-process":
        pinned = "" if result.scope.is_cpu else ", pin_memory=True"
        wanted = -(-result.waited_ns // max(busy, 1)) + 1
        ratio = format_speedup(result.waited_ns / max(busy, 1))
        if wanted <= STARVED.limit("workers"):
            return (
                f"set num_workers={wanted} or more (fetching takes {ratio} as long as the rest of the step),"
                f" persistent_workers=True{pinned}"
            )
        # so many may be more than the machine has cores: beyond these, workers take turns
        return (
            f"set num_workers to the cores that training leaves free, persistent_workers=True{pinned}; about {wanted} hide all"
            f" waiting (fetching takes {ratio} as long as the rest of the step), with fewer make batches cheaper as well"
            f" ({_cheaper(result, 'decode once, cache')})"
        )
    if result.loader == UNMARKED:
        return (
            "give the DataLoader workers, or more of them if cores are free (num_workers; 0 makes each batch inside the"
            " step), with persistent_workers=True and pin_memory=True; or make batches cheaper: cached decoding, GPU"
            " decoding"
        )
    on_gpu = "" if result.scope.is_cpu else ", GPU decoding"
    if result.loader == OF_THREAD:
        return _fix_of_thread(result)
    slow = _slow_worker(result)
    if slow is not None:
        return (
            f"find why worker {slow.number} is slow: what it reads (its shard, its storage), or the samples that it got; with"
            " DataLoader(in_order=False) the others go ahead of it"
        )
    if _keeps_up(result) and not _falls_short(result):
        return (
            f"more workers help little, they fetch for {format_fraction(result.workers_busy or 0)} of their time: make the batches that"
            " come late cheaper, or hide them behind a higher prefetch_factor; hand over few large tensors, which are"
            " quicker than many small ones or Python objects"
        )
    cheaper = _cheaper(result, f"cached decoding, larger sequential reads{on_gpu}")
    if result.own_share is not None and result.loader == "workers":
        ran = f"the job runs on {format_fraction(result.own_share)} of the cores' time"
        if result.own_share >= STARVED.limit("free"):
            return f"make batches cheaper: {cheaper}; more workers do not help, {ran} already"
        if not result.is_crowded:
            return f"use more workers: {ran}; or make batches cheaper: {cheaper}"
    return f"use more workers if cores are free, or make batches cheaper: {cheaper}; a higher prefetch_factor helps only where some batches take longer than others"


def _fix_of_thread(result: InputWaits) -> str:
    """Processes where it computes; more threads where it waits."""
    who = result.feeders[0].shown if result.feeders else "that makes them"
    if result.feeders and _is_waiting(result):
        return (
            f"let several threads do what the thread {who} does, each ahead of the step, or read more at a time: it mostly"
            " waits itself; a DataLoader with num_workers does that in processes"
        )
    return (
        f"make the batches in processes (a DataLoader with num_workers), not in the thread {who}: it runs Python, one thread at"
        " a time can; or decode once and store the result"
    )


def present(result: InputWaits) -> Section:
    """Show the waits."""
    return Section(
        analyzer="input",
        title="input pipeline",
        values={
            "n_waits": result.n_waits,
            "waited_ns": result.waited_ns,
            "idle_ns": result.idle_ns,
            "longest_ns": result.longest_ns,
            "loader": result.loader,
            "top_step_share": result.top_step_share,
            "workers_busy": result.workers_busy,
        },
    )


ANALYZER = Analyzer(
    name="input",
    question="does the step wait for its data?",
    needs="DataLoader ranges on the host (written by torch.profiler with CPU activity)",
    measure=measure,
    judge=judge,
    rows=_rows,
    places=_places,
    present=present,
)
