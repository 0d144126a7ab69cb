"""The report as markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable

from profkit.model.budget import WORK_PARTS
from profkit.model.documents.handover import Handover
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Bottleneck, Report, Verdict
from profkit.model.finding import Finding, confidence_label
from profkit.render.markdown.parts import bullets, escaped, page, table, table_of_texts, titled
from profkit.render.words import crosscheck as handover
from profkit.render.words import fleet, places
from profkit.render.words import triage as text
from profkit.shell import clean
from profkit.units import format_ns


def render(report: Report, **_: object) -> str:
    """The report as GitHub-flavoured markdown: verdict, budget, evidence, what to do, next command, caveats."""
    rank = text.shown_rank(report)
    paragraphs = [
        *_verdict(report),
        *_second_tool(report.handover),
        _budget(rank) if rank is not None else "",
        _roof(report, rank) if rank is not None else "",
        *_across(report),
        *_findings(report),
        *_advice(report.verdict),
        *_limits(report),
        *(f"_{escaped(line)}_" for line in _origin(report, rank)),
    ]
    return page(paragraphs)


def _origin(report: Report, rank: RankReport | None) -> Iterable[str]:
    if rank is None:
        return ()
    again = text.again_line(rank)
    said = (text.origin(report, rank), text.recorded_sentence(rank), f"lines from {again}" if again else "")
    return tuple(filter(None, said))


def _verdict(report: Report) -> Iterable[str]:
    verdict = report.verdict
    is_open = verdict.bottleneck is Bottleneck.INCONCLUSIVE
    sure = "" if is_open else f" (confidence {confidence_label(verdict.confidence)})"
    yield f"## profkit: {text.verdict_name(verdict).lower()}{sure}{text.of_rank(report)}"
    yield f"**{escaped(text.headline(verdict))}**"
    facts = fleet.step_facts(report)
    yield escaped(". ".join(facts)) + "." if facts else ""


def _second_tool(told: Handover | None) -> Iterable[str]:
    """What the second tool says, with its evidence, and both budgets side by side."""
    if told is None:
        return
    yield f"**Second tool: {told.status.value}**. {escaped(handover.sentence(told))}"
    yield bullets(handover.evidence(told, is_full=True))
    for timeline in told.timelines:
        if timeline.parts:
            yield escaped(handover.title(timeline))
            yield table(handover.PART_HEADERS, handover.part_rows(timeline), n_left=1)
            yield table_of_texts(handover.FUNCTION_HEADERS, handover.function_rows(timeline), n_left=2)
    if told.kernels is not None and told.kernels.kernels:
        yield table_of_texts(handover.KERNEL_HEADERS, handover.kernel_rows(told.kernels), n_left=3)


def _budget(rank: RankReport) -> str:
    device = text.main_device(rank)
    if device is None or device.budget.window_ns == 0:
        return ""
    labels, shares = text.labels_of(device), device.budget.tenths
    idle = "rest" if device.kind == "cpu" else "idle"
    whole_ns = rank.steps.mean_ns or device.budget.window_ns
    per_step = device.budget.window_ns / whole_ns
    rows = [
        (labels[name] if name in WORK_PARTS else f"{idle}: {labels[name]}", format_ns(part / per_step), shares[name])
        for name, part in device.budget.parts.items()
        if part
    ]
    whole = ("**all**", format_ns(whole_ns), 1000)
    unit = "per step" if rank.steps.n else "in the window"
    cells = [(label, size, text.percent(share) if share else "<0.1 %") for label, size, share in (*rows, whole)]
    return table(("where the time goes", unit, "share"), cells, n_left=1)


def _roof(report: Report, rank: RankReport) -> str:
    said = text.roof_sentence(report, rank)
    return f"Roof: {escaped(said)}." if said else ""


def _across(report: Report) -> Iterable[str]:
    """The table of ranks: what they show together, or each of its own window."""
    if report.fleet is None or not report.fleet.rows:
        _, headers, rows = text.rank_table(report.ranks)
        yield table_of_texts(headers, rows, n_left=1) if len(rows) > 1 else ""
        return
    yield escaped(fleet.table_title(report))
    yield table_of_texts(fleet.headers_of(report.fleet), fleet.cells_of(report.fleet), n_left=1)
    facts = fleet.facts_of(report.fleet)
    yield "\n".join(f"- {label}: {escaped(line)}" if label else f"- {escaped(line)}" for label, line in facts)


def _findings(report: Report) -> Iterable[str]:
    for reason in text.reasons(report.verdict, is_full=True):
        finding = reason.finding
        yield f"**{escaped(finding.title)}** ({_weight(finding, report)})"
        yield bullets(reason.statements)
        if finding.places:
            yield "Where:"
            yield bullets(places.place_line(share).strip() for share in finding.places)
    others = [f"- {escaped(finding.title)} ({_weight(finding, report)})" for finding in text.other_findings(report)]
    if others:
        yield "**Also found**"
        yield "\n".join(others)


def _weight(finding: Finding, report: Report) -> str:
    return f"`{finding.id}`, {text.weight(finding, report)}"


def _advice(verdict: Verdict) -> Iterable[str]:
    yield titled("What to do", verdict.fixes)
    if verdict.proof:
        yield f"**Prove it first**: {escaped(verdict.proof)}"
    if verdict.measure is not None:
        yield "**Measure it**: what removing the cause gives"
        yield _fenced(clean(verdict.measure.text))
    tool = verdict.next_tool
    yield f"**Next tool**: {text.no_tool_needed(verdict)}{escaped(tool.name)}, {escaped(tool.purpose)}"
    if tool.command:
        yield _fenced(clean(tool.command))
    if tool.look_for:
        yield f"Look for: {escaped(tool.look_for)}"
    if verdict.ruled_out:
        yield f"Ruled out: {escaped(', '.join(verdict.ruled_out))}"


def _fenced(command: str) -> str:
    """A fenced block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{command}\n{fence}"


def _limits(report: Report) -> Iterable[str]:
    rank = text.shown_rank(report)
    warnings = rank.warnings if rank is not None else ()
    yield titled("Caveats", [*text.caveats(report), *warnings])
    for label, group in fleet.set_apart(report).items():
        yield titled(label.capitalize(), fleet.left_out_lines(group))
    if report.failures:
        yield "**Not read**"
        yield "\n".join(f"- {escaped(failure.source)}: {escaped(failure.message)}" for failure in report.failures)
    if report.skipped:
        yield "**Not analysed**"
        yield "\n".join(f"- {escaped(skip.analyzer)}: {escaped(skip.reason)}" for skip in report.skipped)
