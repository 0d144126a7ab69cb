"""Rows of intervals as a still picture: what stands where the script does not run, and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, coverage
from profkit.model.budget import PARTS
from profkit.model.documents.tracks import CATEGORIES, Role, Track, Tracks
from profkit.render.html.data import shifts_of
from profkit.render.html.parts.bars import Segment, percent
from profkit.render.html.parts.tables import See
from profkit.units import format_bytes, format_ns

_COLUMNS: Final = 400
"""Chosen: pieces that a row is cut into; finer than a printed page shows."""
_MOST_ROWS: Final = 12
_MOST_RANKS: Final = 32
_ROLES: Final = (Role.STEPS, Role.BUDGET, Role.HOST, Role.STREAM, Role.COLLECTIVES)
_BUSY: Final = 0.05
"""Chosen: a piece that is busy for less is drawn empty."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the picture."""

    label: str
    segments: tuple[Segment, ...]


class Still(msgspec.Struct, frozen=True, kw_only=True):
    """The picture: rows, and the length of time that is their width."""

    lanes: tuple[Lane, ...]
    width: str


def still(tracks: Sequence[Tracks]) -> Still | None:
    """The rows of one rank, or the budget of each of many; None without any."""
    if not tracks:
        return None
    shifts = shifts_of(tracks)
    length = max(one.window_ns[1] - one.window_ns[0] + shift for one, shift in zip(tracks, shifts, strict=True))
    lanes = [
        Lane(
            label=f"rank {one.rank}" if len(tracks) > 1 else track.label,
            segments=_pieces(track, one.window_ns[0] - shift, one.window_ns[0] - shift + length),
        )
        for one, shift in zip(tracks[:_MOST_RANKS], shifts, strict=False)
        for track in _chosen(one, is_alone=len(tracks) == 1)
    ]
    return Still(lanes=tuple(lanes), width=format_ns(length)) if lanes else None


def _chosen(one: Tracks, *, is_alone: bool) -> list[Track]:
    if not is_alone:
        return [track for track in one.tracks if track.role is Role.BUDGET][:1]
    return [track for track in one.tracks if track.role in _ROLES][:_MOST_ROWS]


def _pieces(track: Track, low: int, high: int) -> tuple[Segment, ...]:
    """The category that has most of each piece, like neighbours joined."""
    edges = low + (np.arange(_COLUMNS + 1) * (high - low)) // _COLUMNS
    inside = time_inside(track, edges)
    strongest = inside.argmax(axis=0)
    strongest[inside.sum(axis=0) < _BUSY * np.diff(edges)] = -1
    cuts = np.flatnonzero(np.diff(strongest)) + 1
    starts, ends = np.append(0, cuts), np.append(cuts, _COLUMNS)
    return tuple(
        Segment(
            category=CATEGORIES[strongest[start]],
            x=percent(int(start), _COLUMNS),
            width=percent(int(end - start), _COLUMNS),
        )
        for start, end in zip(starts, ends, strict=True)
        if strongest[start] >= 0
    )


def time_inside(track: Track, edges: I64) -> NDArray[np.int64]:
    """Time of each category between neighbouring edges: ns, shape (categories, edges - 1)."""
    codes = [track.category == code for code in range(len(CATEGORIES))]
    sets = [(track.start_ns[mine], track.end_ns[mine]) for mine in codes]
    return np.array([np.diff(coverage(each, edges)) for each in sets], dtype=np.int64)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a column: its segments from the bottom, positions in percent of the longest step."""

    label: str
    time: str
    x: str
    width: str
    y: str
    height: str
    segments: tuple[Segment, ...]
    """`x` and `width` are of the height here, counted from the top."""
    href: str = ""


_WIDEST: Final = 9.0
"""Chosen: percent of the width that a step takes at most."""
_MOST_STEPS: Final = 240
"""Chosen: columns that a screen still shows apart."""


def steps(durations_ns: Sequence[int], drawn: Tracks | None, see: See) -> tuple[Step, ...]:
    """The steps of a rank, each with its budget where intervals are known; of very many the first ones."""
    shown = durations_ns[:_MOST_STEPS]
    longest = max(shown, default=0)
    if not longest:
        return ()
    parts, names = _parts_of_steps(durations_ns, drawn), _names_of_steps(len(durations_ns), drawn)
    room = min(100 / len(shown), _WIDEST)
    return tuple(
        Step(
            label=names[index],
            time=format_ns(size),
            x=f"{room * index + 0.1 * room:.3f}%",
            width=f"{0.8 * room:.3f}%",
            y=percent(longest - size, longest),
            height=percent(size, longest),
            segments=() if parts is None else _column(parts[:, index], longest),
            href=see(f"step:{index}"),
        )
        for index, size in enumerate(shown)
    )


def _names_of_steps(n_steps: int, drawn: Tracks | None) -> Sequence[str]:
    """What the steps are called in the rows that are drawn; else by their place."""
    marked = [] if drawn is None else [track for track in drawn.tracks if track.role is Role.STEPS]
    if drawn is None or not marked or len(marked[0]) != n_steps:
        return [f"step {index + 1} of {n_steps}" for index in range(n_steps)]
    return [drawn.names[name] for name in marked[0].name.tolist()]


def _parts_of_steps(durations_ns: Sequence[int], drawn: Tracks | None) -> NDArray[np.int64] | None:
    """Time of each category in each step (ns), where the row of steps is that of the report."""
    if drawn is None:
        return None
    marked = next((track for track in drawn.tracks if track.role is Role.STEPS), None)
    budget = next((track for track in drawn.tracks if track.role is Role.BUDGET), None)
    if marked is None or budget is None or len(marked) != len(durations_ns):
        return None
    end = marked.start_ns + np.array(durations_ns)  # the next step's start: a marker ends a little earlier
    if (end[:-1] > marked.start_ns[1:]).any():
        return None
    return time_inside(budget, np.column_stack([marked.start_ns, end]).ravel())[:, ::2]


def _column(parts: NDArray[np.int64], longest: int) -> tuple[Segment, ...]:
    segments, below = [], 0
    for code, size in enumerate(parts.tolist()):
        if size and CATEGORIES[code] in PARTS:
            below += size
            segments.append(
                Segment(
                    category=CATEGORIES[code],
                    x=percent(longest - below, longest),
                    width=percent(size, longest),
                    time=format_ns(size),
                    raw_ns=size,
                )
            )
    return tuple(segments)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A curve as the points of a line, 1000 wide and 160 high."""

    label: str
    points: str
    most: str
    width: str


def curves(drawn: Tracks | None) -> tuple[Line, ...]:
    """The curves of a rank, such as its memory: of each piece of time the highest value."""
    if drawn is None:
        return ()
    low, high = drawn.window_ns
    edges = low + (np.arange(_COLUMNS + 1) * (high - low)) // _COLUMNS
    made = []
    for one in drawn.curves:
        most = int(one.value.max(initial=0))
        if most <= 0 or one.unit != "bytes":
            continue
        first = np.maximum(np.searchsorted(one.at_ns, edges[:-1], side="right") - 1, 0)
        after = np.maximum(np.searchsorted(one.at_ns, edges[1:], side="left"), first + 1)
        highest = [int(one.value[start:end].max()) for start, end in zip(first, after, strict=True)]
        points = " ".join(
            f"{1000 * (x + 0.5) / _COLUMNS:.1f},{160 - 156 * y / most:.1f}" for x, y in enumerate(highest)
        )
        made.append(Line(label=one.label, points=points, most=format_bytes(most), width=format_ns(high - low)))
    return tuple(made)
