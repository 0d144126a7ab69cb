"""The model divided among the ranks by FSDP2."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from workloads.vlm.model import Vlm
from workloads.world import World


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
