"""The report as workflow commands: `::warning file=train.py,line=83,title=...::...`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.documents.report import Report
from profkit.render.words import triage as text
from profkit.render.words.annotations import Remark, line_of, path_of, remarks
from profkit.shell import clean

_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}
"""The command for a level of SARIF. GitHub shows ten of each from one step."""
_IN_DATA: Final = {ord(char): f"%{ord(char):02X}" for char in "%\r\n"}
_IN_PROPERTIES: Final = _IN_DATA | {ord(char): f"%{ord(char):02X}" for char in ":,"}


def render(report: Report, **_: object) -> str:
    """The verdict, every finding with its evidence, and what could not be read, a line each."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterable[str]:
    verdict = report.verdict
    sure = f", {known}" if (known := text.sureness(report)) else ""
    said = (text.headline(verdict), text.step_sentence(report), text.gain_sentence(verdict))
    yield _command(
        "notice",
        {"title": f"profkit: {text.verdict_name(verdict).lower()}{sure}"},
        [clean(f"{sentence}.") for sentence in said if sentence],
    )
    for remark in remarks(report):
        yield _command(_COMMANDS[remark.level], _properties(remark), remark.lines)
    for failure in report.failures:
        yield _command("warning", {"title": "profkit: not read"}, [clean(f"{failure.source}: {failure.message}")])


def _properties(remark: Remark) -> dict[str, str]:
    properties: dict[str, str] = {}
    if remark.place is not None:
        properties["file"] = path_of(remark.place.place.file)
        if line := line_of(remark.place):
            properties["line"] = str(line)
    return properties | {"title": f"{clean(remark.finding.id)}: {remark.title}"}


def _command(name: str, properties: dict[str, str], lines: Iterable[str]) -> str:
    given = ",".join(f"{key}={_escaped(value, _IN_PROPERTIES)}" for key, value in properties.items())
    said = _escaped("\n".join(lines), _IN_DATA)
    return f"::{name} {given}::{said}"


def _escaped(said: str, table: dict[int, str]) -> str:
    return said.translate(table)
