"""Trials for a terminal: the answer, a table of changes, a sentence each, how it was measured."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.trial import Outcome, TrialReport
from profkit.render.terminal import layout
from profkit.render.terminal.page import PROSE_WIDTH, answer, columns_of, labelled, marked, printed
from profkit.render.words import trial as words

_MARKS: Final = {Outcome.HELD: "+", Outcome.MISSED: "!", Outcome.OPEN: "?", Outcome.UNPREDICTED: "+"}


def render(report: TrialReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The trials as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    has_gain = any(trial.is_gain and not trial.is_ablation for trial in report.trials)
    head = answer("TRIED", "good" if has_gain else "open", words.headline(report), prose)
    table = layout.table(words.HEADERS, list(map(words.row, report.trials)), words.IS_TEXT, columns)
    said = marked(((f"   {_MARKS.get(one.outcome, '-')} ", words.sentence(one)) for one in report.trials), prose)
    more = "profkit explain trial.prediction   -f json   -o FILE"
    parts = (*words.around(report), ("command", report.command), ("more", more))
    return printed([head, table, said, [line for part in parts for line in labelled(*part, prose)]], color)
