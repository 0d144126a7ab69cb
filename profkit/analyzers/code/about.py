"""The rows of one kernel, operator or module, found by a part of its name."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.code.tree import alike_name, work_rows
from profkit.model.arrays import distinct_codes
from profkit.model.names import short_name
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.host import self_times_ns

_MOST_NAMED = 3


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked about: what it is, and the rows of its time."""

    kind: str
    """"module", "kernel" or "operator"."""
    names: tuple[str, ...]
    """What the words asked for are part of."""
    rows: Rows


def rows_about(facts: Facts, asked: str) -> Subject | None:
    """The module, else the kernel, else the operator with that name or that part of one; None where there is none."""
    return _module(facts, asked) or _kernel(facts, asked) or _operator(facts, asked)


def near(facts: Facts, asked: str) -> tuple[str, ...]:
    """Names of modules, kernels and operators that are like the one asked for."""
    from difflib import get_close_matches

    known = [module.name for module in facts.code.modules] if facts.code is not None else []
    known += [short_name(facts.trace.name(int(code))) for code in distinct_codes(facts.trace.gpu.name)]
    known += [facts.trace.name(int(code)) for code in distinct_codes(facts.trace.ops.name)]
    return tuple(get_close_matches(asked, known[:20_000], n=_MOST_NAMED, cutoff=0.4))


def _module(facts: Facts, asked: str) -> Subject | None:
    code = facts.code
    if code is None:
        return None
    exact = [place for place, one in enumerate(code.modules) if asked in {one.name, alike_name(one.name), one.kind}]
    lowered = asked.lower()
    found = exact or [place for place, one in enumerate(code.modules) if lowered in one.name.lower()]
    if not found:
        return None
    inside = np.zeros(len(code.modules) + 1, np.bool_)
    inside[found] = True
    for place in range(len(code.modules)):
        at = place
        while at >= 0 and not inside[at]:
            at = code.modules[at].parent
        inside[place] = at >= 0
    rows = work_rows(facts)
    known = np.flatnonzero(rows.thread >= 0)
    module = code.at(rows.thread[known], rows.at_ns[known]).module
    mine = known[inside[module] & (module >= 0)]
    names = tuple(dict.fromkeys(alike_name(code.modules[place].name) for place in found))
    return Subject(kind="module", names=names, rows=_take(rows, mine))


def _take(rows: Rows, mine: np.ndarray) -> Rows:
    return Rows(thread=rows.thread[mine], at_ns=rows.at_ns[mine], ns=rows.ns[mine])


def _kernel(facts: Facts, asked: str) -> Subject | None:
    main, trace = facts.main_device, facts.trace
    if main is None:
        return None
    rows = main.activity.rows
    codes = _named(facts, distinct_codes(trace.gpu.name[rows]).tolist(), asked)
    mine = rows[np.isin(trace.gpu.name[rows], codes)]
    if not codes:
        return None
    ns = trace.gpu.end_ns[mine] - trace.gpu.start_ns[mine]
    names = tuple(short_name(trace.name(code)) for code in codes)
    return Subject(kind="kernel", names=names, rows=Rows.of_device(trace, mine, ns))


def _operator(facts: Facts, asked: str) -> Subject | None:
    ops, (low, high) = facts.trace.ops, facts.trace.window_ns
    inside = (ops.start_ns >= low) & (ops.end_ns <= high)
    codes = _named(facts, distinct_codes(ops.name[inside]).tolist(), asked)
    if not codes:
        return None
    mine = np.flatnonzero(inside & np.isin(ops.name, codes))
    own = self_times_ns(ops)[mine]
    return Subject(
        kind="operator",
        names=tuple(facts.trace.name(code) for code in codes),
        rows=Rows.of_ops(facts.trace, mine, own),
    )


def _named(facts: Facts, codes: list[int], asked: str) -> list[int]:
    """The codes whose name is the one asked for, or else has it in it."""
    exact = [code for code in codes if asked in {facts.trace.name(code), short_name(facts.trace.name(code))}]
    lowered = asked.lower()
    return exact or [code for code in codes if lowered in facts.trace.name(code).lower()]
