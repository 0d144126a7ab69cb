"""Reports made for an agent: within a time, and kept as long as the files stay as they are."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from profkit.errors import ProfkitError, blamed
from profkit.ingest.bytes.bytesource import Progress

_MOST_KEPT: Final = 16
"""Reports, some 100 KB each (chosen): those of one conversation."""


class TimeIsUpError(ProfkitError):
    """An answer that would take longer than the server may take for one."""


class Deadline(msgspec.Struct, frozen=True):
    """When an answer must be there: `check` raises TimeIsUpError later, and `progress` does so while files are read."""

    seconds: float
    end_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(seconds, time.monotonic() + seconds)

    def check(self, *_: object) -> None:
        """Raise TimeIsUpError where the time is up."""
        if time.monotonic() > self.end_s:
            hint = "name one rank's file, not the folder; or ask for a larger --seconds, and the client for patience"
            raise TimeIsUpError(f"this takes longer than the {self.seconds:g} s an answer may take", hint=hint)

    @property
    def progress(self) -> Progress:
        """What readers tell of their progress, and thereby hear that the time is up."""
        return Progress(on_bytes=self.check)


class Made(msgspec.Struct, frozen=True):
    """A report: the page for an agent, and the plain values of its JSON, into which the page's ids are paths."""

    page: str
    document: dict[str, Any]


class Kept(msgspec.Struct):
    """The reports that were made last, each with the state of its files."""

    _made: OrderedDict[tuple[object, ...], Made] = msgspec.field(default_factory=OrderedDict)

    def made(self, asked: tuple[object, ...], sources: Sequence[str], make: Callable[[], Made]) -> Made:
        """The report that was asked for: a kept one where none of its files has changed since, else made now."""
        key = (*asked, *(_state(source) for source in sources))
        found = self._made.get(key)
        if found is None:
            with blamed("answering", sources[0] if sources else ""):
                found = make()
            self._made[key] = found
        self._made.move_to_end(key)
        while len(self._made) > _MOST_KEPT:
            self._made.popitem(last=False)
        return found


def _state(source: str) -> tuple[object, ...]:
    found = os.stat(source)  # noqa: PTH116 - a text, not a path
    return source, found.st_ino, found.st_size, found.st_mtime_ns
