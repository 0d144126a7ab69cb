"""The verdict: its step, gain and ceiling are one sum, and what nobody looked for is not ruled out."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from profkit.analyzers.code.asked import Operator, is_asked, question
from profkit.findings.communication import BANDWIDTH, MODULE_BUFFERS
from profkit.findings.copies import TO_DEVICE
from profkit.findings.host import SYNC
from profkit.findings.input import STARVED
from profkit.findings.kernels import DOUBLE, UNFUSED
from profkit.findings.kind import TO_TRY, FindingKind
from profkit.findings.patterns import CONVERSIONS, MATH_ATTENTION, NO_GRADIENT, OPTIMIZER_LOOP, SLOW_PATH
from profkit.findings.wasted import DENSE_EXPERTS, REBUILT
from profkit.findings.whole_run import RARE
from profkit.model.budget import IDLE_PARTS, NO_TIME, words
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.model.documents.report import Bottleneck, Verdict
from profkit.model.finding import Evidence, Finding
from profkit.pipeline import analyse, triage_trace
from profkit.testing import draw, kernel, launch, operator, span, trace_of
from profkit.verdict import CHEAPER_WORK, FASTER_PRODUCTS, LEAVE_IT, decide
from tests.analyzers.test_findings import Job, starved
from tests.drawing import MS, finding_in, in_steps, launched

NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_step_gain_and_ceiling_are_one_sum_where_steps_do_not_touch():
    # 1 ms lies between a marker and the next
    loaded = lambda at, _: [  # noqa: E731
        span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 6 * MS),
        span("aten::mm", at + 6 * MS, at + 9 * MS, cat="cpu_op"),
    ]
    rows = in_steps(8, 10 * MS, loaded, marked_ns=9 * MS)
    _, verdict = triage_trace(trace_of(rows))
    assert verdict.bottleneck is Bottleneck.DATA
    assert verdict.step_ns == 79 * MS // 8  # what lies between two markers is part of a step
    assert verdict.recoverable_ns == 6 * MS
    assert verdict.speedup_ceiling == pytest.approx(79 / (79 - 8 * 6), rel=1e-6)


def dispatched(*, has_device: bool):
    """Steps that operators of 20 us and the gaps between them make, with a device or without one."""

    def drawn(start, _):
        for at in range(start, start + 10 * MS, 40_000):
            yield span("aten::add", at, at + 20_000, cat="cpu_op")
            if has_device:
                yield from launched("vectorized_elementwise_kernel", at, at + 6_000, at + 9_000, at + 1)

    return trace_of(in_steps(8, 10 * MS, drawn))


def test_a_proof_is_one_of_the_device_at_hand():
    """On a CPU the work takes twice as long for twice the batch: a step that grows refutes nothing."""
    proofs = [triage_trace(dispatched(has_device=has_device))[1].proof for has_device in (True, False)]
    assert "the step grows by less than 10 %" in proofs[0]
    assert "time per sample falls by about half of the share shown" in proofs[1]


def worked(share: float, n_steps: int = 8):
    """Steps of 10 ms, so much of each in one kernel that is launched in time."""
    name = "ampere_bf16_s16816gemm_bf16"
    work = lambda at, number: launched(name, at, at + 10_000, at + int(share * 10 * MS), number + 1)  # noqa: E731
    return trace_of(in_steps(n_steps, 10 * MS, work))


def test_what_nobody_looked_for_is_not_ruled_out():
    rank, verdict = triage_trace(worked(0.9))
    assert {"input", "overlap", "transfers"} <= {skip.analyzer for skip in rank.skipped}
    unasked = tuple(map(words, ("idle_data", "comm_exposed", "copy_exposed")))
    assert not [line for line in verdict.ruled_out if line.startswith(unasked)]


@pytest.mark.parametrize(("share", "fix"), [(0.9, LEAVE_IT), (0.76, CHEAPER_WORK)])
def test_work_is_left_alone_where_there_is_little_else(share, fix):
    _, verdict = triage_trace(worked(share))
    assert verdict.bottleneck is Bottleneck.KERNEL
    assert verdict.fixes == (fix,)


def multiplied(us: int, *, rows: int = 2400, last: int = 256):
    """Steps of a CPU: a product of 0.47 GFLOP in 8 ms, and one that takes so long."""

    def drawn(at, _):
        kinds = {"Input_type": ["float", "float"]}
        fast = operator("aten::mm", at, at + 8 * MS, Input_Dims=[[2400, 384], [384, 256]], **kinds)
        at += 8 * MS
        slow = operator("aten::mm", at, at + us * 1000, Input_Dims=[[rows, 300], [300, last]], **kinds)
        return [fast, slow]

    return triage_trace(trace_of(in_steps(8, 8 * MS + us * 1000, drawn)))[1]


def test_products_far_behind_others_are_not_left_alone():
    verdict = multiplied(60_000)
    assert not verdict.is_healthy
    assert "aten::mm of 2400x300, 300x256 reaches 6.14 GFLOP/s, another 59.0 GFLOP/s: why?" in verdict.headline
    assert verdict.fixes == (FASTER_PRODUCTS,)


@pytest.mark.parametrize("drawn", [{"us": 30_000}, {"us": 60_000, "last": 4}, {"us": 60_000, "rows": 60, "last": 60}])
def test_products_that_are_small_thin_or_little_slower_are_healthy(drawn):
    verdict = multiplied(**drawn)
    assert verdict.is_healthy
    assert verdict.fixes == (LEAVE_IT,)


def test_without_an_operator_in_the_step_there_is_no_verdict():
    rows = in_steps(8, 10 * MS, lambda at, _: [span("gloo:all_reduce", at, at + 8 * MS, tid=2000)])
    rank, verdict = triage_trace(trace_of(rows))
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert {check.id for check in rank.checks if not check.ok} == {"operators.none"}
    assert verdict.next_tool.purpose == "record the operators as well"


def test_the_next_capture_is_for_the_device_where_its_kernels_are_lost():
    """Of ten launches a step one has its kernel."""

    def drawn(start, number):
        calls = [(start + place * MS, number * 10 + place + 1) for place in range(10)]
        kept = kernel("gemm", start + 5000, start + 9000, correlation=number * 10 + 1)
        return [kept, *(launch(at, at + 2000, correlation=one) for at, one in calls)]

    _, verdict = triage_trace(trace_of(in_steps(8, 10 * MS, drawn)))
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert verdict.next_tool.purpose == "record what runs on the device as well"


def gathers(longest_ns: int, n_steps: int):
    """Collectives alone on the device, one of them of another length."""
    rows = [kernel(NCCL, at * 3 * MS, at * 3 * MS + MS, correlation=at + 1) for at in range(12)]
    rows += [kernel(NCCL, 40 * MS, 40 * MS + longest_ns, correlation=20)]
    rows += [kernel("gemm_bf16", 40 * MS + longest_ns, 60 * MS + longest_ns, correlation=21)]
    calls = [launch(0, 1000, correlation=row.args["correlation"]) for row in rows]
    edges = [number * (60 * MS + longest_ns) // n_steps for number in range(n_steps + 1)]
    marks = [span(f"ProfilerStep#{number}", *edge) for number, edge in enumerate(pairwise(edges))]
    return trace_of([*rows, *calls, *marks])


@pytest.mark.parametrize(
    ("longest_ns", "n_steps", "is_said"), [(60 * MS, 1, True), (60 * MS, 4, False), (MS, 1, False)]
)
def test_one_collective_that_holds_most_is_said(longest_ns, n_steps, is_said):
    found = finding_in(gathers(longest_ns, n_steps), "comm.exposed")
    lone = "one call takes 60.0 ms, the median of similar calls is 1.00 ms"
    assert any(lone in item.statement for item in found.evidence) == is_said
    assert (found.confidence < 0.4) == is_said


@pytest.mark.parametrize(("comm_us", "left"), [(3100, 1.0), (3300, 0.85)])
def test_a_second_cause_nearly_as_large_takes_from_the_confidence(comm_us, left):
    """Steps of 10 ms that wait 4 ms for data; a collective of four fifths of that is nearly as large."""
    job = Job(step_us=10_000)
    for start in job.starts:
        job.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 4000, "user_annotation")
        job.work(NCCL, start + 4010, start + 4010 + comm_us, stream=20)
        job.work("ampere_bf16_s16816gemm_bf16", start + 4010 + comm_us, start + 9990, issued=start + 4020)
    _, verdict = triage_trace(job.trace())
    causes = {finding.id: finding for finding in verdict.findings}
    assert verdict.bottleneck is Bottleneck.DATA
    assert "comm.exposed" in causes
    assert verdict.confidence == pytest.approx(causes["input.starved"].confidence * left)


@pytest.mark.parametrize(("share", "is_said"), [(0.10, True), (0.16, False)])
def test_a_small_cause_says_why_its_confidence_is_lower(share, is_said):
    case = analyse(starved().trace()).case
    window = 10**9
    data, comm = round(share * window), round((0.7 - share) * window)
    budget = replace(NO_TIME, window_ns=window, compute=window - data - comm, comm_exposed=comm, idle_data=data)
    evidence = Evidence(statement="it waits", metric="m", value=1.0, unit="ns")
    found = STARVED.found(
        fraction=share, confidence=0.9, recoverable_ns=round(share * (case.step_ns or 0)), evidence=(evidence,), fix="f"
    )
    verdict = decide(replace(case, budget=budget, findings=(found,)))
    assert verdict.bottleneck is Bottleneck.DATA
    assert any("less certain that it is the bottleneck" in one for one in verdict.caveats) == is_said
    assert verdict.confidence == pytest.approx(0.9 * (0.6 if is_said else 1.0))


@pytest.mark.parametrize(
    ("gap_us", "title"), [(20, "a few gaps hold most"), (2000, "a few long host stalls cause most")]
)
def test_only_a_long_gap_is_called_a_long_stall(gap_us, title):
    job, each_us = Job(n_steps=1, step_us=4 * gap_us), 0.25 if gap_us < 100 else 10
    for k in range(30):
        job.work("gemm_bf16", 3 * gap_us + each_us * k, 3 * gap_us + each_us * k + 0.2)
    assert finding_in(job.trace(), "host.stall").title.startswith(title)


def test_the_advice_for_idle_time_before_copies_is_about_what_the_host_prepares():
    job = Job(n_steps=6, step_us=1000)
    for start in job.starts:
        for at in (start, start + 400):
            job.copy("Memcpy HtoD (Pageable -> Device)", at + 380, at + 390)
            for n in range(8):
                job.work("gemm_bf16", at + 391 + n, at + 391.9 + n, issued=at + 375 + n)
    found = finding_in(job.trace(), "host.launch_bound")
    assert "before each Memcpy HtoD" in found.fix
    assert "prepare the data in a worker" in found.fix
    assert "pinned" not in found.fix  # the copies take next to nothing
    assert "CUDA graph" not in found.fix


def test_the_larger_saving_comes_first_not_the_larger_part_of_the_bar() -> None:
    """26 us a step: 14 of loading, mostly under a kernel, 12 of launching; without one of them, the other remains."""
    n = 6
    steps = "".join(f"{step}" + "." * 25 for step in range(n))
    gpu = "".join(("K" if step else ".") * 9 + ".......k....k...." for step in range(n))
    main = "".join("W" * 14 + ".L....L...." + ("L" if step < n - 1 else ".") for step in range(n))
    ops = ("." * 14 + "O" * 11 + ".") * n
    analysed = analyse(draw(f"steps | {steps}\ngpu s7 | {gpu}\nmain | {main}\nmain | {ops}"))
    first, second = analysed.verdict.findings[:2]
    assert (first.id, second.id) == ("input.starved", "host.launch_bound")
    assert first.fraction < second.fraction
    assert analysed.verdict.bottleneck is Bottleneck.DATA
    assert first.recoverable_ns == pytest.approx(14_000, abs=500)
    assert second.recoverable_ns == pytest.approx(12_000, abs=700)


def asked(*findings: Finding, share: float = 0.6, compute: float = 0.95, matrix: float = 0.3) -> Verdict:
    """The verdict of a case with these findings and a line that has so much of the step."""
    case = analyse(worked(compute)).case
    place = CodePlace(file="train.py", function="forward", line=47, text="out = out + gate * expert(x)")
    line = PlaceShare(place=place, phase=Phase.FORWARD, ns=1, share=share, count=8)
    one = question(case.scope, line, (Operator("aten::addmm", 0.5, 128, "768x128, 128x256"),))
    return decide(replace(case, matrix_share=matrix, findings=findings, busiest=line, question=one))


def of_step(kind: FindingKind, share: float, *places: PlaceShare) -> Finding:
    """A finding that saves that part of steps of 10 ms."""
    seen = Evidence(statement="x", metric="x", value=share, unit="fraction")
    one = kind.found(fraction=share, confidence=0.8, recoverable_ns=int(share * 10 * MS), evidence=(seen,), fix="x")
    return replace(one, places=places)


@pytest.mark.parametrize("first", [(), (of_step(UNFUSED, 0.12),), (of_step(CONVERSIONS, 0.06),)])
def test_a_line_with_most_of_the_work_leads_before_what_explains_little_of_it(first: tuple[Finding, ...]) -> None:
    verdict = asked(*first)
    assert verdict.headline.endswith("60.0 % of the step is at train.py:47 in forward()")
    assert [one.id for one in verdict.findings] == ["work.line", *(one.id for one in first)]
    assert verdict.recoverable_ns == 0, "a question promises nothing"
    assert "aten::addmm 50.0 %, 16 per step, mostly 768x128, 128x256" in verdict.findings[0].evidence[0].statement
    assert verdict.findings[0].fix.startswith("is all that this line computes needed")


@pytest.mark.parametrize(
    ("name", "n_modules", "is_asked_for"),
    [("aten::addmm", 1, True), ("aten::addmm", 4, False), ("aten::cat", 4, True)],
    ids=["operators", "a model", "a model that copies"],
)
def test_a_line_that_calls_a_model_is_asked_nothing_but_what_is_often_wasted(
    name: str, n_modules: int, is_asked_for: bool
) -> None:
    place = CodePlace(file="train.py", function="forward", line=47, text="out = block(x)")
    line = PlaceShare(place=place, phase=Phase.FORWARD, ns=1, share=0.6, count=8)
    assert is_asked(line, (Operator(name, 0.5, 8, ""),), n_modules) is is_asked_for


def test_what_explains_the_line_leads_before_it_and_healthy_work_is_left_alone() -> None:
    there = asked(of_step(UNFUSED, 0.2)).findings[0].places[0]
    for explains in (of_step(UNFUSED, 0.35), of_step(CONVERSIONS, 0.25), of_step(MATH_ATTENTION, 0.16, there)):
        assert asked(explains).findings[0].id == explains.id
    healthy = asked(matrix=0.8)
    assert healthy.is_healthy
    assert not healthy.findings


def test_a_cause_in_the_work_leads_before_a_small_one_beside_it() -> None:
    small = of_step(STARVED, 0.16)
    for share, first in ((0.45, DENSE_EXPERTS.id), (0.2, STARVED.id)):
        verdict = asked(small, of_step(DENSE_EXPERTS, share), compute=0.74)
        assert verdict.findings[0].id == first


@pytest.mark.parametrize(
    ("cause", "compute", "bound"),
    [
        (OPTIMIZER_LOOP, 0.7, Bottleneck.KERNEL),
        (TO_DEVICE, 0.7, Bottleneck.KERNEL),
        (STARVED, 0.7, Bottleneck.DATA),
        (STARVED, 0.76, Bottleneck.KERNEL),
        (OPTIMIZER_LOOP, 0.65, Bottleneck.OVERHEAD),
        (TO_DEVICE, 0.65, Bottleneck.COPY),
    ],
)
def test_two_thirds_of_compute_are_the_bottleneck_beside_what_the_host_loses(
    cause: FindingKind, compute: float, bound: Bottleneck
) -> None:
    verdict = asked(of_step(cause, 0.36), compute=compute, share=0.1)
    assert verdict.bottleneck is bound
    assert verdict.findings[0].id == cause.id


@pytest.mark.parametrize(("comm", "bound"), [(0.0, Bottleneck.SYNC), (0.2, Bottleneck.KERNEL)])
def test_a_gpu_that_works_or_communicates_most_of_the_time_is_not_bound_by_its_host(
    comm: float, bound: Bottleneck
) -> None:
    case = analyse(worked(0.6)).case
    whole_ns, sent_ns = case.budget.window_ns, round(comm * case.budget.window_ns)
    idle_ns = whole_ns - case.budget.compute - sent_ns
    parts = {**dict.fromkeys(IDLE_PARTS, 0), "idle_sync": idle_ns, "comm_exposed": sent_ns}
    budget = replace(case.budget, **parts)
    verdict = decide(replace(case, budget=budget, findings=(of_step(SYNC, 0.2),)))
    assert verdict.bottleneck is bound


@pytest.mark.parametrize(("compute", "share"), [(0.8, 0.3), (0.9, 0.22)], ids=["busy", "two thirds"])
def test_what_rare_steps_add_to_the_run_is_no_late_launch_in_a_window_of_work(compute: float, share: float) -> None:
    case = analyse(worked(compute)).case
    assert decide(replace(case, findings=(of_step(RARE, share),))).bottleneck is Bottleneck.OVERHEAD


@pytest.mark.parametrize(
    ("kind", "saves", "bound"),
    [
        (OPTIMIZER_LOOP, 0.035, Bottleneck.KERNEL),
        (OPTIMIZER_LOOP, 0.09, Bottleneck.OVERHEAD),
        (OPTIMIZER_LOOP, 0.055, Bottleneck.KERNEL),
        (MODULE_BUFFERS, 0.055, Bottleneck.COMM),  # it takes cores from the work beside it as well
    ],
)
def test_a_cause_whose_fix_saves_little_is_named_beside_the_work(
    kind: FindingKind, saves: float, bound: Bottleneck
) -> None:
    small = replace(of_step(kind, 0.16), recoverable_ns=round(saves * 10 * MS))
    verdict = decide(replace(analyse(worked(0.74)).case, is_cpu=True, findings=(small,)))
    assert verdict.bottleneck is bound
    assert verdict.findings[0].id == kind.id


@pytest.mark.parametrize(
    ("double", "beside", "first"),
    [
        (0.1, of_step(UNFUSED, 0.16), DOUBLE.id),
        (0.06, of_step(UNFUSED, 0.7), UNFUSED.id),
        (0.6, of_step(SLOW_PATH, 0.5), DOUBLE.id),
        (0.1, of_step(SLOW_PATH, 0.2), SLOW_PATH.id),
    ],
    ids=["what any program has", "nearly all", "its slow way", "another slow way"],
)
def test_double_precision_leads_before_what_goes_with_it(double: float, beside: Finding, first: str) -> None:
    one = replace(of_step(DOUBLE, double), recoverable_ns=int(double * 6 * MS))
    assert asked(beside, one, share=0.3).findings[0].id == first


@pytest.mark.parametrize(
    ("beside", "first"),
    [
        (of_step(DOUBLE, 0.25), DOUBLE.id),
        (of_step(DOUBLE, 0.1), NO_GRADIENT.id),
        (of_step(UNFUSED, 0.3), NO_GRADIENT.id),
    ],
    ids=["a cause", "a small cause", "what any program has"],
)
def test_a_question_leads_before_no_cause_that_explains_half_of_it(beside: Finding, first: str) -> None:
    one = replace(of_step(NO_GRADIENT, 0.4), confidence=0.5)
    small = replace(beside, recoverable_ns=beside.recoverable_ns // 2)
    assert asked(one, small, share=0.3).findings[0].id == first


@pytest.mark.parametrize(
    ("kind", "share", "is_cpu", "leads"),
    [
        (MATH_ATTENTION, TO_TRY - 0.02, True, False),
        (MATH_ATTENTION, TO_TRY + 0.01, True, True),
        (MATH_ATTENTION, TO_TRY - 0.02, False, True),
        (BANDWIDTH, TO_TRY - 0.02, True, False),
        (REBUILT, TO_TRY - 0.02, True, True),
        (UNFUSED, 0.13, True, False),
        (UNFUSED, 0.16, True, True),
    ],
    ids=["little", "more", "on a GPU", "a cause", "what is counted", "what most have", "much of it"],
)
def test_a_change_that_may_not_apply_leads_no_verdict_where_it_gives_little(
    kind: FindingKind, share: float, is_cpu: bool, leads: bool
) -> None:
    case = replace(analyse(worked(0.9)).case, is_cpu=is_cpu, matrix_share=0.7, findings=(of_step(kind, share),))
    verdict = decide(case)
    assert verdict.is_healthy is not leads
    assert [one.id for one in verdict.findings] == [kind.id] * leads
    assert bool(verdict.recoverable_ns) is leads


def test_a_slight_cause_hides_no_other_one() -> None:
    """Of many ranks the one with the larger share comes first, though it saves little."""
    waits = replace(of_step(BANDWIDTH, 0.14), recoverable_ns=round(0.08 * 10 * MS))
    case = replace(analyse(worked(0.7)).case, is_cpu=True, is_alone=False, findings=(waits, of_step(STARVED, 0.13)))
    assert decide(case).findings[0].id == STARVED.id
