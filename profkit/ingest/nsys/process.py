"""One process of an nsys export as the batch of columns that becomes its `Trace`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Batch, Columns, RawTrace
from profkit.ingest.nsys.nvtx import CUT_STEP, Labels
from profkit.ingest.nsys.rows import NO_END, NO_NAME, OFF_CORE, UNNAMED, Rows, Tables
from profkit.ingest.nsys.samples import Samples
from profkit.ingest.nsys.session import Session, pid_of, process_of, tid_of
from profkit.ingest.nsys.source import RECAPTURE, RECAPTURE_LOST, is_lost, traits
from profkit.model.arrays import constant
from profkit.model.names import OFF_CORE as OFF_CORE_NAME
from profkit.model.names import WHOLE_GRAPH
from profkit.model.trace import SpanKind, TraceWarning

# As Kineto writes them, so that names compare across tools. Codes: ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND,
# ENUM_CUPTI_SYNC_TYPE, the same in every export that has these tables.
_COPY_KINDS: Final = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_UNIFIED_KINDS: Final = {11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MEMORY_KINDS: Final = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_SYNC_KINDS: Final = ("Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
_CALL_VERSION: Final = re.compile(r"(?:_pt[sd][sz])?(?:_v\d+)?$")  # cudaLaunchKernel_v7000, cudaMemcpy_ptds_v7000
_WITH_EXTERNAL_ID: Final = ("kernels", "copies", "calls")
_NO_ID: Final = -1
NO_DEVICE: Final = -1
"""The device of a process of which nothing was recorded on one."""


class Export(msgspec.Struct):
    """A whole export, read: `texts` are the strings that its rows refer to, by their id in StringIds."""

    source: str
    n_bytes: int
    session: Session
    rows: Rows
    devices: dict[int, int]
    """The processes with kernels, and the device on which each ran most of them."""
    n_left_out: int
    """Processes with device rows but no kernels."""
    recapture: str = RECAPTURE
    """How this is better recorded again."""
    texts: dict[int, str] = msgspec.field(default_factory=dict)
    n_unnamed: dict[int, int] = msgspec.field(default_factory=dict)
    """Kernels whose name the file does not hold, by process."""
    samples: Samples | None = None
    sample_words: list[str] = msgspec.field(default_factory=list)
    """What the columns of CPU samples stand for."""
    n_busy_beside: int = 0
    """Other processes at work beside those of the job."""
    thread_names: dict[int, int] = msgspec.field(default_factory=dict)
    """Ids of StringIds, by globalTid."""
    recorded: Mapping[str, str] = {}
    """As `session.command_beside`."""

    @property
    def mpi_ranks(self) -> dict[int, int]:
        """The ranks that MPI gave, by process; {} unless each process with kernels has one of its own."""
        found = {key: rank for key, rank in self.session.mpi_ranks.items() if key in self.devices}
        return found if len(set(found.values())) == len(self.devices) else {}

    def text(self, id_: int) -> str:
        """A string; one that the file does not have is named by its id."""
        return self.texts.get(id_, f"string {id_}" if id_ != NO_NAME else "unnamed")


def raw_trace(export: Export, key: int, rank: int | None) -> RawTrace:
    """The batches and metadata of one process, taking its rows out of the export."""
    process = export.rows.processes.pop(key)
    read = process.take()
    n_kernels = sum(part["name"].size for part in read.get("kernels", []))
    n_open = _close(read)
    codes: dict[str, int] = {}
    tables = [(table, part) for table, label in _labels(export).items() for part in _named(read, table, label, codes)]
    tables += _operators_and_spans(read, export, codes)
    tables += _samples(read, export, codes)
    threads, thread_names = _number_threads([part for _, part in tables if "thread" in part], export)
    strings = list(codes)
    batches = [Batch(tables={table: part}, strings=strings, threads=threads) for table, part in tables]
    batches[0].n_events = sum(process.counts.values())
    batches[0].categories = dict(process.counts)
    batches[0].thread_names = thread_names
    devices = {int(device) for _, part in tables if "device" in part for device in np.unique(part["device"])}
    return RawTrace(
        source=export.source,
        traits=traits(export.recapture),
        n_in_source=len(export.devices),
        batches=batches,
        metadata=_metadata(export, key, rank, devices),
        n_bytes=export.n_bytes,
        warnings=_warnings(export, key, process.counts, n_kernels=n_kernels, n_open=n_open),
    )


def _labels(export: Export) -> dict[str, Callable[[int], str]]:
    return {
        "kernels": lambda id_: (
            export.text(id_).replace("<unnamed>", "(anonymous namespace)") if id_ >= 0 else f"{WHOLE_GRAPH}{-2 - id_}"
        ),
        "copies": lambda kind: _copy_name(kind) if kind >= 0 else f"Memset ({_memory(-2 - kind)})",
        "sync_rows": lambda kind: _SYNC_KINDS[kind] if kind < len(_SYNC_KINDS) else _SYNC_KINDS[0],
        "calls": lambda id_: _CALL_VERSION.sub("", export.text(id_)),
        "waits": lambda id_: OFF_CORE_NAME if id_ == OFF_CORE else export.text(id_),
        "overhead": export.text,
    }


def _copy_name(kinds: int) -> str:
    kind = kinds // 256
    name = _UNIFIED_KINDS.get(kind) or (_COPY_KINDS[kind] if kind < len(_COPY_KINDS) else "")
    return f"Memcpy {name} ({_memory(kinds // 16 % 16)} -> {_memory(kinds % 16)})"


def _memory(kind: int) -> str:
    return _MEMORY_KINDS[kind] if 0 <= kind < len(_MEMORY_KINDS) else "Unknown"


def _named(read: Tables, table: str, label: Callable[[int], str], codes: dict[str, int]) -> list[Columns]:
    """The parts of a table with the codes of labels for names; `label` is called once for each distinct value."""
    seen: dict[int, int] = {}
    parts = read.get(table, [])
    for part in parts:
        part["name"] = _coded(part["name"], lambda value: codes.setdefault(label(value), len(codes)), seen)
        if table in _WITH_EXTERNAL_ID:
            part["external_id"] = constant(_NO_ID, part["name"].size)
    return parts


def _coded(values: NDArray[np.int32], code: Callable[[int], int], seen: dict[int, int]) -> NDArray[np.int32]:
    distinct = np.unique(values)
    for value in distinct.tolist():
        if value not in seen:
            seen[value] = code(value)
    return np.array([seen[value] for value in distinct.tolist()], np.int32)[np.searchsorted(distinct, values)]


def _close(read: Tables) -> int:
    """Close the ranges that were open when the capture ended at the last event of their thread; give their number."""
    ranges = read.get("ranges", [])
    is_open = [part["end_ns"] == NO_END for part in ranges]
    n_open = sum(int(rows.sum()) for rows in is_open)
    if n_open:
        parts = [*ranges, *read.get("calls", [])]
        last = np.full(max(int(part["thread"].max()) for part in parts) + 1, np.iinfo(np.int64).min)
        for part in parts:
            np.maximum.at(last, part["thread"], np.maximum(part["start_ns"], part["end_ns"]))
        for part, rows in zip(ranges, is_open, strict=True):
            part["end_ns"] = np.where(rows, last[part["thread"]], part["end_ns"])
    return n_open


def _operators_and_spans(read: Tables, export: Export, codes: dict[str, int]) -> list[tuple[str, Columns]]:
    """The ranges as torch's operators and as annotations, by table."""
    labels, ranges = export.rows.labels, read.get("ranges", [])

    def label_of(name: int) -> int:
        if name >= 0:
            return name
        return labels.codes([b"" if name == UNNAMED else export.text(-2 - name).encode()])[0]

    tables: list[tuple[str, Columns]] = []
    of_name: dict[int, int] = {}
    of_label: dict[int, int] = {}
    coded = [_coded(part.pop("name"), label_of, of_name) for part in ranges]
    for part, label in _whole_steps(ranges, coded, labels):
        is_operator = np.array([one.is_operator for one in labels.all()], np.bool_)[label]
        part["name"] = _coded(label, lambda one: codes.setdefault(labels.all()[one].name, len(codes)), of_label)
        part["kind"] = np.array([one.kind for one in labels.all()], np.int8)[label]
        for table, chosen in (("ops", is_operator), ("spans", ~is_operator)):
            if chosen.any():
                tables.append((table, {name: column[chosen] for name, column in part.items()}))
        part.clear()
    for table, columns in tables:
        if table == "ops":
            columns["external_id"] = constant(_NO_ID, columns.pop("kind").size)
    return tables


def _whole_steps(
    parts: list[Columns], coded: list[NDArray[np.int32]], labels: Labels
) -> Iterator[tuple[Columns, NDArray[np.int32]]]:
    """The ranges with their labels, without steps that were cut and the ranges that say so."""
    is_cut = np.array([one.name == CUT_STEP for one in labels.all()], np.bool_)
    if not is_cut.any():
        yield from zip(parts, coded, strict=True)
        return
    is_step = np.array([one.kind is SpanKind.STEP for one in labels.all()], np.bool_)
    at_ns = np.sort(np.concatenate([part["start_ns"][is_cut[label]] for part, label in zip(parts, coded, strict=True)]))
    for part, label in zip(parts, coded, strict=True):
        holds_one = np.searchsorted(at_ns, part["end_ns"]) > np.searchsorted(at_ns, part["start_ns"])
        kept = ~is_cut[label] & ~(is_step[label] & holds_one)
        yield {name: column[kept] for name, column in part.items()}, label[kept]


def _samples(read: Tables, export: Export, codes: dict[str, int]) -> list[tuple[str, Columns]]:
    """The CPU samples, their words coded."""
    words, parts = export.sample_words, read.get("samples", [])
    for part in parts:
        for column in ("name", "module", "caller"):
            part[column] = _coded(
                part[column], lambda word: codes.setdefault(words[word], len(codes)) if word >= 0 else -1, {}
            )
    return [("samples", part) for part in parts]


def _number_threads(parts: list[Columns], export: Export) -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """Number the threads of one process from 0; give them as (pid, tid), and their names."""
    used = sorted({int(thread) for part in parts for thread in np.unique(part["thread"])})
    number = np.zeros(len(export.rows.threads), np.int32)
    number[used] = np.arange(len(used))
    for part in parts:
        part["thread"] = number[part["thread"]]
    ids = list(export.rows.threads)
    names: dict[tuple[str, str], str] = {}
    threads: list[tuple[str, str]] = []
    for global_tid in (ids[code] for code in used):
        threads.append((str(pid_of(process_of(global_tid))), str(tid_of(global_tid))))
        given = export.thread_names.get(global_tid)
        if name := export.rows.thread_names.get(global_tid) or ("" if given is None else export.text(given)):
            names[threads[-1]] = name
    return threads, names


def _metadata(export: Export, key: int, rank: int | None, devices: set[int]) -> dict[str, Any]:
    """What the export says beside its events, under the keys of Kineto where it has one."""
    session = export.session
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
        "nsys_processes": len(export.devices),
        "nsys_version": session.product_version,
        "nsys_schema": session.schema_version,
    }
    if export.n_busy_beside:
        metadata["nsys_workers"] = export.n_busy_beside // len(export.devices) or export.n_busy_beside
    return metadata | ({"profkit_command": session.command} if session.command else {}) | dict(export.recorded)


def _warnings(
    export: Export, key: int, counts: Mapping[str, int], *, n_kernels: int, n_open: int
) -> list[TraceWarning]:
    found = list(export.session.warnings)

    def warn(warning_id: str, message: str, count: int = 1) -> None:
        found.append(TraceWarning(id=warning_id, message=message, count=count))

    if len(export.devices) > 1 and not export.mpi_ranks:
        by = "process id" if set(export.devices.values()) == {NO_DEVICE} else "GPU"
        warn(
            "nsys.ranks",
            f"{len(export.devices)} processes in one export: ranks are numbered by {by}, as nsys does not store them",
        )
    if is_lost(export.recapture):
        by_software = " (--trace cuda-sw traces in software)" if export.recapture == RECAPTURE_LOST else ""
        warn(
            "nsys.device",
            "nsys recorded launches of kernels, but nothing that ran on the device: that is lost, or was never recorded"
            + by_software,
        )
    if n := export.n_left_out:
        warn("nsys.processes", f"{n} process{'es' * (n > 1)} without kernels {'are' if n > 1 else 'is'} left out", n)
    for said in export.rows.left_out:
        warn("nsys.tables", said)
    if n := export.rows.n_reversed:
        ends = "rows that end before they start" if n > 1 else "row that ends before it starts"
        warn("dur.negative", f"{n:,} {ends} left out")
    if n := export.n_unnamed.get(key, 0):
        verb = "have" if n > 1 else "has"
        warn("nsys.names", f"{n:,} of {n_kernels:,} kernels {verb} no name in StringIds: treated as compute", n)
    if n_open:
        warn("nsys.open", f"{n_open:,} NVTX ranges were still open at the end; they end with their thread", n_open)
    if counts.get("graph"):
        warn(
            "nsys.graphs",
            f"{counts['graph']:,} CUDA graphs were recorded without the kernels inside them"
            " (--cuda-graph-trace=node records them)",
        )
    return found
