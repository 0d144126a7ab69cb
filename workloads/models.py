"""The model of each regime: two or three Linears, and what the regime puts between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from workloads.presets import Doses


class TinyOps(nn.Module):
    """Applies `rounds` rounds of six elementwise operators, each far shorter than its own dispatch.

    Per round: add, relu, mul, sigmoid, mul, add. Input and output have the same shape.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        """Gives x after all rounds."""
        for _ in range(self.rounds):
            x = torch.relu(x + 0.01)
            x = x * 0.99
            x = x + torch.sigmoid(x) * 0.01
        return x


class GatedNorm(nn.Module):
    """Applies `rounds` rounds of sigmoid gate, gelu times gate, layer norm and add: memory-bound kernels.

    The norm runs over the last dimension and has no weights. Input and output have the same shape.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        """Gives x after all rounds."""
        for _ in range(self.rounds):
            gate = torch.sigmoid(x)
            x = gelu(x) * gate
            x = layer_norm(x, x.shape[-1:])
            x = x + 0.05
        return x


def build_model(regime: str, doses: Doses) -> nn.Module:
    """Gives the model of a regime, `[batch, features] -> [batch, classes]`, in fp32 on the CPU.

    Raises `KeyError` for an unknown regime.
    """
    into = nn.Linear(doses.features, doses.hidden)
    out = nn.Linear(doses.hidden, doses.classes)
    between: dict[str, list[nn.Module]] = {
        "baseline": [nn.ReLU(), nn.Linear(doses.hidden, doses.hidden), nn.ReLU()],
        "data": [nn.ReLU(), nn.Linear(doses.hidden, doses.hidden), nn.ReLU()],
        "overhead": [TinyOps(doses.rounds)],
        "kernel": [GatedNorm(doses.rounds)],
    }
    return nn.Sequential(into, *between[regime], out)
