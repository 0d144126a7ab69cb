"""Kernels whose names leave something open: what they do, or the number format in which they multiply."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from profkit.model.kernel_names import OTHER, Precision, told
from profkit.model.names import WHOLE_GRAPH
from profkit.model.trace import Kind, Trace

MOST: Final = 3
"""Names that are kept, the largest first (chosen: a glance)."""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A name that leaves something open, and its share of the time of all compute kernels, 0-1."""

    name: str
    share: float
    is_product: bool
    """Whether the name tells a product of matrices, and only its number format is open."""


class Unexplained(msgspec.Struct, frozen=True, kw_only=True):
    """How many names of compute kernels leave something open, and their share of the time of all of them, 0-1."""

    n_names: int
    n: int
    share: float
    largest: tuple[Open, ...]


def unexplained(trace: Trace) -> Unexplained | None:
    """The names that no row of the table of grammars explains whole, by time; None without compute kernels.

    Times are sums of durations over all devices and the whole trace.
    """
    gpu = trace.gpu
    rows = gpu.kind == Kind.COMPUTE
    total = np.bincount(gpu.name[rows], weights=(gpu.end_ns - gpu.start_ns)[rows], minlength=1)
    names = {int(code): trace.name(int(code)) for code in np.flatnonzero(total)}
    names = {code: name for code, name in names.items() if not name.startswith(WHOLE_GRAPH)}
    if not names:
        return None
    whole = float(total[list(names)].sum())
    found = [
        Open(name=name, share=float(total[code]) / whole, is_product=read.precision is not None)
        for code, name in names.items()
        if (read := told(name)).precision is Precision.UNKNOWN or read.what == OTHER
    ]
    found.sort(key=lambda one: -one.share)
    share = sum(one.share for one in found)
    return Unexplained(n_names=len(names), n=len(found), share=share, largest=tuple(found[:MOST]))
