"""Rows shortened to what a page has room for: the long intervals stay, what is short between them is joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.model.arrays import I64
from profkit.model.documents.tracks import CATEGORIES, Track

ROOM: Final = 200_000
"""Chosen: intervals of all ranks together. A page then has about 1 MB of them, and pans at 60 frames per second."""
_LEAST: Final = 64
"""What any row has room for."""
_GAPS: Final = 2048
"""Chosen: a gap of more than this part of the row ends a joined interval, since it can be seen."""


def in_room(tracks: Sequence[Track], room: int) -> tuple[Track, ...]:
    """The rows with about `room` intervals together, each with `_LEAST` or more; the short rows stay whole."""
    sizes = np.array([len(track) for track in tracks], np.int64)
    if sizes.sum() <= room:
        return tuple(tracks)
    cap = _cap(sizes, room)
    return tuple(track if len(track) <= cap else reduced(track, cap) for track in tracks)


def _cap(sizes: I64, room: int) -> int:
    """The most that one row may have for all to fit: what short rows leave is shared by the long ones."""
    left = room
    for n_left, size in zip(range(sizes.size, 0, -1), np.sort(sizes).tolist(), strict=True):
        if size * n_left > left:
            return max(left // n_left, _LEAST)
        left -= size
    return int(sizes.max(initial=0))


def reduced(track: Track, most: int) -> Track:
    """The row with `most` intervals or a few more: its longest ones as they are, the rest joined where it is dense."""
    length = track.end_ns - track.start_ns
    kept = np.zeros(length.size, np.bool_)
    kept[np.argpartition(-length, most // 2)[: most // 2]] = True
    for widest in range(_GAPS.bit_length(), -1, -1):
        gap = int(track.end_ns[-1] - track.start_ns[0]) >> widest
        joined = _joined(track, kept, gap)
        if len(joined) <= most:
            return joined
    return _joined(track, np.zeros(length.size, np.bool_), int(track.end_ns[-1] - track.start_ns[0]))


def _joined(track: Track, kept: np.ndarray[tuple[int], np.dtype[np.bool_]], gap: int) -> Track:
    """Runs of intervals that are not `kept`, with gaps of at most `gap` ns between them, as one each."""
    start, end, length = track.start_ns, track.end_ns, track.end_ns - track.start_ns
    is_first = np.ones(start.size, np.bool_)
    is_first[1:] = kept[1:] | kept[:-1] | (start[1:] - end[:-1] > gap)
    first = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    last = np.append(first[1:], start.size) - 1
    cells = group * len(CATEGORIES) + track.category
    spent = np.bincount(cells, length, first.size * len(CATEGORIES)).reshape(first.size, -1)
    single = first == last
    return replace(
        track,
        start_ns=start[first],
        end_ns=end[last],
        name=np.where(single, track.name[first], -1).astype(np.int32),
        category=np.where(single, track.category[first], spent.argmax(axis=1)).astype(np.uint8),
        is_reduced=True,
    )
