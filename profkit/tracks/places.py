"""Where the modules and lines of the user's code are on the rows: what runs for them, on the device or on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.documents.tracks import Proof, Role, Track
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.cpu import training_threads

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_MOST: Final = 200
"""Chosen: modules, and lines, with most time; a page has a table of as many."""
_SPANS: Final = 60
"""Chosen: of each the longest; a module runs once or twice a step."""


def places_of(facts: Facts, tracks: Sequence[Track]) -> Iterator[Proof]:
    """The proofs `module:NAME` (with the modules inside it) and `line:NAME`; none where no frames were recorded."""
    code = facts.code
    if code is None or not len(code.ops):
        return
    start, end, op = _work(facts)
    role = Role.THREAD if facts.main_device is None else Role.STREAM
    keys = tuple(track.key for track in tracks if track.role is role)
    module = code.module_of_op[op]
    yield from _proofs("module", _with_outer(code, module), (start, end), [one.name for one in code.modules], keys)
    place = code.functions[np.maximum(code.place_of_op[op], 0)] if code.places else np.zeros(op.size, np.int32)
    place = np.where(code.place_of_op[op] >= 0, place, -1)
    names = {int(number): one.name for number, one in zip(code.functions, code.places, strict=True)}
    texts = [names.get(number, "") for number in range(max(names, default=-1) + 1)]
    yield from _proofs("line", [(np.arange(place.size), place)], (start, end), texts, keys)


def _work(facts: Facts) -> tuple[I64, I64, I64]:
    """Start and end of the work of the window, and the operator of each: on a CPU the operators themselves."""
    trace, main = facts.trace, facts.main_device
    low, high = trace.window_ns
    if main is None:
        ops = trace.ops
        mine = np.isin(ops.thread, training_threads(trace)) & (ops.start_ns >= low) & (ops.end_ns <= high)
        rows = np.flatnonzero(mine)
        return ops.start_ns[rows], ops.end_ns[rows], rows.astype(np.int64)
    gpu = trace.gpu
    rows = main.activity.rows
    launch = gpu.launch_row[rows]
    op = np.where(launch >= 0, facts.op_of_call[np.maximum(launch, 0)], -1) if facts.op_of_call.size else launch * 0 - 1
    known = op >= 0
    return gpu.start_ns[rows[known]], gpu.end_ns[rows[known]], op[known].astype(np.int64)


def _with_outer(code: Code, module: NDArray[np.int32]) -> list[tuple[NDArray[np.intp], NDArray[np.int32]]]:
    """Rows with their module, then rows with the module around that, and so on outwards."""
    outer = np.array([one.parent for one in code.modules], np.int32)
    rows, found = np.flatnonzero(module >= 0), []
    at = module[rows]
    while rows.size:
        found.append((rows, at))
        at = outer[at]
        rows, at = rows[at >= 0], at[at >= 0]
    return found


def _proofs(
    kind: str,
    owned: list[tuple[NDArray[np.intp], NDArray[np.int32]]],
    times: tuple[I64, I64],
    names: Sequence[str],
    tracks: tuple[str, ...],
) -> Iterator[Proof]:
    if not owned:
        return
    row, owner = (np.concatenate(column) for column in zip(*owned, strict=True))
    row, owner = row[owner >= 0], owner[owner >= 0]
    start, end = times
    spent = np.bincount(owner, end[row] - start[row], max(len(names), 1))
    order = np.argsort(owner, kind="stable")
    row, owner = row[order], owner[order]
    edges = np.searchsorted(owner, np.arange(spent.size + 1))
    for one in np.argsort(-spent, kind="stable")[:_MOST].tolist():
        mine = row[edges[one] : edges[one + 1]]
        if mine.size and names[one]:
            whole = Intervals.of(start[mine], end[mine])
            longest = np.sort(np.argsort(whole.start_ns - whole.end_ns, kind="stable")[:_SPANS])
            yield Proof(
                key=f"{kind}:{names[one]}",
                label=f"all that runs for {names[one]}",
                tracks=tracks,
                start_ns=whole.start_ns[longest],
                end_ns=whole.end_ns[longest],
                n=len(whole),
                total_ns=whole.total_ns,
            )
