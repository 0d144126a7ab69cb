"""The charts of the study, from its results as plain values."""

from __future__ import annotations

from typing import Any

from analyses.fsdp_scaling.here import told_setup
from analyses.svg import Axes, Point, Series, bar_chart, interval_chart, line_chart

RANGE = "bars: lowest and highest run"


def of_published(values: dict[str, Any]) -> dict[str, str]:
    """Gives the charts of the published study by file name."""
    series = values["scaling"]["series"]
    lines = [Series(name=_checkpointing(one["name"]), points=tuple(map(_range, one["points"]))) for one in series]
    sizes = [point["gpus"] for point in series[0]["points"]]
    bars = [
        Series(
            name=_checkpointing(one["name"]),
            points=tuple(
                Point(x=number, y=point["efficiency"] or 1.0, **_ends(point["efficiency_interval"]))
                for number, point in enumerate(one["points"])
            ),
        )
        for one in series
    ]
    groups = [f"{size} GPUs" + " (base)" * (size == sizes[0]) for size in sizes]
    throughput = Axes(title="Published: throughput", x_label=f"GPUs ({RANGE})", y_label="tokens/s")
    efficiency = Axes(
        title="Published: efficiency against 2 GPUs", x_label="95 % intervals; above 1 accuses the base", y_label="E"
    )
    return {
        "published_throughput.svg": line_chart([*lines, _ideal(series)], throughput),
        "published_efficiency.svg": bar_chart(groups, bars, efficiency),
    }


def of_runs(values: dict[str, Any], published: dict[str, Any] | None) -> dict[str, str]:
    """Gives the charts of the runs made here by file name; the published prefetch lies beside ours where known."""
    kinds = ((False, False), (False, True), (True, False), (True, True))
    lines = []
    for is_checkpointed, is_prefetched in kinds:
        cells = [c for c in values["cells"] if (c["checkpointed"], c["prefetched"]) == (is_checkpointed, is_prefetched)]
        name = ("checkpointing" if is_checkpointed else "plain") + " + prefetch" * is_prefetched
        points = (Point(x=c["ranks"], y=c["mean"], low=c["lowest"], high=c["highest"]) for c in cells)
        lines.append(Series(name=name, points=tuple(points)))
    title = f"Here: throughput, {values['cores']} cores"
    rows = [] if published is None else [("published, 8 GPUs: prefetch", _change(published["prefetch"]))]
    rows += [
        (f"{'A/A' if one['what'] != 'prefetch' else one['what']}, {_short(one)}", _change(one))
        for one in values["changes"]
        if one["what"] != "checkpointing"
    ]
    changes = Axes(title="Change of throughput", x_label="%, with 95 % interval", y_label="")
    return {
        "here_throughput.svg": line_chart(lines, Axes(title=title, x_label=f"ranks ({RANGE})", y_label="tokens/s")),
        "changes.svg": interval_chart(rows, changes),
    }


def _checkpointing(name: str) -> str:
    return "checkpointing" if name.endswith("True") else "no checkpointing"


def _short(change: dict[str, Any]) -> str:
    n_ranks, is_checkpointed, is_prefetched = change["setup"]
    return told_setup(change["what"], (n_ranks, is_checkpointed, is_prefetched)).replace("not checkpointed", "plain")


def _range(point: dict[str, Any]) -> Point:
    return Point(x=point["gpus"], y=point["mean"], low=point["lowest"], high=point["highest"])


def _ideal(series: list[dict[str, Any]]) -> Series:
    """Gives the ideal line from the checkpointed base, the one that no memory presses."""
    base, *_, top = next(one for one in series if one["name"].endswith("True"))["points"]
    # Many points: on a logarithmic axis the ideal is a curve.
    sizes = range(base["gpus"], top["gpus"] + 1)
    points = tuple(Point(x=size, y=base["mean"] * size / base["gpus"]) for size in sizes)
    return Series(name="ideal from 2 with checkpointing", points=points, is_guide=True)


def _change(change: dict[str, Any]) -> Point:
    low, high = change["interval"] or (None, None)
    return Point(
        x=0,
        y=100 * change["effect"],
        low=None if low is None else 100 * low,
        high=None if high is None else 100 * high,
    )


def _ends(interval: list[float] | None) -> dict[str, float]:
    return {} if interval is None else {"low": interval[0], "high": interval[1]}
