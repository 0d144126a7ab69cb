"""A comparison as a page: the answer, both budgets on one scale, the way from one step to the other, what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profkit.model.documents.comparison import Account, Comparison, Judgement
from profkit.render.html import page
from profkit.render.html.parts import bars, tables
from profkit.render.html.parts.glossary import glossary
from profkit.render.words import compare as words
from profkit.render.words import triage as text
from profkit.units import format_quantity

_MAX_WORKS: Final = 20


def render(comparison: Comparison, *, with_paths: bool = False, **_: object) -> str:
    """The comparison as one HTML file: without folders and names of hosts, unless `with_paths`."""
    sides = comparison.baseline, comparison.candidate
    labels = text.part_labels(is_cpu=comparison.baseline.is_cpu)
    both = _both(comparison, labels)
    return page.made(
        "compare.html.j2",
        title=f"{words.answer_name(comparison)}: {words.answer_sentence(comparison)}",
        sources=[source for side in sides for source in side.sources] + [one.source for one in comparison.failures],
        with_paths=with_paths,
        comparison=comparison,
        words=words,
        numbers=_numbers(comparison),
        both=both,
        legend=_legend(both),
        falls=bars.waterfall(comparison, labels),
        sides=_sides(comparison),
        works=[_works(*one) for one in words.accounts(comparison)],
        read=[
            (side.name, names) for side, names in zip(sides, words.read_names(comparison), strict=True) if side.sources
        ],
        glossary=glossary(is_cpu=comparison.baseline.is_cpu),
    )


def _numbers(comparison: Comparison) -> tables.Table:
    """The judged values, of each configuration where there are several."""
    named = comparison.configurations or (("", comparison.judgement),)
    headers = ("judged", "answer", "baseline", "candidate", "change", "95 % interval", "n", "sees changes of")
    rows = [(name or judged.metric, *_judged(judged)) for name, judged in named]
    return tables.of_words("what was judged", headers, rows, n_left=2)


def _judged(judged: Judgement) -> tuple[str, ...]:
    means = (format_quantity(mean, judged.unit) for mean in (judged.baseline_mean, judged.candidate_mean))
    answer, *rest = words.judged_cells(judged)
    return answer, *means, *rest


def _both(comparison: Comparison, labels: Mapping[str, str]) -> tuple[bars.StackedRow, ...]:
    """The step of each side by its parts, on one scale."""
    account = comparison.waterfall
    if account is None:
        return ()
    longest = max(account.baseline_ns, account.candidate_ns)
    return tuple(
        bars.stacked(name, ((bar.name, labels[bar.name], getattr(bar, f"{name}_ns")) for bar in account.bars), longest)
        for name in ("baseline", "candidate")
    )


def _legend(rows: tuple[bars.StackedRow, ...]) -> tuple[tuple[str, str], ...]:
    return tuple({segment.category: segment.label for row in rows for segment in row.segments}.items())


def _sides(comparison: Comparison) -> tables.Table | None:
    rows = words.side_rows(comparison) if comparison.waterfall is not None else []
    return (
        tables.of_words("both sides", ("", "baseline", "candidate"), rows, n_left=3, is_sortable=False)
        if rows
        else None
    )


def _works(title: str, account: Account) -> tables.Table:
    """What kernels or collectives changed, by how often and by how long they run."""
    rows = words.work_rows(account, _MAX_WORKS)
    headers, sums = (title, *words.WORK_HEADERS), (rows[-1][0],)
    return tables.of_words(f"{title} that changed", headers, rows, sums=sums, is_sortable=False)
