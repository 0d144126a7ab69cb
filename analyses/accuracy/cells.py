"""The list of cells: every family with every dose of every pathology that it can have, decoys and healthy ones."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from analyses.accuracy.cell import CellResult
from analyses.accuracy.programs.registry import FAMILIES, PATHOLOGIES

_PLAIN_SEEDS: Final = 3
"""Runs of each family without a pathology. Chosen: false alarms are told from such cells, and jitter alone is few."""
QUICK: Final = 20
"""Cells of a quick run: some 20 s each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A program to run."""

    family: str
    pathology: str
    dose: str
    seed: int = 0

    @property
    def key(self) -> str:
        """The cell's name."""
        return f"{self.family}/{self.pathology}/{self.dose}/{self.seed}"

    @property
    def n_ranks(self) -> int:
        """How many ranks the program has; torchrun starts several."""
        return FAMILIES[self.family].n_ranks

    @property
    def slug(self) -> str:
        """The name as that of a folder."""
        return self.key.replace("/", "-")

    def flags(self) -> list[str]:
        """Gives the arguments of `analyses.accuracy.program`."""
        named = {"family": self.family, "pathology": self.pathology, "dose": self.dose, "seed": str(self.seed)}
        return [part for name, value in named.items() for part in (f"--{name}", value)]

    def row(self) -> CellResult:
        """Gives the row of results as far as it is known before the cell has run."""
        kind = PATHOLOGIES[self.pathology]
        return CellResult(
            key=self.key,
            family=self.family,
            pathology=self.pathology,
            dose=self.dose,
            kind=kind.kind,
            seed=self.seed,
            n_ranks=self.n_ranks,
            expected=kind.expected,
            base=FAMILIES[self.family].base,
            late_rank=kind.late_rank,
            expected_finding=kind.finding,
        )


def cells() -> list[Cell]:
    """Gives all cells in the order in which they run, which is drawn.

    A run that is cut short is a fair sample: of each pathology it has about the same share of its cells.
    """
    listed = [Cell(family=family, pathology="plain", dose="none", seed=seed) for family, seed in _plain()]
    listed += [Cell(family=family, pathology=name, dose=dose) for family, name, dose in _dosed()]
    draw = random.Random(0)  # noqa: S311 - an order needs a seed, not a secret
    draw.shuffle(listed)
    n_all, n_seen, turns = Counter(cell.pathology for cell in listed), Counter[str](), {}
    for cell in listed:
        turns[cell] = (n_seen[cell.pathology] + draw.random()) / n_all[cell.pathology]
        n_seen[cell.pathology] += 1
    return sorted(listed, key=lambda cell: turns[cell])


def _plain() -> Iterator[tuple[str, int]]:
    for family in FAMILIES:
        for seed in range(_PLAIN_SEEDS):
            yield family, seed


def _dosed() -> Iterator[tuple[str, str, str]]:
    for family, program in FAMILIES.items():
        for name, kind in PATHOLOGIES.items():
            if name != "plain" and (family in kind.families if kind.families else program.n_ranks == 1):
                for dose in kind.doses:
                    yield family, name, dose


def matching(pattern: str) -> list[Cell]:
    """Gives the cells in whose key the pattern, a regular expression, is found."""
    return [cell for cell in cells() if re.search(pattern, cell.key)]
