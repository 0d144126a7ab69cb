"""How late each rank is in a replay, which runs in the order of ends and asks before all waits are over."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model.arrays import I64
from profkit.ranks.measure.replay_graph import Graph

UNKNOWN_NS: Final = np.iinfo(np.int64).max // 4
"""From here on a time or a delay is not known."""


class Delays:
    """How much later than its own work alone each rank is, after each of its waits; waits are noted as they end."""

    def __init__(self, graph: Graph) -> None:
        n_blocks = max(len(line.block_row) for line in graph.ranks)
        self._noted = np.full((len(graph.ranks), n_blocks), UNKNOWN_NS)
        self._after = np.zeros((len(graph.ranks), n_blocks + 1), np.int64)
        self._n_known = np.zeros(len(graph.ranks), np.int64)

    def note(self, rank: I64, block: I64, late_ns: I64) -> None:
        """Take down by how much each rank is late after one of its waits."""
        self._noted[rank, block] = late_ns

    def at(self, rank: I64, n_blocks: I64) -> I64:
        """The delay of each rank after so many waits; beyond `UNKNOWN_NS` where one of them is not noted yet."""
        while (behind := self._n_known[rank] < n_blocks).any():
            r = rank[behind]
            k = self._n_known[r]
            self._after[r, k + 1] = np.maximum(self._after[r, k], self._noted[r, k])
            self._n_known[r] = k + 1
        found: I64 = self._after[rank, n_blocks]
        return found
