"""Operators of a CPU that work on double precision, by the recorded types of their tensors, and where it comes in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import operators as recorded
from profkit.findings.kernels import DOUBLE
from profkit.model.arrays import I64, Bool, distinct_codes, is_one_of
from profkit.model.finding import Evidence, Finding
from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import BACKWARD_NODE, self_times_ns
from profkit.units import format_fraction, format_ns

_CONFIDENCE: Final = 0.8
"""That nobody meant it. Chosen: models are trained in double precision on purpose in simulations alone."""
_SLOWER: Final = re.compile(r"conv|gelu")
"""What has no kernel of oneDNN, or no vectorised one, in double precision."""
_FOR_ALL: Final = re.compile(r"^aten::_(?:foreach|fused)_")
"""Operators on lists, of which no element type is recorded: theirs is that of the rest."""
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


def measure(facts: Facts, scope: Scope, typed: Trace) -> Double:
    """Sum operators' own times; `typed` are the steps whose types are known, the trace's or later ones."""
    if not typed.signatures:
        return Double(scope=scope)
    (rows, length), names, inside = double_rows(typed), typed.ops.name, _inside(typed)
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
    first = _first(typed)
    return Double(
        scope=scope,
        ns=min(round((float(length.sum()) + listed) * scale), facts.window_ns),
        saves_ns=round((saved + listed * (1 - ratios[1])) * scale),
        hottest=typed.name(int(spent.argmax())),
        first="" if first < 0 else typed.name(int(names[first])),
        at=_place(facts, typed, first),
    )


def double_rows(trace: Trace) -> tuple[I64, I64]:
    """The operators of the window on tensors of float64 with more than one element, rows of `Trace.ops`.

    With the time of each outside the operators that it calls, ns.
    """
    rows = _inside(trace)
    rows = rows[_has_format(trace, rows, (Precision.FP64,))]
    return rows, self_times_ns(trace.ops)[rows]


def _inside(trace: Trace) -> I64:
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
    from profkit.roof.formulas.work import precision  # loaded for traces with types

    told = {precision(kind) for kind, shape in zip(signature.types, signature.dims, strict=False) if _is_tensor(shape)}
    return next((one for one in _FLOATING if one in told), None)


def _is_tensor(shape: tuple[object, ...]) -> bool:
    sides = [side for side in shape if isinstance(side, int)]
    return bool(sides) and len(sides) == len(shape) and any(side > 1 for side in sides)


def _first(trace: Trace) -> int:
    """The first operator of the first whole step that takes in a tensor of float64; -1 for none."""
    ops, begins = trace.ops, trace.steps[0].start_ns if trace.steps else trace.window_ns[0]
    codes = [code for code, one in enumerate(trace.signatures) if one is not None and _format(one) is Precision.FP64]
    mine = is_one_of(ops.signature, codes) & (ops.start_ns >= begins) & is_one_of(ops.thread, training_threads(trace))
    rows = np.flatnonzero(mine)
    return int(rows[ops.start_ns[rows].argmin()]) if rows.size else -1


def _place(facts: Facts, typed: Trace, row: int) -> str:
    if row < 0 or facts.code is None or typed is not facts.trace:
        return ""
    one = np.array([row])
    place = int(facts.code.at(typed.ops.thread[one], typed.ops.start_ns[one]).place[0])
    return facts.code.places[place].words if place >= 0 else ""


def judge(result: Double) -> Iterator[Finding]:
    """`precision.fp64` on a CPU."""
    scope, fraction = result.scope, result.scope.fraction(result.ns)
    if scope.fraction(result.saves_ns) < DOUBLE.limit("window"):
        return
    evidence = [
        Evidence.time(
            "precision.double_ns",
            result.ns,
            f"operators on float64 run for {format_ns(scope.per_step(result.ns))} {scope.each},"
            f" {format_fraction(fraction)} of the window; the longest is {result.hottest}; float32 takes half of"
            " that or less",
            expected="0, unless it is needed",
        )
    ]
    if result.first:
        at = f" at {result.at}" if result.at else ""
        first = f"the first operator of a step that is given float64 is {result.first}{at}"
        evidence.append(Evidence.time("precision.double_saves_ns", result.saves_ns, first))
    yield DOUBLE.found(
        title="operators compute in double precision",
        confidence=_CONFIDENCE,
        recoverable_ns=scope.per_step(result.saves_ns),
        fraction=fraction,
        evidence=tuple(evidence),
        fix=f"unless it is needed: {DOUBLE.fixes[0]}; {DOUBLE.fixes[1]}; no model.double() and no"
        " torch.set_default_dtype(torch.float64)",
        next_tools=(
            recorded(
                scope,
                "change that, then record again with types: what is still in float64?",
                "no operator in double precision; profkit compare OLD NEW says what it gave",
                flags="--shapes",
            ),
        ),
    )
