"""The rows of results.jsonl: one finished cell a line, the last line of a key counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from analyses.accuracy.cell import CellResult, Said

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE / "results.jsonl"
ANSWERS: Final = "answers"
"""The folder beside the results that holds what tools said which are not asked with each cell: NAME.jsonl."""
_T = TypeVar("_T")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file that holds what another tool said of each cell."""

    key: str
    said: Said


CONSTANT: Final = "constant"
_ALWAYS: Final = Said(bottleneck="kernel-bound", headline="the work itself takes the time")
"""What a tool would say that looks at nothing: what most programs of the benchmark are without a problem."""


def read_rows(path: Path) -> list[CellResult]:
    """The cells of a file, sorted by key; none where there is no file. Raises ValueError for a line that is no cell.

    A last line without its end is left out: the run was stopped while it wrote.
    """
    if not path.exists():
        return []
    cells = {cell.key: cell for cell in _decoded(path, CellResult)}
    return [cells[key] for key in sorted(cells)]


def with_all(path: Path) -> list[CellResult]:
    """The cells of a file, with the answers in the folder beside it; answers to other cells are left out."""
    cells = [replace(cell, tools={**cell.tools, CONSTANT: _ALWAYS}) for cell in read_rows(path)]
    for answers in sorted((path.parent / ANSWERS).glob("*.jsonl")):
        cells = with_answers(cells, answers.stem, answers, is_strict=False)
    return cells


def with_answers(cells: Sequence[CellResult], name: str, path: Path, *, is_strict: bool = True) -> list[CellResult]:
    """Cells with another tool's answers beside the others. Raises ValueError for a key that is no cell's."""
    said: Mapping[str, Said] = {one.key: one.said for one in read_answers(path)}
    if is_strict and (unknown := sorted(said.keys() - {cell.key for cell in cells})):
        raise ValueError(f"{path} answers {unknown[0]}, which is no cell of the results")
    return [replace(cell, tools={**cell.tools, name: said[cell.key]}) if cell.key in said else cell for cell in cells]


def read_answers(path: Path) -> list[Answer]:
    """The answers of a file. Raises OSError, and ValueError for a line that is no answer."""
    return _decoded(path, Answer)


def tools_of(cells: Iterable[CellResult]) -> tuple[str, ...]:
    """The tools that were asked, profkit first."""
    names = {name for cell in cells for name in cell.tools}
    return tuple(sorted(names, key=lambda name: (name != "profkit", name)))


def _decoded(path: Path, kind: type[_T]) -> list[_T]:
    lines = path.read_bytes().split(b"\n")[:-1]
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(msgspec.json.decode(line, type=kind))
            except msgspec.MsgspecError as error:
                raise ValueError(f"line {number} of {path}: {error}") from error
    return rows
