"""A document only grows from one version to the next; what breaks a reader is told from what adds to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from profkit import __version__
from profkit.render.schema import SCHEMAS, schema
from tests.conftest import ROOT
from tests.frozen import frozen, minor, versions
from tests.frozen.growth import changes

PROMISED = [(version, name) for version in versions() for name in frozen(version)]
GOLDENS = sorted((ROOT / "tests" / "goldens").glob("*.json"))


@pytest.mark.parametrize(("version", "name"), PROMISED)
def test_what_a_version_promised_still_holds(version: str, name: str) -> None:
    assert name in SCHEMAS
    assert changes(frozen(version)[name], schema(name)).broken == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_document_holds_belongs_to_this_minor_version(name: str) -> None:
    kept = frozen(minor(__version__))
    assert name in kept, "make schemas keeps it"
    found = changes(kept[name], schema(name))
    assert found.added == [], "make schemas keeps it; once this version is published it belongs to the next minor one"


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_a_program_with_the_older_schema_reads_what_is_written_now(golden: Path, version: str) -> None:
    jsonschema.Draft202012Validator(frozen(version)["triage"]).validate(json.loads(golden.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_document_says_its_name_and_number(name: str) -> None:
    (word,) = [schema(name)["properties"]["schema"]["const"]]
    assert word == f"profkit.{name.replace('_', '-')}/1"
    assert schema(name)["$id"] == f"urn:{word.replace('.', ':').replace('/', ':')}"
    assert {"schema", "profkit_version"} <= set(schema(name)["required"])


PLAIN: dict[str, Any] = {
    "type": "object",
    "required": ["a", "kind"],
    "properties": {
        "a": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["x", "y"]},
        "more": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/part"}]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
    },
    "$defs": {
        "part": {
            "type": "object",
            "required": ["b"],
            "properties": {
                "b": {"type": ["number", "null"]},
                "part": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/part"}]},
            },
        }
    },
}


def changed(how: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    new = copy.deepcopy(PLAIN)
    how(new)
    return new


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda new: new["properties"].pop("more"), ".more: removed"),
        (lambda new: new["properties"].update(rank=new["properties"].pop("a")), ".a: removed"),
        (lambda new: new["required"].remove("a"), ".a: may be absent now"),
        (lambda new: new["properties"]["a"].update(type=["integer", "null"]), ".a: may be null now"),
        (lambda new: new["properties"]["a"].update(type="string"), ".a: is no integer any more"),
        (lambda new: new["properties"]["a"].pop("minimum"), ".a: minimum 0 is None now"),
        (lambda new: new["properties"]["a"].update(minimum=-1), ".a: minimum 0 is -1 now"),
        (lambda new: new["properties"]["kind"]["enum"].remove("y"), ".kind: is never 'y' any more"),
        (lambda new: new["properties"]["rows"].update(minItems=0), ".rows: minItems 1 is 0 now"),
        (lambda new: new["properties"]["more"]["oneOf"].pop(), ".more: is no object any more"),
        (lambda new: new["$defs"]["part"]["properties"].pop("b"), ".more.b: removed"),
        (lambda new: new["properties"]["rows"].pop("items"), ".rows: items may be anything now"),
    ],
)
def test_what_breaks_a_reader(how: Callable[[dict[str, Any]], object], said: str) -> None:
    assert said in changes(PLAIN, changed(how)).broken


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda new: new["properties"].update(c={"type": "string"}), ".c: new"),
        (lambda new: new["$defs"]["part"]["properties"].update(c={}), ".more.c: new"),
        (lambda new: new["required"].append("more"), ".more: is always there now"),
        (lambda new: new["properties"]["kind"]["enum"].append("z"), ".kind: may be 'z'"),
        (lambda new: new["properties"]["a"].update(maximum=9), ".a: maximum None is 9 now"),
        (lambda new: new["properties"]["more"]["oneOf"].pop(0), ".more: is no null any more"),
    ],
)
def test_what_adds_to_a_document(how: Callable[[dict[str, Any]], object], said: str) -> None:
    found = changes(PLAIN, changed(how))
    assert said in found.added
    assert found.broken == []


@pytest.mark.parametrize(
    "how",
    [
        lambda new: new["properties"]["a"].update(description="Nanoseconds."),
        lambda new: new["properties"].update(more={"oneOf": [{"$ref": "#/$defs/part"}, {"type": "null"}]}),
        lambda new: new["properties"]["rows"].update(items=new["$defs"]["part"]),
        lambda new: new["required"].reverse(),
    ],
)
def test_what_says_the_same_in_other_words(how: Callable[[dict[str, Any]], object]) -> None:
    found = changes(PLAIN, changed(how))
    assert (found.added, found.broken) == ([], [])


def test_the_schemas_of_a_patch_are_those_of_its_minor_version() -> None:
    assert [minor(version) for version in ("0.2.0", "0.2.7", "0.2.0rc1", "1.10.3")] == [
        "0.2.0",
        "0.2.0",
        "0.2.0",
        "1.10.0",
    ]
