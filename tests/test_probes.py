"""Where Meta's HTA and AMD's TraceLens are measurably wrong: the probe, and the truth.

Each probe has two `ProfilerStep#` of 10 ms; device 0, times in us, a launch call per device row unless said otherwise.
"""

from collections.abc import Iterable
from pathlib import Path

from profkit.api import triage
from profkit.pipeline import triage_trace
from profkit.testing import Row, kernel, launch, span, to_json, trace_of
from profkit.timeline import Facts

US = 1000
BASE = 10**9
STEPS = [
    span("ProfilerStep#0", BASE, BASE + 10_000 * US),
    span("ProfilerStep#1", BASE + 10_000 * US, BASE + 20_000 * US),
]
WINDOW_NS = 20_000 * US


def probe(
    work: Iterable[tuple[str, float, float]], *, lag_us: float = 5, device: int = 0, stream: int = 7, first: int = 1
) -> list[Row]:
    """Give steps, kernels (name, start us, end us) and their launch calls."""
    rows = list(STEPS)
    for number, (name, start, end) in enumerate(work, first):
        low, high = BASE + round(start * US), BASE + round(end * US)
        rows.append(kernel(name, low, high, correlation=number, device=device, stream=stream))
        rows.append(launch(low - round(lag_us * US), low - round((lag_us - 1) * US), correlation=number))
    return rows


def test_a_kernel_statistics_hold_beyond_ten_names() -> None:
    work = [
        (f"kernel_{name:02}", 20 * (3 * name + call), 20 * (3 * name + call) + 10)
        for name in range(12)
        for call in range(3)
    ]
    report, _ = triage_trace(trace_of(probe(work)))
    table = next(section for section in report.sections if section.analyzer == "kernels").tables[0]
    assert len(table.rows) == 12
    assert {(row[2], row[3], row[4]) for row in table.rows} == {(3, 30 * US, 10 * US)}
    assert report.devices[0].budget.compute == 360 * US


def test_b_nanoseconds_are_kept() -> None:
    work = [("short", 100.37 + 19.5 * n, 101.57 + 19.5 * n) for n in range(1000)]
    facts = Facts.of(trace_of(probe(work)))
    assert facts.budget.compute == 1_200_000
    assert facts.budget.window_ns == WINDOW_NS
    assert sum(facts.budget.parts.values()) == WINDOW_NS


def test_c_sync_rows_are_no_activity() -> None:
    rows = probe([("k", 100, 200), ("k", 1000, 1100)])
    sync = {"device": 0, "stream": 7}
    rows.append(Row(name="Stream Sync", cat="cuda_sync", start_ns=BASE + 200 * US, end_ns=BASE + 1000 * US, args=sync))
    facts = Facts.of(trace_of(rows))
    assert facts.budget.compute == 200 * US
    assert len(facts.trace.sync_rows) == 1


def test_d_minified_ranks_stay_apart(tmp_path: Path) -> None:
    for rank in (0, 1):
        data = to_json(probe([("k", 100, 200)]), layout="minified", rank=rank)
        assert b"\n" not in data
        (tmp_path / f"trace{rank}.json").write_bytes(data)
    report = triage([str(tmp_path / "trace0.json"), str(tmp_path / "trace1.json")])
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert [rank.devices[0].budget.compute for rank in report.ranks] == [100 * US, 100 * US]


def test_f_every_launch_api_links() -> None:
    rows = [
        *STEPS,
        kernel("triton_poi", BASE + 100 * US, BASE + 110 * US, correlation=1),
        launch(BASE + 90 * US, BASE + 91 * US, correlation=1, name="cuLaunchKernel", cat="cuda_driver"),
        kernel("gemm", BASE + 200 * US, BASE + 210 * US, correlation=2),
        launch(BASE + 190 * US, BASE + 191 * US, correlation=2),
        kernel("nvjet", BASE + 300 * US, BASE + 310 * US, correlation=3),
        launch(BASE + 290 * US, BASE + 291 * US, correlation=3, name="cuLaunchKernelEx", cat="cuda_driver"),
    ]
    trace = trace_of(rows)
    assert (trace.gpu.launch_row >= 0).all()
    report, _ = triage_trace(trace)
    launches = next(section for section in report.sections if section.analyzer == "launches")
    assert launches.values["n_launch_calls"] == 3


def test_f_graph_replays_link_every_node() -> None:
    nodes = [
        kernel(
            f"node{n}",
            BASE + (100 + 10 * n) * US,
            BASE + (108 + 10 * n) * US,
            correlation=9,
            **{"graph node id": n + 1},
        )
        for n in range(6)
    ]
    rows = [*STEPS, *nodes, launch(BASE + 90 * US, BASE + 95 * US, correlation=9, name="cudaGraphLaunch")]
    trace = trace_of(rows)
    assert (trace.gpu.launch_row == 0).all()
    assert trace.gpu.graph_node.tolist() == [1, 2, 3, 4, 5, 6]
    check = next(check for check in triage_trace(trace)[0].checks if check.id == "launches.lost")
    assert check.ok


def test_g_two_devices_are_two_devices() -> None:
    rows = probe([("k", 100, 200)]) + probe([("k", 300, 400)], device=1, first=2)[2:]
    facts = Facts.of(trace_of(rows))
    assert [(device.device, device.budget.compute) for device in facts.devices] == [(0, 100 * US), (1, 100 * US)]


def test_h_no_communication_is_null_not_zero() -> None:
    report, _ = triage_trace(trace_of(probe([("k", 100, 200)])))
    assert report.devices[0].comm_hidden_fraction is None
    assert "overlap" in {skip.analyzer for skip in report.skipped}


def test_i_stream_zero_counts() -> None:
    facts = Facts.of(trace_of(probe([("k", 100, 200), ("k", 300, 400)], stream=0)))
    assert facts.budget.compute == 200 * US


def test_j_communication_is_known_by_more_than_nccl() -> None:
    communication = [
        "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)",
        "nvshmemi_transfer_quiet",
        "multimem_all_reduce_kernel",
        "mscclpp::allreduce",
        "deep_ep::internode::dispatch",
        "rcclGenericKernel",
    ]
    compute = ["batch_norm_SyncBN_kernel", "fused_dma_gemm", "hipblaslt_gemm_x"]
    names = [*communication, *compute, "Memcpy PtoP"]
    facts = Facts.of(trace_of(probe([(name, 100 + 20 * n, 110 + 20 * n) for n, name in enumerate(names)])))
    device = facts.devices[0]
    assert device.activity.comm.total_ns == 60 * US
    assert device.activity.compute.total_ns == 30 * US
    assert device.activity.any.total_ns == 100 * US


def test_r_the_window_is_the_step_not_the_kernel() -> None:
    facts = Facts.of(trace_of([STEPS[0], *probe([("k", 100, 200)])[2:]]))
    assert facts.budget.window_ns == 10_000 * US
    assert facts.budget.idle_ns / facts.budget.window_ns == 0.99


def test_u_a_cpu_trace_gives_a_cpu_report() -> None:
    ops = [
        Row(name="aten::mm", cat="cpu_op", start_ns=BASE + (10 + 100 * n) * US, end_ns=BASE + (90 + 100 * n) * US)
        for n in range(200)
    ]
    report, verdict = triage_trace(trace_of([*STEPS, *ops]))
    assert report.devices[0].kind == "cpu"
    assert report.devices[0].budget.compute == 200 * 80 * US
    assert verdict.bottleneck == "kernel-bound"
