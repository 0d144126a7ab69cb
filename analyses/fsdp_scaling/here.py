"""What the runs of this machine say: scaling, prefetch, checkpointing, and how far two samples of one cell differ."""

from __future__ import annotations

import csv
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analyses.lab import numbers
from profkit.compare.scaling.study import scale
from profkit.compare.stats.judge import Judgement, Sample, judge
from profkit.compare.tables.result_tables import read_table
from profkit.render.json import scaling as scaling_json
from profkit.render.terminal import scaling

Setup = tuple[int, bool, bool]
"""Ranks, whether checkpointed, whether prefetched."""


def analysed(timings: Path, twins: Path) -> tuple[dict[str, Any], str]:
    """Gives what both tables say, as plain values and as text."""
    rows, again = _read(timings), _read(twins)
    cells = _samples(rows)
    changes = [
        *_changes("the same once more", ((setup, cells[setup], twin) for setup, twin in _samples(again).items())),
        *_changes("prefetch", _pairs(cells, switch=2)),
        *_changes("checkpointing", _pairs(cells, switch=1)),
    ]
    report = scale([read_table(timings)])
    losses = [float(row["final_loss"]) for row in (*rows, *again)]
    values = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "blocks": len({row["block"] for row in rows}),
        "cells": [_cell(setup, sample) for setup, sample in cells.items()],
        "changes": [{"what": what, "setup": list(setup), **numbers(change)} for what, setup, change in changes],
        "noise_cv": statistics.median(_cv(sample) for sample in cells.values()),
        "largest_loss_difference": max(losses) - min(losses),
        "highest_load": max(float(row["load_before"]) for row in (*rows, *again)),
        "scaling": scaling_json.scaling_to_dict(report),
    }
    lines = [scaling.render(report, width=100, color=False)]
    for what, setup, change in changes:
        lines.append(f"   {what}, {told_setup(what, setup)}: {change.answer.upper()}\n      {change.sentence}")
    return values, "\n".join(lines) + "\n"


def told_setup(what: str, setup: Setup) -> str:
    """Gives a cell in words, without the switch that is being compared."""
    n_ranks, is_checkpointed, is_prefetched = setup
    parts = [f"{n_ranks} rank" + "s" * (n_ranks > 1)]
    if what != "checkpointing":
        parts.append("checkpointed" if is_checkpointed else "not checkpointed")
    if what != "prefetch" and is_prefetched:
        parts.append("prefetched")
    return ", ".join(parts)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _setup(row: dict[str, str]) -> Setup:
    return int(row["world_size"]), row["activation_ckpt"] == "True", row["prefetch"] == "True"


def _samples(rows: Iterable[dict[str, str]]) -> dict[Setup, Sample]:
    """Gives the runs of each cell in the order of blocks, cells in the order of ranks and switches."""
    grouped: dict[Setup, list[dict[str, str]]] = {}
    for row in sorted(rows, key=lambda row: (*_setup(row), int(row["block"]))):
        grouped.setdefault(_setup(row), []).append(row)
    return {
        setup: Sample(
            name=told_setup("", setup),
            values=tuple(float(row["tokens_per_sec"]) for row in runs),
            unit="tokens/s",
            higher_is_better=True,
            blocks=tuple(int(row["block"]) for row in runs),
        )
        for setup, runs in grouped.items()
    }


def _pairs(cells: dict[Setup, Sample], *, switch: int) -> Iterable[tuple[Setup, Sample, Sample]]:
    """Gives every cell with one switch off, that sample, and the sample with it on."""
    for setup, sample in cells.items():
        on = (setup[0], setup[1] or switch == 1, setup[2] or switch == 2)
        if not setup[switch] and on in cells:
            yield setup, sample, cells[on]


def _changes(what: str, pairs: Iterable[tuple[Setup, Sample, Sample]]) -> list[tuple[str, Setup, Judgement]]:
    return [(what, setup, judge(baseline, candidate)) for setup, baseline, candidate in pairs]


def _cv(sample: Sample) -> float:
    return statistics.stdev(sample.values) / sample.mean if len(sample.values) > 1 else 0.0


def _cell(setup: Setup, sample: Sample) -> dict[str, Any]:
    return {
        "ranks": setup[0],
        "checkpointed": setup[1],
        "prefetched": setup[2],
        "n": len(sample.values),
        "mean": sample.mean,
        "lowest": min(sample.values),
        "highest": max(sample.values),
        "cv": _cv(sample),
    }
