"""`capture.quality`: what failed checks mean for whoever reads the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.analyzers.base import Analyzer, sampled_evidence
from profkit.analyzers.quality.checks import checks, confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.analyzers.tools import recapture
from profkit.findings.capture import QUALITY, REFUSING
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity
from profkit.units import format_fraction

_MOST_NAMED: Final = 4
_INSIDE: Final = 0.8
"""Chosen: of two operators that take that nearly the same time, one calls the other."""
_WORTH_A_NAME: Final = 0.01
"""Chosen: what has less than a percent of the window explains nothing."""
_WORTH_A_HEADLINE: Final = 0.1
"""Of the window. Chosen: less is no account of the time."""
OS_SHARE: Final = 0.05
"""Chosen: of the window, from which calls of the operating system are named where no operators were recorded."""


def judge(result: Quality) -> tuple[Finding, ...]:
    """The finding `capture.quality` when a check fails."""
    failed = [check for check in checks(result) if not check.ok]
    if not failed:
        return ()
    refuses = any(check.id in REFUSING for check in failed)
    return (
        QUALITY.found(
            title="the trace does not allow a verdict" if refuses else "the trace limits the confidence",
            severity=Severity.HIGH if refuses else Severity.INFO,
            confidence=0.95,
            recoverable_ns=0,
            fraction=0.0,
            evidence=tuple(
                Evidence(statement=check.message, metric=check.id, value=check.value or 0.0, unit="")
                for check in failed
            )
            + _instead(result, is_refused=refuses),
            fix=result.scope.traits.how_to_be_steady,
            next_tools=(
                recapture(
                    result.scope,
                    "record a longer trace of steady steps",
                    "all checks of `profkit info` pass",
                ),
            ),
        ),
    )


def _instead(result: Quality, *, is_refused: bool) -> tuple[Evidence, ...]:
    """What ranges and calls say where no operators were recorded, and what the host did where there is no verdict."""
    window_ns = result.scope.window_ns
    said = []
    if is_refused and (named := _shares(_apart(result.busy), window_ns)):
        said.append(f"of the window, the host spends {named}")
    if result.ranges and window_ns:
        said.append(f"of the window, the training thread spends {_shares(result.ranges, window_ns)} (by its ranges)")
    in_system = sum(spent for _, spent in result.os_waits)
    if in_system >= OS_SHARE * window_ns > 0:
        said.append(
            f"of the window, beside waits for input, it spends {_shares(result.os_waits, window_ns)}: calls of the"
            " operating system"
        )
    return (
        *(Evidence.count("ranges", len(result.ranges), one) for one in said),
        *sampled_evidence(result.samples, is_cpu=True, when="beside waits for input"),
    )


def meanwhile(result: Quality) -> str:
    """What the host does most of the time, where a check refuses and that is known; "" else."""
    name, spent = result.busy[0] if result.busy else ("", 0)
    share = result.scope.fraction(spent)
    return f"meanwhile the host spends {format_fraction(share)} in {name}" if share >= _WORTH_A_HEADLINE else ""


def _apart(busy: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Operators and calls without those that take nearly as long as one before: they are inside it, or around it."""
    kept: list[tuple[str, int]] = []
    for name, spent in busy:
        if not any(spent >= _INSIDE * other for _, other in kept):
            kept.append((name, spent))
    return kept


def _shares(parts: Sequence[tuple[str, int]], window_ns: int) -> str:
    shares = [(name, spent / window_ns) for name, spent in parts[:_MOST_NAMED]]
    return ", ".join(f"{format_fraction(share)} in {name}" for name, share in shares if share >= _WORTH_A_NAME)


def present(result: Quality) -> Section:
    """Show every check with its value."""
    rows = tuple((check.id, "ok" if check.ok else "FAILS", check.message) for check in checks(result))
    return Section(
        analyzer="quality",
        title="capture quality",
        values={
            "confidence_cap": confidence_cap(result),
            "n_launches_during_capture": result.n_during_capture,
        },
        tables=(TableView.of("checks", {"check": "text", "": "text", "seen": "text"}, rows),),
    )


ANALYZER = Analyzer(
    name="quality",
    question="can this trace be trusted?",
    needs="any trace",
    measure=measure,
    judge=judge,
    present=present,
)
