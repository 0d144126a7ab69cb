"""Backward passes that go through the same graph again: losses that share layers, inputs of one output, rows of a Jacobian.

A node of the backward pass has a sequence number, a thread counts them, and no node runs twice in a pass. So a number
that comes again is a pass through a graph that was kept (`retain_graph=True`); checkpoints and second derivatives make
nodes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.dropped import AT_ONCE, places_of_passes
from profkit.analyzers.patterns.forward import spanning
from profkit.analyzers.patterns.parameters import method_codes
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.again import BACKWARD_AGAIN, ROWS_APART
from profkit.model.arrays import I64, Bool, distinct, is_one_of, rows_by_value
from profkit.model.code import PlaceShare
from profkit.model.table import NO_ROW
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, outermost

_STORES: Final = later(r"^torch::autograd::AccumulateGrad$")
"""What stores a gradient; torch.autograd.grad shows the node of a leaf as well, without this in it."""
_ADDS: Final = later(r"^aten::add_?$")
_ONES: Final = later(r"^aten::ones(?:_like)?$")
_SUMS: Final = later(rf"^{BACKWARD_NODE}: (?:Sum|Mean)Backward\d*$")
_PICKS: Final = later(rf"^{BACKWARD_NODE}: (?:Select|Slice|Index|Unbind|Split\w*|Squeeze|View|Alias)Backward\d*$")
_KEPT: Final = 0.5
_KEPT_WITH_GRAPH: Final = 0.75
"""What a batch of rows takes of the time of one after another. Measured on one CPU, nodes of up to 16 us: 0.38 to 0.67 of
8 rows, 0.17 to 0.54 of 32; with create_graph=True 0.69 to 0.90 of 8, 0.50 to 0.87 of 16."""

_ONE_BY_ONE: Final = "backward passes go through the same layers, one for each loss"
_BY_INPUT: Final = "calls of torch.autograd.grad go through the same layers, one for each input of an output"
_ROW_BY_ROW: Final = "calls of torch.autograd.grad take the gradient of an output element by element"


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """The outermost nodes of all backward passes in order of time, shape (n,) each; those that store have no number."""

    trace: Trace
    rows: I64
    key: I64
    """The same for two runs of one node; -1 of what has no number."""
    at: I64
    """The number of its pass."""
    stores: Bool
    adds: Bool
    """Whether it adds to a gradient that is there."""
    made_at: I64
    """The place here of the node in which it was made: then the pass is of a gradient; -1 for none."""
    last_other: I64
    """Per pass the operator that ran last before it on its threads, a row of `Trace.ops`; -1 for none."""
    group: I64
    """Per pass: the same where no optimizer steps between, none clears and nothing reads all gradients."""


def _threads(trace: Trace, rows: I64, forward: I64) -> list[int]:
    return distinct(trace.ops.thread[np.concatenate((rows, forward[forward >= 0]))]).tolist()  # type: ignore[no-any-return]


def passes_again(trace: Trace) -> Passes | None:
    """The passes of a trace in which a node runs again; None where none does."""
    ops, backward = trace.ops, backward_of(trace)
    if not backward.by_thread or not trace.named(ops.name, BACKWARD_NODE)[backward.rows].all():
        return None
    rows = np.sort(backward.rows[np.concatenate([place for _, place in backward.by_thread.values()])]).astype(np.int64)
    key = _keys(trace, rows)
    if key.max(initial=-1) + 1 == (key >= 0).sum():
        return None
    others = outermost(ops)
    others = others[is_one_of(ops.thread[others], _threads(trace, rows, backward.forward))]
    others = others[~trace.named(ops.name, BACKWARD_NODE)[others]]
    at = _numbered(trace, rows, ops.start_ns[others])
    nodes = ops.take(rows)
    stores, adds = (_has(trace, rows, np.flatnonzero(trace.named(ops.name, one))) for one in (_STORES, _ADDS))
    makers = _makers(trace, rows)
    made_at = np.where(makers >= 0, enclosing_op(nodes, ops.thread[makers], ops.start_ns[makers]), -1)
    first = np.flatnonzero(np.diff(at, prepend=-1))
    last = np.searchsorted(others, rows[first]) - 1
    found = Passes(
        trace=trace,
        rows=rows,
        key=key,
        at=at,
        stores=stores,
        adds=stores & adds,
        made_at=made_at,
        last_other=np.where(last >= 0, others[np.maximum(last, 0)], -1) if others.size else np.full(first.size, -1),
        group=np.zeros(first.size, np.int64),
    )
    used = np.zeros(others.size, np.bool_)
    forward = backward.forward[backward.forward >= 0]
    place = enclosing_op(ops.take(others), ops.thread[forward], ops.start_ns[forward])
    used[place[place >= 0]] = True
    return msgspec.structs.replace(found, group=_groups(found, others.astype(np.int64), used))


def _keys(trace: Trace, rows: I64) -> I64:
    ops = trace.ops
    number, thread = ops.sequence[rows], ops.forward_thread[rows]
    order = np.lexsort((thread, number))
    is_new = np.append(True, (np.diff(number[order]) != 0) | (np.diff(thread[order]) != 0))[: rows.size]
    key = np.empty(rows.size, np.int64)
    key[order] = np.cumsum(is_new & (number[order] >= 0)) - 1
    key[number < 0] = -1
    return key


def _numbered(trace: Trace, rows: I64, breaks: I64) -> I64:
    """The number of each node's pass: in one the numbers of a thread only go down, and the script runs no operator."""
    ops = trace.ops
    known = np.flatnonzero(ops.sequence[rows] >= 0)
    known = known[np.lexsort((known, ops.forward_thread[rows[known]], ops.thread[rows[known]]))]
    mine = rows[known]
    is_same = (np.diff(ops.thread[mine]) == 0) & (np.diff(ops.forward_thread[mine]) == 0)
    begins = np.sort(ops.start_ns[mine[1:][is_same & (np.diff(ops.sequence[mine]) >= 0)]])
    start = ops.start_ns[rows]
    n_before = np.searchsorted(begins, start, "right") + np.searchsorted(np.sort(breaks), start)
    return np.cumsum(np.diff(n_before, prepend=n_before[:1]) > 0)


def _has(trace: Trace, rows: I64, inner: NDArray[np.intp]) -> Bool:
    ops = trace.ops
    around = enclosing_op(ops.take(rows), ops.thread[inner], ops.start_ns[inner])
    out = np.zeros(rows.size, np.bool_)
    out[around[around >= 0]] = True
    return out


def _makers(trace: Trace, rows: I64) -> I64:
    """The operator that made each node, the last before it with its number, in a backward pass as well; -1: not known."""
    ops = trace.ops
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    out = np.full(rows.size, NO_ROW, np.int64)
    if not forward.size:
        return out
    order = forward[np.lexsort((forward, ops.sequence[forward]))]
    wanted = ops.sequence[rows]
    low, high = np.searchsorted(ops.sequence[order], wanted), np.searchsorted(ops.sequence[order], wanted, "right") - 1
    is_known = (wanted >= 0) & (low <= high)
    last = order[np.maximum(high, 0)]
    return np.where(is_known & (ops.start_ns[last] < ops.start_ns[rows]), last, NO_ROW)


def _groups(found: Passes, others: I64, used: Bool) -> I64:
    trace, ops = found.trace, found.trace.ops
    first = np.flatnonzero(np.diff(found.at, prepend=-1))
    n_stored = np.add.reduceat(found.stores.astype(np.int64), first)
    begins, ends = ops.start_ns[found.rows[first]], np.maximum.reduceat(ops.end_ns[found.rows], first)
    spans = trace.spans
    cuts = [
        np.sort(spans.end_ns[spans.kind == SpanKind.OPTIMIZER]),
        np.sort(spans.start_ns[is_one_of(spans.name, method_codes(trace, "zero_grad"))]),
        np.sort(ops.start_ns[trace.named(ops.name, AT_ONCE)]),
    ]
    is_cut = np.zeros(first.size, np.bool_)
    for times in cuts:
        is_cut[1:] |= np.diff(np.searchsorted(times, begins)) > 0
    start = ops.start_ns[others]
    for one in range(1, first.size):  # what reads gradients stands before or behind the next loss
        low, high = np.searchsorted(start, (ends[one - 1], begins[one]))
        loss = np.flatnonzero(used[low:high])
        n_read = high - low - (loss[-1] - loss[0] + 1 if loss.size else 0)
        is_cut[one] |= 0 < n_stored[one - 1] <= n_read
    return np.cumsum(is_cut)


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """What runs again, places in `Passes`."""

    found: Passes
    added: I64
    """Nodes whose gradients are added up: one pass for the sum of the losses would do."""
    asked: I64
    """Those of an output whose gradient for other inputs an earlier call took, and copies of nodes that they made."""
    rows: I64
    """Short nodes of passes for one output after another."""
    times: int = 1
    """How often a node runs at most where one pass would do."""
    n_rows: int = 0
    kept: float = 1.0

    @property
    def spared(self) -> I64:
        """All that one pass would not run."""
        return distinct(np.concatenate((self.added, self.asked)))

    @property
    def title(self) -> str:
        """How often, and whether losses or inputs are taken one by one."""
        if self.added.size >= self.asked.size:
            return f"{self.times} {_ONE_BY_ONE}"
        return f"{self.times} {_BY_INPUT}"

    @property
    def fix(self) -> str:
        """One sum of the losses, or one call for all inputs; first what spares more."""
        parts = sorted(zip((-self.added.size, -self.asked.size), BACKWARD_AGAIN.fixes, strict=True))
        return "; ".join(fix for size, fix in parts if size)


def again_of(trace: Trace) -> Again | None:
    """The work of a trace that goes through the same graph again."""
    found = passes_again(trace)
    if found is None:
        return None
    each = np.split(np.arange(found.rows.size), np.flatnonzero(np.diff(found.at)) + 1)
    added, n_added = _added(found, each)
    asked, n_asked = _asked(found, each)
    rows, n_rows, kept = _rows(found, each, asked)
    times = max(n_added, n_asked)
    return Again(found=found, added=added, asked=asked, rows=rows, times=times, n_rows=n_rows, kept=kept)


def _behind(found: Passes, mine: I64, is_again: Bool) -> Bool:
    """Those and the nodes without a number right behind each: they store its gradient."""
    last = np.maximum.accumulate(np.where(found.key[mine] >= 0, np.arange(mine.size), -1))
    return np.where(last >= 0, is_again[np.maximum(last, 0)], False)


def _joined(parts: list[I64]) -> I64:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _added(found: Passes, each: list[I64]) -> tuple[I64, int]:
    seen, runs = np.full(found.key.max() + 1, -1), np.zeros(found.key.max() + 1, np.int64)
    parts, times, extra, before = [], 1, 0, -1
    for number, mine in enumerate(each):
        if not found.stores[mine].any():
            continue
        extra += int(found.group[number] != before)
        before = int(found.group[number])
        keys = found.key[mine]
        known = np.maximum(keys, 0)
        is_again = _behind(found, mine, (keys >= 0) & (seen[known] == extra))
        stores = is_again & found.stores[mine]
        numbered = keys[keys >= 0]
        if is_again.any() and (not stores.any() or not found.adds[mine[stores]].all() or _is_of(found, mine, each)):
            extra, is_again = extra + 1, np.zeros_like(is_again)  # cleared between, or another's gradient
        runs[numbered] = np.where(seen[numbered] == extra, runs[numbered] + 1, 1)
        seen[numbered] = extra
        if is_again.any():
            parts.append(mine[is_again])
            times = max(times, int(runs[numbered].max()))
    return _joined(parts), times


def _is_of(found: Passes, mine: I64, each: list[I64]) -> bool:
    """Whether a pass goes through nodes that another, which stores gradients, made: it takes a gradient's gradient."""
    made = found.made_at[mine]
    return any(bool(found.stores[each[one]].any()) for one in distinct(found.at[made[made >= 0]]).tolist())


def _head(found: Passes, mine: I64, n_runs: I64) -> tuple[I64, I64]:
    """The nodes of a pass that no other runs, up to the first that another does, and the others."""
    keys = found.key[mine]
    is_shared = (keys >= 0) & (n_runs[np.maximum(keys, 0)] > 1)
    first = int(np.flatnonzero(is_shared)[0]) if is_shared.any() else mine.size
    return mine[:first], mine[first:]


def _asked(found: Passes, each: list[I64]) -> tuple[I64, int]:
    """Passes from the same output with the same gradient, ones, and what a later pass runs of both of their graphs."""
    trace, ops = found.trace, found.trace.ops
    is_sum, is_ones = trace.named(ops.name, _SUMS), trace.named(ops.name, _ONES)
    n_runs = np.bincount(found.key[found.key >= 0])
    first: dict[tuple[int, int, tuple[int, ...]], int] = {}
    parts, twins, times = [], dict[int, int](), 1
    counts: dict[int, int] = {}
    for number, mine in enumerate(each):
        head, body = _head(found, mine, n_runs)
        last = found.last_other[number]
        if found.stores[mine].any() or not body.size or not is_sum[found.rows[head]].all():
            continue
        if last < 0 or not is_ones[last]:
            continue
        root = (int(found.group[number]), int(found.key[body[0]]), tuple(ops.name[found.rows[head]].tolist()))
        other = first.setdefault(root, number)
        if other != number:
            shared = is_one_of(found.key[mine], found.key[each[other]][found.key[each[other]] >= 0].tolist())
            parts.append(mine[shared])
            twins[number] = other
            counts[other] = counts.get(other, 1) + 1
            times = max(times, counts[other])
    asked = _joined(parts)
    return (np.sort(_joined([asked, _copies(found, each, asked, twins)])), times) if asked.size else (asked, 1)


def _copies(found: Passes, each: list[I64], asked: I64, twins: dict[int, int]) -> I64:
    """Nodes that such a pass made a second time, in passes that run the first ones as well."""
    is_asked = np.zeros(found.rows.size, np.bool_)
    is_asked[asked] = True
    parts: list[I64] = []
    for mine in each:
        made = found.made_at[mine]
        of_pass = np.where(made >= 0, found.at[made], -1)
        is_copy = (made >= 0) & is_asked[made]
        copied = (one for one in distinct(of_pass[is_copy]).tolist() if twins[one] in of_pass)
        parts += [mine[is_copy & (of_pass == one)] for one in copied]
    return _joined(parts)


def _rows(found: Passes, each: list[I64], asked: I64) -> tuple[I64, int, float]:
    """Short nodes of passes that differ in which element of one tensor they begin with."""
    trace, ops = found.trace, found.trace.ops
    is_sum, is_pick = trace.named(ops.name, _SUMS), trace.named(ops.name, _PICKS)
    n_runs = np.bincount(found.key[found.key >= 0])
    known = set(found.at[asked].tolist())
    of: dict[tuple[int, int, tuple[int, ...]], list[I64]] = {}
    for number, mine in enumerate(each):
        head, body = _head(found, mine, n_runs)
        rows = found.rows[head]
        if number in known or found.stores[mine].any() or not body.size or not is_pick[rows].any():
            continue
        if (is_sum | is_pick)[rows].all():
            root = (int(found.group[number]), int(found.key[body[0]]), tuple(ops.name[rows].tolist()))
            of.setdefault(root, []).append(body)
    parts, kept, n_rows = [], _KEPT, 0
    for bodies in of.values():
        places = _joined(bodies[1:])
        places = places[found.key[places] >= 0]
        has_graph = bool(np.isin(found.made_at, places).any())
        lasts = (ops.end_ns - ops.start_ns)[found.rows[places]]
        is_short = lasts <= ROWS_APART.limit("with_graph" if has_graph else "each")
        if len(bodies) >= ROWS_APART.limit("rows") and 2 * int(lasts[is_short].sum()) >= int(lasts.sum()):
            parts.append(places[is_short])
            n_rows, kept = max(n_rows, len(bodies)), max(kept, _KEPT_WITH_GRAPH if has_graph else _KEPT)
    return np.sort(_joined(parts)), n_rows, kept


def _of_window(facts: Facts) -> Again | None:
    return again_of(facts.trace)


def _stretches(facts: Facts, found: Passes, places: I64) -> Ranges:
    """These nodes with nothing else between as a range each, pass by pass."""
    parts = []
    for _, of_thread in rows_by_value(found.trace.ops.thread[found.rows[places]]):
        mine = np.sort(places[of_thread])
        parts += np.split(mine, np.flatnonzero((np.diff(mine) > 1) | (np.diff(found.at[mine]) > 0)) + 1)
    return spanning(facts, [found.rows[part] for part in parts if part.size])


def backward_again(facts: Facts) -> Ranges | None:
    """What one pass, or one call, in place of several would not run."""
    seen = facts.once(_of_window)
    return None if seen is None else _stretches(facts, seen.found, seen.spared)


def rows_apart(facts: Facts) -> Ranges | None:
    """Short nodes of gradients that are taken row by row."""
    seen = facts.once(_of_window)
    return None if seen is None else _stretches(facts, seen.found, seen.rows)


def title_of_again(facts: Facts, _: Ranges) -> str:
    """How often, and whether losses or inputs are taken one by one."""
    seen = facts.once(_of_window)
    return seen.title if seen is not None else ""


def fix_of_again(facts: Facts, _: Ranges) -> str:
    """One sum of the losses, or one call for all inputs."""
    seen = facts.once(_of_window)
    return seen.fix if seen is not None else BACKWARD_AGAIN.fixes[0]


def title_of_rows(facts: Facts, _: Ranges) -> str:
    """How many calls that are."""
    seen = facts.once(_of_window)
    return f"{seen.n_rows} {_ROW_BY_ROW}" if seen is not None else ""


def kept_of_rows(facts: Facts, _: Ranges) -> float:
    """The share (0-1) that a batch of rows takes of the time."""
    seen = facts.once(_of_window)
    return seen.kept if seen is not None else 1.0


def places_of_again(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call all passes through a node that runs again."""
    return places_of_passes(facts, lambda trace: _passes_with(trace, lambda seen: seen.spared))


def places_of_rows(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call the passes of these rows."""
    return places_of_passes(facts, lambda trace: _passes_with(trace, lambda seen: seen.rows))


def _passes_with(trace: Trace, chosen: Callable[[Again], I64]) -> list[I64]:
    seen = again_of(trace)
    if seen is None:
        return []
    found, places = seen.found, chosen(seen)
    return [found.rows[places[found.at[places] == one]] for one in distinct(found.at[places]).tolist()]
