"""The report as a SARIF log. Each result has a place with a line, which GitHub's code scanning asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from profkit.findings import KINDS
from profkit.findings.kind import FindingKind
from profkit.model.code import PlaceShare
from profkit.model.documents.report import Report
from profkit.model.finding import Finding
from profkit.render.words import triage as text
from profkit.render.words.annotations import Remark, is_file, line_of, path_of, remarks
from profkit.render.words.keys import keyed
from profkit.render.words.places import place_line
from profkit.shell import clean
from profkit.version import __version__

VERSION: Final = "2.1.0"
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT: Final = "%SRCROOT%"
_UNKNOWN_LINE: Final = 1
"""Code scanning shows no result without a line."""


def render(report: Report, **_: object) -> str:
    """The log as text."""
    return json.dumps(_log(report), indent=1, allow_nan=False) + "\n"


def _log(report: Report) -> dict[str, Any]:
    found = remarks(report)
    rules = list(dict.fromkeys(remark.finding.id for remark in found))
    verdict = report.verdict
    run = {
        "tool": {
            "driver": {
                "name": "profkit",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(name, found) for name in rules],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "error", "message": _message(f"{failure.source}: {failure.message}")}
                    for failure in report.failures
                ],
            }
        ],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The root of the repository, in which profkit runs."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(remark, rules) for remark in found],
        "properties": {
            **keyed(verdict, "verdict=bottleneck.value healthy=is_healthy confidence"),
            "headline": clean(text.headline(verdict)),
            **keyed(verdict, "step_ns recoverable_ns"),
        },
    }
    return {"$schema": _SCHEMA, "version": VERSION, "runs": [run]}


def _rule(name: str, found: Iterable[Remark]) -> dict[str, Any]:
    """What all findings of one id have in common; a kind that is not known has the title of its finding."""
    kind = KINDS.get(name)
    if kind is None:
        title = next(remark.finding.title for remark in found if remark.finding.id == name)
        return {"id": clean(name), "shortDescription": _message(title)}
    tags = ["performance", *([kind.bottleneck.value] if kind.bottleneck is not None else [])]
    return {
        "id": kind.id,
        "shortDescription": _message(kind.title),
        "fullDescription": _message(kind.meaning),
        "help": {"text": "\n\n".join(_help(kind))},
        "properties": {"tags": tags},
    }


def _help(kind: FindingKind) -> Iterable[str]:
    for title, said in (
        ("How it is measured", (kind.measured,)),
        ("Thresholds and their source", kind.threshold_lines),
        ("What else looks like it", kind.lookalikes),
        ("The experiment that proves it", (kind.proof,)),
        ("What to do", kind.fixes),
    ):
        if any(said):
            yield f"{title}:\n" + "\n".join(f"- {line}" for line in said)


def _result(remark: Remark, rules: list[str]) -> dict[str, Any]:
    finding = remark.finding
    first = _at(remark.place) if remark.place is not None else _of_trace(remark.source)
    others = [share for share in finding.places if share is not remark.place and is_file(share.place.file)]
    return {
        "ruleId": clean(finding.id),
        "ruleIndex": rules.index(finding.id),
        "level": remark.level,
        "message": {"text": "\n".join((remark.title, *remark.lines))},
        "locations": [first],
        "relatedLocations": [{"id": number, **_at(share)} for number, share in enumerate(others, 1)],
        "partialFingerprints": {"profkit/1": _fingerprint(remark)},
        "properties": {
            **keyed(finding, "severity=severity.value confidence fraction recoverable_ns rank"),
            "evidence": [_evidence(remark, number) for number in range(len(finding.evidence))],
        },
    }


def _evidence(remark: Remark, number: int) -> Mapping[str, Any]:
    """A number that was seen, and where `-f json` has it."""
    item = remark.finding.evidence[number]
    return {
        "id": f"findings[{remark.number}].evidence[{number}]",
        "metric": clean(item.metric),
        "value": item.value if math.isfinite(item.value) else None,
        "unit": clean(item.unit),
    }


def _at(share: PlaceShare) -> dict[str, Any]:
    place = share.place
    region: dict[str, Any] = {"startLine": line_of(share) or _UNKNOWN_LINE}
    if place.line and place.text:
        region["snippet"] = _message(place.text)
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _file(place.file), "region": region},
        "message": _message(place_line(share).strip()),
    }
    name = place.module or place.function
    if name and name != "<module>":
        location["logicalLocations"] = [{"fullyQualifiedName": clean(name), "kind": "function"}]
    return location


def _of_trace(source: str) -> dict[str, Any]:
    """The trace itself, where it does not say which line of code it is."""
    return {
        "physicalLocation": {"artifactLocation": _file(source or "trace"), "region": {"startLine": _UNKNOWN_LINE}},
        "message": {"text": "The trace; it does not say which line of code this is (profkit where)."},
    }


def _file(name: str) -> dict[str, str]:
    if "://" in name:
        return {"uri": quote(clean(name), safe=":/?&=%+@[]~")}
    return {"uri": quote(path_of(name)), "uriBaseId": _ROOT}


def _fingerprint(remark: Remark) -> str:
    """The same for the same finding at the same place in the next run, whatever its numbers and wherever the line."""
    return sha256("\0".join(_identity(remark.finding, remark.place)).encode(errors="replace")).hexdigest()[:32]


def _identity(finding: Finding, share: PlaceShare | None) -> Iterable[str]:
    yield finding.id
    yield "" if finding.rank is None else str(finding.rank)
    if share is not None:
        yield from (path_of(share.place.file), share.place.function, share.place.text)


def _message(said: str) -> dict[str, str]:
    return {"text": clean(said)}
