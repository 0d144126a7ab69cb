"""Decoys: costs that are large in a trace, or rare, and whose removal gains next to nothing."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from analyses.accuracy.programs.pathologies.base import Pathology
from analyses.accuracy.programs.work import MATMUL_ROUND_S, matmul_work, rounds


class Decoy(Pathology):
    """A cost that is hidden."""

    kind = "decoy"
    doses = ("medium", "large")


class HiddenLoader(Decoy):
    """A slow loader behind two workers, which together are faster than the step."""

    name = "decoy_hidden_loader"
    place = "input"
    expected = "data-bound"
    n_workers = 2

    def fetching(self, indices: Sequence[int]) -> None:
        """Waits for storage: at the large dose for 1.35 steps, of which two workers hide two."""
        if self.is_on:
            time.sleep(3 * self.share * self.step_s)


class SideThread(Decoy):
    """Operators on a thread beside the training, which overlap it."""

    name = "decoy_side_thread"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Runs the thread."""
        self.is_wanted, self.is_over = threading.Event(), False
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.is_over = True
            self.is_wanted.set()
            thread.join()

    def _serve(self) -> None:
        torch.set_num_threads(1)
        while True:
            self.is_wanted.wait()
            self.is_wanted.clear()
            if self.is_over:
                return
            matmul_work(rounds(1.5 * self.share * self.step_s, MATMUL_ROUND_S))

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Asks for the work of this step; nobody waits for it."""
        if self.is_on:
            self.is_wanted.set()


class Rare(Decoy):
    """A cost in one step of fifty."""

    block = 50
    n_blocks = 8
    offset: Final = 24
    """Which of them: one that profkit records by default, the 15th to the 34th, where it can mislead."""

    def is_now(self, number: int) -> bool:
        """Whether this is such a step."""
        return self.is_on and number % self.block == self.offset


class RareEvaluation(Rare):
    """An evaluation once in fifty steps: long where it is seen, little on average."""

    name = "decoy_rare_evaluation"

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Keeps the batch to evaluate on."""
        self.batch = batch

    def after_step(self, number: int, model: nn.Module) -> None:
        """Evaluates."""
        if self.is_now(number):
            with torch.no_grad():
                for _ in range(max(round(6 * self.share), 1)):
                    model(*self.batch[:-1])


class RareCheckpoint(Rare):
    """A checkpoint once in fifty steps."""

    name = "decoy_rare_checkpoint"
    expected = "overhead-bound"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Holds the folder of the file."""
        with tempfile.TemporaryDirectory(prefix="accuracy-") as folder:
            self.path = Path(folder) / "last.pt"
            yield

    def after_step(self, number: int, model: nn.Module) -> None:
        """Writes it, and waits for a slow disk."""
        if self.is_now(number):
            torch.save(model.state_dict(), self.path)
            time.sleep(2 * self.share * self.step_s)
