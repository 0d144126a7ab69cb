"""Communication alone: what counts in the window, and one collective that holds most of it, at the limits."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.communication.overlap import Overlap, judge, measure
from profkit.model.documents.report import Bottleneck
from profkit.testing import Row, kernel, launch, span
from tests.drawing import (
    BASE,
    MS,
    NCCL,
    NODE,
    STEP,
    US,
    at,
    facts_of,
    finding_in,
    in_steps,
    launched,
    ranged,
    steps_of,
    triaged,
)


def exposed() -> Overlap:
    """Half of one step is communication without compute."""
    return measure(
        facts_of("""
        steps   | 0...................
        gpu s7  | ..KKKKKKKK..........
        gpu s20 | ..........NNNNNNNNNN
    """)
    )


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
    scope = replace(found.scope, n_steps=n_steps, window_ns=200 * MS)
    told = {"exposed_ns": 100 * MS, "longest_ns": longest_ms * MS, "usual_ns": usual_ms * MS}
    (finding,) = judge(replace(found, scope=scope, **told))
    assert finding.confidence == (0.35 if is_lone else 0.6)


@pytest.mark.parametrize(("exposed_ms", "fires"), [(10, True), (9, False)])
def test_it_fires_from_a_twentieth_of_the_window(exposed_ms: int, fires: bool) -> None:
    found = exposed()
    changed = replace(found, scope=replace(found.scope, window_ns=200 * MS), exposed_ns=exposed_ms * MS)
    assert bool(judge(changed)) == fires


def test_a_collective_that_the_window_cuts_counts_inside_it_but_is_as_long_as_it_was():
    """The step ends at 1000 us: of the second collective 200 of 700 us lie inside."""
    rows = [
        span("ProfilerStep#0", 0, 1000 * US),
        span("aten::mm", 10 * US, 50 * US, cat="cpu_op"),
        span("gloo:all_reduce", 100 * US, 400 * US, tid=2000),
        span("gloo:all_reduce", 800 * US, 1500 * US, tid=2000),
    ]
    found = measure(facts_of(rows))
    assert found.top == (("gloo:all_reduce", 2, 500 * US),)
    assert found.comm_ns == 500 * US
    assert found.longest_ns == 700 * US


def reduced(elements: int, duration_us: int, *, dtype: str = "Float", hip: bool = False):
    """Eight steps of 1 ms: a product of 300 us, then an all-reduce of that size with nothing beside it."""

    def drawn(at: int, step: int) -> list[Row]:
        said = {"Collective name": "allreduce", "dtype": dtype, "In msg nelems": elements, "Out msg nelems": elements}
        work = (("gemm_bf16", 10, 310, {}), (NCCL, 320, 320 + duration_us, said | {"Group size": 8}))
        rows, call = [], "hipLaunchKernel" if hip else "cudaLaunchKernel"
        for number, (name, start, end, args) in enumerate(work, 2 * step + 1):
            rows.append(kernel(name, at + start * US, at + end * US, correlation=number, **args))
            rows.append(launch(at + number % 2 * US, at + number % 2 * US + 500, correlation=number, name=call))
        return rows

    return in_steps(8, STEP, drawn, begin_ns=BASE)


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
    found = finding_in(reduced(elements, duration_us), "comm.exposed")
    assert found or not waits
    if found:
        told = " ".join(item.statement for item in found.evidence)
        assert ("8 of 8 collectives wait rather than transfer: they move 64 B in 393 us" in told) == waits
        assert ("bucket sizes" in found.fix) == (not waits)
        assert ("all ranks together" in found.proof) == waits


def test_the_library_is_called_as_the_device_calls_it() -> None:
    for hip, name in ((False, "the NCCL rows"), (True, "the RCCL rows")):
        found = finding_in(reduced(16, 393, hip=hip), "comm.exposed")
        assert found.next_tools[0].look_for.startswith(name)


def hidden_at_most(picture: str) -> tuple[int, float | None]:
    """(What a fix saves at most, what overlap alone saves, if said) in the window, us."""
    facts = facts_of(picture)
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
    work = [(NCCL.replace("AllReduce_Sum_f32", "Broadcast"), 100 + us * k, us, sent) for k in range(n)]
    work += [("gemm_bf16", 2500, 1000, 0), *([(NCCL, 3550, 300, reduced)] if reduced else ())]

    def drawn(at: int, step: int) -> list[Row]:
        rows = []
        for number, (name, start, length, elements) in enumerate(work, step * len(work) + 1):
            told = {"Collective name": "x", "dtype": "Float", "In msg nelems": elements, "Out msg nelems": elements}
            edges = at + start * US, at + (start + length) * US
            rows += launched(name, at + number * 100, *edges, number, call_ns=50, **(told if elements else {}))
        return rows

    return in_steps(8, 4 * MS, drawn, begin_ns=BASE)


def test_small_broadcasts_beside_all_reduces_are_ddps_buffers() -> None:
    found = triaged(broadcast(30)).found
    assert found["comm.buffers"].recoverable_ns == 30 * 55 * US
    assert found["comm.buffers"].evidence[0].statement == (
        "30 broadcasts per step beside all-reduces take 1.65 ms; without them at most 1.65 ms less"
    )
    assert "broadcast_buffers=False" in found["comm.exposed"].fix


@pytest.mark.parametrize("rows", [broadcast(1), broadcast(30, sent=5_000), broadcast(30, reduced=0)])
def test_few_or_large_broadcasts_and_those_alone_are_not(rows) -> None:
    assert finding_in(rows, "comm.buffers") is None


def ddp_on_cpu(*, wrapped: str = "DistributedDataParallel.forward") -> list[Row]:
    """Eight steps of 1 ms: buffers are joined (100 us), sent (200) and copied back (60), then the model computes."""
    drawn = lambda step: [  # noqa: E731
        ranged(step, wrapped, 10, 700),
        at(step, "aten::flatten_dense_tensors", 20, 110),
        at(step, "c10d::broadcast_", 112, 118),
        ranged(step, "gloo:broadcast", 115, 310, tid=77),
        at(step, "aten::unflatten_dense_tensors", 312, 316),
        at(step, "aten::copy_", 320, 340),
        at(step, "aten::copy_", 342, 365),
        at(step, "aten::linear", 370, 690),
        at(step, "aten::copy_", 692, 695),
        ranged(step, "gloo:all_reduce", 750, 800, tid=77),
    ]
    return steps_of(8, drawn)


def test_on_a_cpu_ddps_buffers_cost_what_joins_and_copies_them_as_well() -> None:
    verdict, found, _ = triaged(ddp_on_cpu())
    one = found["comm.buffers"]
    assert one.recoverable_ns == 360 * US
    assert one.title == "DDP sends the model's buffers to all ranks before each forward pass"
    assert verdict.findings[0].id == "comm.buffers"
    one = finding_in(ddp_on_cpu(wrapped="forward"), "comm.buffers")
    assert one.title.startswith("small broadcasts")


def stages(name: str, *, again: bool) -> list[Row]:
    """Eight steps of 1 ms on a CPU: compute for 620 us, a part of it a second time, then what is exchanged alone."""

    def drawn(step: int) -> list[Row]:
        forward = {"Fwd_thread_id": 0}
        return [
            at(step, "aten::mm", 5, 200, Sequence_number=step, **forward),
            at(step, NODE + "MmBackward0", 210, 625, Sequence_number=step, Fwd_thread_id=1),
            at(step, "aten::mm", 215, 415, **({"Sequence_number": 99 + step, **forward} if again else {})),
            at(step, "aten::mm", 420, 620),
            ranged(step, name, 630, 990, tid=2000),
        ]

    return steps_of(8, drawn)


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
    verdict, every, _ = triaged(stages(name, again=again))
    is_sent = name != "gloo:all_reduce"
    found = every["comm.exposed"]
    assert verdict.findings[0].id == first
    assert verdict.bottleneck is (Bottleneck.KERNEL if is_sent else Bottleneck.COMM)
    assert (verdict.recoverable_ns > 0) is (first == "work.recompute" or not is_sent)
    assert ("micro-batches" in found.fix) is is_sent
    assert ("bucket" in found.fix) is not is_sent
    assert ("micro-batches" in found.proof) is is_sent
    assert (found.most_recoverable_ns is None) is is_sent, "no trace of one rank tells waiting from transfer"
