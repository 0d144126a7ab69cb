"""A probe as markdown, for a pull request or an issue."""

from __future__ import annotations

from profkit.model.documents.probe import ProbeReport
from profkit.render.markdown.parts import bullets, escaped, page, table_of_texts
from profkit.render.words import probe as words


def render(report: ProbeReport, **_: object) -> str:
    """The slopes as GitHub-flavoured markdown."""
    facts = (words.total(report), words.cost(report), words.untouched(report), words.setting(report), *report.notes)
    return page(
        [
            "## profkit: probed",
            f"**{escaped(words.headline(report))}**",
            table_of_texts(words.HEADERS, map(words.row, words.rows_of(report)), is_text=words.IS_TEXT),
            bullets(filter(None, (*map(words.sentence, words.told(report)), *facts))),
            f"_{escaped(report.command)}_",
        ]
    )
