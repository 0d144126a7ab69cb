"""A ladder report for a notebook: each series with its total, its rungs and what may be published."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from profkit.model.documents.ladder import Ladder, LadderReport
from profkit.render.notebook import elements
from profkit.render.words import ladder as words
from profkit.shell import clean


def drawn(report: LadderReport) -> str:
    """The report as HTML."""
    parts = [part for ladder in report.ladders for part in _ladder(report, ladder)]
    effects = [elements.line(clean(one)) for one in words.effects(report, verbose=False)]
    notes = [elements.faded(said) for said in (*words.shared_notes(report), *report.warnings)]
    return elements.page(*parts, *effects, *notes, elements.faded(f"read: {report.source}"))


def _ladder(report: LadderReport, ladder: Ladder) -> list[ET.Element | None]:
    headers, rows = words.table(report, ladder)
    is_text = [place < words.n_left(report) for place in range(len(headers))]
    return [
        elements.answer(words.name(ladder), words.tone(ladder), words.headline(ladder), ladder.name),
        elements.table(headers, rows, is_text=is_text),
        elements.line(f"publish: {clean(ladder.sentence)}"),
    ]
