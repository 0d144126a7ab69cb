"""The JSON document is the contract: names, units and kinds of values."""

import copy
import json
from collections.abc import Iterator
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


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of every key of every object in a document, the first item of a list standing for all."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*here, key)
            yield from paths(item, (*here, key))
    elif isinstance(value, list) and value:
        yield from paths(value[0], (*here, 0))


def without(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Give the document without one key."""
    cut = copy.deepcopy(document)
    place: Any = cut
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return cut


BUDGET = "compute comm_exposed copy_exposed idle_data idle_sync idle_launch idle_host idle_dependency idle_unknown"
FIXED = {
    "": "schema profkit_version verdict ranks findings skipped failures",
    "verdict": "bottleneck confidence headline step_ns recoverable_ns speedup_ceiling next_tool fixes caveats",
    "verdict.next_tool": "name command purpose look_for",
    "ranks.0": "rank world_size source format torch_version n_events quality window steps devices",
    "ranks.0.quality": "ok checks",
    "ranks.0.quality.checks.0": "id ok value message",
    "ranks.0.window": "start_ns end_ns duration_ns n_steps step_source",
    "ranks.0.steps": "mean_ns p50_ns p95_ns cv",
    "ranks.0.devices.0": "device name kind budget_ns busy_ns comm_overlapped_ns occupancy comm_hidden_fraction streams",
    "ranks.0.devices.0.budget_ns": BUDGET,
    "ranks.0.devices.0.busy_ns": "compute comm copy",
    "ranks.0.devices.0.occupancy": "compute comm copy idle",
    "ranks.0.devices.0.streams.0": "stream label busy_ns occupancy n_ops",
    "findings.0": "id title severity confidence recoverable_ns fraction rank evidence fix next_tools",
    "findings.0.evidence.0": "statement metric value unit expected span_ns",
    "skipped.0": "analyzer reason how_to_get",
    "failures.0": "source error message",
}
"""Every name that the contract fixes, by the object that holds it; names that are not here may be missing."""
FIXED_PATHS = [f"{place}.{name}".lstrip(".") for place, names in FIXED.items() for name in names.split()]


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


@pytest.mark.parametrize("name", FIXED_PATHS)
def test_every_fixed_name_is_there_and_required(name: str) -> None:
    document = report_to_dict(replace(reports.overhead(), failures=reports.two_ranks().failures))
    assert steps_of(name) in set(paths(document))
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(without(document, steps_of(name)))


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
