"""A scaling report as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.model.documents.scaling import ScalingReport, Series
from profkit.render.markdown.triage import escaped
from profkit.render.words import scaling as words


def render(report: ScalingReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The report as GitHub-flavoured markdown: for each series standing, sizes, case and sentence."""
    paragraphs = [paragraph for series in report.series for paragraph in _series(series)]
    if report.warnings:
        paragraphs += ["**Caveats**", _list(report.warnings)]
    paragraphs.append(f"_{escaped(', '.join(report.sources))}_")
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _series(series: Series) -> Iterable[str]:
    yield f"## profkit: {words.name(series).lower()}, {escaped(words.series_name(series))}"
    yield f"**{escaped(words.headline(series))}**"
    yield _table(words.headers(series), words.rows(series))
    yield _list(words.notes(series))
    if series.clues:
        yield "**Why the base is looked at**"
        yield _list([f"{clue.bearing.value}: {clue.statement}" for clue in series.clues])
    parts = words.decomposition_rows(series.decompositions)
    if parts:
        yield _table(words.PART_HEADERS, parts)
    if series.honest:
        yield "**Honest base**"
        yield _list(series.honest)
    yield f"**Publish**: {escaped(words.publishable(series))}"
    if series.next_command:
        yield f"```sh\n{series.next_command}\n```"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(escaped(cell) for cell in cells) for cells in (headers, *rows)]
    rule = "|".join("---:" for _ in headers)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(item)}" for item in items)
