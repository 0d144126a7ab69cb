"""What an nsys export says of itself: version, session, GPUs, processes, threads, command, diagnostics.

Environments are never read: nsys stores those of the target and of unrelated processes (TARGET_INFO_SYSTEM_ENV, and the
ENVIRONMENT_VARIABLE rows of META_DATA_CAPTURE), tokens among them. Of what is read, secrets are taken out here.
Tables and columns: https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite schema reference".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from profkit import files, signing
from profkit.errors import UnsupportedTraceError
from profkit.ingest.nsys.sqlite import Database, Text
from profkit.model.arrays import I64
from profkit.model.trace import TraceWarning
from profkit.redact import redacted_command, redacted_text

KNOWN_MAJOR: Final = 3
KNOWN_MINOR: Final = 28  # of the schema reference of nsys 2026.4
_MAX_MANIFEST_BYTES: Final = 64 * 2**20  # as `compare` reads it
_Id = TypeVar("_Id", int, I64)
_PID_SHIFT: Final = 24
_ID_MASK: Final = 0xFFFFFF
_WARNING, _ERROR = 2, 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL: 0 unknown, 1 info, 4 verbose
_MAX_DIAGNOSTICS: Final = 8
_NOT_OURS: Final = re.compile(r"paranoid|OpenGL|Vulkan|\bDX1[12]\b|DirectX|WDDM|OpenXR|ftrace|ETW|VSync", re.IGNORECASE)
_ARGUMENT: Final = re.compile(r"PROCESS_0:ARGUMENT_(\d+)$")


def process_of(global_id: _Id) -> _Id:
    """The key of the process of globalTids or globalPids: hardware, virtual machine and pid, no thread."""
    return global_id >> _PID_SHIFT


def pid_of(process: int) -> int:
    """The process id behind a process's key."""
    return process & _ID_MASK


def tid_of(global_tid: int) -> int:
    """The thread id behind a globalTid."""
    return global_tid & _ID_MASK


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of TARGET_INFO_GPU; 0 and "" where the export does not say."""

    id: int
    cuda_id: int
    name: str
    n_sms: int
    memory_bytes: int
    bytes_per_s: int
    clock_hz: int
    compute_capability: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds the events. `gpu_of` maps (pid, CUDA device of that process) to the id of a `Gpu`."""

    product_version: str = ""
    schema_version: str = ""
    start_unix_ns: int = 0
    command: str = ""
    gpus: tuple[Gpu, ...] = ()
    gpu_of: Mapping[tuple[int, int], int] = msgspec.field(default_factory=dict)
    process_names: Mapping[int, str] = msgspec.field(default_factory=dict)
    mpi_ranks: Mapping[int, int] = msgspec.field(default_factory=dict)
    """By process, where MPI was traced."""
    warnings: tuple[TraceWarning, ...] = ()

    def gpu(self, process: int, device: int) -> Gpu | None:
        """The GPU that a process knows as CUDA device `device`."""
        mapped = self.gpu_of.get((pid_of(process), device))
        if mapped is not None:
            return next((gpu for gpu in self.gpus if gpu.id == mapped), None)
        return next((gpu for gpu in self.gpus if gpu.cuda_id == device), None)


def read_session(database: Database) -> Session:
    """The session; raises UnsupportedTraceError for a schema that is newer than any known."""
    export = dict(_pairs(database, "META_DATA_EXPORT") or _pairs(database, "EXPORT_META_DATA"))
    schema = export.get("EXPORT_SCHEMA_VERSION", "")
    starts = [chunk["utcEpochNs"] for chunk in database.chunks("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": 0})]
    return Session(
        product_version=export.get("EXPORT_PRODUCT_VERSION", ""),
        schema_version=schema,
        start_unix_ns=int(starts[0][0]) if starts else 0,
        command=_command(_pairs(database, "META_DATA_CAPTURE")),
        gpus=_gpus(database),
        gpu_of=_gpu_of(database),
        process_names=_process_names(database),
        mpi_ranks=_mpi_ranks(database),
        warnings=(*_schema_warnings(schema, database.source), *_diagnostics(database)),
    )


class _Beside(msgspec.Struct):
    """What `capture.json` says of a recording that profkit started."""

    command: str = ""
    command_mark: str = ""
    reports: tuple[str, ...] = ()


def command_beside(path: Path) -> dict[str, str]:
    """The command that this user gave `profkit nsys` for this export, with its mark, as metadata; {} for none.

    An export names the program inside: a launcher that started it is known beside it alone.
    """
    try:
        told = msgspec.json.decode(files.read_small(path.parent / "capture.json", _MAX_MANIFEST_BYTES), type=_Beside)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    is_of_it = path.name.partition(".")[0] in {name.partition(".")[0] for name in told.reports}
    if not is_of_it or not signing.holds(signing.COMMAND, told.command.encode(), told.command_mark):
        return {}
    return {"profkit_command": told.command, "profkit_command_mark": told.command_mark}


def text_of(value: Text) -> str:
    """A text cell as text, "" for none."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _rows(
    database: Database, table: str, numbers: Mapping[str, int | None], texts: tuple[str, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """The rows of a small table one by one: these numbers, then these texts."""
    for chunk in database.chunks(table, numbers, texts):
        yield from zip(*(chunk[name].tolist() for name in numbers), *(chunk[name] for name in texts), strict=True)


def _pairs(database: Database, table: str) -> list[tuple[str, str]]:
    """(name, value) rows, without environment variables; names repeat."""
    pairs = [(text_of(name), value) for name, value in _rows(database, table, {}, ("name", "value"))]
    return [(name, text_of(value)) for name, value in pairs if "ENVIRONMENT" not in name]


def _schema_warnings(version: str, source: str) -> tuple[TraceWarning, ...]:
    match = re.match(r"(\d{1,9})\.(\d{1,9})", version)
    if match is None:
        return ()
    major, minor = int(match[1]), int(match[2])
    if major > KNOWN_MAJOR:
        raise UnsupportedTraceError(
            f"{source} has export schema {version[:20]}, but profkit knows versions up to {KNOWN_MAJOR}.x",
            hint="export with an older nsys, or use a newer profkit",
        )
    if (major, minor) <= (KNOWN_MAJOR, KNOWN_MINOR):
        return ()
    message = f"export schema {major}.{minor} is newer than {KNOWN_MAJOR}.{KNOWN_MINOR}: what is new in it is not read"
    return (TraceWarning(id="nsys.schema", message=message),)


def _command(capture: list[tuple[str, str]]) -> str:
    """The profiled command as a shell would take it, secrets out; "" where the export does not say."""
    program = next((value for name, value in capture if name == "PROCESS_0:COMMAND"), "")
    numbered = [(int(match[1]), value) for name, value in capture if (match := _ARGUMENT.match(name))]
    arguments = [value for _, value in sorted(numbered, key=lambda item: item[0])]
    return shlex.join(redacted_command([program, *arguments])) if program else ""


def _gpus(database: Database) -> tuple[Gpu, ...]:
    numbers = {"id": 0, "cuDevice": -1} | dict.fromkeys(
        ("smCount", "totalMemory", "memoryBandwidth", "clockRate", "computeMajor", "computeMinor"), 0
    )
    return tuple(
        Gpu(
            id=id_,
            cuda_id=cuda_id if cuda_id >= 0 else id_,
            name=text_of(name),
            n_sms=n_sms,
            memory_bytes=memory_bytes,
            bytes_per_s=bytes_per_s,
            clock_hz=clock_hz,
            compute_capability=f"{major}.{minor}",
        )
        for id_, cuda_id, n_sms, memory_bytes, bytes_per_s, clock_hz, major, minor, name in _rows(
            database, "TARGET_INFO_GPU", numbers, ("name",)
        )
    )


def _gpu_of(database: Database) -> dict[tuple[int, int], int]:
    return {
        (pid, device): gpu
        for gpu, device, pid in _rows(
            database, "TARGET_INFO_CUDA_DEVICE", dict.fromkeys(("gpuId", "cudaId", "pid"), -1)
        )
        if min(gpu, device, pid) >= 0  # a column may be missing: then nothing is mapped
    }


def _process_names(database: Database) -> dict[int, str]:
    rows = _rows(database, "PROCESSES", {"globalPid": 0}, ("name",))
    return {process_of(global_pid): text_of(name) for global_pid, name in rows}


def _mpi_ranks(database: Database) -> dict[int, int]:
    rows = _rows(database, "MPI_RANKS", {"globalTid": -1, "rank": -1})
    return {process_of(global_tid): rank for global_tid, rank in rows if global_tid >= 0 and rank >= 0}


def _diagnostics(database: Database) -> list[TraceWarning]:
    """What nsys itself warned of while it recorded (since 2024.6), each sentence once."""
    seen: dict[str, int] = {}
    for severity, text in _rows(database, "DIAGNOSTIC_EVENT", {"severity": 0}, ("text",)):
        sentence = redacted_text(" ".join(text_of(text).split()))[:200]
        if severity in {_WARNING, _ERROR} and sentence and not _NOT_OURS.search(sentence):
            seen[sentence] = seen.get(sentence, 0) + 1
    return [
        TraceWarning(id="nsys.diagnostic", message=f"nsys: {sentence}", count=count)
        for sentence, count in list(seen.items())[:_MAX_DIAGNOSTICS]
    ]
