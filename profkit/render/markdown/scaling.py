"""A scaling report as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.documents.scaling import ScalingReport, Series
from profkit.render.markdown.parts import bullets, escaped, page, table_of_texts, titled
from profkit.render.words import scaling as words


def render(report: ScalingReport, **_: object) -> str:
    """The report as GitHub-flavoured markdown: for each series standing, sizes, case and sentence."""
    paragraphs = [paragraph for series in report.series for paragraph in _series(series)]
    paragraphs += [titled("Caveats", report.warnings), f"_{escaped(', '.join(report.sources))}_"]
    return page(paragraphs)


def _series(series: Series) -> Iterable[str]:
    yield f"## profkit: {words.name(series).lower()}, {escaped(words.series_name(series))}"
    yield f"**{escaped(words.headline(series))}**"
    yield table_of_texts(words.headers(series), words.rows(series), n_left=0)
    yield bullets(words.notes(series))
    yield titled("Why the base is looked at", (f"{clue.bearing.value}: {clue.statement}" for clue in series.clues))
    parts = words.decomposition_rows(series.decompositions)
    if parts:
        yield table_of_texts(words.PART_HEADERS, parts, n_left=0)
    yield titled("Honest base", series.honest)
    yield f"**Publish**: {escaped(words.publishable(series))}"
    if series.next_command:
        yield f"```sh\n{series.next_command}\n```"
