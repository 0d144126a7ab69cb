"""Puts a trace together: the profiler's JSON, what profkit knows of the run, its own rows; gzipped, in one move.

The text is spliced, not parsed: reading and writing the JSON would send nanoseconds through float64. Runs where the
trace was made if no runner waits there: standard library only (isal where it is installed), Python 3.9 syntax.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

WORK_FOLDER: Final = ".profkit"
MANIFEST: Final = "capture.json"
_CHUNK_BYTES: Final = 4 * 2**20
_MAX_HEAD_BYTES: Final = 64 * 2**20
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_TRACE_NAME: Final = re.compile(rb'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"(\s*\}\s*)\Z')
_TAIL_BYTES: Final = 16 * 2**10
_CATEGORY: Final = "profkit"


def finish(folder: str, *, command: str = "", only_pid: int | None = None) -> list[dict[str, Any]]:
    """Write the traces whose raw export lies in the folder, and the manifest; give the facts of every process.

    `trace` in the facts is the name of the trace written. A trace that cannot be written is a reason, not an error.
    """
    work = Path(folder) / WORK_FOLDER
    facts = [_read(path) for path in sorted(work.glob("*.facts"))]
    for one in facts:
        raw = work / f"{one.get('label')}.raw"
        is_mine = only_pid is None or only_pid == one.get("pid")
        if not one.get("label") or not raw.exists() or not is_mine:
            continue
        target = Path(folder) / f"{one['label']}.pt.trace.json.gz"
        try:
            one["sha256"] = write_trace(raw, target, {**one, "command": command or one.get("command", "")})
        except (OSError, ValueError) as error:
            one["reason"], one["is_failure"] = f"the trace could not be written ({error})", True
            continue
        one["trace"] = target.name
        raw.unlink()
        (work / f"{one['pid']}.facts").write_text(json.dumps(one), encoding="utf-8")
    return facts


def write_trace(raw: Path, target: Path, facts: dict[str, Any]) -> str:
    """Write the gzipped trace beside its place, then move it there; give the sha256 of the file.

    Raises ValueError if the raw file is no trace, OSError if it cannot be written.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        with raw.open("rb") as source, _compressor().open(partial, "wb", compresslevel=1) as sink:
            for chunk in _renamed(_spliced(source, facts), target.name):
                sink.write(chunk)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    digest = hashlib.sha256()
    with target.open("rb") as written:
        for chunk in iter(lambda: written.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def finish_own(folder: str, pid: int) -> None:
    """Write the trace of one process, and the manifest of all that have come so far: where no runner waits."""
    facts = [one for one in finish(folder, only_pid=pid) if one.get("trace")]
    write_manifest(folder, manifest(facts, command=str(facts[0].get("command", "")) if facts else "", details={}))


def manifest(facts: Sequence[dict[str, Any]], *, command: str, details: dict[str, Any]) -> dict[str, Any]:
    """Give what `capture.json` holds; times in ns, keys absent where nothing is known."""
    dropped = ("fetches", "counters", "command")
    ranks = [{key: value for key, value in one.items() if key not in dropped} for one in facts]
    return {"schema": "profkit.capture/1", "command": command, **details, "ranks": ranks}


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Write `capture.json`, whole or not at all."""
    path = Path(folder) / MANIFEST
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def clean(folder: str) -> None:
    """Remove what was only needed to put the traces together, unless an export still lies there."""
    work = Path(folder) / WORK_FOLDER
    if not any(work.glob("*.raw")):
        shutil.rmtree(work, ignore_errors=True)


def _compressor() -> Any:
    """Give isal's gzip, ten times as fast, or the standard one: the traced interpreter may have nothing else."""
    for name in ("isal.igzip", "gzip"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise OSError("this Python has neither isal nor gzip")


def _read(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"reason": f"{path.name} cannot be read ({error})"}
    return facts


def _spliced(source: BinaryIO, facts: dict[str, Any]) -> Iterator[bytes]:
    head = b""
    while True:
        chunk = source.read(_CHUNK_BYTES)
        head += chunk
        found = _EVENTS.search(head)
        if found:
            break
        if not chunk or len(head) > _MAX_HEAD_BYTES:
            raise ValueError("the profiler's export holds no traceEvents")
    base = _BASE.search(head[: found.start()])
    start, rest = head[: found.end()], head[found.end() :]
    opening, _, metadata = start.partition(b"{")
    keys = {key: value for key, value in top_level(facts).items() if f'"{key}"'.encode() not in metadata}
    yield opening + b"{\n" + json.dumps(keys)[1:-1].encode() + b"," + metadata
    events = rows(facts, int(base[1])) if base else []
    if events:
        yield b"\n" + b",\n".join(json.dumps(event).encode() for event in events)
        yield b"" if rest.lstrip()[:1] == b"]" else b","
    yield rest
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def _renamed(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Give the text with its `traceName` replaced: the profiler wrote the path of a file that is gone by then."""
    held = b""
    for chunk in chunks:
        held += chunk
        yield held[:-_TAIL_BYTES]
        held = held[-_TAIL_BYTES:]
    yield _TRACE_NAME.sub(lambda found: found[1] + json.dumps(name).encode() + found[2], held)


def top_level(facts: dict[str, Any]) -> dict[str, Any]:
    """Give the keys a capture adds to its trace; times in ns, absent where not known."""
    baseline, profiled, after = (facts.get(name) or {} for name in ("baseline", "profiled", "after"))
    keys = {
        "torch_version": facts.get("torch"),
        "profkit_command": facts.get("command"),
        "profkit_command_mark": _mark(facts.get("command")),
        "profkit_unprofiled_step_mean_ns": baseline.get("mean_ns"),
        "profkit_unprofiled_step_ns": baseline.get("median_ns"),
        "profkit_unprofiled_steps": baseline.get("n"),
        "profkit_profiled_step_mean_ns": profiled.get("mean_ns"),
        "profkit_after_step_mean_ns": after.get("mean_ns"),
        "profkit_after_steps": after.get("n"),
        "profkit_first_step": facts.get("first_step"),
        "profkit_step_source": facts.get("step_source"),
        "profkit_is_cut": facts.get("is_cut"),
        "profkit_stop_ns": facts.get("stop_ns"),
        "profkit_export_ns": facts.get("export_ns"),
        "profkit_python": facts.get("python"),
        "profkit_cuda": facts.get("cuda"),
        "profkit_device": facts.get("device"),
        "profkit_memory": facts.get("memory"),
        "profkit_rank": facts.get("rank"),
        "profkit_world_size": facts.get("world_size"),
    }
    return {key: value for key, value in keys.items() if value is not None and value != ""}


def _mark(command: Any) -> str:
    """Give what tells this user's own profkit that it has recorded this command; "" where no key can be kept."""
    try:
        from profkit import signing
    except ImportError:  # the traced interpreter has no profkit
        return ""
    return str(signing.mark_of(signing.COMMAND, command.encode())) if isinstance(command, str) and command else ""


def rows(facts: dict[str, Any], base_ns: int) -> list[dict[str, Any]]:
    """Give the rows a capture adds: fetches of loader workers, each worker its own row, and counters of each step."""
    events: list[dict[str, Any]] = []
    for pid, worker in sorted({(row[0], row[1]) for row in facts.get("fetches") or []}):
        name = f"DataLoader worker {worker}"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": {"name": name}})
    for pid, worker, start_ns, end_ns, n_samples in facts.get("fetches") or []:
        event = {"ph": "X", "cat": _CATEGORY, "name": "profkit.worker_fetch", "pid": pid, "tid": pid}
        args = {"worker": worker, "samples": n_samples}
        events.append({**event, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns), "args": args})
    for unix_ns, counts in facts.get("counters") or []:
        for name, value in counts.items():
            event = {"ph": "C", "cat": _CATEGORY, "name": f"profkit.{name}", "pid": facts.get("pid", 0), "tid": 0}
            events.append({**event, "ts": _us(unix_ns - base_ns), "args": {name: value}})
    return events


def _us(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)
