"""Ranks beside each other: a bar for each, a map of who waits, and the table whose parts add up to the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.model.documents.fleet import Fleet, RankRow
from profkit.model.documents.report import Report
from profkit.model.documents.tracks import CATEGORIES, Role, Track, Tracks
from profkit.model.intervals import Intervals
from profkit.render.html.parts.bars import StackedRow, stacked
from profkit.render.html.parts.tables import Cell, Column, Row, Table, exact, of_words
from profkit.render.words import fleet as words
from profkit.render.words import triage as text
from profkit.shell import clean
from profkit.units import format_ns

_MOST: Final = 256
"""Chosen: ranks that are listed; a page of more is not read, and JSON has them all."""
_MOST_BARS: Final = 64
"""Chosen: ranks that have a bar; who is late has one in any case."""
_MOST_STEPS: Final = 60
_MOST_FIELDS: Final = 2400
"""Chosen: fields of a map, 100 bytes each in the file."""
_SHADES: Final = 9
_PARTS: Final = (
    ("data", "idle_data", "data_ns"),
    ("compute", "compute", "compute_ns"),
    ("host", "idle_host", "host_ns"),
    ("copies", "copy_exposed", "copy_ns"),
    ("device", "idle_dependency", "device_ns"),
    ("comm wait", "wait", "wait_ns"),
    ("transfer", "comm_exposed", "transfer_ns"),
)
"""What a rank's step is divided into: heading, category, field. They add up to the step."""


class HeatCell(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a map: where it lies, how dark it is (0 to 9) and what it says."""

    x: int
    y: int
    shade: int
    said: str


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks downwards; fields are 1 x 1."""

    title: str
    across: str
    rows: tuple[str, ...]
    late: tuple[int, ...]
    """Places of the rows that are late."""
    n_columns: int
    cells: tuple[HeatCell, ...]
    most: str
    """What the darkest field stands for."""


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of many ranks."""

    title: str
    bars: tuple[StackedRow, ...]
    legend: tuple[tuple[str, str], ...]
    """Category and heading of what the bars are made of."""
    heat: HeatMap | None
    table: Table
    facts: tuple[tuple[str, str], ...]
    n_left_out: int = 0


def ranks(report: Report) -> Ranks | None:
    """What ranks show together, or each of its own window; None of one rank alone."""
    fleet = report.fleet
    if fleet is None or not fleet.rows:
        return _apart(report) if len(report.ranks) > 1 else None
    rows = _chosen(fleet.rows, _MOST)
    longest = max((row.step_ns for row in rows), default=0)
    bars = [
        stacked(
            f"rank {words.ranks_cell(row.ranks)}",
            ((category, heading, getattr(row, field) or 0) for heading, category, field in _PARTS),
            longest,
            kind="late" if row.cause else "",
        )
        for row in _chosen(rows, _MOST_BARS)
    ]
    used = {segment.category for bar in bars for segment in bar.segments}
    return Ranks(
        title=words.table_title(report),
        bars=tuple(bars),
        legend=tuple((category, heading) for heading, category, _ in _PARTS if category in used),
        heat=_heat(report.tracks, rows),
        table=_table(rows),
        facts=tuple(words.facts_of(fleet, is_full=True)),
        n_left_out=len(fleet.rows) - len(rows),
    )


def _chosen(rows: Sequence[RankRow], most: int) -> list[RankRow]:
    """So many rows: of more the late ones, then the first ones, in order."""
    if len(rows) <= most:
        return list(rows)
    first = sorted(range(len(rows)), key=lambda place: (not rows[place].cause, place))[:most]
    return [rows[place] for place in sorted(first)]


def _table(rows: Sequence[RankRow]) -> Table:
    """Every rank with all its parts and their sum, the step."""
    shown = [part for part in _PARTS if any(getattr(row, part[2]) for row in rows)]
    headings = ("rank", *(heading for heading, _, _ in shown), "step", "last in")
    columns = (*(Column(text=heading, is_number=True) for heading in headings), Column(text="cause"))
    return Table(
        title="every rank: its parts add up to its step",
        columns=columns,
        rows=tuple(_row(row, [field for _, _, field in shown]) for row in rows),
        key="ranks-table",
    )


def _row(row: RankRow, fields: Sequence[str]) -> Row:
    sizes = [getattr(row, field) for field in fields]
    last = f"{row.n_last:,} of {row.n_instances:,}" if row.n_instances else "-"
    cells = (
        exact(words.ranks_cell(row.ranks), row.ranks[0]),
        *(exact("-" if size is None else format_ns(size), size) for size in (*sizes, row.step_ns)),
        exact(last, row.n_last),
        Cell(text=clean(row.cause)),
    )
    return Row(cells=cells, kind="late" if row.cause else "")


def _heat(tracks: Sequence[Tracks], ranks: Sequence[RankRow]) -> HeatMap | None:
    """How long each rank waits in each step, where the intervals are known and there are steps to compare."""
    late = {rank for row in ranks if row.cause for rank in row.ranks}
    labels, waits, names = [], [], tuple[str, ...]()
    most_steps = min(_MOST_STEPS, max(_MOST_FIELDS // max(len(tracks), 1), 2))
    for one in tracks[:_MOST]:
        marked = next((track for track in one.tracks if track.role is Role.STEPS), None)
        if marked is None or one.rank is None or len(marked) < 2:
            return None
        labels.append(one.rank)
        waits.append(_waited(one, marked)[:most_steps])
        names = tuple(one.names[name] for name in marked.name.tolist())
    if not waits or len({len(row) for row in waits}) > 1 or not (most := max(map(max, waits))):
        return None
    return HeatMap(
        title="waits for other ranks, by step",
        across="steps from left to right",
        rows=tuple(map(str, labels)),
        late=tuple(y for y, rank in enumerate(labels) if rank in late),
        n_columns=len(waits[0]),
        cells=tuple(
            HeatCell(x=x, y=y, shade=-(-size * _SHADES // most), said=f"rank {rank}, {names[x]}: {format_ns(size)}")
            for y, (rank, row) in enumerate(zip(labels, waits, strict=True))
            for x, size in enumerate(row)
        ),
        most=format_ns(most),
    )


def _waited(one: Tracks, marked: Track) -> list[int]:
    """The time of each step in which a collective waits for another rank, ns."""
    code = CATEGORIES.index("wait")
    shared = [track for track in one.tracks if track.role is Role.COLLECTIVES]
    start, end = (
        np.concatenate([np.array([], np.int64), *(column[track.category == code] for track, column in columns)])
        for columns in ([(track, track.start_ns) for track in shared], [(track, track.end_ns) for track in shared])
    )
    waits = Intervals.of(start, end)
    edges = np.append(marked.start_ns, marked.end_ns[-1:])
    waited: list[int] = waits.covered_ns(edges[:-1], edges[1:]).tolist()
    return waited


def _apart(report: Report) -> Ranks:
    """Ranks that were not judged together: shares of each one's own window."""
    title, headers, rows = text.rank_table(report.ranks)
    rows = rows[:_MOST]
    bars = []
    for rank, (label, *_) in zip(report.ranks, rows, strict=False):
        device = text.main_device(rank)
        if device is None:
            continue
        said = text.labels_of(device)
        parts = ((name, said[name], size) for name, size in device.budget.parts.items())
        bars.append(stacked(label, parts, device.budget.window_ns))
    found = {segment.category: segment.label for bar in bars for segment in bar.segments}
    return Ranks(
        title=title,
        bars=tuple(bars),
        legend=tuple(found.items()),
        heat=None,
        table=of_words("", headers, rows, key="ranks-table"),
        facts=(),
        n_left_out=len(report.ranks) - len(rows),
    )


def groups_of(fleet: Fleet) -> Table | None:
    """The process groups with what their collectives cost; None without any."""
    if not fleet.groups:
        return None
    columns = tuple(
        Column(text=heading, is_number=place > 1)
        for place, heading in enumerate(("group", "ranks", "collectives", "wait", "transfer", "exposed"))
    )
    rows = tuple(
        Row(
            cells=(
                Cell(text=clean(group.name) or "all ranks"),
                Cell(text=words.ranks_cell(group.ranks)),
                exact(f"{group.n_instances:,}", group.n_instances),
                *(exact(format_ns(size), size) for size in (group.wait_ns, group.transfer_ns, group.exposed_ns)),
            )
        )
        for group in fleet.groups
    )
    return Table(title="process groups, sums over all collectives", columns=columns, rows=rows)
