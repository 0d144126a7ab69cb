"""What a family of programs is: a model, its samples in memory, and a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Batch = tuple[Tensor, ...]
"""The inputs of the model in order, then the targets."""


class Family(ABC):
    """A model that trains on one core in 15 to 30 ms a step, with samples that cost next to nothing to fetch."""

    name: ClassVar[str]
    step_ms: ClassVar[float]
    """The plain step in CPU time, on the machine of the published results. Doses are aimed with it."""
    batch_size: ClassVar[int]
    base: ClassVar[str] = "kernel-bound"
    """The verdict that is right of the program without a pathology: its own work takes the step. "a|b": either."""
    n_samples: ClassVar[int] = 512
    n_ranks: ClassVar[int] = 1

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.samples = self.drawn(self.n_samples)

    @abstractmethod
    def drawn(self, n: int) -> Batch:
        """Gives n samples as tensors whose first dimension is n."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Gives the model with fresh weights."""

    def spread(self, model: nn.Module) -> nn.Module:
        """Gives the model as one of several ranks trains it; of one rank, the model."""
        return model

    def fetched(self, indices: Sequence[int], *, padding: float = 0.0) -> Batch:
        """Gives these samples as a batch; `padding` is the share that is added to sequences, where there are any."""
        rows = torch.tensor(indices)
        return tuple(values[rows] for values in self.samples)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Gives the loss of a batch."""
        *inputs, targets = batch
        return cross_entropy(model(*inputs).flatten(0, -2), targets.flatten())
