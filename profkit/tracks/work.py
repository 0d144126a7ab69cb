"""The work of a window by name, operator, shape, module and line: what a page's tables search and group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, is_one_of, looked_up
from profkit.model.documents.tracks import WorkRow
from profkit.model.trace import Kind, Trace
from profkit.timeline import Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import self_times_ns
from profkit.tracks.rows import Names

if TYPE_CHECKING:
    from profkit.roof.counted import Counted

MOST: Final = 800
"""Chosen: rows of a kind beyond which a table is not read; the rest has next to no time."""
_KINDS: Final = {Kind.COMPUTE: "kernel", Kind.COMM: "comm", Kind.COPY: "copy"}


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to be added up, shape (n,) each; codes are -1 for none."""

    kind: str
    name: NDArray[np.int32]
    op: I64
    """The operator's row."""
    total_ns: I64
    self_ns: I64
    flops: NDArray[np.float64]
    """NaN where not known."""
    n_bytes: NDArray[np.float64]


def work_of(facts: Facts, names: Names, known: Counted | None) -> tuple[tuple[WorkRow, ...], int]:
    """The rows with most time of each kind, the longest first, and how many there are in all.

    `known`: the operators whose FLOPs and bytes are known; None where none are.
    """
    columns = [*_of_device(facts, known), _of_host(facts, known)]
    summed = [_summed(facts, one, names) for one in columns]
    shown = sorted((row for rows, _ in summed for row in rows), key=lambda row: -row.self_ns)
    return tuple(shown), sum(n for _, n in summed)


def _of_device(facts: Facts, known: Counted | None) -> list[_Columns]:
    main, gpu = facts.main_device, facts.trace.gpu
    if main is None:
        return []
    low, high = facts.trace.window_ns
    rows = main.activity.rows
    own = np.maximum(np.minimum(gpu.end_ns[rows], high) - np.maximum(gpu.start_ns[rows], low), 0)
    op = looked_up(facts.op_of_call, gpu.launch_row[rows]).astype(np.int64)
    flops, n_bytes = _counts(known, op, own)
    moved = np.where(gpu.n_bytes[rows] >= 0, gpu.n_bytes[rows], np.nan).astype(np.float64)
    return [
        _Columns(
            kind=word,
            name=gpu.name[rows[mine]],
            op=op[mine],
            total_ns=own[mine],
            self_ns=own[mine],
            flops=flops[mine],
            n_bytes=(n_bytes if kind is Kind.COMPUTE else moved)[mine],
        )
        for kind, word in _KINDS.items()
        for mine in [np.flatnonzero(gpu.kind[rows] == kind)]
    ]


def _of_host(facts: Facts, known: Counted | None) -> _Columns:
    """The operators of the threads that train, or that launch."""
    trace, ops = facts.trace, facts.trace.ops
    low, high = trace.window_ns
    threads = training_threads(trace)
    mine = np.flatnonzero(is_one_of(ops.thread, threads) & (ops.start_ns >= low) & (ops.end_ns <= high))
    total = ops.end_ns[mine] - ops.start_ns[mine]
    own = self_times_ns(ops)[mine]
    is_cpu = facts.main_device is None
    nothing = np.full(mine.size, np.nan)
    flops, n_bytes = _counts(known, mine, total) if is_cpu else (nothing, nothing)
    return _Columns(
        kind="operator",
        name=ops.name[mine],
        op=mine.astype(np.int64),
        total_ns=total,
        self_ns=own,
        flops=flops,
        n_bytes=n_bytes,
    )


def _counts(known: Counted | None, op: I64, own_ns: I64) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """FLOPs and bytes of each row: those of the operator that counts, at the longest of the rows it has."""
    found = np.full(op.size, np.nan), np.full(op.size, np.nan)
    if known is None or op.size == 0:
        return found
    owner = known.owner(op)
    order = np.lexsort((-own_ns, owner))
    is_first = np.ones(op.size, np.bool_)
    is_first[1:] = owner[order][1:] != owner[order][:-1]
    rows = order[is_first & (owner[order] >= 0)]
    kind = known.kind[owner[rows]]
    for column, of in zip(found, ("flops", "n_bytes"), strict=True):
        values = [getattr(call.work, of) for call in known.works]
        column[rows] = np.array([np.nan if value is None else value for value in values], np.float64)[kind]
    return found


def _summed(facts: Facts, given: _Columns, names: Names) -> tuple[list[WorkRow], int]:
    if given.name.size == 0:
        return [], 0
    trace, op, code = facts.trace, given.op, facts.code
    keys: dict[str, NDArray[Any] | None] = {
        "name": given.name,
        "op": looked_up(trace.ops.name, op),
        "shape": looked_up(trace.ops.signature, op),
        "module": looked_up(code.module_of_op, op) if code is not None else None,
        "line": looked_up(code.place_of_op, op) if code is not None else None,
    }
    group = _groups([column for column in keys.values() if column is not None])
    n = int(group.max()) + 1
    own = np.bincount(group, given.self_ns, n).astype(np.int64)
    total = np.bincount(group, given.total_ns, n).astype(np.int64)
    count = np.bincount(group, minlength=n)
    order = np.lexsort((given.total_ns, group))
    longest = given.total_ns[order[np.searchsorted(group[order], np.arange(n), "right") - 1]]
    first = order[np.searchsorted(group[order], np.arange(n))]
    flops, n_bytes = _known_sum(group, given.flops, n), _known_sum(group, given.n_bytes, n)
    texts = _texts(facts, trace)
    rows = [
        WorkRow(
            kind=given.kind,
            **{
                key: names.of(texts[key](int(column[first[one]]))) if column is not None else -1
                for key, column in keys.items()
            },
            n=int(count[one]),
            total_ns=int(total[one]),
            self_ns=int(own[one]),
            max_ns=int(longest[one]),
            flops=None if np.isnan(flops[one]) else float(flops[one]),
            n_bytes=None if np.isnan(n_bytes[one]) else float(n_bytes[one]),
        )
        for one in np.argsort(-own, kind="stable")[:MOST].tolist()
    ]
    return rows, n


def _groups(keys: list[NDArray[Any]]) -> NDArray[np.intp]:
    """The number of each row's group, those with equal keys."""
    group = np.zeros(keys[0].size, np.int64)
    for key in keys:
        pair = group * (int(key.max()) + 2) + key + 1
        _, group = np.unique(pair, return_inverse=True)
    return group


def _known_sum(group: NDArray[np.intp], values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Sums of what is known, NaN where nothing is."""
    known = ~np.isnan(values)
    total = np.bincount(group[known], values[known], n).astype(np.float64)
    total[np.bincount(group[known], minlength=n) == 0] = np.nan
    return total


def _texts(facts: Facts, trace: Trace) -> dict[str, Callable[[int], str]]:
    """What the codes of each key are called."""

    def shape(code: int) -> str:
        signature = trace.signatures[code] if 0 <= code < len(trace.signatures) else None
        return signature.shapes if signature is not None else ""

    def module(code: int) -> str:
        return facts.code.modules[code].name if facts.code is not None and code >= 0 else ""

    def line(code: int) -> str:
        return facts.code.places[code].name if facts.code is not None and code >= 0 else ""

    return {"name": trace.name, "op": trace.name, "shape": shape, "module": module, "line": line}
