"""The charts of the study, from its results as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from analyses.svg import Axes, Point, Series, bar_chart, line_chart

RANGE = "bars: lowest and highest run"
SHOWN = {
    "weak_ws4": "healthy",
    "straggler_ws4": "straggler",
    "comm_ws4": "all-reduce",
    "barrier_ws4": "barrier",
}


def drawn(results: Mapping[str, Any]) -> dict[str, str]:
    """Gives the charts by file name."""
    cells = {cell["slug"]: cell for cell in results["cells"]}
    scaling = [
        Series(name=name, points=tuple(_point(point["ranks"], point["samples_per_s"]) for point in points))
        for name, points in results["scaling"].items()
    ]
    throughput = Axes(title=f"Throughput, {results['cores']} cores", x_label=f"ranks ({RANGE})", y_label="samples/s")
    return {
        "scaling.svg": line_chart(scaling, throughput),
        "steps.svg": bar_chart(
            tuple(SHOWN.values()),
            [
                Series(
                    name="slowest rank's step",
                    points=tuple(_point(place, cells[slug]["slowest_step_ms"]) for place, slug in enumerate(SHOWN)),
                )
            ],
            Axes(title="Four ranks: what a fault costs all", x_label=RANGE, y_label="ms per step"),
        ),
        "parts.svg": bar_chart(
            tuple(SHOWN.values()),
            [
                _part("data wait, rank 0", cells, "data_ms", [0]),
                _part("data wait, others", cells, "data_ms", [1, 2, 3]),
                _part("compute+sync, rank 0", cells, "compute_sync_ms", [0]),
                _part("others", cells, "compute_sync_ms", [1, 2, 3]),
            ],
            Axes(title="Four ranks: who waits where", x_label="mean of the runs", y_label="ms per step"),
        ),
    }


def _part(name: str, cells: Mapping[str, Any], part: str, ranks: Sequence[int]) -> Series:
    points = (
        Point(x=place, y=fmean(cells[slug][part][rank]["mean"] for rank in ranks)) for place, slug in enumerate(SHOWN)
    )
    return Series(name=name, points=tuple(points))


def _point(x: float, spread: Mapping[str, float]) -> Point:
    return Point(x=x, y=spread["mean"], low=spread["lowest"], high=spread["highest"])
