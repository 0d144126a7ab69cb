"""What a sentence's link leads to adds up to the number that the sentence says, on the rank that it is of."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import profkit
from profkit.model.documents.report import Report
from profkit.model.documents.tracks import Proof
from profkit.model.finding import Evidence, Finding
from profkit.pipeline import analyse
from profkit.render.html.triage import Links
from profkit.testing import Row, kernel, launch, operator, span, trace_of
from profkit.tracks import tracks_of

TRACES = Path(__file__).resolve().parents[2] / "traces"
US = 1000
STEP_US = 1000
N_STEPS = 6


@cache
def report_of(name: str) -> Report:
    return profkit.triage(TRACES / name, with_tracks=True)


def link(report: Report, finding: Finding, item: Evidence) -> tuple[str, int]:
    """The key and the rank of what a sentence leads to."""
    href = Links(report.tracks, report.ranks, 0).to_evidence(finding, item)
    key, _, rank = href.removeprefix("#see=").partition("&rank=")
    return key, int(rank)


def proof_of(report: Report, key: str, rank: int) -> Proof:
    tracks = next(one for one in report.tracks if one.rank == rank)
    return next(proof for proof in tracks.proofs if proof.key == key)


def told(report: Report, metric: str) -> tuple[Finding, Evidence]:
    return next((one, item) for one in report.verdict.findings for item in one.evidence if item.metric == metric)


@pytest.mark.parametrize(
    ("name", "metric", "rank"),
    [
        ("ddp_straggler_ws4", "straggler.lateness_ns", 0),
        ("ddp_straggler_ws4", "budget_ns.idle_data", 0),  # a sentence of the straggler, on what its loader does
        ("ddp_straggler_ws4", "budget_ns.comm_exposed", 2),  # said of all ranks, measured on one
    ],
)
def test_a_sentence_leads_to_the_nanoseconds_that_it_counts(name: str, metric: str, rank: int) -> None:
    report = report_of(name)
    finding, item = told(report, metric)
    key, where = link(report, finding, item)
    assert where == rank
    assert proof_of(report, key, where).total_ns == item.value


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("ddp_comm_ws4", "comm.transfer_exposed_ns"),
        ("ddp_comm_ws4", "collective.exposed_ns"),
        ("token_skew_fixed_count_ws4", "comm.wait_exposed_ns"),
    ],
)
def test_what_communication_costs_lies_inside_what_its_link_shows(name: str, metric: str) -> None:
    report = report_of(name)
    finding, item = told(report, metric)
    shown = proof_of(report, *link(report, finding, item))
    assert "also where compute hides it" in shown.label
    assert item.value <= shown.total_ns < 1.2 * item.value


def test_a_rank_that_has_no_such_intervals_gives_no_link_to_anothers() -> None:
    report = report_of("ddp_straggler_ws4")
    links = Links(report.tracks, report.ranks, 0)
    assert links.to("part:idle_data", 3).endswith("rank=3")
    assert links.to("part:idle_data", 77) == ""
    assert links.to("part:idle_data").endswith("rank=0")


class Drawn:
    """Steps of 1 ms of one thread and one stream; times in us from a step's begin."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.n = 0
        for number in range(N_STEPS):
            begin, end = (10**9 + (number + more) * STEP_US * US for more in (0, 1))
            self.rows.append(span(f"ProfilerStep#{number}", begin, end))

    def each(self, first: int, last: int) -> list[tuple[int, int]]:
        starts = [10**9 + number * STEP_US * US for number in range(N_STEPS)]
        return [(at + first * US, at + last * US) for at in starts]

    def op(self, name: str, first: int, last: int) -> None:
        self.rows += [operator(name, low, high) for low, high in self.each(first, last)]

    def frame(self, name: str, first: int, last: int) -> None:
        self.rows += [span(name, low, high, cat="python_function") for low, high in self.each(first, last)]

    def call(self, name: str, first: int, last: int) -> None:
        self.rows += [launch(low, high, correlation=0, name=name) for low, high in self.each(first, last)]

    def work(self, launched: int, first: int, last: int) -> None:
        for (at, end), (low, high) in zip(self.each(launched, launched + 5), self.each(first, last), strict=True):
            self.n += 1
            self.rows += [launch(at, end, correlation=self.n), kernel("gemm", low, high, correlation=self.n)]

    def proofs(self) -> tuple[Mapping[str, Finding], Mapping[str, Proof]]:
        analysed = analyse(trace_of(self.rows))
        findings = {finding.id: finding for finding in analysed.rank.findings}
        return findings, {proof.key: proof for proof in tracks_of(analysed).proofs}


def test_each_loop_of_an_optimizer_is_shown_without_stacks() -> None:
    job = Drawn()
    job.op("aten::mm", 10, 300)
    job.rows += [span("Optimizer.step#AdamW.step", low, high) for low, high in job.each(300, 900)]
    for place in range(60):
        job.op("aten::addcdiv_", 301 + 9 * place, 305 + 9 * place)
    findings, proofs = job.proofs()
    item = findings["host.optimizer_loop"].measure
    shown = proofs["finding:host.optimizer_loop"]
    assert (shown.n, shown.total_ns) == (N_STEPS, item.value)


def late_job() -> Drawn:
    """`tokenize` takes 700 us in Python before one launch; `after` is a little late too."""
    job = Drawn()
    job.rows.append(span("train.py(99): <module>", 10**9 - 9, 10**9 + N_STEPS * STEP_US * US, cat="python_function"))
    job.rows.append(span("torch/profiler/p.py(1): start", 10**9 - 8, 10**9 - 7, cat="python_function"))
    job.frame("train.py(10): step", 0, 990)
    job.frame("data.py(7): tokenize", 50, 750)
    job.frame("net.py(5): forward", 800, 900)
    for place in range(3):
        job.op("aten::mm", 810 + 20 * place, 820 + 20 * place)
        job.work(812 + 20 * place, 830 + 50 * place, 875 + 50 * place)
    return job


def test_a_line_leads_to_its_own_part_of_the_finding() -> None:
    findings, proofs = late_job().proofs()
    places = findings["host.launch_bound"].places
    assert places[0].place.name == "tokenize() (data.py:7)"
    for number, share in enumerate(places):
        assert proofs[f"finding:host.launch_bound:place:{number}"].total_ns == share.ns


def test_waits_that_make_later_launches_late_are_shown_themselves() -> None:
    """The device is idle long after the call that waited: the idle time right behind the call proves nothing."""
    job = Drawn()
    job.work(5, 10, 400)
    job.op("aten::item", 20, 450)
    job.call("cudaStreamSynchronize", 30, 410)
    for place in range(5):
        job.work(420 + 100 * place, 440 + 100 * place, 480 + 100 * place)
    findings, proofs = job.proofs()
    assert "host.sync" in findings
    shown = proofs["finding:host.sync"]
    assert "the host waits" in shown.label
    assert (shown.n, shown.total_ns) == (N_STEPS, N_STEPS * 380 * US)


def test_operators_that_are_far_from_the_roof_are_shown_by_their_kernels() -> None:
    """The calls of the host are short; the sentence counts what they launch."""
    rows: list[Row] = []
    shape = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2, "Input Strides": [[4096, 1]] * 2}
    for step in range(4):
        at = 10**9 + step * 2 * 10**6
        rows.append(span(f"ProfilerStep#{step}", at, at + 2 * 10**6))
        args = shape | {"Concrete Inputs": ["", ""]}
        rows.append(Row(name="aten::mm", cat="cpu_op", start_ns=at, end_ns=at + 10_000, args=args))
        rows.append(launch(at + 1000, at + 2000, correlation=step + 1))
        rows.append(kernel("gemm_bf16", at + 100_000, at + 1_900_000, correlation=step + 1))
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
    analysed = analyse(trace_of(rows, deviceProperties=[device]))
    shown = next(proof for proof in tracks_of(analysed).proofs if proof.key == "finding:kernel.below_roof")
    assert (shown.n, shown.total_ns) == (4, 4 * 1_800_000)
