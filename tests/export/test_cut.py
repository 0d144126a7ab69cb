"""`--around` and `--steps`: the slice that proves it, whole events, whole arrows."""

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import UsageError
from profkit.testing import HOST_PID, Row, kernel, launch, span, to_json
from tests.export.test_chrome import export, of_profkit, of_trace, read, told

STEP_NS = 10_000_000
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def job(tmp_path: Path) -> Path:
    """Ten steps of 10 ms with eight kernels each; in step 6 the loader waits 5 ms, in the others 2 ms."""
    rows: list[Row] = []
    arrows: list[dict[str, Any]] = []
    for step in range(10):
        low = step * STEP_NS
        wait = 5_000_000 if step == 6 else 2_000_000
        rows += [span(f"ProfilerStep#{step}", low, low + STEP_NS), span(WAIT, low, low + wait)]
        for number in range(8):
            at, link = low + wait + number * 400_000, step * 8 + number + 1
            rows += [
                launch(at, at + 10_000, correlation=link),
                kernel("gemm", at + 50_000, at + 390_000, correlation=link),
            ]
            arrows += [
                {
                    "ph": "s",
                    "id": link,
                    "pid": HOST_PID,
                    "tid": HOST_PID,
                    "ts": at / 1000,
                    "cat": "ac2g",
                    "name": "ac2g",
                },
                {
                    "ph": "f",
                    "id": link,
                    "pid": 0,
                    "tid": 7,
                    "ts": (at + 50_000) / 1000,
                    "cat": "ac2g",
                    "name": "ac2g",
                    "bp": "e",
                },
            ]
    document = json.loads(to_json(rows))
    document["traceEvents"] += arrows
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    return path


def test_around_a_finding_is_its_longest_interval_with_room(tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    result = export(job(tmp_path), "--around", "input.starved", "-o", out)
    document = read(out)
    low, high = document["profkit_export"]["span_ns"]
    assert high - low == pytest.approx(5_000_000, abs=1_500_000)
    assert low >= 6 * STEP_NS - 1_500_000
    events = [event for event in of_trace(document) if event["ph"] == "X"]
    assert all(event["ts"] * 1000 < high + STEP_NS / 2 for event in events)
    assert all((event["ts"] + event["dur"]) * 1000 > low - STEP_NS / 2 for event in events)
    assert sum(event["name"] == WAIT for event in events) >= 1
    assert 0 < len(events) < 60
    assert any("input.starved" in str(event["args"]) for event in of_profkit(document))
    assert "on each side" in result.output
    assert "left out" in result.output


@pytest.mark.parametrize(
    ("asked", "key"), [("part:idle_data", "part:idle_data"), ("idle_data", "part:idle_data"), ("step:3", "step:3")]
)
def test_parts_and_steps_can_be_asked_for(tmp_path: Path, asked: str, key: str) -> None:
    out = tmp_path / "o.json"
    export(job(tmp_path), "--around", asked, "-o", out)
    assert read(out)["profkit_export"]["around"] == key


def test_a_name_that_the_report_does_not_have_is_refused_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no intervals of that name") as refused:
        export(job(tmp_path), "--around", "comm.exposed", "-o", tmp_path / "o.json")
    assert "input.starved, part:compute" in refused.value.hint
    assert "step:0 to step:9" in refused.value.hint


def test_steps_alone_have_the_report_of_these_steps(traces: Path, tmp_path: Path) -> None:
    import profkit

    out = tmp_path / "o.json"
    export(job(tmp_path), "--steps", "2:9", "-o", out)
    report = profkit.triage(tmp_path / "job.json", step_range=(2, 9))
    assert told(out)[:3] == (report.verdict.bottleneck, report.verdict.headline, report.verdict.step_ns)


def test_arrows_have_both_ends_or_none(tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    export(job(tmp_path), "--around", "input.starved", "-o", out)
    events = of_trace(read(out))
    ends = [event["id"] for event in events if event["ph"] in "sf"]
    assert ends
    assert all(ends.count(one) == 2 for one in ends)
    links = {event["args"]["correlation"] for event in events if event.get("cat") == "kernel"}
    assert set(ends) <= links


def test_the_slice_of_ranks_is_cut_on_their_common_clock(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    result = export(traces / "ddp_straggler_ws4", "--around", "straggler.rank", "-o", out)
    events = [event for event in of_trace(read(out)) if event["ph"] == "X" and event.get("cat") == "cpu_op"]
    assert len({event["pid"] for event in events}) == 4
    assert "of rank " in result.output
