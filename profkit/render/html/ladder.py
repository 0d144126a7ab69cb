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
        report=report,
        words=words,
        ladders=[_ladder(report, one) for one in report.ladders],
    )


def _ladder(report: LadderReport, ladder: Ladder) -> Mapping[str, Any]:
    headers, rows, n_left = words.headers(report, ladder), words.rows(report, ladder), words.n_left(report)
    spots = words.spot_rows(report, ladder)
    return {
        "ladder": ladder,
        "steps": rungs.steps(report, ladder),
        "front": rungs.front(report, ladder),
        "rungs": tables.of_words("rungs", headers, rows, n_left=n_left, is_sortable=False),
        "spots": tables.of_words("", words.spot_headers(report), spots, n_left=n_left + 1) if spots else None,
    }
