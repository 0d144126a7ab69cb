"""Every field of a trace that profkit reads, in today's spelling and in older ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.errors import MissingCapabilityError, TraceFormatError
from profkit.ingest.kineto.reader import read_trace
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, Kind, Trace
from profkit.testing import Row, kernel, launch, span, to_json, trace_of
from tests.ingest.test_zstd import zstd

BASE = 10**9


def raw(*events: dict[str, Any], **top: Any) -> bytes:
    """Give a file with events exactly as written here."""
    return json.dumps({**top, "traceEvents": list(events)}).encode()


def read(data: bytes, folder: Path) -> Trace:
    path = folder / "t.json"
    path.write_bytes(data)
    return read_trace(str(path))


def x(cat: str | None, name: str, ts: float, dur: float, **rest: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "X", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **rest}
    return event if cat is None else {**event, "cat": cat}


def test_kernel_arguments(tmp_path: Path) -> None:
    args = {
        "device": 3,
        "stream": 20,
        "correlation": 99,
        "External id": 5,
        "grid": [4, 2, 1],
        "block": [128, 1, 1],
        "graph node id": 8,
    }
    trace = read(raw(x("kernel", "k", 1.5, 2.25, args=args)), tmp_path)
    gpu = trace.gpu
    assert (gpu.device[0], gpu.stream[0], gpu.correlation[0], gpu.external_id[0], gpu.graph_node[0]) == (
        3,
        20,
        99,
        5,
        8,
    )
    assert gpu.grid.tolist() == [[4, 2, 1]]
    assert gpu.block.tolist() == [[128, 1, 1]]
    assert (gpu.start_ns[0], gpu.end_ns[0]) == (1500, 3750)
    assert gpu.launch_row.tolist() == [NO_ROW]


def test_copies_carry_bytes_and_old_ids(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 7, "correlation": 1, "external id": 31, "bytes": 640}
    trace = read(raw(x("Memcpy", "Memcpy HtoD (Pageable -> Device)", 1, 2, tid="stream 7", pid=0, args=args)), tmp_path)
    assert trace.gpu.kind.tolist() == [Kind.COPY]
    assert (trace.gpu.n_bytes[0], trace.gpu.external_id[0]) == (640, 31)


def test_a_lane_is_taken_from_pid_and_tid_where_arguments_lack_it(tmp_path: Path) -> None:
    trace = read(raw(x("Kernel", "k", 1, 2, pid=2, tid="stream 15")), tmp_path)
    assert (trace.gpu.device[0], trace.gpu.stream[0]) == (2, 15)


def test_collective_arguments_on_the_kernel(tmp_path: Path) -> None:
    args = {
        "device": 0,
        "stream": 20,
        "correlation": 4,
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "In msg nelems": 10,
        "Out msg nelems": 80,
        "Group size": 8,
        "Process Group Name": "dp",
        "Process Group Ranks": [0, 1, 2],
        "Seq": 17,
    }
    trace = read(raw(x("kernel", "plain", 1, 2), x("kernel", "odd_name", 5, 2, args=args)), tmp_path)
    assert trace.gpu.kind.tolist() == [Kind.COMPUTE, Kind.COMM]
    row = trace.collectives
    assert (row.gpu_row[0], row.in_elements[0], row.out_elements[0], row.group_size[0], row.seq[0]) == (
        1,
        10,
        80,
        8,
        17,
    )
    assert [trace.name(int(code[0])) for code in (row.collective, row.dtype, row.group_name)] == [
        "_allgather_base",
        "BFloat16",
        "dp",
    ]
    assert json.loads(trace.name(int(row.group_ranks[0]))) == [0, 1, 2]


def test_collective_arguments_on_the_operator(tmp_path: Path) -> None:
    op = {"External id": 71, "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 5, "Group size": 2}
    nccl = {"device": 0, "stream": 20, "correlation": 4, "External id": 71}
    trace = read(
        raw(x("cpu_op", "record_param_comms", 1, 2, args=op), x("kernel", "ncclDevKernel_AllReduce", 5, 2, args=nccl)),
        tmp_path,
    )
    assert trace.collectives.gpu_row.tolist() == [0]
    assert trace.collectives.in_elements.tolist() == [5]


def test_memory_events_old_and_new(tmp_path: Path) -> None:
    new = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 2}
    old = {
        "ph": "i",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "args": {"Device Type": 0, "Device Id": -1, "Bytes": 4},
    }
    args = {"Bytes": -512, "Total Allocated": 100, "Total Reserved": 200, "Device Type": 1, "Device Id": 0}
    trace = read(raw(x("cpu_op", "a", 1, 1), {**new, "args": args}, old), tmp_path)
    assert trace.memory.n_bytes.tolist() == [4, -512]
    assert trace.memory.reserved_bytes.tolist() == [-1, 200]
    assert trace.memory.device_type.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "cat", "kind"),
    [
        ("cudaLaunchKernel", "cuda_runtime", CallKind.LAUNCH),
        ("cudaLaunchKernelExC", "cuda_runtime", CallKind.LAUNCH),
        ("cuLaunchKernelEx", "cuda_driver", CallKind.LAUNCH),
        ("cudaLaunchCooperativeKernel", "cuda_runtime", CallKind.LAUNCH),
        ("hipExtModuleLaunchKernel", "cuda_runtime", CallKind.LAUNCH),
        ("hipModuleLaunchKernel", "cuda_runtime", CallKind.LAUNCH),
        ("cudaGraphLaunch", "cuda_runtime", CallKind.GRAPH_LAUNCH),
        ("hipGraphLaunch", "hip_runtime", CallKind.GRAPH_LAUNCH),
        ("cudaStreamSynchronize", "Runtime", CallKind.SYNC),
        ("zeEventHostSynchronize", "xpu_runtime", CallKind.SYNC),
        ("urQueueFinish", "xpu_runtime", CallKind.SYNC),
        ("urEnqueueUSMMemcpy", "xpu_runtime", CallKind.COPY),
        ("urEnqueueKernelLaunch", "xpu_runtime", CallKind.LAUNCH),
        ("hipDeviceSynchronize", "cuda_runtime", CallKind.SYNC),
        ("cudaMemcpy", "cuda_runtime", CallKind.SYNC),
        ("hipMemcpyWithStream", "cuda_runtime", CallKind.SYNC),
        ("cudaMemcpyAsync", "cuda_runtime", CallKind.COPY),
        ("cudaMemsetAsync", "cuda_runtime", CallKind.COPY),
        ("cudaMalloc", "cuda_runtime", CallKind.ALLOC),
        ("cuMemSetAccess", "cuda_driver", CallKind.ALLOC),
        ("cudaFree", "cuda_runtime", CallKind.ALLOC),
        ("cudaMallocAsync", "cuda_runtime", CallKind.OTHER),
        ("cudaMemGetInfo", "cuda_runtime", CallKind.OTHER),
        ("cudaEventQuery", "cuda_runtime", CallKind.OTHER),
        ("cudaStreamWaitEvent", "cuda_runtime", CallKind.OTHER),
        ("cudaStreamBeginCapture", "cuda_runtime", CallKind.CAPTURE),
    ],
)
def test_calls_are_known_by_name(name: str, cat: str, kind: CallKind) -> None:
    trace = trace_of([launch(BASE, BASE + 10, correlation=1, name=name, cat=cat)])
    assert trace.calls.kind.tolist() == [kind]


def test_metadata(tmp_path: Path) -> None:
    top = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "totalGlobalMem": 85_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "with_stack": 1,
        "record_shapes": 1,
        "profile_memory": 1,
        "profkit_unprofiled_step_mean_ns": 12345,
    }
    trace = read(raw(x("cpu_op", "a", 1, 1), **top), tmp_path)
    meta = trace.meta
    assert (meta.rank, meta.world_size, meta.backend) == (3, 8, "nccl")
    assert (meta.devices[0].name, meta.devices[0].n_sms) == ("NVIDIA H100", 132)
    assert trace.origin_unix_ns == 1_700_000_000_000_000_000
    assert (meta.has_stacks, meta.has_shapes, meta.has_memory, meta.unprofiled_step_ns) == (True, True, True, 12345)


def test_captures_until_torch_1_8_name_their_device_too(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "Tesla V100-DGXS-32GB", "totalGlobalMem": 1, "multiProcessorCount": 80}]
    (device,) = read(raw(x("cpu_op", "a", 1, 1), computeProperties=properties), tmp_path).meta.devices
    assert (device.name, device.n_sms) == ("Tesla V100-DGXS-32GB", 80)


def test_arrows_from_forward_to_backward_are_kept_and_launch_arrows_counted(tmp_path: Path) -> None:
    def arrow(cat: str, ph: str, ts: float) -> dict[str, Any]:
        return {"ph": ph, "cat": cat, "name": cat, "id": 9, "pid": 1, "tid": 1, "ts": ts}

    events = [
        x("cpu_op", "a", 1, 1),
        arrow("fwdbwd", "s", 1),
        arrow("fwdbwd", "f", 5),
        arrow("ac2g", "s", 1),
        arrow("ac2g", "f", 2),
    ]
    trace = read(raw(*events), tmp_path)
    assert trace.flows.flow_id.tolist() == [9, 9]
    assert trace.flows.is_start.tolist() == [1, 0]
    assert trace.meta.categories["ac2g"] == 2


def test_older_spellings(tmp_path: Path) -> None:
    events = [
        x("Operator", "ProfilerStep#4", 0, 100, tid="7"),
        x("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 20, tid="7"),
        x("Operator", "aten::mm", 30, 20, tid="7", args={"External id": 3}),
        x("Runtime", "cudaLaunchKernel", 32, 5, tid="7", args={"correlation": 6, "external id": 3}),
        x("Kernel", "sgemm", 40, 10, pid=0, tid="stream 7", args={"device": 0, "stream": 7, "correlation": 6}),
    ]
    trace = read(json.dumps(events).encode(), tmp_path)
    assert [step.number for step in trace.steps] == [4]
    assert trace.gpu.launch_row.tolist() == [0]
    assert len(trace.ops) == 1
    assert len(trace.spans) == 2


def test_the_autograd_profilers_own_export(tmp_path: Path) -> None:
    events = [x(None, "aten::mm", 434.706, 4.123999999999967, pid="CPU functions", tid=1, args={})]
    trace = read(json.dumps(events).encode(), tmp_path)
    assert (trace.ops.start_ns[0], trace.ops.end_ns[0]) == (434706, 438830)


def test_a_call_with_a_driver_call_inside_links_to_the_launch() -> None:
    rows = [
        Row(name="cudaEventRecord", cat="cuda_runtime", start_ns=BASE, end_ns=BASE + 5, args={"correlation": 3}),
        launch(BASE + 10, BASE + 20, correlation=3),
        kernel("k", BASE + 30, BASE + 40, correlation=3),
    ]
    trace = trace_of(rows)
    assert trace.name(int(trace.calls.name[trace.gpu.launch_row[0]])) == "cudaLaunchKernel"


def test_steps_are_found_by_the_period_of_kernels_with_an_anchor() -> None:
    names = ["a", "b", "a", "c", "multi_tensor_apply_kernel"]
    rows = []
    for n in range(40):
        start = BASE + 10_000 * n
        rows.append(kernel(names[n % 5], start, start + 5000, correlation=n + 1))
    trace = trace_of(rows)
    assert trace.step_source == "period"
    assert {step.duration_ns for step in trace.steps} == {50_000}
    without_anchor = [replace(row, name="x") if row.name.startswith("multi") else row for row in rows]
    assert trace_of(without_anchor).step_source == "span"


def test_a_step_found_by_period_or_optimizer_has_a_length() -> None:
    """Kernels and ranges of a file may all lie at one time; a marker of no length is no step either."""
    names = ["a", "b", "a", "c", "multi_tensor_apply_kernel"]
    kernels = [kernel(names[n % 5], BASE, BASE + 5000, correlation=n + 1, stream=n) for n in range(40)]
    optimizer = [span("Optimizer.step#AdamW.step", BASE, BASE + 5000) for _ in range(5)]
    for rows in (kernels, [*kernels, *optimizer]):
        trace = trace_of(rows)
        assert trace.steps == ()
        assert trace.step_source == "span"
    times = [BASE + 10_000 * (n // 10) for n in range(40)]  # every second step is empty
    later = [replace(row, start_ns=at, end_ns=at + 5000) for at, row in zip(times, kernels, strict=True)]
    lasting = trace_of(later).steps
    assert [step.duration_ns for step in lasting] == [10_000] * 3
    assert [step.index for step in lasting] == [0, 1, 2]


def test_tables_are_read_only_and_become_data_frames() -> None:
    trace = trace_of([kernel("k", BASE, BASE + 10, correlation=1, grid=[1, 2, 3])])
    with pytest.raises(ValueError, match="read-only"):
        trace.gpu.start_ns[0] = 1
    frame = trace.gpu.to_pandas()
    assert frame["end_ns"].tolist() == [BASE + 10]
    assert list(frame["grid"][0]) == [1, 2, 3]


def test_zstd_is_read_or_the_missing_decoder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.json.zst"
    if zstd is None:
        path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
        with pytest.raises(MissingCapabilityError, match="zstd") as caught:
            read_trace(str(path))
        assert caught.value.exit_code == 4
        return
    path.write_bytes(zstd.compress(to_json([span("ProfilerStep#0", BASE, BASE + 10)])))
    assert len(read_trace(str(path)).steps) == 1


def test_a_bad_event_in_another_process_is_named_all_the_same(tmp_path: Path) -> None:
    rows = [span(f"range{n}", BASE + 1000 * n, BASE + 1000 * n + 500) for n in range(300)]
    path = tmp_path / "t.json"
    path.write_bytes(to_json(rows).replace(b'"range250", "pid": 1000', b'"range250", "pid": {}'))
    with pytest.raises(TraceFormatError, match="event 251"):
        read_trace(str(path), jobs=3, chunk_bytes=3000)
