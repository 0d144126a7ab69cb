"""Work that is thrown away, or done again: rows that a slice, an index or a mask drops, that no loss needs, the same products.

Of products whose rows are dropped the backward pass shows it. The node of the slice sets a gradient of the full size to
zero and writes the few rows into it; the next node with a product made the full size. Names and order are in each
trace, sizes where shapes are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import prod
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import (
    Forward,
    Waste,
    each_with_backward,
    function_of,
    numbers_of,
    timed_rows,
)
from profkit.analyzers.patterns.smaller import made_of
from profkit.findings.wasted import MASKED_ROWS, REPEATED, THROWN_AWAY
from profkit.model.arrays import I64, distinct_codes, is_member, is_one_of, place_among
from profkit.model.trace import Spans, Trace
from profkit.plain import clean
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares
from profkit.timeline.host import enclosing_op, outermost
from profkit.timeline.steps import edges, step_of, steps_in_window

_NODE: Final = later(r"^autograd::engine::evaluate_function: (\w+?)Backward\d*$")
_DROPS: Final = frozenset({"Select", "Slice", "Index", "IndexSelect"})
_BY_ROWS: Final = frozenset(
    {"Alias", "Clone", "Gelu", "LeakyRelu", "LogSoftmax", "NativeDropout", "Permute", "Relu", "ReshapeAlias", "Sigmoid"}
    | {"Silu", "Softmax", "Squeeze", "ToCopy", "Transpose", "UnsafeView", "Unsqueeze", "View", "T", "Tanh"}
)
"""Nodes of what works on each row alone: of a row that is thrown away they need not be computed either."""
_PRODUCTS: Final = frozenset({"Addmm", "Baddbmm", "Bmm", "Convolution", "Mm", "MkldnnLinear"})
_BIAS: Final = "Add"
"""A bias, where the node that stores a gradient comes right behind it; else it may be a residual, which other rows need."""
_STORED: Final = ""
_GIVES: Final = later(r"^aten::(?:select_backward|slice_backward|_index_put_impl_|index_add_)$")
_SIZE_AND_DIM: Final = (1, 2)
_VALUES: Final = {"aten::_index_put_impl_": 2, "aten::index_add_": 3}


class _Chain(msgspec.Struct, frozen=True):
    """Rows of `Trace.ops`: nodes that drop rows, in the order of the backward pass, and the node of the product."""

    drops: tuple[int, ...]
    product: int


def _chains(seen: Forward) -> list[_Chain]:
    trace, ops, backward = seen.trace, seen.trace.ops, seen.backward
    what = {
        code: match[1] if (match := _NODE.match(trace.name(code))) else _STORED
        for code in distinct_codes(ops.name[backward.rows]).tolist()
    }
    if not _DROPS & set(what.values()):
        return []
    out = []
    for start, place in backward.by_thread.values():
        rows = backward.rows[place[np.argsort(start, kind="stable")]].tolist()
        names = [what[code] for code in ops.name[rows].tolist()]
        out += [_Chain(tuple(rows[at] for at in drops), rows[to]) for drops, to in _runs(names)]
    return sorted(out, key=lambda one: int(ops.start_ns[one.product]))


def _runs(names: list[str]) -> Iterator[tuple[list[int], int]]:
    """The places of drops that stand together, with that of the product they lead to."""
    at = 0
    while at < len(names):
        drops: list[int] = []
        while at < len(names) and (names[at] in _DROPS or (drops and names[at] in _BY_ROWS)):
            if names[at] in _DROPS:
                drops.append(at)
            at += 1
        if drops and names[at : at + 2] == [_BIAS, _STORED]:
            at += 2
            while at < len(names) and names[at] in _BY_ROWS:
                at += 1
        if drops and at < len(names) and names[at] in _PRODUCTS:
            yield drops, at
        at += 1


def _kept(trace: Trace, chain: _Chain, inside: dict[int, list[int]]) -> float | None:
    """The share (0-1) of a product's rows that a chain keeps; None where its sizes are not known, do not fit, or columns are dropped, not rows."""
    is_convolution = "Convolution" in trace.name(int(trace.ops.name[chain.product]))
    branches: list[list[tuple[int, ...]]] = []  # each from what is used to the full size
    for row in chain.drops:
        sizes = next((found for op in inside.get(row, []) if (found := _sizes(trace, op, is_convolution))), None)
        if sizes is None:
            return None
        used, full = sizes
        if branches and branches[-1][-1] == used:
            branches[-1].append(full)
        else:
            branches.append([used, full])
    full = branches[0][-1]
    if any(one[-1] != full for one in branches) or not _has_size(trace, inside.get(chain.product, []), full):
        return None
    return sum(math.prod(one[0]) for one in branches) / max(math.prod(full), 1)


def _sizes(trace: Trace, row: int, is_convolution: bool) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Of an operator that gives the gradient its full size: the size used, and the full one."""
    name, one = trace.name(int(trace.ops.name[row])), trace.given(row)
    if one is None or not _GIVES.match(name):
        return None
    if name in _VALUES:
        place = _VALUES[name]
        full, used = one.shape(0), one.shape(place)
        is_by_rows = bool(full and used) and full[-1] == used[-1] and not is_convolution
    else:
        size, dim = _SIZE_AND_DIM
        used, full = one.shape(0), tuple(numbers_of(one, size))
        axes = numbers_of(one, dim)
        number = axes[0] % len(full) if full and axes else -1
        is_by_rows = number >= 2 if is_convolution else 0 <= number < len(full) - 1
    return (used, full) if is_by_rows and used else None


def _has_size(trace: Trace, rows: list[int], full: tuple[int, ...]) -> bool:
    """Whether one of these operators takes a tensor of so many elements: the gradient that the drops made."""
    known = [one for row in rows if (one := trace.given(row)) is not None]
    return any(math.prod(shape) == math.prod(full) for one in known for shape in one.tensors)


def _inside(trace: Trace, chains: list[_Chain]) -> dict[int, list[int]]:
    """The operators within each of the chains' nodes."""
    ops, out = trace.ops, dict[int, list[int]]()
    for row in {row for one in chains for row in (*one.drops, one.product)}:
        low, high = np.searchsorted(ops.start_ns, (ops.start_ns[row], ops.end_ns[row]))
        out[row] = (np.flatnonzero(ops.thread[low:high] == ops.thread[row]) + low).tolist()
    return out


def products(facts: Facts, seen: Forward) -> Waste | None:
    """The products of which at most `kept` is used, by the order of chains in each step.

    Their forward operators, and the backward pass from the first drop on.
    """
    timed = _chains(facts.once(Forward))
    n_timed, again = _a_step(facts.trace, timed), facts.trace.again
    if not timed or not n_timed:
        return None
    few = _few(seen, timed if seen.trace is facts.trace else _chains(seen), n_timed)
    # a mask keeps other numbers of rows in each step: the shapes of the timed steps do not tell which
    if again is not None and again is not seen.trace:
        own = Forward(facts, again)
        few = {**_few(own, _chains(own), n_timed), **few}
    if not few:
        return None
    title = f"a layer computes all rows, and {100 * max(few.values()):.3g} % of them are used"
    mine = [one for at, one in enumerate(timed) if at % n_timed in few]
    return Waste(_ranges(facts, mine), max(few.values()), title)


def _few(seen: Forward, chains: list[_Chain], n: int) -> dict[int, float]:
    """The share (0-1) of the rows that is used, of those of a step's n chains of which few are in each step."""
    if _a_step(seen.trace, chains) != n:
        return {}
    inside = _inside(seen.trace, chains)
    kept = [_kept(seen.trace, one, inside) for one in chains]
    known = [[one for one in kept[at::n] if one is not None] for at in range(n)]
    n_steps, most = len(chains) // n, THROWN_AWAY.limit("kept")
    return {at: max(each) for at, each in enumerate(known) if len(each) == n_steps and max(each) <= most}


def _a_step(trace: Trace, chains: list[_Chain]) -> int:
    """How many each step has; 0 where steps differ."""
    steps = steps_in_window(trace)
    at = np.array([int(trace.ops.start_ns[one.product]) for one in chains], np.int64)
    counts = {int(((at >= step.start_ns) & (at < step.end_ns)).sum()) for step in steps}
    n = counts.pop() if len(counts) == 1 else 0
    return n if n * len(steps) == len(chains) else 0


def _ranges(facts: Facts, chains: list[_Chain]) -> Ranges:
    trace, backward = facts.trace, facts.once(Forward).backward
    ops = trace.ops
    last = np.array([one.product for one in chains], np.int64)
    first = np.array([one.drops[0] for one in chains], np.int64)
    forward = backward.forward[is_member(backward.rows, np.sort(last))]
    forward = forward[forward >= 0]
    tops = outermost(ops)
    around = enclosing_op(ops.take(tops), ops.thread[forward], ops.start_ns[forward])
    back = Ranges.of(ops, last, trace.window_ns, start_ns=ops.start_ns[first])
    return Ranges.joined(Ranges.of(ops, tops[around[around >= 0]], trace.window_ns), back)


_DROP: Final = later(r"^aten::(?:gather|index|index_select|take_along_dim)$")
_MASKS: Final = later(r"^aten::(?:scaled_dot_product_attention|masked_fill_?|where)$")


def _is_masked(seen: Forward, place: int, length: int) -> bool:
    """Whether it hides keys of a sequence of that length alike from all queries."""
    dims = seen.dims(place)
    masks = [one for one in dims if len(one) > 2 and one[-2:] == (1, length)]
    return bool(masks) and any(len(one) == 4 and length in one[-2:] and one[-2] != 1 for one in dims)


def masked_rows(facts: Facts, seen: Forward) -> Waste | None:
    """What works on all of those rows, forward and backward: a question, so all of it stays."""
    attention = seen.places(_MASKS)
    if not attention:
        return None
    begins, _ = edges(seen.trace.steps)
    step = place_among(begins, seen.trace.ops.start_ns[seen.rows], after=True)
    work: list[int] = []
    drops: list[int] = []
    passed: list[int] = []
    used = []
    for place in seen.places(_DROP):
        dims, made = seen.dims(place), made_of(seen, place)
        if not dims or len(dims[0]) != 3 or len(made) != 3 or made[0] != dims[0][0] or made[2] != dims[0][2]:
            continue
        n, length, _ = dims[0]
        if not 0 < MASKED_ROWS.limit("least") * length <= made[1] <= MASKED_ROWS.limit("most") * length:
            continue
        before = [*np.flatnonzero(seen.is_back[:place])[-1:].tolist(), *passed[-1:]]
        first = max(before, default=-1) + 1
        passed.append(place)
        mine = [one for one in attention if first <= one < place and step[one] == step[place]]
        if not any(_is_masked(seen, one, length) for one in mine):
            continue
        drops.append(place)
        used.append(made[1] / length)
        work += [
            one
            for one in range(first, place)
            if step[one] == step[place]
            and any(
                prod(each[:-1]) == n * length or (len(each) == 4 and each[2] == length) for each in seen.dims(one)[:1]
            )
        ]
    rows = timed_rows(facts, seen, seen.rows[np.unique(np.array(work, np.int64))])
    if not rows.size:
        return None
    title = _title_of_masked(facts, timed_rows(facts, seen, seen.rows[drops]), max(used))
    return Waste(each_with_backward(facts, rows), 1.0, title)


def _title_of_masked(facts: Facts, drops: I64, used: float) -> str:
    """How many are used, and from which line on."""
    at = Ranges.of(facts.trace.ops, drops, facts.trace.window_ns)
    told = shares(facts.code, rows_of(facts, facts.code, at, spare_work=False)) if facts.code is not None else ()
    there = f"from {told[0].place.name} on" if told else "behind it"
    return f"layers compute all rows, attention hides some by a mask, and {there} {100 * used:.3g} % of them are used"


SAME_TENSORS: Final = "profkit: of the same tensors"
PARAMETRIZATION: Final = "parametrization "
"""What the names of its ranges begin with, and what stands behind the number of what is computed:
`profkit/capture/inside/places/same_inputs.py`."""
_MARK: Final = later(rf"^{SAME_TENSORS}")
_VIEW: Final = later(r"^aten::(?:t|numpy_T|m[TH]|transpose|permute|view|expand|(?:un)?squeeze|select|slice|diagonal)$")
_HOOK: Final = " by the hook of "
_LAYER_CALLS: Final = later(r"^aten::(?:linear|conv\w*|_?convolution)$")
_CACHED: Final = "with torch.nn.utils.parametrize.cached(): around the forward pass of each step, up to backward(): the weight is then computed once"
_NEWER: Final = "put torch.nn.utils.parametrizations.weight_norm in its place, and "
_ONCE: Final = "compute it once for each of its inputs, before the loop, and hand it in"


def repeated(facts: Facts) -> Waste | None:
    """All but the first of what is computed of the same tensors, with its backward nodes."""
    spans, times = _repeats(facts)
    if spans is None or facts.trace.again is None:
        return None
    again, seen = facts.trace.again, Forward(facts, facts.trace.again)
    ops = again.ops
    place = enclosing_op(spans, ops.thread[seen.rows], ops.start_ns[seen.rows])
    is_again = (place >= 0) & ~seen.is_back
    timed = timed_rows(facts, seen, seen.rows[is_again])
    if not timed.size:
        return None
    spent = np.bincount(place[is_again], weights=(ops.end_ns - ops.start_ns)[seen.rows[is_again]], minlength=len(spans))
    most = int(spans.name[int(np.argmax(np.bincount(spans.name, weights=spent)[spans.name]))])
    calls = seen.rows[is_again & (spans.name[np.maximum(place, 0)] == most)]
    is_layer = bool(again.named(ops.name, _LAYER_CALLS)[calls].any())
    who = "" if is_layer else function_of(facts, timed)
    title, fix = _told_of_repeats(again.name(most), times[most], is_layer=is_layer, who=who)
    return Waste(_together(facts, timed), 0.0, title, fix)


def _repeats(facts: Facts) -> tuple[Spans | None, dict[int, int]]:
    """The marks of what a step computes often enough, and how often by the codes of their names; None of none."""
    again = facts.trace.again
    if again is None or not again.steps:
        return None, {}
    spans = again.spans
    marks = np.flatnonzero(again.named(spans.name, _MARK))
    codes, counts = np.unique(spans.name[marks], return_counts=True)
    each = counts // len(again.steps)
    times = {
        code: n + 1 for code, n in zip(codes.tolist(), each.tolist(), strict=True) if n + 1 >= REPEATED.limit("calls")
    }
    return (spans.take(marks[is_one_of(spans.name[marks], list(times))]) if times else None), times


def _told_of_repeats(name: str, n: int, *, is_layer: bool, who: str) -> tuple[str, str]:
    """The title and what to do, by the mark of what has most of the time."""
    _, _, whose = name.partition(PARAMETRIZATION)
    if whose:
        title = f"the parametrization of {clean(whose)} is computed {n} times in a step, of the same tensors"
        return title, f"{_NEWER if _HOOK in whose else ''}{_CACHED}"
    if is_layer:
        return f"a layer computes the same {n} times in a step: neither its input nor its weights change", ""
    title = f"{who} computes the same {n} times in a step" if who else f"the same is computed {n} times in a step"
    return f"{title}, of tensors that do not change", _ONCE


def _together(facts: Facts, rows: I64) -> Ranges:
    """Those of one thread with nothing but views between, with what lies between them, and their backward nodes."""
    seen, ops = facts.once(Forward), facts.trace.ops
    places = np.flatnonzero(is_member(seen.rows, np.sort(rows)))
    mine = seen.rows[places]
    apart = np.diff(np.cumsum(~facts.trace.named(ops.name, _VIEW)[seen.rows])[places]) > 1
    apart |= np.diff(ops.thread[mine]) != 0
    apart |= np.diff(step_of(ops.start_ns[mine], facts.trace.steps)) != 0
    return seen.with_backward(np.split(mine, np.flatnonzero(apart) + 1))
