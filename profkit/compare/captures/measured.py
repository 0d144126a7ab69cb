"""What a comparison needs of one trace, in KB: its report, its work summed by identity, and a few counts.

The shapes that operators work on are read from the first part of its file: a reader of traces leaves out views.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.compare.captures.counts import Counts, counts_of, op_calls
from profkit.compare.captures.work_rows import Rows, communication, computation
from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import read_chunks
from profkit.ingest.numbers import rank_in_name
from profkit.model.arrays import median
from profkit.model.documents.rank_report import DeviceReport, RankReport
from profkit.model.documents.report import Verdict
from profkit.model.grouped import grouped
from profkit.model.trace import SpanKind, Trace, TraceMeta
from profkit.pipeline import Analysed, analyse, narrowed
from profkit.ranks.reduce.outcome import Outcome, outcome
from profkit.timeline import Facts
from profkit.timeline.steps import edges, steps_in_window, whole_steps

KINDS: Final = ("tokens", "samples")
"""What is counted of a step's work, the best measure first: padding is no work."""
_CAPTURED: Final = "profkit_step_source"  # a key of every trace that profkit captured
_CUT: Final = 0.02
"""Of the time from step to step, which markers leave out from which the last step is cut off. Chosen, as the effect
from which a reading is made."""
_LEAST: Final = 4
"""Marked steps from which the last may be left out. Chosen: three are left, which show what varies."""
SLOW: Final = 2
"""Times the median from which a step is slow. Chosen, as for steps that are start-up."""
_AMONG: Final = 10
"""Steps among which one is alone. Chosen: of fewer, one may well come back in every tenth."""
Shapes = dict[str, float]
"""The mean number of elements of each input of an operator, by operator and place: `aten::mm 0`."""
_SHAPES_BYTES: Final = 4 * 2**20
_MAX_CHUNKS: Final = 8  # some 50,000 operators with shapes
_WITH_SHAPES: Final = b'"Input Dims"'
_OPERATOR: Final = re.compile(
    rb'"name": ?"(aten::\w{1,100})"[^{}]{0,400}"args": ?\{[^{}]{0,6000}?"Input Dims": ?(\[[\[\]0-9, ]{0,2000}\])'
)
_TENSOR: Final = re.compile(rb"\[([0-9, ]{0,200})\]")
_MAX_DIGITS: Final = 12
_BATCH_FIRST: Final = {
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "batch_norm", "group_norm", "max_pool2d", "scaled_dot_product_attention"), 0
    ),
    "embedding": 1,
}
"""The input of an operator whose first dimension is the batch, whatever the model."""


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of the inputs of operators."""

    shapes: Shapes = {}
    batch: int = 0
    """Samples in a batch: the usual first dimension where that is the batch; 0 where no such operator was recorded."""


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """The one step that is slow among many, ns."""

    number: int
    """The job's own number."""
    duration_ns: int
    median_ns: int
    """Of all steps."""
    parts: Mapping[str, int]
    """The parts of the budget in this step; those that it has not are absent on a CPU."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One trace. Sums are over its window, which holds `n_steps` steps (1 where none were found)."""

    meta: TraceMeta
    report: RankReport
    verdict: Verdict
    device: DeviceReport
    n_steps: int
    has_steps: bool
    compute: Rows
    comm: Rows
    counts: Counts
    pid: str
    """Of the process that stepped: traces of one process are not independent runs."""
    rank: int | None
    """By the trace, else by the file's name."""
    span_unix_ns: tuple[int, int]
    """When the window began and ended, by the clock of the host."""
    step_numbers: frozenset[int]
    """The job's own numbers of the steps in the window."""
    op_calls: Mapping[str, int]
    """How often each `aten::` operator began in the window."""
    work: Mapping[str, float] = {}
    """What a step of this rank works on, by kind (tokens, samples): the mean of all that the script told."""
    inputs: Inputs = Inputs()
    """Shapes of the inputs of operators, where they were recorded."""
    outcome: Outcome | None = None
    """What the verdict on all ranks needs of this one; None where it was not asked for."""
    note: str = ""
    """What of the recording is no part of the window."""
    slow: SlowStep | None = None
    whole: Measured | None = None
    """The trace by its window, without steps; where nobody marked these."""

    @property
    def is_marked(self) -> bool:
        """Whether ranges mark its steps."""
        return self.has_steps and self.whole is None

    @property
    def is_cpu(self) -> bool:
        """Whether the CPU is the device."""
        return self.device.kind == "cpu"


def measured(trace: Trace, *, is_one_of_many: bool = False) -> Measured:
    """What is compared of a trace; where steps were found by their period, the window is cut to them.

    Of many it is also summed up for the other ranks.
    """
    unmarked = replace(trace, steps=(), step_source="span") if trace.steps and not trace.is_marked else None
    if trace.step_source == "period":
        trace = narrowed(trace, (0, len(trace.steps)))
    one = _measured(analyse(_without_cut_step(trace)), is_one_of_many=is_one_of_many)
    return one if unmarked is None else replace(one, whole=_measured(analyse(unmarked), is_one_of_many=is_one_of_many))


def _measured(whole: Analysed, *, is_one_of_many: bool) -> Measured:
    facts, report, trace = whole.facts, whole.rank, whole.facts.trace
    named = rank_in_name(trace.meta.source.rpartition("/")[2])
    low, high = trace.window_ns
    return Measured(
        meta=trace.meta,
        report=report,
        verdict=whole.verdict,
        device=max(report.devices, key=lambda item: item.busy_any_ns),
        n_steps=facts.n_steps,
        has_steps=report.steps.n > 0,
        compute=computation(facts),
        comm=communication(facts),
        counts=counts_of(facts, whole.results),
        pid=_pid(trace),
        rank=named if trace.meta.rank is None and named >= 0 else trace.meta.rank,
        span_unix_ns=(trace.origin_unix_ns + low, trace.origin_unix_ns + high),
        step_numbers=frozenset(step.number for step in steps_in_window(trace)),
        op_calls=op_calls(trace),
        work=_work(trace),
        outcome=outcome(whole) if is_one_of_many else None,
        note=whole.note,
        slow=_slow_step(facts),
    )


def _without_cut_step(trace: Trace) -> Trace:
    """The trace without its last marked step, where markers end before the next step begins: its rest is not known."""
    steps = steps_in_window(trace)
    if not trace.is_marked or len(steps) < _LEAST:
        return trace
    start, end = edges(steps)
    if int((start[1:] - end[:-1]).sum()) <= _CUT * int(start[-1] - start[0]):
        return trace
    return replace(trace, window_ns=(trace.window_ns[0], steps[-1].start_ns))


def _slow_step(facts: Facts) -> SlowStep | None:
    """The only step of many that takes twice the median."""
    steps = whole_steps(facts.trace)
    start, end = edges(steps)
    lengths = end - start
    usual = median(lengths) if len(steps) >= _AMONG else 0
    found = np.flatnonzero(lengths > SLOW * usual)
    if not usual or found.size != 1:
        return None
    slow = int(found[0])
    parts = {name: int(times.covered_ns(start, end)[slow]) for name, times in facts.parts.items()}
    if facts.cpu is not None:  # whose parts leave out the host's
        parts["idle_unknown" if facts.cpu.has_no_operators else "idle_host"] = int(lengths[slow]) - sum(parts.values())
    return SlowStep(number=steps[slow].number, duration_ns=int(lengths[slow]), median_ns=usual, parts=parts)


def _work(trace: Trace) -> dict[str, float]:
    """The mean work per step by kind, over all steps that told theirs; empty for a trace of another origin."""
    if _CAPTURED not in trace.meta.metadata:
        return {}
    told = grouped(zip(map(trace.name, trace.work.name.tolist()), trace.work.value.tolist(), strict=True))
    return {kind: sum(told[kind]) / len(told[kind]) for kind in KINDS if kind in told}


def _pid(trace: Trace) -> str:
    rows = np.flatnonzero(trace.spans.kind == SpanKind.STEP)
    thread = int(trace.spans.thread[rows[0]]) if rows.size else int(trace.ops.thread[0]) if len(trace.ops) else -1
    return trace.threads[thread].pid if thread >= 0 else ""


def recorded_inputs(source: str) -> Inputs:
    """The shapes in the first part of a trace file; empty where none were recorded."""
    if not Path(source).is_file():
        return Inputs()
    calls: Counter[tuple[bytes, bytes]] = Counter()
    try:
        for number, chunk in enumerate(
            islice(read_chunks(Path(source), source=source, chunk_bytes=_SHAPES_BYTES), _MAX_CHUNKS)
        ):
            if number == 0 and _WITH_SHAPES not in chunk:
                return Inputs()
            calls.update(_OPERATOR.findall(chunk))
    except ProfkitError:  # the reader has said what is wrong with the file
        return Inputs()
    return Inputs(shapes=_means(calls), batch=_batch(calls))


def _batch(calls: Counter[tuple[bytes, bytes]]) -> int:
    found: Counter[int] = Counter()
    for (name, dims), n_calls in calls.items():
        place = _BATCH_FIRST.get(name.decode().removeprefix("aten::"))
        tensors = _TENSOR.findall(dims) if place is not None else []
        if place is not None and place < len(tensors):
            first = tensors[place].partition(b",")[0].strip()
            if 0 < len(first) <= _MAX_DIGITS:
                found[int(first)] += n_calls
    return found.most_common(1)[0][0] if found else 0


def _means(calls: Counter[tuple[bytes, bytes]]) -> Shapes:
    elements: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for (name, dims), n_calls in calls.items():
        for place, tensor in enumerate(_TENSOR.findall(dims)):
            sizes = tensor.replace(b" ", b"").split(b",")
            if all(0 < len(size) <= _MAX_DIGITS for size in sizes):
                key = f"{name.decode()} {place}"
                elements[key] = elements.get(key, 0.0) + n_calls * float(math.prod(map(int, sizes)))
                counts[key] += n_calls
    return {key: total / counts[key] for key, total in elements.items() if total > 0}
