"""One file per question. `ANALYZERS` is the one list; adding an analyzer is one file and one line here."""

from __future__ import annotations

from typing import Any, Final

from profkit.analyzers import (
    allocations,
    chores,
    code,
    input,  # noqa: A004 - the question's own name
    kernels,
    launches,
    memory,
    operators,
    padding,
    patterns,
    precision,
    quality,
    roof,
    steps,
    streams,
    syncs,
    transfers,
    whole_run,
)
from profkit.analyzers.base import Analyzer
from profkit.analyzers.communication import accumulation, buckets, one_by_one, overlap

ANALYZERS: Final[dict[str, Analyzer[Any]]] = {
    analyzer.name: analyzer
    for analyzer in (
        quality.ANALYZER,
        steps.ANALYZER,
        input.ANALYZER,
        padding.ANALYZER,
        launches.ANALYZER,
        syncs.ANALYZER,
        overlap.ANALYZER,
        buckets.ANALYZER,
        accumulation.ANALYZER,
        one_by_one.ANALYZER,
        transfers.ANALYZER,
        memory.ANALYZER,
        allocations.ANALYZER,
        kernels.ANALYZER,
        precision.ANALYZER,
        roof.ANALYZER,
        patterns.ANALYZER,
        patterns.SCHEDULING,
        patterns.CLOCKS,
        operators.ANALYZER,
        streams.ANALYZER,
        code.ANALYZER,
        chores.ANALYZER,
        whole_run.ANALYZER,
    )
}
