"""One process of an nsys export as the batch of columns that becomes its `Trace`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.batch import Batch
from profkit.ingest.columns import Columns
from profkit.ingest.kineto import RawTrace
from profkit.ingest.nsys_nvtx import range_kind_of
from profkit.ingest.nsys_rows import NO_END, UNNAMED, Rows
from profkit.ingest.nsys_session import Session, pid_of, process_of, tid_of
from profkit.model.trace import SpanKind, TraceWarning

# As Kineto writes them, so that names compare across tools. Codes: ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND,
# ENUM_CUPTI_SYNC_TYPE, the same in every export that has these tables.
_COPY_KINDS: Final = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_UNIFIED_KINDS: Final = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MEMORY_KINDS: Final = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_SYNC_KINDS: Final = ("Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
_CALL_VERSION: Final = re.compile(r"(?:_pt[sd][sz])?(?:_v\d+)?$")  # cudaLaunchKernel_v7000, cudaMemcpy_ptds_v7000
_NO_ID: Final = -1


@dataclass(slots=True)
class Export:
    """A whole export, read: `texts` are the strings that its rows refer to, by their id in StringIds."""

    source: str
    n_bytes: int
    session: Session
    rows: Rows
    devices: dict[int, int]
    """The processes with kernels, and the device on which each ran most of them."""
    n_left_out: int
    """Processes with device rows but no kernels."""
    texts: dict[int, str] = field(default_factory=dict)
    thread_names: dict[int, int] = field(default_factory=dict)
    """Ids of StringIds, by globalTid."""

    def text(self, id_: int) -> str:
        """Give a string; one that the file does not have is named by its id."""
        return self.texts.get(id_, f"string {id_}")


class _Strings:
    """The strings of one process by code."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def coded(self, values: NDArray[np.int32], label: Callable[[int], str]) -> NDArray[np.int32]:
        """Give the codes of labels; `label` is called once for each distinct value."""
        distinct, place = np.unique(values, return_inverse=True)
        codes = [self.codes.setdefault(label(int(value)), len(self.codes)) for value in distinct]
        return np.array(codes, np.int32)[place.reshape(-1)]


def raw_trace(export: Export, key: int, rank: int | None) -> RawTrace:
    """Give the batch and metadata of one process, taking its rows out of the export."""
    process = export.rows.processes.pop(key)
    strings = _Strings()
    batch = Batch(n_events=sum(process.counts.values()), categories=dict(process.counts))
    for table, label in _labels(export).items():
        if columns := process.take(table):
            columns["name"] = strings.coded(columns["name"], label)
            batch.tables[table] = columns
    ranges = process.take("ranges")
    n_open = _close(ranges, batch.tables.get("calls", {}))
    batch.tables |= _operators_and_spans(ranges, export, strings)
    for table in ("kernels", "copies", "calls", "ops"):
        if columns := batch.tables.get(table, {}):
            columns["external_id"] = np.full(columns["name"].size, _NO_ID, np.int64)
    batch.strings = list(strings.codes)
    _name_threads(batch, export)
    return RawTrace(
        source=export.source,
        format="nsys",
        batches=[batch],
        metadata=_metadata(export, key, rank, batch),
        n_bytes=export.n_bytes,
        warnings=_warnings(export, batch, n_open, rank),
    )


def _labels(export: Export) -> dict[str, Callable[[int], str]]:
    return {
        "kernels": lambda id_: (
            export.text(id_).replace("<unnamed>", "(anonymous namespace)") if id_ >= 0 else f"CUDA graph {-2 - id_}"
        ),
        "copies": lambda kind: _copy_name(kind) if kind >= 0 else f"Memset ({_memory(-2 - kind)})",
        "sync_rows": lambda kind: _SYNC_KINDS[kind] if kind < len(_SYNC_KINDS) else _SYNC_KINDS[0],
        "calls": lambda id_: _CALL_VERSION.sub("", export.text(id_)),
        "waits": export.text,
        "overhead": export.text,
    }


def _copy_name(kinds: int) -> str:
    kind = kinds // 256
    name = _UNIFIED_KINDS.get(kind) or (_COPY_KINDS[kind] if kind < len(_COPY_KINDS) else "")
    return f"Memcpy {name} ({_memory(kinds // 16 % 16)} -> {_memory(kinds % 16)})"


def _memory(kind: int) -> str:
    return _MEMORY_KINDS[kind] if 0 <= kind < len(_MEMORY_KINDS) else "Unknown"


def _close(ranges: Columns, calls: Columns) -> int:
    """Close the ranges that were open when the capture ended at the last event of their thread; give their number."""
    if not ranges:
        return 0
    is_open = ranges["end_ns"] == NO_END
    if not is_open.any():
        return 0
    tables = [ranges, *([calls] if calls else [])]
    last = np.full(max(int(table["thread"].max()) for table in tables) + 1, np.iinfo(np.int64).min)
    for table in tables:
        np.maximum.at(last, table["thread"], np.maximum(table["start_ns"], table["end_ns"]))
    ranges["end_ns"] = np.where(is_open, last[ranges["thread"]], ranges["end_ns"])
    return int(is_open.sum())


def _operators_and_spans(ranges: Columns, export: Export, strings: _Strings) -> dict[str, Columns]:
    """Give the ranges as torch's operators and as annotations."""
    if not ranges:
        return {}
    registered = {
        int(name): export.rows.labels.code(export.text(-2 - int(name)).encode())
        for name in np.unique(ranges["name"])
        if name < UNNAMED
    }
    unnamed = export.rows.labels.code(b"")
    labels = export.rows.labels.all()

    def code(name: int) -> int:
        return unnamed if name == UNNAMED else registered.get(name, name)

    is_operator = np.array([label.is_operator for label in labels], np.bool_)
    kinds = [SpanKind.OTHER if label.is_operator else range_kind_of(label.name) for label in labels]
    distinct, place = np.unique(ranges.pop("name"), return_inverse=True)
    codes = np.array([code(int(name)) for name in distinct], np.int32)[place.reshape(-1)]
    tables: dict[str, Columns] = {}
    for table, chosen in (("ops", is_operator[codes]), ("spans", ~is_operator[codes])):
        if chosen.any():
            columns = {name: column[chosen] for name, column in ranges.items()}
            mine = codes[chosen]
            if table == "spans":
                columns["kind"] = np.array(kinds, np.int8)[mine]
            columns["name"] = strings.coded(mine, lambda label: labels[label].name)
            tables[table] = columns
    return tables


def _name_threads(batch: Batch, export: Export) -> None:
    """Number the threads of this process from 0 and name them."""
    tables = [columns for columns in batch.tables.values() if "thread" in columns]
    used = np.unique(np.concatenate([np.unique(columns["thread"]) for columns in tables])) if tables else ()
    number = np.zeros(len(export.rows.threads), np.int32)
    number[list(used)] = np.arange(len(used))
    for columns in tables:
        columns["thread"] = number[columns["thread"]]
    ids = list(export.rows.threads)
    for code in used:
        global_tid = ids[code]
        thread = (str(pid_of(process_of(global_tid))), str(tid_of(global_tid)))
        batch.threads.append(thread)
        given = export.thread_names.get(global_tid)
        name = export.rows.thread_names.get(global_tid) or (export.text(given) if given is not None else "")
        if name:
            batch.thread_names[thread] = name


def _metadata(export: Export, key: int, rank: int | None, batch: Batch) -> dict[str, Any]:
    """Give what the export says beside its events, under the keys of Kineto where it has one."""
    session = export.session
    devices = {int(device) for table in ("kernels", "copies") for device in _devices(batch.tables.get(table, {}))}
    gpus = {device: gpu for device in sorted(devices) if (gpu := session.gpu(key, device)) is not None}
    metadata: dict[str, Any] = {
        "baseTimeNanoseconds": session.start_unix_ns,
        "distributedInfo": {"rank": rank},
        "deviceProperties": [
            {
                "id": device,
                "name": gpu.name,
                "numSms": gpu.n_sms,
                "totalGlobalMem": gpu.memory_bytes,
                "memoryBandwidth": gpu.bytes_per_s,
                "clockRate": gpu.clock_hz,
                "computeCapability": gpu.compute_capability,
            }
            for device, gpu in gpus.items()
        ],
        "pid": pid_of(key),
        "process": session.process_names.get(key, ""),
        "nsys_version": session.product_version,
        "nsys_schema": session.schema_version,
    }
    return metadata | ({"profkit_command": session.command} if session.command else {})


def _devices(columns: Columns) -> NDArray[np.int32]:
    return np.unique(columns["device"]) if columns else np.empty(0, np.int32)


def _warnings(export: Export, batch: Batch, n_open: int, rank: int | None) -> list[TraceWarning]:
    found = list(export.session.warnings)

    def warn(warning_id: str, message: str, count: int = 1) -> None:
        found.append(TraceWarning(id=warning_id, message=message, count=count))

    if len(export.devices) > 1:
        warn(
            "nsys.ranks",
            f"{len(export.devices)} processes in one export: ranks are numbered by GPU, since nsys does not store them",
        )
    if export.n_left_out:
        warn("nsys.processes", f"{export.n_left_out} processes without kernels are left out", export.n_left_out)
    if export.rows.n_reversed:
        warn("dur.negative", f"{export.rows.n_reversed:,} rows that end before they start left out")
    if n_open:
        warn("nsys.open", f"{n_open:,} NVTX ranges were still open at the end; closed with their thread", n_open)
    if batch.categories.get("graph"):
        warn(
            "nsys.graphs",
            f"{batch.categories['graph']:,} CUDA graphs were recorded as wholes: no kernels inside them"
            " (--cuda-graph-trace=node records them)",
        )
    return found
