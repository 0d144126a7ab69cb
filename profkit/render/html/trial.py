"""Trials as a page: the answer, gains beside predictions, what each change did, how it was measured."""

from __future__ import annotations

from profkit.model.documents.trial import TrialReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.gains import gains
from profkit.render.words import trial as words


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
        picture=gains(report.trials),
        table=tables.of_words("changes", words.HEADERS, rows, n_left=1, is_sortable=len(rows) > 2),
        said=[words.sentence(trial) for trial in report.trials],
        around=[(label.capitalize(), text) for label, text in words.around(report)],
        command=report.command,
    )
