"""What the parent holds of finished ranks: few as they are, of many the bundles that workers merge them into."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from profkit.ranks.reduce.bundle import Bundle, bundle_of, opened
from profkit.ranks.reduce.outcome import Outcome

if TYPE_CHECKING:
    from profkit.ranks.run.jobs import Finished
    from profkit.ranks.run.workers import Pool

FAN_IN: Final = 64
"""Leaves that a worker merges at once. Measured with 24 collectives a rank, whose numbers all differ: 6.6 kB for each
alone, 2.2 kB in bundles of 16, 1.9 kB of 64, 1.7 kB of 256 and of 1,024; the larger ones open no faster."""
MOST_BYTES: Final = 4 * 2**20
"""Leaves of long traces are merged sooner: it is what goes to a worker and waits here meanwhile."""


class Gathering:
    """Finished ranks on their way to the report.

    One level of merging: in the end all bundles are opened, and one that was merged twice opens no faster. A merge
    whose worker dies is done here: nothing is read again for it.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._whole: list[tuple[int, Outcome]] = []
        self._leaves: list[tuple[int, bytes]] = []
        self._n_bytes = 0
        self._merging: list[tuple[Future[Bundle], list[tuple[int, bytes]]]] = []
        self._bundles: list[Bundle] = []

    def add(self, place: int, finished: Finished) -> None:
        """Take what became of the source with this number."""
        self._whole += [(place, outcome) for outcome in finished.outcomes]
        if not finished.leaf:
            return
        self._leaves.append((place, finished.leaf))
        self._n_bytes += len(finished.leaf)
        if len(self._leaves) >= FAN_IN or self._n_bytes >= MOST_BYTES:
            leaves, self._leaves, self._n_bytes = self._leaves, [], 0
            self._merging.append((self._pool.merge(leaves), leaves))
            self._take(only_done=True)

    def end(self) -> None:
        """Wait for what is merged; to be called while there are workers."""
        self._take(only_done=False)
        if self._leaves:
            self._bundles.append(bundle_of(self._leaves))
            self._leaves = []

    def outcomes(self) -> list[Outcome]:
        """All outcomes in the order of their sources, whichever ended first; afterwards nothing is held here."""
        placed, self._whole = self._whole, []
        while self._bundles:
            placed += opened(self._bundles.pop())
        placed.sort(key=lambda one: one[0])
        return [outcome for _, outcome in placed]

    def _take(self, *, only_done: bool) -> None:
        kept = []
        for future, leaves in self._merging:
            if only_done and not future.done():
                kept.append((future, leaves))
            else:
                is_lost = future.cancelled() or future.exception() is not None
                self._bundles.append(bundle_of(leaves) if is_lost else future.result())
        self._merging = kept
