"""The peers' probes as files: what the reader alone must get right in each."""

from pathlib import Path

import numpy as np
import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.model.table import NO_ROW
from profkit.model.trace import Kind, Trace
from tests.probes import ALL_REDUCE, BASE_NS, COMMUNICATION, NO_COMMUNICATION, STEP_US, TRUTHS, US, at_ns, probe


def read(name: str, folder: Path) -> list[Trace]:
    """Give the traces of a probe by rank, read from files."""
    traces = []
    for rank, data in sorted(probe(name).items()):
        path = folder / f"rank{rank}.json"
        path.write_bytes(data)
        traces.append(read_trace(str(path)))
    return traces


def durations(trace: Trace) -> list[int]:
    lengths: list[int] = (trace.gpu.end_ns - trace.gpu.start_ns).tolist()
    return lengths


@pytest.mark.parametrize("name", TRUTHS)
def test_every_probe_is_read_whole_and_linked(name: str, tmp_path: Path) -> None:
    for trace in read(name, tmp_path):
        assert {warning.id for warning in trace.warnings} <= {"steps.empty"}  # many launch nothing in the second step
        assert trace.step_source == "ProfilerStep"
        assert {step.duration_ns for step in trace.steps} == {STEP_US * US}
        assert (trace.gpu.launch_row != NO_ROW).all()
        assert {thread.pid for thread in trace.threads} == {"1"}


def test_a_b_statistics_are_exact(tmp_path: Path) -> None:
    (a,), (b,) = read("A", tmp_path), read("B", tmp_path)
    names, counts = np.unique(a.gpu.name, return_counts=True)
    assert (names.size, set(counts.tolist()), set(durations(a))) == (12, {3}, {10 * US})
    assert (len(b.gpu), set(durations(b)), int(b.gpu.start_ns[0]) - BASE_NS) == (1000, {1200}, 100_370)


def test_c_a_sync_row_is_no_device_work(tmp_path: Path) -> None:
    (trace,) = read("C", tmp_path)
    assert (sum(durations(trace)), len(trace.sync_rows)) == (200 * US, 1)


def test_d_e_ranks_are_told(tmp_path: Path) -> None:
    for name in "DEL":
        assert [trace.meta.rank for trace in read(name, tmp_path)] == [0, 1]


def test_e_l_the_late_rank_has_the_short_collectives(tmp_path: Path) -> None:
    for name, ahead_us in (("E", 0), ("L", 5000)):
        early, late = read(name, tmp_path)
        assert durations(early) == [4000 * US] * 2
        assert durations(late) == [1000 * US] * 2
        assert (early.gpu.end_ns - late.gpu.end_ns).tolist() == [ahead_us * US] * 2
        assert {trace.name(int(code)) for trace in (early, late) for code in trace.gpu.name} == {ALL_REDUCE}
        assert len(early.collectives) == 2


def test_f_a_launch_is_a_launch_in_either_api(tmp_path: Path) -> None:
    (trace,) = read("F", tmp_path)
    assert {trace.name(int(trace.calls.name[row])) for row in trace.gpu.launch_row} == {
        "cuLaunchKernel",
        "cudaLaunchKernel",
    }


def test_g_i_devices_and_streams(tmp_path: Path) -> None:
    (g,), (i,) = read("G", tmp_path), read("I", tmp_path)
    assert (g.device_indices, g.gpu.stream.tolist()) == ((0, 1), [7, 7])
    assert (i.device_indices, i.gpu.stream.tolist(), sum(durations(i))) == ((0,), [0, 0], 200 * US)


def test_j_communication_by_name(tmp_path: Path) -> None:
    (trace,) = read("J", tmp_path)
    kinds = {trace.name(int(code)): kind for code, kind in zip(trace.gpu.name, trace.gpu.kind.tolist(), strict=True)}
    assert {name for name, kind in kinds.items() if kind == Kind.COMM} == set(COMMUNICATION)
    assert [kinds[name] for name in NO_COMMUNICATION] == [Kind.COMPUTE, Kind.COMPUTE, Kind.COMPUTE, Kind.COPY]


def test_r_u_the_window_is_that_of_the_steps(tmp_path: Path) -> None:
    (r,), (u,) = read("R", tmp_path), read("U", tmp_path)
    assert r.window_ns == (BASE_NS, at_ns(STEP_US))
    assert (u.window_ns, len(u.gpu), len(u.ops)) == ((BASE_NS, at_ns(2 * STEP_US)), 0, 200)
