"""Pathologies of the machine: another process on the core, and more threads than cores.

All that a step does takes longer by them, so that profkit names them beside the verdict and never as it.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from analyses.accuracy.programs.pathologies.base import Pathology

_PERIOD_S: Final = 0.008


def _burn(pathology: Pathology) -> None:
    """Takes `share` of its core while the pathology is on."""
    while True:
        if pathology.is_on:
            until = time.thread_time() + pathology.share * _PERIOD_S
            while time.thread_time() < until:
                pass
            time.sleep((1 - pathology.share) * _PERIOD_S)
        else:
            time.sleep(_PERIOD_S)


class Contention(Pathology):
    """Another process on the core to which this one is bound."""

    name = "cpu_contention"
    kind = "fault"
    finding = "host.contention"

    @contextmanager
    def around(self) -> Iterator[None]:
        """Binds this process to one core, and starts the other one there."""
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(cores)})
        other = multiprocessing.get_context("fork").Process(target=_burn, args=(self,), daemon=True)
        other.start()
        try:
            yield
        finally:
            other.terminate()
            other.join()
            os.sched_setaffinity(0, cores)


class Threads(Pathology):
    """More intra-op threads than cores."""

    name = "threads"
    kind = "fault"
    finding = "host.contention"
    counts: Final = {0.05: 3, 0.2: 4, 0.45: 8}

    def before_forward(self, number: int, batch: Sequence[Tensor]) -> None:
        """Sets the count of threads."""
        wanted = self.counts[self.share] if self.is_on else 1
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)
