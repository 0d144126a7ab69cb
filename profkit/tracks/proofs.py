"""Which intervals prove what: those of each part of the budget, step, finding, module and line of the user's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers import ANALYZERS
from profkit.findings import KINDS
from profkit.findings.host import SYNC
from profkit.findings.memory import PRESSURE
from profkit.findings.parts import COPIES, LookedFor
from profkit.model.arrays import I64, looked_up
from profkit.model.budget import WORK_PARTS, label
from profkit.model.documents.tracks import MOST_SPANS, Proof, Role, Track
from profkit.model.finding import Finding
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows, rows_of_places
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import enclosing_op
from profkit.timeline.steps import whole_steps
from profkit.tracks.rows import budget_parts

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code


_MOST: Final = 200
"""Chosen: modules, and lines, with most time; a page has a table of as many."""
_SPANS: Final = 60
"""Chosen: of each the longest; a module runs once or twice a step."""
_LAUNCHING: Final = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)
_EXAMPLE: Final = "an example"
"""What a proof is called whose finding knows where it is worst, and no more."""
_BY_ROWS: Final = (PRESSURE.id,)
"""Kinds whose calls say more than the part of the budget, of which they have a share."""


def proofs_of(
    facts: Facts, results: Mapping[str, Any], findings: Iterable[Finding], tracks: Iterable[Track]
) -> tuple[Proof, ...]:
    """All proofs of one rank; a finding whose intervals are not known has none."""
    drawn = tuple(tracks)
    found = [*_parts(facts), *_steps(facts.trace)]
    rows = _rows(facts, results)
    for finding in findings:
        proof = _of_finding(facts, finding, rows, drawn)
        found += [proof] if proof is not None else []
        found += _of_places(facts, finding, rows.get(finding.id), drawn)
    found += _code(facts, drawn)
    return tuple({proof.key: proof for proof in reversed(found)}.values())[::-1]


def _parts(facts: Facts) -> list[Proof]:
    is_cpu = facts.main_device is None
    return [
        _proof(f"part:{name}", label(name, is_cpu=is_cpu), ("budget",), times, category=name)
        for name, times in budget_parts(facts).items()
        if times
    ]


def _steps(trace: Trace) -> list[Proof]:
    return [
        _proof(f"step:{place}", f"step {step.number}", ("steps",), Intervals.pairs([(step.start_ns, step.end_ns)]))
        for place, step in enumerate(whole_steps(trace))
    ]


def _proof(key: str, text: str, tracks: tuple[str, ...], times: Intervals, *, category: str = "") -> Proof:
    """The proof by these times; the longest are listed, in order."""
    start, end = times.start_ns, times.end_ns
    if start.size > MOST_SPANS:
        longest = np.sort(np.argpartition(start - end, MOST_SPANS)[:MOST_SPANS])
        start, end = start[longest], end[longest]
    return Proof(
        key=key,
        label=text,
        tracks=tracks,
        start_ns=start,
        end_ns=end,
        n=len(times),
        total_ns=times.total_ns,
        category=category,
    )


def _rows(facts: Facts, results: Mapping[str, Any]) -> dict[str, Rows]:
    """What the time of each finding consists of, by its id."""
    found: dict[str, Rows] = {}
    for name, result in results.items():
        found.update(ANALYZERS[name].rows(facts, result))
    return found


def _of_finding(facts: Facts, finding: Finding, rows: Mapping[str, Rows], tracks: tuple[Track, ...]) -> Proof | None:
    """By the parts of the budget that its kind explains; else by its rows; else by what its evidence points at."""
    key, kind, mine = f"finding:{finding.id}", KINDS.get(finding.id), rows.get(finding.id)
    if kind is not None and kind.part is not None and kind.id not in _BY_ROWS:
        proof = _of_parts(facts, finding, kind.part, mine, tracks)
        if proof is not None:
            return proof
    if mine is not None and len(mine):
        times, role = _seen(facts, mine)
        times = times.clip(*facts.trace.window_ns)
        if times:
            return _proof(key, finding.title, _keys(tracks, role), times)
    spans = [item.span_ns for item in finding.evidence if item.span_ns is not None]
    spans = [(low, high) for low, high in spans if high > low]
    where = (*_keys(tracks, Role.STEPS), *_keys(tracks, Role.THREAD))
    return _proof(key, f"{_EXAMPLE}: {finding.title}", where, Intervals.pairs(spans)) if spans else None


def _of_parts(
    facts: Facts, finding: Finding, part: LookedFor, mine: Rows | None, tracks: tuple[Track, ...]
) -> Proof | None:
    """By the parts of the budget; of calls whose waiting makes later launches late, by these calls."""
    key, parts = f"finding:{finding.id}", budget_parts(facts)
    times = Intervals.empty()
    for name in part.budget:
        times = times | parts.get(name, Intervals.empty())
    if mine is not None and part is COPIES:
        times = (times & _seen(facts, mine)[0]) or times  # those of one direction
    if mine is not None and finding.id == SYNC.id and int(mine.ns.sum()) > times.total_ns:
        calls = Intervals.of(mine.at_ns, mine.at_ns + mine.ns).clip(*facts.trace.window_ns)
        return _proof(key, f"{finding.title}: the calls in which the host waits", _keys(tracks, Role.THREAD), calls)
    if not times:
        return None
    only = part.budget[0] if len(part.budget) == 1 and part is not COPIES else ""
    where = ("budget",) if set(part.budget) - set(WORK_PARTS) else ("budget", *_keys(tracks, Role.STREAM))
    words = ", ".join(label(name, is_cpu=facts.main_device is None) for name in part.budget if parts.get(name))
    return _proof(key, f"{finding.title}: {words}", where, times, category=only)


def _of_places(facts: Facts, finding: Finding, rows: Rows | None, tracks: tuple[Track, ...]) -> Iterator[Proof]:
    """What a finding has at each of its lines, `finding:ID:place:N`: the same share of it as the sentence says."""
    if rows is None or facts.code is None:
        return
    kind = KINDS.get(finding.id)
    is_idle = kind is not None and kind.part is not None and kind.id not in _BY_ROWS
    for number, mine in enumerate(rows_of_places(facts.code, rows, finding.places)):
        spent = Intervals.of(mine.at_ns, mine.at_ns + mine.ns)
        seen, role = (spent, Role.THREAD) if is_idle else _seen(facts, mine)
        times = seen.clip(*facts.trace.window_ns)
        if times:
            name = finding.places[number].place.name
            yield _proof(
                f"finding:{finding.id}:place:{number}", f"{finding.title}, in {name}", _keys(tracks, role), times
            )


def _keys(tracks: Iterable[Track], role: Role) -> tuple[str, ...]:
    return tuple(track.key for track in tracks if track.role is role)


def _seen(facts: Facts, rows: Rows) -> tuple[Intervals, Role]:
    """Where moments of the host can be seen: what they launched, or else the call or operator that begins there."""
    trace = facts.trace
    op = _beginning(trace.ops.start_ns, trace.ops.thread, rows)
    inside = _launched_in(facts, op[op != NO_ROW])
    if inside.size and (op != NO_ROW).all():
        return Intervals.of(trace.gpu.start_ns[inside], trace.gpu.end_ns[inside]), Role.STREAM
    call = _beginning(trace.calls.start_ns, trace.calls.thread, rows)
    launched = np.unique(call[call != NO_ROW])
    launched = launched[np.isin(trace.calls.kind[launched], _LAUNCHING)]
    if launched.size:
        mine = np.flatnonzero(np.isin(trace.gpu.launch_row, launched))
        if mine.size:
            return Intervals.of(trace.gpu.start_ns[mine], trace.gpu.end_ns[mine]), Role.STREAM
    start, end = rows.at_ns.copy(), rows.at_ns + rows.ns
    for table, row in ((trace.ops, op), (trace.calls, call)):
        known = row != NO_ROW
        end[known] = table.end_ns[row[known]]
    known = rows.thread >= 0
    return Intervals.of(start[known], end[known]), Role.THREAD


def _launched_in(facts: Facts, ops: I64) -> NDArray[np.intp]:
    """The device rows that are launched inside these operators."""
    trace, main = facts.trace, facts.main_device
    if main is None or ops.size == 0:
        return np.empty(0, np.intp)
    rows = main.activity.rows[trace.gpu.launch_row[main.activity.rows] >= 0]
    launch = trace.gpu.launch_row[rows]
    table = trace.ops.take(np.unique(ops))
    return rows[enclosing_op(table, trace.calls.thread[launch], trace.calls.start_ns[launch]) >= 0]


def _beginning(start_ns: I64, thread: np.ndarray[Any, Any], rows: Rows) -> I64:
    """For each moment the row of a table (sorted by start) that begins then on its thread, `NO_ROW` for none."""
    found = np.full(len(rows), NO_ROW, np.int64)
    if start_ns.size == 0:
        return found
    first = np.searchsorted(start_ns, rows.at_ns, "left")
    for step in range(4):  # several threads may begin something in the same nanosecond
        place = np.minimum(first + step, start_ns.size - 1)
        fits = (found == NO_ROW) & (start_ns[place] == rows.at_ns) & (thread[place] == rows.thread)
        found[fits] = place[fits]
    return found


def _code(facts: Facts, tracks: Sequence[Track]) -> Iterator[Proof]:
    """The proofs `module:NAME` (with the modules inside it) and `line:NAME`; none where no frames were recorded."""
    code = facts.code
    if code is None or not len(code.ops):
        return
    start, end, op = _work(facts)
    role = Role.THREAD if facts.main_device is None else Role.STREAM
    keys = tuple(track.key for track in tracks if track.role is role)
    module = code.module_of_op[op]
    yield from _of_owners("module", _with_outer(code, module), (start, end), [one.name for one in code.modules], keys)
    place = looked_up(code.functions, code.place_of_op[op])
    names = {int(number): one.name for number, one in zip(code.functions, code.places, strict=True)}
    texts = [names.get(number, "") for number in range(max(names, default=-1) + 1)]
    yield from _of_owners("line", [(np.arange(place.size), place)], (start, end), texts, keys)


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
    op = looked_up(facts.op_of_call, gpu.launch_row[rows]).astype(np.int64)
    known = op >= 0
    return gpu.start_ns[rows[known]], gpu.end_ns[rows[known]], op[known]


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


def _of_owners(
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
