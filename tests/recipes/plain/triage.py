"""A verdict as one line."""

from __future__ import annotations

from profkit.model.documents.report import Report


def render(report: Report, **_: object) -> str:
    """The bottleneck and the headline; the line is as long as they are."""
    return f"{report.verdict.bottleneck.value}: {report.verdict.headline}\n"
