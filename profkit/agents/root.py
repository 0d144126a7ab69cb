"""Which paths may be asked about: those below one folder, links followed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Final

import msgspec

from profkit.compare.tables.result_tables import is_result_table
from profkit.errors import TraceNotFoundError, UnsupportedTraceError, UsageError
from profkit.files import is_below, is_plain_file, kind_of, read_head, size_of
from profkit.ingest.bytes.foreign import SQLITE_MAGIC
from profkit.ingest.discover import find_sources, is_trace_name
from profkit.ingest.kind import Part
from profkit.ingest.kineto.source import KINETO
from profkit.ingest.read import second_beside
from profkit.ingest.sources import source_of
from profkit.shell import clean

LONGEST_PATH: Final = 1_024
"""Characters of a path (chosen: systems have 255 a name)."""
MOST_SOURCES: Final = 1_024
"""Files that one call reads (chosen)."""
MOST_BYTES: Final = 4 * 2**30
"""Of the files that one call reads, as they lie on the disk. Chosen: what a minute is enough for."""
_MOST_LOOKED_AT: Final = 20_000
"""Names in folders that a list looks at (chosen: a second)."""
_LISTED: Final = "captures lists what is there"


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A trace below the root, or a folder with several."""

    path: str
    n_bytes: int
    names: tuple[str, ...] = ()
    """Of a folder, its traces."""


class Root(msgspec.Struct, frozen=True):
    """The folder below which everything lies that may be read; paths are told relative to it, as is the process."""

    folder: str

    def inside(self, path: str) -> str:
        """The path relative to the working folder, links resolved; raises UsageError, TraceNotFoundError.

        Whether something outside exists is not told.
        """
        shown = clean(path[:200])
        if not path.strip():
            raise UsageError("the path is empty", hint=_LISTED)
        if len(path) > LONGEST_PATH:
            raise UsageError(f"the path has {len(path):,} characters; {LONGEST_PATH:,} are allowed", hint=_LISTED)
        if "\0" in path:
            raise UsageError("the path has a NUL character in it", hint=_LISTED)
        if "://" in path:
            raise UsageError(f"{shown} is a URL, and nothing is fetched from the network", hint=_LISTED)
        whole = os.path.join(self.folder, path)  # noqa: PTH118 - an absolute path stays as it is
        if not is_below(whole, self.folder):
            raise UsageError(f"{shown} lies outside the folder that may be read", hint=_LISTED)
        if not os.path.exists(whole):  # noqa: PTH110 - pathlib raises for what is longer than a name may be
            raise TraceNotFoundError(f"there is no {shown} in the folder that may be read", hint=_LISTED)
        found = os.path.relpath(os.path.realpath(whole))
        return f"./{found}" if found.startswith("-") else found

    def sources(self, paths: Sequence[str]) -> list[str]:
        """The trace files behind paths, each below the root; raises UsageError, TraceError."""
        sources = find_sources([self.inside(path) for path in paths])
        if len(sources) > MOST_SOURCES:
            raise UsageError(f"{len(sources):,} files; one call reads {MOST_SOURCES:,}", hint="name some of them")
        for source in sources:
            self._refuse_others(source)
        n_bytes = sum(Path(source).stat().st_size for source in sources)
        if n_bytes > MOST_BYTES:
            said = f"{size_of(n_bytes)} in {len(sources):,} files; one call reads {size_of(MOST_BYTES)}"
            raise UsageError(said, hint="name fewer; profkit triage on the command line reads any size")
        return sources

    def runs(self, path: str) -> list[str]:
        """The files of one run: a table of results, or traces as `sources` gives them."""
        inside = self.inside(path)
        return [inside] if is_result_table(Path(inside)) else self.sources([path])

    def _refuse_others(self, source: str) -> None:
        """Raise for a link out of the folder, and for a file whose reader writes files or starts a program."""
        for path in (source, second_beside(source)):
            if path is not None and not is_below(path, self.folder):
                raise UsageError(f"{clean(str(path))} is a link out of the folder that may be read", hint=_LISTED)
        what = kind_of(Path(source).stat().st_mode)
        if what:
            raise UsageError(f"{clean(source)} is {what}", hint=_LISTED)  # a pipe would be waited for
        kind = source_of(Path(source), source)
        if kind is KINETO or read_head(source, len(SQLITE_MAGIC)) == SQLITE_MAGIC:
            return
        if kind.part is Part.KERNELS:
            raise UnsupportedTraceError(f"{clean(source)} is of {kind.tool}, not a trace", hint="profkit kernels FILE")
        how = "unpack it, or export it with nsys export --type sqlite"
        raise UnsupportedTraceError(f"{clean(source)} must be unpacked by another program first", hint=how)

    def captures(self, below: str = "") -> Iterator[Capture]:
        """The files and folders with traces, the nearest first; links are not followed, hidden folders left out."""
        top = Path(self.inside(below)) if below else Path(os.path.relpath(self.folder))
        if is_plain_file(top):
            yield Capture(path=str(top), n_bytes=top.stat().st_size)
            return
        n_left = _MOST_LOOKED_AT
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            n_left -= len(folders) + len(names)
            found = [Path(folder) / name for name in sorted(names)]
            traces = [one for one in found if is_trace_name(str(one)) and not one.is_symlink() and is_plain_file(one)]
            sizes = [file.stat().st_size for file in traces]
            if len(traces) > 1:
                told = tuple(file.name for file in traces)
                yield Capture(path=str(PurePath(folder)), n_bytes=sum(sizes), names=told)
            elif traces:
                yield Capture(path=str(traces[0]), n_bytes=sizes[0])
            if n_left < 0:
                return
