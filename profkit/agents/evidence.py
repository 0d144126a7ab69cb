"""An id of a report (`findings[0].evidence[1]`) to its number: value, unit, what it means, how to recompute it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.render.schema import schema
from profkit.shell import clean, line_of, path_word

_LONGEST_ID: Final = 300
_STEP: Final = re.compile(r"\.?([A-Za-z_]\w*)|\[(\d{1,9})\]|\.?\[(\"(?:[^\"\\]|\\.)*\")\]", re.ASCII)
_IN_BRACKETS: Final = re.compile(r"^\[([A-Za-z_].*)\]$")
_MOST_FIELDS: Final = 40
_MOST_SOURCES: Final = 4
_MOST_TEXT: Final = 600
_UNITS: Final = (
    (re.compile(r"_bytes_per_s$"), "bytes/s"),
    (re.compile(r"_bytes$"), "bytes"),
    (re.compile(r"_ns$"), "ns"),
    (re.compile(r"_percent$"), "percent"),
    (re.compile(r"_ppm$"), "ppm"),
    (re.compile(r"fraction$|^share$|^confidence$|^cv$|^change$|^occupancy$|^change_interval$"), "fraction of 1"),
    (re.compile(r"_ceiling$|^ratio$"), "x"),
)
"""Of a field by its name; of what lies below, by the name of the nearest field above that tells one."""


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """What a report has at one path: a number, a text, a flag, or the fields below it."""

    id: str
    value: float | int | str | bool | None = None
    unit: str = ""
    says: str = ""
    """Of evidence, the sentence that states it."""
    metric: str = ""
    expected: str = ""
    definition: str = ""
    finding: str = ""
    """The id of the finding that it belongs to, "" for what belongs to none."""
    rank: int | None = None
    span_ns: tuple[int, int] | None = None
    """Where in the recording it is, ns on the recording's clock."""
    fields: tuple[str, ...] = ()
    """The ids below, where the id names no single value."""
    recompute: tuple[str, ...] = ()
    """Commands that make the number again from the traces, and compare it."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The same as text, a fact a line; words of a trace in it are strangers'."""
        unit = f" {self.unit}" if self.unit else ""
        shown = f"{len(self.fields)} fields" if self.fields else _shown(self.value) + unit
        of = f"{self.finding}" + (f", rank {self.rank}" if self.rank is not None else "") if self.finding else ""
        span = f"{self.span_ns[0]} to {self.span_ns[1]} ns of the recording" if self.span_ns else ""
        told = (
            ("says", self.says),
            ("finding", of),
            ("metric", self.metric),
            ("expected", self.expected),
            ("definition", self.definition),
            ("where", span),
            *(("field", name) for name in self.fields),
            *(("recompute", one) for one in self.recompute),
        )
        return (f"{self.id} = {shown}", *(f"  {label}: {clean(text)}" for label, text in told if text))


def looked_up(document: Mapping[str, Any], asked: str, *, made_by: str = "", report: str = "") -> Number:
    """What a report has at an id.

    `made_by`: the command that made the report; else what its own sources tell. `report`: its file, if it has one, as
    commands name it. Raises UsageError where the id is none, or the report has nothing there.
    """
    steps = _steps(asked)
    path, value = _walked(document, steps)
    around = [_at(document, steps[:depth]) for depth in range(len(steps), -1, -1)]
    finding: Mapping[str, Any] = next((one for one in around if _is_finding(one)), {})
    item = next((one for one in around if _is_evidence(one)), None)
    id_, rank = str(finding.get("id", "")), finding.get("rank")
    number = Number(
        id=path,
        definition=_definition(schema(_kind(document)), steps),
        finding=id_,
        rank=rank if isinstance(rank, int) else None,
        recompute=_recompute(document, path, made_by, report),
    )
    if item is not None and (item is value or steps[-1] in ("value", "statement")):
        return replace(_of_evidence(number, item), definition=KINDS[id_].measured if id_ in KINDS else "")
    if isinstance(value, (Mapping, list)):
        found = list(_below(value, path))
        more = [f"and {len(found) - _MOST_FIELDS:,} more"] if len(found) > _MOST_FIELDS else []
        return replace(number, fields=(*found[:_MOST_FIELDS], *more), unit=_unit(steps))
    return replace(number, value=value, unit=_unit_in(document, steps) if _is_number(value) else "")


def is_path(document: str, asked: str) -> bool:
    """Whether a text may be an id of a document, by its first key."""
    head = re.split(r"[.\[]", asked.strip(), maxsplit=1)[0]
    return head in schema(document)["properties"]


def _of_evidence(number: Number, item: Mapping[str, Any]) -> Number:
    return replace(
        number,
        value=_whole(item["value"]),
        unit=str(item["unit"]),
        says=str(item["statement"]),
        metric=str(item["metric"]),
        expected=str(item.get("expected") or ""),
        span_ns=_span(item.get("span_ns")),
    )


def _span(value: Any) -> tuple[int, int] | None:
    match value:
        case [int(begin), int(end)]:
            return begin, end
        case _:
            return None


def evidence_ids(document: Mapping[str, Any]) -> Iterator[str]:
    """The evidence of a report, a line each: id, value, unit, the finding and its metric."""
    for place in ("joint_findings", "findings", "readings"):
        listed = document.get(place)
        for number, finding in enumerate(listed if isinstance(listed, list) else []):
            for of, item in enumerate(finding["evidence"] if _is_finding(finding) else []):
                if _is_evidence(item):
                    unit = f" {item['unit']}" if item["unit"] else ""
                    said = f"{finding['id']}: {item['metric']}"
                    yield f"{place}[{number}].evidence[{of}] = {_shown(item['value'])}{unit} {said}"


def _kind(document: Mapping[str, Any]) -> str:
    """The document of a report, by its schema: `triage`."""
    return str(document.get("schema", "")).partition("/")[0].removeprefix("profkit.")


def _steps(asked: str) -> list[str | int]:
    """The keys and places of a path; with the brackets of the page around it, or jq's point before it, as well."""
    text = _IN_BRACKETS.sub(r"\1", asked.strip())
    steps: list[str | int] = []
    place = 0
    with suppress(ValueError):
        while place < len(text) <= _LONGEST_ID and (found := _STEP.match(text, place)):
            steps.append(found[1] or (int(found[2]) if found[2] is not None else str(json.loads(found[3]))))
            place = found.end()
    if not steps or place < len(text):
        hint = "an id is as findings[0].evidence[1] or verdict.step_ns"
        raise UsageError(f"{clean(asked[:80])!r} is no path into a report", hint=hint)
    return steps


def _walked(document: Any, steps: Sequence[str | int]) -> tuple[str, Any]:
    """The path as `jq` takes it, without the leading point, and the value; raises UsageError where there is none."""
    value, path = document, ""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                has = f"has {len(value):,}" if isinstance(value, list) else "is no list"
                raise UsageError(f"the report has no {path}[{step}]: {path or 'it'} {has}", hint=_HOW)
            value, path = value[step], f"{path}[{step}]"
        else:
            if not isinstance(value, Mapping) or step not in value:
                raise UsageError(f"the report has no {clean(_joined(path, step))}", hint=_near(value, step))
            value, path = value[step], _joined(path, step)
    return path, value


_HOW: Final = "the page of -f agent has the ids in brackets"


def _near(value: Any, step: str) -> str:
    from difflib import get_close_matches

    known = list(value) if isinstance(value, Mapping) else []
    near = get_close_matches(step, known, n=1)
    return f"did you mean {clean(near[0])}?" if near else _HOW


def _at(document: Any, steps: Sequence[str | int]) -> Any:
    return reduce(getitem, steps, document)


def _joined(path: str, key: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def _below(value: Any, path: str) -> Iterator[str]:
    """The fields of an object or a list that hold one value each, with it."""
    if isinstance(value, list):
        named = [(f"{path}[{place}]", one) for place, one in enumerate(value)]
    else:
        named = [(_joined(path, key), one) for key, one in value.items()]
    for at, one in named:
        if _is_evidence(one):
            yield f"{at} = {_shown(one.get('value'))} {one.get('unit')}"
        elif isinstance(one, (Mapping, list)) and one:
            yield f"{at}: {len(one):,} more below"
        elif not isinstance(one, (Mapping, list)):
            yield f"{at} = {_shown(one)}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else f"{value[: _MOST_TEXT - 3]}..."
    return "none" if value is None else json.dumps(_whole(value))


def _whole(value: Any) -> Any:
    """A whole number as one: evidence keeps all as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_finding(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("id"), str) and isinstance(value.get("evidence"), list)


def _is_evidence(value: Any) -> bool:
    return isinstance(value, Mapping) and {"statement", "metric", "value", "unit"} <= set(value)


def _unit_in(document: Mapping[str, Any], steps: Sequence[str | int]) -> str:
    """The unit of a number; the means of a comparison are in the unit of what was measured."""
    if steps[-1] in ("baseline_mean", "candidate_mean"):
        return str(_at(document, steps[:-1]).get("unit", ""))
    return _unit(steps)


def _unit(steps: Sequence[str | int]) -> str:
    for step in reversed(steps):
        if isinstance(step, str):
            if step.startswith("n_") or step in ("n", "count"):
                return ""
            unit = next((unit for pattern, unit in _UNITS if pattern.search(step)), "")
            if unit:
                return unit
    return ""


def _definition(told: Mapping[str, Any], steps: Sequence[str | int]) -> str:
    """What the schema says of a field; of one that it does not describe, of the nearest thing around it."""
    said: list[str] = []
    place: Any = told
    for step in steps:
        place = _inside(told, place, step)
        if place is None:
            break
        text = place.get("description") or _resolved(told, place).get("description")
        if text:
            said.append(str(text))
    return said[-1] if said else ""


def _inside(told: Mapping[str, Any], place: Mapping[str, Any], step: str | int) -> Any:
    resolved = _resolved(told, place)
    if isinstance(step, int):
        return resolved.get("items")
    found = resolved.get("properties", {}).get(step)
    other = resolved.get("additionalProperties")
    return found if found is not None else other if isinstance(other, Mapping) else None


def _resolved(told: Mapping[str, Any], place: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference, or the alternative that is not null, stands for."""
    while True:
        if "$ref" in place:
            place = told["$defs"][place["$ref"].rpartition("/")[2]]
        elif "oneOf" in place:
            place = next(one for one in place["oneOf"] if one.get("type") != "null")
        else:
            return place


def _recompute(document: Mapping[str, Any], path: str, made_by: str, report: str) -> tuple[str, ...]:
    """Commands that make the number again and verify the report; none where it does not say of which files it is."""
    kind = _kind(document)
    sides = _sources(document, kind)
    made = made_by or (line_of(f"profkit {kind}", *sides).text if sides else "")
    again = (f"{made} -f json | {line_of('jq', f'.{path}').text}",) if made else ()
    verified = (line_of("profkit verify", path_word(report), *sides).text,) if report and sides else ()
    return (*again, *(verified if kind == "triage" else ()))


def _sources(document: Mapping[str, Any], kind: str) -> tuple[str, ...] | None:
    """The files that a report is of as words of a command; None where they are many, or not told."""
    if kind == "triage":
        ranks = document.get("ranks")
        named = [one.get("source") for one in ranks if isinstance(one, Mapping)] if isinstance(ranks, list) else []
    elif kind == "where":
        named = [document.get("source")]
    else:
        named = []
        for side in ("baseline", "candidate"):
            one = document.get(side)
            listed = one.get("sources") if isinstance(one, Mapping) else None
            if not isinstance(listed, list) or len(listed) != 1:
                return None
            named += listed
    words = tuple(dict.fromkeys(path_word(name) for name in named if isinstance(name, str) and name))
    return words if 0 < len(words) <= _MOST_SOURCES else None
