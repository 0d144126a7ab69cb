"""An nsys export has no Chrome events: its rows are drawn as some."""

from pathlib import Path

import pytest

from profkit.errors import UnsupportedTraceError
from profkit.ingest.read import read_traces
from tests.export.test_chrome import export, of_profkit, of_trace, read, told
from tests.ingest.nsys_files import RANK0, RANK1, add_training, training


def test_rows_of_an_nsys_export_become_events(tmp_path: Path) -> None:
    source, out = tmp_path / "r.sqlite", tmp_path / "o.json"
    training(RANK0).write(source)
    (trace,) = read_traces(str(source))
    export(source, "-o", out)
    document = read(out)
    events = of_trace(document)
    by_category = {
        category: [e for e in events if e.get("cat") == category] for category in ("kernel", "cuda_runtime", "ac2g")
    }
    n_copies = sum(event.get("cat") == "gpu_memcpy" for event in events)
    assert len(by_category["kernel"]) + n_copies == len(trace.gpu)
    assert len(by_category["cuda_runtime"]) == len(trace.calls)
    assert len(by_category["ac2g"]) == 2 * int((trace.gpu.launch_row >= 0).sum())
    assert round(by_category["kernel"][0]["ts"] * 1000) == int(trace.gpu.start_ns[0])
    assert any(
        event["name"] == "thread_name" and event["args"]["name"] == "profkit: budget" for event in of_profkit(document)
    )


def test_processes_of_one_nsys_export_are_apart(tmp_path: Path) -> None:
    source, out = tmp_path / "r.sqlite", tmp_path / "o.json"
    both = training(RANK0)
    add_training(both, RANK1, device=1)
    both.write(source)
    export(source, "-o", out)
    document = read(out)
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert len([name for name in names if name.endswith("profkit")]) == 2
    pids = {e["pid"] for e in of_trace(document) if e.get("cat") == "kernel"}
    assert len(pids) == 2
    ends = [e["id"] for e in document["traceEvents"] if e["ph"] in "sf"]
    assert all(ends.count(one) == 2 for one in ends)


def test_what_is_drawn_or_chosen_is_not_judged(traces: Path, tmp_path: Path) -> None:
    source, out, cut = tmp_path / "r.sqlite", tmp_path / "o.json", tmp_path / "cut.json"
    training(RANK0).write(source)
    export(source, "-o", out)
    with pytest.raises(UnsupportedTraceError, match="drew of a recording by nsys"):
        told(out)
    export(traces / "data_cpu.pt.trace.json.gz", "--around", "input.starved", "-o", cut)
    with pytest.raises(UnsupportedTraceError, match=r"moments around finding:input\.starved"):
        told(cut)
