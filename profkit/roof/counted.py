"""Which operators of a trace count: the outermost with a formula; what runs inside it is part of it.

An operator that hands its operands on in another number format, as autocast does, does not count: the product inside,
and the casts, do.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct_codes
from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature
from profkit.model.table import NO_ROW
from profkit.model.trace import Trace
from profkit.roof.formulas import has_formula, work_of
from profkit.roof.formulas.work import Work
from profkit.timeline.host import in_backward, parent_rows

_DEEPEST: Final = 256
"""Operators around an operator beyond which no formula is looked for. Chosen: real traces have 30."""


class Call(msgspec.Struct, frozen=True):
    """One call of an operator with these arguments, as all with the same name and arguments are."""

    name: str
    signature: Signature
    work: Work


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a trace that have work. `kind` indexes `works`, -1 for an operator that does not count."""

    works: tuple[Call, ...]
    """Each distinct pair of a name and a signature that has work, once."""
    kind: I64
    parent: I64
    is_recomputed: NDArray[np.bool_]
    """Whether autograd ran it again during backward, to have an activation that was not kept."""

    def owner(self, rows: I64) -> I64:
        """Per row (`NO_ROW` for none): the outermost operator that counts, itself or one around it, else `NO_ROW`."""
        found = np.full(rows.size, NO_ROW, np.int64)
        at = rows.astype(np.int64)
        for _ in range(_DEEPEST):
            inside = at >= 0
            if not inside.any():
                break
            counts = inside & (self.kind[np.maximum(at, 0)] >= 0)
            found[counts] = at[counts]
            at = np.where(inside, self.parent[np.maximum(at, 0)], NO_ROW)
        return found


def counted(trace: Trace) -> Counted:
    """The operators that count; of a trace without recorded shapes none do."""
    ops = trace.ops
    works, kind = _works(trace)
    if not works:
        none = np.zeros(len(ops), np.bool_)
        return Counted(works=(), kind=kind, parent=np.full(len(ops), NO_ROW, np.int64), is_recomputed=none)
    parent = parent_rows(ops)
    kind = np.where(_hands_on(works, kind, parent), NO_ROW, kind)
    return Counted(works=works, kind=kind, parent=parent, is_recomputed=_recomputed(trace, kind))


def _works(trace: Trace) -> tuple[tuple[Call, ...], I64]:
    """The distinct works, and which of them each operator has."""
    ops = trace.ops
    kind = np.full(len(ops), NO_ROW, np.int64)
    may_count = np.zeros(max(len(trace.strings), 1), np.bool_)
    may_count[[code for code in distinct_codes(ops.name).tolist() if has_formula(trace.name(code))]] = True
    with_shapes = np.flatnonzero((ops.signature >= 0) & may_count[ops.name])
    if with_shapes.size == 0:
        return (), kind
    n = len(trace.signatures)
    pairs, place = np.unique(
        ops.name[with_shapes].astype(np.int64) * n + ops.signature[with_shapes], return_inverse=True
    )
    works: list[Call] = []
    of_pair = np.full(pairs.size, NO_ROW, np.int64)
    for index, pair in enumerate(pairs.tolist()):
        name, signature = trace.name(pair // n), trace.signatures[pair % n]
        work = None if signature is None else work_of(name, signature)
        if signature is not None and work is not None:
            of_pair[index] = len(works)
            works.append(Call(name, signature, work))
    kind[with_shapes] = of_pair[place]
    return tuple(works), kind


def _hands_on(works: tuple[Call, ...], kind: I64, parent: I64) -> NDArray[np.bool_]:
    """Which products have a product of another number format inside."""
    formats = {precision: code for code, precision in enumerate(Precision)}
    code = np.array([formats[call.work.precision] if call.work.is_matrix else -1 for call in works], np.int64)
    own = np.where(kind >= 0, code[np.maximum(kind, 0)], -1)
    differs = np.zeros(kind.size, np.bool_)
    product = np.flatnonzero(own >= 0)
    at = parent[product]
    for _ in range(_DEEPEST):
        inside = at >= 0
        if not inside.any():
            break
        product, at = product[inside], at[inside]
        differs[at[(own[at] >= 0) & (own[at] != own[product])]] = True
        at = parent[at]
    return differs


def _recomputed(trace: Trace, kind: I64) -> NDArray[np.bool_]:
    """Operators that count and that autograd ran again inside a node of backward, as activation checkpointing does.

    Backward itself runs without recording: what records there (a sequence number, of no forward thread) is a forward
    pass run again, or a backward pass that is itself to be differentiated. The latter calls what forward does not.
    """
    ops = trace.ops
    found = np.zeros(len(ops), np.bool_)
    rows = np.flatnonzero(kind >= 0)
    if rows.size == 0:
        return found
    inside = in_backward(trace, rows)
    records = (ops.sequence[rows] >= 0) & (ops.forward_thread[rows] <= 0)
    forward = np.bincount(kind[rows[~inside]], minlength=int(kind.max()) + 1) > 0
    found[rows[inside & records & forward[kind[rows]]]] = True
    return found
