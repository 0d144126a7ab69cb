"""A probe as JSON: `profkit schema probe` prints its schema, `triage --probe` reads it."""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from profkit.model.documents.probe import ProbeReport
from profkit.render.json.values import written
from profkit.render.words import probe as words
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.probe/1"


def render(report: ProbeReport, **_: object) -> str:
    """The document as text."""
    return written(probe_to_dict(report))


def probe_to_dict(report: ProbeReport) -> dict[str, Any]:
    """The document as plain values: times integer ns, shares and slopes plain numbers, what is absent None."""
    plain: dict[str, Any] = to_builtins(report)
    for slope, row in zip(report.slopes, plain["slopes"], strict=True):
        row["sentence"] = words.sentence(slope)
    if report.host is not None:
        plain["host"]["sentence"] = words.sentence(report.host)
    return {"schema": SCHEMA_ID, "profkit_version": __version__, "headline": words.headline(report), **plain}
