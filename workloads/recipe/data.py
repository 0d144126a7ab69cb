"""Batches of the recipe: which samples, of like length or as they come, padded or end to end, pixels or features."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workloads.recipe.features import Features
from workloads.vlm.data import Captions, Sample
from workloads.vlm.splice import Splice, plan_splice

_WINDOW: Final = 8
"""Batches among which samples are sorted by length. Chosen: large enough for equal lengths, small enough that the order
of samples stays nearly what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the tower reads, pixels float32 `[n, 3, edge, edge]`, or what it gave, `[n, n_vision, tower_width]`."""

    vision: Tensor
    splice: Splice

    def pin_memory(self) -> Batch:
        """Gives the batch in pinned memory; the loader's hook."""
        return Batch(vision=self.vision.pin_memory(), splice=self.splice.mapped(Tensor.pin_memory))

    def to(self, device: torch.device) -> Batch:
        """Gives the batch on the device, without waiting for it."""
        return Batch(
            vision=self.vision.to(device, non_blocking=True),
            splice=self.splice.mapped(lambda tensor: tensor.to(device, non_blocking=True)),
        )


class CachedCaptions(Dataset[Sample]):
    """The same samples with the tower's features in place of pixels."""

    def __init__(self, captions: Captions, features: Features) -> None:
        self.captions = captions
        self.features = features

    def __getitem__(self, index: int) -> Sample:
        return (self.features.read(index), *self.captions.text(index))

    def __len__(self) -> int:
        return len(self.captions)


def plan(
    captions: Captions, *, n_steps: int, batch: int, is_bucketed: bool, skip: int = 0, seed: int = 0
) -> list[list[int]]:
    """Gives the samples of each step: in their order, or after the first `skip` of like length in a window of batches.

    A window holds the same samples either way, so that both have trained on the same ones where it ends.
    """
    samples = list(range(n_steps * batch))
    batches = [samples[begin : begin + batch] for begin in range(0, len(samples), batch)]
    if not is_bucketed:
        return batches
    lengths = (captions.n_question + captions.n_answer).tolist()
    draw, found = random.Random(seed), batches[:skip]
    for begin in range(skip, n_steps, _WINDOW):
        window = sorted((one for each in batches[begin : begin + _WINDOW] for one in each), key=lengths.__getitem__)
        alike = [window[first : first + batch] for first in range(0, len(window), batch)]
        draw.shuffle(alike)  # else every window ends with its longest
        found += alike
    return found


def build_loader(
    dataset: Dataset[Sample], batches: Sequence[Sequence[int]], *, n_vision: int, is_packed: bool, is_pinned: bool
) -> DataLoader[Sample]:
    """Gives a loader of `Batch`, in the order of `batches`, in the training process."""

    def collated(samples: Sequence[Sample]) -> Batch:
        vision, ids, labels = zip(*samples, strict=True)
        splice = plan_splice(ids, labels, n_vision=n_vision, is_packed=is_packed)
        return Batch(vision=torch.stack(vision), splice=splice)

    return DataLoader(dataset, batch_sampler=batches, collate_fn=collated, pin_memory=is_pinned)
