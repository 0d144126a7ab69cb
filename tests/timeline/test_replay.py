"""What the window would last without some host time: pictures in which that can be counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from profkit.model.intervals import Intervals
from profkit.testing import Row, draw, row_lists, trace_of
from profkit.timeline import Facts
from profkit.timeline.replay.gains import Replay, replay

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


def test_a_wait_for_work_that_is_all_there_is_gains_nothing() -> None:
    assert (
        gains_us("""
        steps  | 0...................
        gpu s7 | .KKKKKKKKKKKKKKKKKKK
        main   | LSSSSSSSSSSSSSSSSSSS
    """)["sync"]
        == 0.0
    )


def test_a_call_on_an_idle_device_gains_its_own_time() -> None:
    assert (
        gains_us("""
        steps  | 0...................
        gpu s7 | .KKK..........KKKKKK
        main   | L........SSS.L......
    """)["sync"]
        == 3.0
    )


def test_a_data_wait_is_charged_for_the_gaps_that_follow() -> None:
    # the wait is hidden under the first kernel, but the host comes out of it with nothing queued: without it, it
    # launches at 7 and 9 what it launched at 17 and 19, and all is done at 19.5, with the least gap of 0.5; not at 25
    assert (
        gains_us("""
        steps  | 0........................
        gpu s7 | .KKKKKKKKKKKKKK...kkKK...
        main   | LWWWWWWWWWW......L.L.....
    """)["data"]
        == 5.5
    )


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


@settings(max_examples=80, deadline=None)
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
