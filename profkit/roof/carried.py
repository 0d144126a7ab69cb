"""The shapes of timed steps that were recorded without, from the steps that their capture recorded once more.

An operator takes over what the same operator was given in the second window, where all steps recorded there agree on
it. That the timed steps were given the same is not recorded, so what speaks against it is looked at: counts that the
script told, kernels that differ from step to step, on a CPU products that take much longer in one step than in another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, distinct_codes, is_one_of, rows_by_value
from profkit.model.signature import Signature
from profkit.model.trace import I32, Kind, ShapesDoubt, Trace
from profkit.roof.formulas import PRODUCTS
from profkit.timeline.code.match import Match, match_ops
from profkit.timeline.host import enclosing_op, parent_rows
from profkit.timeline.steps import step_of, told

_FEW: Final = 0.05
"""Share of the operators with kernels that may launch others from step to step, as sorting does, where values decide.
Where more do, shapes vary. Chosen."""
_LONGER: Final = 1.5
"""Times as long that the products of one step may take as those of another, on a CPU, and count as of the same shapes.
Chosen: a batch half as long again. On a crowded machine steps of equal shapes differ by 1.0 to 1.8, in a third of
the captures by more than 1.5 (they get no shapes), steps of batches of 128 to 512 by 2.0 to 3.5."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def with_shapes(trace: Trace, match: Match | None) -> Trace:
    """The timed trace with the arguments of its operators, where it has none and its second window tells them."""
    other = trace.again
    if other is None or match is None or trace.signatures:
        return trace
    code = _codes(other)
    agreed = np.where(_is_agreed(other, code, match), code, -1).astype(np.int32)
    signature = _both(agreed, match.first, match.last)
    signature[_may_be_more(trace, match)] = -1
    doubt = None
    for reason, unlike in _unlike(trace, match, signature):
        doubt = reason if (signature >= 0).any() and unlike[signature >= 0].all() else doubt
        signature[unlike] = -1
    without = int((code[match.rows[match.rows >= 0]] < 0).sum())
    wanted, n_known = match.n_in_steps - without, int((signature >= 0).sum())
    return replace(
        trace,
        ops=replace(trace.ops, signature=signature),
        signatures=other.signatures if n_known else (),
        shapes_carried=n_known / wanted if wanted else 0.0,
        shapes_doubt=doubt,
    )


def _unlike(trace: Trace, match: Match, signature: I32) -> Iterator[tuple[ShapesDoubt, NDArray[np.bool_]]]:
    """Signs that operators had other shapes than later, each with those operators; looked at one after the other."""
    assert trace.again is not None  # noqa: S101 - there is a match
    yield ShapesDoubt.COUNTS, _told_otherwise(trace, match)
    if trace.device_indices:
        yield ShapesDoubt.LAUNCHES, _varying_launches(trace, match)
    elif not _is_told_equal(trace, trace.again):
        yield ShapesDoubt.TIMES, _varying_times(trace, match, signature)


def _codes(trace: Trace) -> I32:
    """Per operator the first of the signatures that are equal to its own but for what a number's value is; -1: none."""
    first: dict[object, int] = {}
    plain = [-1 if one is None else first.setdefault(_plain(one), place) for place, one in enumerate(trace.signatures)]
    return np.array([*plain, -1], np.int32)[trace.ops.signature]


def _plain(signature: Signature) -> object:
    """What shapes and formulas go by: learning rates and the like may differ from step to step."""
    values = tuple("." if _is_fraction(text) else text for text in signature.concrete)
    return signature.dims, signature.types, signature.strides, values


def _is_fraction(text: str) -> bool:
    try:
        return not text.lstrip("-").isdigit() and float(text) != 0
    except ValueError:
        return False


def _is_agreed(other: Trace, code: I32, match: Match) -> NDArray[np.bool_]:
    """The operators of the second window that another step there has too, and that no step there has otherwise."""
    used = distinct_codes(match.step_of).tolist()
    seen, denied = np.zeros(code.size, np.bool_), np.zeros(code.size, np.bool_)
    for place, step in enumerate(other.steps):
        mine = replace(other, steps=tuple(other.steps[one] for one in used if one != place))
        found = match_ops(mine, replace(other, steps=(step,)))
        theirs = _both(code, found.first, found.last)
        seen |= (theirs >= 0) & (theirs == code)
        denied |= (found.rows >= 0) & (theirs != code)
    return seen & ~denied


def _both(values: I32, first: I64, last: I64) -> I32:
    """What both matches say, -1 where they differ or there is none."""
    if not values.size:
        return np.full(first.size, -1, np.int32)
    one, two = values[np.maximum(first, 0)], values[np.maximum(last, 0)]
    return np.where((first >= 0) & (last >= 0) & (one == two), one, np.int32(-1))


def _may_be_more(trace: Trace, match: Match) -> NDArray[np.bool_]:
    """The operators that may be one too many: matched in several ways, with others of the name left out there."""
    ops = trace.ops
    step = step_of(ops.start_ns, trace.steps)
    of = (step * len(trace.threads) + ops.thread) * len(trace.strings) + ops.name
    is_left_out = (step >= 0) & ((match.first < 0) | (match.last < 0))
    found: NDArray[np.bool_] = (match.first != match.last) & np.isin(of, distinct(of[is_left_out]))
    return found


def _told_otherwise(trace: Trace, match: Match) -> NDArray[np.bool_]:
    """The operators of steps for which the script told other counts than for the step that they are matched with."""
    assert trace.again is not None  # noqa: S101 - there is a match
    mine, theirs = told(trace), told(trace.again)
    n_steps = len(trace.steps)
    place, differs = np.maximum(match.step_of, 0), np.zeros(n_steps + 1, np.bool_)
    if not n_steps or not trace.again.steps:
        return np.zeros(len(trace.ops), np.bool_)
    counts = {name: (mine[name], theirs[name][place]) for name in ("samples", "padded_tokens", "tokens")}
    is_padded = (counts["padded_tokens"][0] > 0) & (counts["padded_tokens"][1] > 0)  # then real ones may differ
    for name, (one, two) in counts.items():
        unlike = (one > 0) & (two > 0) & (one != two)
        differs[:n_steps] |= unlike & ~is_padded if name == "tokens" else unlike
    return differs[step_of(trace.ops.start_ns, trace.steps)]


def _is_told_equal(trace: Trace, other: Trace) -> bool:
    """Whether the script told one count of samples and one of tokens for all steps of both windows.

    Only both together tell the size of a batch: as many samples may be longer, as many tokens in fewer samples.
    """
    counts = [told(one) for one in (trace, other)]
    every = {name: np.concatenate([one[name] for one in counts]) for name in ("samples", "tokens", "padded_tokens")}
    one = {name: bool(values.size and values[0] > 0 and (values == values[0]).all()) for name, values in every.items()}
    return one["samples"] and (one["padded_tokens"] or (one["tokens"] and not every["padded_tokens"].any()))


def _varying_launches(trace: Trace, match: Match) -> NDArray[np.bool_]:
    """The operators that launch other kernels, grids or copies in one step than in another; all, where many do."""
    gpu, calls = trace.gpu, trace.calls
    rows = np.flatnonzero((gpu.launch_row >= 0) & is_one_of(gpu.kind, (Kind.COMPUTE, Kind.COPY)))
    call = gpu.launch_row[rows]
    op = enclosing_op(trace.ops, calls.thread[call], calls.start_ns[call])
    rows, op = rows[op >= 0], op[op >= 0]
    key = gpu.name[rows].astype(np.uint64)
    for column in (*gpu.grid[rows].T, *gpu.block[rows].T, gpu.n_bytes[rows]):
        key = (key ^ (key >> np.uint64(31))) * _MIX + column.astype(np.uint64)
    launched = np.zeros(len(trace.ops), np.uint64)
    np.add.at(launched, op, key)
    known = np.flatnonzero(match.rows >= 0)
    known = known[np.argsort(match.rows[known], kind="stable")]
    same_op = match.rows[known][1:] == match.rows[known][:-1]
    changes = same_op & (launched[known][1:] != launched[known][:-1])
    varying = distinct(match.rows[known][1:][changes])
    if not varying.size:
        return np.zeros(len(trace.ops), np.bool_)
    if varying.size > _FEW * distinct(match.rows[known][launched[known] != 0]).size:
        return np.ones(len(trace.ops), np.bool_)
    return _with_parents(trace, np.isin(match.rows, varying))


def _with_parents(trace: Trace, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """These operators and all around them."""
    parent, at = parent_rows(trace.ops), np.flatnonzero(chosen)
    while at.size:
        above = distinct(parent[at])
        at = above[above >= 0]
        at = at[~chosen[at]]
        chosen[at] = True
    return chosen


def _varying_times(trace: Trace, match: Match, signature: I32) -> NDArray[np.bool_]:
    """On a CPU: all operators, where the longer products of one step take much longer than in another."""
    codes = [code for code in distinct_codes(trace.ops.name).tolist() if trace.name(code) in PRODUCTS]
    rows = np.flatnonzero(is_one_of(trace.ops.name, codes) & (signature >= 0) & (match.rows >= 0))
    step = step_of(trace.ops.start_ns[rows], trace.steps)
    varies = np.zeros(len(trace.ops), np.bool_)
    for _, mine in rows_by_value(match.step_of[step]):
        n_steps = distinct_codes(step[mine]).size
        order = mine[np.lexsort((step[mine], match.rows[rows[mine]]))]
        of_op = match.rows[rows[order]]
        _, count = np.unique(of_op, return_counts=True)
        in_all = order[np.repeat(count == n_steps, count)]
        if n_steps > 1 and in_all.size:
            took = (trace.ops.end_ns - trace.ops.start_ns)[rows[in_all]].reshape(-1, n_steps).astype(np.float64)
            varies |= _spread(took) > _LONGER
    return varies


def _spread(took: NDArray[np.float64]) -> float:
    """How many times as long products take in one step as in another: the lower quarter of the longer half.

    A larger batch makes all of them longer, another job some of them. Shape (operators, steps).
    """
    longest = took[np.argsort(-took.sum(axis=1), kind="stable")[: (len(took) + 1) // 2]]
    usual = np.sort(longest, axis=1)[:, min(1, longest.shape[1] - 1)]
    relative = np.sort(longest / np.maximum(usual, 1)[:, None], axis=0)[len(longest) // 4]
    return float(relative.max() / max(relative.min(), 1e-9))
