"""Trials as markdown, for a pull request or an issue."""

from __future__ import annotations

from profkit.model.documents.trial import TrialReport
from profkit.render.markdown.parts import bullets, escaped, page, table_of_texts
from profkit.render.words import trial as words


def render(report: TrialReport, **_: object) -> str:
    """The trials as GitHub-flavoured markdown."""
    facts = (f"{label}: {text}" for label, text in words.around(report))
    return page(
        [
            "## profkit: tried",
            f"**{escaped(words.headline(report))}**",
            table_of_texts(words.HEADERS, map(words.row, report.trials), is_text=words.IS_TEXT),
            bullets([*map(words.sentence, report.trials), *facts]),
            f"_{escaped(report.command)}_",
        ]
    )
