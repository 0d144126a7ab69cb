"""From one rank's trace to its summary: everything the parent needs of it, and nothing that grows with the trace."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.allocator import return_free_memory
from profkit.model.arrays import I64, Bool, is_one_of, rows_by_value
from profkit.model.code import Phase
from profkit.model.intervals import Intervals, from_where_alone
from profkit.model.table import NO_CODE
from profkit.model.trace import I32, CallKind, Kind, Trace
from profkit.ranks.reduce.activity import (
    MIN_QUIET_NS,
    host_ranges,
    issuers,
    longest_before,
    names_of_ranges,
    names_of_work,
    quiet_before,
    top_ops,
)
from profkit.ranks.reduce.collective_kinds import UNKNOWN
from profkit.ranks.reduce.collective_rows import Collected, collected
from profkit.ranks.reduce.records import (
    PHASES,
    Asked,
    BlockRows,
    CollectiveRows,
    RankSummary,
    StepRows,
)
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows, code_of, shares
from profkit.timeline.cpu import training_threads
from profkit.timeline.gradients import argument_bytes, bucket_requests
from profkit.timeline.idle import MAX_LATENCY_NS
from profkit.timeline.steps import edges, step_of, steps_in_window, told

UNKNOWN_RANK: Final = -1
_NO_END: Final = np.iinfo(np.int64).max
_LAYER: Final = later(
    r"^aten::(embedding|embedding_bag|linear|addmm|mm|matmul|conv[123]d|convolution|lstm|gru|rnn_tanh)$"
)
_AFTER_WEIGHTS: Final = ("aten::embedding", "aten::embedding_bag")
"""What these look up is their second argument, else the input is the first."""
_STEPPING: Final = later(r"^Optimizer\.step#")
_QUICK: Final = 10
"""Percentile of a rank's calls of one name that surely found room in the queue. Chosen: as a rule few wait.

Where all do, `MAX_LATENCY_NS` holds."""
_LONG_CALL: Final = 3
"""Times that, from which a call waits. Chosen: others take up to twice as long."""
_WAITS: Final = frozenset({CallKind.SYNC, CallKind.ALLOC})
_MOST_INPUTS: Final = 8
"""Steps whose shapes are kept. Chosen: enough for a sentence."""

Shape = tuple[int, ...]


def summarise(facts: Facts, *, rank: int | None = None) -> RankSummary:
    """The summary of one rank; `rank` overrides what the trace says of itself (a file's name, say)."""
    steps = steps_in_window(facts.trace)
    groups, rows = collected(facts, is_cut=len(steps) < len(facts.trace.steps))
    facts = replace(facts, trace=replace(facts.trace, steps=steps))
    trace = facts.trace
    sets = _phase_sets(facts)
    tops = top_ops(trace)
    ranges = host_ranges(facts, tops)
    return_free_memory(trace.meta.n_events)
    lead = longest_before(ranges, rows.issued_ns)
    by_name, work = names_of_ranges(ranges), names_of_work(facts)
    del ranges  # of a large trace tens of MB, and the next needs the most room
    return_free_memory(trace.meta.n_events)
    quiet = quiet_before(trace, rows.issued_ns, tops)
    issuer = issuers(facts, rows, tops)
    strings, (name, dtype, issuer, of_lead, of_quiet, of_range, of_work) = _used(
        trace.strings, rows.name, rows.dtype, issuer, lead.name, quiet.name, by_name.name, work.name
    )
    waited = _blocks(facts, rows, sets["comm"])
    said = trace.meta.rank if rank is None else rank
    return RankSummary(
        rank=UNKNOWN_RANK if said is None else said,
        world_size=trace.meta.world_size or 0,
        source=trace.meta.source,
        host=str(trace.meta.metadata.get("host_name", "")),
        origin_unix_ns=trace.origin_unix_ns,
        window_ns=trace.window_ns,
        step_source=trace.step_source,
        groups=groups,
        strings=strings,
        collectives=CollectiveRows(
            **{**_columns(facts, rows, sets), "name": name, "dtype": dtype},
            issuer=issuer,
            **_own(facts, rows, sets, waited),
            bucket_bytes=_bucket_bytes(facts, rows),
        ),
        steps=_steps(facts, sets),
        ranges=replace(by_name, name=of_range),
        lead_ranges=replace(lead, name=of_lead),
        quiet=replace(quiet, name=of_quiet),
        work=replace(work, name=of_work),
        blocks=waited,
        is_cpu=facts.cpu is not None,
        connections=trace.meta.connections,
        inputs=first_inputs(facts.trace),
        batch_place=_batch_place(facts),
        unasked_ns=_unasked(facts).total_ns,
        busy_ns=_busy_ns(facts),
    )


def _phase_sets(facts: Facts) -> dict[str, Intervals]:
    """The sets of the phases but "host", which is the rest, and of "comm", disjoint.

    Communication alone under which the host was behind is the host's: without it the device would have waited as long.
    """
    parts = facts.parts
    return {
        "data": parts["idle_data"],
        "compute": parts["compute"],
        "copy": parts["copy_exposed"],
        "device": parts.get("idle_dependency", Intervals.empty()),
        "comm": parts["comm_exposed"] - _unasked(facts),
    }


def _unasked(facts: Facts) -> Intervals:
    return facts.main_device.unasked if facts.main_device is not None else Intervals.empty()


def _busy_ns(facts: Facts) -> tuple[int, int] | None:
    """What the host did itself, at least and at most; None if operators or calls are not known.

    At least its operators and calls with short gaps between; a call that lasts may wait for room in the queue.
    """
    host, calls, (low, high) = facts.host, facts.trace.calls, facts.trace.window_ns
    if facts.main_device is None or not host.has_ops:  # of threads that launch
        return None
    known = (host.dispatching | host.loader).clip(low, high)
    between = known.gaps(low, high)
    short = between.lengths_ns < MIN_QUIET_NS
    known |= Intervals(between.start_ns[short], between.end_ns[short])
    at_least = (known - host.blocked).total_ns
    rows = facts.calls_in_window(*(kind for kind in CallKind if kind not in _WAITS))
    lasts = calls.end_ns[rows] - calls.start_ns[rows]
    for _, same in rows_by_value(calls.name[rows]):
        usual = min(_LONG_CALL * np.percentile(lasts[same], _QUICK), MAX_LATENCY_NS)
        at_least -= int(np.maximum(lasts[same] - usual, 0).sum())
    return max(at_least, 0), high - low - host.blocked.clip(low, high).total_ns


def _phases(sets: dict[str, Intervals], start: I64, end: I64, *, comm: I64) -> I64:
    """[n, 5] by `PHASES`; `comm` is what of each interval communication has."""
    parts = {phase: sets[phase].covered_ns(start, end) for phase in PHASES if phase != "host"}
    parts["host"] = np.maximum(end - start - sum(parts.values()) - comm, 0)
    return np.stack([parts[phase] for phase in PHASES], axis=1).astype(np.int64)


def _columns(facts: Facts, rows: Collected, sets: dict[str, Intervals]) -> dict[str, NDArray[Any]]:
    low, high = facts.trace.window_ns
    start, end = np.clip(rows.start_ns, low, high), np.clip(rows.end_ns, low, high)
    covered = sets["compute"] | _unasked(facts)
    # What runs outside of the window nobody saw exposed, and it counts as covered: a host that runs ahead of its device
    # ends its steps, and with them the window, before their collectives run.
    hidden = covered.covered_ns(start, end) + (rows.end_ns - rows.start_ns) - (end - start)
    alone = start.copy()  # from where none of its group runs that began before
    for _, mine in rows_by_value(rows.group):
        alone[mine] = from_where_alone(start[mine], end[mine])
    order = np.argsort(rows.start_ns, kind="stable")
    reach = np.maximum.accumulate(rows.end_ns[order]) if order.size else order
    since = np.empty(order.size, np.int64)
    since[order] = np.concatenate(([low], reach[:-1])) if order.size else reach
    begun = np.minimum(np.clip(since, low, high), start)
    return {
        **{name: getattr(rows, name) for name in Asked.__struct_fields__},
        "step": step_of(rows.issued_ns, facts.trace.steps),
        "hidden_ns": hidden,
        "exposed_once_ns": end - alone - covered.covered_ns(alone, end),
        "lead_ns": _phases(sets, begun, start, comm=np.zeros(start.size, np.int64)),
    }


def _own(facts: Facts, rows: Collected, sets: dict[str, Intervals], waited: BlockRows) -> dict[str, NDArray[Any]]:
    low, high = facts.trace.window_ns
    ready = _ready_ns(facts, rows)
    order = np.argsort(ready, kind="stable")
    until = np.clip(ready[order], low, high)
    begun = np.concatenate(([low], until[:-1])) if until.size else until
    stood = Intervals(waited.start_ns, waited.end_ns).covered_ns(begun, until)
    own = np.empty((ready.size, len(PHASES)), np.int64)
    own[order] = _phases(sets, begun, until, comm=stood)
    return {"ready_ns": ready, "own_ns": own}


def _steps(facts: Facts, sets: dict[str, Intervals]) -> StepRows:
    steps = facts.trace.steps
    start, end = edges(steps)
    comm = sets["comm"].covered_ns(start, end)
    return StepRows(
        number=np.array([step.number for step in steps], np.int64),
        start_ns=start,
        end_ns=end,
        phase_ns=_phases(sets, start, end, comm=comm),
        comm_ns=comm,
        **told(facts.trace),
    )


def _bucket_bytes(facts: Facts, rows: Collected) -> I64:
    """The message of each row that is one of DDP's buckets on gloo, whose ranges carry no arguments."""
    out = np.full(len(rows), UNKNOWN, np.int64)
    requests = bucket_requests(facts.trace) if facts.main_device is None else np.empty(0, np.intp)
    if requests.size == 0 or out.size == 0:
        return out
    asked, n_bytes = facts.trace.ops.start_ns[requests], argument_bytes(facts.trace, requests)
    order = np.argsort(asked, kind="stable")
    place = np.minimum(np.searchsorted(asked[order], rows.issued_ns), requests.size - 1)
    is_bucket = asked[order][place] == rows.issued_ns
    out[is_bucket] = n_bytes[order][place[is_bucket]]
    return out


def _used(strings: tuple[str, ...], *columns: NDArray[Any]) -> tuple[tuple[str, ...], list[I32]]:
    """The strings that some column uses, and the columns with codes into these."""
    codes = np.unique(np.concatenate([column[column >= 0] for column in columns]))
    renamed = []
    for column in columns:
        code = np.searchsorted(codes, column).astype(np.int32)
        code[column < 0] = NO_CODE
        renamed.append(code)
    return tuple(strings[int(code)] for code in codes), renamed


def _blocks(facts: Facts, rows: Collected, exposed: Intervals) -> BlockRows:
    """The times the rank waited: where communication ran with nothing beside it, up to the last end therein.

    What remains of its time is its own: it takes as long whenever its peers come, and that is what a replay keeps
    (docs/sources.md, rule 20).
    What follows that end is the host's. Where the next device work had not been launched by then and the host was in no
    blocking call, the device did not wait for the collective but for the host: that is no block either.
    """
    order = np.argsort(rows.end_ns, kind="stable")
    ends = rows.end_ns[order]
    place = np.searchsorted(ends, exposed.end_ns, "right") - 1
    released = ends[np.maximum(place, 0)] if ends.size else np.zeros(len(exposed), np.int64)
    is_block = (place >= 0) & (released > exposed.start_ns)
    is_block[is_block] &= ~_is_host_bound(facts, released[is_block])
    return BlockRows(
        start_ns=exposed.start_ns[is_block], end_ns=released[is_block], row=order[place[is_block]].astype(np.int64)
    )


def _is_host_bound(facts: Facts, at_ns: I64) -> Bool:
    """Tell, for each end of a collective, whether a host that was free launched the next device work after it."""
    main, trace = facts.main_device, facts.trace
    if main is None:
        return np.zeros(at_ns.size, np.bool_)
    gpu = trace.gpu
    work = np.flatnonzero((gpu.device == main.device) & (gpu.kind != Kind.COMM) & (gpu.launch_row >= 0))
    if work.size == 0:
        return np.zeros(at_ns.size, np.bool_)
    place = np.searchsorted(gpu.start_ns[work], at_ns)
    launched = trace.calls.start_ns[gpu.launch_row[work[np.minimum(place, work.size - 1)]]]
    late: Bool = (place < work.size) & (launched > at_ns) & ~facts.host.blocked.contains(at_ns - 1)
    return late


def _ready_ns(facts: Facts, rows: Collected) -> I64:
    """When each collective could have begun as far as its own rank goes, at the latest when it did begin.

    gloo: when the host asked. On a device: when the host had launched it and all compute launched before it had ended,
    for the communication stream waits for the event that the host recorded on the compute stream at the call
    (torch, `ProcessGroupNCCL::syncStream`). Replays of a captured graph, launched together, tell only their start, and
    so does one before which the device did nothing though it was launched: another process has its turn there.
    """
    main, trace = facts.main_device, facts.trace
    if main is None:
        return np.minimum(rows.issued_ns, rows.start_ns)
    gpu = trace.gpu
    work = np.flatnonzero((gpu.device == main.device) & (gpu.kind == Kind.COMPUTE) & (gpu.launch_row >= 0))
    if work.size == 0:
        return rows.start_ns.copy()
    launched = trace.calls.start_ns[gpu.launch_row[work]]
    order = np.argsort(launched, kind="stable")
    reach = np.maximum.accumulate(gpu.end_ns[work[order]])
    place = np.searchsorted(launched[order], rows.issued_ns) - 1
    produced = np.where(place >= 0, reach[np.maximum(place, 0)], rows.issued_ns)
    ready = np.minimum(np.maximum(rows.issued_ns, produced), rows.start_ns)
    together = np.zeros(ready.size, np.bool_)
    together[1:] |= rows.issued_ns[1:] == rows.issued_ns[:-1]
    together[:-1] |= together[1:]
    return np.where(together | _follows_long(facts.parts["idle_dependency"], rows.start_ns), rows.start_ns, ready)


def _follows_long(idle: Intervals, start_ns: I64) -> Bool:
    """Tell, for each start, whether one of these idle times ends there, longer than any platform takes to launch."""
    long = idle.lengths_ns > MAX_LATENCY_NS
    ends = idle.end_ns[long]
    found: Bool = np.append(ends, _NO_END)[np.searchsorted(ends, start_ns)] == start_ns
    return found


def first_inputs(trace: Trace) -> tuple[Shape, ...]:
    """The shape of the first layer's input by step, of later steps where these alone have shapes; () if unknown."""
    source = trace.again if trace.again is not None and trace.again.signatures else trace
    steps, ops = source.steps, source.ops
    rows = _layers(source) if source.signatures and steps else np.empty(0, np.intp)
    rows = rows[np.argsort(ops.start_ns[rows], kind="stable")]
    place = step_of(ops.start_ns[rows], steps)
    _, first = np.unique(place, return_index=True)
    found = tuple(_input(source, int(rows[at])) for at in first if place[at] >= 0)
    names = {source.name(int(ops.name[rows[at]])) for at in first if place[at] >= 0}
    is_known = len(names) == 1 and None not in found
    return tuple(shape for shape in found if shape)[:_MOST_INPUTS] if is_known else ()


def _batch_place(facts: Facts) -> str:
    """The user's line with most time in operators from the optimizer's step to the next first layer; "" if unknown.

    A batch is made there, whichever side of it a step begins on.
    """
    if facts.cpu is None or facts.code is None:
        return ""
    again = facts.trace.again  # of other batches than the timed ones, some of whose operators have no place by it
    trace = facts.trace if again is None else again
    code = facts.code if again is None else code_of(again)
    if code is None:
        return ""
    ops = trace.ops
    layers = np.sort(ops.start_ns[_layers(trace)])
    stepping = [number for number, text in enumerate(trace.strings) if _STEPPING.search(text)]
    since = np.sort(np.append(trace.spans.end_ns[is_one_of(trace.spans.name, stepping)], trace.window_ns[0]))
    until = np.append(layers, trace.window_ns[1])[np.searchsorted(layers, since)]
    rows = np.flatnonzero(Intervals.of(since, until).contains(ops.start_ns))
    rows = rows[np.isin(ops.thread[rows], training_threads(trace))]
    rows = rows[code.at(ops.thread[rows], ops.start_ns[rows]).phase == Phase.OTHER]
    found = shares(code, Rows.of_ops(trace, rows, ops.end_ns[rows] - ops.start_ns[rows]), 1)
    return found[0].place.words if found else ""


def _layers(trace: Trace) -> NDArray[np.intp]:
    """The operators that may be a first layer."""
    return np.flatnonzero(trace.named(trace.ops.name, _LAYER))


def _input(trace: Trace, row: int) -> Shape | None:
    code = int(trace.ops.signature[row])
    signature = trace.signatures[code] if code >= 0 else None
    at = 1 if trace.name(int(trace.ops.name[row])) in _AFTER_WEIGHTS else 0
    shape = signature.shape(at) if signature is not None else ()
    return shape if shape and max(shape) < 2**40 else None
