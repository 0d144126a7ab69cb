"""The number formats of matrix kernels, by their names, and what is to be done about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Vendor, scope_of
from profkit.analyzers.precision.operators import ByFormat
from profkit.analyzers.tools import typical_profile
from profkit.findings.kernels import DOUBLE, FALLBACK, NO_TF32, MatrixRates
from profkit.model.arrays import I64, distinct_codes, is_one_of, of_rows
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, NextTool, Skipped, severity_of
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.kernel_names import told as named
from profkit.model.names import MEMORY_FAMILIES, family_of, precision_of, short_name
from profkit.model.trace import Kind
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.activity import whole_graphs_ns
from profkit.timeline.code import Rows
from profkit.timeline.launch_order import LaunchOrder, Typical
from profkit.timeline.rates import HALF, rates_of
from profkit.units import format_fraction, format_ns

FULL: Final = (Precision.FP32, Precision.TF32)
_WITH_VECTOR: Final = later(r"gemv|dot_kernel", re.IGNORECASE)
"""Products with a vector: memory limits them, so that half the bytes are what half precision can give."""
_MEMORY_RATIO: Final = 2
_DOUBLE: Final = later(r"\bdouble\b|\bfloat64\b", re.IGNORECASE)
_FOR_AMPERE: Final = later(
    r"ampere|hopper|blackwell|sm(?:8\d|9\d|1[0-2]\d)|cutlass(?:3x_sm|_)(?:[89]\d|1[0-2]\d)", re.IGNORECASE
)
"""Kernels that run on devices with TF32 only."""


class MatmulPrecision(ByFormat, frozen=True, kw_only=True):
    """Time of matrix kernels by number format, ns over the window; kernels of several streams may share time.

    `full_covered_ns` is how much of the window has one in full precision running: more than that it cannot cost.
    """

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
    launches: Mapping[str, Typical] = {}
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
    def tf32_ratio(self) -> float:
        """How many times faster TF32 is than fp32 at most; 0 where the device has none, or may have none."""
        if self.rates is not None:
            return self.rates.tf32
        is_nvidia = self.scope.vendor is Vendor.NVIDIA
        return 1 / NO_TF32.limit("ratio") if is_nvidia and self.is_for_ampere else 0.0

    @property
    def gains_by_half(self) -> bool:
        """Whether the device multiplies faster in half precision than in fp32, as far as it is known."""
        return self.rates is None or self.rates.half > 1

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
        return Skipped(reason=reason, how_to_get="profkit nsys --also graphs -- COMMAND")
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
        return Skipped(reason="no matrix kernels in this trace", how_to_get="nothing to do")
    parts = _in_full(facts, rows, told)
    full, allowable = parts.full, parts.allowable
    in_memory = [code for code in told if family_of(trace.name(code)) in MEMORY_FAMILIES and told[code] is None]

    def covered(codes: list[int]) -> Intervals:
        mine = rows[is_one_of(names, codes)]
        return Intervals.of_rows(gpu, mine).clip(*trace.window_ns)

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


def judge(result: MatmulPrecision) -> tuple[Finding, ...]:
    """`precision.fp64`; `precision.no_tf32`, or `precision.fallback`, full precision among half or throughout."""
    return (*_in_double(result), *_in_full_precision(result)) if result.is_of_torch else ()


def _in_double(result: MatmulPrecision) -> Iterator[Finding]:
    scope, fraction = result.scope, result.scope.fraction(result.double_ns)
    if fraction < DOUBLE.limit("window"):
        return
    yield DOUBLE.found(
        confidence=0.6,
        recoverable_ns=scope.per_step(round(result.double_ns * (1 - DOUBLE.limit("ratio")))),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "precision.double_ns",
                result.double_ns,
                f"kernels in double precision run for {scope.time(result.double_ns)}"
                f", {format_fraction(fraction)} of the window; the hottest is {short_name(result.hottest_double)}",
                expected="0, unless it is needed",
            ),
        ),
        fix=f"unless it is needed: {DOUBLE.fixes[0]}; {DOUBLE.fixes[1]}",
        next_tools=(
            _profile(
                result,
                result.hottest_double,
                "does the kernel wait for the fp64 units?",
                "the FP64 pipe is the busiest, and DFMA or DADD instructions",
            ),
        ),
    )


def _in_full_precision(result: MatmulPrecision) -> Iterator[Finding]:
    full, half = result.share(*FULL), result.share(*HALF)
    if full < FALLBACK.limit("full") or result.share(Precision.UNKNOWN) > FALLBACK.limit("unknown"):
        return
    is_mixed = half >= FALLBACK.limit("full")
    scope, saved = result.scope, result.tf32_saves_ns
    has_fp32 = result.share(Precision.FP32) >= NO_TF32.limit("full")
    if not is_mixed and has_fp32 and scope.fraction(saved) >= NO_TF32.limit("window"):
        yield _without_tf32(result, saved)
        return
    fraction = scope.fraction(result.half_saves_ns)
    if scope.fraction(result.full_covered_ns) < FALLBACK.limit("window") or not result.gains_by_half:
        return
    formats = " and ".join(item for item in FULL if result.share(item) >= FALLBACK.limit("full")) or "fp32 and tf32"
    confidence = 0.7 if is_mixed else 0.4
    yield FALLBACK.found(
        title=f"some matrix kernels fall back to {formats}"
        if is_mixed
        else f"matrix kernels run in {formats}, not in half precision",
        severity=None if is_mixed else severity_of(fraction * confidence),  # it may be intended
        confidence=confidence,
        recoverable_ns=scope.per_step(result.half_saves_ns),
        fraction=fraction,
        evidence=(
            _formats(result),
            Evidence.time(
                "precision.full_ns", result.full_covered_ns, f"hottest kernel: {short_name(result.hottest_full)}"
            ),
            _half_saves(result),
        ),
        fix=_cast(result, "" if is_mixed else formats),
        proof=f"Run the module under torch.autocast('cuda', dtype=torch.{_half_name(result)}) and compare kernel name"
        " and time.",
        next_tools=(
            _tried(result, result.hottest_full, "bf16")
            if _has_tensor_cores(result)
            else _profile(
                result,
                result.hottest_full,
                "does the kernel wait for memory, or for the fp32 units?",
                "memory throughput above 80 % of peak: half the bytes help; FMA pipe above 80 %: they do not",
            ),
        ),
    )


def _without_tf32(result: MatmulPrecision, saved: int) -> Finding:
    """`precision.no_tf32`: TF32 is there, and is not used."""
    scope, half_ns = result.scope, max(result.half_saves_ns, saved)
    known = "" if result.rates is None else " on this device"
    return NO_TF32.found(
        confidence=0.6,
        recoverable_ns=scope.per_step(saved),
        fraction=scope.fraction(saved),
        evidence=(
            Evidence.time(
                "precision.tf32_saves_ns",
                saved,
                f"fp32 matrix products take {scope.time(result.allowable_ns)}; TF32 is at most"
                f" {result.tf32_ratio:g}x as fast{known} and saves at most {format_ns(scope.per_step(saved))}",
                expected=f"< {format_fraction(NO_TF32.limit('window'))} of the window",
            ),
            _formats(result),
            Evidence.time(
                "precision.half_saves_ns",
                half_ns,
                f"hottest kernel: {short_name(result.hottest_allowable)}; half precision would save at most"
                f" {scope.time(half_ns)}",
            ),
        ),
        fix="call torch.set_float32_matmul_precision('high') (convolutions: torch.backends.cudnn.allow_tf32 = True)"
        f" and compare loss or results; torch.autocast in {_half_name(result)} saves more where the model allows it",
        next_tools=(_tried(result, result.hottest_allowable, "tf32"),),
    )


def _formats(result: MatmulPrecision) -> Evidence:
    full, half = result.share(*FULL), result.share(*HALF)
    others = 1 - full - half
    return Evidence.share(
        "precision.full_share",
        full,
        f"{format_fraction(result.share(Precision.FP32))} of matrix-kernel time is in fp32,"
        f" {format_fraction(result.share(Precision.TF32))} in tf32, {format_fraction(half)} in half precision or lower"
        + (f", {format_fraction(others)} in other or unknown formats" if others >= 0.0005 else ""),
        expected=f"< {format_fraction(FALLBACK.limit('full'))} if bf16 or fp16 is intended",
    )


def _half_saves(result: MatmulPrecision) -> Evidence:
    by_bytes = result.scope.per_step(result.memory_ns)
    others = f", of which kernels that memory limits ({format_ns(by_bytes)}) at most half" if by_bytes else ""
    return Evidence.time(
        "precision.half_saves_ns",
        result.half_saves_ns,
        f"half precision saves at most {result.scope.time(result.half_saves_ns)}{others}",
    )


def _tried(result: MatmulPrecision, name: str, change: str) -> NextTool:
    """What comes next: of a kernel whose name leaves open whether tensor cores multiply, that question.

    Else the change itself, tried; and what limits the kernel where it cannot be tried.
    """
    scope = result.scope
    if named(name).on_matrix_units is None:
        purpose, look_for = "does the kernel use tensor cores at all?", "FFMA instructions mean the FP32 path"
        return _profile(result, name, purpose, f"sm__pipe_tensor_cycles_active near 0 % and {look_for}")
    is_there = change == "tf32" or _half_name(result) == "bfloat16"
    if not is_there or scope.vendor is not Vendor.NVIDIA or not scope.command.may_run_python:
        look_for = "the busier of compute and memory: a smaller format gains by its rate, or by its bytes"
        return _profile(result, name, "what limits the kernel?", look_for)
    in_words = "bf16 under autocast" if change == "bf16" else "TF32"
    return NextTool(
        name="profkit try",
        line=scope.command.under("profkit try --only", change),
        purpose=f"how much faster are the steps in {in_words}?",
        look_for="the gain with its interval, and whether the losses stay as they are",
    )


def _profile(result: MatmulPrecision, name: str, purpose: str, look_for: str) -> NextTool:
    return typical_profile(result.scope, name, result.launches.get(name), purpose, look_for)


def _half_name(result: MatmulPrecision) -> str:
    return result.rates.half_name if result.rates is not None else "bfloat16"


def _has_tensor_cores(result: MatmulPrecision) -> bool:
    return result.rates is None or result.rates.has_tensor_cores


def _cast(result: MatmulPrecision, unless_meant: str) -> str:
    """The fix of a fallback; `unless_meant` names the formats that may be intended, "" where half precision is."""
    name, autocast = _half_name(result), f"torch.autocast('cuda', dtype=torch.{_half_name(result)})"
    if not unless_meant:
        cast = f"widen torch.autocast to the module that is left out, or cast it: .to(torch.{name})"
    elif result.trains:  # weights that are cast lose small updates
        cast = f"run forward and loss in {autocast}" + (", with torch.amp.GradScaler" if name == "float16" else "")
    else:
        cast = f"cast the module at load (torch_dtype=torch.{name}), or run it in {autocast}"
    uses_cores = result.scope.vendor is Vendor.NVIDIA and _has_tensor_cores(result)
    if uses_cores and result.fp32_convolution_ns >= FALLBACK.limit("full") * result.total_ns:
        cast += "; keep model and batches in channels_last: more convolutions find kernels with tensor cores"
    if result.scope.fraction(result.tf32_saves_ns) >= NO_TF32.limit("window"):
        cast += "; where fp32 is intentional: torch.set_float32_matmul_precision('high'), on Ampere or later"
    return (
        f"unless {unless_meant} {'are' if ' and ' in unless_meant else 'is'} intended: {cast}" if unless_meant else cast
    )


def present(result: MatmulPrecision) -> Section:
    """Show the formats."""
    return Section(
        title="precision of matrix kernels",
        values={"by_format_ns": dict(result.by_format)},
        tables=(result.table("matrix kernels by number format"),),
    )
