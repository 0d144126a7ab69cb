"""Each finding across ranks has a job that fires it; `test_fleet` has the healthy job that must not."""

from pathlib import Path

import pytest

import profkit
from profkit.model.documents.report import Bottleneck
from profkit.testing import operator, span, to_json
from tests.ranks.jobs import edited, job_of, rank_file
from tests.ranks.scripted import MS, found

N_RANKS = 4


def test_ranks_late_in_turn_are_skew_and_nobodys_fault(tmp_path):
    report = profkit.triage([str(job_of(tmp_path, jitter_us=4_000))])
    skew = found(report, "comm.skew")
    assert report.verdict.bottleneck is Bottleneck.COMM
    assert report.verdict.findings[0].id == "comm.skew"
    assert not {"straggler.rank", "comm.bandwidth", "comm.exposed"} & {item.id for item in report.findings}
    exposed = [row.wait_ns for row in report.fleet.rows]
    assert min(exposed) <= skew.recoverable_ns <= 1.5 * max(exposed)
    assert skew.seen("comm.wait_fraction").value > 0.5
    assert "exposed communication of ranks 0-3: the table of ranks splits it" in report.fleet.explained[0]


def test_slow_transfers_are_bandwidth(tmp_path):
    report = profkit.triage([str(job_of(tmp_path, transfer_us=3_000))])
    finding = found(report, "comm.bandwidth")
    assert report.verdict.bottleneck is Bottleneck.COMM
    assert "comm.skew" not in {item.id for item in report.findings}
    assert finding.recoverable_ns == pytest.approx(2 * 3_000_000, rel=0.03)
    # 4,000,000 bf16 elements in 3 ms and up to 30 us, twice 3/4 of them over the bus
    assert finding.seen("comm.bus_bytes_per_s").value == pytest.approx(8e6 / 3.02e-3 * 1.5, rel=0.02)
    assert finding.next_tools[0].command == "all_reduce_perf -b 1M -e 1G -f 2 -g 4"


def with_stacks(document: dict) -> None:
    for event in list(document["traceEvents"]):
        if "DataLoader" in event["name"]:
            frame = {"cat": "python_function", "name": "data.py(20): __getitem__", "args": {}}
            document["traceEvents"].append({**event, **frame})


def test_a_late_rank_names_the_line_of_what_makes_it_late(tmp_path):
    folder = job_of(tmp_path, late_us={2: 6_000})
    for rank in range(N_RANKS):
        edited(rank_file(folder, rank), with_stacks)
    late = found(profkit.triage([str(folder)]), "straggler.rank")
    assert late.rank == 2
    assert late.places[0].place.name == "__getitem__() (data.py:20)"


def saves_a_checkpoint(document: dict) -> None:
    for event in document["traceEvents"]:
        if "DataLoader" in event["name"]:
            event["name"] = "save_checkpoint"


@pytest.mark.parametrize("rank", [0, 2])
def test_work_of_rank_0_alone_is_named(tmp_path, rank):
    folder = job_of(tmp_path, late_us={rank: 6_000})
    edited(rank_file(folder, rank), saves_a_checkpoint)
    report = profkit.triage([str(folder)])
    late = found(report, "straggler.rank")
    assert (late.rank, report.verdict.rank) == (rank, rank)
    assert late.title.endswith("which is held up by its CPU")
    assert any("save_checkpoint takes 6." in item.statement for item in late.evidence)
    if rank == 0:
        alone = found(report, "rank0.work")
        assert "save_checkpoint runs on rank 0 only" in alone.evidence[0].statement
        assert report.verdict.findings[0].id == "rank0.work"
    else:
        assert "rank0.work" not in {item.id for item in report.findings}


def asks_twice(document: dict) -> None:
    """Let backward ask for every second all-reduce, and the script for the others, which are smaller."""
    calls = {event["args"]["correlation"]: event for event in document["traceEvents"] if "ExC" in event["name"]}
    for event in list(document["traceEvents"]):
        if "nccl" not in event["name"]:
            continue
        if event["args"]["Seq"] % 2:
            call = calls[event["args"]["correlation"]]
            name = "autograd::engine::evaluate_function: AccumulateGrad"
            around = {**call, "cat": "cpu_op", "name": name, "ts": call["ts"] - 5, "dur": 20, "args": {}}
            document["traceEvents"].append(around)
        else:
            event["args"]["In msg nelems"] = event["args"]["Out msg nelems"] = 1_000_000


def with_an_extra(folder: Path) -> Path:
    for rank in range(N_RANKS):
        edited(rank_file(folder, rank), asks_twice)
    return folder


def test_an_all_reduce_that_backward_does_not_ask_for_is_named(tmp_path):
    report = profkit.triage([str(with_an_extra(job_of(tmp_path, transfer_us=1_000)))])
    extra = found(report, "collective.extra")
    assert extra.title == "extra all-reduce of 2.00 MB, not part of the backward pass"
    assert extra.evidence[0].statement.startswith("the script itself issues it, 1 per step")
    assert extra.recoverable_ns == pytest.approx(1_000_000, rel=0.05)
    assert report.verdict.bottleneck is Bottleneck.COMM
    assert report.verdict.findings[0].id == "collective.extra", "half of the transfer: it says what to change"


@pytest.mark.parametrize(("transfer_us", "shares"), [(20, [0.0227]), (10, [])])
def test_an_extra_collective_is_worth_a_word_from_a_fiftieth_of_the_window(tmp_path, transfer_us, shares):
    report = profkit.triage([str(with_an_extra(job_of(tmp_path, transfer_us=transfer_us)))])
    extra = [item.fraction for item in report.findings if item.id == "collective.extra"]
    assert extra == pytest.approx(shares, abs=1e-4)


def test_all_that_backward_asks_for_is_no_extra(tmp_path):
    folder = job_of(tmp_path, transfer_us=1_000)
    report = profkit.triage([str(folder)])
    assert "collective.extra" not in {item.id for item in report.findings}


def told_of_tokens(document: dict, times: int = 1) -> None:
    """Count tokens as if each took a microsecond: a rank that is less long in the collectives came later."""
    steps = [event for event in document["traceEvents"] if event["name"].startswith("ProfilerStep")]
    for step in steps:
        begin, end = step["ts"], step["ts"] + step["dur"]
        inside = [event for event in document["traceEvents"] if "nccl" in event["name"] and begin <= event["ts"] < end]
        tokens = times * (12_000 - sum(event["dur"] for event in inside))
        counter = {"ph": "C", "cat": "profkit", "name": "profkit.tokens", "pid": 1, "tid": 0, "ts": begin + 10}
        document["traceEvents"].append({**counter, "args": {"tokens": tokens}})


def test_skew_that_follows_the_tokens_is_told_by_them(tmp_path):
    folder = job_of(tmp_path, jitter_us=4_000)
    for rank in range(N_RANKS):
        edited(rank_file(folder, rank), told_of_tokens)
    report = profkit.triage([str(folder)])
    skew = found(report, "token.skew")
    assert skew.seen("tokens.correlation").value > 0.9
    assert report.fleet.explained[0].startswith("the rank that waits longest waits ")
    assert "it follows token counts" in report.fleet.explained[0]


def test_one_rank_may_have_three_times_the_mean_and_more(tmp_path):
    """What one rank has above the mean is no share: of four ranks it may be 300 %."""
    folder = job_of(tmp_path, jitter_us=4_000)
    for rank in range(N_RANKS):
        edited(rank_file(folder, rank), lambda document, rank=rank: told_of_tokens(document, 1 if rank else 10**6))
    report = profkit.triage([str(folder)])
    said = [item for one in report.findings for item in one.evidence if item.metric == "tokens.skew_fraction"]
    assert [(item.unit, item.value > 1) for item in said] == [("ratio", True)]


def test_without_counts_tokens_are_not_analysed_and_the_way_to_them_is_said(tmp_path):
    report = profkit.triage([str(job_of(tmp_path))])
    (skipped,) = [skip for skip in report.skipped if skip.analyzer == "tokens"]
    assert "profkit.capture.step(tokens=" in skipped.how_to_get


def test_an_all_reduce_of_the_script_s_own_has_the_line_that_asks_for_it(tmp_path):
    """On two CPUs: 8 of 20 ms are one for which `count` asks, 3 are a bucket's."""
    for rank in range(2):
        rows = []
        for step in range(30):
            at = 10**9 + step * 20 * MS
            rows += [
                span(f"ProfilerStep#{step}", at, at + 20 * MS),
                span("train.py(9): main", at, at + 20 * MS - 1000, cat="python_function"),
                span("DistributedDataParallel.forward", at + MS // 10, at + 3 * MS),
                operator("aten::mm", at + MS // 5, at + 3 * MS - 1000),
                operator(
                    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at + 4 * MS, at + 5 * MS
                ),
                operator("aten::mm", at + 4 * MS + 100, at + 5 * MS - 300_000),
                operator("c10d::allreduce_", at + 5 * MS - 200_000, at + 5 * MS - 100_000),
                span("gloo:all_reduce", at + 5 * MS, at + 8 * MS, tid=99),
                span("train.py(84): count", at + 9 * MS, at + 18 * MS, cat="python_function"),
                operator("c10d::allreduce_", at + 9 * MS + 100_000, at + 9 * MS + 200_000),
                span("gloo:all_reduce", at + 9 * MS + 200_000, at + 17 * MS, tid=99),
                operator("aten::add_", at + 18 * MS + 1000, at + 19 * MS),
            ]
        told = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(to_json(rows, metadata=told))
    report = profkit.triage(tmp_path)
    extra = found(report, "collective.extra")
    assert extra.places[0].place.name == "count() (train.py:84)"
    assert extra.title == "extra all-reduce at count() (train.py:84), not part of the backward pass"
    assert report.verdict.findings[0].id == "collective.extra", "of the same time it names what to change"
