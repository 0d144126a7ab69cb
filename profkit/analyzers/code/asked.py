"""`work.line`: the line of the user's code with most of the work, what it computes, and what such lines often waste."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.findings.kernels import LINE, LINE_SHARE, is_often_wasted, questions
from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.model.code import Phase, PlaceShare
from profkit.model.finding import Evidence, Finding, Severity
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.host import enclosing_op
from profkit.units import format_count, format_fraction

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_MOST_NAMED: Final = 3
_NAMES: Final = 0.2
"""Of the line's time, from which an operator says what to ask. Chosen."""
_FEW: Final = 2
"""Kinds of modules that a line may call and be taken for a call of operators: a layer and what stands around it. Chosen."""
_PART: Final = 0.02
"""Of the line's time, from which a module counts. Chosen."""
_CONFIDENCE: Final = 0.5
"""Chosen: where the time goes is known, whether it is needed is not."""


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
    return tuple(one for one in out if one.share > 0)


def question(scope: Scope, one: PlaceShare | None, found: tuple[Operator, ...]) -> Finding | None:
    """The line as a finding that asks: no trace shows whether all of its work is needed."""
    if one is None or not found:
        return None
    share = format_fraction(one.share)
    each = "; ".join(
        f"{of.name} {format_fraction(of.share)}, {format_count(of.count / scope.n_steps)} {scope.each}"
        + (f", mostly {of.shapes}" if of.shapes else "")
        for of in found
    )
    finding = LINE.found(
        title=f"{share} of the step is at {one.place.name}",
        severity=Severity.INFO,
        fraction=one.share,
        confidence=_CONFIDENCE,
        recoverable_ns=0,
        evidence=(
            Evidence(
                statement=f"of the time at that line, by operator: {each}",
                metric=LINE_SHARE,
                value=one.share,
                unit="fraction",
            ),
        ),
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
