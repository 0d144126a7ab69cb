"""The transformer block that several families share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

_N_HEADS = 4


def positions(length: int, width: int) -> Tensor:
    """Gives sines and cosines that tell places apart, [length, width]."""
    places = torch.arange(length)[:, None] / torch.logspace(0, 3, width // 2)[None]
    return torch.cat([places.sin(), places.cos()], dim=1)


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm and beside a residual."""

    def __init__(self, width: int, *, is_causal: bool = False) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Gives [B, L, width] for the same."""
        parts = self.projection(self.before_attention(x)).unflatten(-1, (3, _N_HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*parts, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))
