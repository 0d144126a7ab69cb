"""Trials for a terminal: the answer, a table of changes, a sentence each, how it was measured."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.trial import Outcome, TrialReport
from profkit.render.terminal import layout
from profkit.render.terminal.layout import MARGIN
from profkit.render.terminal.page import PROSE_WIDTH, Block, columns_of, is_colored, printed
from profkit.render.words import trial as words
from profkit.shell import clean

_MARKS: Final = {Outcome.HELD: "+", Outcome.MISSED: "!", Outcome.OPEN: "?", Outcome.UNPREDICTED: "+"}


def render(report: TrialReport, *, width: int | None = None, color: bool | None = None, **_: object) -> str:
    """The trials as text of at most `width` columns (the terminal's by default)."""
    columns = columns_of(width)
    prose = min(columns, PROSE_WIDTH)
    has_gain = any(trial.is_gain and not trial.is_ablation for trial in report.trials)
    head: Block = [((MARGIN, ""), (" TRIED ", "good" if has_gain else "open"))]
    head += layout.wrapped(MARGIN, clean(words.headline(report)), prose, style="strong")
    table = layout.table(words.HEADERS, [words.row(trial) for trial in report.trials], words.IS_TEXT, columns)
    said = [
        line
        for trial in report.trials
        for line in layout.wrapped(f"   {_MARKS.get(trial.outcome, '-')} ", clean(words.sentence(trial)), prose)
    ]
    parts = (
        *words.around(report),
        ("command", report.command),
        ("more", "profkit explain trial.prediction   -f json   -o FILE"),
    )
    around = [line for name, text in parts for line in layout.wrapped(layout.label(name), clean(text), prose)]
    return printed([head, table, said, around], is_colored=is_colored(color))
