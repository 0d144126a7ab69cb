"""The layers that change how the model computes: products in disguise, a loss in chunks, compiled blocks."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from workloads.vlm.decoder import LoraLinear
from workloads.vlm.model import Vlm
from workloads.vlm.splice import UNLABELLED


@cache
def full_product(device_type: str) -> type[torch.autograd.Function]:
    """Gives x times a weight, in fp32 whatever autocast says: what a hand-written layer with a default of fp32 does."""

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device_type, cast_inputs=torch.float32)
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            ctx.save_for_backward(x, weight)
            return linear(x, weight, bias)

        @staticmethod
        @torch.amp.custom_bwd(device_type=device_type)
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
            x, weight = ctx.saved_tensors
            wants_x, wants_weight, wants_bias = ctx.needs_input_grad
            flat = gradient.flatten(0, -2)
            return (
                gradient @ weight if wants_x else None,
                flat.t() @ x.flatten(0, -2) if wants_weight else None,
                flat.sum(0) if wants_bias else None,
            )

    return Product


class FullLinear(nn.Module):
    """A Linear, its own parameters, that multiplies in fp32 also where autocast is on."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.weight = base.weight
        self.bias = base.bias

    def forward(self, x: Tensor) -> Tensor:
        """Gives the product."""
        return in_full(x, self.weight, self.bias)


def in_full(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gives the product, multiplied in fp32."""
    made: Tensor = full_product(x.device.type).apply(x, weight, bias)
    return made


def in_disguise(model: nn.Module) -> None:
    """Puts every Linear of the model, and every LoRA, behind a function that asks for fp32."""
    for parent in list(model.modules()):
        if isinstance(parent, LoraLinear):
            parent.multiply = in_full
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, FullLinear(child))


class ChunkedLoss(torch.autograd.Function):
    """The summed cross entropy of a head, a chunk of tokens at a time, gradients worked out on the way.

    No more than a chunk of logits exists at once. Inputs: hidden `[n, width]`, weight `[vocabulary, width]`, targets
    int64 `[n]`, tokens per chunk. Gives a float32 scalar.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
        """Gives the loss and keeps its gradients."""
        wants_weight = ctx.needs_input_grad[1]
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for begin in range(0, hidden.shape[0], chunk):
            mine = slice(begin, begin + chunk)
            part, gradient = _loss_and_gradient(linear(hidden[mine], weight).float(), targets[mine])
            total += part
            gradient = gradient.to(weight.dtype)
            torch.mm(gradient, weight, out=of_hidden[mine])
            if of_weight is not None:
                of_weight += gradient.t() @ hidden[mine]
        ctx.save_for_backward(of_hidden, None if of_weight is None else of_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gives the gradients, scaled by that of the loss."""
        of_hidden, of_weight = ctx.saved_tensors
        scale = gradient.to(of_hidden.dtype)
        return of_hidden * scale, None if of_weight is None else of_weight * scale, None, None


def _loss_and_gradient(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Gives the summed loss of these logits and its gradient, which takes their place."""
    is_target = targets != UNLABELLED
    places = targets.clamp(min=0)[:, None]
    chances = logits.log_softmax(dim=-1)
    total = -(chances.gather(1, places)[:, 0] * is_target).sum()
    gradient = chances.exp_()
    gradient.scatter_add_(1, places, torch.full_like(places, -1, dtype=gradient.dtype))
    gradient *= is_target[:, None]
    return total, gradient


def compile_blocks(model: Vlm) -> None:
    """Compiles the decoder's blocks, for any length."""
    for block in model.decoder.blocks:
        block.compile(dynamic=True)
