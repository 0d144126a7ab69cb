"""Tables of a trace as data frames: names, durations, steps and threads as a person expects them."""

import numpy as np
import pytest

import profkit
from profkit.errors import UsageError
from profkit.model.frames import TABLES
from profkit.model.trace import Trace
from profkit.testing import trace_of
from tests.analyzers import test_findings as drawn
from tests.conftest import ROOT

DDP = ROOT / "traces" / "ddp_straggler_ws4" / "rank0.pt.trace.json.gz"


@pytest.fixture(name="trace", scope="module")
def _trace() -> Trace:
    return trace_of(drawn.healthy().rows)


def test_kernels_have_their_names_durations_and_streams(trace):
    frame = trace.to_pandas("gpu")
    assert {"name", "start_ns", "duration_ns", "stream", "device", "kind", "step"} <= set(frame.columns)
    assert frame["name"].tolist() == [trace.name(code) for code in trace.gpu.name]
    assert (frame["duration_ns"] == frame["end_ns"] - frame["start_ns"]).all()
    assert set(frame["kind"]) <= {"compute", "comm", "copy"}
    assert trace.to_pandas().equals(frame)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_a_frame_of_as_many_rows_without_codes(table, trace):
    for each in (trace, profkit.read_trace(DDP)):
        frame = each.to_pandas(table)
        assert len(frame) == len(getattr(each, table))
        assert not {"name", "thread", "kind"} & set(frame.select_dtypes("number").columns)


def test_rows_know_their_step(trace):
    frame, steps = trace.to_pandas("calls"), trace.to_pandas("steps")
    assert steps["duration_ns"].tolist() == [step.duration_ns for step in trace.steps]
    for place, start in enumerate(trace.calls.start_ns):
        inside = [step.index for step in trace.steps if step.start_ns <= start < step.end_ns]
        assert frame["step"].iloc[[place]].dropna().tolist() == inside


def test_threads_have_their_ids_and_names():
    trace = profkit.read_trace(DDP)
    frame = trace.to_pandas("ops")
    known = {(thread.tid, thread.name) for thread in trace.threads}
    assert set(zip(frame["thread"], frame["thread_name"], strict=True)) <= known


def test_collectives_carry_the_times_and_streams_of_their_rows():
    trace = trace_of(drawn.healthy().rows)
    frame = trace.to_pandas("collectives")
    assert {"name", "duration_ns", "stream", "collective", "dtype", "group_size"} <= set(frame.columns)
    assert np.array_equal(frame["start_ns"], trace.gpu.start_ns[trace.collectives.gpu_row])


def test_what_the_trace_does_not_say_is_absent(trace):
    frame = trace.to_pandas("gpu")
    assert frame["n_bytes"].isna().tolist() == (trace.gpu.n_bytes < 0).tolist()


def test_another_name_is_refused_with_those_there_are(trace):
    with pytest.raises(UsageError, match="no table 'kernels'") as caught:
        trace.to_pandas("kernels")
    assert "gpu" in caught.value.hint


def test_tables_of_a_report_are_frames_with_units_in_their_columns():
    report = profkit.triage(ROOT / "traces" / "kernel_cpu.pt.trace.json.gz")
    tables = [table for section in report.ranks[0].sections for table in section.tables]
    assert tables
    for table in tables:
        frame = table.to_pandas()
        assert len(frame) == len(table.rows)
        for name, unit in zip(frame.columns, table.units, strict=True):
            assert name.endswith(f"_{unit}") == (unit in {"ns", "bytes"})
