"""How long the parts of a step take on the host: each lasts until the next begins, so they add up to the step.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import time

from .plan import HOST


class Parts:
    """The parts of the step that runs, in ns, without the delays that a probe puts in."""

    def __init__(self) -> None:
        self._spent_ns = dict.fromkeys(HOST, 0)
        self._now = HOST[0]
        self._since_ns = time.perf_counter_ns()

    def enter(self, name: str) -> None:
        """The part of this name begins, or goes on."""
        now_ns = time.perf_counter_ns()
        self._spent_ns[self._now] += now_ns - self._since_ns
        self._now, self._since_ns = name, now_ns

    def spare(self, delay_ns: int) -> None:
        """So much of the part that runs is a delay."""
        self._since_ns += delay_ns

    def taken(self, now_ns: int) -> dict[str, int]:
        """The parts of the step that ends now; the next one begins in its first part."""
        self._spent_ns[self._now] += now_ns - self._since_ns
        found, self._spent_ns = self._spent_ns, dict.fromkeys(HOST, 0)
        self._now, self._since_ns = HOST[0], now_ns
        return found
