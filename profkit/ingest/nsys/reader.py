"""Nsight Systems SQLite exports of any version: the same `Trace` as from Kineto, one for each process with kernels.

Rows of a table go to their process by globalTid and globalPid; a device row finds its launch by the correlation id
within its process (ids repeat across processes). The export stores ranks of MPI alone, and only where it was traced:
else processes are numbered by GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np

from profkit import files
from profkit.allocator import return_free_memory
from profkit.errors import TraceFormatError, UnsupportedTraceError
from profkit.ingest.assemble.build import build_trace
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.bytes.spool import most_spooled
from profkit.ingest.nsys.events import (
    busy_processes,
    give_owner,
    launching_processes,
    marked_processes,
    read_device_rows,
    read_host_rows,
    read_thread_names,
)
from profkit.ingest.nsys.nvtx import range_kind_of
from profkit.ingest.nsys.process import NO_DEVICE, Export, raw_trace
from profkit.ingest.nsys.rows import TABLES, UNNAMED, Process, Rows
from profkit.ingest.nsys.samples import CHAINS, add_samples, read_samples, texts_of
from profkit.ingest.nsys.session import pid_of, read_session, text_of
from profkit.ingest.nsys.source import RECAPTURE, RECAPTURE_CPU, recapture_lost
from profkit.ingest.nsys.sqlite import Database, opened
from profkit.ingest.numbers import rank_in_name
from profkit.model.trace import SpanKind, Trace
from profkit.units import format_count

_HOW_TO_RECORD: Final = (
    "record a command that uses the GPU with nsys profile --trace=cuda,nvtx,osrt (profkit nsys does)"
)
MAX_UNNAMED: Final = 0.01
"""Share of kernels without a name from which an export is refused. Chosen: no real export lacks one."""
_MOST_NAMED: Final = 5
"""Tables named of a database that is no export (chosen)."""
ASIDE_FROM_BYTES: Final = 16 * 2**20
"""Rows that take less wait in memory. Chosen: so much is no concern beside the trace that is analysed meanwhile."""
_ON_CPU: Final = (
    f"{RECAPTURE_CPU} -- COMMAND marks the steps of a PyTorch job; others put each step into an NVTX range (step 1,"
    " step 2, ...)"
)
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MOVES: Final = {_COPIES, "CUPTI_ACTIVITY_KIND_MEMSET"}
_WORDS: Final = {
    "gpu_memcpy": "copies",
    "gpu_memset": "memsets",
    "cuda_sync": "synchronisations",
    "cuda_runtime": "CUDA calls",
    "nvtx": "NVTX events",
    "osrt": "OS calls",
}


def read_export(
    path: Path, source: str, *, progress: Progress | None = None, recorded: Mapping[str, str] | None = None
) -> Iterator[Trace]:
    """A `Trace` for each process with kernels, in the order of ranks.

    `recorded` is what is known beside the export of the command that it is of.
    Without kernels, for each that launches some, else for each with steps, else with NVTX ranges. Raises
    TraceFormatError for what is no nsys export or a damaged one, UnsupportedTraceError for one with none of these.
    """
    with opened(path, source, progress) as database:
        export = _read(database, path)
    export.recorded = recorded or {}
    ranks = _ranks(export)
    order = sorted(ranks.items(), key=lambda item: (item[1] if item[1] is not None else 0, item[0]))
    processes = export.rows.processes
    n_events = sum(n for process in processes.values() for n in process.counts.values())
    with _put_aside([processes[key] for key, _ in order[1:] if key in processes]):
        for key, rank in order:
            return_free_memory(n_events)
            yield build_trace(raw_trace(export, key, rank))


@contextmanager
def _put_aside(processes: Sequence[Process]) -> Iterator[None]:
    """Keep much that waits for its turn in a file, as far as there is room; memory is for the analysis of the first."""
    n_bytes = sum(process.n_bytes for process in processes)
    with ExitStack() as stack:
        if n_bytes >= ASIDE_FROM_BYTES:
            with suppress(OSError):  # no temporary folder, or a full one: they wait in memory
                folder = stack.enter_context(files.temporary_folder("nsys"))
                file = stack.enter_context((folder / "rows").open("x+b", buffering=0))
                for process in processes if n_bytes < most_spooled(folder) else ():
                    process.put_aside(file)
        yield


def _no_export(database: Database, path: Path) -> TraceFormatError:
    """The error for a database of another tool, with the tables that tell whose it is."""
    names = sorted(database.tables())
    if any("dlprof" in name.lower() for name in (path.name, *names)):
        return TraceFormatError(
            f"{database.source} is a database of DLProf, which keeps sums and no events",
            hint="dlprofviewer shows it; give the nsys_profile.sqlite or .qdrep that DLProf wrote beside it",
        )
    tables = f" (its tables: {', '.join(names[:_MOST_NAMED])})" if names else " (it has no tables)"
    return TraceFormatError(
        f"{database.source} is an SQLite database, but not an nsys export{tables}",
        hint="nsys export --type=sqlite x.nsys-rep writes one",
    )


def _read(database: Database, path: Path) -> Export:
    source = database.source
    if not any(database.has(table) for table in (*TABLES, "StringIds", "META_DATA_EXPORT", "TARGET_INFO_GPU")):
        raise _no_export(database, path)
    database.expect((*TABLES, CHAINS))
    session = read_session(database)
    rows = Rows()
    read_device_rows(database, rows)
    give_owner(database, rows)
    devices, recapture = busy_processes(rows), RECAPTURE
    if not devices:
        devices, recapture = _without_kernels(database, recapture_lost(session.product_version))
    idle = [process for key, process in rows.processes.items() if key not in devices]
    rows.keep(set(devices))
    read_host_rows(database, rows, wanted=set(devices))
    export = Export(source, path.stat().st_size, session, rows, devices, n_left_out=len(idle), recapture=recapture)
    export.samples = read_samples(database, rows, set(devices))
    export.thread_names = read_thread_names(database, rows)
    export.texts = _texts(database, _ids(export))
    export.n_unnamed = _unnamed(export)
    if export.samples is not None:
        export.sample_words = add_samples(export.samples, rows, export.texts)
        export.n_busy_beside = export.samples.n_busy_beside
        export.samples = None
    if recapture == RECAPTURE_CPU:
        _keep_training(export)
    return export


def _without_kernels(database: Database, as_lost: str) -> tuple[dict[int, int], str]:
    """The processes of an export without kernels that can be told about, and how it is better recorded.

    Those that launch kernels: what ran on the device is lost, and recorded again `as_lost`. Else those with NVTX
    ranges: a job on the CPU. Raises UnsupportedTraceError where there are neither, and where only copies are there.
    """
    if lost := launching_processes(database):
        return dict.fromkeys(lost, NO_DEVICE), as_lost
    if database.n_rows(_COPIES):
        raise _no_kernels(database, as_lost)
    if marked := marked_processes(database):
        return dict.fromkeys(marked, NO_DEVICE), RECAPTURE_CPU
    raise _no_kernels(database, as_lost)


def _keep_training(export: Export) -> None:
    """Of processes with ranges, only those with steps, if any: loader workers and launchers may mark ranges too."""
    rows = export.rows
    kinds = [label.kind for label in rows.labels.all()]
    training = {
        key
        for key, process in rows.processes.items()
        for names in process.column("ranges", "name")
        for name in np.unique(names).tolist()
        if (kinds[name] if name >= 0 else range_kind_of(export.text(-2 - name))) is SpanKind.STEP
    }
    if training:
        export.n_left_out += len(export.devices) - len(training)
        export.devices = {key: device for key, device in export.devices.items() if key in training}
        rows.keep(training)


def _no_kernels(database: Database, as_lost: str) -> UnsupportedTraceError:
    there = {table: count for table in TABLES if (count := database.n_rows(table))}
    has_cuda = any(table.startswith("CUPTI") for table in there)
    words = {_WORDS[TABLES[table]]: count for table, count in there.items() if TABLES[table] in _WORDS}
    seen = ", ".join(f"{format_count(count)} {word}" for word, count in words.items())
    if there.keys() & _MOVES:
        return UnsupportedTraceError(
            f"{database.source} holds no kernels, but {seen}: no kernel was recorded"
            " (lost, or launched by another process)",
            hint=f"start the whole job under nsys: {as_lost} -- COMMAND; processes that run already are not recorded",
        )
    return UnsupportedTraceError(
        f"{database.source} holds no kernels"
        + ("" if has_cuda else ": no CUDA activity was recorded at all")
        + f", and no NVTX ranges ({seen or 'no events of any kind'})",
        hint=_HOW_TO_RECORD if has_cuda else f"{_HOW_TO_RECORD}; for one without a GPU: {_ON_CPU}",
    )


def _ids(export: Export) -> set[int]:
    """The ids of StringIds that rows and threads refer to: a file holds many more (symbols, paths, output)."""
    ids = set(export.thread_names.values()) | (texts_of(export.samples) if export.samples is not None else set())
    for process in export.rows.processes.values():
        for table in ("kernels", "calls", "waits", "overhead", "ranges"):
            for part in process.column(table, "name"):
                names = np.unique(part)
                found = -2 - names[names < UNNAMED] if table == "ranges" else names[names >= 0]
                ids.update(found.tolist())
    return ids


def _unnamed(export: Export) -> dict[int, int]:
    """How many kernels of each process have no name; raises TraceFormatError where those are more than a few.

    A collective without its name would count as compute.
    """
    n_kernels = 0
    unnamed: dict[int, int] = {}
    for key, process in export.rows.processes.items():
        for part in process.column("kernels", "name"):
            names, counts = np.unique(part, return_counts=True)
            rows = list(zip(names.tolist(), counts.tolist(), strict=True))
            n_kernels += part.size
            unnamed[key] = unnamed.get(key, 0) + sum(n for name, n in rows if name >= 0 and name not in export.texts)
    n_unnamed = sum(unnamed.values())
    if n_unnamed > MAX_UNNAMED * n_kernels:
        raise TraceFormatError(
            f"{export.source}: {format_count(n_unnamed)} of {format_count(n_kernels)} kernels have no name in"
            " StringIds",
            hint="without names, collectives and compute look alike: export it again, whole",
        )
    return unnamed


def _texts(database: Database, ids: set[int]) -> dict[int, str]:
    texts: dict[int, str] = {}
    wanted = np.array(sorted(ids), np.int64)
    for chunk in database.chunks("StringIds", {"id": None}, ("value",)):
        for row in np.flatnonzero(np.isin(chunk["id"], wanted)):
            texts[int(chunk["id"][row])] = text_of(chunk["value"][row])
    return texts


def _ranks(export: Export) -> dict[int, int | None]:
    """The rank of each process: as MPI says, else of one as the file's name tells, of several by GPU, then pid."""
    if export.mpi_ranks:
        return dict(export.mpi_ranks)
    keys = list(export.devices)
    if len(keys) == 1:
        rank = rank_in_name(Path(export.source).name)
        return {keys[0]: rank if rank >= 0 else None}

    def place(key: int) -> tuple[int, int]:
        gpu = export.session.gpu(key, export.devices[key])
        return (gpu.id if gpu is not None else export.devices[key], pid_of(key))

    return {key: number for number, key in enumerate(sorted(keys, key=place))}
