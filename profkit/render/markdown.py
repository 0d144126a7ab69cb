"""The report as markdown, for a pull request or an issue."""

from __future__ import annotations

from profkit.model.finding import Finding, confidence_label
from profkit.model.report import Bottleneck, RankReport, Report
from profkit.render.text import LABELS, clean, gain_sentence, main_budget, shares_of, source_name, step_sentence
from profkit.units import format_fraction, format_ns


def render(report: Report) -> str:
    """Give the report as GitHub-flavoured markdown."""
    verdict = report.verdict
    is_open = verdict.bottleneck is Bottleneck.INCONCLUSIVE
    name = "healthy" if verdict.is_healthy else verdict.bottleneck.value
    sure = "" if is_open else f" (confidence {confidence_label(verdict.confidence)})"
    lines = [f"## profkit: {name}{sure}", "", f"**{escaped(verdict.headline)}**", ""]
    lines += [". ".join(filter(None, (step_sentence(report), gain_sentence(verdict)))) + ".", ""]
    for rank in report.ranks:
        lines += _budget(rank, is_alone=len(report.ranks) == 1)
    lines += _findings(verdict.findings)
    if verdict.fixes:
        lines += ["**What to do**", "", *(f"- {escaped(fix)}" for fix in verdict.fixes), ""]
    tool = verdict.next_tool
    lines += [f"**Next tool: {tool.name}**, {escaped(tool.purpose)}", "", "```sh", clean(tool.command), "```", ""]
    lines += [f"Look for: {escaped(tool.look_for)}", ""]
    if verdict.ruled_out:
        lines += [f"Not this: {escaped(', '.join(verdict.ruled_out))}", ""]
    warnings = [warning for rank in report.ranks for warning in rank.warnings]
    lines += ["**Caveats**", "", *(f"- {escaped(text)}" for text in (*verdict.caveats, *warnings)), ""]
    if report.failures:
        lines += ["**Not analysed**", "", *(f"- {escaped(failure.message)}" for failure in report.failures), ""]
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    """Give text that markdown prints as it is: no tables broken, no HTML, no emphasis by accident."""
    out = clean(text).replace("\\", "\\\\")
    for character in "|`*_[]":
        out = out.replace(character, "\\" + character)
    return out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _budget(rank: RankReport, *, is_alone: bool) -> list[str]:
    budget = main_budget(rank)
    if budget is None:
        return []
    per_step = max(rank.steps.n, 1)
    shares = shares_of(budget)
    title = (
        []
        if is_alone
        else [f"### rank {'?' if rank.rank is None else rank.rank}: {escaped(source_name(rank.source))}", ""]
    )
    unit = "per step" if rank.steps.n else "in the window"
    rows = [
        f"| {LABELS[name]} | {format_ns(part / per_step)} | {shares[name]:.1f} % |"
        for name, part in budget.parts.items()
        if part
    ]
    return [*title, f"| where the time goes | {unit} | share |", "|---|---:|---:|", *rows, ""]


def _findings(findings: tuple[Finding, ...]) -> list[str]:
    lines: list[str] = []
    for finding in findings:
        head = f"**{escaped(finding.title)}** (`{finding.id}`, {finding.severity.value}"
        lines += [f"{head}, {format_fraction(finding.fraction)} of the window)", ""]
        lines += [f"- {escaped(evidence.statement)}" for evidence in finding.evidence]
        lines.append("")
    return lines
