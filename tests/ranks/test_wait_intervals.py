"""Where a rank stood still for a collective, and when its own work had made one ready: in pictures."""

import pytest

from profkit.ranks.reduce.summary import summarise
from profkit.testing import draw, kernel, launch, span, trace_of
from profkit.timeline import Facts

US = 1000
ORIGIN = 10**9
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def blocks_us(next_work: str, host: str) -> list[tuple[int, int]]:
    """The blocks of a collective at 4-8 after which the compute stream and the host go on as drawn."""
    blocks = summarise(
        Facts.of(
            draw(f"""
        steps   | 0...............
        gpu s7  | {next_work}
        gpu s20 | ....NNNN........
        main    | {host}
    """)
        ),
        rank=0,
    ).blocks
    pairs = zip(blocks.start_ns.tolist(), blocks.end_ns.tolist(), strict=True)
    return [((start - ORIGIN) // US, (end - ORIGIN) // US) for start, end in pairs]


@pytest.mark.parametrize(
    ("next_work", "host", "is_block"),
    [
        pytest.param("..KK........KK..", "L.L..L..........", True, id="launched in time"),
        pytest.param("..KK........KK..", "L.L.....L.......", True, id="launched as it ended"),
        pytest.param("..KK........KK..", "L.L......L......", False, id="launched after its end by a free host"),
        pytest.param("..KK........KK..", "L.LSSSSSSL......", True, id="by a host that had waited for it"),
        pytest.param("..KK........KK..", "L.LSSSSS.L......", True, id="by a host that waited until its end"),
        pytest.param("..KK........KK..", "L.LSSSS..L......", False, id="by a host that had stopped waiting before"),
        pytest.param("..KK............", "L.L.............", True, id="nothing follows"),
    ],
)
def test_a_collective_blocks_unless_the_device_waited_for_its_host(next_work: str, host: str, is_block: bool) -> None:
    assert blocks_us(next_work, host) == ([(4, 8)] if is_block else [])


def test_a_collective_is_ready_when_it_was_asked_for_and_what_was_launched_before_has_ended() -> None:
    found = summarise(
        Facts.of(
            draw("""
        steps   | 0.........................
        gpu s7  | ..KKKKKK......KK..........
        gpu s20 | ..........NN........NN..NN
        main    | L...L.......L..L.....L....
    """)
        ),
        rank=0,
    ).collectives
    # the first waits for the kernel that ends at 8; before the second, launched at 15, one ends at 16; the third at 21
    assert ((found.ready_ns - ORIGIN) // US).tolist() == [8, 16, 21]


def test_collectives_of_one_graph_are_ready_when_they_begin() -> None:
    rows = [
        span("ProfilerStep#0", ORIGIN, ORIGIN + 100 * US),
        launch(ORIGIN, ORIGIN + US, correlation=1),
        kernel("k", ORIGIN + 2 * US, ORIGIN + 10 * US, correlation=1),
        launch(ORIGIN + 4 * US, ORIGIN + 5 * US, correlation=2, name="cudaGraphLaunch"),
        kernel(NCCL, ORIGIN + 20 * US, ORIGIN + 25 * US, correlation=2, stream=20),
        kernel(NCCL, ORIGIN + 40 * US, ORIGIN + 45 * US, correlation=2, stream=20),
        launch(ORIGIN + 50 * US, ORIGIN + 51 * US, correlation=3),
        kernel(NCCL, ORIGIN + 60 * US, ORIGIN + 65 * US, correlation=3, stream=20),
    ]
    found = summarise(Facts.of(trace_of(rows)), rank=0).collectives
    assert ((found.ready_ns - ORIGIN) // US).tolist() == [20, 40, 50]
