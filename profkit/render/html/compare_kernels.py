"""A comparison of kernels as a page: the answer, a line for each kernel, what moved with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from profkit.model.documents.kernel_comparison import KernelChange, KernelComparison
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import compare_kernels as words

_TONES: Final = {"FASTER": "good", "SLOWER": "bad", "NO CHANGE": "good"}


def render(report: KernelComparison, *, with_paths: bool = False, **_: object) -> str:
    """The comparison as one HTML file: without folders and names of hosts, unless `with_paths`."""
    name = words.verdict_name(report)
    return page.made(
        "compare_kernels.html.j2",
        title=f"{name}: {words.headline(report)}",
        sources=(*report.before, *report.after),
        with_paths=with_paths,
        tone=_TONES.get(name, "open"),
        name=name,
        headline=words.headline(report),
        table=tables.of_words("kernels on both sides", words.HEADERS, words.rows(report), n_left=2)
        if report.kernels
        else None,
        kernels=[_kernel(one) for one in words.told(report, is_full=True)],
        alone=[
            (label, words.alone(sides))
            for label, sides in (("Only before", report.only_before), ("Only after", report.only_after))
            if sides
        ],
        limits=(*report.warnings, words.LIMIT),
        read=(("before", ", ".join(report.before)), ("after", ", ".join(report.after))),
    )


def _kernel(one: KernelChange) -> Mapping[str, Any]:
    rows = words.metric_rows(one, is_full=True)
    return {
        "sentence": words.sentence(one),
        "notes": list(filter(None, (words.spread(one), *one.caveats))),
        "table": tables.of_words("", words.ALL_METRIC_HEADERS, rows) if rows else None,
    }
