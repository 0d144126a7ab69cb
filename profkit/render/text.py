"""What the text renderers share: labels, shares that add up, cells, and names made harmless."""

from __future__ import annotations

import os
from typing import Final

from profkit.model.finding import Finding
from profkit.model.names import short_name
from profkit.model.report import Budget, RankReport, Report, Verdict
from profkit.units import format_bytes, format_count, format_fraction, format_ns, format_speedup

LABELS: Final = {
    "compute": "compute",
    "comm_exposed": "exposed comm",
    "copy_exposed": "exposed copies",
    "idle_data": "waiting for data",
    "idle_sync": "after syncs",
    "idle_launch": "launch/dispatch",
    "idle_host": "other host work",
    "idle_dependency": "dependency",
    "idle_unknown": "unknown",
}
"""Parts of the budget as people read them."""


def clean(text: str) -> str:
    """Give text without control characters: names come from files, and a terminal obeys what it is sent."""
    return "".join(character if character.isprintable() else "?" for character in text)


def shares_of(budget: Budget) -> dict[str, float]:
    """Give the parts in percent with one decimal, rounded so that they add up to exactly 100.0 (largest remainder)."""
    if budget.window_ns == 0:
        return dict.fromkeys(budget.parts, 0.0)
    exact = {name: part * 1000 / budget.window_ns for name, part in budget.parts.items()}
    tenths = {name: int(value) for name, value in exact.items()}
    missing = 1000 - sum(tenths.values())
    for name in sorted(exact, key=lambda key: tenths[key] - exact[key])[:missing]:
        tenths[name] += 1
    return {name: value / 10 for name, value in tenths.items()}


def cell(value: object, unit: str) -> str:
    """Give a table cell in its column's unit."""
    if value is None:
        return "-"
    if unit == "text" or isinstance(value, str):
        return clean(str(value))
    number = float(value)  # type: ignore[arg-type]
    formats = {"ns": format_ns, "fraction": format_fraction, "count": format_count, "bytes": format_bytes}
    return formats[unit](number) if unit in formats else str(value)


def kernel_cell(name: str, width: int) -> str:
    """Give a kernel or operator name that fits, template arguments left out."""
    return clean(short_name(name, max(width, 16)))


def step_sentence(report: Report) -> str:
    """Give "Step 41.2 ms (5 steps, cv 2 %)", or what stands for it where no steps are known."""
    rank = shown_rank(report)
    if rank is None or report.verdict.step_ns is None:
        window = rank.window_ns[1] - rank.window_ns[0] if rank is not None else 0
        return f"Window {format_ns(window)}, no steps found"
    spread = f", cv {100 * (rank.steps.cv or 0):.0f} %" if rank.steps.n > 1 else ""
    plural = "s" if rank.steps.n != 1 else ""
    source = "" if rank.steps.source == "ProfilerStep" else ", found by period"
    return f"Step {format_ns(report.verdict.step_ns)} ({rank.steps.n} step{plural}{spread}{source})"


def gain_sentence(verdict: Verdict) -> str:
    """Give what removing the cause could give at most, "" where nothing is to be gained."""
    if not verdict.recoverable_ns or verdict.speedup_ceiling is None:
        return ""
    per = "per step" if verdict.step_ns is not None else "in all"
    gain = f"{format_speedup(verdict.speedup_ceiling)} (-{format_ns(verdict.recoverable_ns)} {per})"
    return f"Removing it could give at most {gain}"


def shown_rank(report: Report) -> RankReport | None:
    """Give the rank that the verdict speaks of."""
    for rank in report.ranks:
        if rank.source == report.verdict.source:
            return rank
    return report.ranks[0] if report.ranks else None


def main_budget(rank: RankReport) -> Budget | None:
    """Give the budget of the busiest device."""
    device = max(rank.devices, key=lambda item: item.busy_any_ns, default=None)
    return device.budget if device is not None else None


def evidence_lines(findings: tuple[Finding, ...], most: int) -> list[str]:
    """Give the statements of the findings in order, at least one of each."""
    first = [finding.evidence[0].statement for finding in findings]
    rest = [item.statement for finding in findings for item in finding.evidence[1:]]
    chosen = set(first + rest[: max(0, most - len(first))])
    ordered = [item.statement for finding in findings for item in finding.evidence]
    return [clean(statement) for statement in dict.fromkeys(ordered) if statement in chosen]


def source_name(source: str) -> str:
    """Give a source's file name."""
    return clean(os.path.basename(source) or source)
