"""Made-up captions: an image, a question around its placeholder, an answer of unequal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workloads.vlm.sizes import Sizes
from workloads.vlm.splice import FIRST_WORD, IMAGE, UNLABELLED, Splice, plan_splice

MIN_QUESTION: Final = 4  # text tokens, the placeholder included
MAX_QUESTION: Final = 8

Sample = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Images float32 `[n_samples, 3, edge, edge]` and how their text goes around them."""

    images: Tensor
    splice: Splice

    def pin_memory(self) -> Batch:
        """Gives the batch in pinned memory; the loader's hook."""
        return Batch(images=self.images.pin_memory(), splice=self.splice.mapped(Tensor.pin_memory))

    def to(self, device: torch.device) -> Batch:
        """Gives the batch on the device, without waiting for it."""
        return Batch(
            images=self.images.to(device, non_blocking=True),
            splice=self.splice.mapped(lambda tensor: tensor.to(device, non_blocking=True)),
        )


class Captions(Dataset[Sample]):
    """Samples that follow from a seed and their index alone, whoever asks for them and in what order.

    A sample is (image, ids, labels). An answer counts on from its first word by a stride: there is something to learn.
    """

    def __init__(self, sizes: Sizes, *, n_samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.sizes = sizes
        self.seed = seed
        self.n_question = torch.randint(MIN_QUESTION, MAX_QUESTION + 1, (n_samples,), generator=generator)
        # Squared, so that long answers are rare and a batch pays for its longest: padding as in real captions.
        longest = sizes.max_text - MAX_QUESTION
        self.n_answer = 2 + ((longest - 1) * torch.rand(n_samples, generator=generator) ** 2).long()

    def __len__(self) -> int:
        return len(self.n_question)

    def __getitem__(self, index: int) -> Sample:
        words, labels, generator = self._drawn(index)
        return torch.randn(3, self.sizes.image, self.sizes.image, generator=generator), words, labels

    def text(self, index: int) -> tuple[Tensor, Tensor]:
        """Gives a sample without its image: (ids, labels)."""
        words, labels, _ = self._drawn(index)
        return words, labels

    def _drawn(self, index: int) -> tuple[Tensor, Tensor, torch.Generator]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        n_question, n_answer = int(self.n_question[index]), int(self.n_answer[index])
        n_words = self.sizes.vocabulary - FIRST_WORD
        first, stride, place = torch.randint(1 << 30, (3,), generator=generator).tolist()
        words = FIRST_WORD + (first + (1 + stride % 3) * torch.arange(n_question + n_answer)) % n_words
        words[place % n_question] = IMAGE
        labels = words.clone()
        labels[:n_question] = UNLABELLED
        return words, labels, generator

    def n_tokens(self, begin: int, end: int) -> int:
        """Gives the tokens of these samples after the splice, without padding."""
        n_text = int(self.n_question[begin:end].sum() + self.n_answer[begin:end].sum())
        return n_text + (self.sizes.n_vision - 1) * (end - begin)

    def n_labelled(self, begin: int, end: int) -> int:
        """Gives the tokens of these samples that the loss counts."""
        return int(self.n_answer[begin:end].sum())


def micro_batches(*, n_steps: int, batch: int, accumulation: int, rank: int, n_ranks: int) -> list[range]:
    """Gives the samples of each micro-batch of a rank, in the order it needs them.

    A step is a run of `n_ranks * batch * accumulation` samples: which they are does not depend on how it is divided.
    """
    per_round = n_ranks * batch
    begins = range(rank * batch, n_steps * accumulation * per_round, per_round)
    return [range(begin, begin + batch) for begin in begins]


def build_loader(captions: Captions, batches: Sequence[range], *, pin_memory: bool) -> DataLoader[Sample]:
    """Gives a loader of `Batch`, in the order of `batches`, in the training process."""

    def collated(samples: Sequence[Sample]) -> Batch:
        images, ids, labels = zip(*samples, strict=True)
        splice = plan_splice(ids, labels, n_vision=captions.sizes.n_vision)
        return Batch(images=torch.stack(images), splice=splice)

    return DataLoader(captions, batch_sampler=batches, collate_fn=collated, pin_memory=pin_memory)
