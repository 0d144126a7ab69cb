"""What `profkit info` says of a folder: what lies in it, and the command that reads each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from profkit.cli.shared.columns import hanging, side_by_side, width_of
from profkit.errors import ProfkitError, TraceNotFoundError
from profkit.shell import clean, line_of, path_word
from profkit.units import format_bytes, format_numbers

_HEAD_BYTES: Final = 2**16
"""Bytes of a JSON file in which a trace names its events. Chosen: real ones do so within 10 KB."""
_WORDS: Final = {"kineto": "torch.profiler trace", "nsys": "nsys export", "ncu": "kernel profile"}
_SIDES: Final = 2
_NO_TRACE: Final = "JSON file that does not begin as a trace"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one kind in one folder."""

    path: str
    """The file, or the folder of several."""
    what: str
    format: str
    """As the report's JSON calls it; "" for what is no trace."""
    n_files: int
    n_bytes: int
    ranks: tuple[int, ...]
    """As the names of files tell, or the capture's manifest."""
    n_steps: int | None
    """Recorded, as the capture's manifest has it."""
    is_job: bool
    """Whether several are known to be the ranks of one job."""
    run: str
    """The command that reads it; "" for none."""


def contents(folder: Path) -> tuple[Entry, ...]:
    """What lies in a folder and below; raises TraceNotFoundError where nothing does that profkit reads."""
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in _files(folder):
        groups.setdefault((path.parent, _format(path)), []).append(path)
    if not groups:
        raise TraceNotFoundError(
            f"{folder} holds no traces, exports or kernel profiles", hint="profkit run -- python train.py records one"
        )
    rooms = Counter(place for place, _ in groups)
    entries: list[Entry] = []
    for (place, kind), found in sorted(groups.items()):
        is_shared = rooms[place] > 1 or any(other != place and place in other.parents for other in rooms)
        entries.append(_entry(place, kind, found, is_shared=is_shared))
    return tuple(entries)


def _files(folder: Path) -> Iterable[Path]:
    """The files that profkit may read: named as traces are, or pages that ncu printed."""
    from profkit.files import is_plain_file
    from profkit.ingest.discover import find_sources
    from profkit.ingest.kind import Part
    from profkit.ingest.sources import source_of

    found: list[str] = []
    with suppress(TraceNotFoundError):  # kernel profiles may lie alone
        found = find_sources([str(folder)])
    yield from map(Path, found)
    for path in sorted(folder.rglob("*")):
        is_profile = path.suffix in {".ncu-rep", ".ncu-repz", ".csv", ".txt"} and is_plain_file(path)
        if is_profile and source_of(path, str(path)).part is Part.KERNELS:
            yield path


def _format(path: Path) -> str:
    from profkit.ingest.bytes.bytesource import read_chunks
    from profkit.ingest.kineto.source import KINETO
    from profkit.ingest.sources import source_of

    kind = source_of(path, str(path))
    if kind.name != KINETO.name:
        return kind.name
    try:
        head = next(iter(read_chunks(path, source=str(path), chunk_bytes=_HEAD_BYTES, lenient=True)), b"")
    except ProfkitError:  # damaged, which triage says better
        return kind.name
    return kind.name if b'"traceEvents"' in head or head.lstrip().startswith(b"[") else ""


def _entry(place: Path, kind: str, found: list[Path], *, is_shared: bool) -> Entry:
    from profkit.capture.inside.export import read_manifest
    from profkit.ingest.numbers import rank_in_name

    recorded = [one for one in read_manifest(place).get("ranks", ()) if one.get("trace")] if kind == "kineto" else []
    n_steps = max((one["n_steps"] for one in recorded if isinstance(one.get("n_steps"), int)), default=None)
    ranks = tuple(sorted({rank for path in found if (rank := rank_in_name(path.name)) >= 0}))
    is_job = bool(recorded) or len(found) in {1, len(ranks)}
    target = str(found[0] if len(found) == 1 or not is_job else place / _pattern(found) if is_shared else place)
    verb = {"": "", "ncu": "kernels"}.get(kind, "triage")
    return Entry(
        path=str(place if len(found) > 1 or recorded else found[0]),
        what="capture" if recorded else f"{len(found)} {_plural(kind, many=len(found) > 1)}",
        format=kind,
        n_files=len(found),
        n_bytes=sum(path.stat().st_size for path in found),
        ranks=ranks,
        n_steps=n_steps,
        is_job=is_job,
        run=line_of(f"profkit {verb}", path_word(target)).text if verb else "",
    )


def _pattern(found: list[Path]) -> str:
    """A pattern of these files of one folder, by the end that their names share."""
    from profkit.ingest.sources import SUFFIXES

    ends = [suffix for suffix in SUFFIXES if all(path.name.endswith(suffix) for path in found)]
    return f"*{max(ends, key=len)}" if ends else "*"


def _plural(kind: str, *, many: bool) -> str:
    words = _WORDS.get(kind, kind) if kind else _NO_TRACE
    head, space, tail = words.partition(" that ")
    return f"{head}{'s' * many}{space}{tail}" if space else f"{words}{'s' * many}"


def lines(folder: Path, entries: tuple[Entry, ...]) -> list[str]:
    """A line for each entry, its command first, then what several of them can be used for together."""
    rows = [(clean(one.run or one.path), clean(_said(one))) for one in entries]
    together = [(clean(command), clean(said)) for command, said in _together(entries)]
    shown = [hanging(clean(f"{folder}: {_summary(entries)}"), width_of()), [""], side_by_side(rows, width_of(), "  ")]
    shown += [[""], side_by_side(together, width_of(), "  ")] if together else []
    return [line for part in shown for line in part]


def _summary(entries: tuple[Entry, ...]) -> str:
    counts = Counter[str]()
    for one in entries:
        counts["capture" if one.what == "capture" else one.format] += 1 if one.what == "capture" else one.n_files
    said = [
        f"{n:,} {'capture' + 's' * (n > 1) if kind == 'capture' else _plural(kind, many=n > 1)}"
        for kind, n in counts.items()
    ]
    return ", ".join(said)


def _said(entry: Entry) -> str:
    ranks = f"rank{'s' * (len(entry.ranks) > 1)} {format_numbers(entry.ranks)}" if entry.ranks else ""
    steps = "" if entry.n_steps is None else f"{entry.n_steps} step{'s' * (entry.n_steps != 1)}"
    alone = "" if entry.is_job or not entry.run else "not known to be the ranks of one job: one at a time"
    return ", ".join(filter(None, (entry.what, ranks, steps, format_bytes(entry.n_bytes), alone)))


def _folder(words: str) -> str:
    return words.strip("'").rpartition("/")[0]  # a pattern is quoted


def _together(entries: tuple[Entry, ...]) -> list[tuple[str, str]]:
    """Commands that take two of the entries, each with what it tells."""
    targets = {
        kind: [one.run.removeprefix("profkit triage ") for one in entries if one.format == kind and one.run]
        for kind in ("kineto", "nsys")
    }
    sides = targets["kineto"]
    out: list[tuple[str, str]] = []
    if len(sides) > 1:
        two = f"{sides[0]} {sides[1]}" if len(sides) == _SIDES else "BEFORE AFTER"
        out.append((f"profkit compare {two}", "two of them as the sides of a change"))
    both = [(side, other) for other in targets["nsys"] for side in sides if _folder(side) == _folder(other)]
    if both:  # what lies apart need not be of one job
        out.append((f"profkit triage {' '.join(both[0])}", "does nsys confirm torch.profiler?"))
    return out
