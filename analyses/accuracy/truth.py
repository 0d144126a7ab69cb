"""What is right to say of a cell, by what removing its pathology measurably gave and never by the name of the fault."""

from __future__ import annotations

from typing import Final

import msgspec

from analyses.accuracy.cell import CellResult, Said

LARGE: Final = 0.10
"""Measured gain from which the class of the pathology alone is right. Chosen: a gain that one would act on."""
SMALL: Final = 0.03
"""Measured gain below which naming the pathology is a false alarm. Chosen: less than runs of a program differ by."""

HEALTHY: Final = "healthy"
WORK: Final = frozenset({"kernel-bound", HEALTHY})
"""Verdicts that blame nothing but the work itself: never a false alarm."""
SILENT: Final = frozenset({"inconclusive", ""})
"""What a tool says that names no bottleneck."""
AT_WORK: Final = "the work itself"
"""The name in tables of what is right where nothing but the work takes time."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts that are right of a cell. `name` is the row of the confusion matrix, "" where either is right."""

    right: frozenset[str]
    name: str
    is_quiet: bool
    """Whether removing the pathology gives next to nothing: any other bottleneck that is named is a false alarm."""
    is_sharp: bool
    """Whether the whole interval of the measured gain leads to this truth."""

    @property
    def is_costly(self) -> bool:
        """Whether removing something else than the work itself saves much."""
        return not self.is_quiet and bool(self.name) and self.name not in WORK


def removes_nothing(cell: CellResult) -> bool:
    """Whether the cell has no pathology that could be removed: a gain measured of it is noise."""
    return cell.kind == "healthy" or cell.dose == "none"


def truth(cell: CellResult) -> Truth | None:
    """What is right to say of a cell; None: it failed, or its gain was not measured."""
    if cell.error:
        return None
    if removes_nothing(cell):
        return _quiet(cell, is_sharp=True)
    if cell.gain is None:
        return None
    low, high = cell.gain_interval or (cell.gain, cell.gain)
    if cell.gain >= LARGE:
        return Truth(right=frozenset({cell.expected}), name=cell.expected, is_quiet=False, is_sharp=low >= LARGE)
    if cell.gain < SMALL:
        return _quiet(cell, is_sharp=high < SMALL)
    either = base_of(cell) | {cell.expected}
    return Truth(right=either, name="", is_quiet=False, is_sharp=low >= SMALL and high < LARGE)


def base_of(cell: CellResult) -> frozenset[str]:
    """The verdicts that are right of the cell's program without the pathology."""
    words = frozenset(filter(None, cell.base.split("|")))
    return words | WORK if not words or words & WORK else words


def answer(said: Said) -> str:
    """The one word of a tool's answer."""
    return HEALTHY if said.is_healthy else said.bottleneck


def named(said: Said) -> tuple[str, ...]:
    """The first three classes that an answer names: its verdict's, then those of its findings."""
    one = answer(said)
    words = [*([] if one in SILENT else [one]), *(word for word in said.classes if word and word not in SILENT)]
    return tuple(dict.fromkeys(words))[:3]


def _quiet(cell: CellResult, *, is_sharp: bool) -> Truth:
    right = base_of(cell)
    name = AT_WORK if right == WORK else "" if len(right) > 1 else cell.base
    return Truth(right=right, name=name, is_quiet=True, is_sharp=is_sharp)
