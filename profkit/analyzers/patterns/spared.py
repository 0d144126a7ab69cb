"""Work that is spared by another way to do it, known by recorded shapes.

Experts of all tokens, a sequence that is computed again for each token, a whole sort of which few values are kept, a
product with one-hot vectors, an optimizer that works on all rows of embedding tables though a step looks up few.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.forward import forward_work
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import LINEAR, PRODUCT, Forward, Waste, has, lead, number_of, numbers_of, sliced
from profkit.findings.wasted import DENSE_EXPERTS, DENSE_TABLE, FULL_SORT
from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.model.trace import EMBEDDED, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op, outermost

_CHOICE: Final = later(r"^aten::(?:topk|argmax|max)$")
_GATE: Final = later(r"^aten::mul_?$")
_MARK: Final = later(r"^aten::(?:mul_?|index|index_put_|where|masked_fill_?|stack|cat)$")
_LEAST_GROWN: Final = 8
"""Lengths one above the other, from which a sequence is known to grow by tokens. Chosen: layers grow four times."""
_SORT: Final = later(r"^aten::(?:arg)?sort$")
_ONE_HOT: Final = later(r"^aten::one_hot$")
_BEHIND: Final = 4
"""Operators behind a sort among which its slices are looked for: sort gives two tensors. Chosen."""
_NEAR: Final = 8
"""Operators between a one-hot tensor and the product that takes it: a conversion, views. Chosen."""
_TOPK_OF_SORT: Final = (0.05, 0.1, 1.5)
"""What topk takes of the time of a long sort, of one below `_LONG` values, and beside it for each share kept. Chosen near
what was measured on one CPU: 0.03 to 0.05 for 20 of 4,096 and 1,000 of 100,000; of 320 values 0.11 to 0.20 for 10, 0.6 for 80."""
_LONG: Final = 1024


def _chosen(seen: Forward, place: int) -> tuple[int, int, int]:
    """The rows, the columns and how many of these a choice along the last axis keeps; zeros of others."""
    told, is_top = seen.given(place), seen.name(place) == "aten::topk"
    dims = told.shape(0) if told is not None else ()
    if told is None or len(dims) < 2:
        return 0, 0, 0
    is_last = told.concrete[1:2] != ("",) and number_of(told, 2 if is_top else 1) in (-1, len(dims) - 1)
    return (lead(dims), dims[-1], number_of(told, 1) if is_top else 1) if is_last else (0, 0, 0)


def dense_experts(facts: Facts) -> Waste | None:
    """Runs of products that each take all tokens, behind a choice, and their backward pass.

    What stays is the share of the choice that keeps most.
    """
    if not has(facts, _CHOICE):
        return None
    seen = facts.once(Forward)
    choices, products, marks = seen.places(_CHOICE), seen.places(PRODUCT), seen.places(_MARK)
    ends = [*choices, seen.rows.size][1:]
    back = np.flatnonzero(seen.is_back)
    groups: list[I64] = []
    kept = []
    for place, following in zip(choices, ends, strict=True):
        n_rows, n_columns, n_kept = _chosen(seen, place)
        if not 0 < n_kept < n_columns or n_columns < DENSE_EXPERTS.limit("experts"):
            continue
        until = min(following, *back[np.searchsorted(back, place) :][:1].tolist(), following)
        alike: dict[tuple[Any, ...], list[int]] = {}
        batched = []
        for one in _between(products, place, until):
            dims = seen.dims(one)
            if len(dims) > 1 and lead(dims[0]) == n_rows:
                alike.setdefault((dims[0], dims[1]), []).append(one)
            elif len(dims) > 1 and len(dims[0]) == 3 and dims[0][:2] == (n_columns, n_rows):
                batched.append(one)
        each = [found for found in alike.values() if len(found) == n_columns]
        marked = sum(_marks(seen, one, n_rows, n_columns) for one in _between(marks, place, until))
        spans = [(min(one[0] for one in each), max(one[-1] for one in each))] if each and marked >= n_columns else []
        for first, last in (*spans, *((one, one) for one in batched)):
            groups.append(seen.rows[first : last + 1])
            kept.append((n_kept, n_columns))
    if not groups:
        return None
    n_kept, n_columns = max(kept, key=lambda one: one[0] / one[1])
    title = f"each of {n_columns} experts computes all tokens, and {n_kept} are picked for a token"
    return Waste(seen.with_backward(groups), n_kept / n_columns, title)


def _between(places: list[int], low: int, high: int) -> list[int]:
    return places[bisect_right(places, low) : bisect_left(places, high)]


def _marks(seen: Forward, place: int, n_rows: int, n_columns: int) -> int:
    """How many experts' outputs an operator weighs, picks rows of, or puts side by side."""
    told = seen.given(place)
    if told is None:
        return 0
    if listed := told.listed(0):
        return len(listed) if len(listed) == n_columns and all(lead(one) == n_rows for one in listed) else 0
    dims = told.tensors
    if _GATE.search(seen.name(place)):
        is_one = [one[-1] == 1 for one in dims[:2]]
        return int(sorted(is_one) == [False, True] and all(lead(one) == n_rows for one in dims[:2]))
    return int(bool(dims) and lead(dims[0]) == n_rows)


def _grown(seen: Forward) -> tuple[I64, I64, NDArray[np.float64]] | None:
    """Stretches in which products take a sequence that grows from call to call, and no backward pass reads them.

    Their first and last places; rows of products, and the share of each that the tokens before the newest have.
    """
    ops = seen.trace.ops
    codes = ops.signature[seen.trace.named(ops.name, LINEAR) & (ops.signature >= 0)]
    if distinct_codes(codes).size < _LEAST_GROWN:
        return None
    of: dict[tuple[int, Any], list[tuple[int, int]]] = {}
    for place in seen.places(LINEAR):
        dims, row = seen.dims(place), seen.rows[place]
        if len(dims) > 1 and len(dims[1]) == 2 and not seen.is_read(place):
            of.setdefault((int(ops.thread[row]), dims[1]), []).append((place, lead(dims[0])))
    stretches: list[tuple[int, int]] = []
    lengths: dict[int, float] = {}
    for calls in of.values():
        places, sizes = np.array(calls, np.int64).T
        begins = np.flatnonzero(np.diff(sizes, prepend=-1))
        length, ends = sizes[begins], np.append(begins[1:], sizes.size) - 1
        step = np.diff(length)
        for part in np.split(np.arange(step.size), np.flatnonzero(np.diff(step)) + 1):
            if part.size + 1 < _LEAST_GROWN:
                continue
            first, last, by = int(part[0]), int(part[-1]) + 1, int(step[part[0]])
            low, high = int(places[begins[first]]), int(places[ends[last]])
            times = ops.start_ns[seen.rows[[low, high]]]
            if by <= 0 or not length[first] or (length[first : last + 1] % by).any() or seen.n_read(*times):
                continue
            stretches.append((low, high))
            for number in range(first, last + 1):
                lengths[int(places[begins[number]])] = 1 - by / int(length[number])
    if not stretches:
        return None
    merged: list[tuple[int, int]] = []
    for low, high in sorted(stretches):
        before = merged.pop() if merged and low <= merged[-1][1] else (low, high)
        merged.append((before[0], max(high, before[1])))
    at = np.array(sorted(lengths), np.int64)
    return np.array(merged, np.int64), seen.rows[at], np.array([lengths[one] for one in at.tolist()])


def regrown(facts: Facts, seen: Forward) -> Waste | None:
    """From the first to the last product over a sequence that grows, in work without gradients.

    A cache leaves the newest token's part, and what is no operator.
    """
    found = _grown(seen)
    if found is None:
        return None
    stretches, rows, shares = found
    trace, ops = facts.trace, facts.trace.ops
    is_timed = seen.trace is trace
    if is_timed:
        low, high = seen.rows[stretches.T]
        at: Ranges | None = Ranges.of(ops, low, trace.window_ns, end_ns=ops.end_ns[high])
    else:
        at = forward_work(facts)
    if at is None:
        return None
    tops = outermost(ops)
    inside = np.zeros(tops.size, np.bool_)
    for begin, end, thread in zip(at.start_ns, at.end_ns, at.thread, strict=True):
        inside |= (ops.start_ns[tops] >= begin) & (ops.end_ns[tops] <= end) & (ops.thread[tops] == thread)
    mine = tops[inside]
    lasts = ops.end_ns[mine] - ops.start_ns[mine]
    if is_timed:
        place = np.maximum(np.searchsorted(ops.start_ns[rows], ops.start_ns[mine], "right") - 1, 0)
        spared = float((lasts * shares[place]).sum())
    else:
        spared = float(lasts.sum() * shares.mean())
    whole = int((at.end_ns - at.start_ns).sum())
    return Waste(at, 1 - min(spared / whole, 1.0) if whole else 1.0)


def full_sorts(facts: Facts) -> Waste | None:
    """Sorts of which a slice right behind keeps few values, less what topk takes as well."""
    if not has(facts, _SORT):
        return None
    seen = facts.once(Forward)
    found = []
    for place in seen.places(_SORT):
        told = seen.given(place)
        dims = told.shape(0) if told is not None else ()
        if told is None or not dims:
            continue
        axis = next((one for at in range(1, len(told.concrete)) for one in numbers_of(told, at)), -1) % len(dims)
        kept = [sliced(seen, one, dims, axis) for one in range(place + 1, min(place + 1 + _BEHIND, seen.rows.size))]
        most = max((one for one in kept if 0 < one < dims[axis]), default=dims[axis])
        if dims[axis] >= FULL_SORT.limit("length") and most <= FULL_SORT.limit("kept") * dims[axis]:
            found.append((int(seen.rows[place]), dims[axis], most))
    if not found:
        return None
    topk = max(_TOPK_OF_SORT[size < _LONG] + _TOPK_OF_SORT[2] * kept / size for _, size, kept in found)
    rows = np.array([row for row, _, _ in found], np.int64)
    _, n_values, n_kept = max(found, key=lambda one: one[1])
    title = f"rows of {n_values:,} values are sorted whole, and {n_kept:,} of each are kept"
    return Waste(Ranges.of(facts.trace.ops, rows, facts.trace.window_ns), min(topk, 1.0), title)


def one_hots(facts: Facts) -> Waste | None:
    """One-hot tensors and the products that take them, with their backward pass."""
    if not has(facts, _ONE_HOT):
        return None
    seen = facts.once(Forward)
    products = set(seen.places(PRODUCT))
    groups = []
    for place in seen.places(_ONE_HOT):
        told = seen.given(place)
        n_classes, dims = (number_of(told, 1), told.shape(0)) if told is not None else (0, ())
        for number in range(place + 1, min(place + 1 + _NEAR, seen.rows.size)):
            given = seen.dims(number)[:1] if number in products else []
            if given and n_classes > 1 and given[0][-1] == n_classes and lead(given[0]) == prod(dims):
                groups.append(seen.rows[np.array([place, number])])
                break
    return Waste(seen.with_backward(groups), 0.0) if groups else None


_FILL: Final = later(r"^aten::(?:fill_|zero_)$")
_DENSE_BACKWARD: Final = later(r"^aten::embedding_dense_backward$")
_N_WEIGHTS: Final = 2
"""The place of the table's rows among its arguments."""


def _tables(facts: Facts) -> tuple[int, int, float] | None:
    """The rows of such tables, how many of them a step looks up at most, and the share (0-1) of the optimizer's time.

    None where a step may look up many of their rows, where other parameters take half of the time, without shapes.
    """
    typed = facts.trace if len(facts.trace.work) else facts.trace.again
    if typed is None or not typed.steps:
        return None
    looked_up: dict[tuple[int, ...], float] = {}
    for code, value in zip(typed.work.name.tolist(), typed.work.value.tolist(), strict=True):
        name = typed.name(code)
        if name.startswith(EMBEDDED):
            dims = tuple(int(one) for one in name.removeprefix(EMBEDDED).split(",") if one.strip().isdigit())
            looked_up[dims] = looked_up.get(dims, 0.0) + value / len(typed.steps)
    dense, few = _dense_rows(typed), DENSE_TABLE.limit("rows")
    sparse = {
        dims: n for dims, n in looked_up.items() if len(dims) == 2 and 0 < n <= few * dims[0] and dims[0] in dense
    }
    share = _share_of_optimizer(typed, sparse.keys()) if sparse else 0.0
    if share < DENSE_TABLE.limit("optimizer"):
        return None
    return sum(dims[0] for dims in sparse), round(sum(sparse.values())), share


def _dense_rows(typed: Trace) -> set[int]:
    """The rows of tables that get a dense gradient: of a sparse one the optimizer takes the rows that were looked up."""
    rows = np.flatnonzero(typed.named(typed.ops.name, _DENSE_BACKWARD))
    told = (typed.signatures[code] for code in distinct_codes(typed.ops.signature[rows]).tolist())
    texts = (one.text(_N_WEIGHTS) for one in told if one is not None)
    return {int(text) for text in texts if text.isdigit()}


def _share_of_optimizer(typed: Trace, shapes: Collection[tuple[int, ...]]) -> float:
    spans, ops = typed.spans, typed.ops
    steps = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    of_table = [code for code, one in enumerate(typed.signatures) if one is not None and one.shape(0) in shapes]
    is_outer = enclosing_op(ops, ops.thread, ops.start_ns - 1) < 0
    inside = (enclosing_op(steps, ops.thread, ops.start_ns) >= 0) & is_outer
    lasts = ops.end_ns - ops.start_ns
    return int(lasts[inside & is_one_of(ops.signature, of_table)].sum()) / max(int(lasts[inside].sum()), 1)


def updates(facts: Facts) -> Waste | None:
    """The optimizer's steps, and where a dense gradient is set to zero before rows are added to it.

    What goes into other parameters stays, and into rows that a step looks up.
    """
    found = _tables(facts) if facts.cpu is not None else None
    if found is None:
        return None
    trace, ops, (n_rows, n_used, share) = facts.trace, facts.trace.ops, found
    of_steps = Ranges.of(trace.spans, trace.spans.kind == SpanKind.OPTIMIZER, trace.window_ns)
    fills = np.flatnonzero(trace.named(ops.name, _FILL))
    dense = ops.take(np.flatnonzero(trace.named(ops.name, _DENSE_BACKWARD)))
    fills = fills[enclosing_op(dense, ops.thread[fills], ops.start_ns[fills]) >= 0]
    title = (
        f"the optimizer updates all {n_rows:,} rows of embedding tables, of which a step looks up {n_used:,} at most"
    )
    ranges = Ranges.joined(of_steps, Ranges.of(ops, fills, trace.window_ns))
    return Waste(ranges, 1 - share * (1 - n_used / n_rows), title)
