"""Tables as templates print them: cells with their text, and the number by which a column is sorted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.model.documents.rank_report import TableView
from profkit.render.words import triage as text
from profkit.shell import clean

_NUMBERS: Final = ("ns", "fraction", "count", "bytes")
_QUANTITY: Final = re.compile(r"^[<*]?([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(%|[a-zA-Zµ]+)?")
_SCALES: Final = {
    "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0, "TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0, "%": 0.01,
}  # fmt: skip


_LINE_END: Final = re.compile(r": | calling |, by |, compiled$")
"""What follows a place's name in its words."""
See = Callable[[str], str]
"""A proof's key to the link that shows it, "" where nothing can be shown."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell; `raw` is the number behind the text, "" for none."""

    text: str
    raw: str = ""
    is_number: bool = False
    href: str = ""
    depth: int = 0
    """Of a tree: how far it is indented."""


def exact(said: str, value: float | str | None) -> Cell:
    """A cell whose column is sorted by the number itself, not by how it is printed."""
    return Cell(text=said, raw="" if value is None else str(value), is_number=True)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row, and what it is beside the others: "" or a class ("sum", "late")."""

    cells: tuple[Cell, ...]
    kind: str = ""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A heading."""

    text: str
    is_number: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its title; one that is in an order of its own, such as a tree, is not sortable."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    is_sortable: bool = True
    key: str = ""
    """Anchor and name for the script; "" for none."""


def of_view(view: TableView, *, title: str = "", see: See | None = None) -> Table:
    """An analyzer's table; `see` gives the link to a proof where the page has it: modules and lines have one."""
    is_number = [unit in _NUMBERS for unit in view.units]
    is_tree = any(isinstance(row[0], str) and row[0].startswith("  ") for row in view.rows)
    rows = tuple(
        Row(cells=tuple(_cell(value, unit) for value, unit in zip(row, view.units, strict=True))) for row in view.rows
    )
    if see is not None and view.headers[0] in {"module", "line"}:
        rows = _linked(rows, [str(row[0]) for row in view.rows], view.headers[0], see)
    columns = tuple(
        Column(text=clean(header), is_number=flag) for header, flag in zip(view.headers, is_number, strict=True)
    )
    return Table(title=title or view.title, columns=columns, rows=rows, note=view.note, is_sortable=not is_tree)


def _cell(value: object, unit: str) -> Cell:
    if unit in _NUMBERS or value is None:
        return Cell(text=text.cell(value, unit), raw=_raw(value), is_number=unit in _NUMBERS)
    name = str(value)
    return Cell(text=text.name_cell(name.strip()), depth=min(_depth(name), 8))


def _depth(name: str) -> int:
    return (len(name) - len(name.lstrip(" "))) // 2


def _linked(rows: Sequence[Row], names: Sequence[str], kind: str, see: See) -> tuple[Row, ...]:
    """The rows with links to what runs in each module (its path is that of the rows above) or for each line."""
    linked, path = [], list[str]()
    for row, name in zip(rows, names, strict=True):
        del path[_depth(name) :]
        path.append(name.strip())
        words = "/".join(path) if kind == "module" else _LINE_END.split(name, maxsplit=1)[0]
        first = replace(row.cells[0], href=see(f"{kind}:{words}"))
        linked.append(replace(row, cells=(first, *row.cells[1:])))
    return tuple(linked)


def _raw(value: object) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    return ""


def of_words(
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    n_left: int = 1,
    sums: Sequence[str] = (),
    **values: object,
) -> Table:
    """A table of words that all formats share: its first `n_left` columns are text, the others numbers.

    Sorted by the numbers as they are printed. `sums`: first cells of rows that add up what stands above.
    """
    columns = tuple(Column(text=clean(header), is_number=place >= n_left) for place, header in enumerate(headers))
    made = tuple(
        Row(
            cells=tuple(
                Cell(text=cell, raw=quantity(cell) if place >= n_left else "", is_number=place >= n_left)
                for place, cell in enumerate(row)
            ),
            kind="sum" if row[0] in sums else "",
        )
        for row in rows
    )
    return Table(title=title, columns=columns, rows=made, **values)  # type: ignore[arg-type]


def quantity(said: str) -> str:
    """The number that a text of `profkit.units` begins with, in base units: `1.20 ms` is 1200000; "" for no number."""
    found = _QUANTITY.match(said)
    if found is None:
        return ""
    return f"{float(found[1].replace(',', '')) * _SCALES.get(found[2] or '', 1.0):.12g}"
