"""The collectives of one trace, wherever they ran: on the device, or in gloo's threads beside the training thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.numbers import MAX_RANKS, whole
from profkit.model.table import NO_CODE, NO_ROW
from profkit.model.trace import I32, Kind, SpanKind, Trace
from profkit.ranks.reduce.collective_kinds import UNKNOWN, CollectiveKind, collective_kind_of
from profkit.ranks.reduce.records import Asked, Group
from profkit.timeline import Facts
from profkit.timeline.collectives import arguments_of, is_request
from profkit.timeline.launch_order import asked_ns

_LIBRARY: Final = re.compile(r"nccl|rccl|ccl::", re.IGNORECASE)


class Collected(Asked, frozen=True, kw_only=True):
    """Collectives with codes into the trace's strings."""

    thread: I32
    """The host thread that asked, `NO_ROW` where that is not known."""


Groups = tuple[Group, ...]


def collected(facts: Facts, *, is_cut: bool = False) -> tuple[Groups, Collected]:
    """The collectives of the busiest device, or of gloo's threads where there is no device, and their groups.

    `is_cut`: only some of the trace's steps are judged; what was asked for in others belongs to none of them.
    """
    main = facts.main_device
    groups, found = _gloo(facts.trace) if main is None else _device(facts.trace, main.device)
    if not is_cut:
        return groups, found
    low, high = facts.trace.window_ns
    return groups, found.take((found.issued_ns >= low) & (found.issued_ns < high))


def _device(trace: Trace, device: int) -> tuple[Groups, Collected]:
    gpu, args = trace.gpu, trace.collectives
    rows = np.flatnonzero((gpu.kind == Kind.COMM) & (gpu.device == device))
    issued = asked_ns(trace, rows)
    order = np.lexsort((gpu.start_ns[rows], issued))  # a graph's collectives have one launch: then as they ran
    rows, issued = rows[order], issued[order]
    launch = gpu.launch_row[rows]
    thread = np.full(rows.size, NO_ROW, np.int32)
    thread[launch >= 0] = trace.calls.thread[launch[launch >= 0]]
    place = arguments_of(trace, rows)

    def argument(column: NDArray[np.integer], absent: int) -> NDArray[np.int64]:
        values = np.full(rows.size, absent, np.int64)
        values[place >= 0] = column[place[place >= 0]]
        return values

    said = argument(args.collective, NO_CODE)
    name = np.where(said >= 0, said, gpu.name[rows]).astype(np.int32)
    groups, group = _groups(
        trace, argument(args.group_name, NO_CODE), argument(args.group_ranks, NO_CODE), argument(args.group_size, 0)
    )
    return groups, Collected(
        group=group,
        kind=np.where(
            _of_names(trace, name, _may_leave_early, np.bool_) & (said < 0),
            np.int8(CollectiveKind.SEND_RECV),
            _of_names(trace, name, collective_kind_of, np.int8),
        ),
        name=name,
        dtype=argument(args.dtype, NO_CODE).astype(np.int32),
        in_elements=argument(args.in_elements, UNKNOWN),
        out_elements=argument(args.out_elements, UNKNOWN),
        seq=argument(args.seq, -1),
        peer=argument(args.peer, -1),
        issued_ns=issued,
        start_ns=gpu.start_ns[rows],
        end_ns=gpu.end_ns[rows],
        thread=thread,
    )


def _gloo(trace: Trace) -> tuple[Groups, Collected]:
    """Gloo's ranges with what was asked for: FSDP's reduce-scatter, for one, runs as `gloo:all_reduce`.

    gloo's threads take requests from one queue in order, so that the n-th range answers the n-th request, provided the
    trace holds as many and none came after its range; else the ranges stand for themselves.
    """
    spans, ops = trace.spans, trace.ops
    rows = np.flatnonzero(spans.kind == SpanKind.COMM)
    requests = np.flatnonzero(is_request(trace, ops.name))
    start = spans.start_ns[rows]
    if requests.size == rows.size and (ops.start_ns[requests] <= start).all():
        issued, thread, name = ops.start_ns[requests], ops.thread[requests], ops.name[requests]
    else:
        issued, thread, name = start.copy(), np.full(rows.size, NO_ROW, np.int32), spans.name[rows]
    unknown = np.full(rows.size, UNKNOWN, np.int64)
    groups, group = _groups(trace, unknown, unknown, np.zeros(rows.size, np.int64))
    return groups, Collected(
        group=group,
        kind=_of_names(trace, name, collective_kind_of, np.int8),
        name=name,
        dtype=np.full(rows.size, NO_CODE, np.int32),
        in_elements=unknown,
        out_elements=unknown,
        seq=unknown,
        peer=unknown,
        issued_ns=issued,
        start_ns=start,
        end_ns=spans.end_ns[rows],
        thread=thread,
    )


def _may_leave_early(name: str) -> bool:
    """Whether it is an all-to-all or all-gather of the job's own: one that only pushes may end before all came.

    A library's waits for all: its ends tell the clocks.
    """
    kinds = (CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_GATHER)
    return collective_kind_of(name) in kinds and not _LIBRARY.search(name)


def _of_names(trace: Trace, name: I32, value_of: Callable[[str], int], dtype: type[np.generic]) -> NDArray[Any]:
    """What each name says, which is asked once for each that occurs."""
    codes, inverse = np.unique(name, return_inverse=True)
    return np.array([value_of(trace.name(int(code))) for code in codes], dtype)[inverse]


def _groups(
    trace: Trace, name: NDArray[np.int64], ranks: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[Groups, I32]:
    """The distinct groups, and each row's place among them; a row without arguments belongs to the world."""
    world = trace.meta.world_size or 0
    keys, inverse = np.unique(np.stack([name, ranks, size], axis=1), axis=0, return_inverse=True)
    groups = tuple(
        Group(
            name=trace.name(int(code)), ranks=_ranks(trace.name(int(text))), size=max(int(n), 0) if code >= 0 else world
        )
        for code, text, n in keys
    )
    return groups, inverse.reshape(-1).astype(np.int32)


def _ranks(text: str) -> tuple[int, ...]:
    """The ranks of "[0, 1]"; () where there are none or the text is cut ("[0, 1, ..., 7]")."""
    if "..." in text:
        return ()
    ranks = [whole(rank, 0, MAX_RANKS - 1) for rank in re.findall(r"\d+", text)]
    return () if None in ranks else tuple(rank for rank in ranks if rank is not None)
