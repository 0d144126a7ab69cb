"""What profkit said of a cell, from its JSON report (`profkit schema`): nothing else of profkit is scored."""

from __future__ import annotations

from typing import Any

from analyses.accuracy.cell import Said
from profkit.findings import KINDS

_NO_CLASS = ""


def said(report: dict[str, Any]) -> Said:
    """Gives the verdict and the findings of a report. Gains are shares of the step as it is without the profiler.

    What a fix saves is in that time where the capture has timed it (`recorded_step_ns` then has the other).
    """
    verdict = report["verdict"]
    findings = [each for each in report["findings"] if each["id"] != "capture.quality"]
    step_ns = verdict["step_ns"] or 0
    return Said(
        bottleneck=verdict["bottleneck"],
        confidence=verdict["confidence"],
        gain=_ceiling(verdict, step_ns),
        is_healthy=verdict.get("healthy", False),
        finding_ids=tuple(each["id"] for each in findings),
        classes=tuple(_class_of(each["id"]) for each in findings),
        finding_gains=tuple(_share(_most_ns(each), step_ns) for each in findings),
        headline=verdict["headline"],
        time=_share(verdict["recoverable_ns"], step_ns) if step_ns else None,
        finding_times=tuple(_share(each["recoverable_ns"], step_ns) for each in findings),
        rank=verdict.get("rank"),
    )


def _class_of(finding_id: str) -> str:
    return KINDS[finding_id].bottleneck.value if finding_id in KINDS and KINDS[finding_id].bottleneck else _NO_CLASS


def _ceiling(verdict: dict[str, Any], step_ns: int) -> float | None:
    """Gives the largest share of the step that the verdict says could be saved; None where it knows no step."""
    if verdict["speedup_ceiling"] and verdict.get("most_recoverable_ns") is None:
        return 1 - 1 / float(verdict["speedup_ceiling"])
    return _share(_most_ns(verdict), step_ns) if step_ns else None


def _most_ns(one: dict[str, Any]) -> int:
    """Gives what a verdict or a finding says a fix saves at most."""
    most_ns: int | None = one.get("most_recoverable_ns")
    return int(one["recoverable_ns"]) if most_ns is None else most_ns


def _share(part_ns: int, step_ns: int) -> float:
    return min(part_ns / step_ns, 1.0) if step_ns else 0.0
