"""Operators on fewer threads than there are cores for, by what the capture read of the cores and by recorded shapes."""

from __future__ import annotations

from math import prod
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, step_threads
from profkit.findings.patterns import IDLE_CORES
from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.redact.later import later
from profkit.roof.formulas.memory import MEMORY
from profkit.roof.products import product_rows
from profkit.timeline import Facts
from profkit.timeline.host import outermost
from profkit.timeline.scheduled import fitting_threads, ranks_here, usable_cores
from profkit.units import format_fraction

GRAIN: Final = 32_768
"""Elements up to which ATen keeps an elementwise operator or a reduction on one thread (at::internal::GRAIN_SIZE)."""
SPARED: Final = 0.9
"""Of what two threads in place of one could spare, what they did. Measured on two cores, operators of 50 us to 5 ms."""
START_NS: Final = 3_000
"""What a second thread costs each operator. Measured on two cores: 10 us for one in 8.5, 20 for one in 13."""
_NOT_SHARED: Final = later(r"dropout|normal|uniform|bernoulli|random|exponential|embedding_dense")
"""Random numbers come from one generator, and took as long on two threads; a table's gradient is summed on one."""
_MORE: Final = later(
    r"^aten::(?:index|index_select|gather|cat|_cat|(?:max|avg|_?adaptive_avg)_pool\dd\w*|upsample_\w+|_cdist_forward|_fft_\w+)$"
)
"""What else threads share, of which no formula is kept."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Operators that more threads would share, rows of `Trace.ops`, and how many threads there are, and could be."""

    rows: I64
    length_ns: I64
    threads: int
    fits: int

    @property
    def kept(self) -> float:
        """The share (0-1) of their time that stays with twice the threads, about."""
        spared = np.maximum(SPARED * self.length_ns / 2 - START_NS, 0)
        return 1 - float(spared.sum() / self.length_ns.sum())

    @property
    def kept_at_least(self) -> float:
        """The same with all threads that fit, if all of them always work."""
        return self.threads / self.fits


def idle_cores(facts: Facts) -> Ranges | None:
    """The operators that more threads would share; None where there are as many threads as cores, or nobody counted."""
    found = facts.once(_shared)
    return None if found is None else Ranges.of(facts.trace.ops, found.rows, facts.trace.window_ns)


def _shared(facts: Facts) -> Shared | None:
    trace, told = facts.trace, facts.trace.meta.scheduling
    threads, fits = told.get("threads", 0), fitting_threads(told)
    if facts.cpu is None or not threads or fits is None or fits < IDLE_CORES.limit("more") * threads:
        return None
    ops = trace.ops
    large = [
        code
        for code in distinct_codes(ops.signature[ops.signature >= 0]).tolist()
        if (told_of := trace.signatures[code]) is not None
        and max(map(prod, told_of.tensors), default=0) > threads * GRAIN
    ]
    names = [code for code in distinct_codes(ops.name).tolist() if _is_shared(trace.name(code))]
    products = np.zeros(len(ops), np.bool_)
    products[product_rows(trace)] = True
    rows = np.flatnonzero(products | (is_one_of(ops.name, names) & is_one_of(ops.signature, large)))
    rows = rows[is_one_of(ops.thread[rows], step_threads(facts))]
    rows = rows[outermost(ops.take(rows))].astype(np.int64)
    length_ns = ops.end_ns[rows] - ops.start_ns[rows]
    is_long = length_ns >= IDLE_CORES.limit("each")
    return Shared(rows=rows[is_long], length_ns=length_ns[is_long], threads=threads, fits=fits)


def _is_shared(name: str) -> bool:
    return (name in MEMORY and not _NOT_SHARED.search(name)) or bool(_MORE.search(name))


def kept(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of their time that stays with twice the threads, about."""
    found = facts.once(_shared)
    return 1.0 if found is None else found.kept


def kept_at_least(facts: Facts, _: Ranges) -> float:
    """The same with all threads that fit, at best."""
    found = facts.once(_shared)
    return 1.0 if found is None else found.kept_at_least


def title(facts: Facts, _: Ranges) -> str:
    """How many threads there are, and what of the cores ran nothing."""
    found, told = facts.once(_shared), facts.trace.meta.scheduling
    if found is None:
        return ""
    idle = min(told["idle_ns"] / told["span_ns"] / told["cores"], 1.0)
    each = " of each rank" if ranks_here(told) > 1 else ""
    ran = f"{format_fraction(idle)} of the time of {told['cores']} cores"
    return f"operators{each} run on {found.threads} thread{'s' * (found.threads > 1)}, while {ran} is idle"


def fix(facts: Facts, _: Ranges) -> str:
    """The number of threads that fits."""
    found, told = facts.once(_shared), facts.trace.meta.scheduling
    if found is None:
        return IDLE_CORES.fixes[0]
    ranks, cores = ranks_here(told), usable_cores(told)
    who = f"{ranks} ranks share" if ranks > 1 else "the process has"
    return (
        f"torch.set_num_threads({found.fits}) where the script sets {found.threads}, else OMP_NUM_THREADS={found.fits}"
        f" (torchrun sets 1 where nothing is set): {who} {cores:g} cores; `profkit try` measures it"
    )
