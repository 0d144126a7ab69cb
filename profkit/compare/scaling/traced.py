"""Traced runs as a table of sizes: one row per run, its step time and the GPUs it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profkit.compare.captures.sides import Run
from profkit.compare.tables.headings import Metric
from profkit.compare.tables.result_tables import ResultTable, Row
from profkit.errors import TraceFormatError
from profkit.model.documents.rank_report import RankReport

STEP = Metric(column="step", unit="ns/step", higher_is_better=False)


def traced_table(source: str, runs: Sequence[Run]) -> tuple[ResultTable, Mapping[int, Sequence[RankReport]]]:
    """The runs as a table and, for each number of GPUs, the ranks of its first run.

    Steps timed without the profiler count where every run has them. The work of a step is not in a trace. Raises
    TraceFormatError for a run without steps.
    """
    is_unprofiled = all(run.has_unprofiled for run in runs)
    rows: list[Row] = []
    traces: dict[int, Sequence[RankReport]] = {}
    for number, run in enumerate(runs, 1):
        steps = run.steps_ns(is_unprofiled=is_unprofiled)
        if not steps:
            raise TraceFormatError(f"{run.name} has no steps to compute a throughput from", hint="capture whole steps")
        gpus = _world_size(run)
        traces.setdefault(gpus, [trace.report for trace in run.traces])
        rows.append(Row(line=number, value=float(np.mean(steps)), gpus=gpus))
    is_cpu = any(trace.is_cpu for run in runs for trace in run.traces)
    warnings = ("CPU processes are counted as GPUs; they share the cores",) if is_cpu else ()
    return ResultTable(source=source, metric=STEP, rows=tuple(rows), warnings=warnings), traces


def _world_size(run: Run) -> int:
    """The ranks of the job: as the traces tell, else as many as there are."""
    told = [trace.meta.world_size for trace in run.traces if trace.meta.world_size]
    return max([*told, len({trace.meta.rank for trace in run.traces})])
