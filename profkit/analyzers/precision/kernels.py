"""The number formats of matrix kernels, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, Vendor, scope_of
from profkit.analyzers.tools import kernel_profile
from profkit.findings.kernels import FALLBACK, MATRIX_RATES, NO_TF32, MatrixRates
from profkit.model.arrays import distinct_codes, is_one_of, of_rows
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, NextTool, Skipped, severity_of
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.kernel_names import told as named
from profkit.model.names import family_of, precision_of, short_name
from profkit.model.trace import Kind, Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.launch_order import LaunchOrder, Typical
from profkit.units import format_fraction, format_ns

_HALF = (Precision.BF16, Precision.FP16, Precision.HALF, Precision.FP8, Precision.FP4, Precision.INT8)
_FULL = (Precision.FP32, Precision.TF32)
_WITH_VECTOR: Final = re.compile(r"gemv|dot_kernel", re.IGNORECASE)
"""Products with a vector: memory limits them, so that half the bytes are what half precision can give."""
_MEMORY_RATIO: Final = 2
_FOR_AMPERE: Final = re.compile(
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
    """The part of that which one line allows to run in TF32: all but fused attention, which chooses for itself."""
    vector_covered_ns: int
    """The part of it with a product with a vector and nothing of the former."""
    hottest_full: str
    hottest_allowable: str
    """Of those that one line allows to run in TF32; "" for none."""
    launches: dict[str, Typical] = {}
    """The typical launch of each of the two."""
    rates: MatrixRates | None
    """None for a device that is not known."""
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
        return round(saved + self.vector_covered_ns * (1 - 1 / _MEMORY_RATIO))


def measure(facts: Facts) -> MatmulPrecision | Skipped:
    """Sum matrix kernels by the format that their names tell."""
    main = facts.main_device
    assert main is not None  # noqa: S101 - of a CPU `operators` measures
    trace, gpu = facts.trace, facts.trace.gpu
    rows = main.activity.rows[of_rows(gpu.kind, main.activity.rows) == Kind.COMPUTE]
    names = gpu.name[rows]
    total = np.bincount(names, weights=gpu.end_ns[rows] - gpu.start_ns[rows], minlength=1).astype(np.int64)
    told = {int(code): precision_of(trace.name(int(code))) for code in np.flatnonzero(total)}
    by_format: dict[str, int] = {}
    for code, precision in told.items():
        if precision is not None:
            by_format[precision] = by_format.get(precision, 0) + int(total[code])
    if not by_format:
        return Skipped(analyzer="precision", reason="no matrix kernels in this trace", how_to_get="nothing to do")
    full, vectors, fp32, allowable = _in_full(trace, told)

    def covered(codes: list[int]) -> Intervals:
        mine = rows[is_one_of(names, codes)]
        return Intervals.of(gpu.start_ns[mine], gpu.end_ns[mine]).clip(*trace.window_ns)

    hottest = [max(codes, key=lambda code: total[code], default=-1) for codes in (full, allowable)]
    order = LaunchOrder(trace, main.device) if full else None
    launches = {trace.name(code): order.typical(code) for code in hottest if order is not None and code >= 0}
    by_fp32 = covered(fp32)
    return MatmulPrecision(
        scope=scope_of(facts),
        by_format=by_format,
        full_covered_ns=covered(full).total_ns,
        fp32_covered_ns=by_fp32.total_ns,
        allowable_ns=covered(allowable).total_ns,
        vector_covered_ns=(covered(vectors) - by_fp32).total_ns,
        hottest_full=trace.name(hottest[0]),
        hottest_allowable=trace.name(hottest[1]),
        launches={name: launch for name, launch in launches.items() if launch is not None},
        rates=_rates(facts, main.device),
        is_for_ampere=any(_FOR_AMPERE.search(trace.name(code)) for code in told),
    )


def _in_full(trace: Trace, told: Mapping[int, Precision | None]) -> tuple[list[int], list[int], list[int], list[int]]:
    """The names in full precision: all, products with a vector, products in fp32, and those that may run in TF32."""
    full = [code for code, precision in told.items() if precision in _FULL and _follows_tensors(trace.name(code))]
    vectors = [code for code in full if _WITH_VECTOR.search(trace.name(code))]
    fp32 = [code for code in full if told[code] is Precision.FP32 and code not in vectors]
    return full, vectors, fp32, [code for code in fp32 if family_of(trace.name(code)) != "attention"]


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
    full, _, _, allowable = _in_full(trace, told)
    found = {}
    for kind, codes in ((FALLBACK, full), (NO_TF32, allowable)):
        mine = rows[is_one_of(gpu.name[rows], codes)]
        found[kind.id] = Rows.of_device(trace, mine, gpu.end_ns[mine] - gpu.start_ns[mine])
    return found


def _rates(facts: Facts, device: int) -> MatrixRates | None:
    name = next((item.name for item in facts.trace.meta.devices if item.index == device), "")
    return next((rates for pattern, rates in MATRIX_RATES if pattern.search(name)), None)


def judge(result: MatmulPrecision) -> tuple[Finding, ...]:
    """`precision.no_tf32`, or `precision.fallback`: full precision among half, or throughout (then it is a question)."""
    full, half = result.share(*_FULL), result.share(*_HALF)
    if full < FALLBACK.limit("full") or result.share(Precision.UNKNOWN) > FALLBACK.limit("unknown"):
        return ()
    is_mixed = half >= FALLBACK.limit("full")
    if not is_mixed and (found := _without_tf32(result)):
        return found
    fraction = result.scope.fraction(result.half_saves_ns)
    if result.scope.fraction(result.full_covered_ns) < FALLBACK.limit("window"):
        return ()
    formats = " and ".join(item for item in _FULL if result.share(item) >= FALLBACK.limit("full")) or "fp32 and tf32"
    confidence = 0.7 if is_mixed else 0.4
    return (
        FALLBACK.found(
            title=f"some matrix kernels fall back to {formats}"
            if is_mixed
            else f"matrix kernels run in {formats}, not in half precision",
            severity=None if is_mixed else severity_of(fraction * confidence),  # it may be intended
            confidence=confidence,
            recoverable_ns=result.scope.per_step(result.half_saves_ns),
            fraction=fraction,
            evidence=(
                _formats(result),
                Evidence(
                    statement=f"hottest kernel: {short_name(result.hottest_full)}",
                    metric="precision.full_ns",
                    value=float(result.full_covered_ns),
                    unit="ns",
                ),
            ),
            fix=_cast(result, "" if is_mixed else formats),
            next_tools=(
                _profile(
                    result,
                    result.hottest_full,
                    "does the kernel use tensor cores at all?",
                    "sm__pipe_tensor_cycles_active near 0 % and FFMA instructions mean the FP32 path",
                ),
            ),
        ),
    )


def _without_tf32(result: MatmulPrecision) -> tuple[Finding, ...]:
    """`precision.no_tf32` where TF32 is there, is not used, and saves enough."""
    scope, saved = result.scope, result.tf32_saves_ns
    fraction = scope.fraction(saved)
    if result.share(Precision.FP32) < NO_TF32.limit("full") or fraction < NO_TF32.limit("window"):
        return ()
    half_ns = max(result.half_saves_ns, saved)
    known = "" if result.rates is None else " on this device"
    return (
        NO_TF32.found(
            confidence=0.6,
            recoverable_ns=scope.per_step(saved),
            fraction=fraction,
            evidence=(
                Evidence(
                    statement=f"fp32 matrix products take {format_ns(scope.per_step(result.allowable_ns))} {scope.each}; TF32 is at most"
                    f" {result.tf32_ratio:g}x as fast{known} and saves at most {format_ns(scope.per_step(saved))}",
                    metric="precision.tf32_saves_ns",
                    value=float(saved),
                    unit="ns",
                    expected=f"< {format_fraction(NO_TF32.limit('window'))} of the window",
                ),
                _formats(result),
                Evidence(
                    statement=f"hottest kernel: {short_name(result.hottest_allowable)}; half precision would save at most"
                    f" {format_ns(scope.per_step(half_ns))} {scope.each}",
                    metric="precision.half_saves_ns",
                    value=float(half_ns),
                    unit="ns",
                ),
            ),
            fix="call torch.set_float32_matmul_precision('high') (convolutions: torch.backends.cudnn.allow_tf32 = True)"
            f" and compare loss or results; torch.autocast in {_half_name(result)} saves more where the model allows it",
            next_tools=(
                _profile(
                    result,
                    result.hottest_allowable,
                    "does the kernel use tensor cores at all?",
                    "sm__pipe_tensor_cycles_active near 0 % and FFMA instructions mean the FP32 path",
                ),
            ),
        ),
    )


def _formats(result: MatmulPrecision) -> Evidence:
    full, half = result.share(*_FULL), result.share(*_HALF)
    others = 1 - full - half
    return Evidence(
        statement=f"{format_fraction(result.share(Precision.FP32))} of matrix-kernel time is in fp32,"
        f" {format_fraction(result.share(Precision.TF32))} in tf32, {format_fraction(half)} in half precision or lower"
        + (f", {format_fraction(others)} in other or unknown formats" if others >= 0.0005 else ""),
        metric="precision.full_share",
        value=full,
        unit="fraction",
        expected=f"< {format_fraction(FALLBACK.limit('full'))} if bf16 or fp16 is intended",
    )


def _profile(result: MatmulPrecision, name: str, purpose: str, look_for: str) -> NextTool:
    launch = result.launches.get(name)
    return kernel_profile(
        result.scope,
        name,
        purpose,
        look_for,
        launch=None if launch is None else launch.before,
        lasts_ns=0 if launch is None else launch.duration_ns,
    )


def _half_name(result: MatmulPrecision) -> str:
    return result.rates.half_name if result.rates is not None else "bfloat16"


def _cast(result: MatmulPrecision, unless_meant: str) -> str:
    """The fix of a fallback; `unless_meant` names the formats that may be intended, "" where half precision is."""
    cast = f"cast the module at load (torch_dtype=torch.{_half_name(result)}) or widen torch.autocast"
    has_fp32 = result.share(Precision.FP32) >= FALLBACK.limit("full")
    if has_fp32 and result.scope.vendor is Vendor.NVIDIA and (result.rates is None or result.rates.tf32 > 1):
        cast += "; where fp32 is intentional: torch.set_float32_matmul_precision('high'), on Ampere or later"
    return (
        f"unless {unless_meant} {'are' if ' and ' in unless_meant else 'is'} intended: {cast}" if unless_meant else cast
    )


def present(result: MatmulPrecision) -> Section:
    """Show the formats."""
    rows = tuple(
        sorted(((name, ns, ns / result.total_ns) for name, ns in result.by_format.items()), key=lambda r: -r[1])
    )
    return Section(
        analyzer="precision",
        title="precision of matrix kernels",
        values={"by_format_ns": dict(result.by_format)},
        tables=(
            TableView(
                title="matrix kernels by number format",
                headers=("format", "time", "share"),
                units=("text", "ns", "fraction"),
                rows=rows,
            ),
        ),
    )
