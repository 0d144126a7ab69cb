"""Where Meta's HTA and AMD's TraceLens are measurably wrong: what reader and report say of each probe."""

from pathlib import Path

import pytest

from profkit.api import triage
from profkit.ingest.kineto.reader import read_trace
from profkit.model.table import NO_ROW
from profkit.model.trace import Kind, Trace
from profkit.pipeline import triage_trace
from profkit.testing import kernel, launch, trace_of
from profkit.timeline import Facts
from tests.probes import ALL_REDUCE, BASE_NS, COMMUNICATION, NO_COMMUNICATION, STEP_US, TRUTHS, US, at_ns, probe, steps


def read(name: str, folder: Path) -> list[Trace]:
    """Give the traces of a probe by rank, read from files."""
    traces = []
    for rank, data in sorted(probe(name).items()):
        path = folder / f"rank{rank}.json"
        path.write_bytes(data)
        traces.append(read_trace(str(path)))
    return traces


def durations(trace: Trace) -> list[int]:
    return (trace.gpu.end_ns - trace.gpu.start_ns).tolist()


@pytest.mark.parametrize("name", TRUTHS)
def test_every_probe_is_read_whole_and_linked(name: str, tmp_path: Path) -> None:
    for trace in read(name, tmp_path):
        assert {warning.id for warning in trace.warnings} <= {"steps.empty"}  # many launch nothing in the second step
        assert trace.step_source == "ProfilerStep"
        assert {step.duration_ns for step in trace.steps} == {STEP_US * US}
        assert (trace.gpu.launch_row != NO_ROW).all()
        assert {thread.pid for thread in trace.threads} == {"1"}


def test_a_kernel_statistics_hold_beyond_ten_names(tmp_path: Path) -> None:
    (trace,) = read("A", tmp_path)
    report, _ = triage_trace(trace)
    table = next(section for section in report.sections if section.analyzer == "kernels").tables[0]
    assert (len(table.rows), set(durations(trace))) == (12, {10 * US})
    assert {(row[2], row[3], row[4]) for row in table.rows} == {(3, 30 * US, 10 * US)}
    assert report.devices[0].budget.compute == 360 * US


def test_b_nanoseconds_are_kept(tmp_path: Path) -> None:
    (trace,) = read("B", tmp_path)
    assert (len(trace.gpu), set(durations(trace)), int(trace.gpu.start_ns[0]) - BASE_NS) == (1000, {1200}, 100_370)
    budget = Facts.of(trace).budget
    assert budget.compute == 1_200_000
    assert sum(budget.parts.values()) == budget.window_ns == 2 * STEP_US * US


def test_c_sync_rows_are_no_activity(tmp_path: Path) -> None:
    (trace,) = read("C", tmp_path)
    assert (sum(durations(trace)), len(trace.sync_rows), Facts.of(trace).budget.compute) == (200 * US, 1, 200 * US)


def test_d_minified_ranks_stay_apart(tmp_path: Path) -> None:
    assert not any(b"\n" in data for data in probe("D").values())
    read("D", tmp_path)
    report = triage([str(tmp_path)])
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert [rank.devices[0].budget.compute for rank in report.ranks] == [100 * US, 100 * US]


def test_e_l_the_late_rank_has_the_short_collectives(tmp_path: Path) -> None:
    for name, ahead_us in (("E", 0), ("L", 5000)):
        early, late = read(name, tmp_path)
        assert (early.meta.rank, late.meta.rank) == (0, 1)
        assert durations(early) == [4000 * US] * 2
        assert durations(late) == [1000 * US] * 2
        assert (early.gpu.end_ns - late.gpu.end_ns).tolist() == [ahead_us * US] * 2
        assert {trace.name(int(code)) for trace in (early, late) for code in trace.gpu.name} == {ALL_REDUCE}
        assert len(early.collectives) == 2


def test_f_every_launch_api_links(tmp_path: Path) -> None:
    (trace,) = read("F", tmp_path)
    asked = {trace.name(int(trace.calls.name[row])) for row in trace.gpu.launch_row}
    assert asked == {"cuLaunchKernel", "cudaLaunchKernel", "cuLaunchKernelEx"}
    launches = next(section for section in triage_trace(trace)[0].sections if section.analyzer == "launches")
    assert launches.values["n_launch_calls"] == 3


def test_f_graph_replays_link_every_node() -> None:
    edges = [(at_ns(100 + 10 * n), at_ns(108 + 10 * n)) for n in range(6)]
    nodes = [kernel(f"node{n}", *edge, correlation=9, **{"graph node id": n + 1}) for n, edge in enumerate(edges)]
    trace = trace_of([*steps(), *nodes, launch(at_ns(90), at_ns(95), correlation=9, name="cudaGraphLaunch")])
    assert (trace.gpu.launch_row == 0).all()
    assert trace.gpu.graph_node.tolist() == [1, 2, 3, 4, 5, 6]
    assert next(check for check in triage_trace(trace)[0].checks if check.id == "launches.lost").ok


def test_g_two_devices_are_two_devices(tmp_path: Path) -> None:
    (trace,) = read("G", tmp_path)
    assert (trace.device_indices, trace.gpu.stream.tolist()) == ((0, 1), [7, 7])
    devices = [(device.device, device.budget.compute) for device in Facts.of(trace).devices]
    assert devices == [(0, 100 * US), (1, 100 * US)]


def test_h_no_communication_is_null_not_zero(tmp_path: Path) -> None:
    report, _ = triage_trace(*read("H", tmp_path))
    assert report.devices[0].comm_hidden_fraction is None
    assert "overlap" in {skip.analyzer for skip in report.skipped}


def test_i_stream_zero_counts(tmp_path: Path) -> None:
    (trace,) = read("I", tmp_path)
    assert (trace.device_indices, trace.gpu.stream.tolist()) == ((0,), [0, 0])
    assert sum(durations(trace)) == Facts.of(trace).budget.compute == 200 * US


def test_j_communication_is_known_by_more_than_nccl(tmp_path: Path) -> None:
    (trace,) = read("J", tmp_path)
    kinds = {trace.name(int(code)): kind for code, kind in zip(trace.gpu.name, trace.gpu.kind.tolist(), strict=True)}
    assert {name for name, kind in kinds.items() if kind == Kind.COMM} == set(COMMUNICATION)
    assert [kinds[name] for name in NO_COMMUNICATION] == [Kind.COMPUTE, Kind.COMPUTE, Kind.COMPUTE, Kind.COPY]
    activity = Facts.of(trace).devices[0].activity
    assert [part.total_ns for part in (activity.comm, activity.compute, activity.any)] == [60 * US, 30 * US, 100 * US]


def test_r_the_window_is_the_step_not_the_kernel(tmp_path: Path) -> None:
    (trace,) = read("R", tmp_path)
    assert trace.window_ns == (BASE_NS, at_ns(STEP_US))
    budget = Facts.of(trace).budget
    assert budget.window_ns == STEP_US * US
    assert budget.idle_ns / budget.window_ns == 0.99


def test_u_a_cpu_trace_gives_a_cpu_report(tmp_path: Path) -> None:
    (trace,) = read("U", tmp_path)
    assert (trace.window_ns, len(trace.gpu), len(trace.ops)) == ((BASE_NS, at_ns(2 * STEP_US)), 0, 200)
    report, verdict = triage_trace(trace)
    assert report.devices[0].kind == "cpu"
    assert report.devices[0].budget.compute == 200 * 80 * US
    assert verdict.bottleneck == "kernel-bound"
