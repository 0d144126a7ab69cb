"""The report for an agent: verdict, next command, budget, findings with evidence ids, limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.findings.capture import QUALITY
from profkit.model.documents.fleet import Fleet
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Bottleneck, Report
from profkit.model.finding import Finding, confidence_label
from profkit.render.agent.page import Entry, Need, command, fact, finding_lines, line, page, pairs, plain
from profkit.render.words import fleet as fleet_words
from profkit.render.words import triage as text
from profkit.render.words.fleet import TIMES
from profkit.render.words.keys import keyed
from profkit.units import format_ceiling, format_fraction

_MOST_OTHERS: Final = 6
_MOST_ROWS: Final = 8
_MOST_FAILURES: Final = 4


def render(report: Report, **_: object) -> str:
    """The report as text of at most `page.MOST_CHARS` characters."""
    rank = text.shown_rank(report)
    entries = [
        *_verdict(report),
        *_next(report),
        *(_budget(report, rank) if rank is not None else ()),
        *_findings(report),
        *(_fleet(report.fleet) if report.fleet is not None else ()),
        *_limits(report, rank),
    ]
    return page("triage", "triage", entries)


def _verdict(report: Report) -> Iterable[Entry]:
    verdict = report.verdict
    is_open = verdict.bottleneck is Bottleneck.INCONCLUSIVE
    word = ("healthy" if verdict.is_healthy else "") + text.of_rank(report).removeprefix(", ")
    yield line(fact("verdict", verdict.bottleneck.value, "verdict.bottleneck", says=word), Need.ANSWER)
    yield line(f"  {plain(text.headline(verdict))}", Need.ANSWER)
    if not is_open:
        sure = confidence_label(verdict.confidence)
        yield line(fact("confidence", verdict.confidence, "verdict.confidence", says=sure), Need.ANSWER)
    yield line(
        fact("step", verdict.step_ns, "verdict.step_ns", unit="ns", says=text.step_sentence(report)), Need.ANSWER
    )
    for name in ("recorded_step_ns", "unprofiled_step_ns"):
        if (value := getattr(verdict, name)) is not None:
            yield line(fact(name.removesuffix("_ns").replace("_", " "), value, f"verdict.{name}", unit="ns"))
    if verdict.recoverable_ns:
        says = text.gain_sentence(verdict)
        yield line(fact("a fix saves", verdict.recoverable_ns, "verdict.recoverable_ns", unit="ns", says=says))
    if verdict.most_recoverable_ns is not None:
        yield line(fact("a fix saves at most", verdict.most_recoverable_ns, "verdict.most_recoverable_ns", unit="ns"))
    if verdict.speedup_ceiling is not None and verdict.recoverable_ns:
        bound = "at best" if verdict.most_recoverable_ns is None else "without the time of the cause"
        says = f"{format_ceiling(verdict.speedup_ceiling)} faster {bound}"
        yield line(fact("speed-up ceiling", verdict.speedup_ceiling, "verdict.speedup_ceiling", says=says))
    if report.fleet is not None and (found := report.fleet.prediction) is not None:
        says = fleet_words.prediction_sentence(report)
        yield line(fact("predicted step", found.predicted_ns, "fleet.prediction.predicted_ns", unit="ns", says=says))
    if report.handover is not None:
        told = report.handover
        yield line(fact("second tool", told.status.value, "handover.status", says=told.sentence), Need.ANSWER)


def _next(report: Report) -> Iterable[Entry]:
    verdict = report.verdict
    tool = verdict.next_tool
    yield line(f"next: {text.no_tool_needed(verdict)}{tool.name}, {plain(tool.purpose)}", Need.ANSWER)
    if tool.command:
        yield command("  command", tool.command)
    if tool.look_for:
        yield line(f"  look for: {plain(tool.look_for)}", Need.LIMIT)
    if verdict.measure is not None:
        yield command("  measures what a fix gives", verdict.measure.text, Need.MAIN)
    if verdict.proof:
        yield line(f"  proof: {plain(verdict.proof)}", Need.LIMIT)


def _budget(report: Report, rank: RankReport) -> Iterable[Entry]:
    """The shown rank's window and its parts; the shares are those of the bar in the terminal."""
    device = text.main_device(rank)
    if device is None or not device.budget.window_ns:
        return
    number = next(place for place, one in enumerate(report.ranks) if one is rank)
    of = next(place for place, one in enumerate(rank.devices) if one is device)
    low, high = rank.window_ns
    named = f"rank {rank.rank}, " if rank.rank is not None else ""
    says = (
        f"{rank.steps.n} steps; budget of {named}{device.name or f'device {device.device}'}, parts that are 0 left out"
    )
    yield line(fact("window", high - low, f"ranks[{number}].window.duration_ns", unit="ns", says=says))
    labels, shares = text.labels_of(device), device.budget.tenths
    for name, part in device.budget.parts.items():
        if part:
            share = text.percent(shares[name]) if shares[name] else "<0.1 %"
            path = f"ranks[{number}].devices[{of}].budget_ns.{name}"
            yield line(
                f"  {fact(f'part {name}', part, path, unit='ns', says=f'{labels[name]}, {share} of the window')}"
            )
    if rank.steps.cv is not None and rank.steps.n > 1:
        says = f"the steps vary by {format_fraction(rank.steps.cv)}"
        yield line(fact("step variation", rank.steps.cv, f"ranks[{number}].steps.cv", says=says), Need.OTHER)
    if rank.roof:
        yield line(fact("roof", rank.roof, f"ranks[{number}].roof"), Need.LIMIT)


def _findings(report: Report) -> Iterable[Entry]:
    """Those of the verdict with all evidence, of the others the number that each is judged by."""
    paths = {one: f"findings[{place}]" for place, one in reversed(list(enumerate(report.findings)))}
    paths |= {one: f"joint_findings[{place}]" for place, one in enumerate(report.joint_findings)}
    for place, finding in enumerate(report.verdict.findings):
        need = Need.MAIN if place == 0 else Need.FINDING
        yield from finding_lines(finding, paths[finding], says=_share(finding, report), need=need)
    shown = set(report.verdict.findings)
    others = [one for one in text.other_findings(report) if one not in shown]
    for one in others[:_MOST_OTHERS]:
        yield from finding_lines(one, paths[one], says=_share(one, report), need=Need.OTHER, is_full=False)
    if not report.verdict.findings and not others:
        yield line("findings: none")


def _share(finding: Finding, report: Report) -> str:
    share = text.share_of(finding, report)
    return f"{share} of the window" if share else ""


def _fleet(fleet: Fleet) -> Iterable[Entry]:
    """The ranks with a cause of their own, then those with the longest steps; keys as in the JSON."""
    order = sorted(range(len(fleet.rows)), key=lambda place: (not fleet.rows[place].cause, -fleet.rows[place].step_ns))
    for place in order[:_MOST_ROWS]:
        row = fleet.rows[place]
        cause = f" cause: {plain(row.cause)}" if row.cause else ""
        yield line(f"rank {row.ranks[0]} [fleet.rows[{place}]]: {pairs(keyed(row, TIMES))}{cause}", Need.RANK)
    if len(order) > _MOST_ROWS:
        yield line(f"more ranks [fleet.rows]: {len(order) - _MOST_ROWS:,}", Need.RANK)
    for place, said in enumerate(fleet.explained):
        yield line(f"explained [fleet.explained[{place}]]: {plain(said)}", Need.OTHER)


def _limits(report: Report, rank: RankReport | None) -> Iterable[Entry]:
    verdict = report.verdict
    failing = [check for check in rank.checks if not check.ok] if rank is not None else []
    if failing:
        names = ", ".join(f"{check.id} ({check.message})" for check in failing)
        yield line(f"checks of the capture that fail ({QUALITY.id}): {plain(names)}", Need.LIMIT)
    for place, note in enumerate(verdict.caveats):
        yield line(f"caveat [verdict.caveats[{place}]]: {plain(note)}", Need.LIMIT)
    if verdict.ruled_out:
        yield line(f"ruled out [verdict.ruled_out]: {plain(', '.join(verdict.ruled_out))}", Need.LIMIT)
    for place, failure in enumerate(report.failures[:_MOST_FAILURES]):
        yield line(f"not read [failures[{place}]]: {plain(f'{failure.source}: {failure.message}')}", Need.LIMIT)
    if len(report.failures) > _MOST_FAILURES:
        yield line(f"more not read [failures]: {len(report.failures) - _MOST_FAILURES:,}", Need.LIMIT)
    if report.skipped:
        names = ", ".join(dict.fromkeys(skip.analyzer for skip in report.skipped))
        yield line(f"not analysed [skipped]: {names}", Need.OTHER)
