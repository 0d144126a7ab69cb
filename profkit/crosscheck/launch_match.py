"""Which launch of one run is which launch of the other: by identity and order in the step, never by time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.crosscheck.launches import KernelKey, Launches
from profkit.model.arrays import I64
from profkit.model.trace import I32

StepPairs = tuple[tuple[int, int], ...]
"""(place among the first's steps, place among the second's)."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of two runs in paired steps; `key` and the durations are of matched launches, one row per pair."""

    keys: tuple[KernelKey, ...]
    key: I32
    first_ns: I64
    second_ns: I64
    first: Total
    second: Total

    @property
    def time_share(self) -> float:
        """The share of kernel time that found a partner, of the side where it is less."""
        return min(self.first.time_share, self.second.time_share)


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """One side in the paired steps: launches, kernel time, what of both is matched, and sums by key."""

    n: int
    n_matched: int
    total_ns: int
    matched_ns: int
    count_by_key: I64
    ns_by_key: I64

    @property
    def time_share(self) -> float:
        """Matched kernel time as a share of all, 0-1."""
        return self.matched_ns / self.total_ns if self.total_ns else 0.0


def paired_steps(first: Sequence[int], second: Sequence[int]) -> tuple[StepPairs, str]:
    """Which steps to set against each other, and how they were paired: "number", else "order".

    By number where one side's numbers are all among the other's; the job's own counts are the same in both runs then.
    """
    place = {number: index for index, number in enumerate(second)}
    by_number = tuple((index, place[number]) for index, number in enumerate(first) if number in place)
    if by_number and len(by_number) == min(len(first), len(second)):
        return by_number, "number"
    return tuple((index, index) for index in range(min(len(first), len(second)))), "order"


def match(first: Launches, second: Launches, pairs: StepPairs) -> Match:
    """The launches that correspond: the n-th of a key in a step is the n-th of that key in the paired step.

    Order among launches of different keys does not count, so that streams may run differently in both runs.
    """
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    sides = [_Side.of(launches, keys, [pair[side] for pair in pairs]) for side, launches in enumerate((first, second))]
    counts = [side.counts(len(keys), len(pairs)) for side in sides]
    common = np.minimum(counts[0], counts[1])
    rows = [side.matched(common) for side in sides]
    totals = [side.total(chosen, len(keys)) for side, chosen in zip(sides, rows, strict=True)]
    return Match(
        keys=keys,
        key=sides[0].key[rows[0]],
        first_ns=sides[0].duration_ns[rows[0]],
        second_ns=sides[1].duration_ns[rows[1]],
        first=totals[0],
        second=totals[1],
    )


class _Side(msgspec.Struct, frozen=True):
    """Launches in the paired steps, ordered by pair, key and launch; `ordinal` counts within pair and key."""

    key: I32
    pair: NDArray[np.intp]
    ordinal: I64
    duration_ns: I64

    @classmethod
    def of(cls, launches: Launches, keys: tuple[KernelKey, ...], steps: list[int]) -> _Side:
        pair_of = np.full(launches.n_steps, -1, np.intp)
        pair_of[steps] = np.arange(len(steps))
        place = {key: number for number, key in enumerate(keys)}
        key_of = np.array([place[key] for key in launches.keys], np.int32)
        pair = pair_of[launches.step]
        rows = np.flatnonzero(pair >= 0)
        key = key_of[launches.key[rows]] if rows.size else np.empty(0, np.int32)
        order = np.lexsort((rows, key, pair[rows]))
        rows, key = rows[order], key[order]
        group = pair[rows] * max(len(keys), 1) + key
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        ordinal = np.arange(rows.size) - np.repeat(begins, np.diff(np.append(begins, rows.size)))
        return cls(key, pair[rows], ordinal, launches.duration_ns[rows])

    def counts(self, n_keys: int, n_pairs: int) -> I64:
        """How often each key is launched in each paired step, `[n_pairs, n_keys]`."""
        flat = np.bincount(self.pair * n_keys + self.key, minlength=n_pairs * n_keys)
        return flat.reshape(n_pairs, n_keys)

    def matched(self, common: I64) -> NDArray[np.intp]:
        """The rows with a partner, in an order that is the same on both sides."""
        return np.flatnonzero(self.ordinal < common[self.pair, self.key]) if self.key.size else self.pair

    def total(self, rows: NDArray[np.intp], n_keys: int) -> Total:
        """The sums of this side."""
        ns_by_key = np.zeros(n_keys, np.int64)
        np.add.at(ns_by_key, self.key, self.duration_ns)  # not bincount, whose weights are float64
        return Total(
            n=int(self.key.size),
            n_matched=int(rows.size),
            total_ns=int(self.duration_ns.sum()),
            matched_ns=int(self.duration_ns[rows].sum()),
            count_by_key=np.bincount(self.key, minlength=n_keys),
            ns_by_key=ns_by_key,
        )
