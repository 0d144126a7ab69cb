"""What a capture says of the DataLoader whose batches the recorded steps took: its code, and how long a batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from profkit.model.code import CodePlace
from profkit.model.trace import Trace
from profkit.shell import clean
from profkit.units import format_ns

_LONGEST: Final = 80
_MOST_NS: Final = 10**15


class LoaderCode(msgspec.Struct, frozen=True):
    """The user's own functions behind a loader with workers, "" and 0 where they are not known."""

    reads: str = ""
    """`Images.__getitem__() (train.py:12)`."""
    collates: str = ""
    fetch_ns: int = 0
    """The median time that a worker takes to make a batch."""

    @property
    def words(self) -> str:
        """Who makes the batches, for how long; "" where nothing is known."""
        functions = " and ".join(filter(None, (self.reads, self.collates)))
        run = f"they run {functions}" if functions else ""
        takes = f"one of them takes {format_ns(self.fetch_ns)} for a batch (median)" if self.fetch_ns else ""
        return ", ".join(filter(None, (run, takes)))


def loader_code(trace: Trace) -> LoaderCode:
    """What the capture noted; nothing where the steps took batches of several loaders."""
    told = trace.meta.metadata.get("profkit_loaders")
    with_workers = [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    with_workers = [one for one in with_workers if _whole(one.get("n_workers"))]
    if len(with_workers) != 1:
        return LoaderCode()
    one = with_workers[0]
    fetch_ns = _whole(trace.meta.metadata.get("profkit_worker_fetch_ns"))
    return LoaderCode(_place(one.get("dataset")), _place(one.get("collate")), fetch_ns)


def _place(told: Any) -> str:
    if not isinstance(told, Mapping):
        return ""
    name, file, line = told.get("name"), told.get("file"), _whole(told.get("line"))
    if not isinstance(name, str) or not isinstance(file, str) or not line:
        return ""
    place = CodePlace(file=file[:4096], function=name[:_LONGEST].rpartition("<locals>.")[2], defined=line)
    return clean(place.name)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_NS else 0
