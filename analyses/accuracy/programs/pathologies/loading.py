"""Pathologies of the loader: storage, transforms, workers and batches that are padded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from analyses.accuracy.programs.pathologies.base import Pathology
from analyses.accuracy.programs.work import ARRAY_ROUND_S, array_work, rounds

_N_READS: Final = 4
"""Reads of storage in a batch: few, since each sleep lasts some 0.1 ms longer than it should."""


class Loading(Pathology):
    """A pathology whose cost is in the loader."""

    kind = "fault"
    expected = "data-bound"
    finding = "input.starved"
    place = "input"


class Serial(Loading):
    """No workers, and storage that answers slowly."""

    name = "loader_serial"

    def fetching(self, indices: Sequence[int]) -> None:
        """Waits for storage."""
        if self.is_on:
            for _ in range(_N_READS):
                time.sleep(self.cost_s / _N_READS)


class Transform(Loading):
    """No workers, and a transform that needs the core."""

    name = "loader_cpu"

    def fetching(self, indices: Sequence[int]) -> None:
        """Transforms."""
        if self.is_on:
            array_work(rounds(self.cost_s, ARRAY_ROUND_S))


class TooFewWorkers(Loading):
    """One worker, which needs longer for a batch than the step does."""

    name = "loader_workers_too_few"
    n_workers = 1

    def fetching(self, indices: Sequence[int]) -> None:
        """Waits for storage as long as the step is to last."""
        if self.is_on:
            time.sleep(self.step_s + self.cost_s)


class RareItems(Loading):
    """One worker, and one batch in four with an item that takes long: more than the queue can hide."""

    name = "loader_rare_items"
    n_workers = 1
    block = 25
    """Of which 20 are measured, a multiple of `one_in`: as many rare batches in each."""
    one_in: Final = 4
    n_queued: Final = 2
    n_fetched = 0

    def fetching(self, indices: Sequence[int]) -> None:
        """Waits if the item is in the batch; the one worker counts."""
        self.n_fetched += 1
        if self.is_on and self.n_fetched % self.one_in == 0:
            time.sleep(self.one_in * self.cost_s + self.n_queued * self.step_s)


class Padding(Pathology):
    """Batches padded to more than their longest sequence."""

    name = "padding"
    kind = "fault"
    families = ("transformer", "rnn")

    def padding(self) -> float:
        """Gives the share to add: what words cost grows as their number."""
        return self.share / (1 - self.share) if self.is_on else 0.0


class Jitter(Pathology):
    """Healthy steps of unequal size: batches are smaller or larger by up to twice `share`, the same on average."""

    name = "jitter"
    families = ("mlp", "cnn", "transformer", "vlm", "recsys", "rnn", "ddp")
    n_chosen = 0

    def chosen(self, indices: Sequence[int]) -> Sequence[int]:
        """Gives fewer samples, or some of them twice: what one batch has less, the next one has more."""
        if not self.is_on:
            return indices
        pair, is_second = divmod(self.n_chosen, 2)
        self.n_chosen += 1
        draw = (pair * 7_919 % 101) / 100 * (1 if is_second else -1)
        n = max(round(len(indices) * (1 + 2 * self.share * draw)), 2)
        return [*indices, *indices][:n]
