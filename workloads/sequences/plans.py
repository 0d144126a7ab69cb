"""Which samples each rank takes in each step: five ways to make batches of sequences of unequal length.

A plan is `[step][rank]` lists of sample numbers. It follows from the lengths and the seed alone, so that every rank
knows what all ranks do without asking.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

Batch = list[int]
Plan = list[list[Batch]]

STRATEGIES: Final = ("uniform", "fixed_count", "bucketing", "token_budget", "packing")
_PACKING_WINDOW: Final = 128
"""Samples among which rows are packed. Chosen: first-fit decreasing leaves under 1 % of a row of 1,280 empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The lengths of sequences in tokens: log-uniform from `least` to `most`, and a fraction of them at `most`."""

    least: int = 64
    most: int = 256
    outlier_fraction: float = 0.08

    def drawn(self, n_samples: int, *, seed: int) -> list[int]:
        """Gives as many lengths, which follow from the seed."""
        draw = random.Random(seed)
        low, high = math.log(self.least), math.log(self.most + 1)
        return [
            self.most
            if draw.random() < self.outlier_fraction
            else min(int(math.exp(draw.uniform(low, high))), self.most)
            for _ in range(n_samples)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a run: its ranks and steps, and what a batch holds (samples, or tokens with their padding)."""

    n_ranks: int
    n_steps: int
    batch: int = 8
    max_tokens: int = 1280


def planned(strategy: str, lengths: Sequence[int], shape: Shape, *, seed: int) -> Plan:
    """Gives the plan of a run, epoch after epoch until it has its steps.

    Raises ValueError if an epoch holds no step: too few samples for all ranks.
    """
    plan: Plan = []
    for epoch in range(shape.n_steps):
        draw = random.Random(f"{seed} {epoch}")
        batches = _BATCHES[strategy](lengths, shape, draw)
        n_whole = len(batches) // shape.n_ranks
        steps = [batches[step * shape.n_ranks : (step + 1) * shape.n_ranks] for step in range(n_whole)]
        if not steps:
            raise ValueError(f"{len(lengths)} samples are too few for a step on {shape.n_ranks} ranks")
        draw.shuffle(steps)
        plan += steps
        if len(plan) >= shape.n_steps:
            break
    return plan[: shape.n_steps]


def _drawn_anew(lengths: Sequence[int], shape: Shape, draw: random.Random) -> list[Batch]:
    """Gives batches of a fixed count of samples in any order: each is padded to its longest."""
    order = draw.sample(range(len(lengths)), len(lengths))
    return _chunks(order, shape.batch)


def _bucketed(lengths: Sequence[int], shape: Shape, _: random.Random) -> list[Batch]:
    """Gives batches of a fixed count of samples of like length; neighbours, and so the ranks of a step, are alike."""
    return _chunks(_by_length(lengths), shape.batch)


def _budgeted(lengths: Sequence[int], shape: Shape, _: random.Random) -> list[Batch]:
    """Gives batches of samples of like length, as many as their padded tokens allow: short ones make large batches."""
    batches: list[Batch] = [[]]
    for sample in _by_length(lengths):  # rising: the one that comes is the longest
        if (len(batches[-1]) + 1) * lengths[sample] > shape.max_tokens:
            batches.append([])
        batches[-1].append(sample)
    return batches[:-1]  # the last one is seldom full


def _packed(lengths: Sequence[int], shape: Shape, draw: random.Random) -> list[Batch]:
    """Gives rows of samples laid end to end, first-fit decreasing in windows; rows of like fill are neighbours."""
    rows: list[Batch] = []
    order = draw.sample(range(len(lengths)), len(lengths))
    for begin in range(0, len(order), _PACKING_WINDOW):
        window: list[Batch] = []
        room: list[int] = []
        for sample in sorted(order[begin : begin + _PACKING_WINDOW], key=lambda sample: -lengths[sample]):
            place = next((row for row, left in enumerate(room) if left >= lengths[sample]), len(room))
            if place == len(room):
                window.append([])
                room.append(shape.max_tokens)
            window[place].append(sample)
            room[place] -= lengths[sample]
        rows += window[:-1]  # the last one is seldom full
    return sorted(rows, key=lambda row: sum(lengths[sample] for sample in row))


def _by_length(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda sample: lengths[sample])


def _chunks(order: Sequence[int], size: int) -> list[Batch]:
    return [list(order[begin : begin + size]) for begin in range(0, len(order) - size + 1, size)]


_BATCHES: Final[dict[str, Callable[[Sequence[int], Shape, random.Random], list[Batch]]]] = {
    "uniform": _drawn_anew,
    "fixed_count": _drawn_anew,
    "bucketing": _bucketed,
    "token_budget": _budgeted,
    "packing": _packed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one rank works on in one step: real tokens, those with padding, samples, the longest in tokens."""

    tokens: int
    padded_tokens: int
    samples: int
    longest: int


def load_of(batch: Sequence[int], lengths: Sequence[int], *, is_packed: bool) -> Load:
    """Gives the load of a batch; a packed one has no padding."""
    held = [lengths[sample] for sample in batch]
    tokens, longest = sum(held), max(held)
    return Load(
        tokens=tokens,
        padded_tokens=tokens if is_packed else longest * len(held),
        samples=len(held),
        longest=longest,
    )
