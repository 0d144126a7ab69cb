"""What the peers of the accuracy benchmark say, on drawn traces and on real ones."""

import gzip
import json
import shutil
from contextlib import contextmanager

import pytest

from analyses.accuracy import peers
from analyses.accuracy.tools import self_time, traceml
from analyses.accuracy.tools.traceml_program import marked
from tests.conftest import IN_FULL, ROOT

TRACES = ROOT / "traces"


def row(name, start, dur, cat="cpu_op", thread=1):
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, "pid": 1, "tid": thread}


def step(number, start, dur):
    return row(f"ProfilerStep#{number}", start, dur, "user_annotation")


def ranges(*events):
    """Two steps of 100 us, in which these rows lie."""
    return [step(3, 0, 100), step(4, 100, 100), *events]


def asked(folder, *ranks):
    for rank, events in enumerate(ranks):
        text = json.dumps({"traceEvents": events})
        (folder / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "rank0.places.json.gz").write_bytes(b"the second window, which nobody reads")
    return peers.said(folder)


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("events", "word", "gain"),
    [
        ([row("aten::mm", 0, 90), row("aten::mm", 100, 80)], "kernel-bound", 0.85),
        ([row(LOADER, 0, 80, "user_annotation"), row("aten::mm", 100, 80)], "kernel-bound", 0.4),
        ([row(LOADER, 0, 85, "user_annotation"), row("aten::mm", 100, 80)], "data-bound", 0.425),
        ([row("aten::add", 0, 30)], "overhead-bound", 0.85),
        ([row("backward", 0, 99, "user_annotation"), row("aten::mm", 10, 9)], "overhead-bound", 0.505),
        ([row("gloo:all_reduce", 0, 150, "user_annotation", thread=2), row("aten::mm", 0, 100)], "comm-bound", 0.75),
        (
            [row("void gemm", 0, 40, "kernel"), row("Memcpy HtoD (Pinned -> Device)", 50, 60, "gpu_memcpy")],
            "copy-bound",
            0.3,
        ),
        ([row("void gemm", 0, 40, "kernel"), row("aten::mm", 0, 200)], "kernel-bound", 0.2),
        ([row("ncclDevKernel_AllReduce", 0, 40, "kernel")], "comm-bound", 0.2),
    ],
)
def test_the_row_with_the_most_self_time_is_the_problem(tmp_path, events, word, gain):
    said = asked(tmp_path, ranges(*events))["naive"]
    assert (said.bottleneck, said.gain) == (word, pytest.approx(gain))
    assert said.classes[0] == word


def test_time_outside_of_the_marked_steps_counts_for_nothing(tmp_path):
    said = asked(tmp_path, ranges(row("aten::mm", 200, 5000), row("aten::add", 10, 80), row("aten::add", 110, 80)))[
        "naive"
    ]
    assert said.finding_ids[0] == "aten::add"


def test_time_of_rows_inside_is_taken_off_once():
    rows = [row("outer", 0, 100), row("inner", 10, 50), row("leaf", 20, 10), row("next", 60, 20)]
    assert dict(self_time.self_times(rows)) == {"outer": 30, "inner": 40, "leaf": 10, "next": 20}


def test_ranks_are_added_up(tmp_path):
    said = asked(
        tmp_path, ranges(row("aten::mm", 0, 100), row("aten::mm", 100, 100)), ranges(row("aten::add", 0, 100))
    )["naive"]
    assert (said.finding_ids[0], said.gain) == ("aten::mm", pytest.approx(0.5))


def test_a_tool_that_fails_has_no_answer_and_says_why(tmp_path):
    (tmp_path / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [{"ph": "X", "dur": 1}]}'))
    said = peers.said(tmp_path)["naive"]
    assert said.bottleneck == ""
    assert said.headline == "failed: KeyError: 'ts'"
    (tmp_path / "rank0.pt.trace.json.gz").write_bytes(b"cut")
    assert {one.bottleneck for one in peers.said(tmp_path).values()} == {""}


def test_a_folder_without_traces_has_no_rows(tmp_path):
    assert peers.said(tmp_path)["naive"].headline == "the traces have no rows"


def test_of_a_cpu_trace_hta_is_not_asked(tmp_path):
    said = asked(tmp_path, ranges(row("aten::mm", 0, 10)))["hta"]
    assert (said.bottleneck, said.headline) == ("", peers.NO_DEVICE)


@pytest.mark.parametrize(
    ("parts", "word", "gain"),
    [
        ({"compute": 60.0, "idle": 30.0, "other": 10.0}, "kernel-bound", None),
        ({"compute": 30.0, "idle": 60.0, "other": 10.0}, "overhead-bound", 0.6),
        ({"compute": 10.0, "idle": 30.0, "other": 60.0}, "comm-bound", 0.6),
        ({"compute": 10.0, "idle": 30.0, "other": 60.0, "memory": 9.0}, "copy-bound", 0.6),
    ],
)
def test_the_largest_part_of_htas_breakdown_is_its_verdict(parts, word, gain):
    said = peers.from_hta({"communication": 5.0, "memory": 1.0, **parts})
    assert (said.bottleneck, said.gain) == (word, gain)


@pytest.mark.hta
@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="HTA takes three seconds a trace: make full")
@pytest.mark.filterwarnings("ignore")
def test_hta_answers_nothing_of_a_cpu_trace(tmp_path):
    """Why it is not asked in each cell: all that could lead to a verdict fails or is empty."""
    hta = pytest.importorskip("hta.trace_analysis")
    shutil.copy(TRACES / "data_cpu.pt.trace.json.gz", tmp_path / "rank0.pt.trace.json.gz")
    analysis = hta.TraceAnalysis(trace_dir=str(tmp_path), include_last_profiler_step=True)
    for call in (
        lambda: analysis.get_temporal_breakdown(visualize=False),
        lambda: analysis.get_idle_time_breakdown(ranks=[0], visualize=False),
        analysis.get_potential_stragglers,
    ):
        with pytest.raises((IndexError, ValueError)):
            call()
    assert analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].isna().all()
    assert all(table.empty for table in analysis.get_gpu_kernel_breakdown(visualize=False))


@pytest.mark.hta
@pytest.mark.shared
@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="HTA takes three seconds a trace: make full")
def test_hta_answers_of_a_trace_with_a_device(shared_traces, tmp_path):
    pytest.importorskip("hta.trace_analysis")
    source = shared_traces / "hta-tests/timeline_analysis/sampled_rank-0.json.gz"
    shutil.copy(source, tmp_path / "rank0.pt.trace.json.gz")
    said = peers.said(tmp_path)["hta"]
    assert said.bottleneck in {"kernel-bound", "overhead-bound", "comm-bound", "copy-bound"}, said.headline


def summary(kind, *issues):
    primary = {"kind": kind, "status": kind.replace("_", "-"), "summary": "because."}
    return {"primary_diagnosis": primary, "step_time": {"issues": list(issues)}}


@pytest.mark.parametrize(
    ("kind", "word", "gain", "is_healthy"),
    [
        ("INPUT_BOUND", "data-bound", 0.7, False),
        ("RESIDUAL_HEAVY", "overhead-bound", 0.7, False),
        ("COMPUTE_BOUND", "kernel-bound", None, False),
        ("NO_CLEAR_PERFORMANCE_BOTTLENECK", "kernel-bound", None, True),
        ("INSUFFICIENT_STEP_TIME_DATA", "inconclusive", 0.7, False),
    ],
)
def test_a_diagnosis_of_traceml_is_a_verdict(kind, word, gain, is_healthy):
    said = traceml.from_summary(summary(kind, {"kind": kind, "share_pct": 0.7, "ranks": [0]}))
    assert (said.bottleneck, said.gain, said.is_healthy, said.rank) == (word, gain, is_healthy, None)
    assert said.headline.endswith(": because.")


def test_a_straggler_of_traceml_has_its_rank():
    said = traceml.from_summary(summary("INPUT_STRAGGLER", {"kind": "INPUT_STRAGGLER", "share_pct": 0.4, "ranks": [3]}))
    assert (said.bottleneck, said.gain, said.rank) == ("straggler-bound", 0.4, 3)


def test_an_issue_of_traceml_without_a_share_has_no_ceiling():
    unknown, known = {"kind": "STRAGGLER", "ranks": [1]}, {"kind": "RESIDUAL_HEAVY", "share_pct": 0.2}
    said = traceml.from_summary(summary("STRAGGLER", unknown, known))
    assert (said.gain, said.classes, said.finding_gains) == (None, ("straggler-bound", "overhead-bound"), ())


def test_a_run_of_traceml_that_fails_is_no_answer(tmp_path):
    said = traceml.asked(["--family", "no such family"], 1, tmp_path)
    assert said.bottleneck == ""
    assert said.headline.startswith("failed: ")


def test_a_step_is_marked_from_its_batch_to_the_next():
    told = []

    @contextmanager
    def trace_step(model):
        told.append(f"begin {model}")
        yield
        told.append("end")

    told.extend(f"train on {batch}" for batch in marked(["one", "two"], "model", trace_step))
    assert told == ["begin model", "train on one", "end", "begin model", "train on two", "end"]
