"""What a capture says of the threads of Python beside the one that trains: what they ran, held and were awaited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from profkit.model.code import OF_THREAD, PlaceShare
from profkit.model.trace import Trace
from profkit.shell import clean
from profkit.timeline.code.loaders import looked_lines, whole_ns

_LONGEST: Final = 80
_MOST: Final = 256
_LEAST_LOOKS: Final = 6
"""From which a thread's hold on the lock is told. Chosen."""


class PythonThread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread, over the recorded steps."""

    name: str
    run_ns: int
    wait_ns: int
    """It was ready, and had no core."""
    awaited_ns: int
    """The training thread waited for batches that it put into a queue."""
    held_share: float = 0.0
    """Of the time (0-1) that in which looks had to wait while it held the lock of Python."""
    idle_share: float = 0.0
    """Of that time (0-1), it had nothing to do."""
    lines: tuple[PlaceShare, ...] = ()
    """Where it was else, as shares of what it did."""

    @property
    def shown(self) -> str:
        """Its name in quotes."""
        return f'"{self.name}"'


def python_threads(trace: Trace) -> tuple[PythonThread, ...]:
    """Those that have run, the one that ran longest first."""
    told = trace.meta.metadata.get("profkit_threads")
    rows = [one for one in told[:_MOST] if isinstance(one, Mapping)] if isinstance(told, list) else []
    found = [_thread(one) for one in rows if isinstance(one.get("name"), str)]
    return tuple(sorted(found, key=lambda one: -one.run_ns))


def _thread(told: Mapping[str, Any]) -> PythonThread:
    looked: Any = told.get("looked")
    looked = looked if isinstance(looked, Mapping) else {}
    idle_ns, seen_ns = whole_ns(looked.get("idle_ns")), whole_ns(looked.get("seen_ns"))
    held = looked.get("held_share")
    is_known = isinstance(held, float) and 0 <= held <= 1 and whole_ns(looked.get("n_looks")) >= _LEAST_LOOKS
    return PythonThread(
        name=clean(str(told["name"])[:_LONGEST]),
        run_ns=whole_ns(told.get("run_ns")),
        wait_ns=whole_ns(told.get("wait_ns")),
        awaited_ns=whole_ns(told.get("awaited_ns")),
        held_share=held if is_known else 0.0,
        idle_share=idle_ns / (idle_ns + seen_ns) if idle_ns else 0.0,
        lines=looked_lines(looked, of=OF_THREAD),
    )
