"""Work of known size for pathologies: counts of rounds, so that a label run and a verdict run do the same."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

PYTHON_ROUND_S: Final = 0.000200
ARRAY_ROUND_S: Final = 0.000100
MATMUL_ROUND_S: Final = 0.000080
"""CPU seconds of a round on the machine of the published results. They only aim the dose: the gain is measured."""

_NUMBERS: Final = np.random.default_rng(0).random(16_000, dtype=np.float32)
_SQUARE: Final = 160


def rounds(cost_s: float, round_s: float) -> int:
    """How many rounds come nearest to a cost, at least one if there is a cost."""
    return max(round(cost_s / round_s), 1) if cost_s > 0 else 0


def python_work(n_rounds: int) -> int:
    """Counts words in a dictionary: the work of a loop in pure Python."""
    counts: dict[int, int] = {}
    for number in range(1_000 * n_rounds):
        word = (number * 7_919) % 97
        counts[word] = counts.get(word, 0) + 1
    return len(counts)


def array_work(n_rounds: int) -> float:
    """Sorts and squashes an array: the work of a decoder or an augmentation in numpy."""
    total = 0.0
    for number in range(n_rounds):
        total += float(np.tanh(np.sort(_NUMBERS))[number % 100])
    return total


def matmul_work(n_rounds: int) -> Tensor:
    """Multiplies small matrices: compute that a trace shows as operators."""
    square = torch.ones(_SQUARE, _SQUARE)
    for _ in range(n_rounds):
        square = torch.mm(square, square).clamp(max=1.0)
    return square
