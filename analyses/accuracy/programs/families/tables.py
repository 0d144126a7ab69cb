"""Families without structure in their inputs: a perceptron, and a recommender with embedding tables."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from analyses.accuracy.programs.families.base import Batch, Family


class Mlp(Family):
    """Four linear layers on 512 features."""

    name = "mlp"
    step_ms = 18.0
    batch_size = 64
    width = 896

    def drawn(self, n: int) -> Batch:
        """Gives features and one of 100 classes."""
        features = torch.randn(n, 512, generator=self.generator)
        return features, torch.randint(100, (n,), generator=self.generator)

    def model(self) -> nn.Module:
        """Gives the perceptron."""
        sizes = (512, *3 * (self.width,))
        hidden = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], 100))


class Tables(nn.Module):
    """Embeddings of ids and a projection of numbers, then a perceptron that gives one logit."""

    def __init__(self, n_tables: int, n_numbers: int) -> None:
        super().__init__()
        width = 32
        self.tables = nn.ModuleList(nn.Embedding(2_000, width) for _ in range(n_tables))
        self.numbers = nn.Sequential(nn.Linear(n_numbers, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(width * (n_tables + 1), 640), nn.ReLU(), nn.Linear(640, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """Gives logits, [B, 1], for ids [B, tables] and numbers [B, numbers]."""
        found = [table(ids[:, column]) for column, table in enumerate(self.tables)]
        logits: Tensor = self.top(torch.cat([*found, self.numbers(numbers)], dim=1))
        return logits


class Recsys(Family):
    """Clicks from eight ids and thirteen numbers."""

    name = "recsys"
    step_ms = 19.0
    batch_size = 512
    n_samples = 4_096
    n_tables, n_numbers = 8, 13

    def drawn(self, n: int) -> Batch:
        """Gives ids, numbers and clicks."""
        ids = torch.randint(2_000, (n, self.n_tables), generator=self.generator)
        numbers = torch.randn(n, self.n_numbers, generator=self.generator)
        return ids, numbers, torch.randint(2, (n, 1), generator=self.generator).float()

    def model(self) -> nn.Module:
        """Gives the recommender."""
        return Tables(self.n_tables, self.n_numbers)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gives the loss of a batch."""
        ids, numbers, clicks = batch
        return binary_cross_entropy_with_logits(model(ids, numbers), clicks)
