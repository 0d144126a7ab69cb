"""A small transformer that classifies sequences: padded to a rectangle, or laid end to end without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of the model; `most` is the longest sequence it reads."""

    hidden: int = 48
    heads: int = 4
    layers: int = 2
    vocabulary: int = 8192
    classes: int = 16
    most: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """A batch. `ids` int64 is [B, L], zeros behind each sequence's length, or [1, T] of sequences end to end."""

    ids: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    is_packed: bool
    labels: Tensor


def padded(sequences: Sequence[Tensor], labels: Sequence[int]) -> Sequences:
    """Gives sequences as a rectangle as wide as the longest of them."""
    lengths = tuple(len(ids) for ids in sequences)
    ids = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    return Sequences(ids=ids, positions=positions, lengths=lengths, is_packed=False, labels=torch.tensor(labels))


def packed(sequences: Sequence[Tensor], labels: Sequence[int]) -> Sequences:
    """Gives sequences end to end; positions begin anew with each."""
    lengths = tuple(len(ids) for ids in sequences)
    positions = torch.cat([torch.arange(length) for length in lengths])
    return Sequences(
        ids=torch.cat(list(sequences))[None],
        positions=positions[None],
        lengths=lengths,
        is_packed=True,
        labels=torch.tensor(labels),
    )


class Block(nn.Module):
    """Attention of each sequence to itself, then an MLP; both behind a layer norm and beside a residual."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.before_attention = nn.LayerNorm(sizes.hidden)
        self.projection = nn.Linear(sizes.hidden, 3 * sizes.hidden)
        self.out = nn.Linear(sizes.hidden, sizes.hidden)
        self.before_mlp = nn.LayerNorm(sizes.hidden)
        self.mlp = nn.Sequential(
            nn.Linear(sizes.hidden, 4 * sizes.hidden), nn.GELU(), nn.Linear(4 * sizes.hidden, sizes.hidden)
        )

    def forward(self, x: Tensor, mask: Tensor | None, segments: list[int] | None) -> Tensor:
        """Gives [B, L, hidden] for the same; `mask` hides padding, `segments` are the lengths of a packed row."""
        parts = self.projection(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if segments is None:
            mixed = scaled_dot_product_attention(*parts, attn_mask=mask)
        else:  # one call for each sequence: a mask over the whole row would cost the square of its length
            pieces = [scaled_dot_product_attention(*piece) for piece in parts.split(segments, dim=3)]
            mixed = torch.cat(pieces, dim=2)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Classifier(nn.Module):
    """Classes of sequences, from the mean over the tokens of each."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.places = nn.Embedding(sizes.most, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.hidden, sizes.classes)

    def forward(self, batch: Sequences) -> Tensor:
        """Gives the logits, one row for each sequence."""
        x = self.words(batch.ids) + self.places(batch.positions)
        lengths = torch.tensor(batch.lengths)
        is_real = None if batch.is_packed else torch.arange(x.shape[1])[None] < lengths[:, None]
        for block in self.blocks:
            x = block(
                x, None if is_real is None else is_real[:, None, None], list(batch.lengths) if batch.is_packed else None
            )
        if is_real is None:
            owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
            total = x.new_zeros(len(lengths), x.shape[2]).index_add(0, owner, x[0])
        else:
            total = (x * is_real[..., None]).sum(dim=1)
        logits: Tensor = self.head(total / lengths[:, None])
        return logits
