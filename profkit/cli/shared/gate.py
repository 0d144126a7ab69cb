"""The gate of `profkit triage`: which findings fail it, by which number over which limit, said on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from profkit.cli.shared.say import say, say_below
from profkit.cli.shared.settings import NEVER, Settings, settings
from profkit.model.finding import SEVERITY_FROM, Finding, Severity, severity_of
from profkit.units import format_fraction

if TYPE_CHECKING:
    from profkit.model.documents.report import Report

SEVERITIES: Final = (*(one.value for one in Severity), NEVER)
_SHOWN: Final = 5
_LONGEST: Final = 240


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What fails a report: a severity, or of some findings a share of the window."""

    fail_on: Severity | None
    asked: str
    """How that was asked for."""
    settings: Settings

    @property
    def is_open(self) -> bool:
        """Whether nothing can fail."""
        return self.fail_on is None and not self.settings.limits

    def fails(self, finding: Finding) -> bool:
        """Whether a finding does: by its own limit where it has one, else by its severity."""
        if finding.id in self.settings.limits:
            limit = self.settings.limits[finding.id]
            return limit is not None and finding.fraction > limit
        return self.fail_on is not None and finding.severity.rank <= self.fail_on.rank


def gate_of(flag: str | None) -> Gate:
    """The gate of a command: `--fail-on`, else the settings; raises UsageError as `settings` does."""
    if flag == NEVER:
        return Gate(fail_on=None, asked="", settings=Settings())
    found = settings()
    if flag is not None:
        return Gate(fail_on=Severity(flag), asked=f"--fail-on {flag}", settings=found)
    named = f"fail-on = {found.fail_on.value!r}" if found.fail_on is not None else "limits"
    return Gate(fail_on=found.fail_on, asked=f"{named} of {found.origin}", settings=found)


def passed(report: Report, gate: Gate) -> bool:
    """Whether a report passes, said with the numbers; without a word where nothing can fail."""
    if gate.is_open:
        return True
    failing = _worst_of_each([finding for finding in report.findings if gate.fails(finding)])
    if not failing:
        say(f"{gate.asked}: {_nothing(report, gate)}; exit code 0")
        return True
    n_failing = len(failing)
    say(f"{gate.asked}: {n_failing} finding{'s fail' if n_failing > 1 else ' fails'}; exit code 1")
    for finding in failing[:_SHOWN]:
        say_below(_why(finding, report, gate))
    if n_failing > _SHOWN:
        say_below(f"and {n_failing - _SHOWN} more")
    return False


def _worst_of_each(findings: list[Finding]) -> list[Finding]:
    """Of each id the largest, the worst first: ranks share most of their findings."""
    ordered = sorted(findings, key=lambda one: (one.severity.rank, -one.fraction))
    return list({one.id: one for one in reversed(ordered)}.values())[::-1]


def _why(finding: Finding, report: Report, gate: Gate) -> str:
    of_rank = f" of rank {finding.rank}" if finding.rank is not None and len(report.ranks) > 1 else ""
    said = finding.measure.statement
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
    return f"{finding.id}{of_rank}: {_over(finding, report, gate)}: {said}"


def _over(finding: Finding, report: Report, gate: Gate) -> str:
    """Its number and the limit that it is over."""
    limit = gate.settings.limits.get(finding.id)
    if limit is not None:
        return f"{_share(finding, report)}, limit {format_fraction(limit)} ({gate.settings.origin})"
    assert gate.fail_on is not None  # noqa: S101 - it fails by its severity
    least = SEVERITY_FROM.get(gate.fail_on)
    if severity_of(finding.fraction) is finding.severity and least is not None:
        return f"{_share(finding, report)}, {gate.fail_on.value} is from {format_fraction(least)}"
    return f"severity {finding.severity.value}, whatever its share"


def _share(finding: Finding, report: Report) -> str:
    from profkit.render.words.triage import share_of  # of numpy, too, which other commands need not load

    return f"{share_of(finding, report) or format_fraction(finding.fraction)} of the window"


def _nothing(report: Report, gate: Gate) -> str:
    """Why nothing fails: the largest of what was found, and its limit."""
    largest = next(iter(_worst_of_each(list(report.findings))), None)
    if largest is None:
        return "nothing was found"
    said = f"{largest.severity.value}, {_share(largest, report)}"
    limits = ", ".join(_limits_of(largest, gate))
    return f"no finding fails; the largest is {largest.id} ({said}{f'; {limits}' if limits else ''})"


def _limits_of(finding: Finding, gate: Gate) -> Iterator[str]:
    if finding.id in gate.settings.limits:
        limit = gate.settings.limits[finding.id]
        yield f"limit {format_fraction(limit)}" if limit is not None else "it never fails"
    elif gate.fail_on is not None and (least := SEVERITY_FROM.get(gate.fail_on)) is not None:
        yield f"{gate.fail_on.value} is from {format_fraction(least)}"
