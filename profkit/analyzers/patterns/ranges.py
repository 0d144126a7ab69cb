"""Where each pattern stands in a trace: ranges of the host, found by names, numbers and types of operators."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.findings.patterns import CONVERSIONS, CPU_OPERATORS, GC
from profkit.model.arrays import I64, coded, distinct, distinct_codes, is_member, is_one_of, place_among, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.names import FULL_COLLECTION
from profkit.model.table import Table
from profkit.model.trace import CallKind, CpuOps, RuntimeCalls, SpanKind, Spans, Trace
from profkit.redact.later import later
from profkit.timeline import Facts, first_use
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, in_backward
from profkit.timeline.steps import edges, steps_in_window

_NUMBERED: Final = later(r"^Torch-Compiled Region: \d")
_LEAST_STEPS: Final = 3
"""From which a full collection in each step is no chance. Chosen: the collector makes one in hundreds of steps."""
_SEARCH: Final = later(r"search_unused_parameters$")
_SINK: Final = later(r"^_DDPSink|: _DDPSinkBackward$")
_MARKED: Final = later(r"torch::autograd::AccumulateGrad$|reducer::copy_bucket_to_grad$")
_MARKING: Final = later(r"^aten::(?:select|fill_|item)$")
_ASKING: Final = later(r"^c10d::allreduce_$")
_REDUCING: Final = later(r"^\w+:all_?reduce$")
_CAST: Final = later(r"^aten::_to_copy$")
_OPERATOR: Final = later(
    r"^(?!autograd::|torch::autograd|c10d::|cuda|hip|\w+::(?:_?unsafe_view|_?reshape\w*|t|view\w*|transpose|permute|expand\w*"
    r"|as_strided|select|slice|narrow|squeeze|unsqueeze|flatten|unflatten|split\w*|chunk|unbind|detach_?|alias|empty\w*"
    r"|new_empty\w*|resize_\w*|set_|numpy_T|movedim|lift_fresh)$)\w+::\w"
)
"""Operators that work: those that change a shape or take memory do not, and where one lasts the thread did not run."""
_TRACED: Final = later(r"^prims::")
"""What torch.compile runs on fake tensors while it traces."""
_RANDOM: Final = later(r"::(?:rand|normal|uniform|bernoulli|exponential|random_)")
_DROPOUT: Final = later(r"^aten::(?:native_|_fused_)?(?:feature_|alpha_)*dropout_?$")
_NORM: Final = later(r"^aten::(?:cudnn_|native_|miopen_)batch_norm$")
_TRAINED_KERNEL: Final = later(r"bn_fw_tr|batch_norm_collect_statistics|BatchNorm\w*Train", re.IGNORECASE)
_TRAINING_ARGUMENT: Final = 5
_DERIVATIVE: Final = later(r"^aten::\w+_backward$")
"""Formulas of derivatives: with an autograd number of their own, their result is differentiated (create_graph=True)."""
_OF_GRADIENT: Final = later(r"^aten::(?:\w+_)?(?:convolution_backward|\w*attention\w*_backward)$")
IN_ORDER: Final = later(r"^aten::(?:contiguous|reshape)$")
_FLOATING: Final = (Precision.FP64, Precision.FP32, Precision.FP16, Precision.BF16)
_DTYPE_ARGUMENT: Final = 1


class Ranges(Table, frozen=True, kw_only=True):
    """Host ranges of one pattern inside the window, shape (n,) each; some may lie inside others."""

    start_ns: I64
    end_ns: I64
    thread: NDArray[np.int32]
    name: NDArray[np.int32]
    """Codes; -1 of what has no name."""

    @classmethod
    def of(
        cls,
        table: CpuOps | Spans | RuntimeCalls,
        rows: NDArray[Any],
        window_ns: tuple[int, int],
        *,
        start_ns: I64 | None = None,
        end_ns: I64 | None = None,
    ) -> Ranges:
        """These rows of a table, from and to these times where they are given, as far as they touch the window."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        start = table.start_ns[chosen] if start_ns is None else start_ns
        end = table.end_ns[chosen] if end_ns is None else end_ns
        every = cls(start_ns=start, end_ns=end, thread=table.thread[chosen], name=table.name[chosen])
        return every.take((end > window_ns[0]) & (start < window_ns[1]))

    @classmethod
    def joined(cls, *each: Ranges) -> Ranges:
        """All of these."""
        return cls(**{name: np.concatenate([getattr(one, name) for one in each]) for name in cls.__struct_fields__})

    def longest_name(self, trace: Trace) -> str:
        """The name that has most of their time; "" for none."""
        names, place = coded(self.name)
        total = np.bincount(place, weights=self.end_ns - self.start_ns)
        return trace.name(int(names[total.argmax()])) if total.size else ""


def step_threads(facts: Facts) -> tuple[int, ...]:
    """The threads of the step: others may pause as they like."""
    return facts.host.threads if facts.main_device is not None else training_threads(facts.trace)


def _of_kind(facts: Facts, kind: SpanKind) -> Ranges:
    spans = facts.trace.spans
    mine = (spans.kind == kind) & is_one_of(spans.thread, step_threads(facts))
    return Ranges.of(spans, mine, facts.trace.window_ns)


def collections(facts: Facts) -> Ranges:
    """Pauses of Python's garbage collector on the threads of the step."""
    return _of_kind(facts, SpanKind.GC)


def fix_of_collections(facts: Facts, found: Ranges) -> str:
    """A full collection in each step is one that the code asks for: the collector itself makes them far more seldom."""
    steps = steps_in_window(facts.trace)
    begins, _ = edges(steps)
    is_full = facts.trace.named(found.name, FULL_COLLECTION)
    at = distinct(place_among(begins, np.sort(found.start_ns[is_full]), after=True))
    if len(steps) >= _LEAST_STEPS and at.size >= len(steps) - 1:
        return "leave out gc.collect() in the loop: a full collection in each step is one that the code asks for"
    return GC.fixes[0]


def compilations(facts: Facts) -> Ranges:
    """Compilations by torch.compile on the threads of the step."""
    return _of_kind(facts, SpanKind.COMPILING)


def recompilations(facts: Facts) -> Ranges:
    """Compilations of functions that had been compiled before.

    By the numbers of their regions; without numbers all, of which those of the first steps count for nothing, or, without
    steps, none: a first compilation is start-up.
    """
    trace, found = facts.trace, compilations(facts)
    if trace.named(trace.spans.name, _NUMBERED).any():
        return found.take(first_use.recompilations(trace).covered_ns(found.start_ns, found.end_ns) > 0)
    return found if trace.steps else found.take(np.empty(0, np.intp))


def searches(facts: Facts) -> Ranges:
    """DDP's searches for parameters that a step does not use, and on a CPU what else it does only for these.

    That is a node before the backward pass, a mark for each gradient, a look at it, and one more all-reduce, of which
    what comes after all others have ended is waited for.
    """
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, _SEARCH))
    if not rows.size or facts.cpu is None:
        return Ranges.of(ops, rows, trace.window_ns)
    inner = np.flatnonzero(trace.named(ops.name, _MARKING))
    around = np.flatnonzero(trace.named(ops.name, _MARKED))
    first, last = extents(ops, around, inner)
    marked = last > 0
    asked = np.flatnonzero(trace.named(ops.name, _ASKING))
    asked = asked[np.argsort(ops.start_ns[asked], kind="stable")]
    of_search = np.searchsorted(np.sort(ops.start_ns[rows]), ops.start_ns[asked], "right")
    asked = asked[np.append(np.diff(of_search) > 0, True)[: asked.size]]  # the last of each pass
    sinks = np.flatnonzero(trace.named(ops.name, _SINK))
    found = Ranges.of(ops, distinct(np.concatenate((rows, sinks, asked))), trace.window_ns)
    waits = np.concatenate((_last_reductions(facts, ops.start_ns[rows]), np.stack((first[marked], last[marked]), 1)))
    first_row = np.full(len(waits), rows[0])
    thread, name = ops.thread[first_row], ops.name[first_row]
    return Ranges.joined(found, Ranges(start_ns=waits[:, 0], end_ns=waits[:, 1], thread=thread, name=name))


def extents(ops: CpuOps, around: NDArray[Any], inner: NDArray[Any]) -> tuple[I64, I64]:
    """Per operator `around` when the first of the `inner` ones in it begins and the last ends, int64 ns; ends 0 for none."""
    whose = enclosing_op(ops.take(around), ops.thread[inner], ops.start_ns[inner])
    first, last = np.full(around.size, np.iinfo(np.int64).max), np.zeros(around.size, np.int64)
    np.minimum.at(first, whose[whose >= 0], ops.start_ns[inner[whose >= 0]])
    np.maximum.at(last, whose[whose >= 0], ops.end_ns[inner[whose >= 0]])
    return first, last


def _last_reductions(facts: Facts, searched_ns: I64) -> I64:
    """Per search the time in which only the all-reduce that began last before the next search runs, shape (n, 2)."""
    trace, spans = facts.trace, facts.trace.spans
    rows = np.flatnonzero((spans.kind == SpanKind.COMM) & trace.named(spans.name, _REDUCING))
    rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    of_search = np.searchsorted(np.sort(searched_ns), spans.start_ns[rows], "right")
    waits = []
    for mine in np.split(rows, np.flatnonzero(np.diff(of_search)) + 1):
        if mine.size > 1:
            begins = max(int(spans.end_ns[mine[:-1]].max()), int(spans.start_ns[mine[-1]]))
            if begins < spans.end_ns[mine[-1]]:
                waits.append((begins, int(spans.end_ns[mine[-1]])))
    return np.array(waits, np.int64).reshape(-1, 2)


def casts(facts: Facts) -> Ranges | None:
    """Conversions of tensors between floating-point formats; None where no types were recorded.

    Not of one number: torch keeps each number of Python as a double, and converts it in any sum or product.
    """
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, _CAST))
    if not trace.signatures:
        return None
    codes = ops.signature[rows]
    of_casts = [code for code in distinct_codes(codes).tolist() if _is_cast(trace, code)]
    return Ranges.of(ops, rows[is_one_of(codes, of_casts)], trace.window_ns)


def _is_cast(trace: Trace, code: int) -> bool:
    from profkit.roof.formulas.work import precision, type_said  # loaded for traces with shapes

    signature = trace.signatures[code]
    if signature is None or not signature.types or all(side == 1 for side in signature.shape(0)):
        return False
    before, after = signature.types[0], type_said(signature, _DTYPE_ARGUMENT)
    return after is not None and after != before and {precision(before), precision(after)} <= set(_FLOATING)


def fix_of_casts(facts: Facts, found: Ranges) -> str:
    """What there is against these conversions: half precision is no remedy for double."""
    ops = facts.trace.ops
    mine = is_member(ops.start_ns, np.sort(found.start_ns)) & is_one_of(ops.name, distinct_codes(found.name).tolist())
    told = enumerate(facts.trace.signatures)
    codes = [code for code, one in told if one is not None and "double" in one.types[:1]]
    of_double = mine & is_one_of(ops.signature, codes)
    lasts = ops.end_ns - ops.start_ns
    if 2 * int(lasts[of_double].sum()) > int(lasts[mine].sum()):
        return "make the data float32 where it is read (numpy: .astype('float32')): float64 is converted in every step"
    return CONVERSIONS.fixes[0]


def cpu_operators(facts: Facts) -> Ranges | None:
    """Long operators on the threads that feed a GPU that give it nothing and do not wait for it: they work on the CPU.

    Not what the input pipeline or the compiler runs; None where there is no GPU.
    """
    trace, ops, calls = facts.trace, facts.trace.ops, facts.trace.calls
    if facts.main_device is None or trace.named(ops.name, _TRACED).any():
        return None
    is_long = ops.end_ns - ops.start_ns >= CPU_OPERATORS.limit("each")
    rows = np.flatnonzero(is_long & is_one_of(ops.thread, step_threads(facts)) & trace.named(ops.name, _OPERATOR))
    beside = Intervals.of(compilations(facts).start_ns, compilations(facts).end_ns) | facts.host.loader
    rows = rows[~beside.contains(ops.start_ns[rows])]
    asks = np.flatnonzero(calls.kind != CallKind.OTHER)
    for thread in distinct_codes(ops.thread[rows]).tolist():
        at = calls.start_ns[asks[calls.thread[asks] == thread]]
        has_none = place_among(at, ops.end_ns[rows]) == place_among(at, ops.start_ns[rows])
        rows = rows[has_none | (ops.thread[rows] != thread)]
    return Ranges.of(ops, rows, trace.window_ns)


def fix_of_cpu_operators(facts: Facts, found: Ranges) -> str:
    """What there is against these operators, by what takes most of their time."""
    name = found.longest_name(facts.trace)
    if _RANDOM.search(name):
        return f"create the tensors of {name} on the GPU (device='cuda'), or ahead in another thread"
    return f"run {name} on the GPU, on tensors that are there, or ahead of the step in workers of the DataLoader"


def training_mode(facts: Facts) -> Ranges | None:
    """Dropout, and batch normalisation with the statistics of each batch; None where the trace holds a backward pass."""
    if facts.trains:
        return None
    trace, ops = facts.trace, facts.trace.ops
    if len(ops) == 0:
        return trained_norms(facts)
    rows = np.concatenate((np.flatnonzero(trace.named(ops.name, _DROPOUT)), _trained_norms(facts)))
    return Ranges.of(ops, distinct(rows), trace.window_ns)


def trained_norms(facts: Facts) -> Ranges:
    """The batch normalisations of it, without operators the launches of their kernels: they normalise in any mode."""
    trace = facts.trace
    if len(trace.ops):
        return Ranges.of(trace.ops, distinct(_trained_norms(facts)), trace.window_ns)
    calls = _launches(trace, _TRAINED_KERNEL) if facts.is_of_torch else np.empty(0, np.int64)
    return Ranges.of(trace.calls, calls, trace.window_ns)


def _trained_norms(facts: Facts) -> NDArray[np.int64]:
    """Operators of batch normalisation in training mode: by their recorded argument, else by the kernels they launch."""
    trace, ops = facts.trace, facts.trace.ops
    norms = np.flatnonzero(trace.named(ops.name, _NORM))
    trained = codes_with(trace, _TRAINING_ARGUMENT)
    if not trained:
        return around_launches(facts, _TRAINED_KERNEL) if trace.device_indices else norms[:0]
    return norms[is_one_of(ops.signature[norms], trained)]


def codes_with(trace: Trace, place: int) -> list[int]:
    """The codes of arguments of which that one was recorded as True: of a batch normalisation the sixth says that it trains."""
    return [code for code, one in enumerate(trace.signatures) if one is not None and one.text(place) == "True"]


def around_launches(facts: Facts, pattern: re.Pattern[str]) -> NDArray[np.int64]:
    """The innermost operators that launch kernels of such a name."""
    found = facts.op_of_call[_launches(facts.trace, pattern)] if facts.op_of_call.size else np.empty(0, np.int64)
    return distinct(found[found >= 0]).astype(np.int64)


def _launches(trace: Trace, pattern: re.Pattern[str]) -> NDArray[np.int64]:
    """The rows of calls that launch kernels of such a name."""
    gpu = trace.gpu
    return distinct(gpu.launch_row[trace.named(gpu.name, pattern) & (gpu.launch_row >= 0)]).astype(np.int64)


def copies(facts: Facts) -> Ranges:
    """Operators that copy a tensor to have its elements in order.

    Not those of a gradient inside the backward of a convolution or of attention, nor those of torch's attention and of
    installed packages: no line of the script chooses their layout.
    """
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, IN_ORDER))
    of_library = ops.take(np.flatnonzero(trace.named(ops.name, _OF_GRADIENT)))
    rows = rows[enclosing_op(of_library, ops.thread[rows], ops.start_ns[rows]) < 0]
    if facts.code is not None and rows.size:
        from profkit.analyzers.patterns.copies import of_packages  # loaded for traces with stacks

        rows = rows[~is_member(rows, np.sort(of_packages(facts)))]
    return Ranges.of(ops, rows, trace.window_ns)


def recomputed(facts: Facts) -> Ranges | None:
    """Forward operators inside backward nodes, each from where what ran before it had ended: the hooks that run it again.

    None where the trace has no autograd numbers, and where the backward pass itself is differentiated.
    """
    trace, ops = facts.trace, facts.trace.ops
    nodes = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
    if nodes.size == 0 or not bool((ops.sequence[nodes] >= 0).any()):
        return None
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0) & trace.named(ops.name, "aten::"))
    forward = forward[in_backward(trace, forward)]
    around = enclosing_op(ops.take(nodes), ops.thread[forward], ops.start_ns[forward])
    found = Ranges.of(ops, forward, trace.window_ns)
    if found.start_ns.size == 0:
        return found
    if trace.named(ops.name[forward], _DERIVATIVE).any():
        return None
    begins = np.maximum(ops.start_ns[nodes[around]], _last_end(ops, forward))
    return Ranges.of(ops, forward, trace.window_ns, start_ns=begins)


def _last_end(ops: CpuOps, rows: I64) -> I64:
    """Per row: the last end of an operator of its thread before it begins, int64 ns; 0 for none."""
    out = np.zeros(rows.size, np.int64)
    for thread, mine in rows_by_value(ops.thread[rows]):
        ends = np.sort(ops.end_ns[ops.thread == thread], kind="stable")
        place = np.searchsorted(ends, ops.start_ns[rows[mine]], "right") - 1
        out[mine] = np.where(place >= 0, ends[np.maximum(place, 0)], 0)
    return out
