"""A ladder report as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.ladder import Ladder, LadderReport
from profkit.render.markdown.parts import bullets, escaped, folded, page, table_of_texts, titled
from profkit.render.words import ladder as words


def render(report: LadderReport, *, verbose: bool = False, **_: object) -> str:
    """The report as GitHub-flavoured markdown: for each series its total, rungs, front and sentence."""
    paragraphs = [paragraph for ladder in report.ladders for paragraph in _ladder(report, ladder)]
    effects = words.effects(report, verbose=True)
    if effects:
        paragraphs += [f"## {escaped(words.EFFECTS_TITLE.capitalize())}", bullets(effects)]
    paragraphs.append(titled("Caveats", [*words.shared_notes(report), *report.warnings]))
    paragraphs.append(f"_{escaped(report.source)}_")
    return page(paragraphs)


def _ladder(report: LadderReport, ladder: Ladder) -> Iterable[str]:
    yield f"## profkit: {words.name(ladder).lower()}, {escaped(ladder.name)}"
    yield f"**{escaped(words.headline(ladder))}**"
    yield table_of_texts(*words.table(report, ladder), n_left=words.n_left(report))
    yield bullets(words.notes(report, ladder, verbose=True))
    if ladder.spots:
        yield escaped(words.front(report, ladder))
        spots = table_of_texts(*words.spots(report, ladder), n_left=words.n_left(report) + 1)
        yield folded("speed and memory of every setting", spots)
    yield f"**Publish**: {escaped(ladder.sentence)}"
