"""What waits in the input pipeline cost, and what makes the batches meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Scope, scope_of
from profkit.findings.input import STARVED
from profkit.model.arrays import I64, coded, distinct, distinct_codes
from profkit.model.code import OF_THREAD, PlaceShare
from profkit.model.finding import Skipped
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts, IdlePlaces
from profkit.timeline.code import Rows, shares, training_functions
from profkit.timeline.code.helpers import (
    LoaderCode,
    PythonThread,
    Repeated,
    Restarts,
    Worker,
    is_by_index,
    loader_code,
    python_threads,
    repeated,
    restarts,
    whole_ns,
    workers,
    workers_busy,
)
from profkit.timeline.host import enclosing_op, os_waits, outermost
from profkit.timeline.input import loader_ranges
from profkit.timeline.scheduled import cored_share, own_share, share_of_cores
from profkit.timeline.steps import edges, whole_steps

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

UNMARKED = "unmarked"
OPERATORS = "operators"
_LEAST_WORKERS = 3  # chosen: of two, nobody knows which is usual
_SHORT = 0.9  # chosen: of the time that the step takes besides, what workers need for its batch at least
_CROWDED = 0.1  # chosen: of the time, for which the training thread is ready without a core
_MOSTLY = 0.5  # chosen: of these waits, more than all else in them
_TAKES_OVER = later(r"^aten::set_$")
"""What gives each tensor that another process handed over its memory, in every version of torch."""


class Handed(msgspec.Struct, frozen=True):
    """What the waiting thread takes over of the workers' tensors, in all of its waits."""

    n: int
    """Tensors of a batch, the median of the waits that take over any."""
    ns: int
    """From the first to the last of a batch, over all waits: the batch was there already."""


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
    """"single-process", "workers", "thread", "custom", "operators" of the step's own thread, or "unmarked" where no range
    but its place tells that it is input."""
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
    step_ns: int = 0
    """The mean recorded step."""
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
    training: frozenset[tuple[str, str]] = frozenset()
    """Files and functions that hold the model, the backward pass or the optimizer."""
    repeated: Repeated | None = None
    """What each worker does for the samples of all."""
    workers_cores: float | None = None
    """Share (0-1) of the usable cores' time in which what this process started ran; None where that is not known."""
    is_by_index: bool = False
    """Whether the dataset is known to be read by index."""
    handed: Handed = Handed(0, 0)
    maker: str = ""
    """The operator that takes most of the time, where operators of the step make its batch."""
    os_waits: tuple[tuple[str, int], ...] = ()
    """Calls of the operating system in which the threads spend these waits, (name, ns), the longest first."""

    @property
    def beside(self) -> tuple[PlaceShare, ...]:
        """Where the time goes in the workers, or the thread, that make the batches."""
        if self.loader == "workers":
            return self.code.lines
        return self.feeders[0].lines if self.feeders else ()

    @property
    def first_line(self) -> PlaceShare | None:
        """The line that takes most of the time in which batches are made, where one does."""
        own = () if self.loader == "workers" else self.host_lines  # it only waits for what workers make
        first = next(iter(self.beside or own), None)
        return first if first is not None and first.share >= STARVED.limit("line") else None

    @property
    def line(self) -> PlaceShare | None:
        """The same, but not the loop itself, which says nothing of what makes the batch."""
        first = self.first_line
        if first is None or first.place.function == "<module>":
            return None
        if not first.place.line and (first.place.file, first.place.function) in self.training:
            return None
        return None if first.of == "" and first.place.text.startswith("for ") else first

    @property
    def is_repeating(self) -> bool:
        """Whether each worker makes the samples of all."""
        return self.loader == "workers" and self.repeated is not None and self.repeated.share >= STARVED.limit("line")

    @property
    def saved_ns(self) -> int:
        """What of the waits a fix saves: all, but where it is known what of the workers' time it spares.

        Then batches come as much faster; where the job has all cores, only what these ran less is won, on each.
        """
        told = self.repeated
        if told is None or not self.is_repeating:
            return self.gain_ns
        spared = told.share * (1 - 1 / told.n_workers)
        is_full = self.own_share is not None and self.own_share >= STARVED.limit("free")
        of = self.workers_cores if is_full and self.workers_cores is not None else 1.0
        return min(self.gain_ns, round(self.scope.window_ns * spared * of))

    @property
    def is_handed_over(self) -> bool:
        """Whether the step waits while many tensors of a batch that is there are taken over one by one."""
        return self.handed.n >= STARVED.limit("tensors") and self.handed.ns >= _MOSTLY * self.waited_ns

    @property
    def has_time_left(self) -> bool:
        """Whether the workers fetch for less than all of their time."""
        return self.workers_busy is not None and self.workers_busy < STARVED.limit("busy")

    @property
    def keeps_up(self) -> bool:
        """Whether workers also make batches as fast as the step takes them: only those that take long come late."""
        left_ns = self.scope.window_ns - self.waited_ns
        needed_ns = self.code.fetch_ns * self.n_waits
        return self.has_time_left and needed_ns <= _SHORT * max(len(self.workers), 1) * left_ns

    @property
    def is_late_for_cores(self) -> bool:
        """Whether workers that have time left are late where the training thread often waits for a core as well."""
        return self.loader == "workers" and self.is_crowded and self.keeps_up and self.slow_worker is None

    @property
    def slow_worker(self) -> Worker | None:
        """The one worker that takes far longer for its batches than the others, which have time left."""
        if self.loader != "workers" or len(self.workers) < _LEAST_WORKERS:
            return None
        *others, slowest = sorted(self.workers, key=lambda one: one.fetch_ns)
        return slowest if slowest.fetch_ns >= STARVED.limit("slow") * others[-1].fetch_ns else None

    @property
    def is_feeder_waiting(self) -> bool:
        """Whether the thread that makes the batches mostly waits itself."""
        return bool(self.feeders) and 2 * self.feeders[0].run_ns < self.waited_ns


def measure(facts: Facts) -> InputWaits | Skipped:
    """Measure the loader's ranges and the idle time below them."""
    trace = facts.trace
    low, high = trace.window_ns
    spans = trace.spans
    rows = np.flatnonzero((spans.kind == SpanKind.LOADER) & (spans.end_ns > low) & (spans.start_ns < high))
    is_unmarked = facts.main_device is not None and not facts.host.input.is_marked
    makers = np.array(facts.host.input.makers, np.intp)
    if rows.size == 0 and not is_unmarked and not makers.size:
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
    unnamed = OPERATORS if makers.size else UNMARKED if is_unmarked else ""
    kind = unnamed or _loader_kind(trace, _of_step(facts, rows))
    whole = facts.cpu.fetching if facts.cpu is not None else waits
    lasts_ns = waits.covered_ns(*whole.sets)
    worst = int(lasts_ns.argmax())
    per_step = waits.covered_ns(*edges(whole_steps(trace)))
    return InputWaits(
        scope=scope_of(facts),
        n_waits=len(whole),
        waited_ns=waits.total_ns,
        idle_ns=facts.budget.idle_data,
        longest_ns=int(lasts_ns[worst]),
        shortest_ns=int(lasts_ns.min()),
        is_once_a_step=_is_once_a_step(trace, whole.start_ns),
        longest_span_ns=(int(whole.start_ns[worst]), int(whole.end_ns[worst])),
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
        step_ns=facts.step_ns or 0,
        usual_step_ns=whole_ns(trace.meta.metadata.get("profkit_unprofiled_step_ns")) or facts.step_ns or 0,
        own_share=own_share(trace),
        is_crowded=cored_share(trace) <= 1 - _CROWDED,
        feeders=_feeders(trace) if kind == OF_THREAD else (),
        host_lines=() if facts.code is None else shares(facts.code, waiting_rows(facts, facts.code)),
        training=frozenset() if facts.code is None else training_functions(facts.code),
        repeated=repeated(trace),
        workers_cores=share_of_cores(trace.meta.scheduling, trace.meta.scheduling.get("children_run_ns")),
        is_by_index=is_by_index(trace),
        handed=_handed(trace, _of_step(facts, rows)) if kind == "workers" else Handed(0, 0),
        maker=_longest_name(trace, makers),
        os_waits=os_waits(trace, _waiting_threads(facts, rows), waits),
    )


def _of_step(facts: Facts, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of these ranges that are the step's own, as `loader_ranges` tells; all where none is."""
    mine = rows[loader_ranges(facts.trace.spans, facts.host.threads)[0][rows]]
    return mine if mine.size else rows


def _handed(trace: Trace, rows: NDArray[np.intp]) -> Handed:
    """What is taken over in these ranges, within the window: the waits are those in it."""
    (low, high), ops, spans = trace.window_ns, trace.ops, trace.spans.take(rows)
    mine = np.flatnonzero(trace.named(ops.name, _TAKES_OVER) & (ops.start_ns >= low) & (ops.end_ns <= high))
    place = enclosing_op(spans, ops.thread[mine], ops.start_ns[mine])
    mine, place = mine[place >= 0], place[place >= 0]
    first, last = np.full(len(spans), np.iinfo(np.int64).max), np.zeros(len(spans), np.int64)
    np.minimum.at(first, place, ops.start_ns[mine])
    np.maximum.at(last, place, ops.end_ns[mine])
    counts = np.bincount(place, minlength=len(spans))
    some = np.flatnonzero(counts)  # of ranges inside each other the outer ones have none
    return Handed(int(np.median(counts[some])), int((last - first)[some].sum())) if some.size else Handed(0, 0)


def _longest_name(trace: Trace, rows: NDArray[np.intp]) -> str:
    """The operator of these, beside those inside them, with most of their time; "" for none."""
    ops = trace.ops.take(rows)
    ops = ops.take(outermost(ops))
    names, place = coded(ops.name)
    total = np.bincount(place, weights=ops.end_ns - ops.start_ns)
    return trace.name(int(names[total.argmax()])) if names.size else ""


def _feeders(trace: Trace) -> tuple[PythonThread, ...]:
    """The threads that put what the step waits for into a queue, the one that it waits for longest first."""
    found = [one for one in python_threads(trace) if one.awaited_ns]
    return tuple(sorted(found, key=lambda one: -one.awaited_ns))


def _waiting_threads(facts: Facts, rows: NDArray[np.intp]) -> tuple[int, ...]:
    """The threads of these ranges; without any, those that make or copy the batches."""
    if rows.size:
        return tuple(distinct_codes(facts.trace.spans.thread[rows]).tolist())
    return facts.host.input.threads


def waiting_rows(facts: Facts, code: Code) -> Rows:
    """What the waiting threads do meanwhile: where the process makes its batches itself, that is the dataset's code."""
    spans = facts.trace.spans
    mine = loader_ranges(spans, facts.host.threads)[0]
    threads = distinct_codes(spans.thread[mine]).tolist() or list(facts.host.input.threads)
    waits = facts.cpu.data if facts.main_device is None and facts.cpu is not None else facts.host.loader
    return Rows.of_host(code, threads, waits & facts.parts["idle_data"])


def _is_once_a_step(trace: Trace, start_ns: I64) -> bool:
    first, last = edges(whole_steps(trace))
    begun = np.searchsorted(start_ns, last) - np.searchsorted(start_ns, first)
    return first.size > 1 and start_ns.size == first.size and bool((begun == 1).all())


def _loader_kind(trace: Trace, rows: NDArray[np.intp]) -> str:
    names = {trace.name(code) for code in distinct(trace.spans.name[rows])}
    if any("SingleProcess" in name for name in names):
        return "single-process"
    if any("MultiProcessing" in name for name in names):
        return "workers"
    return OF_THREAD if any("batch_of_thread" in name for name in names) else "custom"
