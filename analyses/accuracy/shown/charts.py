"""The charts of the accuracy page: truth and verdict, ceiling and gain, confidence and what came true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from analyses.accuracy import score
from analyses.accuracy.score import Judged
from analyses.accuracy.shown import tables
from analyses.accuracy.truth import AT_WORK, WORK
from analyses.svg import Axes, Count, Point, Series, matrix_chart, scatter_chart

CONFUSION: Final = "confusion.svg"
CEILINGS: Final = "ceilings.svg"
RELIABILITY: Final = "reliability.svg"


def drawn(of: Sequence[Judged]) -> Mapping[str, str]:
    """The charts that some judged cells allow, by file name."""
    charts = {CONFUSION: confusion(of), CEILINGS: ceilings(of), RELIABILITY: reliability(of)}
    return {name: chart for name, chart in charts.items() if chart}


def confusion(of: Sequence[Judged]) -> str:
    """Truths as rows, verdicts as columns; "" without cells."""
    truths, verdicts, counts = tables.matrix(of)
    if not truths:
        return ""
    cells = {
        (row, word): Count(n, is_right=word == row or (row == AT_WORK and word in WORK))
        for (row, word), n in counts.items()
    }
    axes = Axes(title="What is right (rows) and what profkit says (columns), in cells", x_label="", y_label="")
    return matrix_chart(truths, verdicts, cells, axes)


def ceilings(of: Sequence[Judged]) -> str:
    """Measured gains over predicted ceilings, with the gain's interval; "" without any."""
    rows = [
        (one.ceiling, one.cell.gain, one.cell.gain_interval or (one.cell.gain, one.cell.gain))
        for one in score.with_gain(of)
        if one.ceiling is not None and one.cell.gain is not None
    ]
    if not rows:
        return ""
    points = tuple(
        Point(x=100 * ceiling, y=100 * gain, low=100 * ends[0], high=100 * ends[1]) for ceiling, gain, ends in rows
    )
    end = max(10.0, *(point.x for point in points))
    line = Series(name="gain = ceiling", points=(Point(x=0, y=0), Point(x=end, y=end)), is_guide=True)
    return scatter_chart(
        [Series(name="one cell, with the interval of its gain", points=points), line],
        Axes(
            title="Measured gains, and the most that profkit said", x_label="ceiling, % of the step", y_label="gain, %"
        ),
    )


def reliability(of: Sequence[Judged]) -> str:
    """The share of right answers over confidence; "" without answers."""
    bins = score.reliability(of)
    if not bins:
        return ""
    points = tuple(
        Point(
            x=100 * one.confidence,
            y=100 * (one.right.value or 0),
            low=100 * one.right.interval[0],
            high=100 * one.right.interval[1],
        )
        for one in bins
    )
    line = Series(name="as sure as right", points=(Point(x=0, y=0), Point(x=100, y=100)), is_guide=True)
    return scatter_chart(
        [Series(name="answers of about this confidence, with the 95 % interval", points=points), line],
        Axes(title="How often an answer is right, by its confidence", x_label="confidence, %", y_label="right, %"),
    )
