"""The vision tower, after SigLIP: patches, learned positions, pre-norm blocks, no pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from workloads.vlm.sizes import Sizes


class TowerBlock(nn.Module):
    """Attention over all patches and an MLP, each behind a layer norm; `[n, tokens, width]` in and out."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Gives x after the block."""
        query, key, value = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.n_heads, -1)).unbind(-3)
        mixed = scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Tower(nn.Module):
    """Gives every patch of an image as a token: `[n, 3, image, image] -> [n, n_vision, tower_width]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, sizes.tower_width, kernel_size=sizes.patch, stride=sizes.patch)
        self.positions = nn.Parameter(0.02 * torch.randn(sizes.n_vision, sizes.tower_width))
        self.blocks = nn.ModuleList(TowerBlock(sizes.tower_width, sizes.tower_heads) for _ in range(sizes.tower_depth))
        self.norm = nn.LayerNorm(sizes.tower_width, eps=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        """Gives the tokens of the images."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
