"""Any value in any place of a trace that is read: a report in which all adds up, or one line that names the file."""

import json
import math
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.api import triage
from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.errors import ProfkitError, UnsupportedTraceError
from profkit.render.json import compare as compare_json
from profkit.render.json import triage as as_json
from profkit.render.markdown import compare as compare_markdown
from profkit.render.markdown import triage as markdown
from profkit.render.terminal import compare as compare_terminal
from profkit.render.terminal import triage as terminal
from profkit.testing import kernel, launch, span, to_json
from tests.conftest import examples
from tests.ingest.test_same_trace import EVENTS

VALUES: list[Any] = [
    *(0, -1, 1, 2**31, 2**53, 2**61, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 10**400, -(10**15), 9 * 10**15),
    *(1e-9, 1e18, 1e300, -1e300, 0.5, 4294967295000000, "9" * 4301, "7", "", "-1", "1e9", "x" * 20_000, "[0, 1]"),
    *(None, True, [], {}, [10**400], [0, 2**40], {"rank": 1}, "ProfilerStep#" + "9" * 4301, "ncclDevKernel_AllReduce"),
]
METADATA: dict[str, Any] = {
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "deviceProperties": [{"id": 0, "name": "H100", "numSms": 132, "totalGlobalMem": 80 * 10**9, "computeMajor": 9}],
    "torch_version": "2.9",
    "profkit_unprofiled_step_mean_ns": 900_000,
    "profkit_step_source": "Optimizer.step",
    "profkit_memory": {"peak_allocated_bytes": 10**9},
    "profkit_command": "python train.py",
    "record_shapes": 1,
}
GROUP = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": "Float", "Seq": 1}


def trace_of(rank: int) -> dict[str, Any]:
    rows = [span(f"ProfilerStep#{n}", 2_000_000 + 100_000 * n, 2_100_000 + 100_000 * n) for n in range(6)]
    for n in range(24):
        at = 2_000_000 + 25_000 * n
        name = "ncclDevKernel_AllReduce" if n % 4 == 3 else f"ampere_sgemm_{n % 3}"
        group = {**GROUP, "Collective name": "allreduce", "In msg nelems": 10} if n % 4 == 3 else {}
        rows += [launch(at, at + 2_000, correlation=n + 1), span("aten::mm", at - 500, at + 3_000, cat="cpu_op")]
        rows.append(kernel(name, at + 4_000 + 500 * rank, at + 20_000, correlation=n + 1, **group))
    document = json.loads(to_json(rows, metadata=METADATA))
    document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    counter = {"ph": "C", "cat": "profkit", "name": "profkit.tokens", "pid": 1, "ts": 2050.5, "args": {"tokens": 64}}
    document["traceEvents"] += [counter, *({**event, "ts": event["ts"] + 1000} for event in deepcopy(EVENTS[1:]))]
    return document


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(document: Any, rng: random.Random) -> Any:
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        (*way, last) = rng.choice(list(places(document)))
        target = document
        for key in way:
            target = target[key]
        value = rng.choice(VALUES)
        if way and way[0] == "traceEvents" and rng.random() < 0.3:  # the same in every event that has it
            for event in document["traceEvents"]:
                if isinstance(event, dict) and last in event:
                    event[last] = value
        elif isinstance(target, (dict, list)):
            target[last] = value
    return document


def written(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def finite_numbers(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite_numbers, value.values()))
    if isinstance(value, list):
        return all(map(finite_numbers, value))
    return not isinstance(value, float) or math.isfinite(value)


def shown(report: Any) -> None:
    document = json.loads(as_json.render(report))
    markdown.render(report)
    terminal.render(report, verbose=True)
    assert finite_numbers(document)
    for finding in document["findings"]:
        assert 0 <= finding["fraction"] <= 1
    for rank in document["ranks"]:
        for device in rank["devices"]:
            assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"]
    ceiling = document["verdict"]["speedup_ceiling"]
    assert ceiling is None or ceiling >= 1


def refused_well(error: ProfkitError, name: str) -> None:
    assert error.exit_code == 3
    assert "\n" not in error.message
    assert name in error.message


FILES = settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FILES
@given(seed=st.integers(0, 2**32))
def test_any_value_anywhere(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)  # noqa: S311 - a seed of hypothesis, so that it can make it smaller
    path = written(tmp_path / "odd.json", changed(trace_of(0), rng))
    try:
        report = triage([path])
    except ProfkitError as error:
        refused_well(error, "odd.json")
    else:
        shown(report)


@FILES
@given(seed=st.integers(0, 2**32))
def test_any_value_in_one_of_two_ranks(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)  # noqa: S311 - as above
    written(tmp_path / "rank0.json", trace_of(0))
    written(tmp_path / "rank1.json", changed(trace_of(1), rng))
    report = triage([str(tmp_path)])
    assert any(rank.source.endswith("rank0.json") for rank in report.ranks)
    assert all(failure.error.endswith("Error") and failure.error != "InternalError" for failure in report.failures)
    shown(report)


@FILES
@given(seed=st.integers(0, 2**32))
def test_any_value_on_one_side_of_a_comparison(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)  # noqa: S311 - as above
    first = written(tmp_path / "good.json", trace_of(0))
    second = written(tmp_path / "odd.json", changed(trace_of(0), rng))
    steps = rng.choice([[10**400], [0], [1], [2**62, 5], [10**6, "x"], [1.5], []])
    told = [
        {"trace": name, "baseline": {"steps_ns": own}} for name, own in (("good.json", [10**6]), ("odd.json", steps))
    ]
    manifest = {"ranks": told}
    (tmp_path / "capture.json").write_text(json.dumps(manifest))
    try:
        comparison = compare(read_side("A", [first]), read_side("B", [second]))
    except ProfkitError as error:
        refused_well(error, "odd.json")
    else:
        assert finite_numbers(json.loads(compare_json.render(comparison)))
        compare_markdown.render(comparison)
        compare_terminal.render(comparison)


def test_a_window_of_no_time_is_refused_on_either_side(tmp_path: Path) -> None:
    whole, document = trace_of(0), trace_of(0)
    for each in (whole, document):
        del each["profkit_unprofiled_step_mean_ns"]
    good = written(tmp_path / "good.json", whole)
    document["traceEvents"] = [{**event, "ts": 5, "dur": 0} for event in document["traceEvents"] if event["ph"] == "X"]
    odd = written(tmp_path / "odd.json", document)
    for sides in ((good, odd), (odd, good), (odd, odd)):
        with pytest.raises(UnsupportedTraceError, match=r"odd\.json: its window lasts 0 ns"):
            compare(*(read_side("A", [path]) for path in sides))
    shown(triage([odd]))
