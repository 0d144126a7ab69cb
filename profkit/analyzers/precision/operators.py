"""The number formats of a CPU's matrix products, by the recorded types of their operators.

fp32 is what a CPU usually trains in: it is worth a word only where the same steps show that half precision was meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.analyzers.precision import double
from profkit.analyzers.precision.double import Double
from profkit.analyzers.tools import operators as recorded
from profkit.findings.kernels import DOUBLE, FALLBACK
from profkit.model.arrays import I64
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity, Skipped
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.units import format_fraction, format_ns

_CONFIDENCE: Final = 0.7
"""That half precision was meant. Chosen: as where kernels of both formats run on a GPU."""
_MOST_TYPED: Final = 0.9
"""Share of the operators whose types the timed steps must have taken over. Chosen."""


class OperatorPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """Time of matrix products by number format, ns: inside the window, or of later steps that were recorded with types."""

    scope: Scope
    by_format: dict[str, int]
    from_half_ns: int
    """The time of those in fp32 whose second factor was converted from half precision."""
    n_later_steps: int
    """How many later steps the types are from; 0 where they were recorded with the operators."""
    covered_ns: int
    """How much of the window has a product running, whatever its format."""
    has_bf16: bool | None
    """Whether this CPU multiplies in bfloat16; None where the capture did not say."""
    double: Double
    """What works on float64, products or not."""

    @property
    def total_ns(self) -> int:
        """Time of all matrix products, ns."""
        return sum(self.by_format.values())

    def share(self, *formats: Precision) -> float:
        """Share of the products' time in these formats, 0-1."""
        return sum(self.by_format.get(item, 0) for item in formats) / self.total_ns if self.total_ns else 0.0

    @property
    def half_share(self) -> float:
        """Share of the products' time in half precision, 0-1."""
        return self.share(Precision.BF16, Precision.FP16)

    @property
    def full_ns(self) -> int:
        """How much of the window has a product in fp32 running, by its share of their time."""
        return round(self.covered_ns * self.share(Precision.FP32))

    @property
    def from_half_share(self) -> float:
        """Share of the fp32 products' time whose second factor was converted from half precision, 0-1."""
        full_ns = self.by_format.get(Precision.FP32, 0)
        return self.from_half_ns / full_ns if full_ns else 0.0

    @property
    def saves_ns(self) -> int:
        """What half precision saves at most; nothing is said where the CPU has no units for it, or may have none."""
        if not self.has_bf16:
            return 0
        return round(self.full_ns * (1 - FALLBACK.limit("best_ratio")))


def measure(facts: Facts) -> OperatorPrecision | Skipped:
    """Sum products by the type of their operands.

    Of a capture that recorded types in later steps, these are asked: as batches may have other sizes there, the timed
    steps take over few signatures, but number formats stay.
    """
    trace = facts.trace
    typed = trace.again if trace.shapes_carried is not None and trace.again is not None else trace
    without = Skipped(
        analyzer="precision",
        reason="no kernels in this trace, and no matrix product with recorded types",
        how_to_get="record types: profkit capture --shapes, or torch.profiler.profile(record_shapes=True)",
    )
    if not typed.signatures:
        return without
    from profkit.roof.products import product_rows, products  # with formulas: loaded where a trace has types

    found = products(typed)
    # timed steps that took over nearly all types have the places and the times; else the later ones stand for them
    wide = double.measure(facts, scope_of(facts), trace if (trace.shapes_carried or 0) >= _MOST_TYPED else typed)
    if found is None and not wide.ns:
        return without
    rows, ops = product_rows(trace), trace.ops
    device = trace.meta.metadata.get("profkit_device")
    told = device.get("has_bf16") if isinstance(device, dict) else None
    return OperatorPrecision(
        scope=scope_of(facts),
        by_format={name: _time_ns(typed, mine) for name, mine in found.rows.items()} if found else {},
        from_half_ns=_time_ns(typed, found.of(Precision.FP32)[found.from_half]) if found else 0,
        n_later_steps=0 if typed is trace else len(typed.steps),
        covered_ns=Intervals.of(ops.start_ns[rows], ops.end_ns[rows]).clip(*trace.window_ns).total_ns,
        has_bf16=told if isinstance(told, bool) else None,
        double=wide,
    )


def _time_ns(trace: Trace, rows: I64) -> int:
    """Of operators inside the window, each by itself."""
    low, high = trace.window_ns
    return int((np.minimum(trace.ops.end_ns[rows], high) - np.maximum(trace.ops.start_ns[rows], low)).sum())


def rows(facts: Facts, _: OperatorPrecision) -> Mapping[str, Rows]:
    """The products in fp32, and all operators on float64."""
    from profkit.roof.products import products

    found = products(facts.trace)
    full = np.empty(0, np.int64) if found is None else found.of(Precision.FP32)
    ops = facts.trace.ops
    return {
        FALLBACK.id: Rows.of_ops(facts.trace, full, ops.end_ns[full] - ops.start_ns[full]),
        DOUBLE.id: Rows.of_ops(facts.trace, *double.double_rows(facts.trace)),
    }


def judge(result: OperatorPrecision) -> tuple[Finding, ...]:
    """`precision.fp64`; `precision.fallback` where products in fp32 stand beside half precision that was asked for."""
    return (*double.judge(result.double), *_in_full(result))


def _in_full(result: OperatorPrecision) -> Iterator[Finding]:
    is_beside_half = result.half_share >= FALLBACK.limit("meant")
    is_converted = result.from_half_share >= FALLBACK.limit("converted")
    is_worth = result.scope.fraction(result.full_ns) >= FALLBACK.limit("window")
    if result.share(Precision.FP32) < FALLBACK.limit("full") or not is_worth or not (is_beside_half or is_converted):
        return
    yield FALLBACK.found(
        title="some matrix products fall back to fp32"
        if is_beside_half
        else "weights in half precision are multiplied in fp32",
        severity=None if result.has_bf16 else Severity.LOW,
        confidence=_CONFIDENCE,
        recoverable_ns=result.scope.per_step(result.saves_ns),
        fraction=result.scope.fraction(result.saves_ns),
        evidence=(_formats(result), *_converted(result), _worth(result)),
        fix=_fix(result),
        next_tools=(
            recorded(
                result.scope,
                "change that, then record again with types: which products are still in fp32?",
                "matrix products in one number format; profkit compare OLD NEW says what it gave",
                flags="--shapes",
            ),
        ),
    )


def _formats(result: OperatorPrecision) -> Evidence:
    scope = result.scope
    later = f" (types of {result.n_later_steps} later steps)" if result.n_later_steps else ""
    return Evidence.share(
        "precision.full_share",
        result.share(Precision.FP32),
        f"{format_fraction(result.share(Precision.FP32))} of matrix-product time is in fp32, about"
        f" {format_ns(scope.per_step(result.full_ns))} {scope.each},"
        f" {format_fraction(result.half_share)} in half precision{later}",
        expected=f"< {format_fraction(FALLBACK.limit('full'))} if bf16 or fp16 is intended",
    )


def _converted(result: OperatorPrecision) -> Iterator[Evidence]:
    """That weights are kept in half precision and converted for each product; nothing where few are."""
    if result.from_half_share < FALLBACK.limit("converted"):
        return
    yield Evidence.share(
        "precision.from_half_share",
        result.from_half_share,
        f"{format_fraction(result.from_half_share)} of the fp32 products' time is on matrices of sizes that"
        " are converted from half precision in these steps",
    )


def _worth(result: OperatorPrecision) -> Evidence:
    scope = result.scope
    told = {
        None: "the capture does not say whether this CPU multiplies in bf16 (AMX, AVX512-BF16): without such units bf16 is not"
        " faster",
        False: "this CPU has no units for bf16 (AMX, AVX512-BF16): bf16 is not faster here, but conversions cost time",
        True: f"this CPU multiplies in bf16: at best it saves {format_ns(scope.per_step(result.saves_ns))} {scope.each}",
    }
    return Evidence.time("precision.half_saves_ns", result.saves_ns, told[result.has_bf16])


def _fix(result: OperatorPrecision) -> str:
    where = (
        "look for code that asks for fp32: custom_fwd(cast_inputs=torch.float32), a compute dtype left at its default,"
        " .float() before a layer"
    )
    if result.has_bf16 is False:
        return f"{where}; or train in fp32 throughout, which spares the conversions"
    return f"{where}; or cast the modules at load (torch_dtype=torch.bfloat16)"


def present(result: OperatorPrecision) -> Section:
    """Show the formats."""
    made = ((name, ns, ns / result.total_ns) for name, ns in result.by_format.items()) if result.total_ns else ()
    return Section(
        analyzer="precision",
        title="precision of matrix products",
        values={"by_format_ns": dict(result.by_format), "n_later_steps": result.n_later_steps},
        tables=(
            TableView.of(
                "matrix products by number format",
                {"format": "text", "time": "ns", "share": "fraction"},
                tuple(sorted(made, key=lambda row: -row[1])),
                note=f"Of {result.n_later_steps} later steps, recorded with types." if result.n_later_steps else "",
            ),
        ),
    )
