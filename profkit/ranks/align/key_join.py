"""Rows of several ranks joined by a key they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from profkit.model.arrays import I64, Bool
from profkit.model.table import NO_ROW


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """`place` [n, R]: per key at least two ranks have, the position on each; `agreeing`: share with equal symbols."""

    place: I64
    agreeing: float


class Sequenced(Protocol):
    """What `joined_in_turn` needs of a rank's sequence."""

    @property
    def symbol(self) -> I64:
        """Per row a number that is equal where kind, type and sizes are."""
        ...

    @property
    def is_synchronising(self) -> Bool:
        """Per row whether its end was compared."""
        ...


def joined(keys: Sequence[I64], symbols: Sequence[I64]) -> Keyed:
    """Join ranks by keys that are unique on each; keys whose symbols differ are left out."""
    distinct = np.unique(np.concatenate(keys))
    place = np.full((distinct.size, len(keys)), NO_ROW, np.int64)
    for column, key in enumerate(keys):
        place[np.searchsorted(distinct, key), column] = np.arange(key.size)
    shared = (place >= 0).sum(axis=1) > 1
    place = place[shared]
    agree = _symbols_agree(place, symbols)
    return Keyed(place=place[agree], agreeing=float(agree.mean()) if agree.size else 0.0)


def _symbols_agree(place: I64, symbols: Sequence[I64]) -> Bool:
    seen = np.stack([symbol[column] for symbol, column in zip(symbols, place.T, strict=True)], axis=1)
    highest = np.where(place >= 0, seen, np.iinfo(np.int64).min).max(axis=1)
    lowest = np.where(place >= 0, seen, np.iinfo(np.int64).max).min(axis=1)
    agree: Bool = highest == lowest
    return agree


def joined_in_steps(step_numbers: Sequence[I64], symbols: Sequence[I64]) -> I64 | None:
    """Join by step number, symbol and ordinal among these; only steps in which all ranks have as many of a symbol.

    None where no step qualifies. Rows outside of steps (number -1) stay alone.
    """
    inside = [np.flatnonzero(number >= 0) for number in step_numbers]
    keys = [
        np.stack([number[rows], symbol[rows]], axis=1)
        for number, symbol, rows in zip(step_numbers, symbols, inside, strict=True)
    ]
    place = joined_by_ordinal(keys, needs_all=True)
    if not len(place):
        return None
    return _translated(place, inside)


def joined_in_turn(sync_place: Sequence[I64], sequences: Sequence[Sequenced]) -> I64:
    """Join all rows where the synchronising ones are joined: the others by symbol and turn between two of these.

    `sync_place`: per rank and reference instance the position among its synchronising rows. Only stretches in which
    the ranks that have any have equally many are joined. Instances are in the reference's order, the others behind.
    """
    sync_rows = [np.flatnonzero(sequence.is_synchronising) for sequence in sequences]
    matched = np.stack(list(sync_place), axis=1)
    matched = matched[(matched >= 0).sum(axis=1) > 1]
    first = _translated(matched, sync_rows)
    rest = [np.flatnonzero(~sequence.is_synchronising) for sequence in sequences]
    keys = []
    for column, (sequence, rows) in enumerate(zip(sequences, rest, strict=True)):
        anchors = np.flatnonzero(first[:, column] >= 0)
        before = np.searchsorted(np.sort(first[anchors, column]), rows)
        order = anchors[np.argsort(first[anchors, column], kind="stable")]
        anchor = np.append(order, -1)[before - 1]  # before 0: none, the one appended
        keys.append(np.stack([anchor, sequence.symbol[rows]], axis=1))
    second = _translated(joined_by_ordinal(keys, needs_all=False), rest)
    return np.concatenate((first, second))


def _translated(place: I64, rows: Sequence[I64]) -> I64:
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
