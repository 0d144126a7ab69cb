"""Paths, folders, patterns and URLs to trace files, in the order of their ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Final

from profkit.errors import TraceNotFoundError, UsageError
from profkit.files import is_plain_file
from profkit.ingest.numbers import rank_in_name
from profkit.ingest.sources import SUFFIXES, TRACE_SUFFIXES
from profkit.redact import shown_url

# Files that profilers and profkit itself put beside traces and that are no traces.
_NOT_TRACES: Final = re.compile(
    r"(?:^|/)(?:capture\.json|[^/]*\.et\.json(?:\.gz)?|report\.json|[^/]*_et\.json(?:\.gz)?"
    r"|[^/]*\.places\.json(?:\.gz)?)$"
)
_LEFT: Final = ".profkit-left"  # recordings of killed captures, which are read if they are named


def find_sources(paths: Iterable[str]) -> list[str]:
    """The trace files behind paths: files as they are ("-" is standard input), folders searched to any depth.

    Patterns (`run*/rank?.json.gz`, `**` for any depth) and URLs, of files, folders or patterns, are taken as well.
    Files of one folder are ordered by the rank in their name, then by name. Raises TraceNotFoundError.
    """
    sources: list[str] = []
    for text in paths:
        path = Path(text)
        if is_url(text):
            from profkit.ingest.bytes.remote import listed

            found = listed(text, SUFFIXES)
            sources += found if found == [text] else _ordered(found, text)
        elif text != "-" and _answered(path.is_dir):
            sources += _in_folder(path)
        elif _is_pattern(text, path):
            sources += _matching(text)
        else:
            sources.append(text)
    return list(dict.fromkeys(sources))


def is_trace_name(path: str) -> bool:
    """Whether a file in a folder is taken for a trace, by its name alone."""
    return path.endswith(TRACE_SUFFIXES) and not _NOT_TRACES.search(path)


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than a path."""
    return "://" in text


def is_stream(text: str) -> bool:
    """Whether a name is standard input or a pipe, which can be read only once and by this process alone."""
    return text == "-" or _answered(Path(text).is_fifo)


def _answered(ask: Callable[[], bool]) -> bool:
    """What the system says of a path; no, of a name too long for it: the reader says so."""
    try:
        return ask()
    except OSError:
        return False


def _is_pattern(text: str, path: Path) -> bool:
    return any(char in text for char in "*?[") and _answered(lambda: not path.exists())


def _matching(pattern: str) -> list[str]:
    """The traces that a pattern names: files that match, and those in folders that do."""
    from glob import glob

    found: list[str] = []
    for name in glob(pattern, recursive=True):  # noqa: PTH207 - the pattern may be absolute
        path = Path(name)
        inside = path.rglob("*") if path.is_dir() else [path]
        found += [str(file) for file in inside if is_plain_file(file)]  # a pipe or a device is for who names it
    return _ordered(found, pattern)


def _ordered(names: Iterable[str], where: str) -> list[str]:
    """The traces among files, in the order of their ranks; raises TraceNotFoundError if there are none."""
    found = [name for name in dict.fromkeys(names) if is_trace_name(name)]
    found = [name for name in found if is_url(name) or not _is_exported(Path(name))]
    if not found:
        raise TraceNotFoundError(
            f"{shown_url(where)} holds no traces ({', '.join(TRACE_SUFFIXES)})",
            hint="give the folder that export_chrome_trace or tensorboard_trace_handler wrote to",
        )
    return sorted(found, key=lambda name: (rank_in_name(PurePath(name).name), name))


def _in_folder(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if is_plain_file(path) and _LEFT not in path.relative_to(folder).parts)
    return _ordered((path.as_posix() for path in found), str(folder))


def _is_exported(path: Path) -> bool:
    """Whether a path is an nsys report whose export lies beside it, as `nsys profile --export=sqlite` leaves them."""
    return path.suffix == ".nsys-rep" and path.with_suffix(".sqlite").is_file()


def path_texts(paths: object, call: str) -> list[str]:
    """The paths as texts, of one or of several; raises UsageError for what names no file. `call`: who asks."""
    several = [paths] if isinstance(paths, (str, PathLike)) else paths
    if isinstance(several, (bytes, bytearray)) or not isinstance(several, Iterable):
        hint = f'{call}("trace.json.gz")'
        raise UsageError(f"{call} takes a path or several, not {type(paths).__name__}", hint=hint)
    named = [fspath(one) if isinstance(one, (str, PathLike)) else one for one in several]
    texts = [one for one in named if isinstance(one, str)]
    other = next((one for one in named if not isinstance(one, str)), None)
    if other is not None:
        hint = f'{call}(["rank0.json", "rank1.json"])'
        raise UsageError(f"{call} takes paths, not {type(other).__name__}", hint=hint)
    if not texts:
        raise UsageError(f"{call} was given no path", hint=f'{call}("trace.json.gz")')
    return texts
