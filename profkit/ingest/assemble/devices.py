"""Device rows: kernels, copies and collectives to one table, linked to the calls that launched them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.errors import UnsupportedTraceError
from profkit.ingest.assemble.merge import Merged, code_table
from profkit.ingest.assemble.raw import Columns
from profkit.ingest.assemble.rows import Rows, sort_order
from profkit.model import names
from profkit.model.arrays import I64, distinct, is_member, is_one_of, place_among
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, Collectives, GpuWork, Kind, RuntimeCalls, TraceWarning

MAX_DEVICES: Final = 256
"""Chosen: three times the 72 GPUs of the largest rack with one memory, twice 16 GPUs cut into 7 instances each. What is
analysed of a device takes the time of all rows of the host, so there must be a bound."""
_MTIA_COPY: Final = "dma"
_MTIA_COMPUTE: Final = ("pe_exe", "cpum_exe", "job_exe", "runfunction")


def device_work(
    merged: Merged, strings: tuple[str, ...], source: str, warnings: list[TraceWarning]
) -> tuple[GpuWork, Collectives]:
    """The device rows in time order, not linked yet, and the arguments of those that are collectives.

    Raises UnsupportedTraceError for rows on more devices than there can be.
    """
    rows = merged.rows("kernels", "copies")
    if rows:
        rows.leave_out_untrue(warnings)
    if mtia := _mtia(merged, strings, warnings):
        rows.add(mtia)
    if not rows:
        return _no_gpu(), _no_collectives()
    columns = rows.in_time_order()
    is_copy = columns.pop("is_copy")
    from_kernels = _kernel_collectives(merged, rows)
    kind = code_table(columns["name"], strings, lambda name: names.kind_of(name, is_copy=False))[columns["name"]]
    kind[is_copy] = Kind.COPY
    kind[from_kernels.gpu_row] = Kind.COMM
    comm = np.flatnonzero(kind == Kind.COMM)
    bare = comm[~is_member(comm, from_kernels.gpu_row)]
    from_ops = _operator_collectives(merged, bare, columns["external_id"])
    gpu = GpuWork(**columns, kind=kind, launch_row=np.full(kind.size, NO_ROW, np.int64))
    _refuse_many(gpu, source)
    return gpu, _joined(from_kernels, from_ops)


def _refuse_many(gpu: GpuWork, source: str) -> None:
    devices = distinct(gpu.device)
    if devices.size > MAX_DEVICES:
        raise UnsupportedTraceError(
            f"{source}: its kernels and copies name {devices.size:,} devices, {devices[0]} to {devices[-1]};"
            f" no process drives more than {MAX_DEVICES}",
            hint="is args.device the device? profkit reads one trace per rank",
        )


def _operator_collectives(merged: Merged, rows: NDArray[np.intp], external_id: I64) -> Collectives:
    """The arguments that `record_param_comms` operators carry for their kernels (before torch 2.3 only there)."""
    columns = merged.take("comm_ops")
    if not columns or rows.size == 0 or columns["external_id"].size == 0:
        return _no_collectives()
    ids = columns.pop("external_id")
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], external_id[rows]), ids.size - 1)
    found = (ids[order[place]] == external_id[rows]) & (external_id[rows] > 0)
    source = order[place[found]]
    return Collectives(gpu_row=rows[found], **{name: column[source] for name, column in columns.items()})


def _joined(first: Collectives, second: Collectives) -> Collectives:
    other = second.columns()
    columns = {name: np.concatenate((column, other[name])) for name, column in first.columns().items()}
    return Collectives(**columns).take(np.argsort(columns["gpu_row"], kind="stable"))


def _kernel_collectives(merged: Merged, device_rows: Rows) -> Collectives:
    """The collective arguments; `device_rows` are those of the device, kernels first, in time order by now."""
    columns = merged.take("collectives")
    if not columns:
        return _no_collectives()
    kernel = columns.pop("kernel")
    places = np.arange(len(device_rows)) if device_rows.places is None else device_rows.places
    source_row = np.where(places < merged.n_kernels, places, NO_ROW)
    gpu_row = np.full(int(max(kernel.max(), source_row.max(initial=NO_ROW))) + 1, NO_ROW, np.int64)
    kernels = np.flatnonzero(source_row >= 0)
    gpu_row[source_row[kernels]] = kernels
    rows = gpu_row[kernel]
    kept = np.flatnonzero(rows >= 0)[np.argsort(rows[rows >= 0], kind="stable")]
    return Collectives(gpu_row=rows[kept], **{name: column[kept] for name, column in columns.items()})


def _no_collectives() -> Collectives:
    return Collectives.none(**dict.fromkeys(("dtype", "collective", "group_name", "group_ranks"), np.int32))


def _no_gpu() -> GpuWork:
    sizes = np.empty((0, 3), np.int32)
    return replace(GpuWork.none(name=np.int32, device=np.int32, kind=np.int8), grid=sizes, block=sizes)


def _mtia(merged: Merged, strings: tuple[str, ...], warnings: list[TraceWarning]) -> Columns:
    """MTIA's queue events: execution counts as compute, dma as copies, waits and packets as nothing."""
    columns = merged.take("mtia")
    if not columns:
        return {}
    kinds = code_table(columns["name"], strings, _mtia_kind)[columns["name"]]
    warnings.append(
        TraceWarning(
            id="device.mtia",
            message=f"{int((kinds > 0).sum()):,} of {kinds.size:,} MTIA rows counted as activity, by name",
        )
    )
    columns = {name: column[kinds > 0] for name, column in columns.items()}
    n = columns["name"].size
    absent = np.full(n, NO_ROW, np.int64)
    return columns | {
        "correlation": absent,
        "external_id": absent,
        "n_bytes": absent,
        "graph_node": np.zeros(n, np.int64),
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": kinds[kinds > 0] == 2,
    }


def _mtia_kind(name: str) -> int:
    lowered = name.lower()
    if _MTIA_COPY in lowered:
        return 2
    return int(lowered.startswith(_MTIA_COMPUTE))


def linked(gpu: GpuWork, calls: RuntimeCalls, pids: Sequence[str], warnings: list[TraceWarning]) -> GpuWork:
    """Fill `launch_row` by correlation, whatever the call's name; among several the launching one, then the first.

    `pids`: the process of each thread. Each process counts its launches from 1: a number that two use says nothing.
    """
    if len(gpu) == 0 or len(calls) == 0:
        return gpu
    launches = is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY))
    usable = np.flatnonzero(calls.correlation > 0)
    places, sorted_ids = sort_order(calls.correlation[usable], lambda rows: (~launches[usable[rows]],))
    order = usable if places is None else usable[places]
    position = place_among(sorted_ids, gpu.correlation)
    position[position == sorted_ids.size] = 0
    found = (sorted_ids[position] == gpu.correlation) if sorted_ids.size else np.zeros(len(gpu), np.bool_)
    shared = is_member(gpu.correlation, _shared_numbers(calls, pids)) & found
    if shared.any():
        message = f"{int(shared.sum()):,} device rows have no known launch: calls of several processes share its number"
        warnings.append(TraceWarning(id="launches.shared", message=message, count=int(shared.sum())))
    row = np.where(found & ~shared, order[position] if order.size else 0, NO_ROW)
    return replace(gpu, launch_row=row.astype(np.int64, copy=False))


def _shared_numbers(calls: RuntimeCalls, pids: Sequence[str]) -> I64:
    """The correlation numbers that calls of more than one process have, in order."""
    process = {pid: code for code, pid in enumerate(dict.fromkeys(pids))}
    if len(process) < 2:
        return np.empty(0, np.int64)
    owner = np.array([process[pid] for pid in pids])[calls.thread]
    usable = np.flatnonzero(calls.correlation > 0)
    order = usable[np.lexsort((owner[usable], calls.correlation[usable]))]
    number, owner = calls.correlation[order], owner[order]
    return distinct(number[1:][(number[1:] == number[:-1]) & (owner[1:] != owner[:-1])])
