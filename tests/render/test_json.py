"""The JSON document is the contract: names, units and kinds of values."""

import json
from enum import StrEnum
from typing import Any

import jsonschema
import numpy as np
import pytest
from msgspec.structs import replace

from profkit import __version__
from profkit.errors import UsageError
from profkit.model.documents.rank_report import Section
from profkit.model.documents.report import Report
from profkit.render.json.triage import render, report_to_dict
from profkit.render.schema import schema
from tests.render import reports

VALIDATOR = jsonschema.Draft202012Validator(schema("triage"))


def steps_of(path: str) -> tuple[Any, ...]:
    """Give a path as keys and indices."""
    return tuple(int(step) if step.isdigit() else step for step in path.split("."))


@pytest.mark.parametrize("report", reports.ALL.values(), ids=reports.ALL)
def test_every_report_obeys_the_schema(report: Report) -> None:
    document = json.loads(render(report))
    VALIDATOR.validate(document)
    for rank in document["ranks"]:
        for device in rank["devices"]:
            assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"]


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(schema("triage"))
    with pytest.raises(UsageError, match="no schema is known for 'nothing'"):
        schema("nothing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verdict.bottleneck", "gpu-bound"),
        ("verdict.confidence", 85),
        ("verdict.step_ns", 41.2e6 + 0.5),
        ("findings.0.severity", "critical"),
        ("findings.0.evidence", []),
        ("ranks.0.devices.0.kind", "tpu"),
        ("ranks.0.devices.0.budget_ns.idle_gremlins", 1),
        ("ranks.0.window.step_source", "guess"),
        ("schema", "profkit.triage/2"),
    ],
)
def test_the_schema_refuses(name: str, value: object) -> None:
    document = report_to_dict(reports.overhead())
    place: Any = document
    *way, last = steps_of(name)
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)


def test_fields_may_be_added() -> None:
    document = report_to_dict(reports.overhead())
    document["verdict"]["new"] = document["new"] = 1
    VALIDATOR.validate(document)


def test_values_and_units() -> None:
    document = report_to_dict(reports.overhead())
    assert document["schema"] == "profkit.triage/1"
    assert document["profkit_version"] == __version__
    assert document["verdict"]["step_ns"] == 41_200_000
    assert document["verdict"]["healthy"] is False
    assert document["verdict"]["findings"] == ["host.launch_bound", "host.sync"]
    device = document["ranks"][0]["devices"][0]
    assert device["budget_ns"]["idle_launch"] == 87_550_000
    assert device["busy_ns"] == {"compute": 101_146_000, "comm": 23_278_000, "copy": 1_236_000, "any": 111_034_000}
    assert device["occupancy"]["idle"] == pytest.approx(0.461)
    assert device["comm_hidden_fraction"] == pytest.approx(14_626 / 23_278)
    assert document["ranks"][0]["window"] == {
        "start_ns": 1_000,
        "end_ns": 206_001_000,
        "duration_ns": 206_000_000,
        "n_steps": 5,
        "step_source": "ProfilerStep",
    }


def test_what_is_absent_is_null() -> None:
    document = report_to_dict(reports.no_steps())
    assert document["verdict"]["step_ns"] is None
    assert document["verdict"]["speedup_ceiling"] is None
    assert document["ranks"][0]["steps"]["mean_ns"] is None
    assert report_to_dict(reports.data_bound_cpu())["ranks"][0]["devices"][0]["comm_hidden_fraction"] is None


def test_values_of_analyzers_become_plain_json() -> None:
    class Word(StrEnum):
        YES = "yes"

    values: dict[str, object] = {
        "nan": float("inf"),
        "int64": np.int64(3),
        "float32": np.float32(0.5),
        "bool": np.True_,
        "array": np.array([1, 2]),
        "pairs": ((Word.YES, None),),
        "other": 1j,
    }
    report = reports.overhead()
    section = Section(analyzer="a", title="a", values=values)
    shown = report_to_dict(replace(report, ranks=(replace(report.ranks[0], sections=(section,)),)))
    assert json.loads(json.dumps(shown, allow_nan=False))["ranks"][0]["sections"][0]["values"] == {
        "nan": None,
        "int64": 3,
        "float32": 0.5,
        "bool": True,
        "array": [1, 2],
        "pairs": [["yes", None]],
        "other": "1j",
    }


def test_the_text_is_stable() -> None:
    text = render(reports.overhead())
    assert text == render(reports.overhead())
    assert text.startswith('{\n "schema": "profkit.triage/1",\n "profkit_version": ')
    assert text.endswith("}\n")
    assert text.isascii()
