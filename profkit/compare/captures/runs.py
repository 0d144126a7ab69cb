"""Which traces are one run: ranks of one recording are, and windows of one process; two recordings are two.

Every path named by the caller is a run of its own, but for files that are ranks of one recording. Steps, windows and
ranks never count as runs: statistics are over recordings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from profkit.compare.captures.measured import Measured
from profkit.model.grouped import grouped

_RANK: Final = re.compile(r"rank[-_]?\d+", re.IGNORECASE)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A trace with where it was found: `path` as the caller named it, `source` the file, for which `path` may stand."""

    path: str
    source: str
    trace: Measured

    @property
    def is_named(self) -> bool:
        """Whether the caller named the file itself, not a folder."""
        return self.path == self.source

    @property
    def folder(self) -> str:
        """The folder of the file."""
        return str(Path(self.source).parent)

    @property
    def process(self) -> tuple[int | None, str]:
        """The rank and the process id, which tell a process where process ids differ between ranks."""
        return self.trace.rank, self.trace.pid


Group = list[Read]


def runs_of(read: Sequence[Read]) -> list[tuple[str, Group]]:
    """The runs among the traces of a side, each with its name, in the order in which they were named."""
    is_one_job = _n_ranks(item for item in read if item.is_named) > 1
    out: list[tuple[str, Group]] = []
    for group in _by(read, lambda item: "" if is_one_job and item.is_named else item.path):
        found = list(_of_path(group))
        is_whole = len(found) == 1 and not (group[0].is_named and len(group) > 1)
        out += [(group[0].path if is_whole else _name(run), run) for run in found]
    return out


def _of_path(read: Group) -> Iterable[Group]:
    """The runs in what one path holds: a folder of runs, of ranks, or of recordings of ranks."""
    if _is_one_recording(read):
        yield read
        return
    folders = _by(read, lambda item: item.folder)
    if len(folders) > 1 and _n_ranks(read) > 1 and all(_n_ranks(folder) == 1 for folder in folders):
        folders = [read]  # a folder for each rank
    for folder in folders:
        yield from _of_folder(folder)


def _of_folder(read: Group) -> Iterable[Group]:
    """The runs among files beside each other."""
    if _is_one_recording(read) or _is_one_set_of_processes(read):
        yield read
    elif _n_ranks(read) < 2:
        yield from _processes(read)
    else:
        for recording in _recordings(read):
            yield from [recording] if _is_one_recording(recording) else _sets(recording)


def _is_one_recording(read: Group) -> bool:
    """Whether the traces are of one file, or of ranks that are there once each."""
    ranks = [item.trace.rank for item in read]
    return len({item.source for item in read}) == 1 or (None not in ranks and len(set(ranks)) == len(ranks))


def _is_one_set_of_processes(read: Group) -> bool:
    """Whether the traces are windows of the same processes, one per rank.

    Process ids tell that on one rank, and on many where no two ranks share one (in containers they all may be 1) and
    the steps go on from window to window: a job that starts again counts its steps again.
    """
    processes = {item.process for item in read}
    ranks, pids = ({process[place] for process in processes} for place in (0, 1))
    if "" in pids or len(processes) > len(ranks) or len(pids) < len(ranks):
        return False
    return len(ranks) == 1 or all(_goes_on(windows) for windows in _by(read, lambda item: item.process))


def _goes_on(windows: Group) -> bool:
    """Whether no two windows of a process hold a step of one number, and each holds steps."""
    numbers = [item.trace.step_numbers for item in windows]
    seen = set().union(*numbers)
    return all(numbers) and len(seen) == sum(map(len, numbers))


def _processes(read: Group) -> Iterable[Group]:
    """The runs among traces of one rank: a process is one; of unknown rank, so is what was recorded at one time."""
    if all(item.trace.rank is None for item in read):
        at_once = _recordings(read)
    else:
        at_once = _by(read, lambda item: item.source)
    runs: list[Group] = []
    for group in at_once:
        pids = {item.trace.pid for item in group} - {""}
        same = next((run for run in runs if pids & {item.trace.pid for item in run}), None)
        if same is None:
            runs.append(list(group))
        else:
            same += group
    return runs


def _recordings(read: Group) -> list[Group]:
    """The traces by recording: windows that overlap in wall time, directly or by way of others."""
    out: list[Group] = []
    until = 0
    for item in sorted(read, key=lambda item: item.trace.span_unix_ns):
        begin, end = item.trace.span_unix_ns
        if not out or begin >= until:
            out.append([])
        out[-1].append(item)
        until = max(until, end)
    return out


def _sets(read: Group) -> Iterable[Group]:
    """The runs among traces of one time that hold a rank twice: sets of one naming, where each is whole.

    Else names tell nothing, and all are one run: too few runs give no answer, too many a wrong one.
    """
    ranks = {item.trace.rank for item in read}
    sets = _by(read, lambda item: (item.folder, _family(item)))
    is_whole = all({item.trace.rank for item in one} == ranks and _is_one_recording(one) for one in sets)
    return sets if is_whole else [read]


def _family(item: Read) -> str:
    """The file's name without its rank."""
    return _RANK.sub("rank", Path(item.source).name)


def _n_ranks(read: Iterable[Read]) -> int:
    """How many different ranks are known."""
    return len({item.trace.rank for item in read} - {None})


def _name(run: Group) -> str:
    return run[0].source if len(run) == 1 else run[0].folder


def _by(read: Iterable[Read], key: Callable[[Read], Hashable]) -> list[Group]:
    return list(grouped((key(item), item) for item in read).values())
