"""Findings as remarks on lines of code, as code hosts and editors show them: the level, the text, the place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Final

import msgspec

from profkit.model.code import PlaceShare
from profkit.model.documents.report import Report
from profkit.model.finding import Finding, Severity, confidence_label
from profkit.render.words import places
from profkit.render.words import triage as text
from profkit.shell import clean

LEVELS: Final = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note", Severity.INFO: "note"}
"""The level of SARIF for a severity; it fails no job: that is `--fail-on`'s."""


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a report, and the place in the user's code with most of it."""

    number: int
    """Its place in the report's findings, from 0."""
    finding: Finding
    level: str
    title: str
    lines: tuple[str, ...]
    """How large and how sure it is, its evidence, what to do."""
    place: PlaceShare | None
    """None where the trace does not say."""
    source: str
    """The trace that shows it."""


def remarks(report: Report) -> tuple[Remark, ...]:
    """All findings, the worst first: code hosts show the first ten of a level."""
    ordered = sorted(enumerate(report.findings), key=lambda one: (one[1].severity.rank, -one[1].fraction))
    return tuple(_remark(number, finding, report) for number, finding in ordered)


def _remark(number: int, finding: Finding, report: Report) -> Remark:
    of_rank = f"rank {finding.rank}: " if finding.rank is not None and len(report.ranks) > 1 else ""
    sources = {rank.rank: rank.source for rank in reversed(report.ranks)}
    return Remark(
        number=number,
        finding=finding,
        level=LEVELS[finding.severity],
        title=clean(of_rank + finding.title),
        lines=tuple(_lines(finding, report)),
        place=next((share for share in finding.places if is_file(share.place.file)), None),
        source=sources.get(finding.rank, report.verdict.source),
    )


def _lines(finding: Finding, report: Report) -> Iterable[str]:
    saves = text.finding_saves(finding, report)
    weight = text.weight(finding, report)
    yield f"{weight}, confidence {confidence_label(finding.confidence)}" + (f"; a fix {saves}" if saves else "") + "."
    for item in finding.evidence:
        yield f"{text.statement(item, is_full=True)}."
    if where := places.place_sentence(finding):
        yield f"{where}."
    if finding.fix:
        yield clean(f"What to do: {finding.fix}.")
    yield f"profkit explain {clean(finding.id)}"


def is_file(name: str) -> bool:
    """Whether the name of a frame's file is one: code that was typed, or made, has none (`<stdin>`)."""
    return bool(name) and not name.startswith("<")


def line_of(share: PlaceShare) -> int:
    """The line of a place, else the one in which its function begins; 0 where neither is known."""
    return share.place.line or share.place.defined


def path_of(name: str) -> str:
    """A file as seen from the working folder, which is the repository's root in CI; without folders of the machine.

    A trace names a file by its whole path, or relative to a folder of `sys.path`.
    """
    path = PurePath(name)
    if not path.is_absolute():
        return clean(path.as_posix())
    here = Path.cwd()
    return clean(path.relative_to(here).as_posix() if path.is_relative_to(here) else "/".join(path.parts[-2:]))
