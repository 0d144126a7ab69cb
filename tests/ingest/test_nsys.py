"""nsys SQLite exports become the same traces as Kineto's: one for each process, joined, named, with their faults."""

import gzip
import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from profkit import signing
from profkit.api import triage
from profkit.cli.info import describe
from profkit.errors import MissingCapabilityError, TraceFormatError, UnsupportedTraceError
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import find_sources
from profkit.ingest.nsys.nvtx import Labels, range_kind_of
from profkit.ingest.read import read_traces
from profkit.model.trace import CallKind, Kind, SpanKind, Trace
from profkit.render.json.triage import report_to_dict
from profkit.render.markdown import triage as markdown
from profkit.render.terminal import triage as terminal
from tests.ingest.nsys_files import RANK0, RANK1, Export, add_training, global_pid, global_tid, training
from tests.test_imports import loaded_after


def only(path: Path) -> Trace:
    (trace,) = read_traces(str(path))
    return trace


def names(trace: Trace, table: str) -> list[str]:
    return [trace.name(int(code)) for code in getattr(trace, table).name]


def test_rows_of_every_table_arrive_linked_and_named_as_kineto_names_them(tmp_path: Path) -> None:
    export = Export()
    export.kernel(10_000, 20_000, "void at::native::<unnamed>::reduce_kernel<(int)4>(T1)")
    export.call(1_000, 1_500, "cudaMemcpyAsync_v3020", correlation=50)
    export.work("MEMCPY", 2_000, 3_000, correlation=50, bytes=4096, copyKind=1, srcKind=0, dstKind=2)
    export.work("MEMSET", 4_000, 5_000, correlation=51, bytes=64, memKind=2)
    export.call(20_500, 30_000, "cudaStreamSynchronize_v3020", correlation=60)
    export.work("SYNCHRONIZATION", 20_600, 29_900, correlation=60, syncType=3)
    export.add("OSRT_API", start=100, end=900, globalTid=global_tid(RANK0), nameId=export.string("pthread_cond_wait"))
    trace = only(export.write(tmp_path / "x.sqlite"))
    assert names(trace, "gpu") == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
        "void at::native::(anonymous namespace)::reduce_kernel<(int)4>(T1)",
    ]
    assert trace.gpu.kind.tolist() == [Kind.COPY, Kind.COPY, Kind.COMPUTE]
    assert trace.gpu.n_bytes.tolist() == [4096, 64, -1]
    assert trace.gpu.grid[2].tolist() == [4, 2, 1]
    assert [trace.name(int(trace.calls.name[row])) if row >= 0 else "" for row in trace.gpu.launch_row] == [
        "cudaMemcpyAsync",
        "",
        "cudaLaunchKernel",
    ]
    assert trace.calls.kind.tolist() == [CallKind.COPY, CallKind.LAUNCH, CallKind.SYNC]
    assert names(trace, "sync_rows") == ["Stream Sync"]
    assert names(trace, "waits") == ["pthread_cond_wait"]
    assert trace.meta.traits.format == "nsys"


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    first, second = training(), training()
    for rows in second.rows.values():
        rows.reverse()
    second.strings = dict(reversed(second.strings.items()))
    before, after = only(first.write(tmp_path / "a.sqlite")), only(second.write(tmp_path / "b.sqlite"))
    assert names(before, "gpu") == names(after, "gpu")
    for table in ("gpu", "calls", "ops", "spans"):
        for name, column in getattr(before, table).columns().items():
            if name not in {"name", "thread"}:
                np.testing.assert_array_equal(column, getattr(after, table).columns()[name])


def test_the_chunk_size_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = training().write(tmp_path / "x.sqlite")
    whole = only(path)
    for chunk_rows, part_rows in ((1, 1), (3, 7)):
        monkeypatch.setattr("profkit.ingest.nsys.sqlite.CHUNK_ROWS", chunk_rows)
        monkeypatch.setattr("profkit.ingest.nsys.rows.PART_ROWS", part_rows)
        pieces = only(path)
        assert names(whole, "gpu") == names(pieces, "gpu")
        assert names(whole, "ops") == names(pieces, "ops")
        np.testing.assert_array_equal(whole.gpu.launch_row, pieces.gpu.launch_row)


def test_correlation_ids_that_two_processes_share_link_within_each(tmp_path: Path) -> None:
    export = Export()
    for pid, device, at in ((RANK1, 1, 0), (RANK0, 0, 7_000)):
        export.kernel(10_000 + at, 20_000 + at, f"kernel of {pid}", pid=pid, device=device, correlation=77)
    first, second = read_traces(str(export.write(tmp_path / "x.sqlite")))
    assert [trace.meta.rank for trace in (first, second)] == [0, 1]
    assert names(first, "gpu") == [f"kernel of {RANK0}"]
    assert first.calls.start_ns[first.gpu.launch_row].tolist() == [12_000]
    assert second.calls.start_ns[second.gpu.launch_row].tolist() == [5_000]
    assert {thread.pid for thread in first.threads} == {str(RANK0)}
    assert any("ranks are numbered by GPU" in warning.message for warning in first.warnings)


def test_two_processes_that_both_call_their_gpu_0_are_told_apart_by_the_gpu_behind_it(tmp_path: Path) -> None:
    export = Export()
    for pid, gpu in ((RANK0, 5), (RANK1, 4)):
        export.kernel(10_000, 20_000, pid=pid, device=0)
        export.add("TARGET_INFO_GPU", id=gpu, name=f"GPU {gpu}", smCount=132, totalMemory=80, cuDevice=gpu)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    traces = list(read_traces(str(export.write(tmp_path / "x.sqlite"))))
    assert [(trace.meta.rank, trace.meta.metadata["pid"]) for trace in traces] == [(0, RANK1), (1, RANK0)]
    assert [trace.meta.devices[0].name for trace in traces] == ["GPU 4", "GPU 5"]
    assert traces[0].meta.devices[0].index == 0


def test_ranks_are_mpis_where_it_was_traced(tmp_path: Path) -> None:
    export = Export()
    for device, (pid, rank) in enumerate(((RANK0, 5), (RANK1, 4))):
        add_training(export, pid, device=device)
        export.add("MPI_RANKS", globalTid=global_tid(pid), rank=rank)
    traces = list(read_traces(str(export.write(tmp_path / "x.sqlite"))))
    assert [(trace.meta.rank, trace.meta.metadata["pid"]) for trace in traces] == [(4, RANK1), (5, RANK0)]
    assert not any(warning.id == "nsys.ranks" for warning in traces[0].warnings)
    export.rows["MPI_RANKS"][0]["rank"] = 4  # two communicators' worth of ranks, or damage: then by GPU
    traces = list(read_traces(str(export.write(tmp_path / "y.sqlite"))))
    assert [(trace.meta.rank, trace.meta.metadata["pid"]) for trace in traces] == [(0, RANK0), (1, RANK1)]
    assert any(warning.id == "nsys.ranks" for warning in traces[0].warnings)


def test_the_rank_of_a_single_process_is_the_one_in_the_name_of_its_file(tmp_path: Path) -> None:
    assert only(training().write(tmp_path / "host_rank3.sqlite")).meta.rank == 3
    assert only(training().write(tmp_path / "report1.sqlite")).meta.rank is None


def test_device_rows_without_a_process_belong_to_the_only_one_that_calls_cuda(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite", without=["CUPTI_ACTIVITY_KIND_KERNEL.globalPid"])
    trace = only(path)
    assert trace.meta.metadata["pid"] == RANK0
    assert (trace.gpu.launch_row >= 0).all()
    assert len(trace.ops) == 32


def test_the_reading_is_told_as_a_share_of_the_file(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite")
    told: list[tuple[int, int]] = []
    list(read_traces(str(path), progress=Progress(on_bytes=lambda n_read, n_total: told.append((n_read, n_total)))))
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_processes_without_kernels_are_left_out_and_counted(tmp_path: Path) -> None:
    export = training()
    export.work("MEMCPY", 1, 2, pid=9, correlation=1, bytes=1, copyKind=1, srcKind=1, dstKind=2)
    export.add("OSRT_API", start=1, end=2, globalTid=global_tid(8), nameId=export.string("read"))
    trace = only(export.write(tmp_path / "x.sqlite"))
    assert len(trace.waits) == 0
    assert "1 process without kernels is left out" in [warning.message for warning in trace.warnings]


@pytest.mark.parametrize(
    ("text", "name", "is_operator"),
    [
        ("aten::mul, op_id = 990725", "aten::mul", True),
        ("FlashAttnFunc, seq = 45368, op_id = 990440", "FlashAttnFunc", True),
        ("aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0)]", "aten::mm", True),
        ("aten::add, sizes = [[2], []]", "aten::add", True),
        ("aten::relu", "aten::relu", True),
        ("my_function, seq = 4, op_id = 5", "my_function", True),
        ("record_param_comms, op_id = 9", "record_param_comms", True),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 1",
         "autograd::engine::evaluate_function: MmBackward0", True),
        ("forward, op_id = 5", "forward", False),
        ("forward", "forward", False),
        ("ncclAllReduce", "ncclAllReduce", False),
        ("FSDP::pre_forward (blocks.3), op_id = 990506", "FSDP::pre_forward (blocks.3)", False),
        ("nccl:all_to_all, op_id = 1", "nccl:all_to_all", False),
        ("Optimizer.step#AdamW.step, op_id = 1", "Optimizer.step#AdamW.step", False),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__, op_id = 3",
         "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", False),
        ("{'mod': 'torch', 'op': 'conv2d', 'args': [{'shape': (64, 3)}]}", "torch.conv2d", True),
        ("{'mod': 'Adam', 'op': 'step', 'args': []}", "Adam.step", True),
        ("{'traceMarker': ['a.py:3']}", "{...}", False),
    ],
)  # fmt: skip
def test_operators_and_annotations_are_told_apart_and_lose_their_tails(text: str, name: str, is_operator: bool) -> None:
    labels = Labels()
    (code,) = labels.codes([text.encode()])
    label = labels.all()[code]
    assert (label.name, label.is_operator) == (name, is_operator)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("step 3", SpanKind.STEP),
        ("Step_12", SpanKind.STEP),
        ("train_step", SpanKind.STEP),
        ("training step 3/100", SpanKind.STEP),
        ("Iteration: 4", SpanKind.STEP),
        ("iter-7", SpanKind.STEP),
        ("batch 2", SpanKind.STEP),
        ("ProfilerStep#5", SpanKind.STEP),
        ("optimizer.step", SpanKind.OPTIMIZER),
        ("opt_step", SpanKind.OPTIMIZER),
        ("data_loading", SpanKind.LOADER),
        ("get_batch", SpanKind.LOADER),
        ("fetch data", SpanKind.LOADER),
        ("stepwise attention", SpanKind.OTHER),
        ("batchnorm", SpanKind.OTHER),
        ("validation step 3", SpanKind.OTHER),
        ("forward", SpanKind.OTHER),
    ],
)
def test_ranges_stand_for_what_people_call_them(name: str, kind: SpanKind) -> None:
    assert range_kind_of(name) is kind


def test_steps_come_from_nvtx_ranges(tmp_path: Path) -> None:
    trace = only(training(n_steps=4).write(tmp_path / "x.sqlite"))
    assert trace.step_source == "NVTX"
    assert [(step.number, step.duration_ns) for step in trace.steps] == [
        (number, 1_000_000) for number in (7, 8, 9, 10)
    ]
    assert trace.window_ns == (10_000_000, 14_000_000)


def test_a_layer_that_repeats_is_no_step(tmp_path: Path) -> None:
    export = Export()
    for layer in range(12):
        begin = 10_000_000 + layer * 1_000_000
        export.range(begin - 9_000, begin + 500_000, f"FSDP::pre_forward (blocks.{layer}), op_id = {layer}")
        correlation = 500 + layer
        export.call(begin - 8_000, begin - 7_000, "cudaMemcpyAsync_v3020", correlation=correlation)
        kinds = {"bytes": 8, "copyKind": 1, "srcKind": 1, "dstKind": 2}
        export.work("MEMCPY", begin, begin + 900, correlation=correlation, **kinds)
        for kernel in range(3):
            export.kernel(begin + 1_000 + kernel * 10_000, begin + 9_000 + kernel * 10_000, f"layer_{kernel}")
    path = export.write(tmp_path / "x.sqlite")
    assert only(path).steps == ()
    assert only(export.write(tmp_path / "plain.sqlite", without=["NVTX_EVENTS"])).step_source == "period"


def passes(*names: str, n: int = 6, launches_outside: int = 0) -> Export:
    """Passes of 2 ms with these ranges one after the other, each with ten launches, and more outside of any range."""
    export = Export()
    for turn in range(n):
        at = 10_000_000 + turn * 2_000_000
        places = [(at + place * 400_000, name.format(turn)) for place, name in enumerate(names)]
        for start, name in places:
            export.range(start, start + 300_000, name)
        starts = [start + 1_000 + each * 20_000 for start, _ in places for each in range(10)]
        for start in starts + [at + 1_800_000 + each * 10_000 for each in range(launches_outside)]:
            export.kernel(start + 5_000, start + 15_000)
    return export


@pytest.mark.parametrize(
    "names",
    [("Forward",), ("item {}",), ("Forward pass", "Backward pass", "Optimizer"), ("sample_{}_of_6",)],
    ids=" ".join,
)
def test_ranges_that_hold_the_launches_are_steps_whatever_they_are_called(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    trace = only(passes(*names).write(tmp_path / "x.sqlite"))
    assert trace.step_source == "ranges"
    assert [step.duration_ns for step in trace.steps][:-1] == [2_000_000] * 5
    assert trace.window_ns == (10_000_000, trace.steps[-1].end_ns)


@pytest.mark.parametrize(
    ("names", "outside"),
    [(("warm-up {}",), 0), (("attention",), 10), (("layer_{}",), 0), (("FSDP::pre_forward (blocks.{})",), 0)],
    ids=["warm-up", "a part of the pass", "layers", "a library's"],
)
def test_ranges_that_are_no_steps(names: tuple[str, ...], outside: int, tmp_path: Path) -> None:
    trace = only(passes(*names, launches_outside=outside).write(tmp_path / "x.sqlite"))
    assert trace.step_source != "ranges"


def test_what_lies_inside_a_warm_up_is_no_step(tmp_path: Path) -> None:
    """Three passes under a range that warms up, three under one of their own: `forward` is in all of them."""
    export = passes("forward")
    for turn in range(6):
        at = 10_000_000 + turn * 2_000_000
        export.range(at - 10_000, at + 1_900_000, f"warmup {turn}" if turn < 3 else f"pass {turn - 3}")
    trace = only(export.write(tmp_path / "x.sqlite"))
    assert (trace.step_source, len(trace.steps)) == ("ranges", 3)
    assert trace.window_ns[0] == 10_000_000 + 3 * 2_000_000 - 10_000


def test_open_ranges_end_with_their_thread(tmp_path: Path) -> None:
    export = training()
    export.range(10_500_000, None, "forward", tid=9)
    export.call(11_000_000, 11_500_000, "cudaFree_v3020", tid=9)
    trace = only(export.write(tmp_path / "x.sqlite"))
    (row,) = [row for row, name in enumerate(names(trace, "spans")) if name == "forward"]
    assert int(trace.spans.end_ns[row]) == 11_500_000
    assert "1 NVTX ranges were still open at the end; they end with their thread" in [w.message for w in trace.warnings]


def test_registered_strings_marks_domains_and_thread_names(tmp_path: Path) -> None:
    export = training()
    row = {"globalTid": global_tid(RANK0), "domainId": 1}
    export.add("NVTX_EVENTS", start=1, end=2, eventType=60, textId=export.string("ncclSend"), **row)
    export.add("NVTX_EVENTS", start=1, eventType=34, text="a mark", **row)
    export.add("NVTX_EVENTS", start=1, eventType=75, text="NCCL", **row)
    export.add("NVTX_EVENTS", start=1, eventType=39, text="trainer", **row)
    export.add("NVTX_EVENTS", start=1, end=2, eventType=59, **row)
    export.add("ThreadNames", nameId=export.string("python3"), globalTid=global_tid(RANK0, 6))
    export.call(1, 2, "cudaFree_v3020", tid=6)
    trace = only(export.write(tmp_path / "x.sqlite"))
    assert {"ncclSend", ""} <= set(names(trace, "spans"))
    assert not {"a mark", "NCCL", "trainer"} & set(names(trace, "spans"))
    assert {(thread.tid, thread.name) for thread in trace.threads} == {(str(RANK0), "trainer"), ("6", "python3")}


def test_whole_cuda_graphs_are_rows_and_said_to_be_whole(tmp_path: Path) -> None:
    export = Export()
    export.call(1_000, 2_000, "cudaGraphLaunch_v10000", correlation=5)
    export.work("GRAPH_TRACE", 3_000, 9_000, correlation=5, graphId=3)
    trace = only(export.write(tmp_path / "x.sqlite"))
    assert names(trace, "gpu") == ["CUDA graph 3"]
    assert trace.gpu.launch_row.tolist() == [0]
    assert any("--cuda-graph-trace=node" in warning.message for warning in trace.warnings)


def test_old_exports_without_newer_columns_and_tables(tmp_path: Path) -> None:
    absent = ["CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId", "CUPTI_ACTIVITY_KIND_KERNEL.demangledName", "META_DATA_EXPORT"]
    absent += ["NVTX_EVENTS.textId", "NVTX_EVENTS.endGlobalTid"]
    trace = only(training().write(tmp_path / "x.sqlite", without=absent))
    assert set(names(trace, "gpu")) == {"gemm_0", "gemm_1"}
    assert not trace.gpu.graph_node.any()


def test_what_an_export_says_of_itself(tmp_path: Path) -> None:
    export = training()
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.2.1")
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.99.0")
    for name, value in (
        ("PROCESS_0:COMMAND", "torchrun"),
        ("PROCESS_0:ARGUMENT_10", "last arg"),
        ("PROCESS_0:ARGUMENT_2", "train.py"),
        ("PROCESS_0:ARGUMENT_3", "--api-key=hunter2hunter2"),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'WANDB_API_KEY="swordfish"'),
    ):
        export.add("META_DATA_CAPTURE", name=name, value=value)
    export.add("TARGET_INFO_SYSTEM_ENV", name="HF_TOKEN", value="swordfish")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_779_630_014_975_716_426)
    export.add("DIAGNOSTIC_EVENT", severity=2, text="Not all CUDA events\n might have been collected.")
    export.add("DIAGNOSTIC_EVENT", severity=2, text="No OpenGL events collected.")
    export.add("DIAGNOSTIC_EVENT", severity=1, text="Profiling has started.")
    path = export.write(tmp_path / "x.sqlite")
    trace = only(path)
    assert trace.origin_unix_ns == 1_779_630_014_975_716_426
    assert trace.meta.metadata["profkit_command"] == "torchrun train.py '--api-key=[redacted]' 'last arg'"
    assert [warning.message for warning in trace.warnings] == [
        "export schema 3.99 is newer than 3.28: what is new in it is not read",
        "nsys: Not all CUDA events might have been collected.",
    ]
    shown = json.dumps(describe(trace)) + terminal.render(triage([str(path)]), width=200, color=False, verbose=True)
    assert "swordfish" not in shown
    assert "hunter2" not in shown


def test_a_report_as_for_kineto(tmp_path: Path) -> None:
    export = training(n_steps=5)
    add_training(export, RANK1, n_steps=5, device=1)
    report = triage([str(export.write(tmp_path / "x.sqlite"))])
    document = report_to_dict(report)
    assert [(rank["rank"], rank["format"]) for rank in document["ranks"]] == [(0, "nsys"), (1, "nsys")]
    for rank in document["ranks"]:
        assert rank["window"]["step_source"] == "NVTX"
        (device,) = rank["devices"]
        assert sum(device["budget_ns"].values()) == rank["window"]["duration_ns"] == 5_000_000
        assert device["budget_ns"]["compute"] == 5 * 8 * 109_000
    assert report.verdict.bottleneck.value == "kernel-bound"
    assert report.verdict.next_tool.name == "ncu"
    assert markdown.render(report)


def test_host_time_is_the_hosts_without_operators_too_and_os_waits_say_what_it_was(tmp_path: Path) -> None:
    export = Export()
    for step in range(8):
        begin = 10_000_000 + step * 1_000_000
        export.range(begin, begin + 1_000_000, f"step {step}")
        export.kernel(begin + 700_000, begin + 900_000)
        export.add(
            "OSRT_API", start=begin, end=begin + 600_000, globalTid=global_tid(RANK0), nameId=export.string("poll")
        )
    report = triage([str(export.write(tmp_path / "x.sqlite"))])
    (rank,) = report.ranks
    assert rank.devices[0].budget.idle_unknown == 0
    assert rank.devices[0].budget.idle_host == 8 * 795_000 - 95_000 + 95_000  # all but the launches
    assert report.verdict.bottleneck.value == "overhead-bound"
    (finding,) = [finding for finding in report.findings if finding.id == "host.launch_bound"]
    assert any("75.5 % in poll" in evidence.statement for evidence in finding.evidence)
    assert report.verdict.next_tool.name == "nsys"


def test_a_gzipped_export_is_the_same(tmp_path: Path) -> None:
    path = training().write(tmp_path / "x.sqlite")
    packed = tmp_path / "x.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert names(only(packed), "gpu") == names(only(path), "gpu")
    assert [Path(source).name for source in find_sources([str(tmp_path)])] == ["x.sqlite", "x.sqlite.gz"]


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ((), "no CUDA activity was recorded at all, and no NVTX ranges (no events of any kind)"),
        (("OSRT_API",), "no CUDA activity was recorded at all, and no NVTX ranges (1 OS calls)"),
        (
            ("CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME"),
            "holds no kernels, but 1 memsets, 1 CUDA calls: no kernel was recorded",
        ),
    ],
)
def test_an_export_without_kernels_says_so(tmp_path: Path, tables: tuple[str, ...], says: str) -> None:
    export = Export()
    for table in tables:  # columns that a table does not have are not written
        export.add(table, start=1, end=2, globalTid=global_tid(1), globalPid=global_pid(1), nameId=10, eventClass=0)
    path = export.write(tmp_path / "x.sqlite")
    with pytest.raises(UnsupportedTraceError) as caught:
        only(path)
    assert says in caught.value.message
    assert re.search("nsys .*--trace[= ]cuda", caught.value.hint)


def test_a_report_without_nsys_says_which_command_to_run_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = _report(tmp_path / "my run.nsys-rep")
    with pytest.raises(MissingCapabilityError) as caught:
        only(report)
    assert caught.value.exit_code == 4
    assert "nsys export --type=sqlite" in caught.value.hint
    assert "'" in caught.value.hint  # the name holds a space


def test_a_report_is_exported_where_nsys_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training().write(tmp_path / "made.sqlite")
    report = _report(tmp_path / "run.nsys-rep")
    _stand_in(
        tmp_path, monkeypatch, f'for a in "$@"; do case $a in --output=*) cp {made} "${{a#--output=}}";; esac; done'
    )
    trace = only(report)
    assert trace.meta.source == str(report)
    assert len(trace.gpu) == 32
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "made.sqlite", "run.nsys-rep"]


def test_an_export_that_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(tmp_path, monkeypatch, "echo noise >&2; echo 'file is too new' >&2; exit 1")
    with pytest.raises(TraceFormatError, match="failed with exit code 1: file is too new"):
        only(_report(tmp_path / "run.nsys-rep"))


def _report(path: Path) -> Path:
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1." + bytes(100))
    return path


def _stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a script on PATH as nsys."""
    tool = folder / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_folder_gives_exports_and_leaves_out_reports_that_were_exported(tmp_path: Path) -> None:
    for name in ("a.sqlite", "a.nsys-rep", "b.nsys-rep"):
        (tmp_path / name).touch()
    assert [Path(source).name for source in find_sources([str(tmp_path)])] == ["a.sqlite", "b.nsys-rep"]


def test_a_kineto_trace_loads_no_sqlite() -> None:
    code = "from profkit.api import triage; triage(['traces/data_cpu.pt.trace.json.gz'])"
    assert not {"sqlite3", "subprocess"} & loaded_after(code)


def test_what_runs_inside_whole_graphs_is_not_known_and_the_verdict_says_so(tmp_path: Path) -> None:
    """Collectives and gaps inside a graph would count as compute."""
    from profkit.analyzers.quality import checks, confidence_cap, measure
    from profkit.timeline import Facts

    export = Export()
    for step in range(6):
        begin = 10_000_000 + step * 1_000_000
        export.range(begin, begin + 1_000_000, f"step {step}")
        for part in range(10 if step else 1):
            at, correlation = begin + 20_000 + part * 96_000, 50 + step * 10 + part
            export.call(at - 9_000, at - 2_000, "cudaGraphLaunch_v10000", correlation=correlation)
            export.work("GRAPH_TRACE", at, at + 90_000, correlation=correlation, graphId=3)
    graphs = measure(Facts.of(only(export.write(tmp_path / "x.sqlite"))))
    assert graphs.whole_graph_fraction == 51 * 90_000 / 6_000_000
    (failed,) = [check for check in checks(graphs) if not check.ok]
    assert failed.id == "graphs.whole"
    assert failed.message.startswith("76.5 % of the window is in CUDA graphs without their kernels")
    assert confidence_cap(graphs) == 0.4
    plain = measure(Facts.of(only(training().write(tmp_path / "y.sqlite"))))
    assert plain.whole_graph_fraction is None
    assert "graphs.whole" not in {check.id for check in checks(plain)}


def _graphs(share: int, path: Path):
    """Eight steps of 1 ms, of which so many hundredths are one whole graph, and 200 us an fp32 product beside it."""
    export = Export()
    for step in range(8):
        begin = 10_000_000 + step * 1_000_000
        export.range(begin, begin + 1_000_000, f"step {step}")
        export.call(begin - 9_000, begin - 2_000, "cudaGraphLaunch_v10000", correlation=50 + step)
        end = begin + 1_000 + share * 10_000
        export.work("GRAPH_TRACE", begin + 1_000, end, correlation=50 + step, graphId=3)
        export.kernel(end + 1_000, end + 201_000, "ampere_sgemm_128x64_tn")
    return triage([str(export.write(path))])


def test_a_whole_graph_is_no_kernel_to_profile(tmp_path: Path) -> None:
    """Its number is no name, and formats of the kernels in it are not known: a timeline of its nodes is next."""
    report = _graphs(75, tmp_path / "x.sqlite")
    assert report.verdict.bottleneck.value == "kernel-bound"
    assert report.verdict.next_tool.command == "profkit nsys --also graphs -- python train.py"
    assert not [one.id for one in report.findings if one.id.startswith("precision.")]
    (skipped,) = [one for one in report.ranks[0].skipped if one.analyzer == "precision"]
    assert skipped.reason == "75.0 % of the window is CUDA graphs without their kernels"
    assert "precision" not in {one.analyzer for one in _graphs(19, tmp_path / "y.sqlite").ranks[0].skipped}


@pytest.mark.parametrize("is_own", [True, False])
def test_the_command_that_profkit_nsys_was_given_is_the_next_one(tmp_path: Path, is_own: bool) -> None:
    """The export knows the program alone, not the launcher; a stranger's `capture.json` could say anything."""
    export = training()
    export.add("META_DATA_CAPTURE", name="PROCESS_0:COMMAND", value="python")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ARGUMENT_0", value="ddp.py")
    command = "torchrun --nproc-per-node 2 ddp.py"
    mark = signing.mark_of(signing.COMMAND, command.encode()) if is_own else "0" * 64
    told = {"schema": "profkit.capture/1", "command": command, "command_mark": mark, "reports": ["rank0.nsys-rep"]}
    (tmp_path / "capture.json").write_text(json.dumps({**told, "ranks": []}))
    path = export.write(tmp_path / "rank0.sqlite")
    (rank,) = triage([str(path)]).ranks
    assert rank.recorded_command == (command if is_own else "python ddp.py")
    next_tool = triage([str(path)]).verdict.next_tool
    assert next_tool is not None
    assert next_tool.command.endswith(f"-- {command}" if is_own else "-- python train.py")
