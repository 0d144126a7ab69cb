"""ncu's CSV pages to profiles: details (one row per metric), raw (one row per launch), summaries.

`ncu --csv` writes between whatever the program prints, so a row is what fits under the header; the rest is skipped and
counted. Rule rows are longer than metric rows, and both are shorter than the header in some versions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from profkit.ingest.ncu.values import (
    METRIC_NAME,
    OWN_WORDS,
    Cell,
    capability_of,
    measured,
    metric_for,
    number_in,
    share_of,
    uses_decimal_comma,
)
from profkit.model.kernel import KernelProfile, Rule
from profkit.model.names import function_name

_MAX_JOINED: Final = 64  # lines of one quoted cell: more is a stray quote in what the program printed
_MIN_CELLS: Final = 5  # quoted cells that make a line a record of its own (chosen: the shortest page has 13)
_MAX_FIELD: Final = 2**20
_SIZE: Final = re.compile(r"(\d{1,12})[, x]+(\d{1,12})[, x]+(\d{1,12})")
_MAX_DIGITS: Final = 15
_SUMMED: Final = ("Block Size", "Grid Size", "Device", "Stream", "Context")  # what tells rows of a summary apart

Row = dict[str, str]


class CsvPage(msgspec.Struct):
    """What a file held: its profiles, and lines among them that were none of ncu's."""

    profiles: list[KernelProfile] = msgspec.field(default_factory=list)
    n_skipped: int = 0


class _Open(msgspec.Struct):
    """A launch while its rows are gathered."""

    row: Row
    cells: list[Cell] = msgspec.field(default_factory=list)
    rules: list[Row] = msgspec.field(default_factory=list)


def is_header(line: str) -> bool:
    """Whether a line begins a CSV page of ncu."""
    csv.field_size_limit(_MAX_FIELD)
    if "Kernel Name" not in line or "," not in line:
        return False
    names = _split(line)
    return names is not None and "Kernel Name" in names and ("Metric Name" in names or _is_raw(names))


def read_csv(lines: Iterable[str], source: str) -> CsvPage:
    """The launches of every CSV page in the lines; several runs may stand in one file."""
    page = CsvPage()
    launches: dict[tuple[object, ...], _Open] = {}
    header: list[str] = []
    is_raw = False  # kept beside the header: asking a header of 10,000 columns at each row takes minutes
    units: list[str] | None = None
    n_pages = 0
    for cells in _records(lines):
        if "Kernel Name" in cells and ("Metric Name" in cells or _is_raw(cells)):
            header, is_raw, units, n_pages = cells, _is_raw(cells), None, n_pages + 1
        elif not header:
            continue
        elif is_raw:
            if units is None:
                units = cells if len(cells) == len(header) and not cells[header.index("Kernel Name")] else []
                if units:
                    continue
            launch = _raw_launch(header, units, cells)
            if launch is None:
                page.n_skipped += 1
            else:
                launches[n_pages, len(launches)] = launch
        else:
            page.n_skipped += not _gather(header, cells, n_pages, launches)
    comma = uses_decimal_comma(value for launch in launches.values() for _, _, value in launch.cells)
    page.profiles = [_profile(launch, place, source, comma=comma) for place, launch in enumerate(launches.values())]
    return page


def _is_raw(names: Sequence[str]) -> bool:
    return "Metric Name" not in names and any(METRIC_NAME.fullmatch(name) for name in names)


def _records(lines: Iterable[str]) -> Iterator[list[str]]:
    """The cells of each record; a quoted cell may go on over lines."""
    held: list[str] = []
    csv.field_size_limit(_MAX_FIELD)
    for line in lines:
        if OWN_WORDS.match(line):
            continue
        if not held and "," not in line and '"' not in line:  # what the program printed: no row has one cell
            if line.strip():
                yield [line]
            continue
        if held and (len(held) == _MAX_JOINED or _is_whole(line)):  # the quote was a stray one
            yield from filter(None, map(_split, held))
            held = []
        held.append(line)
        is_open = held[0].startswith('"') and sum(part.count('"') for part in held) % 2 == 1
        if not is_open:
            yield from filter(None, [_split("\n".join(held))])
            held = []
    yield from filter(None, map(_split, held))


def _is_whole(line: str) -> bool:
    return line.startswith('"') and line.count('"') % 2 == 0 and line.count('","') >= _MIN_CELLS


def _split(text: str) -> list[str] | None:
    try:
        return next(csv.reader([text] if "\n" not in text else text.splitlines(keepends=True)), None)
    except csv.Error:
        return None


def _gather(header: list[str], cells: list[str], page: int, launches: dict[tuple[object, ...], _Open]) -> bool:
    """Take a row of a long page; give whether it was one."""
    if len(cells) == 1:
        return False
    row = dict(zip(header, cells, strict=False))  # metric rows end before the columns of rules
    needed = "Metric Value" if "Metric Value" in header else "Average"
    if needed not in row and "Rule Name" not in row:
        return False
    number = row.get("ID", "")
    if ("ID" in header and not number.isdigit()) or not row.get("Kernel Name"):
        return False
    # An ID is that of a launch within its process, whatever else a row says: rules may stand beside another stream.
    named = ("Process ID", "Host Name") if number else ("Process ID", "Host Name", "Kernel Name", *_SUMMED)
    launch = launches.setdefault((page, number, *(row.get(name, "") for name in named)), _Open(row=row))
    label, unit = row.get("Metric Name", ""), row.get("Metric Unit", "")
    if label:
        launch.cells.append((metric_for(label, unit, row.get("Section Name", "")), unit, row.get(needed, "")))
    elif row.get("Rule Name"):
        launch.rules.append(row)
    return True


def _raw_launch(header: list[str], units: list[str], cells: list[str]) -> _Open | None:
    """The launch of a row of the raw page; None where it is none."""
    row = dict(zip(header, cells, strict=True)) if len(cells) == len(header) else {}
    if not row.get("Kernel Name"):
        return None
    given = dict(zip(header, units, strict=False))
    cells_of = [(name, given.get(name, ""), value) for name, value in row.items() if METRIC_NAME.fullmatch(name)]
    return _Open(row=row, cells=cells_of)


def _rule(row: Row, *, comma: bool) -> Rule:
    percent = number_in(row.get("Estimated Speedup", ""), has_decimal_comma=comma)
    return Rule(
        id=row["Rule Name"],
        kind=row.get("Rule Type", ""),
        message=row.get("Rule Description", ""),
        speedup_fraction=share_of(percent),
        speedup_scope=row.get("Estimated Speedup Type", ""),
    )


def _profile(launch: _Open, place: int, source: str, *, comma: bool) -> KernelProfile:
    row = launch.row
    found = measured(launch.cells, has_decimal_comma=comma)
    number, name = _whole(row.get("ID", "")), row["Kernel Name"]
    return KernelProfile(
        source=source,
        number=place if number is None else number,
        name=name,
        function=function_name(name),
        grid=_size(row.get("Grid Size", "")),
        block=_size(row.get("Block Size", "")),
        process_id=_whole(row.get("Process ID", "")),
        device=_whole(row.get("Device", "")),
        device_name=found.texts.get("device__attribute_display_name", ""),
        compute_capability=row.get("CC", "") or capability_of(found.metrics),
        n_launches=_whole(row.get("Invocations", "")) or 1,
        metrics=found.metrics,
        unmeasured=tuple(found.unmeasured),
        rules=tuple(_rule(rule, comma=comma) for rule in launch.rules),
    )


def _size(text: str) -> tuple[int, int, int] | None:
    match = _SIZE.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
