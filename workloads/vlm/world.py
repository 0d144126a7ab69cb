"""The ranks of a run, and the model divided among them by FSDP2."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from workloads.vlm.model import Vlm

BACKENDS: Final = {"cpu": "gloo", "cuda": "nccl"}

_PATIENCE_S: Final = 5.0  # chosen: gloo lets go within microseconds, within tens of ms where cores are short


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
        distributed.destroy_process_group()


def shard(model: Vlm, world: World, *, is_bf16: bool, is_prefetched: bool) -> None:
    """Divides the model's parameters among the ranks: a group for each block, one for all the rest.

    With `is_prefetched` every block asks for the parameters of the next before it computes; without, each block's
    all-gather begins when the block does. Backward prefetches either way: that is FSDP2's own default.
    """
    mesh = init_device_mesh(world.device.type, (world.n_ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if is_bf16 else None
    blocks = [*model.tower.blocks, *model.decoder.blocks]
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    if world.device.type == "cpu":
        # A CPU has no streams: only an all-gather that is a `Work` to wait for can overlap. In both arms, so that
        # prefetch is the only difference between them.
        for module in (*blocks, model):
            module._set_unshard_async_op(True)  # noqa: SLF001 - torch 2.13 has no public name for it
    if is_prefetched:
        for module, following in zip((model, *blocks[:-1]), blocks, strict=True):
            module.set_modules_to_forward_prefetch([following])


def sync_gradients(model: Vlm, *, is_last: bool) -> None:
    """Says whether the next backward pass reduces gradients over the ranks: once a step, in its last micro-batch."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(is_last)
