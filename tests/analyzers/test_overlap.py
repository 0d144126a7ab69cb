"""Communication alone: what counts in the window, and one collective that holds most of it, at the limits."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.communication.overlap import Overlap, judge, measure
from profkit.model.documents.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.testing import Row, draw, kernel, launch, operator, span, trace_of
from profkit.timeline import Facts
from tests.drawing import finding_in

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def exposed() -> Overlap:
    """Half of one step is communication without compute."""
    found = measure(
        Facts.of(
            draw("""
        steps   | 0...................
        gpu s7  | ..KKKKKKKK..........
        gpu s20 | ..........NNNNNNNNNN
    """)
        )
    )
    assert isinstance(found, Overlap)
    return found


@pytest.mark.parametrize(
    ("n_steps", "longest_ms", "usual_ms", "is_lone"),
    [
        (2, 50, 5, True),  # at both limits: half of the 100 ms, ten times as long
        (3, 50, 5, False),  # a third step would have shown it again
        (2, 49, 4, False),  # less than half
        (2, 59, 6, False),  # less than ten times
        (2, 50, 0, False),  # nothing of its like to set it against
    ],
)
def test_one_long_call_is_doubtful(n_steps: int, longest_ms: int, usual_ms: int, is_lone: bool) -> None:
    found = exposed()
    (finding,) = judge(
        replace(
            found,
            scope=replace(found.scope, n_steps=n_steps, window_ns=200 * MS),
            exposed_ns=100 * MS,
            longest_ns=longest_ms * MS,
            usual_ns=usual_ms * MS,
        )
    )
    assert finding.confidence == (0.35 if is_lone else 0.6)


@pytest.mark.parametrize(("exposed_ms", "fires"), [(10, True), (9, False)])
def test_it_fires_from_a_twentieth_of_the_window(exposed_ms: int, fires: bool) -> None:
    found = exposed()
    changed = replace(found, scope=replace(found.scope, window_ns=200 * MS), exposed_ns=exposed_ms * MS)
    assert bool(judge(changed)) == fires


def test_a_collective_that_the_window_cuts_counts_inside_it_but_is_as_long_as_it_was():
    """The step ends at 1000 us: of the second collective 200 of 700 us lie inside."""
    found = measure(
        Facts.of(
            trace_of(
                [
                    span("ProfilerStep#0", 0, 1000 * US),
                    span("aten::mm", 10 * US, 50 * US, cat="cpu_op"),
                    span("gloo:all_reduce", 100 * US, 400 * US, tid=2000),
                    span("gloo:all_reduce", 800 * US, 1500 * US, tid=2000),
                ]
            )
        )
    )
    assert found.top == (("gloo:all_reduce", 2, 500 * US),)
    assert found.comm_ns == 500 * US
    assert found.longest_ns == 700 * US


def reduced(elements: int, duration_us: int, *, dtype: str = "Float", hip: bool = False):
    """Eight steps of 1 ms: a product of 300 us, then an all-reduce of that size with nothing beside it."""
    rows = []
    for step in range(8):
        at = 10**9 + step * 1000 * US
        rows.append(span(f"ProfilerStep#{step}", at, at + 1000 * US))
        said = {"Collective name": "allreduce", "dtype": dtype, "In msg nelems": elements, "Out msg nelems": elements}
        work = (("gemm_bf16", 10, 310, {}), (NCCL, 320, 320 + duration_us, said | {"Group size": 8}))
        for number, (name, start, end, args) in enumerate(work, 2 * step + 1):
            rows.append(kernel(name, at + start * US, at + end * US, correlation=number, **args))
            call = "hipLaunchKernel" if hip else "cudaLaunchKernel"
            rows.append(launch(at + number % 2 * US, at + number % 2 * US + 500, correlation=number, name=call))
    return trace_of(rows)


@pytest.mark.parametrize(
    ("elements", "duration_us", "waits"),
    [
        (16, 393, True),  # 64 bytes
        (16, 150, False),  # 100 us may be latency
        (125_000, 393, False),  # 500 kB need 500 us at 1 GB/s
        (16, 0, False),
    ],
)
def test_collectives_that_wait_are_not_told_to_send_less(elements: int, duration_us: int, waits: bool) -> None:
    rank, _ = triage_trace(reduced(elements, duration_us))
    for found in (one for one in rank.findings if one.id == "comm.exposed"):
        told = " ".join(item.statement for item in found.evidence)
        assert ("8 of 8 collectives wait rather than transfer: they move 64 B in 393 us" in told) == waits
        assert ("bucket sizes" in found.fix) == (not waits)
        assert ("all ranks together" in found.proof) == waits
        return
    assert not waits


def test_the_library_is_called_as_the_device_calls_it() -> None:
    for hip, name in ((False, "the NCCL rows"), (True, "the RCCL rows")):
        found = finding_in(reduced(16, 393, hip=hip), "comm.exposed")
        assert found.next_tools[0].look_for.startswith(name)


def hidden_at_most(picture: str) -> tuple[int, float | None]:
    """(What a fix saves at most, what overlap alone saves, if said) in the window, us."""
    facts = Facts.of(draw(picture))
    (finding,) = judge(measure(facts))
    said = [item.value / US for item in finding.evidence if item.metric == "comm.hideable_ns"]
    return finding.recoverable_ns * facts.n_steps // US, said[0] * facts.n_steps if said else None


@pytest.mark.parametrize(
    ("saved_us", "by_overlap_us", "picture"),
    [
        (10, 2, """
        steps   | 0...................
        gpu s7  | ....KKKK............
        gpu s20 | ......NNNNNNNNNNNN..
        """),  # two of four us of compute hide some already
        (13, 5, """
        steps   | 0...............1...............
        gpu s7  | KK..............KKKKKKKKKKKK....
        gpu s20 | ....NNNNNNNNNN..............NNN.
        """),
        (8, None, """
        steps   | 0...................
        gpu s7  | KKKKKKKKKK..........
        gpu s20 | ..........NNNNNNNN..
        """),
        (2, None, """
        steps   | 0.......................
        gpu s7  | .KKKKKKKK.......KKKKKKKK
        gpu s20 | .........NNNNNNN........
        main    | L.L...........L.........
        main    | ...OOOOOOOOOOO..........
        """),  # without the collective, the host would launch the second kernel at 14 all the same
    ],
    ids=["the compute that there is", "compute of another step hides none", "all of it", "the host was late"],
)  # fmt: skip
def test_overlap_hides_no_more_than(saved_us: int, by_overlap_us: float | None, picture: str) -> None:
    assert hidden_at_most(picture) == (saved_us, by_overlap_us)


def broadcast(n: int, *, us: int = 55, sent: int = 1_000, reduced: int = 1_000_000):
    """Eight steps of 4 ms: small broadcasts one after another, a product of 1 ms, an all-reduce."""
    rows, number = [], 0
    for step in range(8):
        at = 10**9 + step * 4 * MS
        rows.append(span(f"ProfilerStep#{step}", at, at + 4 * MS))
        work = [(NCCL.replace("AllReduce_Sum_f32", "Broadcast"), 100 + us * k, us, sent) for k in range(n)]
        work += [("gemm_bf16", 2500, 1000, 0), *([(NCCL, 3550, 300, reduced)] if reduced else ())]
        for name, start, length, elements in work:
            number += 1
            told = {"Collective name": "x", "dtype": "Float", "In msg nelems": elements, "Out msg nelems": elements}
            said = told if elements else {}
            rows.append(kernel(name, at + start * US, at + (start + length) * US, correlation=number, **said))
            rows.append(launch(at + number * 100, at + number * 100 + 50, correlation=number))
    return trace_of(rows)


def test_small_broadcasts_beside_all_reduces_are_ddps_buffers() -> None:
    rank, _ = triage_trace(broadcast(30))
    found = {one.id: one for one in rank.findings}
    assert found["comm.buffers"].recoverable_ns == 30 * 55 * US
    assert found["comm.buffers"].evidence[0].statement == (
        "30 broadcasts per step beside all-reduces take 1.65 ms; without them at most 1.65 ms less"
    )
    assert "broadcast_buffers=False" in found["comm.exposed"].fix


@pytest.mark.parametrize("trace", [broadcast(1), broadcast(30, sent=5_000), broadcast(30, reduced=0)])
def test_few_or_large_broadcasts_and_those_alone_are_not(trace) -> None:
    rank, _ = triage_trace(trace)
    assert "comm.buffers" not in {one.id for one in rank.findings}


def ddp_on_cpu(*, wrapped: str = "DistributedDataParallel.forward") -> list[Row]:
    """Eight steps of 1 ms: buffers are joined (100 us), sent (200) and copied back (60), then the model computes."""
    rows = []
    for step in range(8):
        at = 10**9 + step * MS
        on = lambda name, start, end, at=at: operator(name, at + start * US, at + end * US)  # noqa: E731
        rows += [
            span(f"ProfilerStep#{step}", at, at + MS),
            span(wrapped, at + 10 * US, at + 700 * US),
            on("aten::flatten_dense_tensors", 20, 110),
            on("c10d::broadcast_", 112, 118),
            span("gloo:broadcast", at + 115 * US, at + 310 * US, tid=77),
            on("aten::unflatten_dense_tensors", 312, 316),
            on("aten::copy_", 320, 340),
            on("aten::copy_", 342, 365),
            on("aten::linear", 370, 690),
            on("aten::copy_", 692, 695),
            span("gloo:all_reduce", at + 750 * US, at + 800 * US, tid=77),
        ]
    return rows


def test_on_a_cpu_ddps_buffers_cost_what_joins_and_copies_them_as_well() -> None:
    rank, verdict = triage_trace(trace_of(ddp_on_cpu()))
    one = next(one for one in rank.findings if one.id == "comm.buffers")
    assert one.recoverable_ns == 360 * US
    assert one.title == "DDP sends the model's buffers to all ranks before each forward pass"
    assert verdict.findings[0].id == "comm.buffers"
    one = finding_in(ddp_on_cpu(wrapped="forward"), "comm.buffers")
    assert one.title.startswith("small broadcasts")


def stages(name: str, *, again: bool) -> list[Row]:
    """Eight steps of 1 ms on a CPU: compute for 620 us, a part of it a second time, then what is exchanged alone."""
    rows: list[Row] = []
    for step in range(8):
        at = 10**9 + step * MS
        node = "autograd::engine::evaluate_function: MmBackward0"
        rows += [
            span(f"ProfilerStep#{step}", at, at + MS),
            operator("aten::mm", at + 5 * US, at + 200 * US, **{"Sequence number": step, "Fwd thread id": 0}),
            operator(node, at + 210 * US, at + 625 * US, **{"Sequence number": step, "Fwd thread id": 1}),
            operator(
                "aten::mm",
                at + 215 * US,
                at + 415 * US,
                **({"Sequence number": 99 + step, "Fwd thread id": 0} if again else {}),
            ),
            operator("aten::mm", at + 420 * US, at + 620 * US),
            span(name, at + 630 * US, at + 990 * US, tid=2000),
        ]
    return rows


@pytest.mark.parametrize(
    ("name", "again", "first"),
    [
        ("gloo:recv", True, "work.recompute"),
        ("gloo:send", False, "comm.exposed"),
        ("gloo:all_reduce", True, "comm.exposed"),
    ],
)
def test_sends_and_receives_may_wait_for_the_work_of_other_stages(name: str, again: bool, first: str) -> None:
    """What can be spared on the stages comes first, and nobody is told of DDP."""
    rank, verdict = triage_trace(trace_of(stages(name, again=again)))
    is_sent = name != "gloo:all_reduce"
    (found,) = (one for one in rank.findings if one.id == "comm.exposed")
    assert verdict.findings[0].id == first
    assert verdict.bottleneck is (Bottleneck.KERNEL if is_sent else Bottleneck.COMM)
    assert (verdict.recoverable_ns > 0) is (first == "work.recompute" or not is_sent)
    assert ("micro-batches" in found.fix) is is_sent
    assert ("bucket" in found.fix) is not is_sent
    assert ("micro-batches" in found.proof) is is_sent
    assert (found.most_recoverable_ns is None) is is_sent, "no trace of one rank tells waiting from transfer"
