"""`work.line`: a line of the user's code, what it computes, and what such lines often waste.

Where the script's own operators at one place, in no layer of a model, have a good part of the step, that place; else the
line with most of the work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.findings.kernels import LINE, LINE_SHARE, OWN_SHARE, OWN_STARTED, is_often_wasted, questions
from profkit.model.arrays import I64, Bool, distinct, distinct_codes, is_one_of
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.finding import Evidence, Finding, Severity
from profkit.model.names import family_of
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.code.join import CALLS_OF_BACKWARD
from profkit.timeline.host import enclosing_op
from profkit.units import format_count, format_fraction

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code, Moments

_MOST_NAMED: Final = 3
_NAMES: Final = 0.2
"""Of the line's time, from which an operator says what to ask. Chosen."""
_FEW: Final = 2
"""Kinds of modules that a line may call and be taken for a call of operators: a layer and what stands around it. Chosen."""
_PART: Final = 0.02
"""Of the line's time, from which a module or an operator counts. Chosen."""
_CONFIDENCE: Final = 0.5
"""Chosen: where the time goes is known, whether it is needed is not."""
_PRODUCTS: Final = frozenset({"matmul", "convolution", "attention"})
"""Usual in a module, and anywhere in a script without modules."""
_NORMS: Final = frozenset({"norm", "softmax"})
_LAYER: Final = later(
    r"silu|gelu|relu|sigmoid|tanh|softmax|threshold_backward|clamp_min|dropout|bernoulli|_norm\b|_norm_|embedding|attention|nll_loss"
    r"|cross_entropy|mse_loss|rnn|lstm|gru|pool|upsample|_foreach|_fused|zero_\b|AccumulateGrad|engine::|c10d|detach|::item\b"
)
"""What layers, losses, gradients and collectives consist of, whoever calls it: usual in any model."""
_MOST_AT_LINE: Final = 0.6
"""Of a function's own operators, from which one line of it is named in its place. Chosen."""


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """The place where the script's own operators take most time: in no layer of a model, and none that layers consist of."""

    place: PlaceShare
    """Its share is that of the window."""
    operators: tuple[Operator, ...]
    started: float
    """Of all operators of the window that have a place, the share (0-1) that it starts."""


class Operator(msgspec.Struct, frozen=True):
    """An operator of that line: its share (0-1) of the line's time, how often it runs in the window, its shapes."""

    name: str
    share: float
    count: int
    shapes: str


def on_line(facts: Facts, code: Code, one: PlaceShare, work: Rows) -> tuple[tuple[Operator, ...], int]:
    """The operators that have most of a line's work, the longest first, and how many kinds of modules it calls.

    A kind is a module's own name and its class: the layers of a list have one each, whatever their number.
    """
    known = np.flatnonzero(work.thread >= 0)
    at = code.at(work.thread[known], work.at_ns[known])
    wanted = [place for place, other in enumerate(code.places) if other.name == one.place.name]
    is_mine = is_one_of(at.place, wanted)
    mine, module = known[is_mine], at.module[is_mine]
    total = int(work.ns[mine].sum())
    if not total:
        return (), 0
    spent: dict[tuple[str, str], int] = {}
    for number in distinct_codes(module[module >= 0]).tolist():
        called = code.modules[number]
        key = (called.name.rpartition(".")[2], called.kind)
        spent[key] = spent.get(key, 0) + int(work.ns[mine[module == number]].sum())
    return _operators(facts.trace, work, mine, total), sum(ns >= _PART * total for ns in spent.values())


def _operators(trace: Trace, work: Rows, mine: I64, total: int) -> tuple[Operator, ...]:
    ops = trace.ops
    op = enclosing_op(ops, work.thread[mine].astype(np.int32), work.at_ns[mine])
    mine, op = mine[op >= 0], op[op >= 0]
    spent = np.bincount(ops.name[op], weights=work.ns[mine])
    out = []
    for name in np.argsort(-spent, kind="stable")[:_MOST_NAMED].tolist():
        rows = op[ops.name[op] == name]
        given = ops.signature[rows][ops.signature[rows] >= 0]
        most = trace.signatures[int(np.bincount(given).argmax())] if given.size else None
        shapes = most.shapes if most is not None else ""
        out.append(Operator(trace.name(name), float(spent[name] / total), int(rows.size), shapes))
    return tuple(one for one in out if one.share >= _PART)


def own_work(facts: Facts, code: Code, work: Rows, moments: Moments) -> Own | None:
    """The place where the script's own operators take most time; None where it has none.

    Lines of a function that calls no module, no backward pass and no optimizer are one place: it is a computation.
    """
    again = facts.trace.again
    if not code.modules and again is not None and again.meta.has_sampled_stacks:
        return None  # nobody knows what a module calls
    known = np.flatnonzero((moments.place >= 0) & (work.thread >= 0))
    op = enclosing_op(facts.trace.ops, work.thread[known].astype(np.int32), work.at_ns[known])
    known, op = known[op >= 0], op[op >= 0]
    place, ns = moments.place[known], work.ns[known]
    trains = set(distinct_codes(place[moments.phase[known] == Phase.OPTIMIZER]).tolist())
    in_module = moments.module[known] >= 0 if code.modules else np.ones(known.size, np.bool_)
    own = [bool(one.line) and not _calls_others(one) and n not in trains for n, one in enumerate(code.places)]
    mine = ~_is_usual(facts.trace, op, in_module) & np.array(own, np.bool_)[place]
    if not ns[mine].sum():
        return None
    number = _computations(code, trains)[place]
    chosen = mine & (number == np.bincount(number[mine], weights=ns[mine]).argmax())
    line = np.array([one.line for one in code.places], np.int64)[place]
    lines = distinct(line[chosen])
    at_line = np.bincount(np.searchsorted(lines, line[chosen]), weights=ns[chosen])
    is_of_line = at_line.max() >= _MOST_AT_LINE * at_line.sum()
    if is_of_line:
        chosen &= line == lines[at_line.argmax()]
    shown = replace(code.places[int(place[chosen][0])], module="")
    total = int(ns[chosen].sum())
    return Own(
        place=PlaceShare(
            place=shown if is_of_line else replace(shown, line=0, text="", call=""),
            phase=Phase(int(np.bincount(moments.phase[known[chosen]], weights=ns[chosen]).argmax())),
            ns=total,
            share=min(total / facts.window_ns, 1.0),
            count=int(chosen.sum()),
        ),
        operators=_operators(facts.trace, work, known[chosen], total),
        started=float(chosen.sum() / known.size),
    )


def _is_usual(trace: Trace, op: I64, in_module: Bool) -> Bool:
    """Whether each of these rows of operators is what layers consist of, or a product inside a module."""
    name = trace.ops.name[op]
    usual, multiplies = np.zeros((2, len(trace.strings)), np.bool_)
    for code in distinct_codes(name).tolist():
        text = trace.name(code)
        multiplies[code] = family_of(text) in _PRODUCTS
        usual[code] = family_of(text) in _NORMS or _LAYER.search(text) is not None
    return np.asarray(usual[name] | (multiplies[name] & in_module), np.bool_)


def _calls_others(one: CodePlace) -> bool:
    """Whether a module, a package or the backward pass runs there: `call` names a class where a module is called."""
    calls_module = bool(one.call) and not one.call.endswith("()")
    return calls_module or one.call in CALLS_OF_BACKWARD or bool(one.library or one.inside) or one.is_generated


def _computations(code: Code, trains: Collection[int]) -> I64:
    """Per place the number of its computation: a function that only computes, else a line of one."""
    by_line = {
        (one.file, one.function)
        for number, one in enumerate(code.places)
        if number in trains or one.function == "<module>" or _calls_others(one)
    }
    first: dict[tuple[str, str, int], int] = {}
    number = [
        first.setdefault((one.file, one.function, one.line if (one.file, one.function) in by_line else 0), len(first))
        for one in code.places
    ]
    return np.array(number, np.int64)


def question(scope: Scope, one: PlaceShare, found: tuple[Operator, ...]) -> Finding | None:
    """A line as a finding that asks: no trace shows whether all of its work is needed. None without operators."""
    return _question(scope, one, found, is_own=False) if found else None


def question_of_own(scope: Scope, own: Own) -> Finding:
    """The place of the script's own operators as such a finding, with what it starts of all operators."""
    finding = _question(scope, own.place, own.operators, is_own=True)
    if own.started < LINE.limit("started"):
        return finding
    said = f"{format_fraction(own.started)} of the operators are started there"
    return replace(finding, evidence=(*finding.evidence, Evidence.share(OWN_STARTED, own.started, said)))


def _question(scope: Scope, one: PlaceShare, found: tuple[Operator, ...], *, is_own: bool) -> Finding:
    where, there = ("at", "at that line") if one.place.line else ("in", "in that function")
    metric, outside = (OWN_SHARE, ", outside the layers of any model") if is_own else (LINE_SHARE, "")
    ns = round(one.share * scope.window_ns)
    each = "; ".join(
        f"{of.name} {format_fraction(of.share)}, {format_count(of.count / scope.n_steps)} {scope.each}"
        + (f", mostly {of.shapes}" if of.shapes else "")
        for of in found
    )
    finding = LINE.found(
        title=f"{format_fraction(one.share)} of the step is {where} {one.place.name}{outside}",
        severity=Severity.INFO,
        fraction=one.share,
        confidence=_CONFIDENCE,
        recoverable_ns=0,
        most_recoverable_ns=scope.per_step(ns) if is_own else None,
        evidence=(Evidence.share(metric, one.share, f"of the time {there} ({scope.time(ns)}), by operator: {each}"),),
        fix=questions([(of.name, of.count / scope.n_steps) for of in found if of.share >= _NAMES], one.place.text),
    )
    return replace(finding, places=(replace(one, share=1.0),))


def is_asked(one: PlaceShare, found: tuple[Operator, ...], n_modules: int) -> bool:
    """Whether the line is more than a call of a model that trains, a package's or the user's own.

    That a model has most of the work says nothing: then what runs there must be what is often wasted.
    """
    if one.place.library and one.phase is not Phase.OTHER:
        return False
    return n_modules <= _FEW or is_often_wasted([of.name for of in found if of.share >= _NAMES])
