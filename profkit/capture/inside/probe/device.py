"""Delays on a CUDA device: a kernel that spins for a calibrated number of clock cycles, and changes nothing.

Runs in the probed process: standard library and torch only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from .. import clock
from ..patches import Patches

_CYCLES: Final = 2_000_000
"""Spun once to learn the clock: a millisecond or two of a GPU (chosen)."""
_COLLECTIVES: Final = (
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_reduce",
    "all_to_all_single",
    "_all_gather_base",
    "_reduce_scatter_base",
)


class Spinner:
    """Makes the current stream wait. The first spin is timed by events, which are asked only once they are done."""

    def __init__(self) -> None:
        self._events: Any = None
        self._cycles_per_ns = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether the device's clock is known."""
        if not self._cycles_per_ns and self._events is not None and self._events[1].query():
            spent_ms: float = self._events[0].elapsed_time(self._events[1])
            self._cycles_per_ns = _CYCLES / (spent_ms * 1e6) if spent_ms > 0 else 0.0
            self._events = None
        return bool(self._cycles_per_ns)

    def calibrate(self) -> None:
        """Spin once in the current stream, between two events."""
        if self._events is None and not self._cycles_per_ns and hasattr(torch.cuda, "_sleep"):
            begun = clock.recorded_event()
            torch.cuda._sleep(_CYCLES)  # noqa: SLF001 - there is no public one
            self._events = (begun, clock.recorded_event())

    def spin(self, delay_ns: int) -> int:
        """Let the current stream wait so long; the host goes on. Gives the length, 0 where it could not be done."""
        if not self.is_ready or clock.is_capturing_graph():
            return 0
        torch.cuda._sleep(round(delay_ns * self._cycles_per_ns))  # noqa: SLF001
        return delay_ns


class CollectiveWatch:
    """Tells of collectives that Python starts on a stream of their own, between `begin` and `end`.

    On the stream of the compute a delay would delay that too. DDP's are started in C++, and are not seen.
    """

    def __init__(self) -> None:
        self._patches = Patches()

    def begin(self, tell: Callable[[], None]) -> None:
        """Call `tell` before each of them."""
        if not torch.distributed.is_available():
            return
        for name in _COLLECTIVES:
            if hasattr(torch.distributed, name):
                self._patches.wrap(torch.distributed, name, functools.partial(_wrapper, tell))

    def end(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        self._patches.take_out()


def _wrapper(tell: Callable[[], None], original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and torch.cuda.current_stream() != torch.cuda.default_stream():
            tell()
        return original(*args, **kwargs)

    return collective
