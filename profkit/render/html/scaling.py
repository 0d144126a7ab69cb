"""A scaling report as a page: for each series its standing, the curve against the ideal, sizes, case and sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from profkit.model.documents.scaling import ScalingReport, Series, Standing
from profkit.render.html import page
from profkit.render.html.parts import curves, tables
from profkit.render.words import scaling as words

_TONES: Final = {Standing.SOUND: "good", Standing.DOUBTFUL: "open", Standing.ACCUSED: "bad"}


def render(report: ScalingReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    first = next(iter(report.series), None)
    return page.made(
        "scaling.html.j2",
        title="scaling" if first is None else f"{words.name(first)}: {words.headline(first)}",
        sources=report.sources,
        with_paths=with_paths,
        report=report,
        words=words,
        series=[_series(one) for one in report.series],
    )


def _series(series: Series) -> Mapping[str, Any]:
    headers, rows = words.headers(series), words.rows(series)
    parts = words.decomposition_rows(series.decompositions)
    return {
        "series": series,
        "tone": _TONES[series.standing] if words.name(series) != "DOES NOT SCALE" else "bad",
        "curve": curves.curve(series),
        "points": tables.of_words("sizes", headers, rows, n_left=0, is_sortable=len(rows) > 2),
        "parts": tables.of_words("", words.PART_HEADERS, parts, n_left=2, is_sortable=False) if parts else None,
    }
