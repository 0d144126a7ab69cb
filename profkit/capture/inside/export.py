"""Puts a trace together: the profiler's JSON, what profkit knows of the run, its own rows; gzipped, in one move.

The text is spliced, not parsed: reading and writing the JSON would send nanoseconds through float64. Runs where the
trace was made if no runner waits there (`finish_own`): standard library only (isal where it is installed), Python 3.9
syntax.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..beside import files, quoted, redact
from ..command import tell
from ..lines import told
from ..place import PLACES, RAW, Identity, alone, is_foreign_link, part_in, pinned, process_name
from .added import places_level, rows, top_level, without_secrets
from .facts import wrong_in
from .places.fold import Fold

SCHEMA: Final = "profkit.capture/1"
TRACE_SUFFIX: Final = ".pt.trace.json.gz"
PLACES_SUFFIX: Final = f"{PLACES}.json.gz"
MANIFEST: Final = "capture.json"
_CHUNK_BYTES: Final = 4 * 2**20
_MAX_HEAD_BYTES: Final = 64 * 2**20
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_TRACE_NAME: Final = re.compile(rb'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"(\s*\}\s*)\Z')
_TAIL_BYTES: Final = 16 * 2**10
_ANNOTATION: Final = re.compile(
    rb'("cat":\s*"(?:gpu_)?user_annotation",\s*"name":\s*)(".{0,65536}?")(?=\s*,\s*"(?:pid|tid|ts|dur|args|ph)"\s*:)',
    re.DOTALL,
)
"""A name that the script gave to a range, as the profiler writes it: quotes in it are escaped only by newer ones.

Other names are of operators and kernels.
"""
_EVENT: Final = b'"ph":'  # how each begins; in a name its quotes are escaped
_MAX_FACTS_BYTES: Final = 512 * 2**20  # with the fetches of a thousand workers
_MAX_MANIFEST_BYTES: Final = 64 * 2**20
_WHO: Final = ("pid", "process", "rank", "n_seen")
_TOLD: Final[set[str]] = set()
"""The captures whose end this process has told."""
_LABEL: Final = re.compile(r"rank\d+(_pid\d+)?")
_TRACE_FILE: Final = re.compile(rf"rank\d+(_\w+)?({re.escape(TRACE_SUFFIX)}|{re.escape(PLACES_SUFFIX)})")


def finish(  # noqa: PLR0913 - by name
    work: Path,
    folder: Path,
    *,
    capture_id: str = "",
    command: str = "",
    only: str | None = None,
    overwrites: bool = False,
    beside: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {},
) -> list[dict[str, Any]]:
    """Write into `folder` the traces whose raw export lies in a capture's work folder; give the facts of its processes.

    `trace` in the facts is the name of the trace written, `trace` in their `places` that of the second window's, which
    comes after the timed traces of all processes. `beside` adds to the facts of a process
    what others saw of it. A trace that cannot be written is a reason, not an error, and its export stays. A file that
    lies in the folder is not replaced, unless `overwrites`: the trace has another name. `only` is the name of the one
    process whose traces are to be written (`place.process_name`).
    """
    facts = {path: _read(path) for path in sorted(work.glob("*.facts"))}
    capture_id = capture_id or work.name
    mine = {
        path: one
        for path, one in facts.items()
        if only in (None, path.stem) and _LABEL.fullmatch(str(one.get("label", "")))
    }
    for path, one in mine.items():
        raw = work / f"{one['label']}{RAW}"
        if not raw.exists():
            continue
        one["capture_id"], one["command"] = capture_id, command or one.get("command", "")
        one.update(beside(one))
        name = _free_name(folder, one["label"], capture_id, overwrites=overwrites)
        made = work / name
        try:
            one["sha256"] = write_trace(raw, made, one)
            _publish(made, folder / name, overwrites=overwrites)
        except (OSError, ValueError) as error:
            one["reason"], one["is_failure"] = f"the trace could not be written ({_why(error)})", True
            continue
        one["trace"] = name
        _written(raw, path, one)
    for path, one in mine.items():
        _finish_second(path, folder, one, overwrites=overwrites)
    return list(facts.values())


def _finish_second(own: Path, folder: Path, facts: dict[str, Any], *, overwrites: bool) -> None:
    """Write the trace of a second window beside the timed one, if there is one; without that it belongs to nothing.

    `own` is the file of the facts.
    """
    work = own.parent
    raw, trace, places = work / f"{facts['label']}{PLACES}{RAW}", str(facts.get("trace", "")), facts.get("places")
    if not raw.exists() or not trace or not isinstance(places, dict) or not (folder / trace).exists():
        return
    name = trace[: -len(TRACE_SUFFIX)] + PLACES_SUFFIX
    try:
        found = facts.get("places_found") or {}
        fold = Fold(found.get("user_files") or (), found.get("package_files") or ())
        with files().open_file(raw, follow=False) as source:
            fold.note(iter(lambda: source.read(_CHUNK_BYTES), b""))
        sampled = {"sampled": found.get("sampled"), "pid": facts.get("pid")}
        write_trace(raw, work / name, sampled, keys=places_level(facts), change=fold.folded)
        _publish(work / name, folder / name, overwrites=overwrites)
    except (OSError, ValueError) as error:
        places["reason"] = f"it could not be written ({_why(error)})"
        return
    places["trace"] = name
    _written(raw, own, facts)


def _written(raw: Path, own: Path, facts: dict[str, Any]) -> None:
    """Let go of an export whose trace is written, and keep that it is."""
    with suppress(OSError):  # on a full disk, say: the trace is there, and those of the other ranks come next
        raw.unlink()
        files().write_whole(own, json.dumps(facts).encode())


def _free_name(folder: Path, label: str, capture_id: str, *, overwrites: bool) -> str:
    """The name of a trace: by its rank, and by its capture as well where a file of that name lies there."""
    name = f"{label}{TRACE_SUFFIX}"
    return name if overwrites or not os.path.lexists(folder / name) else f"{label}_{capture_id[:8]}{TRACE_SUFFIX}"


def _publish(made: Path, target: Path, *, overwrites: bool) -> None:
    """Move a trace to its place; raises FileExistsError where something lies there by now."""
    if made == target:
        return
    if not overwrites:
        try:
            os.link(made, target)  # fails if something is there, in one act
        except FileExistsError:
            raise
        except OSError:  # a file system without such links
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "another file is in its place", str(target)) from None
        else:
            made.unlink()
            return
    made.replace(target)


def write_trace(
    raw: Path,
    target: Path,
    facts: dict[str, Any],
    *,
    keys: dict[str, Any] | None = None,
    change: Callable[[Iterator[bytes]], Iterator[bytes]] = iter,
) -> str:
    """Write the gzipped trace, whole or not at all; give the sha256 of the file.

    It is the export with what the facts say in its keys and rows, or with other `keys`, its text changed by `change`.
    Raises ValueError if the raw file is no trace, OSError if it cannot be written.
    """
    opened, replacing = files().open_file(raw, follow=False), files().replacing(target)
    with opened as source, replacing as file, _compressor().open(file, "wb", compresslevel=1) as sink:
        for chunk in _renamed(
            _without_secrets(change(_spliced(source, top_level(facts) if keys is None else keys, facts))), target.name
        ):
            sink.write(chunk)
    digest = hashlib.sha256()
    with files().open_file(target, follow=False) as written:
        for chunk in iter(lambda: written.read(_CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def finish_own(options: Any, pid: int) -> None:
    """Write the trace of one process, and the manifest of all that have come so far; say so where that is asked for.

    Where another capture has written its traces into the folder meanwhile, this one's recording stays where it is.
    """
    name, part = process_name(pid), part_in(options.folder, options.capture_id)
    with part.pinned_work() as work, part.pinned_folder() as folder:
        if is_taken(options, folder):
            return
        finished = finish(work, folder, capture_id=options.capture_id, only=name, overwrites=options.overwrite)
        with alone(folder):
            facts = [one for one in finished if one.get("trace")]
            command = str(facts[0].get("command", "")) if facts else ""
            if facts:
                mine = manifest(facts, capture_id=options.capture_id, command=command, details={})
                write_manifest(str(folder), mine)
    if options.tells and options.capture_id not in _TOLD:
        _TOLD.add(options.capture_id)
        _tell([one for one in finished if one.get("process") == name], Path(options.folder))


def _tell(facts: list[dict[str, Any]], folder: Path) -> None:
    """Say what a process came to; one that saw no step of a training is a launcher or a helper, and says nothing."""
    seen = [one for one in facts if one.get("trace") or one.get("n_seen") or one.get("is_failure")]
    for line in told(seen, folder) if seen else []:
        head, _, trace = line.partition("\n")
        tell(head, below=trace.strip())
    if any(one.get("trace") for one in seen):
        tell(f"next: profkit triage {quoted(folder)}")


def finish_left(left: Path, identity: Identity) -> list[dict[str, Any]]:
    """Make traces of what a killed capture recorded, in the folder it has been moved to, and their manifest."""
    with pinned(left, identity) as work:
        facts = finish(work, work, capture_id=left.name)
        facts = [one for one in facts if one.get("trace") and (work / one["trace"]).exists()]
        if facts:
            command = str(facts[0].get("command", ""))
            write_manifest(str(work), manifest(facts, capture_id=left.name, command=command, details={}))
        for path in (path for pattern in ("*.facts", "*.claim", "lock") for path in work.glob(pattern)):
            path.unlink()
        for path in work.iterdir():
            if path.is_dir() and not path.is_symlink():  # an export that was never whole
                shutil.rmtree(path, ignore_errors=True)
    return facts


def manifest(
    facts: Sequence[dict[str, Any]], *, capture_id: str, command: str, details: dict[str, Any]
) -> dict[str, Any]:
    """What `capture.json` holds; times in ns, keys absent where nothing is known."""
    dropped = ("fetches", "counters", "command", "pauses", "capture_id", "found", "places_found", "worker_lines")
    of_threads = ("thread_lines", "threads", "handed", "starts")
    own = ("recorded_unix_ns", "machine", "gpu_uuid", "connections")  # of use while the capture is put together
    kept = [{key: value for key, value in one.items() if key not in (*dropped, *of_threads, *own)} for one in facts]
    ranks = without_secrets(kept)
    return {"schema": SCHEMA, "capture_id": capture_id, "command": command, **details, "ranks": ranks}


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Write `capture.json`, whole or not at all; ranks of the same capture that it holds already stay in it."""
    before = read_manifest(Path(folder))
    if before.get("capture_id") == manifest["capture_id"]:
        known = {_process_of(one) for one in manifest["ranks"]}
        kept = [one for one in before["ranks"] if one.get("trace") and _process_of(one) not in known]
        manifest = {**manifest, "ranks": [*kept, *manifest["ranks"]]}
    files().write_whole(Path(folder) / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")


def _process_of(facts: dict[str, Any]) -> tuple[Any, Any]:
    return facts.get("pid"), facts.get("process")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `capture.json` holds; empty where there is none, or one that profkit did not write."""
    try:
        found: Any = json.loads(files().read_small(folder / MANIFEST, _MAX_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(found, dict) and str(found.get("schema", "")).startswith(SCHEMA.partition("/")[0] + "/")
    ranks = found.get("ranks") if is_ours else None
    if not isinstance(ranks, list) or not all(
        isinstance(one, dict) and isinstance(one.get("places") or {}, dict) for one in ranks
    ):
        return {}
    return {"capture_id": "", **found}


def is_taken(options: Any, folder: Path) -> bool:
    """Whether another capture's manifest lies in the folder, or something else of its name."""
    is_there = os.path.lexists(folder / MANIFEST)
    return is_there and read_manifest(folder).get("capture_id") != options.capture_id


def remove_published(folder: Path, *, capture_id: str = "", rank: int = -1) -> None:
    """Remove the capture that lies in the folder: its manifest and the traces that this names, nothing else.

    Of the capture of this id only what this rank recorded: the others have begun anew as well.
    """
    if not read_manifest(folder) or is_foreign_link(folder):
        return
    with alone(folder), pinned(folder, follow=True) as at:
        found = read_manifest(at)
        if not found:
            return
        is_same = found["capture_id"] == capture_id != ""
        old = [one for one in found["ranks"] if not is_same or one.get("rank") == rank]
        named = [one.get("trace") for one in old] + [(one.get("places") or {}).get("trace") for one in old]
        for name in map(str, named):
            if _TRACE_FILE.fullmatch(name):
                (at / name).unlink(missing_ok=True)
        (at / MANIFEST).unlink()
        if is_same:
            write_manifest(str(at), {**found, "ranks": [one for one in found["ranks"] if one not in old]})


def _compressor() -> Any:
    """The gzip of isal, ten times as fast, or the standard one: the traced interpreter may have nothing else."""
    for name in ("isal.igzip", "gzip"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise OSError("this Python has neither isal nor gzip")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = files().read_small(path, _MAX_FACTS_BYTES, follow=False)
        facts: Any = json.loads(text, parse_constant=lambda _: None)  # a NaN would make the trace no JSON
    except (OSError, ValueError, RecursionError) as error:
        return {"reason": f"{path.name} cannot be read ({_why(error)})"}
    if not isinstance(facts, dict):
        return {"reason": f"{path.name} holds no facts"}
    wrong = wrong_in(facts)
    if not wrong:
        return facts
    known = {key: facts[key] for key in _WHO if key in facts and key not in wrong}
    return {**known, "reason": f"{path.name} holds what no capture writes ({', '.join(wrong)})", "is_failure": True}


def _why(error: Exception) -> str:
    """What went wrong; the file was reached by a name that means nothing to others."""
    return getattr(error, "strerror", None) or str(error)


def _spliced(source: BinaryIO, added: dict[str, Any], facts: dict[str, Any]) -> Iterator[bytes]:
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
    keys = {key: value for key, value in added.items() if f'"{key}"'.encode() not in metadata}
    yield opening + b"{\n" + json.dumps(keys)[1:-1].encode() + b"," + _clean_metadata(metadata)
    events = rows(facts, int(base[1])) if base else []
    if events:
        yield b"\n" + b",\n".join(json.dumps(event).encode() for event in events)
        yield b"" if rest.lstrip()[:1] == b"]" else b","
    yield rest
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def _clean_metadata(text: bytes) -> bytes:
    """The keys before the events without secrets: a script may add its own. As it was where there are none."""
    closing = b"null}"
    head, _, events = text.rpartition(b'"traceEvents"')
    try:
        clean, n_taken = redact().redacted(json.loads(b"{" + head + b'"traceEvents": ' + closing))
    except (ValueError, RecursionError):
        return b"".join(map(_clean_line, head.splitlines(keepends=True))) + b'"traceEvents"' + events
    if not n_taken:
        return text
    del clean["traceEvents"]
    return _entries(clean) + b'"traceEvents"' + events


def _entries(values: dict[str, Any]) -> bytes:
    return b"".join(f"{json.dumps(key)}: {json.dumps(value)},\n".encode() for key, value in values.items())


def _clean_line(line: bytes) -> bytes:
    """A line of keys that together are no JSON: of a backslash in what a script adds torch makes a slash."""
    for entry in (line, line.replace(b'/"', b'\\"')):
        try:
            clean, n_taken = redact().redacted(json.loads(b"{" + entry.strip().rstrip(b",") + b"}"))
        except (ValueError, RecursionError):
            continue
        return _entries(clean) if n_taken else line
    text = line.replace(b'/"', b'"').replace(b'\\"', b'"').decode(errors="replace")
    if redact().redacted_text(text) == text:
        return line
    key, colon, _ = text.strip().partition('":')
    return _entries({redact().redacted_text(key.strip('"')): redact().REDACTED}) if colon else b""


def _without_secrets(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The text with secrets taken out of the names that the script gave to its ranges."""
    clean: dict[bytes, bytes] = {}

    def cleaned(found: re.Match[bytes]) -> bytes:
        name = found[2]
        if name not in clean:
            clean[name] = _clean_name(name)
        return found[1] + clean[name]

    held = b""
    for chunk in chunks:
        held += chunk
        end = held.rfind(_EVENT)
        if end > 0:
            yield _ANNOTATION.sub(cleaned, held[:end])
            held = held[end:]
    yield _ANNOTATION.sub(cleaned, held)


def _clean_name(quoted: bytes) -> bytes:
    try:
        names = [json.loads(quoted)]
    except ValueError:  # it holds quotes as they are, those after a backslash after a slash
        plain = quoted[1:-1].decode(errors="replace")
        names = [plain, plain.replace('/"', '"')]
    for name in names:
        shown = redact().redacted_text(name)
        if shown != name:
            return json.dumps(shown).encode()
    return quoted


def _renamed(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The text with its `traceName` replaced: the profiler wrote the path of a file that is gone by then."""
    held = b""
    for chunk in chunks:
        held += chunk
        yield held[:-_TAIL_BYTES]
        held = held[-_TAIL_BYTES:]
    yield _TRACE_NAME.sub(lambda found: found[1] + json.dumps(name).encode() + found[2], held)
