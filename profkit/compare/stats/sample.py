"""What is compared: samples of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

LARGEST: Final = 1e18
"""No rate, time or size of a run is larger (10^18 ns are 31 years), nor smaller than its inverse; beyond, squares and
products of three leave float64."""


def is_plausible(value: float) -> bool:
    """Whether a run can have this value: positive, finite, and such that statistics of it stay finite."""
    return 1 / LARGEST <= value <= LARGEST


def variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation, None of one run."""
    return float(np.std(values, ddof=1)) / float(np.mean(values)) if len(values) > 1 else None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one side: one positive value per run, the mean over its whole steps.

    `unit` is what people read ("tokens/s"; "ns/step" prints as a duration). `steps` are the step values of each run,
    where they are known, and only describe. `blocks` numbers the block each run belongs to, where runs of both sides
    were interleaved by plan: two samples that share their blocks are compared within them.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    higher_is_better: bool
    steps: tuple[tuple[float, ...], ...] = ()
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"sample {self.name!r} has no runs")
        bad = [value for value in self.values if not (math.isfinite(value) and value > 0)]
        if bad:
            raise ValueError(f"sample {self.name!r} has a value that is not positive and finite: {bad[0]}")
        if self.blocks and len(self.blocks) != len(self.values):
            raise ValueError(f"sample {self.name!r} has {len(self.values)} runs and {len(self.blocks)} blocks")

    @property
    def mean(self) -> float:
        """The arithmetic mean of the runs: totals add up, so means do."""
        return float(np.mean(self.values))
