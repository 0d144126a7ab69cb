"""Paths and folders to trace files, in the order of their ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from profkit.errors import TraceNotFoundError

TRACE_SUFFIXES: Final = (".json", ".json.gz", ".json.zst", ".pt.trace", ".sqlite", ".sqlite.gz", ".nsys-rep")
# Files that profilers and profkit itself put beside traces and that are no traces.
_NOT_TRACES: Final = re.compile(
    r"(?:^|/)(?:capture\.json|[^/]*\.et\.json(?:\.gz)?|report\.json|[^/]*_et\.json(?:\.gz)?)$"
)
_RANK: Final = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)


def find_sources(paths: Iterable[str]) -> list[str]:
    """Give the trace files behind paths: files as they are ("-" is standard input), folders searched to any depth.

    Files of one folder are ordered by the rank in their name, then by name. Raises TraceNotFoundError.
    """
    sources: list[str] = []
    for text in paths:
        path = Path(text)
        if text != "-" and _is_folder(path):
            sources += _in_folder(path)
        else:
            sources.append(text)
    return list(dict.fromkeys(sources))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for the system: the reader says so
        return False


def _in_folder(folder: Path) -> list[str]:
    found = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name.endswith(TRACE_SUFFIXES) and not _NOT_TRACES.search(path.as_posix())
    ]
    found = [path for path in found if not _is_exported(path)]
    if not found:
        raise TraceNotFoundError(
            f"{folder} holds no traces ({', '.join(TRACE_SUFFIXES)})",
            hint="name the folder that export_chrome_trace or tensorboard_trace_handler wrote into",
        )
    return [str(path) for path in sorted(found, key=lambda path: (rank_in_name(path.name), path.as_posix()))]


def _is_exported(path: Path) -> bool:
    """Tell an nsys report whose export lies beside it, as `nsys profile --export=sqlite` leaves them."""
    return path.suffix == ".nsys-rep" and path.with_suffix(".sqlite").is_file()


def rank_in_name(name: str) -> int:
    """Give the rank that a file name tells (`rank3_trace.json`, `x.rank-3.json`), -1 if none."""
    match = _RANK.search(name)
    return int(match[1]) if match else -1
