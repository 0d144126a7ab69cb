"""Ranks that a worker has merged: many outcomes as one value, a tenth as large, and back.

    outcomes of 64 sources, each pickled  ->  one `Bundle`: columns end to end, words once, all of it compressed

The reduction is a tree. A worker reads a rank (a leaf), a worker merges leaves, and bundles merge as leaves do: what
comes out does not depend on which were merged with which, nor in what order. Nothing is summed up or left out, for who
is late is told by medians over all ranks and by shuffling them, which need each rank's own times.
"""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.table import Table
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import TABLES

Placed = tuple[int, Outcome]
"""The number of a source among all, and an outcome of it."""

_NARROW: Final = tuple(map(np.dtype, (np.int8, np.int16, np.int32)))
_FAST: Final = 1  # zlib's level: 6 saves another tenth for three times the time


Kind = tuple[str, tuple[int, ...]]
"""What an array is made of: its type, and the shape of a row."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of all ranks, end to end. `kinds`: of each rank's part, or one for all."""

    kinds: tuple[Kind, ...]
    whole: Kind
    kept: str
    """The type it is kept in, the narrowest that holds it."""
    is_constant: bool
    """Whether all rows are alike, of which one is kept."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of several sources, in the order of these."""

    places: tuple[int, ...]
    """Of each outcome, the number of its source."""
    lengths: Mapping[str, I64]
    """By table, the number of rows of each rank."""
    layout: Mapping[str, Column]
    columns: bytes
    rest: bytes
    """Everything else, pickled, each value once."""

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.columns) + len(self.rest) + sum(each.nbytes for each in self.lengths.values())


def leaf(outcomes: Sequence[Outcome]) -> bytes:
    """The outcomes of one source as bytes, which cost a parent no time to receive."""
    return pickle.dumps(tuple(outcomes), pickle.HIGHEST_PROTOCOL)


def unfolded(data: bytes) -> tuple[Outcome, ...]:
    """The outcomes of a `leaf`."""
    outcomes: tuple[Outcome, ...] = pickle.loads(data)  # noqa: S301 - of a worker of ours, whose results are pickled anyway
    return outcomes


def bundle_of(leaves: Iterable[tuple[int, bytes]]) -> Bundle:
    """One bundle of leaves, each with the number of its source; runs in a worker."""
    return bundled((place, outcome) for place, data in leaves for outcome in unfolded(data))


def merged(bundles: Iterable[Bundle]) -> Bundle:
    """One bundle of several, the same whatever their order and however they came about."""
    return bundled(one for bundle in bundles for one in opened(bundle))


def bundled(outcomes: Iterable[Placed]) -> Bundle:
    """One bundle of outcomes in any order, but for those of one source, which keep theirs."""
    placed = sorted(outcomes, key=lambda one: one[0])
    summaries = [outcome.summary for _, outcome in placed]
    lengths, layout, parts = {}, {}, []
    for table, kind in TABLES.items():
        rows: list[Table] = [getattr(summary, table) for summary in summaries]
        lengths[table] = np.array([len(each) for each in rows], np.int64)
        for name in kind.__struct_fields__:
            told, data = _packed([getattr(each, name) for each in rows])
            layout[f"{table}.{name}"] = told
            parts.append(data)
    same = Interned()
    rest = tuple(same.of(_without_tables(outcome)) for _, outcome in placed)
    return Bundle(
        places=tuple(place for place, _ in placed),
        lengths=lengths,
        layout=layout,
        columns=zlib.compress(b"".join(parts), _FAST),
        rest=zlib.compress(pickle.dumps(rest, pickle.HIGHEST_PROTOCOL), _FAST),
    )


def opened(bundle: Bundle) -> list[Placed]:
    """The outcomes of a bundle, whose tables are views into common columns."""
    rest: tuple[Outcome, ...] = pickle.loads(zlib.decompress(bundle.rest))  # noqa: S301 - as `unfolded`
    edges = {table: np.append(0, np.cumsum(each)).tolist() for table, each in bundle.lengths.items()}
    columns = _unpacked(bundle, {table: each[-1] for table, each in edges.items()})
    fields = {table: {name: f"{table}.{name}" for name in kind.__struct_fields__} for table, kind in TABLES.items()}
    parts = _Parts(columns, bundle.layout)
    out = []
    for number, (place, outcome) in enumerate(zip(bundle.places, rest, strict=True)):
        tables: dict[str, Any] = {}
        for table, kind in TABLES.items():
            low, high = edges[table][number : number + 2]
            tables[table] = kind(**{name: parts.of(key, number, low, high) for name, key in fields[table].items()})
        out.append((place, replace(outcome, summary=replace(outcome.summary, **tables))))
    return out


_NO_ROWS: Final[dict[str, Any]] = {table: kind.none() for table, kind in TABLES.items()}


def _without_tables(outcome: Outcome) -> Outcome:
    return replace(outcome, summary=replace(outcome.summary, **_NO_ROWS))


def _packed(arrays: Sequence[NDArray[Any]]) -> tuple[Column, bytes]:
    """A column in the narrowest type that holds all of it; of one whose rows are alike, one row."""
    kinds = tuple(_kind_of(array) for array in arrays)
    filled = [array for array in arrays if len(array)] or list(arrays[:1])  # a table without rows has any type
    whole = np.concatenate(filled)
    is_constant = whole.dtype.kind == "i" and len(whole) > 1 and bool((whole == whole[:1]).all())
    narrow = _narrowed(whole[:1] if is_constant else whole)
    told = Column(
        kinds=kinds[:1] if len(set(kinds)) == 1 else kinds,
        whole=_kind_of(whole),
        kept=narrow.dtype.str,
        is_constant=is_constant,
    )
    return told, narrow.tobytes()


def _kind_of(array: NDArray[Any]) -> Kind:
    return array.dtype.str, array.shape[1:]


def _narrowed(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind != "i" or not values.size:
        return values
    low, high = int(values.min()), int(values.max())
    for dtype in _NARROW:
        most = 2 ** (8 * dtype.itemsize - 1)
        if dtype.itemsize < values.dtype.itemsize and -most <= low and high < most:
            return values.astype(dtype)
    return values


def _unpacked(bundle: Bundle, n_rows: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """By table and name, the columns of all ranks end to end."""
    data, place, out = zlib.decompress(bundle.columns), 0, {}
    for name, told in bundle.layout.items():
        dtype, row = told.whole
        shape = (n_rows[name.partition(".")[0]], *row)
        kept_shape = (1, *row) if told.is_constant else shape
        kept = np.frombuffer(data, np.dtype(told.kept), math.prod(kept_shape), place).reshape(kept_shape)
        place += kept.nbytes
        wide = kept.astype(np.dtype(dtype))
        out[name] = np.broadcast_to(wide, shape) if told.is_constant else wide
    return out


class _Parts:
    """Each rank's part of a column, of the type that it had. Parts of one row repeated, or of none, are one array."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], layout: Mapping[str, Column]) -> None:
        self._columns = columns
        self._layout = layout
        self._known: dict[tuple[str, int, Kind], NDArray[Any]] = {}

    def of(self, name: str, number: int, low: int, high: int) -> NDArray[Any]:
        """The rows of one rank, by its number in the bundle and where they begin and end."""
        told = self._layout[name]
        kind = told.kinds[number] if len(told.kinds) > 1 else told.kinds[0]
        if high > low and not told.is_constant:
            return self._made(name, kind, low, high)
        key = (name, high - low, kind)
        if key not in self._known:
            self._known[key] = self._made(name, kind, low, high)
        return self._known[key]

    def _made(self, name: str, kind: Kind, low: int, high: int) -> NDArray[Any]:
        part = self._columns[name][low:high]
        if _kind_of(part) == kind:
            return part
        return part.astype(np.dtype(kind[0])).reshape((high - low, *kind[1]))


_LEAVES: Final = (str, bytes, int, float, bool, type(None))


class Interned:
    """Equal values as one object: gives for each the same one, equal bit for bit, so that it is held, and sent, once.

    Of strings, numbers, tuples, frozen sets and frozen structs of these. Everything else, as a list or an array, stays
    what it is, and so does what holds one. Equal is stricter than `==`, by which 1, 1.0 and True are one.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._others: list[Any] = []
        """Kept, so that no other value takes their identity, by which what holds them is known."""

    def of(self, value: Any) -> Any:
        """The value that stands for all equal ones."""
        kind = type(value)
        if kind in _LEAVES:
            return self._known.setdefault((kind, repr(value) if kind is float else value), value)
        if kind is tuple:
            parts = tuple(map(self.of, value))
            return self._known.setdefault((kind, *map(id, parts)), parts)
        if kind is frozenset:
            key = (kind, frozenset(id(self.of(part)) for part in value))
            return self._known.setdefault(key, value)
        if isinstance(value, msgspec.Struct) and kind.__struct_config__.frozen:
            return self._struct(value)
        if not isinstance(value, Enum):
            self._others.append(value)
        return value

    def _struct(self, value: msgspec.Struct) -> Any:
        names = value.__struct_fields__
        before = [getattr(value, name) for name in names]
        parts = [self.of(part) for part in before]
        key = (type(value), *map(id, parts))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = type(value)(**dict(zip(names, parts, strict=True)))
        return known
