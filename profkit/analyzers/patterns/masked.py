"""Rows that attention leaves out by a mask and that are dropped behind the layers: nobody reads what is computed of them."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Forward, Waste, each_with_backward, timed_rows, with_shapes
from profkit.analyzers.patterns.smaller import made_of
from profkit.findings.wasted import MASKED_ROWS
from profkit.model.arrays import I64, place_among
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares

_DROP: Final = later(r"^aten::(?:gather|index|index_select|take_along_dim)$")
_MASKS: Final = later(r"^aten::(?:scaled_dot_product_attention|masked_fill_?|where)$")


def _is_masked(seen: Forward, place: int, length: int) -> bool:
    """Whether it hides keys of a sequence of that length alike from all queries."""
    dims = seen.dims(place)
    masks = [one for one in dims if len(one) > 2 and one[-2:] == (1, length)]
    return bool(masks) and any(len(one) == 4 and length in one[-2:] and one[-2] != 1 for one in dims)


def masked_rows(facts: Facts) -> Waste | None:
    """What works on all of those rows, forward and backward: a question, so all of it stays."""
    seen = facts.once(with_shapes)
    attention = seen.places(_MASKS) if seen is not None else []
    if seen is None or not attention:
        return None
    begins = np.array([step.start_ns for step in seen.trace.steps], np.int64)
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
    title = _title(facts, timed_rows(facts, seen, seen.rows[drops]), max(used))
    return Waste(each_with_backward(facts, rows), 1.0, title)


def _title(facts: Facts, drops: I64, used: float) -> str:
    """How many are used, and from which line on."""
    at = Ranges.of(facts.trace.ops, drops, facts.trace.window_ns)
    told = shares(facts.code, rows_of(facts, facts.code, at, spare_work=False)) if facts.code is not None else ()
    there = f"from {told[0].place.name} on" if told else "behind it"
    return f"layers compute all rows, attention hides some by a mask, and {there} {100 * used:.3g} % of them are used"
