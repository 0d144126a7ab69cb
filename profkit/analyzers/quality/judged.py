"""`capture.quality`: what failed checks mean for whoever reads the report."""

from __future__ import annotations

from profkit.analyzers.base import Analyzer
from profkit.analyzers.quality.checks import checks, confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.analyzers.tools import recapture
from profkit.findings.capture import QUALITY, REFUSING
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Severity


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
            ),
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
        tables=(TableView(title="checks", headers=("check", "", "seen"), units=("text",) * 3, rows=rows),),
    )


ANALYZER = Analyzer(
    name="quality",
    question="can this trace be trusted?",
    needs="any trace",
    measure=measure,
    judge=judge,
    present=present,
)
