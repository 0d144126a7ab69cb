"""`profkit triage` with several tools' files: which is which, ranks in pairs, what the report says in every format."""

import gzip
import json
import os
from itertools import combinations
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from profkit.cli.triage import command
from profkit.crosscheck.launches import match, paired_steps
from profkit.crosscheck.sources import sources_of
from profkit.crosscheck.trace_profile import portrait_of
from profkit.errors import TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.kind import Part
from profkit.ingest.read import read_traces
from profkit.ingest.sources import source_of
from profkit.pipeline import analyse
from profkit.render.schema import schema
from profkit.testing import to_json
from tests.conftest import IN_FULL, ROOT
from tests.handover.jobs import BLOCK, Job, Launch, Profile, exported, ncu_csv
from tests.ingest.nsys_files import Export

TINY = tuple(Launch(one.name, 5, one.grid, one.block, 7) for one in BLOCK) * 10
OVERHEAD = Job(launches=TINY, host_us=20)
GEMM = Profile("Kernel2<cutlass>(Params)", 50, 90, us=120, grid=(128, 4, 1), block=(256, 1, 1))


def kineto(path: Path, job: Job, *, rank: int | None = None) -> str:
    properties = [{"id": job.device_index, "name": job.device}]
    path.write_bytes(gzip.compress(to_json(job.rows(), metadata={"deviceProperties": properties}, rank=rank)))
    return str(path)


def nsys(path: Path, job: Job) -> str:
    return str(exported(job.trace()).write(path))


def triaged(*paths: str, fmt: str = "json"):
    done = CliRunner().invoke(command, [*paths, "-f", fmt], standalone_mode=False)
    assert done.exception is None, done.exception
    if fmt != "json":
        return done.stdout
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema("triage"))
    return document


def test_files_are_told_by_content_in_any_order(tmp_path):
    trace = kineto(tmp_path / "a.sqlite", Job())  # names that lie
    export = nsys(tmp_path / "b.json", Job())
    profile = str(ncu_csv(tmp_path / "c.json.gz", GEMM))
    given = sources_of([profile, export, trace])
    assert (given.first, given.timelines, given.profiles) == ((trace,), (export,), (profile,))
    assert [source_of(Path(path), str(path)).part for path in (trace, export, profile)] == [*Part]


def test_without_a_torch_trace_nsys_comes_first(tmp_path):
    export, profile = nsys(tmp_path / "b.sqlite", Job()), str(ncu_csv(tmp_path / "c.csv", GEMM))
    given = sources_of([profile, export])
    assert (given.first, given.timelines, given.profiles) == ((export,), (), (profile,))
    assert triaged(export, profile)["handover"]["kernels"]["status"] == "confirmed"


def test_an_ncu_report_alone_is_sent_to_its_command(tmp_path):
    profile = str(ncu_csv(tmp_path / "c.csv", GEMM))
    with pytest.raises(UnsupportedTraceError) as refused:
        sources_of([profile])
    assert "ncu report" in refused.value.message
    assert f"profkit kernels {profile}" in refused.value.hint
    with pytest.raises(UnsupportedTraceError):
        list(read_traces(profile))


def test_a_folder_of_ncu_reports_goes_beside_a_trace(tmp_path):
    (tmp_path / "profkit-ncu").mkdir()
    profile = str(ncu_csv(tmp_path / "profkit-ncu" / "kernels.csv", GEMM))
    trace = kineto(tmp_path / "a.json.gz", Job())
    assert sources_of([str(tmp_path / "profkit-ncu"), trace]).profiles == (profile,)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceNotFoundError):
        sources_of([str(tmp_path / "empty"), trace])


def test_one_trace_alone_has_no_handover(tmp_path):
    assert triaged(kineto(tmp_path / "a.json.gz", Job()))["handover"] is None


def test_a_confirmed_verdict_stays_and_the_next_tool_moves_on(tmp_path):
    trace = kineto(tmp_path / "a.json.gz", OVERHEAD)
    export = nsys(tmp_path / "b.sqlite", OVERHEAD.but(host_us=12))
    alone, both = triaged(trace), triaged(export, trace)
    assert both["handover"]["status"] == "confirmed"
    for name in ("bottleneck", "step_ns", "recoverable_ns", "headline", "confidence"):
        assert both["verdict"][name] == alone["verdict"][name]
    assert both["ranks"] == alone["ranks"]
    assert alone["verdict"]["next_tool"]["command"] == "profkit nsys --also waits -- python train.py"
    assert both["verdict"]["next_tool"]["command"] == "profkit nsys --also waits,python -- python train.py"
    (line,) = both["handover"]["timelines"]
    assert line["other_rank"]["format"] == "nsys"
    assert line["first"]["time_fraction"] == 1.0


def test_an_overturned_verdict_is_replaced_and_the_report_speaks_from_the_second_tool(tmp_path):
    trace = kineto(tmp_path / "a.json.gz", OVERHEAD)
    export = nsys(tmp_path / "b.sqlite", OVERHEAD.but(host_us=1, call_us=1))
    alone, both = triaged(export), triaged(trace, export)
    assert both["handover"]["status"] == "overturned"
    assert both["verdict"]["bottleneck"] == alone["verdict"]["bottleneck"] == "kernel-bound"
    assert both["ranks"] == alone["ranks"]
    assert both["findings"] == alone["findings"]
    assert both["handover"]["sentence"] in both["verdict"]["caveats"]
    (line,) = both["handover"]["timelines"]
    assert (line["first_bottleneck"], line["second_bottleneck"]) == ("overhead-bound", "kernel-bound")
    assert line["other_rank"]["format"] == "kineto"


def test_a_refused_export_leaves_the_report_as_it_was(tmp_path):
    trace, export = kineto(tmp_path / "a.json.gz", Job()), nsys(tmp_path / "b.sqlite", OVERHEAD)
    alone, both = triaged(trace), triaged(trace, export)
    assert both.pop("handover")["status"] == "refused"
    alone.pop("handover")
    assert both == alone


def test_all_three_tools_in_one_report(tmp_path):
    trace, export = kineto(tmp_path / "a.json.gz", Job()), nsys(tmp_path / "b.sqlite", Job(host_us=3))
    document = triaged(str(ncu_csv(tmp_path / "c.csv", GEMM)), trace, export)
    told = document["handover"]
    assert (told["status"], told["timelines"][0]["status"], told["kernels"]["status"]) == ("confirmed",) * 3
    assert told["kernels"]["by_class_ns"] == {"memory-bound": 480_000}
    assert document["verdict"]["next_tool"]["command"].startswith("profkit ncu --kernel vectorized_")


def test_without_steps_profiles_speak_of_the_window(tmp_path):
    job = Job()
    rows = [row for row in job.rows() if not row.name.startswith("ProfilerStep")][:60]  # too few to find a period
    trace = tmp_path / "a.json"
    trace.write_bytes(to_json(rows, metadata={"deviceProperties": [{"id": 0, "name": job.device}]}))
    document = triaged(str(trace), str(ncu_csv(tmp_path / "c.csv", GEMM)))
    assert document["verdict"]["step_ns"] is None
    told = document["handover"]
    assert "memory-bound kernels 77.4 % of the window;" in told["sentence"]
    kernel, ceiling, _ = (item["statement"] for item in told["kernels"]["evidence"])
    assert kernel.endswith("480 us in the window (77.4 % of the window)")
    assert ceiling.endswith("at most 48.0 us in the window (7.7 % of the window)")


@pytest.mark.parametrize("fmt", ["terminal", "markdown"])
def test_people_read_the_sentence_and_its_numbers(tmp_path, fmt):
    trace, export = kineto(tmp_path / "a.json.gz", OVERHEAD), nsys(tmp_path / "b.sqlite", OVERHEAD.but(host_us=12))
    text = " ".join(triaged(trace, export, fmt=fmt).split())
    assert "nsys confirms overhead-bound" in text
    assert "100.0 % of the kernel time is in kernels that both traces have" in text.replace("\\", "")
    if fmt == "terminal":
        assert text.index("second tool") < text.index("where the step goes")
    else:
        assert "| part of the step | first | second | points | allowed | agrees |" in text


def test_verbose_shows_both_budgets_and_the_kernels(tmp_path):
    trace, export = kineto(tmp_path / "a.json.gz", Job()), nsys(tmp_path / "b.sqlite", Job(stretch=1.03))
    profile = str(ncu_csv(tmp_path / "c.csv", GEMM))
    done = CliRunner().invoke(command, [trace, export, profile, "-v", "--no-color"], standalone_mode=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["Kernel2", "matmul", "4", "4", "480", "us", "494", "us", "1.03x"] in lines
    assert any(line[:3] == ["Kernel2", "128x4x1", "memory-bound"] for line in lines)


def test_ranks_pair_with_the_processes_of_one_export_and_the_rest_is_named(tmp_path):
    traces = [kineto(tmp_path / f"rank{rank}.json.gz", Job(), rank=rank) for rank in range(3)]
    export = Export()
    for rank in range(2):
        exported(Job(stretch=1.01 + rank / 100).trace(), pid=200 + rank, export=export)
    told = triaged(*traces, str(export.write(tmp_path / "x.sqlite")))["handover"]
    assert [line["rank"] for line in told["timelines"]] == [0, 1]
    ratios = [
        next(item["value"] for item in line["evidence"] if item["metric"] == "handover.kernel_ratio")
        for line in told["timelines"]
    ]
    assert ratios == pytest.approx([1.01, 1.02], rel=1e-3)
    assert told["unpaired"] == ["no partner for rank 2 of torch.profiler"]


def test_ranks_that_only_file_names_tell_pair_too(tmp_path):
    traces = [kineto(tmp_path / f"rank{rank}.json.gz", OVERHEAD) for rank in range(2)]
    export = Export()
    for rank in range(2):
        exported(OVERHEAD.but(host_us=12 + rank).trace(), pid=200 + rank, export=export)
    document = triaged(*traces, str(export.write(tmp_path / "x.sqlite")))
    told = document["handover"]
    assert [line["rank"] for line in told["timelines"]] == [0, 1]
    assert told["unpaired"] == []
    assert told["status"] == "confirmed"
    assert document["verdict"]["next_tool"]["command"].startswith("profkit nsys --also waits,python")


def test_profiles_that_speak_where_timelines_are_refused_are_not_counted_over_ranks(tmp_path):
    traces = [kineto(tmp_path / f"rank{rank}.json.gz", Job(), rank=rank) for rank in range(2)]
    export = Export()
    for rank in range(2):
        exported(OVERHEAD.trace(), pid=200 + rank, export=export)
    profile = str(ncu_csv(tmp_path / "c.csv", GEMM))
    told = triaged(*traces, str(export.write(tmp_path / "x.sqlite")), profile)["handover"]
    assert [line["status"] for line in told["timelines"]] == ["refused"] * 2
    assert (told["status"], told["sentence"]) == ("confirmed", told["kernels"]["sentence"])


def test_of_traces_that_name_no_rank_each_has_its_own_partner(tmp_path):
    """Two jobs on two devices; the verdict is that of the slower, whose timeline says what the other's does not."""
    slow, fast = OVERHEAD.but(host_us=30), OVERHEAD
    traces = [kineto(tmp_path / "a.json.gz", fast), kineto(tmp_path / "b.json.gz", slow.but(device_index=1))]
    export = Export()
    exported(fast.but(host_us=1, call_us=1).trace(), pid=200, export=export)
    exported(slow.but(host_us=20, device_index=1).trace(), pid=201, export=export)
    alone = triaged(*traces)
    document = triaged(*traces, str(export.write(tmp_path / "x.sqlite")))
    assert [line["status"] for line in document["handover"]["timelines"]] == ["overturned", "confirmed"]
    assert document["handover"]["status"] == "confirmed"
    for name in ("bottleneck", "step_ns", "source"):
        assert document["verdict"][name] == alone["verdict"][name]
    assert [rank["format"] for rank in document["ranks"]] == ["kineto", "kineto"]


def test_standard_input_beside_another_tool_is_refused_before_it_is_read(tmp_path):
    """Traces with a partner are read twice."""
    with pytest.raises(UnsupportedTraceError) as refused:
        sources_of(["-", nsys(tmp_path / "b.sqlite", Job())])
    assert (
        refused.value.message == "standard input can be read only once, and beside another tool's file it is read twice"
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UnsupportedTraceError, match="can be read only once"):
        sources_of([str(pipe), str(ncu_csv(tmp_path / "c.csv", GEMM))])
    assert sources_of(["-"]).first == ("-",)


def test_a_second_tool_that_cannot_be_read_is_a_failure_of_the_report(tmp_path):
    trace, export = kineto(tmp_path / "a.json.gz", Job()), nsys(tmp_path / "b.sqlite", Job())
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(Path(export).read_bytes()[:3000])
    document = triaged(trace, export, str(broken))
    assert [failure["source"] for failure in document["failures"]] == [str(broken)]
    assert document["handover"]["status"] == "confirmed"
    alone, beside_broken = triaged(trace), triaged(trace, str(broken))
    assert [failure["source"] for failure in beside_broken.pop("failures")] == [str(broken)]
    assert alone.pop("failures") == []
    assert beside_broken == alone


def test_a_trace_without_a_device_is_refused(tmp_path, traces):
    told = triaged(str(traces / "baseline_cpu.pt.trace.json.gz"), nsys(tmp_path / "b.sqlite", Job()))["handover"]
    assert told["status"] == "refused"
    assert "torch.profiler's trace has no kernels of a GPU" in told["sentence"]


def test_every_status_is_explained():
    from profkit.findings import KINDS
    from profkit.model.documents.handover import HandoverStatus

    assert {name for name in KINDS if name.startswith("handover.")} == {
        f"handover.{one.value}" for one in HandoverStatus
    }


SHARED = ROOT.parent / "shared" / "data"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no real traces beside this checkout")
class TestRealFiles:
    """Files of different jobs are never merged; a real trace exported as nsys would is."""

    def resnet(self) -> str:
        return str(min((SHARED / "kineto" / "kineto-tb-samples" / "resnet50_num_workers_0").glob("769c3e*")))

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        "export", ["train_before_h100x2", *(["torch_infer_nvtx", "cupy_nvtx", "torch_tiny"] if IN_FULL else [])]
    )
    def test_exports_of_other_jobs_are_refused(self, export):
        (path,) = (SHARED / "nsys").glob(f"*{export}*")
        told = triaged(self.resnet(), str(path))["handover"]
        assert told["status"] == "refused"
        assert [line["parts"] for line in told["timelines"]] == [[]]

    @pytest.mark.sampled
    @pytest.mark.parametrize("name", ["T4_cc7.5.csv", *(["GB200_cc10.0.log", "A100_cc8.0.txt"] if IN_FULL else [])])
    def test_profiles_of_other_kernels_are_refused(self, name):
        (path,) = (SHARED / "ncu").glob(f"*{name}")
        told = triaged(self.resnet(), str(path))["handover"]
        assert told["status"] == "refused"
        assert told["kernels"]["covered_ns"] == 0

    def test_the_limit_lies_between_runs_of_one_job_and_different_jobs(self):
        """Two runs of one training (cudnn chose other kernels in each), two ranks of another, three other jobs."""
        kineto = SHARED / "kineto"
        same = [
            (min((kineto / folder).glob(first)), min((kineto / folder).glob(second)))
            for folder, first, second in (
                ("kineto-tb-samples/resnet50_num_workers_4", "7bd25b*", "234cf2*"),
                ("param-et-replay", "dlrm_kineto/worker1*", "dlrm_kineto/worker3*"),
            )
        ]
        others = [
            kineto / "hta-tests" / "negative_queue_length_values_check" / "rank0.json.gz",
            kineto / "hta-tests" / "trace_filter" / "sampled_rank-0.json.gz",
        ]
        paths = [*(path for pair in same for path in pair), *others]
        runs = {path: portrait_of(analyse(next(iter(read_traces(str(path)))))) for path in paths}
        for first, second in combinations(paths, 2):
            pairs, _ = paired_steps(runs[first].step_numbers, runs[second].step_numbers)
            share = match(runs[first].launches, runs[second].launches, pairs).time_share
            assert share > 0.75 if (first, second) in same else share < 0.35

    def test_a_real_trace_agrees_with_its_own_export(self, tmp_path):
        (trace,) = read_traces(self.resnet())
        told = triaged(self.resnet(), str(exported(trace).write(tmp_path / "x.sqlite")))["handover"]
        (line,) = told["timelines"]
        assert (line["first"]["time_fraction"], line["second"]["time_fraction"]) == (1.0, 1.0)
        assert line["first"]["n_launches"] == line["second"]["n_launches"] > 1000
        assert line["first"]["step_ns"] == line["second"]["step_ns"]
        assert {row["ratio"] for row in line["functions"]} == {1.0}
        compute = next(part for part in line["parts"] if part["part"] == "compute")
        assert compute["difference"] == 0.0
