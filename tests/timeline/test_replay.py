"""What the window would last without some host time: pictures in which that can be counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from profkit.model.intervals import Intervals
from profkit.pipeline import triage_trace
from profkit.testing import Row, draw, kernel, launch, row_lists, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.replay import clocks
from profkit.timeline.replay.gains import Replay, replay
from tests.conftest import examples
from tests.sim.job import drawn
from tests.sim.run import ran

US = 1000


def replayed(picture: str) -> tuple[Facts, Replay]:
    facts = Facts.of(draw(picture))
    main = facts.main_device
    assert main is not None
    found = replay(facts.trace, main.activity, main.queue)
    assert found is not None
    return facts, found


def gains_us(picture: str) -> dict[str, float]:
    main = Facts.of(draw(picture)).main_device
    assert main is not None
    found = main.gains
    each = {"sync": found.sync_ns, "allocator": found.allocator_ns, "data": found.data_ns, "host": found.host_ns}
    return {name: gain / US for name, gain in each.items()}


@pytest.mark.parametrize(
    ("cause", "gain_us", "picture"),
    [
        ("sync", 0.0, """
        steps  | 0...................
        gpu s7 | .KKKKKKKKKKKKKKKKKKK
        main   | LSSSSSSSSSSSSSSSSSSS
        """),
        ("sync", 3.0, """
        steps  | 0...................
        gpu s7 | .KKK..........KKKKKK
        main   | L........SSS.L......
        """),
        # the wait is hidden under the first kernel, but the host comes out of it with nothing queued: without it, it
        # launches at 7 and 9 what it launched at 17 and 19, and all is done at 19.5, with the least gap of 0.5; not 25
        ("data", 5.5, """
        steps  | 0........................
        gpu s7 | .KKKKKKKKKKKKKK...kkKK...
        main   | LWWWWWWWWWW......L.L.....
        """),
    ],
    ids=["a wait for all the work there is", "a call on an idle device", "a wait for data that later gaps follow"],
)  # fmt: skip
def test_a_cause_gains_what_would_go_without_it(cause: str, gain_us: float, picture: str) -> None:
    assert gains_us(picture)[cause] == gain_us


def test_the_allocator_is_apart_from_calls_that_wait() -> None:
    found = gains_us("""
        steps  | 0...................
        gpu s7 | .KKK..........KKKKKK
        main   | L.....AAAAAA.L......
    """)
    assert (found["sync"], found["allocator"]) == (0.0, 6.0)


def test_a_host_without_work_of_its_own_still_waits_for_data() -> None:
    found = gains_us("""
        steps  | 0.............................
        gpu s7 | .KKK...................KKKKKKK
        main   | L...WWWWWWWWWW........L.......
    """)
    # 10 us of waiting stay; the other 12 go, but for what the first kernel and the least gap need
    assert found["host"] == 12.0
    assert found["data"] == 10.0


def test_a_host_that_takes_no_time_at_all_still_waits_for_data() -> None:
    facts = Facts.of(
        draw("""
        steps  | 0.............................
        gpu s7 | .KKK...................KKKKKKK
        main   | L...WWWWWW..SSSSSS....L.......
    """)
    )
    main = facts.main_device
    assert main is not None
    assert (main.gains.host_ns, main.gains.sync_ns) == (10 * US, 6 * US)
    assert main.gains.all_host_ns == 16 * US


def with_early_rows(*meanwhile: Row, is_early: bool = True) -> list[Row]:
    """Steps of 20 ms with these rows at the start, then 20 kernels; one in four starts before its launch."""
    rows: list[Row] = []
    for step in range(8):
        begin = step * 20_000 * US
        rows.append(span(f"ProfilerStep#{step}", begin, begin + 20_000 * US))
        rows += [replace(row, start_ns=row.start_ns + begin, end_ns=row.end_ns + begin) for row in meanwhile]
        for number in range(20):
            at = begin + (10_000 + number * 500) * US
            rows.append(launch(at, at + 4 * US, correlation=20 * step + number + 1))
            start = at - 2 * US if is_early and number % 4 == 0 else at + 6 * US
            rows.append(kernel("gemm", start, at + 480 * US, correlation=20 * step + number + 1))
    return rows


@pytest.mark.parametrize(
    ("row", "bottleneck"),
    [
        (span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 10_000 * US), "data-bound"),
        (span("aten::mm", 0, 10_000 * US, cat="cpu_op"), "overhead-bound"),
        (launch(0, 9_900 * US, correlation=10**6, name="cudaStreamSynchronize"), "sync-bound"),
    ],
)
def test_where_the_clocks_disagree_a_cause_gains_the_idle_time_that_it_has_at_once(row: Row, bottleneck: str) -> None:
    apart, agreed = (triage_trace(trace_of(with_early_rows(row, is_early=early)))[1] for early in (True, False))
    assert any("before their launch" in said for said in apart.caveats)
    assert apart.bottleneck.value == agreed.bottleneck.value == bottleneck
    assert apart.recoverable_ns == pytest.approx(agreed.recoverable_ns, rel=0.05)
    assert "replay" not in " ".join(one.statement for one in apart.findings[0].evidence)


def test_a_helper_that_launches_meanwhile_does_not_free_the_host() -> None:
    launches = "L." * 12
    _, found = replayed(f"""
        steps  | 0.............................................
        gpu s7 | .{"K." * 12}....kk.................KK..........
        main   | {launches}.SSSSSSSSSSS.........L..............
        copier | .............................L................
    """)
    assert found.sync.total_ns == 11 * US


def test_another_thread_that_drives_shows_that_the_host_is_free() -> None:
    _, found = replayed("""
        steps  | 0...................
        gpu s7 | .KKK......kk........
        main   | L..SSSSSSSSSSSSS....
        other  | .........L..........
    """)
    assert not found.sync


@settings(max_examples=examples(80), deadline=None)
@given(row_lists())
def test_taking_nothing_out_changes_nothing_and_no_gain_is_above_the_idle_time(rows: list[Row]) -> None:
    facts = Facts.of(trace_of(rows))
    main = facts.main_device
    found = replay(facts.trace, main.activity, main.queue) if main is not None else None
    if main is None or found is None:
        return
    low, high = facts.trace.window_ns
    assert found.gain_ns(Intervals.of(np.array([high + 10**9]), np.array([high + 2 * 10**9]))) == 0
    assert 0 <= found.gain_ns(Intervals.of(np.array([low - 10**9]), np.array([high + 10**9]))) <= main.budget.idle_ns


def test_calls_of_one_thread_that_overlap_give_nothing_that_nobody_took_out() -> None:
    at = 10**9
    rows = [span("ProfilerStep#0", at, at + 300), launch(at, at + 2, correlation=99, name="cudaStreamSynchronize")]
    rows += [launch(at, at + 3, correlation=number) for number in range(1, 9)]
    rows += [kernel("compute_kernel", at, at, stream=0, correlation=number) for number in range(1, 7)]
    rows.append(kernel("compute_kernel", at, at + 1, device=1, stream=7, correlation=7))
    rows.append(kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at, at + 2, device=1, stream=0, correlation=8))
    facts = Facts.of(trace_of(rows))
    assert facts.main_device is not None
    found = replay(facts.trace, facts.main_device.activity, facts.main_device.queue)
    assert found is not None
    assert found.gain_ns(Intervals.of(np.array([2 * at]), np.array([3 * at]))) == 0


@pytest.mark.parametrize("seed", [3, 8])
def test_pieces_of_any_size_give_the_same_gains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ran(drawn(seed)).rows
    found = []
    for at_once in (1, 7, 2**14):
        monkeypatch.setattr(clocks, "_AT_ONCE", at_once)
        main = Facts.of(trace_of(rows)).main_device
        assert main is not None
        found.append(main.gains)
    assert found[0] == found[1] == found[2]
    assert found[0].all_host_ns > 0
