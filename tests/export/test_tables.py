"""`profkit export -o x.csv, x.parquet, x.speedscope.json`: columns a person expects, sums that the report has."""

import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest

import profkit
from profkit.errors import MissingCapabilityError
from profkit.export.tables import csv_of, parquet_of
from profkit.testing import Row, kernel, launch, operator, span, to_json
from tests.export.test_chrome import export

NEEDS_PYARROW = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def job(tmp_path: Path) -> Path:
    rows: list[Row] = [span(f"ProfilerStep#{step}", step * 1_000_000, (step + 1) * 1_000_000) for step in range(3)]
    for number in range(12):
        at = number * 250_000
        rows += [
            operator(
                "aten::mm",
                at,
                at + 40_000,
                External_id=number + 1,
                Input_Dims=[[2, 3], [3, 4]],
                Input_type=["float", "float"],
            ),
            launch(at + 1_000, at + 5_000, correlation=number + 1),
            kernel(
                "gemm",
                at + 20_000,
                at + 120_000,
                correlation=number + 1,
                **{"External id": number + 1, "grid": [8, 1, 1], "block": [128, 1, 1]},
            ),
        ]
    path = tmp_path / "job.json"
    path.write_bytes(to_json(rows, rank=0, metadata={"record_shapes": 1}))
    return path


def test_device_work_is_the_table_of_a_trace_with_a_device(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    result = export(job(tmp_path), "-o", out)
    assert "the table gpu, 12 rows" in result.output
    first = rows_of(out)[0]
    assert first["name"] == "gemm"
    assert first["kind"] == "compute"
    assert first["operator"] == "aten::mm"
    assert (first["start_ns"], first["end_ns"], first["duration_ns"]) == ("20000", "120000", "100000")
    assert (first["launch_to_start_ns"], first["grid_x"], first["block_x"], first["rank"]) == ("19000", "8", "128", "0")


def test_operators_are_the_table_of_a_trace_without(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    result = export(traces / "kernel_cpu.pt.trace.json.gz", "-o", out)
    assert "the table ops" in result.output
    assert rows_of(out)[0]["name"].startswith("aten::")


def test_the_budget_sums_to_the_window(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    source = job(tmp_path)
    export(source, "--table", "budget", "-o", out)
    low, high = profkit.triage(source).ranks[0].window_ns
    assert sum(int(row["ns"]) for row in rows_of(out)) == high - low


def test_findings_are_those_of_the_report(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    source = traces / "ddp_straggler_ws4"
    export(source, "--table", "findings", "-o", out)
    assert [row["id"] for row in rows_of(out)] == [one.id for one in profkit.triage(source).findings]


@pytest.mark.parametrize("name", ["calls", "spans", "steps", "work", "ops", "gpu"])
def test_every_table_has_rows_with_names_and_whole_ns(tmp_path: Path, name: str) -> None:
    out = tmp_path / "t.csv"
    export(job(tmp_path), "--table", name, "-o", out)
    rows = rows_of(out)
    assert rows
    assert all(int(row["total_ns" if name == "work" else "duration_ns"]) > 0 for row in rows)
    if name == "ops":
        assert rows[0]["input_dims"] == "[[2, 3], [3, 4]]"


def test_steps_and_windows_cut_the_rows(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    export(job(tmp_path), "--steps", "1:2", "-o", out)
    assert {int(row["start_ns"]) // 1_000_000 for row in rows_of(out)} == {1}
    export(job(tmp_path), "--around", "step:2", "--table", "steps", "-o", out)
    assert [row["number"] for row in rows_of(out)] == ["1", "2"]


def test_ranks_of_one_table_are_on_one_clock(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    export(traces / "ddp_straggler_ws4", "-o", out, "--table", "steps")
    rows = rows_of(out)
    assert {row["rank"] for row in rows} == {"0", "1", "2", "3"}
    starts = [int(row["start_ns"]) for row in rows if row["index"] == "3"]
    assert max(starts) - min(starts) < 100_000_000


def test_text_that_a_spreadsheet_would_run_is_marked_as_text() -> None:
    cells = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "plain", "a=b", "＝1", 'say "x", y', "line\nbreak"]
    text = b"".join(csv_of({"name": cells, "ns": list(range(-1, 9))})).decode()
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    assert [row["name"] for row in rows] == [f"'{cell}" if cell[0] in "=+-@\t＝" else cell for cell in cells]
    assert rows[0]["ns"] == "-1"


@NEEDS_PYARROW
def test_parquet_has_types_nulls_and_names_as_they_are(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "t.parquet"
    export(job(tmp_path), "-o", out)
    table = pq.read_table(out)
    assert table.num_rows == 12
    assert str(table.schema.field("start_ns").type) == "int64"
    first = table.to_pylist()[0]
    assert first["name"] == "gemm"
    assert first["bytes"] is None
    (tmp_path / "n.parquet").write_bytes(parquet_of({"name": ["=1", "\ud800"], "share": [0.5, None]}))
    assert pq.read_table(tmp_path / "n.parquet").to_pylist()[0] == {"name": "=1", "share": 0.5}


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingCapabilityError, match="pyarrow") as refused:
        parquet_of({"name": ["a"]})
    assert "pip install 'profkit[parquet]'" in refused.value.hint


def test_flame_charts_open_and_close_in_order(tmp_path: Path) -> None:
    out = tmp_path / "t.speedscope.json"
    export(job(tmp_path), "-o", out)
    document = json.loads(out.read_text())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert {profile["name"] for profile in document["profiles"]} == {"thread 1000", "GPU 0 stream 7"}
    for profile in document["profiles"]:
        around: list[int] = []
        last = profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= last
            last = event["at"]
            if event["type"] == "O":
                around.append(event["frame"])
            else:
                assert around.pop() == event["frame"]
        assert not around
        assert last <= profile["endValue"]
    host = next(profile for profile in document["profiles"] if profile["name"] == "thread 1000")
    assert {names[event["frame"]] for event in host["events"]} == {
        "ProfilerStep#0",
        "ProfilerStep#1",
        "ProfilerStep#2",
        "aten::mm",
        "cudaLaunchKernel",
    }
