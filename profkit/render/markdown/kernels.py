"""A kernel report as markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.model.kernel import KernelAssessment, KernelReport
from profkit.render.markdown.parts import bullets, escaped, page, table_of_texts, titled
from profkit.render.words import kernels as words


def render(report: KernelReport, **_: object) -> str:
    """The report as GitHub-flavoured markdown: the table of launches, then the longest ones."""
    paragraphs = ["## profkit: kernels", table_of_texts(*words.table(report), n_left=1)]
    paragraphs += [text for one in words.told(report, is_full=False) for text in _kernel(one)]
    paragraphs += [titled("Caveats", report.warnings), f"_{escaped(', '.join(report.sources))}_"]
    return page(paragraphs)


def _kernel(one: KernelAssessment) -> Iterable[str]:
    yield f"### {escaped(words.name_of(one))}: {one.speed.kernel_class.value}"
    told = [words.headline(one), words.rule_sentence(one), words.device_of(one)]
    yield escaped(". ".join(filter(None, told))) + "."
    yield bullets(item.statement for item in one.evidence)
    yield titled("What to do", (f"{item.fix} ({item.because.statement})" for item in one.advice))
