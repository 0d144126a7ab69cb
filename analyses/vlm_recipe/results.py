"""What runs and traces say: gains with intervals beside what a trace predicted, interaction, what the traps cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyses.lab import numbers
from analyses.vlm_recipe.cells import TOWER, Cell
from analyses.vlm_recipe.traces import Told, wrong
from profkit.compare.stats.judge import Judgement, Sample, judge

Rows = Sequence[Mapping[str, str]]


def results(cells: Sequence[Cell], rows: Rows, told: Mapping[str, Told]) -> dict[str, Any]:
    """Gives all that the page shows, as plain values; cells that were never run are left out."""
    known = {row["slug"] for row in rows}
    run = [cell for cell in cells if cell.slug in known]
    samples = {cell.slug: sample(cell, rows) for cell in run}
    by_slug = {cell.slug: cell for cell in run}
    values = [_cell(cell, rows, samples, told, by_slug) for cell in run]
    return {
        "blocks": len({row["block"] for row in rows}),
        "highest_load": max((float(row["load_before"]) for row in rows), default=0.0),
        "cells": values,
        "interaction": [one for stage in (1, 2) if (one := _interaction(run, samples, stage)) is not None],
        "front": {str(stage): _front(values, stage) for stage in (1, 2)},
    }


def sample(cell: Cell, rows: Rows) -> Sample:
    """Gives a cell's runs in the order of blocks."""
    mine = sorted((row for row in rows if row["slug"] == cell.slug), key=lambda row: int(row["block"]))
    return Sample(
        name=cell.title,
        values=tuple(float(row["real_tokens_per_sec"]) for row in mine),
        unit="tokens/s",
        higher_is_better=True,
        blocks=tuple(int(row["block"]) for row in mine),
    )


def _cell(
    cell: Cell, rows: Rows, samples: Mapping[str, Sample], told: Mapping[str, Told], by_slug: Mapping[str, Cell]
) -> dict[str, Any]:
    mine = [row for row in rows if row["slug"] == cell.slug]
    values = samples[cell.slug].values
    change = judge(samples[cell.against], samples[cell.slug]) if cell.against in by_slug else None
    before = told.get(cell.against)
    predicted = None if before is None or not cell.predicted_by else predicted_factor(cell, before)
    base = samples.get(f"s{cell.stage}/base")
    return {
        "slug": cell.slug,
        "kind": cell.kind,
        "stage": cell.stage,
        "title": cell.title,
        "layers": cell.layers,
        "against": cell.against,
        "n": len(values),
        "mean": statistics.fmean(values),
        "lowest": min(values),
        "highest": max(values),
        "pad_fraction": statistics.fmean(float(row["pad_fraction"]) for row in mine),
        "peak_mem_gb": statistics.fmean(float(row["peak_mem_gb"]) for row in mine),
        "of_base": statistics.fmean(values) / base.mean if base is not None else None,
        "change": None if change is None else numbers(change),
        "factor_interval": None if change is None else factor_interval(change),
        "predicted_by": list(cell.predicted_by),
        "predicted_factor": predicted,
        "is_within": None if change is None or predicted is None else is_within(change, predicted),
        "said": _said(cell, told.get(cell.slug)),
    }


def _said(cell: Cell, told: Told | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        "bottleneck": told["bottleneck"],
        "headline": told["headline"],
        "where": told["where"],
        "findings": sorted(told["findings"]),
        "readings": list(told["readings"].values()) if "readings" in told else None,
        "against_truth": wrong(cell, told),
    }


def predicted_factor(cell: Cell, before: Told) -> float:
    """Gives the ceiling that the trace of the cell before gives for this layer, as a factor; 1 where it named none."""
    if cell.predicted_by == (TOWER,):
        share = before["tower_share"]
    else:
        saves = [before["findings"][one]["saves_ns"] for one in cell.predicted_by if one in before["findings"]]
        share = max(saves, default=0) / before["step_ns"] if before["step_ns"] else 0.0
    return 1 / (1 - min(share, 0.999))


def factor_interval(change: Judgement) -> tuple[float, float] | None:
    """Gives the interval of the change as factors."""
    return None if change.interval is None else (1 + change.interval[0], 1 + change.interval[1])


def is_within(change: Judgement, predicted: float) -> bool:
    """Whether the measured gain does not exceed the ceiling: its interval reaches down to it."""
    interval = factor_interval(change)
    return (1 + change.effect if interval is None else interval[0]) <= predicted


def _interaction(cells: Iterable[Cell], samples: Mapping[str, Sample], stage: int) -> dict[str, Any] | None:
    """Gives the product of the single gains beside the gain of all of them together; None where cells are missing."""
    base, top = samples.get(f"s{stage}/base"), samples.get(f"s{stage}/cached-features")
    if base is None or top is None:
        return None
    # Packing takes the place of bucketing in the top rung.
    names = ("batch", "fusion", "packing", "no-checkpointing", "cached-features")
    known = {cell.slug: cell for cell in cells if cell.against == base_slug(stage)}
    slugs = [
        next((one for one in (f"s{stage}/only-{name}", f"s{stage}/{name}") if one in known), None) for name in names
    ]
    if any("precision" in cell.changes for cell in cells if cell.slug == f"s{stage}/cached-features"):
        slugs.append(f"s{stage}/precision" if f"s{stage}/precision" in known else None)
    if None in slugs:
        return None
    singles = {slug: samples[slug].mean / base.mean for slug in slugs if slug is not None}
    return {
        "stage": stage,
        "singles": singles,
        "product": math.prod(singles.values()),
        "measured": top.mean / base.mean,
    }


def base_slug(stage: int) -> str:
    """Gives the name of a stage's base."""
    return f"s{stage}/base"


def _front(values: Sequence[Mapping[str, Any]], stage: int) -> list[str]:
    """Gives the cells of the stage's own vocabulary that none beats in both throughput and memory."""
    mine = [one for one in values if one["stage"] == stage and "few" not in one["slug"]]
    return [
        one["slug"]
        for one in mine
        if not any(
            other["mean"] >= one["mean"]
            and other["peak_mem_gb"] <= one["peak_mem_gb"]
            and (other["mean"], other["peak_mem_gb"]) != (one["mean"], one["peak_mem_gb"])
            for other in mine
        )
    ]
