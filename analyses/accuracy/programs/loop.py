"""The training loop of every program, and when a label run turns its pathology on and off."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from analyses.accuracy.programs.families.base import Batch, Family
from analyses.accuracy.programs.pathologies.base import Pathology


class Samples(Dataset[Batch]):
    """The samples of a family, fetched a batch at a time."""

    def __init__(self, family: Family, pathology: Pathology) -> None:
        self.family = family
        self.pathology = pathology

    def __len__(self) -> int:
        return self.family.n_samples

    def __getitems__(self, indices: list[int]) -> Batch:
        """Gives a batch; the loader prefers this hook to `__getitem__`."""
        self.pathology.fetching(indices)
        return self.family.fetched(self.pathology.chosen(indices), padding=self.pathology.padding())


def keep(batch: Batch) -> Batch:
    """Gives the batch as it is: `Samples` has put it together."""
    return batch


def is_on(block: int) -> bool:
    """Whether the pathology is on in a block: on, off, off, on, and so forth."""
    return block % 4 in {0, 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many steps to train; with `block`, the pathology is turned on and off between blocks of so many steps.

    One block more comes before the others, with the pathology: what warms up in it is not measured.

    The same `period` batches come again and again, in a label run and in a recorded one: so blocks with and without the
    pathology differ by it alone, and what is recorded is what was measured.
    """

    n_steps: int
    block: int = 0
    seed: int = 0
    period: int = Pathology.block

    def batches(self, family: Family) -> list[list[int]]:
        """Gives the samples of each step."""
        draw = random.Random(self.seed)  # noqa: S311 - samples need a seed, not a secret
        drawn = [draw.sample(range(family.n_samples), family.batch_size) for _ in range(self.period)]
        return [drawn[number % self.period] for number in range(self.n_steps)]


def loader(family: Family, pathology: Pathology, batches: Sequence[Sequence[int]]) -> DataLoader[Batch]:
    """Gives the loader, with as many workers as the pathology has."""
    return DataLoader(
        Samples(family, pathology), batch_sampler=batches, num_workers=pathology.n_workers, collate_fn=keep
    )


def train(family: Family, model: nn.Module, batches: Iterable[Batch], pathology: Pathology, plan: Plan) -> list[int]:
    """Trains; gives the times at which steps ended, ns."""
    optimizer = pathology.optimizer(model)
    ends_ns = []
    for number, batch in enumerate(batches):
        pathology.before_forward(number, batch)
        loss: Tensor = family.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pathology.after_step(number, model)
        if plan.block and (number + 1) % plan.block == 0:
            pathology.switch.set(is_on=is_on((number + 1) // plan.block - 1))
        ends_ns.append(time.perf_counter_ns())
    return ends_ns
