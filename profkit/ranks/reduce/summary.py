"""From one rank's trace to its summary: everything the parent needs of it, and nothing that grows with the trace."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.allocator import return_free_memory
from profkit.model.arrays import I64
from profkit.model.intervals import Intervals, from_where_alone
from profkit.model.table import NO_CODE
from profkit.model.trace import I32
from profkit.ranks.reduce.activity import (
    host_ranges,
    issuers,
    longest_before,
    names_of_ranges,
    names_of_work,
    top_ops,
)
from profkit.ranks.reduce.collective_kinds import UNKNOWN
from profkit.ranks.reduce.collective_rows import Collected, collected
from profkit.ranks.reduce.first_inputs import batch_place, first_inputs
from profkit.ranks.reduce.quiet_time import quiet_before
from profkit.ranks.reduce.records import (
    PHASES,
    Asked,
    BlockRows,
    CollectiveRows,
    LeadRanges,
    NameRows,
    RankSummary,
    StepRows,
)
from profkit.ranks.reduce.wait_intervals import blocks, ready_ns
from profkit.timeline import Facts
from profkit.timeline.gradients import argument_bytes, bucket_requests
from profkit.timeline.steps import edges, step_of, steps_in_window, told

UNKNOWN_RANK: Final = -1


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
    waited = blocks(facts, rows, sets["comm"])
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
        ranges=NameRows(**{**by_name.columns(), "name": of_range}),
        lead_ranges=LeadRanges(**{**lead.columns(), "name": of_lead}),
        quiet=LeadRanges(**{**quiet.columns(), "name": of_quiet}),
        work=NameRows(**{**work.columns(), "name": of_work}),
        blocks=waited,
        is_cpu=facts.cpu is not None,
        connections=trace.meta.connections,
        inputs=first_inputs(facts.trace),
        batch_place=batch_place(facts),
        unasked_ns=_unasked(facts).total_ns,
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


def _phases(sets: dict[str, Intervals], start: I64, end: I64, *, comm: I64) -> I64:
    """[n, 5] by `PHASES`; `comm` is what of each interval communication has."""
    parts = {phase: sets[phase].covered_ns(start, end) for phase in PHASES if phase != "host"}
    parts["host"] = np.maximum(end - start - sum(parts.values()) - comm, 0)
    return np.stack([parts[phase] for phase in PHASES], axis=1).astype(np.int64)


def _columns(facts: Facts, rows: Collected, sets: dict[str, Intervals]) -> dict[str, NDArray[Any]]:
    low, high = facts.trace.window_ns
    covered = sets["compute"] | _unasked(facts)
    order = np.argsort(rows.start_ns, kind="stable")
    reach = np.maximum.accumulate(rows.end_ns[order]) if order.size else order
    since = np.empty(order.size, np.int64)
    since[order] = np.concatenate(([low], reach[:-1])) if order.size else reach
    until = np.clip(rows.start_ns, low, high)
    begun = np.minimum(np.clip(since, low, high), until)
    return {
        **{name: getattr(rows, name) for name in Asked.__struct_fields__},
        "step": step_of(rows.issued_ns, facts.trace.steps),
        "hidden_ns": _hidden_ns(covered, rows, low, high),
        "exposed_once_ns": _exposed_once_ns(covered, rows, low, high),
        "lead_ns": _phases(sets, begun, until, comm=np.zeros(until.size, np.int64)),
    }


def _hidden_ns(compute: Intervals, rows: Collected, low: int, high: int) -> I64:
    """What compute covers of each; what runs outside of the window nobody saw exposed, and it counts as covered.

    A host that runs ahead of its device ends its steps, and with them the window, before their collectives run.
    """
    start, end = np.clip(rows.start_ns, low, high), np.clip(rows.end_ns, low, high)
    hidden: I64 = compute.covered_ns(start, end) + (rows.end_ns - rows.start_ns) - (end - start)
    return hidden


def _exposed_once_ns(compute: Intervals, rows: Collected, low: int, high: int) -> I64:
    """What compute leaves of each within the window, without what those of its group that began before have."""
    start, end = np.clip(rows.start_ns, low, high), np.clip(rows.end_ns, low, high)
    for code in np.unique(rows.group):
        mine = np.flatnonzero(rows.group == code)
        start[mine] = from_where_alone(start[mine], end[mine])
    exposed: I64 = end - start - compute.covered_ns(start, end)
    return exposed


def _own(facts: Facts, rows: Collected, sets: dict[str, Intervals], waited: BlockRows) -> dict[str, NDArray[Any]]:
    low, high = facts.trace.window_ns
    ready = ready_ns(facts, rows)
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
