"""A kernel report as a page: the table of launches, then what limits each of the longest ones and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profkit.model.kernel import KernelAssessment, KernelReport
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.words import kernels as words


def render(report: KernelReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    headers, rows = words.table(report)
    first = next(iter(words.told(report, is_full=False)), None)
    return page.made(
        "kernels.html.j2",
        title="kernels" if first is None else f"{words.verdict_name(first)}: {words.name_of(first)}",
        sources=report.sources,
        with_paths=with_paths,
        name="" if first is None else words.verdict_name(first),
        headline="no launch was profiled" if first is None else f"{words.name_of(first)}: {words.headline(first)}",
        table=tables.of_words("launches", headers, rows, n_left=2) if rows else None,
        kernels=[_kernel(one) for one in words.told(report, is_full=False)],
        warnings=report.warnings,
        read=report.sources,
    )


def _kernel(one: KernelAssessment) -> Mapping[str, Any]:
    return {
        "name": words.name_of(one),
        "kind": one.speed.kernel_class.value,
        "told": list(filter(None, (words.headline(one), words.rule_sentence(one), words.device_of(one)))),
        "evidence": [item.statement for item in one.evidence],
        "advice": [(item.fix, item.because.statement) for item in one.advice],
    }
