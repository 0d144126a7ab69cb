"""The language model, after Qwen2.5: RMSNorm, rotary positions, grouped-query attention, SwiGLU, a tied or own head."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from workloads.vlm.sizes import Sizes
from workloads.vlm.splice import Grid, Splice

ROTARY_BASE = 10_000.0


class LoraLinear(nn.Module):
    """A frozen Linear plus a trained product of rank `rank`, scaled by `alpha / rank`.

    `up` begins at zero, so that the first forward pass is the Linear's own (Hu et al. 2021, section 4.1).
    """

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.multiply: Callable[[Tensor, Tensor], Tensor] = linear

    def forward(self, x: Tensor) -> Tensor:
        """Gives the Linear of x plus its low-rank change."""
        return self.base(x) + self.scale * self.multiply(self.multiply(x, self.down), self.up)


def rotary_table(length: int, head_width: int, device: torch.device) -> Tensor:
    """Gives cosine and sine of each position's angles, float32 `[2, length, head_width]`, halves alike."""
    exponents = torch.arange(0, head_width, 2, device=device, dtype=torch.float32) / head_width
    angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * ROTARY_BASE**-exponents
    angles = torch.cat((angles, angles), dim=-1)
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Gives x `[n, heads, length, head_width]` turned by its positions' angles, in the dtype of x."""
    cosine, sine = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    """Causal attention in which several query heads share one key and value head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_width = sizes.width // sizes.heads
        self.query = nn.Linear(sizes.width, sizes.heads * self.head_width)
        self.key = nn.Linear(sizes.width, sizes.kv_heads * self.head_width)
        self.value = nn.Linear(sizes.width, sizes.kv_heads * self.head_width)
        self.out = nn.Linear(sizes.heads * self.head_width, sizes.width, bias=False)

    def forward(self, x: Tensor, table: Tensor, grid: Grid | None = None) -> Tensor:
        """Gives each position's mix of itself and those before it, within its sample.

        Padding lies on the right, so no real token ever looks at it: the causal mask is all the mask it takes. A packed
        row is spread over the `grid` of a padded batch for attention alone: one call for all its samples.
        """
        query, key, value = (
            self._spread(layer(x), table.shape[1], grid).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(
            rotated(query, table), rotated(key, table), value, is_causal=True, enable_gqa=True
        )
        mixed = mixed.transpose(1, 2).flatten(-2)
        return self.out(mixed if grid is None else mixed.flatten(0, 1)[grid[0]][None])

    @staticmethod
    def _spread(x: Tensor, length: int, grid: Grid | None) -> Tensor:
        if grid is None:
            return x
        cells, n_samples = grid
        rows = x.new_zeros(n_samples * length, x.shape[-1])
        return rows.index_copy(0, cells, x[0]).unflatten(0, (n_samples, length))


class SwiGlu(nn.Module):
    """The gated MLP."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.width, sizes.mlp, bias=False)
        self.up = nn.Linear(sizes.width, sizes.mlp, bias=False)
        self.down = nn.Linear(sizes.mlp, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gives the MLP of x."""
        return self.down(silu(self.gate(x)) * self.up(x))


class DecoderBlock(nn.Module):
    """Attention and MLP, each behind an RMSNorm; keeps its input alone for backward if `is_checkpointed`.

    The recomputation lies inside the block, thus inside what FSDP shards: it meets the parameters gathered.
    """

    def __init__(self, sizes: Sizes, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.is_checkpointed = is_checkpointed
        self.attention_norm = nn.RMSNorm(sizes.width, eps=1e-6)
        self.attention = Attention(sizes)
        self.mlp_norm = nn.RMSNorm(sizes.width, eps=1e-6)
        self.mlp = SwiGlu(sizes)

    def forward(self, x: Tensor, table: Tensor, grid: Grid | None = None) -> Tensor:
        """Gives x after the block."""
        if self.is_checkpointed and torch.is_grad_enabled():
            # Nothing in a block draws random numbers: no generator state to keep.
            kept: Tensor = checkpoint(self._mixed, x, table, grid, use_reentrant=False, preserve_rng_state=False)
            return kept
        return self._mixed(x, table, grid)

    def _mixed(self, x: Tensor, table: Tensor, grid: Grid | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, grid)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Gives logits from embedded tokens: `[n, length, width] -> [n, length, vocabulary]`."""

    def __init__(self, sizes: Sizes, *, is_tied: bool, is_checkpointed: bool) -> None:
        super().__init__()
        self.head_width = sizes.width // sizes.heads
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(DecoderBlock(sizes, is_checkpointed=is_checkpointed) for _ in range(sizes.depth))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        if is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor, splice: Splice) -> Tensor:
        """Gives the logits of every position."""
        logits: Tensor = self.head(self.hidden(x, splice))
        return logits

    def hidden(self, x: Tensor, splice: Splice) -> Tensor:
        """Gives what the head reads, `[n, length, width]`."""
        table = rotary_table(max(splice.lengths), self.head_width, x.device)
        for block in self.blocks:
            x = block(x, table, splice.grid)
        normed: Tensor = self.norm(x)
        return normed


def with_lora(decoder: Decoder, *, rank: int, alpha: float) -> Decoder:
    """Puts a LoRA beside every Linear of the decoder's blocks and freezes all else of it; gives the decoder."""
    decoder.requires_grad_(requires_grad=False)
    for block in decoder.blocks:
        for part in (block.attention, block.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, LoraLinear(child, rank=rank, alpha=alpha))
    return decoder
