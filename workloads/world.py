"""The ranks of a run on one machine or many: which one this process is, and how it joins and leaves them."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import distributed

BACKENDS: Final = {"cpu": "gloo", "cuda": "nccl"}

_PATIENCE_S: Final = 5.0  # chosen: gloo lets go within microseconds, within tens of ms where cores are short
_FAREWELL_S: Final = 0.3
"""Pause after leaving a group of several ranks. Chosen: gloo's threads let go of DDP's buckets, which nobody else can
watch, a moment after the group is destroyed; without it about 1 run in 8 aborted at its end (see `_wait_for_end`)."""

_FAREWELL_ALONE_S: Final = 0.05
"""The same of a rank alone. Chosen: once in some thousand runs its thread waited for the interpreter, which the main
thread held while it took the group apart and waited for that thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Which rank this process is, of how many, and the device it trains on."""

    rank: int
    n_ranks: int
    device: torch.device

    def summed(self, value: float) -> float:
        """Gives the sum of the value over all ranks; every rank has to call it."""
        return self._reduced(value, distributed.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """Gives the largest of the values of all ranks; every rank has to call it."""
        return self._reduced(value, distributed.ReduceOp.MAX)

    def gathered(self, value: Any) -> list[Any]:
        """Gives the values of all ranks in the order of ranks, on each of them; every rank has to call it."""
        values: list[Any] = [None] * self.n_ranks
        distributed.all_gather_object(values, value)
        return values

    def _reduced(self, value: float, operation: distributed.ReduceOp.RedOpType) -> float:
        held = torch.tensor(value, dtype=torch.float64, device=self.device)
        distributed.all_reduce(held, op=operation)
        total, watched = float(held.item()), weakref.ref(held)
        del held
        _wait_for_end(watched)
        return total


def _wait_for_end(watched: weakref.ref[torch.Tensor]) -> None:
    """Waits until nobody holds the tensor.

    A thread of gloo does, for a moment after the collective has ended, and takes the interpreter's lock to let go. If
    the interpreter is just ending, the process aborts with "terminate called without an active exception": 4 runs in 20
    on a loaded machine with torch 2.13, and pytorch issue 190489.
    """
    patience_ends_s = time.monotonic() + _PATIENCE_S
    while watched() is not None and time.monotonic() < patience_ends_s:
        time.sleep(1e-4)


@contextmanager
def joined_world(device_type: str, *, backend: str) -> Iterator[World]:
    """Joins the process group that torchrun has described, or makes one of this process alone; leaves it at the end.

    `backend` is gloo, nccl, or auto for the one of the device.
    """
    name = BACKENDS[device_type] if backend == "auto" else backend
    if "RANK" in os.environ:
        distributed.init_process_group(name)
    else:
        distributed.init_process_group(name, store=distributed.HashStore(), rank=0, world_size=1)
    device = torch.device(device_type)
    if device_type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    try:
        yield World(rank=distributed.get_rank(), n_ranks=distributed.get_world_size(), device=device)
    finally:
        n_ranks = distributed.get_world_size()
        distributed.destroy_process_group()
        if name == "gloo":
            time.sleep(_FAREWELL_S if n_ranks > 1 else _FAREWELL_ALONE_S)
