"""Tiny nsys exports, made with the columns that nsys writes: the tests' own, no real file is copied."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANK0, RANK1 = 144, 145
KERNEL_COLUMNS = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
    " streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,"
    " shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,"
    " blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, graphNodeId INTEGER"
)
TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL_COLUMNS,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
    " correlationId INTEGER, globalPid INTEGER, syncType INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,"
    " endGlobalTid INTEGER, textId INTEGER, domainId INTEGER",
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL",
    "SCHED_EVENTS": "start INTEGER NOT NULL, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER",
    "COMPOSITE_EVENTS": "id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, cpu INTEGER, threadState INTEGER,"
    " globalTid INTEGER, cpuCycles INTEGER NOT NULL",
    "SAMPLING_CALLCHAINS": "id INTEGER NOT NULL, symbol INTEGER, module INTEGER, kernelMode INTEGER, thumbCode INTEGER,"
    " unresolved INTEGER, specialEntry INTEGER, originalIP INTEGER, unwindMethod INTEGER, stackDepth INTEGER NOT NULL",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, severity INTEGER, text TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER,"
    " clockRate INTEGER, computeMajor INTEGER, computeMinor INTEGER, cuDevice INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "MPI_RANKS": "globalTid INTEGER NOT NULL, rank INTEGER NOT NULL",
}


def global_pid(pid: int) -> int:
    return 1 << 48 | pid << 24


def global_tid(pid: int, tid: int | None = None) -> int:
    return global_pid(pid) | (pid if tid is None else tid)


@dataclass
class Export:
    """Rows by table; names become ids of StringIds. Times are ns."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    _correlation: int = 100

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, 10 + len(self.strings))

    def kernel(
        self, start: int, end: int, name: str = "gemm", *, pid: int = RANK0, device: int = 0, **more: Any
    ) -> None:
        """Add a kernel and, 5 us before, the call that launched it, unless `launched=False`."""
        correlation = more.pop("correlation", None) or self._next()
        if more.pop("launched", True):
            self.call(start - 5000, start - 3000, "cudaLaunchKernel_v7000", pid=pid, correlation=correlation)
        sizes = {"gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
        sizes |= {"contextId": 1, "deviceId": device, "graphNodeId": more.get("graph_node")}
        names = dict.fromkeys(("demangledName", "shortName"), self.string(name))
        self.work("KERNEL", start, end, pid=pid, correlation=correlation, **sizes, **names)

    def work(self, kind: str, start: int, end: int, *, pid: int = RANK0, correlation: int = 0, **more: Any) -> None:
        """Add a row of GPU 0 to the table of a kind ("MEMCPY"), without the call that made it."""
        row = {"deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": global_pid(pid), **more}
        self.add(f"CUPTI_ACTIVITY_KIND_{kind}", start=start, end=end, **row)

    def call(
        self, start: int, end: int, name: str, *, pid: int = RANK0, tid: int | None = None, correlation: int = 0
    ) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=global_tid(pid, tid),
            correlationId=correlation or self._next(),
            nameId=self.string(name),
        )

    def range(
        self, start: int, end: int | None, text: str, *, pid: int = RANK0, tid: int | None = None, kind: int = 59
    ) -> None:
        owner = global_tid(pid, tid)
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=owner, domainId=0)

    def sample(
        self, at: int, *frames: tuple[str | None, str], pid: int = RANK0, tid: int | None = None, state: int = 1
    ) -> None:
        """Add a CPU sample; `frames` are (function, module) from the innermost out, None where there is no symbol."""
        id_ = len(self.rows.get("COMPOSITE_EVENTS", ())) + 1
        owner = global_tid(pid, tid)
        self.add("COMPOSITE_EVENTS", id=id_, start=at, cpu=0, threadState=state, globalTid=owner, cpuCycles=1)
        for depth, (function, module) in enumerate(frames):
            self.add(
                "SAMPLING_CALLCHAINS",
                id=id_,
                symbol=self.string("0x7cfa361805c1" if function is None else function),
                module=self.string(module),
                unresolved=int(function is None),
                stackDepth=depth,
            )

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    def write(self, path: Path, *, without: Iterable[str] = (), sql: Sequence[str] = ()) -> Path:
        """Write the export; `without` names tables or `table.column`s to leave out, `sql` runs at the end."""
        absent = set(without)
        connection = sqlite3.connect(path)
        for text, id_ in self.strings.items():
            self.add("StringIds", id=id_, value=text)
        for table in [name for name in TABLES if (name in self.rows or name == "StringIds") and name not in absent]:
            columns = [column.strip() for column in TABLES[table].split(",")]
            kept = [column for column in columns if f"{table}.{column.split(' ')[0]}" not in absent]
            connection.execute(f"CREATE TABLE {table} ({', '.join(kept)})")
            names = {column.split(" ")[0] for column in kept}
            for row in self.rows.get(table, []):
                cells = {name: value for name, value in row.items() if name in names}
                marks = ", ".join("?" * len(cells))
                connection.execute(f"INSERT INTO {table} ({', '.join(cells)}) VALUES ({marks})", tuple(cells.values()))  # noqa: S608
        for statement in sql:
            connection.execute(statement)
        connection.commit()
        connection.close()
        self.rows.pop("StringIds", None)
        return path


def training(pid: int = RANK0, *, n_steps: int = 4, device: int = 0) -> Export:
    """Give a small training: steps of 1 ms with 8 kernels of 109 us each, operators around the launches."""
    export = Export()
    add_training(export, pid, n_steps=n_steps, device=device)
    return export


def add_training(export: Export, pid: int, *, n_steps: int = 4, device: int = 0) -> None:
    for step in range(n_steps):
        begin = 10_000_000 + step * 1_000_000
        export.range(begin, begin + 1_000_000, f"step {step + 7}", pid=pid)
        for kernel in range(8):
            start = begin + 50_000 + kernel * 110_000
            export.range(start - 6000, start - 2000, f"aten::mm, seq = {kernel}, op_id = {step * 8 + kernel}", pid=pid)
            export.kernel(start, start + 109_000, f"gemm_{kernel % 2}", pid=pid, device=device)
