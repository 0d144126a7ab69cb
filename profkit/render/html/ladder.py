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
    n_left = words.n_left(report)
    spots = tables.of_words("", *words.spots(report, ladder), n_left=n_left + 1)
    return {
        "ladder": ladder,
        "steps": rungs.steps(report, ladder),
        "front": rungs.front(report, ladder),
        "rungs": tables.of_words("rungs", *words.table(report, ladder), n_left=n_left, is_sortable=False),
        "spots": spots if ladder.spots else None,
    }
