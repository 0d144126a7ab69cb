"""SQLite exports of nsys, one at a time."""

import random
from functools import cache
from typing import Any

from tests.fuzz import damage, sql, values
from tests.fuzz.documents import Case, File, Secret, Sql
from tests.fuzz.kinds.kineto import commands
from tests.handover.jobs import BLOCK, NCCL, Job, exported, os_wait
from tests.ingest.nsys_files import RANK0, RANK1, TABLES, Export, add_training, global_pid, global_tid, training


def statements_of(export: Export) -> sql.Statements:
    """An export as statements, in the order of a real one."""
    found: sql.Statements = []
    for text, number in export.strings.items():
        export.add("StringIds", id=number, value=text)
    for table in [name for name in TABLES if name in export.rows or name == "StringIds"]:
        found.append((f"CREATE TABLE {table} ({TABLES[table]})", ()))
        for row in export.rows.get(table, []):
            marks = ", ".join("?" * len(row))
            found.append((f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())))
    return found


def _plain() -> Export:
    export = training(n_steps=3)
    _around(export)
    return export


def _two_ranks() -> Export:
    export = training(n_steps=2)
    add_training(export, RANK1, n_steps=2, device=1)
    for rank, pid in enumerate((RANK0, RANK1)):
        export.add("MPI_RANKS", globalTid=global_tid(pid), rank=rank)
        export.kernel(12_500_000, 12_900_000, NCCL, pid=pid, device=rank)
    _around(export)
    return export


def _rich() -> Export:
    export = exported(Job(launches=BLOCK, n_steps=3, wait="enumerate(DataLoader)#x.__next__", wait_us=50).trace())
    for number in range(6):
        at = 1_000_000_000 + number * 100_000
        os_wait(export, at, at + 50_000, "pthread_cond_wait")
        _device_work(export, "SYNCHRONIZATION", at, at + 9000, correlation=number, syncType=3)
        copied = {"bytes": 2**22, "copyKind": 1, "srcKind": 0, "dstKind": 2}
        _device_work(export, "MEMCPY", at, at + 7000, correlation=900 + number, **copied)
        filled = {"value": 0, "bytes": 64, "memKind": 2}
        _device_work(export, "MEMSET", at + 8000, at + 9000, correlation=950 + number, **filled)
        export.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=at + 20_000,
            end=at + 30_000,
            deviceId=0,
            contextId=1,
            streamId=9,
            correlationId=700 + number,
            globalPid=global_pid(RANK0),
            graphId=1,
            graphExecId=2,
        )
    _around(export)
    return export


def _device_work(export: Export, kind: str, start: int, end: int, *, correlation: int, **more: int) -> None:
    """Add a row; the order of its columns is that of the statements, from which inputs are drawn."""
    where = {"deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": global_pid(RANK0)}
    export.add(f"CUPTI_ACTIVITY_KIND_{kind}", start=start, end=end, **where, **more)


def _around(export: Export) -> None:
    export.add("PROCESSES", globalPid=global_pid(RANK0), pid=RANK0, name="python3")
    export.add("ThreadNames", nameId=export.string("pt_autograd_0"), priority=0, globalTid=global_tid(RANK0, 200))
    export.add("META_DATA_CAPTURE", name="CAPTURE:COMMAND", value="python train.py")
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION_MAJOR", value="3")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems 2025.1.1")
    export.add("DIAGNOSTIC_EVENT", timestamp=5, severity=2, text="Number of dropped events: 3")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_790_857_026_000_000_000, utcTime="x", localTime="y")
    export.add(
        "TARGET_INFO_SYSTEM_ENV", globalVid=1, devStateName="Hostname", name="Hostname", nameEnum=1, value="node0"
    )
    export.add(
        "TARGET_INFO_GPU",
        id=0,
        name="NVIDIA H100",
        smCount=132,
        totalMemory=8 * 10**10,
        memoryBandwidth=3 * 10**12,
        clockRate=10**9,
        computeMajor=9,
        computeMinor=0,
        cuDevice=0,
    )
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=RANK0)


@cache
def _kept(number: int) -> sql.Statements:
    return statements_of((_plain, _two_ranks, _rich)[number]())


def drawn_statements(rng: random.Random) -> sql.Statements:
    """A copy of an export's statements."""
    return list(_kept(rng.randrange(3)))


def with_secret(rng: random.Random, statements: sql.Statements) -> Secret:
    """Plant a secret where nsys records environment and command line."""
    secret, key, value = values.secret(rng)
    text = value if isinstance(value, str) else str(value)
    rows: list[tuple[str, str, tuple[Any, ...]]] = [
        ("META_DATA_CAPTURE", "name, value", ("CAPTURE:COMMAND", text)),
        ("META_DATA_CAPTURE", "name, value", (f"ENV:{key}", text)),
        ("TARGET_INFO_SYSTEM_ENV", "devStateName, name, value", ("Environment", key, text)),
    ]
    if isinstance(value, str):  # no process is named by a dictionary, where nothing would tell its secret
        rows.append(("PROCESSES", "globalPid, pid, name", (global_pid(RANK0), RANK0, text)))
    table, columns, row = rng.choice(rows)
    statements.append((f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", row))
    return Secret(marker=secret.marker, form=f"nsys {table}: {secret.form}", shape=tuple(map(str, row)))


def drawn(rng: random.Random) -> Case:
    """One export and what is asked of it."""
    statements = drawn_statements(rng)
    done = sql.mutated(rng, statements)
    secrets = [with_secret(rng, statements)] if rng.random() < 0.08 else []
    file = File(body=Sql(statements, wal=rng.choice([1, 5, 60]) if rng.random() < 0.05 else 0))
    if rng.random() < 0.12:
        file.inner.extend(damage.drawn(rng) for _ in range(rng.choice([1, 1, 3])))
        done += [one.what for one in file.inner]
    if rng.random() < 0.05:
        file.packing = "gz"
    name = "report.sqlite" + (".gz" if file.packing else "")
    return Case(kind="nsys", files={name: file}, commands=commands(rng, name), secrets=secrets, done=done)
