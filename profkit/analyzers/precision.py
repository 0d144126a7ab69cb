"""In which number format do the matrix kernels run? (docs/method.md)"""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import kernel_profile
from profkit.findings.kernels import FALLBACK
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity, Skipped
from profkit.model.intervals import Intervals
from profkit.model.names import Precision, precision_of, short_name
from profkit.model.trace import Kind
from profkit.timeline import Facts
from profkit.units import format_fraction

_HALF = (Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)
_FULL = (Precision.FP32, Precision.TF32)


class MatmulPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """Time of matrix kernels by number format, ns over the window; kernels of several streams may share time.

    `full_covered_ns` is how much of the window has one in full precision running: more than that it cannot cost.
    """

    scope: Scope
    by_format: dict[str, int]
    full_covered_ns: int
    hottest_full: str

    @property
    def total_ns(self) -> int:
        """Time of all matrix kernels, ns."""
        return sum(self.by_format.values())

    def share(self, *formats: Precision) -> float:
        """Share of matrix-kernel time in these formats, 0-1."""
        return sum(self.by_format.get(item, 0) for item in formats) / self.total_ns if self.total_ns else 0.0


def measure(facts: Facts) -> MatmulPrecision | Skipped:
    """Sum matrix kernels by the format that their names tell."""
    main = facts.main_device
    if main is None:
        return Skipped(
            analyzer="precision",
            reason="no kernels in this trace",
            how_to_get="profile on a GPU: CPU operators do not show their number format",
        )
    gpu = facts.trace.gpu
    rows = main.activity.rows[gpu.kind[main.activity.rows] == Kind.COMPUTE]
    total = np.bincount(gpu.name[rows], weights=gpu.end_ns[rows] - gpu.start_ns[rows], minlength=1).astype(np.int64)
    by_format: dict[str, int] = {}
    is_full = np.zeros(total.size, np.bool_)
    hottest, hottest_ns = "", 0
    for code in np.flatnonzero(total):
        name = facts.trace.name(int(code))
        precision = precision_of(name)
        if precision is None:
            continue
        by_format[precision] = by_format.get(precision, 0) + int(total[code])
        is_full[code] = precision in _FULL
        if is_full[code] and total[code] > hottest_ns:
            hottest, hottest_ns = name, int(total[code])
    if not by_format:
        return Skipped(analyzer="precision", reason="no matrix kernels in this trace", how_to_get="nothing to do")
    full = rows[is_full[gpu.name[rows]]]
    covered = Intervals.of(gpu.start_ns[full], gpu.end_ns[full]).clip(*facts.trace.window_ns)
    return MatmulPrecision(
        scope=scope_of(facts), by_format=by_format, full_covered_ns=covered.total_ns, hottest_full=hottest
    )


def judge(result: MatmulPrecision) -> tuple[Finding, ...]:
    """`precision.fallback`: full precision among half, or full precision throughout (then it is a question)."""
    min_share = FALLBACK.limit("full")
    full, half = result.share(*_FULL), result.share(*_HALF)
    if full < min_share or result.share(Precision.UNKNOWN) > FALLBACK.limit("unknown"):
        return ()
    full_ns = result.full_covered_ns
    is_mixed = half >= min_share
    fraction = result.scope.fraction(full_ns)
    fp32, tf32 = result.share(Precision.FP32), result.share(Precision.TF32)
    if fraction < FALLBACK.limit("window"):
        return ()
    formats = " and ".join(item for item in _FULL if result.share(item) >= min_share) or "fp32 and tf32"
    others = 1 - full - half
    return (
        FALLBACK.found(
            title=f"some matrix kernels fall back to {formats}"
            if is_mixed
            else f"matrix kernels run in {formats}, not in half precision",
            severity=None if is_mixed else Severity.LOW,
            confidence=0.7 if is_mixed else 0.4,
            recoverable_ns=result.scope.per_step(int(full_ns * (1 - FALLBACK.limit("best_ratio")))),
            fraction=fraction,
            evidence=(
                Evidence(
                    statement=f"{format_fraction(fp32)} of matrix-kernel time is in fp32, {format_fraction(tf32)} in tf32,"
                    f" {format_fraction(half)} in half precision or lower"
                    + (f", {format_fraction(others)} in other or unknown formats" if others >= 0.0005 else ""),
                    metric="precision.full_share",
                    value=full,
                    unit="fraction",
                    expected=f"< {format_fraction(min_share)} if bf16 or fp16 is intended",
                ),
                Evidence(
                    statement=f"hottest kernel: {short_name(result.hottest_full)}",
                    metric="precision.full_ns",
                    value=float(full_ns),
                    unit="ns",
                ),
            ),
            fix="cast the module at load (torch_dtype=torch.bfloat16) or widen torch.autocast"
            + ("; if fp32 is intentional: torch.set_float32_matmul_precision('high')" if fp32 >= min_share else ""),
            next_tools=(
                kernel_profile(
                    result.scope,
                    result.hottest_full,
                    "does the kernel use tensor cores at all?",
                    "sm__pipe_tensor_cycles_active near 0 % and FFMA instructions mean the FP32 path",
                ),
            ),
        ),
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


ANALYZER = Analyzer(
    name="precision",
    question="do the matrix kernels run in the intended number format?",
    needs="kernel names",
    measure=measure,
    judge=judge,
    present=present,
)
