"""The committed traces give the committed reports, and every report obeys the schema."""

import json
from pathlib import Path

import jsonschema
import pytest

from profkit.render.schema import schema
from tests.golden import GOLDENS, TRACES, renderings


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name.partition(".")[0])
def test_reports_are_as_reviewed(trace: Path) -> None:
    for path, text in renderings(trace):
        assert text == path.read_text(encoding="utf-8"), f"{path.name} changed: review, then make golden"


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.json")), ids=lambda path: path.stem)
def test_goldens_obey_the_schema(golden: Path) -> None:
    document = json.loads(golden.read_text())
    jsonschema.Draft202012Validator(schema("triage")).validate(document)
    for rank in document["ranks"]:
        for device in rank["devices"]:
            assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"]
            assert device["budget_ns"]["compute"] == device["busy_ns"]["compute"]


def test_there_are_traces() -> None:
    assert TRACES
