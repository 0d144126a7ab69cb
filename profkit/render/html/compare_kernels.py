"""A comparison of kernels as a page: the answer, a line for each kernel, what moved with it."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import compare_kernels as words

_TONES: Final = {"FASTER": "good", "SLOWER": "bad", "NO CHANGE": "good"}


def render(report: KernelComparison, *, with_paths: bool = False, **_: object) -> str:
    """The comparison as one HTML file: without folders and names of hosts, unless `with_paths`."""
    name = words.verdict_name(report)
    shown = tables.of_words("kernels on both sides", words.HEADERS, words.rows(report), n_left=2)
    return page.made(
        "compare_kernels.html.j2",
        title=f"{name}: {words.headline(report)}",
        sources=(*report.before, *report.after),
        with_paths=with_paths,
        report=report,
        words=words,
        tone=_TONES.get(name, "open"),
        name=name,
        table=shown if report.kernels else None,
        kernels=[(one, _metrics(one)) for one in words.told(report, is_full=True)],
    )


def _metrics(one: KernelChange) -> tables.Table | None:
    rows = words.metric_rows(one, is_full=True)
    return tables.of_words("", words.ALL_METRIC_HEADERS, rows) if rows else None
