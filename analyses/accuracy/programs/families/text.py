"""Families that read words: a transformer with long-tailed lengths, and a recurrent network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from analyses.accuracy.programs.families.base import Batch, Family
from analyses.accuracy.programs.families.layers import Block, positions

_NO_WORD = -100


class Words(Family):
    """Sequences of unequal length: a batch is as long as its longest sequence, and padded by `padding` more."""

    n_words: ClassVar[int] = 512
    shortest: ClassVar[int]
    longest: ClassVar[int]

    def drawn(self, n: int) -> Batch:
        """Gives words and the words that follow; behind a sequence's end there are zeros, and no word follows."""
        tail = torch.empty(n).exponential_(3.0, generator=self.generator).clamp(max=1.0)
        self.lengths = (self.shortest + tail * (self.longest - self.shortest)).long()
        words = torch.randint(self.n_words, (n, self.longest + 1), generator=self.generator)
        is_behind = torch.arange(self.longest)[None] >= self.lengths[:, None]
        return words[:, :-1].masked_fill(is_behind, 0), words[:, 1:].masked_fill(is_behind, _NO_WORD)

    def fetched(self, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Gives these samples as a batch."""
        rows = torch.tensor(indices)
        words, following = (values[rows, : int(self.lengths[rows].max())] for values in self.samples)
        n_more = round(padding * words.shape[1])
        if n_more:
            words = nn.functional.pad(words, (0, n_more))
            following = nn.functional.pad(following, (0, n_more), value=_NO_WORD)
        return words, following

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gives the loss of a batch."""
        words, following = batch
        return cross_entropy(model(words).flatten(0, 1), following.flatten(), ignore_index=_NO_WORD)


class Reader(nn.Module):
    """A decoder of words."""

    def __init__(self, width: int, n_words: int, n_layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, width)
        self.blocks = nn.ModuleList(Block(width, is_causal=True) for _ in range(n_layers))
        self.head = nn.Linear(width, n_words)

    def forward(self, ids: Tensor) -> Tensor:
        """Gives logits of words, [B, L, words], for ids [B, L]."""
        x = self.words(ids)
        x = x + positions(x.shape[1], x.shape[2])
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


class Transformer(Words):
    """Two blocks on 24 to 96 words."""

    name = "transformer"
    step_ms = 28.0
    batch_size = 5
    shortest, longest = 24, 96

    def model(self) -> nn.Module:
        """Gives the decoder."""
        return Reader(192, self.n_words, n_layers=2)


class Recurrent(nn.Module):
    """An LSTM over words."""

    def __init__(self, width: int, n_words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, width)
        self.cells = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, n_words)

    def forward(self, ids: Tensor) -> Tensor:
        """Gives logits of words, [B, L, words], for ids [B, L]."""
        logits: Tensor = self.head(self.cells(self.words(ids))[0])
        return logits


class Rnn(Words):
    """An LSTM on 24 to 48 words."""

    name = "rnn"
    step_ms = 15.0
    batch_size = 16
    shortest, longest = 24, 48

    def model(self) -> nn.Module:
        """Gives the network."""
        return Recurrent(128, self.n_words)
