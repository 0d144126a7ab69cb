"""The number formats of matrix kernels, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, Vendor, scope_of
from profkit.findings.kernels import FALLBACK, NO_TF32, MatrixRates
from profkit.model.arrays import I64, distinct_codes, is_one_of, of_rows
from profkit.model.finding import Skipped
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.kernel_names import told as named
from profkit.model.names import MEMORY_FAMILIES, family_of, precision_of
from profkit.model.trace import Kind
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.activity import whole_graphs_ns
from profkit.timeline.code import Rows
from profkit.timeline.launch_order import LaunchOrder, Typical
from profkit.timeline.rates import rates_of
from profkit.units import format_fraction

FULL: Final = (Precision.FP32, Precision.TF32)
_WITH_VECTOR: Final = later(r"gemv|dot_kernel", re.IGNORECASE)
"""Products with a vector: memory limits them, so that half the bytes are what half precision can give."""
_MEMORY_RATIO: Final = 2
_DOUBLE: Final = later(r"\bdouble\b|\bfloat64\b", re.IGNORECASE)
_FOR_AMPERE: Final = later(
    r"ampere|hopper|blackwell|sm(?:8\d|9\d|1[0-2]\d)|cutlass(?:3x_sm|_)(?:[89]\d|1[0-2]\d)", re.IGNORECASE
)
"""Kernels that run on devices with TF32 only."""


class MatmulPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """Time of matrix kernels by number format, ns over the window; kernels of several streams may share time.

    `full_covered_ns` is how much of the window has one in full precision running: more than that it cannot cost.
    """

    scope: Scope
    by_format: dict[str, int]
    full_covered_ns: int
    fp32_covered_ns: int
    """The part of it with a product of matrices in fp32."""
    allowable_ns: int
    """The part of that which one line allows to run in TF32: not fused attention, which chooses for itself, not
    convolutions, which may use TF32 unless it is forbidden, and nothing where other products use it already."""
    fp32_convolution_ns: int = 0
    """The part of it in convolutions that found no kernel with tensor cores."""
    memory_ns: int = 0
    """Time of the kernels that memory limits, beside the optimizer's: half precision halves their bytes as well."""
    vector_covered_ns: int
    """The part of it with a product with a vector and nothing of the former."""
    double_ns: int = 0
    """Time in which a kernel in double precision runs, products of matrices or not."""
    hottest_double: str = ""
    hottest_full: str
    hottest_allowable: str
    """Of those that one line allows to run in TF32; "" for none."""
    launches: dict[str, Typical] = {}
    """The typical launch of each of the two."""
    rates: MatrixRates | None
    """None for a device that is not known."""
    is_of_torch: bool = True
    """Whether PyTorch ran: in other programs formats are what their authors wrote."""
    trains: bool = False
    """Whether the trace shows a backward pass or an optimizer."""
    is_for_ampere: bool
    """Whether a kernel ran that runs on devices with TF32 only."""

    @property
    def total_ns(self) -> int:
        """Time of all matrix kernels, ns."""
        return sum(self.by_format.values())

    def share(self, *formats: Precision) -> float:
        """Share of matrix-kernel time in these formats, 0-1."""
        return sum(self.by_format.get(item, 0) for item in formats) / self.total_ns if self.total_ns else 0.0

    @property
    def tf32_ratio(self) -> float:
        """How many times faster TF32 is than fp32 at most; 0 where the device has none, or may have none."""
        if self.rates is not None:
            return self.rates.tf32
        is_nvidia = self.scope.vendor is Vendor.NVIDIA
        return 1 / NO_TF32.limit("ratio") if is_nvidia and self.is_for_ampere else 0.0

    @property
    def tf32_saves_ns(self) -> int:
        """What TF32 saves of the fp32 products at most."""
        return round(self.allowable_ns * (1 - 1 / self.tf32_ratio)) if self.tf32_ratio > 1 else 0

    @property
    def half_saves_ns(self) -> int:
        """What half precision saves of all that runs in full precision at most."""
        half = self.rates.half if self.rates is not None else 1 / FALLBACK.limit("best_ratio")
        tf32_ns = self.full_covered_ns - self.fp32_covered_ns - self.vector_covered_ns
        from_tf32 = half / self.tf32_ratio if self.tf32_ratio else _MEMORY_RATIO
        saved = self.fp32_covered_ns * (1 - 1 / half) + tf32_ns * (1 - 1 / from_tf32)
        by_bytes = self.vector_covered_ns + self.memory_ns * self.share(*FULL)
        return round(saved + by_bytes * (1 - 1 / _MEMORY_RATIO))


def measure(facts: Facts) -> MatmulPrecision | Skipped:
    """Sum matrix kernels by the format that their names tell."""
    main = facts.main_device
    assert main is not None  # noqa: S101 - of a CPU `operators` measures
    trace, gpu = facts.trace, facts.trace.gpu
    hidden_ns = whole_graphs_ns(trace, main.activity.rows) or 0
    if hidden_ns > FALLBACK.limit("unknown") * facts.window_ns:  # kernels of unknown formats
        reason = f"{format_fraction(hidden_ns / facts.window_ns)} of the window is CUDA graphs without their kernels"
        return Skipped(analyzer="precision", reason=reason, how_to_get="profkit nsys --also graphs -- COMMAND")
    rows = main.activity.rows[of_rows(gpu.kind, main.activity.rows) == Kind.COMPUTE]
    names = gpu.name[rows]
    total = np.bincount(names, weights=gpu.end_ns[rows] - gpu.start_ns[rows], minlength=1).astype(np.int64)
    told = {int(code): precision_of(trace.name(int(code))) for code in np.flatnonzero(total)}
    by_format: dict[str, int] = {}
    for code, precision in told.items():
        if precision is not None:
            by_format[precision] = by_format.get(precision, 0) + int(total[code])
    double = [
        code
        for code, kind in told.items()
        if (kind is Precision.FP64 or _DOUBLE.search(trace.name(code))) and _follows_tensors(trace.name(code))
    ]
    if not by_format and not double:
        return Skipped(analyzer="precision", reason="no matrix kernels in this trace", how_to_get="nothing to do")
    parts = _in_full(facts, rows, told)
    full, allowable = parts.full, parts.allowable
    in_memory = [code for code in told if family_of(trace.name(code)) in MEMORY_FAMILIES and told[code] is None]

    def covered(codes: list[int]) -> Intervals:
        mine = rows[is_one_of(names, codes)]
        return Intervals.of(gpu.start_ns[mine], gpu.end_ns[mine]).clip(*trace.window_ns)

    hottest = [max(codes, key=lambda code: total[code], default=-1) for codes in (full, allowable, double)]
    order = LaunchOrder(trace, main.device) if full or double else None
    launches = {trace.name(code): order.typical(code) for code in hottest if order is not None and code >= 0}
    by_fp32, by_full = covered(parts.fp32), covered(full)
    return MatmulPrecision(
        scope=scope_of(facts),
        by_format=by_format,
        full_covered_ns=by_full.total_ns,
        fp32_covered_ns=by_fp32.total_ns,
        allowable_ns=covered(allowable).total_ns,
        fp32_convolution_ns=covered(parts.convolutions).total_ns,
        memory_ns=(covered(in_memory) - by_full).total_ns,
        vector_covered_ns=(covered(parts.vectors) - by_fp32).total_ns,
        double_ns=covered(double).total_ns,
        hottest_double=trace.name(hottest[2]),
        hottest_full=trace.name(hottest[0]),
        hottest_allowable=trace.name(hottest[1]),
        launches={name: launch for name, launch in launches.items() if launch is not None},
        rates=rates_of(trace, main.device),
        is_of_torch=facts.is_of_torch,
        trains=facts.trains,
        is_for_ampere=any(_FOR_AMPERE.search(trace.name(code)) for code in told),
    )


class _InFull(msgspec.Struct, frozen=True):
    """Codes of the names of matrix kernels in full precision."""

    full: list[int]
    vectors: list[int]
    """Products with a vector."""
    fp32: list[int]
    """Products of matrices in fp32."""
    convolutions: list[int]
    """Those of them that are convolutions."""
    allowable: list[int]
    """Those of them that one line allows to run in TF32."""


def _in_full(facts: Facts, rows: I64, told: Mapping[int, Precision | None]) -> _InFull:
    name = facts.trace.name
    full = [code for code, precision in told.items() if precision in FULL and _follows_tensors(name(code))]
    vectors = [code for code in full if _WITH_VECTOR.search(name(code))]
    fp32 = [code for code in full if told[code] is Precision.FP32 and code not in vectors]
    of_convolutions = _launched_by_convolutions(facts, rows, full)
    families = {code: "convolution" if code in of_convolutions else family_of(name(code)) for code in full}
    uses_tf32 = any(told[code] is Precision.TF32 and families[code] == "matmul" for code in full)
    return _InFull(
        full=full,
        vectors=vectors,
        fp32=fp32,
        convolutions=[code for code in fp32 if families[code] == "convolution"],
        allowable=[code for code in fp32 if not uses_tf32 and families[code] not in {"attention", "convolution"}],
    )


def _launched_by_convolutions(facts: Facts, rows: I64, codes: list[int]) -> set[int]:
    """The names that operators of convolutions launch more often than others do: cuDNN calls plain products as well."""
    trace, gpu = facts.trace, facts.trace.gpu
    mine = rows[is_one_of(gpu.name[rows], codes) & (gpu.launch_row[rows] >= 0)] if facts.op_of_call.size else rows[:0]
    op = facts.op_of_call[gpu.launch_row[mine]] if mine.size else mine
    mine, op = mine[op >= 0], op[op >= 0]
    ops = trace.ops.name[op]
    wanted = [int(code) for code in distinct_codes(ops) if family_of(trace.name(int(code))) == "convolution"]
    every, convolved = (
        np.bincount(gpu.name[kept], minlength=len(trace.strings)) for kept in (mine, mine[is_one_of(ops, wanted)])
    )
    return {code for code in codes if 2 * convolved[code] > every[code]}


def _follows_tensors(kernel: str) -> bool:
    """Whether torch or a library chose a kernel by the tensors' type; the format of others is their author's choice."""
    return bool(named(kernel).library) or "at::native" in kernel


def rows(facts: Facts, result: MatmulPrecision) -> Mapping[str, Rows]:
    """The matrix kernels in full precision; for TF32 those that one line allows to run in it."""
    main, trace, gpu = facts.main_device, facts.trace, facts.trace.gpu
    if main is None:
        return {}
    rows = main.activity.rows[gpu.kind[main.activity.rows] == Kind.COMPUTE]
    told = {int(code): precision_of(trace.name(int(code))) for code in distinct_codes(gpu.name[rows])}
    parts = _in_full(facts, rows, told)
    found = {}
    for kind, codes in ((FALLBACK, parts.full), (NO_TF32, parts.allowable)):
        mine = rows[is_one_of(gpu.name[rows], codes)]
        found[kind.id] = Rows.of_device(trace, mine, gpu.end_ns[mine] - gpu.start_ns[mine])
    return found
