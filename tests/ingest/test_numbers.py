"""Numbers and texts of a file that cannot be true: refused by event, or counted as missing, with a warning."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import TraceFormatError
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.ncu.values import measured_in
from profkit.ingest.numbers import MAX_RANKS, finite, whole
from profkit.ingest.texts import LONGEST_LABEL, LONGEST_TEXT
from profkit.model.trace import Trace
from profkit.pipeline import triage_trace

KERNELS = [
    {"ph": "X", "cat": "kernel", "name": f"k{n}", "ts": 1000 + 20 * n, "dur": 10, "args": {"device": 0, "stream": 7}}
    for n in range(6)
]


def event(**changes: object) -> dict[str, object]:
    return {**KERNELS[0], "name": "odd", **changes}


def written(folder: Path, *events: object, **metadata: object) -> str:
    path = folder / "odd.json"
    path.write_text(json.dumps({"schemaVersion": 1, **metadata, "traceEvents": [*KERNELS, *events]}))
    return str(path)


def ids(trace: Trace) -> set[str]:
    return {warning.id for warning in trace.warnings}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        ("3", 3),
        (3.9, 3),
        (10**400, None),
        ("9" * 5000, None),
        (math.nan, None),
        (math.inf, None),
        (-1, None),
        (None, None),
        ([], None),
        ({}, None),
        ("x", None),
        (1e300, None),
        (2**70, None),
        (True, 1),
    ],
)
def test_a_whole_number_is_within_its_range(value: object, expected: int | None) -> None:
    assert whole(value, 0, MAX_RANKS) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0.5), ("1", 1.0), (10**400, None), (math.nan, None), (-math.inf, None), ("9" * 400, None), (2.0, None)],
)
def test_a_finite_number_is_within_its_range(value: object, expected: float | None) -> None:
    assert finite(value, 0, 1) == expected


@pytest.mark.parametrize("ts", [-9e15, 9e15, 9_000_000_000_000_000, "9e15"])
def test_a_time_that_no_other_can_be_compared_with_is_refused_by_event(ts: object, tmp_path: Path) -> None:
    path = written(tmp_path, event(ts=ts) if ts != "9e15" else event(ts=9e15, dur=1e-3))
    with pytest.raises(TraceFormatError, match=r"event 7.*odd") as caught:
        read_trace(path)
    assert "9" in caught.value.message
    assert "odd.json" in caught.value.message
    assert len(read_trace(path, lenient=True).gpu) == 6


@pytest.mark.parametrize("value", [10**400, 10**310, 1e308])
@pytest.mark.parametrize("field", ["ts", "dur"])
def test_a_time_beyond_float64_is_refused_by_event(
    field: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first events have decimals, so that times are read as float64 until this one; large files go that way."""
    monkeypatch.setattr("profkit.ingest.kineto.reader.UNIQUE_KEYS_UP_TO_BYTES", 0)
    text = json.dumps({"traceEvents": [event(ts=1000.5, dur=1.5), *KERNELS, event(**{field: value})]})
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(TraceFormatError, match=r"event 8.*1e?\+?[03].* is outside the range.*odd"):
        read_trace(str(tmp_path / "odd.json"))
    assert len(read_trace(str(tmp_path / "odd.json"), lenient=True).gpu) == 7


def test_durations_that_add_up_to_more_than_int64_are_refused(tmp_path: Path) -> None:
    year = 900_000_000_000  # us; each is shorter than what is left out as an overflow
    path = written(tmp_path, *[event(name=f"slow{n}", dur=year) for n in range(20_000)])
    with pytest.raises(TraceFormatError, match=r"odd\.json: the durations of 20,006 .* event 'slow"):
        read_trace(path)


@pytest.mark.parametrize("value", [-(10**30), 10**30, 1e30, 2**62])
def test_an_origin_that_cannot_be_is_none(value: object, tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, baseTimeNanoseconds=value))
    assert trace.origin_unix_ns == 0
    assert "metadata.range" in ids(trace)


@pytest.mark.parametrize("value", [-1, 10**30, 2147483648, 1e300])
def test_ranks_that_cannot_be_are_unknown(value: object, tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, distributedInfo={"rank": value, "world_size": value, "backend": "x" * 10**4}))
    assert (trace.meta.rank, trace.meta.world_size) == (None, None)
    assert len(trace.meta.backend) == LONGEST_LABEL
    assert "metadata.range" in ids(trace)


def test_what_a_device_says_of_itself_is_within_range(tmp_path: Path) -> None:
    given = [{"id": 10**30, "name": "x" * 10**4, "numSms": 10**30, "totalGlobalMem": 1e30}, {"id": -1}]
    (device, other) = read_trace(written(tmp_path, deviceProperties=given)).meta.devices
    assert (device.index, device.n_sms, device.memory_bytes, other.index) == (0, 0, 0, 0)
    assert len(device.name) == LONGEST_LABEL


def test_a_step_number_of_any_length_is_no_number(tmp_path: Path) -> None:
    digits = "9" * 4301
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{name}", "ts": 1000 + 60 * n, "dur": 60, "tid": 1}
        for n, name in enumerate([digits, "99999999999999999999", "7"])
    ]
    trace = read_trace(written(tmp_path, *steps, event(ts=1130)))  # a last step without work is none
    assert [step.number for step in trace.steps] == [0, 1, 7]


@pytest.mark.parametrize("value", [10**400, 1e300, -1, True, "5"])
def test_counts_of_work_that_cannot_be_are_left_out(value: object, tmp_path: Path) -> None:
    row = {"ph": "C", "cat": "profkit", "name": "profkit.tokens", "ts": 1000, "args": {"tokens": value}}
    text = json.dumps({"traceEvents": [*KERNELS, row]})
    (tmp_path / "odd.json").write_text(text)
    values = read_trace(str(tmp_path / "odd.json")).work.value
    assert values.tolist() == []


def test_arguments_out_of_range_are_not_said(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7, "bytes": 2**62, "Collective name": "allreduce", "In msg nelems": 2**62}
    args |= {"Out msg nelems": -(2**62), "Group size": 2**40, "Seq": 2**63 - 1, "Src Rank": 2**40, "dtype": "Float"}
    trace = read_trace(written(tmp_path, event(name="ncclDevKernel_AllReduce", args=args)))
    assert int(trace.gpu.n_bytes.max()) == -1
    columns = trace.collectives.columns()
    for name in ("in_elements", "out_elements", "group_size", "seq", "peer"):
        assert columns[name].tolist() == [-1], name
    assert "args.range" in ids(trace)
    triage_trace(trace)


def test_names_are_cut_and_it_is_said(tmp_path: Path) -> None:
    labels = {"cat": "x" * 10**5, "pid": "p" * 10**5, "tid": "t" * 10**5}
    path = written(tmp_path, event(name="cudnn" * 10**5), event(**labels), torch_version="\u4e2d" * 200_000)
    trace = read_trace(path)
    assert max(map(len, trace.strings)) == LONGEST_TEXT
    assert max(map(len, trace.meta.categories)) <= LONGEST_LABEL
    assert len(trace.meta.torch_version or "") == LONGEST_LABEL
    assert len(str(trace.meta.metadata["torch_version"])) == LONGEST_TEXT
    assert {"names.cut", "metadata.cut"} <= ids(trace)


def test_many_long_names_are_cut_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.ingest.assemble.merge.MOST_TEXT", 10_000)
    trace = read_trace(written(tmp_path, *[event(name=f"{n}" + "x" * 1000) for n in range(20)]))
    assert max(map(len, trace.strings)) == 10_000 // 26
    assert len(set(trace.strings)) == 26


@pytest.mark.parametrize(("text", "unit"), [("1e308", "us"), ("1e30", "byte"), ("-1e30", "ns"), ("n/a", "us")])
def test_a_metric_that_no_device_can_have_is_none(text: str, unit: str) -> None:
    assert measured_in(text, unit, "gpu__time_duration.sum") is None
    assert measured_in("1.5", "us", "gpu__time_duration.sum") == 1500.0


def test_no_copy_is_made_of_columns_within_range() -> None:
    from profkit.ingest.numbers import within_range

    column = np.arange(5)
    kept, n_refused = within_range("n_bytes", column)
    assert kept is column
    assert n_refused == 0
