"""What the operators of a window computed and moved, in which time, and what their roof leaves."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import bare_step_ns, scope_of
from profkit.analyzers.roof import without_work
from profkit.analyzers.roof.distance import Distance, Use, families
from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.model.finding import Skipped
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.names import precision_of
from profkit.model.trace import CallKind, Kind, Trace
from profkit.roof.counted import Counted, counted
from profkit.roof.formulas import PRODUCTS
from profkit.roof.formulas.alignment import misfits
from profkit.roof.roofline import Peak, peak_of, roof_of
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.launch_order import LaunchOrder, Typical
from profkit.timeline.steps import steps_in_window, told

_FORMATS: Final = tuple(Precision)


_ON_MATRIX_UNITS: Final = (Precision.FP16, Precision.BF16, Precision.FP8, Precision.TF32)
_FULL: Final = (Precision.FP32, Precision.FP64)
_MOST_FULL: Final = 100e12
_MOST_HALF: Final = 1000e12
"""FLOP/s that no two CPUs reach. Chosen: 384 cores with two units of 512 bits at 3 GHz, 74 TFLOP/s in fp32; with AMX
14 times as much in bf16. Launches of kernels, taken for their work, reach 360 and 930 TFLOP/s in reference traces."""


def measure(facts: Facts) -> Distance | Skipped:
    """The distance of the busiest device's work from its roof."""
    trace = facts.trace
    work = counted(trace)
    if not work.works:
        return without_work(trace)
    main = facts.main_device
    if main is not None:
        return _of_device(facts, main, work)
    result = _of_cpu(facts, work)
    if _is_elsewhere(result) or facts.calls_in_window(CallKind.LAUNCH).size:
        reason = "the operators ran on a device whose kernels are not in the trace: how long they take is not known"
        return Skipped(reason=reason, how_to_get="record the device as well")
    return result


def _is_elsewhere(result: Distance) -> bool:
    """Whether a product takes less time than any CPU needs: what was recorded is the launch of a kernel."""
    return any(
        use.work.is_matrix
        and (use.least_flops or 0) > use.time_ns * (_MOST_FULL if use.precision in _FULL else _MOST_HALF) * 1e-9
        for use in result.uses
    )


def _of_device(facts: Facts, main: DeviceFacts, work: Counted) -> Distance:
    trace, gpu = facts.trace, facts.trace.gpu
    rows = main.activity.rows[gpu.kind[main.activity.rows] == Kind.COMPUTE]
    low, high = trace.window_ns
    duration = np.maximum(np.minimum(gpu.end_ns[rows], high) - np.maximum(gpu.start_ns[rows], low), 0)
    launch = gpu.launch_row[rows]
    op = np.full(launch.size, -1, np.int64)  # where the trace has no calls, no operator is known
    op[launch >= 0] = facts.op_of_call[launch[launch >= 0]]
    owner = work.owner(op)
    known = owner >= 0
    used = set(distinct_codes(gpu.name[rows]).tolist())
    told_by_name = [precision_of(name) if code in used else None for code, name in enumerate(trace.strings)]
    is_matrix = np.array([precision is not None for precision in told_by_name], np.bool_)[gpu.name[rows]]
    named = _name_of(trace, main.device)
    peak = peak_of(named)
    kernels = _Kernels(
        owner=owner[known],
        name=gpu.name[rows][known],
        duration_ns=(gpu.end_ns[rows] - gpu.start_ns[rows])[known],
        is_start_inside=gpu.start_ns[rows][known] >= low,
    )
    uses = _uses(trace, work, kernels, peak, told_by_name)
    return Distance(
        launches=_typical(trace, main.device, uses, used),
        device=named,
        peak=peak,
        uses=uses,
        operators=work,
        work_ns=int(duration.sum()),
        known_ns=int(duration[known].sum()),
        busy_ns=facts.budget.compute,
        matrix_ns=int(duration[is_matrix].sum()),
        matrix_known_ns=int(duration[is_matrix & _of_products(work, owner)].sum()),
        **_steps(facts),
    )


def _typical(trace: Trace, device: int, uses: tuple[Use, ...], codes: set[int]) -> dict[str, Typical]:
    """A launch of the kernel that each family with a roof loses most in: what a profiler would look at."""
    wanted = {family.kernel for family in families(uses) if family.judged_ns}
    if not wanted:
        return {}
    order = LaunchOrder(trace, device)
    found = {trace.name(code): order.typical(code) for code in codes if trace.name(code) in wanted}
    return {name: launch for name, launch in found.items() if launch is not None}


def _name_of(trace: Trace, device: int) -> str:
    """A device's name; where its number is not among those described, what all of these are called."""
    names = {one.index: one.name for one in trace.meta.devices}
    others = set(names.values())
    return names.get(device, others.pop() if len(others) == 1 else "")


def _of_products(work: Counted, owner: I64) -> NDArray[np.bool_]:
    """Which owners multiply matrices, with FLOPs that are known."""
    product = np.array([call.work.is_matrix and call.work.flops is not None for call in work.works], np.bool_)
    return (owner >= 0) & product[np.maximum(work.kind[np.maximum(owner, 0)], 0)]


class _Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels whose operator counts: its row, the code of their name, their time with what lies beyond the window."""

    owner: I64
    name: NDArray[np.int32]
    duration_ns: I64
    is_start_inside: NDArray[np.bool_]


def _uses(
    trace: Trace, work: Counted, kernels: _Kernels, peak: Peak | None, told_by_name: list[Precision | None]
) -> tuple[Use, ...]:
    """The operators with these kernels, together where name, shapes and number format are the same."""
    if kernels.owner.size == 0:
        return ()
    owners, place = np.unique(kernels.owner, return_inverse=True)
    time = np.bincount(place, kernels.duration_ns, owners.size).astype(np.int64)
    # an operator belongs to the window that its first kernel starts in, with all of its time
    begun = np.bincount(place, ~kernels.is_start_inside, owners.size) == 0
    time[~begun] = 0
    code = _formats(work, owners, place, kernels.name, told_by_name)
    again = work.is_recomputed[owners]
    key = (work.kind[owners] * len(_FORMATS) + code) * 2 + again
    keys, group = np.unique(key, return_inverse=True)
    calls = np.bincount(group, begun, keys.size).astype(np.int64)
    total = np.bincount(group, time, keys.size).astype(np.int64)
    hottest = _hottest(group[place], kernels, keys.size)
    inside = np.flatnonzero(begun)
    inside = inside[np.argsort(group[inside], kind="stable")]
    edges = np.searchsorted(group[inside], np.arange(keys.size + 1))
    made = []
    for index, value in enumerate(keys.tolist()):
        call = work.works[value // 2 // len(_FORMATS)]
        precision = _FORMATS[value // 2 % len(_FORMATS)]
        if calls[index]:
            mine = inside[edges[index] : edges[index + 1]]
            made.append(
                Use(
                    operator=call.name,
                    shapes=call.signature.shapes,
                    work=call.work,
                    precision=precision,
                    n_calls=int(calls[index]),
                    time_ns=int(total[index]),
                    is_recomputed=bool(value % 2),
                    kernel=trace.name(int(hottest[index])) if hottest[index] >= 0 else "",
                    roof=roof_of(call.work, peak, precision) if peak is not None else None,
                    misfits=misfits(call.name, call.signature) if precision in _ON_MATRIX_UNITS else (),
                    rows=owners[mine],
                    row_ns=time[mine],
                )
            )
    return tuple(sorted(made, key=lambda use: -use.time_ns))


def _formats(
    work: Counted, owners: I64, place: NDArray[np.intp], names: NDArray[np.int32], told: list[Precision | None]
) -> I64:
    """The number format of each owner, as a place in `_FORMATS`: of its operands, fp32 products by their kernels' names."""
    base = np.array([_FORMATS.index(call.work.precision) for call in work.works], np.int64)[work.kind[owners]]
    product = np.array([call.work.is_matrix for call in work.works], np.bool_)[work.kind[owners]]
    if not names.size or int(names.min()) < 0:
        return base  # a CPU: no kernels
    is_open = product & (base == _FORMATS.index(Precision.FP32))
    has = {
        precision: np.bincount(place, np.array([one is precision for one in told])[names], owners.size) > 0
        for precision in (Precision.TF32, Precision.FP32)
    }
    by_kernel = np.where(
        has[Precision.TF32],
        _FORMATS.index(Precision.TF32),
        np.where(has[Precision.FP32], _FORMATS.index(Precision.FP32), _FORMATS.index(Precision.UNKNOWN)),
    )
    return np.where(is_open, by_kernel, base)


def _hottest(group: NDArray[np.intp], kernels: _Kernels, n: int) -> I64:
    """Per group the code of the kernel with most time, -1 for none."""
    out = np.full(n, -1, np.int64)
    if int(kernels.name.min()) < 0:
        return out
    width = int(kernels.name.max()) + 1
    pairs, place = np.unique(group * width + kernels.name, return_inverse=True)
    order = np.argsort(np.bincount(place, kernels.duration_ns), kind="stable")
    out[pairs[order] // width] = pairs[order] % width  # the last written is the longest
    return out


def _of_cpu(facts: Facts, work: Counted) -> Distance:
    """Of a CPU: the operators themselves, on the threads that train."""
    assert facts.cpu is not None  # noqa: S101 - there is no device
    trace, ops = facts.trace, facts.trace.ops
    low, high = trace.window_ns
    rows = np.flatnonzero((work.kind >= 0) & is_one_of(ops.thread, training_threads(trace)))
    rows = rows[(ops.start_ns[rows] >= low) & (ops.end_ns[rows] <= high)]
    rows = rows[~facts.cpu.data.contains(ops.start_ns[rows])]
    rows = rows[work.owner(rows) == rows]
    products = rows[_of_products(work, rows)]
    of_products = Intervals.of_rows(ops, products) & facts.cpu.compute
    without = _products_without_shapes(facts, work)
    kernels = _Kernels(
        owner=rows,
        name=np.full(rows.size, -1, np.int32),
        duration_ns=ops.end_ns[rows] - ops.start_ns[rows],
        is_start_inside=np.ones(rows.size, np.bool_),
    )
    known = Intervals.of_rows(ops, rows) & facts.cpu.compute
    return Distance(
        device="CPU",
        peak=None,
        uses=_uses(trace, work, kernels, None, []),
        operators=work,
        work_ns=facts.cpu.compute.total_ns,
        known_ns=known.total_ns,
        busy_ns=facts.budget.compute,
        matrix_ns=(of_products | without).total_ns if without else 0,
        matrix_known_ns=of_products.total_ns if without else 0,
        **_steps(facts),
    )


def _products_without_shapes(facts: Facts, work: Counted) -> Intervals:
    """On a CPU: the compute time of products that later steps tell no shapes of."""
    trace, ops = facts.trace, facts.trace.ops
    if trace.shapes_carried is None or facts.cpu is None:
        return Intervals.empty()
    codes = [code for code in distinct_codes(ops.name).tolist() if trace.name(code) in PRODUCTS]
    rows = np.flatnonzero(is_one_of(ops.name, codes) & (ops.signature < 0))
    rows = rows[is_one_of(ops.thread[rows], training_threads(trace)) & (work.owner(rows) < 0)]
    return Intervals.of_rows(ops, rows) & facts.cpu.compute


def _steps(facts: Facts) -> dict[str, Any]:
    trace = facts.trace
    wanted = {step.index for step in steps_in_window(trace)}
    chosen = [place for place, step in enumerate(trace.steps) if step.index in wanted]
    sums = {name: int(counts[chosen].sum()) for name, counts in told(trace).items() if name != "embedded"}
    bare = bare_step_ns(facts.step_ns, trace.meta.unprofiled_step_ns, trace.meta.profiled_step_ns)
    return {
        "scope": scope_of(facts),
        "step_ns": bare or facts.step_ns,
        "recorded_step_ns": facts.step_ns,
        "n_later_steps": 0 if trace.shapes_carried is None or trace.again is None else len(trace.again.steps),
        "shapes_carried": 1.0 if trace.shapes_carried is None else trace.shapes_carried,
        "told": {name: total for name, total in sums.items() if total},
    }
