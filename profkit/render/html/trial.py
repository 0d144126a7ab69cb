"""Trials as a page: the answer, gains beside predictions, what each change did, how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.documents.trial import Trial, TrialReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.intervals import Measured, Picture, picture
from profkit.render.words import trial as words

_LEAST: Final = -1.0
"""Chosen: a step that takes twice as long; an interval that goes below ends there."""
_TICKS: Final = {value: f"{value:.0%}" for value in (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0)}


def render(report: TrialReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    has_gain = any(trial.is_gain and not trial.is_ablation for trial in report.trials)
    rows = [words.row(trial) for trial in report.trials]
    return page.made(
        "trial.html.j2",
        title=f"try: {words.headline(report)}",
        sources=(),
        with_paths=with_paths,
        tone="good" if has_gain else "open",
        headline=words.headline(report),
        picture=_gains(report.trials),
        table=tables.of_words("changes", words.HEADERS, rows, is_sortable=len(rows) > 2),
        said=[words.sentence(trial) for trial in report.trials],
        around=[(label.capitalize(), text) for label, text in words.around(report)],
        notes=(),
        command=report.command,
    )


def _gains(trials: Sequence[Trial]) -> Picture | None:
    """The picture of the changes that were measured, what was predicted as a band; None without any."""
    rows = []
    for one in trials:
        if one.gain is not None and one.interval is not None:
            told = "nothing" if one.predicted is None else words.interval(one.predicted)
            said = f"{one.change}: {words.saved(one.gain)} ({words.interval(one.interval)}); {told} predicted"
            rows.append(
                Measured(
                    label=one.change,
                    said=said,
                    kind=one.outcome,
                    value=one.gain,
                    interval=one.interval,
                    predicted=one.predicted,
                )
            )
    low = max(min([-0.1, *(row.interval[0] for row in rows)]), _LEAST)
    return picture(rows, (low, 1.0), _TICKS, left=120)
