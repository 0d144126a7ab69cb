"""The synthetic data set in memory and its loader: free to read, or with a price on every sample."""

from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from workloads.presets import Doses

Batch = tuple[Tensor, Tensor]


class ReadyDataset(Dataset[Batch]):
    """Samples that lie ready in memory; a whole batch is one gather, so the loader costs next to nothing."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs = inputs
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.inputs[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> Batch:
        """Gives the batch of these samples at once; the loader prefers this hook to `__getitem__`."""
        rows = torch.tensor(indices)
        return self.inputs[rows], self.labels[rows]


class CostlyDataset(Dataset[Batch]):
    """Samples that each cost a sleep (storage) and some rounds of tanh and roll (decoding).

    `sleep_s` is seconds per sample; `rounds` is a count per sample.
    """

    def __init__(self, inputs: Tensor, labels: Tensor, *, sleep_s: float, rounds: int) -> None:
        self.inputs = inputs
        self.labels = labels
        self.sleep_s = sleep_s
        self.rounds = rounds

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        if self.sleep_s > 0:
            time.sleep(self.sleep_s)
        x = self.inputs[index]
        for _ in range(self.rounds):
            x = torch.tanh(x + 0.1 * torch.roll(x, 1, dims=0))
        return x, self.labels[index]


def keep_batch(batch: object) -> object:
    """Gives the batch as it is: `ReadyDataset` has already put it together."""
    return batch


def build_loader(doses: Doses, *, pin_memory: bool) -> DataLoader[Batch]:
    """Gives a loader of exactly `doses.steps` batches, so that no epoch edge falls into a run.

    Samples are drawn with replacement by a generator seeded with `doses.seed`: the batches do not depend on
    the number of workers. Inputs are float32 `[batch, features]`, labels int64 `[batch]`.
    """
    generator = torch.Generator().manual_seed(doses.seed)
    inputs = torch.randn(doses.samples, doses.features, generator=generator)
    labels = torch.randint(doses.classes, (doses.samples,), generator=generator)
    is_costly = doses.item_sleep_ms > 0 or doses.item_rounds > 0
    dataset: Dataset[Batch] = (
        CostlyDataset(inputs, labels, sleep_s=doses.item_sleep_ms / 1e3, rounds=doses.item_rounds)
        if is_costly
        else ReadyDataset(inputs, labels)
    )
    sampler = RandomSampler(
        range(doses.samples), replacement=True, num_samples=doses.steps * doses.batch, generator=generator
    )
    return DataLoader(
        dataset,
        batch_size=doses.batch,
        sampler=sampler,
        num_workers=doses.num_workers,
        collate_fn=None if is_costly else keep_batch,
        pin_memory=pin_memory,
        persistent_workers=doses.num_workers > 0,
        generator=generator,
    )
