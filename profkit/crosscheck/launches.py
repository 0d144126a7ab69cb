"""The kernels of a device step by step, each under an identity that two tools agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
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
        return Launches(
            keys=tuple(KernelKey(function=function, grid=none, block=none) for function in functions),
            key=of_key[self.key] if self.key.size else self.key,
            step=self.step,
            duration_ns=self.duration_ns,
            n_steps=self.n_steps,
            full_names=self.full_names,
            is_comm=is_comm,
            has_shapes=False,
            n_graphs=self.n_graphs,
        )


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
