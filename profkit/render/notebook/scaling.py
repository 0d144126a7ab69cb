"""A scaling study for a notebook: each series with its answer, its sizes and what may be published."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from profkit.model.documents.scaling import ScalingReport, Series, Standing
from profkit.render.notebook import elements
from profkit.render.words import scaling as words
from profkit.shell import clean


def drawn(report: ScalingReport) -> str:
    """The study as HTML."""
    parts = [part for series in report.series for part in _series(series)]
    warnings = [elements.faded(warning) for warning in report.warnings]
    return elements.page(*parts, *warnings, elements.faded(f"read: {', '.join(report.sources)}"))


def _series(series: Series) -> list[ET.Element | None]:
    word = words.name(series)
    is_good = series.standing is Standing.SOUND and word == "SCALING"
    headers = words.headers(series)
    return [
        elements.answer(word, "good" if is_good else "open", words.headline(series), words.series_name(series)),
        elements.table(headers, words.rows(series), is_text=[False] * len(headers)),
        elements.line(f"publish: {clean(words.publishable(series))}"),
        elements.command("next", series.next_command),
    ]
