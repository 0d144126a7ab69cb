"""A ladder report as a page: for each series its total, its rungs and its memory as pictures, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profkit.model.documents.ladder import Ladder, LadderReport
from profkit.render.html import page
from profkit.render.html.parts import rungs, tables
from profkit.render.words import ladder as words


def render(report: LadderReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    first = report.ladders[0]
    return page.made(
        "ladder.html.j2",
        title=f"{words.name(first)}: {words.headline(first)}",
        sources=(report.source,),
        with_paths=with_paths,
        ladders=[_ladder(report, one) for one in report.ladders],
        effects_title=words.EFFECTS_TITLE,
        effects=words.effects(report, verbose=True),
        caveats=[*words.shared_notes(report), *report.warnings],
        read=report.source,
        unit=report.unit or report.metric,
    )


def _ladder(report: LadderReport, ladder: Ladder) -> Mapping[str, Any]:
    headers, rows = words.headers(report, ladder), words.rows(report, ladder)
    spots = words.spot_rows(report, ladder)
    return {
        "tone": words.tone(ladder),
        "name": words.name(ladder),
        "of": ladder.name,
        "headline": words.headline(ladder),
        "steps": rungs.steps(report, ladder),
        "front": rungs.front(report, ladder),
        "rungs": tables.of_words("rungs", headers, rows, n_left=words.n_left(report), is_sortable=False),
        "notes": words.notes(report, ladder, verbose=True),
        "memory": words.front(report, ladder),
        "spots": tables.of_words("", words.spot_headers(report), spots, n_left=words.n_left(report) + 1)
        if spots
        else None,
        "publish": ladder.sentence,
    }
