"""Rows of several ranks joined by a key they share: by sequence number, in steps, or by turn between others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from profkit.model.arrays import I64, Bool
from profkit.model.table import NO_ROW


class RankSequence(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's collectives of one group, in order of issue; `symbol` is equal where kind, type and sizes are."""

    row: I64
    symbol: I64
    seq: I64
    start_ns: I64
    end_ns: I64
    step_number: I64
    is_synchronising: Bool
    """Per row whether its end can be compared."""


def joined_by_seq(sequences: Sequence[RankSequence]) -> tuple[I64, float] | None:
    """Join by sequence number: per number the position on each rank [n, R], and the share with equal symbols.

    The others are left out. None where some rank has no numbers, or repeats them (replays of a captured graph do).
    """
    keys = [sequence.seq for sequence in sequences]
    if any((key < 0).any() or np.unique(key).size != key.size for key in keys):
        return None
    distinct = np.unique(np.concatenate(keys))
    place = np.full((distinct.size, len(keys)), NO_ROW, np.int64)
    for column, key in enumerate(keys):
        place[np.searchsorted(distinct, key), column] = np.arange(key.size)
    place = place[(place >= 0).sum(axis=1) > 1]
    seen = np.stack([sequence.symbol[rows] for sequence, rows in zip(sequences, place.T, strict=True)], axis=1)
    highest = np.where(place >= 0, seen, np.iinfo(np.int64).min).max(axis=1)
    agree = highest == np.where(place >= 0, seen, np.iinfo(np.int64).max).min(axis=1)
    return place[agree], float(agree.mean()) if agree.size else 0.0


def joined_in_steps(sequences: Sequence[RankSequence]) -> I64 | None:
    """Join by step number, symbol and ordinal among these; only steps in which all ranks have as many of a symbol.

    None where no step qualifies. Rows outside of steps (number -1) stay alone.
    """
    inside = [np.flatnonzero(sequence.step_number >= 0) for sequence in sequences]
    keys = [
        np.stack([sequence.step_number[rows], sequence.symbol[rows]], axis=1)
        for sequence, rows in zip(sequences, inside, strict=True)
    ]
    place = joined_by_ordinal(keys, needs_all=True)
    return translated(place, inside) if len(place) else None


def joined_in_turn(sync_place: Sequence[I64], sequences: Sequence[RankSequence]) -> I64:
    """Join all rows where the synchronising ones are joined: the others by symbol and turn between two of these.

    `sync_place`: per rank and reference instance the position among its synchronising rows. Only stretches in which
    the ranks that have any have equally many are joined. Instances are in the reference's order, the others behind.
    """
    sync_rows = [np.flatnonzero(sequence.is_synchronising) for sequence in sequences]
    matched = np.stack(list(sync_place), axis=1)
    matched = matched[(matched >= 0).sum(axis=1) > 1]
    first = translated(matched, sync_rows)
    rest = [np.flatnonzero(~sequence.is_synchronising) for sequence in sequences]
    keys = []
    for column, (sequence, rows) in enumerate(zip(sequences, rest, strict=True)):
        anchors = np.flatnonzero(first[:, column] >= 0)
        before = np.searchsorted(np.sort(first[anchors, column]), rows)
        order = anchors[np.argsort(first[anchors, column], kind="stable")]
        anchor = np.append(order, -1)[before - 1]  # before 0: none, the one appended
        keys.append(np.stack([anchor, sequence.symbol[rows]], axis=1))
    second = translated(joined_by_ordinal(keys, needs_all=False), rest)
    return np.concatenate((first, second))


def translated(place: I64, rows: Sequence[I64]) -> I64:
    """Turn positions in subsets of rows to positions in all."""
    out = np.full(place.shape, NO_ROW, np.int64)
    for column, mine in enumerate(rows):
        there = place[:, column] >= 0
        out[there, column] = mine[place[there, column]]
    return out


def joined_by_ordinal(keys: Sequence[I64], *, needs_all: bool) -> I64:
    """Join rows of equal keys [n, 2] by ordinal, where the ranks that have the key have it equally often."""
    sizes = [len(key) for key in keys]
    if sum(sizes) == 0:
        return np.empty((0, len(keys)), np.int64)
    distinct, inverse = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    codes = np.split(inverse.reshape(-1), np.cumsum(sizes)[:-1])
    counts = np.stack([np.bincount(code, minlength=len(distinct)) for code in codes], axis=1)
    most = counts.max(axis=1)
    has = counts > 0
    good = ((counts == most[:, None]) | ~has).all(axis=1) & (has.sum(axis=1) > 1)
    if needs_all:
        good &= has.all(axis=1)
    base = np.cumsum(np.where(good, most, 0)) - np.where(good, most, 0)
    place = np.full((int(most[good].sum()), len(keys)), NO_ROW, np.int64)
    for column, code in enumerate(codes):
        order = np.argsort(code, kind="stable")
        ordinal = np.empty(code.size, np.int64)
        ordinal[order] = np.arange(code.size) - np.searchsorted(code[order], code[order])
        kept = np.flatnonzero(good[code])
        place[base[code[kept]] + ordinal[kept], column] = kept
    return place
