"""The number formats of a CPU's matrix products, by the recorded types of their operators, and work on double precision.

fp32 is what a CPU usually trains in: it is worth a word only where the same steps show that half precision was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.analyzers.tools import operators as recorded
from profkit.findings.kernels import DOUBLE, FALLBACK
from profkit.model.arrays import I64, Bool, distinct_codes, is_member, is_one_of
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity, Skipped
from profkit.model.intervals import Intervals
from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import BACKWARD_NODE, self_times_ns
from profkit.units import format_fraction

_CONFIDENCE: Final = 0.7
"""That half precision was meant. Chosen: as where kernels of both formats run on a GPU."""
_MOST_TYPED: Final = 0.9
"""Share of the operators whose types the timed steps must have taken over. Chosen."""
_SURE_OF_DOUBLE: Final = 0.8
"""That nobody meant it. Chosen: models are trained in double precision on purpose in simulations alone."""
_SLOWER: Final = re.compile(r"conv|gelu")
"""What has no kernel of oneDNN, or no vectorised one, in double precision."""
_FOR_ALL: Final = re.compile(r"^aten::_(?:foreach|fused)_")
"""Operators on lists, of which no element type is recorded: theirs is that of the rest."""
_BESIDE: Final = "convert the tensors that bring it in once, where they are made, with {}"
_COMPLEX: Final = "c10::complex<double>"
_FLOATING: Final = (Precision.FP64, Precision.FP32, Precision.FP16, Precision.BF16)


class Double(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the window in which operators work on float64, ns, and what fp32 would save of it at most."""

    scope: Scope
    ns: int = 0
    saves_ns: int = 0
    hottest: str = ""
    """The operator that has most of that time."""
    first: str = ""
    """The first operator of a step that takes in a tensor of it."""
    at: str = ""
    """Where that is called, in the user's code; "" where that is not known."""
    multiplies: bool = False
    """Whether a product of matrices is among them."""
    is_complex: bool = False
    """Whether most of that time is on complex128."""


def double_of(facts: Facts, scope: Scope, typed: Trace) -> Double:
    """Sum operators' own times; `typed` are the steps whose types are known, the trace's or later ones."""
    if not typed.signatures:
        return Double(scope=scope)
    from profkit.roof.products import product_rows  # with formulas: loaded where a trace has types

    (rows, length), names, inside = double_rows(typed), typed.ops.name, _rows_inside(typed)
    if not rows.size:
        return Double(scope=scope)
    own = self_times_ns(typed.ops)
    of_lists = inside[typed.named(names[inside], _FOR_ALL)]
    known = float(own[inside[_has_format(typed, inside, _FLOATING)]].sum())
    spent = np.bincount(names[rows], weights=length)
    slower = {code for code in distinct_codes(names[rows]).tolist() if _SLOWER.search(typed.name(code))}
    ratios = DOUBLE.limit("cpu_convolution"), DOUBLE.limit("cpu_ratio")
    saved = sum(float(ns) * (1 - ratios[code not in slower]) for code, ns in enumerate(spent.tolist()))
    listed = float(own[of_lists].sum()) * float(length.sum()) / known if known else 0.0
    scale = facts.window_ns / typed.window_duration_ns if typed.window_duration_ns else 0.0
    first = _first_double(typed)
    is_complex = [one is not None and _COMPLEX in one.types for one in typed.signatures]
    of_complex = length[np.array(is_complex)[typed.ops.signature[rows]]]
    return Double(
        scope=scope,
        ns=min(round((float(length.sum()) + listed) * scale), facts.window_ns),
        saves_ns=round((saved + listed * (1 - ratios[1])) * scale),
        hottest=typed.name(int(spent.argmax())),
        first="" if first < 0 else typed.name(int(names[first])),
        at=_place_of(facts, typed, first),
        multiplies=bool(is_member(rows, np.sort(product_rows(typed))).any()),
        is_complex=2 * int(of_complex.sum()) > int(length.sum()),
    )


def double_rows(trace: Trace) -> tuple[I64, I64]:
    """The operators of the window on tensors of float64 with more than one element, rows of `Trace.ops`.

    With the time of each outside the operators that it calls, ns.
    """
    rows = _rows_inside(trace)
    rows = rows[_has_format(trace, rows, (Precision.FP64,))]
    return rows, self_times_ns(trace.ops)[rows]


def _rows_inside(trace: Trace) -> I64:
    """The operators of the window on the threads of the step, without autograd's nodes."""
    (low, high), ops = trace.window_ns, trace.ops
    inside = (ops.end_ns > low) & (ops.start_ns < high) & is_one_of(ops.thread, training_threads(trace))
    inside &= ~trace.named(ops.name, BACKWARD_NODE)
    return np.flatnonzero(inside).astype(np.int64)


def _has_format(trace: Trace, rows: I64, formats: tuple[Precision, ...]) -> Bool:
    codes = [code for code, one in enumerate(trace.signatures) if one is not None and _format(one) in formats]
    return is_one_of(trace.ops.signature[rows], codes)


def _format(signature: Signature) -> Precision | None:
    """The widest floating-point format of its tensors; scalars, which have no size, are written as double anywhere."""
    from profkit.roof.formulas.work import precision_of_parts as read  # loaded for traces with types

    told = {read(kind) for kind, shape in zip(signature.types, signature.dims, strict=False) if _is_tensor(shape)}
    return next((one for one in _FLOATING if one in told), None)


def _is_tensor(shape: tuple[object, ...]) -> bool:
    sides = [side for side in shape if isinstance(side, int)]
    return bool(sides) and len(sides) == len(shape) and any(side > 1 for side in sides)


def _first_double(trace: Trace) -> int:
    """The first operator of the first whole step that takes in a tensor of float64; -1 for none."""
    ops, begins = trace.ops, trace.steps[0].start_ns if trace.steps else trace.window_ns[0]
    rows = np.flatnonzero((ops.start_ns >= begins) & is_one_of(ops.thread, training_threads(trace)))
    rows = rows[_has_format(trace, rows, (Precision.FP64,))]
    return int(rows[ops.start_ns[rows].argmin()]) if rows.size else -1


def _place_of(facts: Facts, typed: Trace, row: int) -> str:
    if row < 0 or facts.code is None or typed is not facts.trace:
        return ""
    one = np.array([row])
    place = int(facts.code.at(typed.ops.thread[one], typed.ops.start_ns[one]).place[0])
    return facts.code.places[place].words if place >= 0 else ""


def in_double(formats: OperatorPrecision) -> Iterator[Finding]:
    """`precision.fp64` on a CPU."""
    result = formats.double
    scope, fraction = result.scope, result.scope.fraction(result.ns)
    if scope.fraction(result.saves_ns) < DOUBLE.limit("window"):
        return
    wide, narrow = ("complex128 or float64", "complex64 or float32") if result.is_complex else ("float64", "float32")
    evidence = [
        Evidence.time(
            "precision.double_ns",
            result.ns,
            f"operators on {wide} run for {scope.time(result.ns)},"
            f" {format_fraction(fraction)} of the window; the longest is {result.hottest}; {narrow} takes half of"
            " that or less",
            expected="0, unless it is needed",
        )
    ]
    if result.first:
        at = f" at {result.at}" if result.at else ""
        first = f"the first operator of a step that is given {wide} is {result.first}{at}"
        evidence.append(Evidence.time("precision.double_saves_ns", result.saves_ns, first))
    is_beside = formats.total_ns > 0 and not result.multiplies
    if is_beside:
        said = f"no product of matrices is in {wide}: what is computed with such a tensor becomes {wide}, and so does its backward pass"
        evidence.append(Evidence.share("precision.double_products", 0.0, said))
    yield DOUBLE.found(
        title="operators compute in double precision" + ", on complex128" * result.is_complex,
        confidence=_SURE_OF_DOUBLE,
        recoverable_ns=scope.per_step(result.saves_ns),
        most_recoverable_ns=scope.per_step(result.ns) if is_beside else None,  # what fits into a cache takes far less
        fraction=fraction,
        evidence=tuple(evidence),
        fix=_fix_of_double(is_beside=is_beside, is_complex=result.is_complex),
        proof=DOUBLE.proof.replace(".float()", ".to(torch.complex64)") if result.is_complex else "",
        next_tools=(
            recorded(
                scope,
                "change that, then record again with types: what is still in double precision?",
                "no operator in double precision; profkit compare OLD NEW says what it gave",
                flags="--shapes",
            ),
        ),
    )


def _fix_of_double(*, is_beside: bool, is_complex: bool) -> str:
    what = _BESIDE.format(".to(torch.complex64)" if is_complex else ".float()")
    of_numpy = DOUBLE.fixes[1].replace("float32", "complex64") if is_complex else DOUBLE.fixes[1]
    no_model = "" if is_beside else "model.double() and no "
    where = what if is_beside or is_complex else DOUBLE.fixes[0]
    return f"unless it is needed: {where}; {of_numpy}; no {no_model}torch.set_default_dtype(torch.float64)"


class ByFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Time of matrix products by number format, ns."""

    scope: Scope
    by_format: dict[str, int]

    @property
    def total_ns(self) -> int:
        """Time of all of them, ns."""
        return sum(self.by_format.values())

    def share(self, *formats: Precision) -> float:
        """Share of that time in these formats, 0-1."""
        return sum(self.by_format.get(item, 0) for item in formats) / self.total_ns if self.total_ns else 0.0

    def table(self, title: str, *, note: str = "") -> TableView:
        """The formats, the one with most time first."""
        ranked = sorted(self.by_format.items(), key=lambda item: -item[1]) if self.total_ns else []
        rows = ((name, ns, ns / self.total_ns) for name, ns in ranked)
        return TableView.of(title, {"format": "text", "time": "ns", "share": "fraction"}, rows, note=note)


class OperatorPrecision(ByFormat, frozen=True, kw_only=True):
    """Time of matrix products by number format, ns: inside the window, or of later steps that were recorded with types."""

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
        reason="no kernels in this trace, and no matrix product with recorded types",
        how_to_get="record types: profkit capture --shapes, or torch.profiler.profile(record_shapes=True)",
    )
    if not typed.signatures:
        return without
    from profkit.roof.products import product_rows, products  # with formulas: loaded where a trace has types

    found = products(typed)
    # timed steps that took over nearly all types have the places and the times; else the later ones stand for them
    wide = double_of(facts, scope_of(facts), trace if (trace.shapes_carried or 0) >= _MOST_TYPED else typed)
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
        covered_ns=Intervals.of_rows(ops, rows).clip(*trace.window_ns).total_ns,
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
        DOUBLE.id: Rows.of_ops(facts.trace, *double_rows(facts.trace)),
    }


def judge(result: OperatorPrecision) -> tuple[Finding, ...]:
    """`precision.fp64`; `precision.fallback` where products in fp32 stand beside half precision that was asked for."""
    return (*in_double(result), *_in_full(result))


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
        f" {scope.time(result.full_ns)}, {format_fraction(result.half_share)} in half precision{later}",
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
        True: f"this CPU multiplies in bf16: at best it saves {scope.time(result.saves_ns)}",
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
    note = f"Of {result.n_later_steps} later steps, recorded with types." if result.n_later_steps else ""
    return Section(
        title="precision of matrix products",
        values={"by_format_ns": dict(result.by_format), "n_later_steps": result.n_later_steps},
        tables=(result.table("matrix products by number format", note=note),),
    )
