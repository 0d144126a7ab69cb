"""The kernels of a device step by step, each under an identity that two tools agree on, and which launch is which.

Launches of two runs are matched by identity and order in the step, never by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.names import WHOLE_GRAPH, function_name
from profkit.model.trace import I32, Kind, Step, Trace
from profkit.timeline.launch_order import placed_ns
from profkit.timeline.steps import step_of

Shape = tuple[int, int, int]


class KernelKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a kernel is in every tool: its function without namespaces and templates, its grid and its block."""

    function: str
    grid: Shape
    block: Shape


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel launches inside steps; the arrays have one row per launch, ordered by step, then by launch time.

    `key` indexes `keys`, `step` counts the steps of the portrait from 0, `duration_ns` is the kernel's whole length.
    """

    keys: tuple[KernelKey, ...]
    key: I32
    step: I32
    duration_ns: I64
    n_steps: int
    full_names: Mapping[str, str]
    """Of each function one of its names as the trace has it: with the templates that tell a family."""
    is_comm: NDArray[np.bool_]
    """Per key: whether it is a collective."""
    has_shapes: bool
    """Whether every launch tells its grid and block."""
    n_graphs: int = 0
    """Rows that stand for whole CUDA graphs, whose kernels were not recorded."""

    def named(self) -> Launches:
        """The same launches with the function alone as identity."""
        functions = list(dict.fromkeys(key.function for key in self.keys))
        place = {function: number for number, function in enumerate(functions)}
        of_key = np.array([place[key.function] for key in self.keys], np.int32)
        none = (0, 0, 0)
        is_comm = np.zeros(len(functions), np.bool_)
        is_comm[of_key[self.is_comm]] = True
        keys = tuple(KernelKey(function=function, grid=none, block=none) for function in functions)
        key = of_key[self.key] if self.key.size else self.key
        return replace(self, keys=keys, key=key, is_comm=is_comm, has_shapes=False)


def launches_of(trace: Trace, device: int, steps: Sequence[Step]) -> Launches:
    """The kernels (compute and collectives, no copies) that were launched inside the steps.

    A kernel belongs to the step that launched it, since it may run in the next; where steps begin with a kernel (found
    by their period), or where no launch is known, it belongs to the step it starts in.
    """
    gpu = trace.gpu
    rows = np.flatnonzero((gpu.kind != Kind.COPY) & (gpu.device == device))
    asked = placed_ns(trace, rows)
    step = step_of(asked, steps)
    order = np.lexsort((asked, step))
    order = order[step[order] >= 0]
    rows, step = rows[order], step[order]
    keys, key, full_names = _keys(trace, rows)
    is_comm = np.zeros(len(keys), np.bool_)
    is_comm[key[gpu.kind[rows] == Kind.COMM]] = True
    return Launches(
        keys=keys,
        key=key,
        step=step,
        duration_ns=gpu.end_ns[rows] - gpu.start_ns[rows],
        n_steps=len(steps),
        full_names=full_names,
        is_comm=is_comm,
        has_shapes=all(key.grid[0] > 0 and key.block[0] > 0 for key in keys),
        n_graphs=int(np.count_nonzero(trace.named(gpu.name[rows], WHOLE_GRAPH))),
    )


def _keys(trace: Trace, rows: NDArray[np.intp]) -> tuple[tuple[KernelKey, ...], I32, dict[str, str]]:
    gpu = trace.gpu
    functions: dict[str, int] = {}
    full_names: dict[str, str] = {}
    codes = np.unique(gpu.name[rows])
    function_of = np.zeros(int(codes.max(initial=-1)) + 1, np.int32)
    for code in codes.tolist():
        name = trace.name(code)
        function = function_name(name) or name
        function_of[code] = functions.setdefault(function, len(functions))
        full_names.setdefault(function, name)
    names = list(functions)
    table = np.column_stack((function_of[gpu.name[rows]], gpu.grid[rows], gpu.block[rows]))
    distinct, key = np.unique(table, axis=0, return_inverse=True)
    keys = tuple(
        KernelKey(function=names[code], grid=(gx, gy, gz), block=(bx, by, bz))
        for code, gx, gy, gz, bx, by, bz in distinct.tolist()
    )
    return keys, key.reshape(-1).astype(np.int32), full_names


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
