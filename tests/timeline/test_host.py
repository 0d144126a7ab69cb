"""What the host was doing: whose waits for input are the step's own."""

import numpy as np
from msgspec.structs import replace

from profkit.model.intervals import Intervals
from profkit.model.trace import Spans
from profkit.testing import draw, kernel, launch, span, trace_of
from profkit.timeline.host import host_states, launching_threads, os_waits, parent_rows

US = 1000
ORIGIN = 10**9


def in_us(found: Intervals) -> list[tuple[int, int]]:
    """The intervals in us since the origin."""
    pairs = zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    return [((start - ORIGIN) // US, (end - ORIGIN) // US) for start, end in pairs]


def test_a_thread_that_fetches_ahead_is_left_out_where_the_step_waits_itself() -> None:
    found = host_states(
        draw("""
        steps  | 0...................
        gpu s7 | .....KKKKK.....KKKKK
        main   | ..L...WWW....L......
        ahead  | WWWWWWWWWWWWWWWWWWWW
    """)
    )
    assert in_us(found.loader) == [(6, 9)]
    assert in_us(found.input.elsewhere) == []


def test_a_wait_on_another_thread_is_elsewhere_where_the_step_waits_nowhere() -> None:
    found = host_states(
        draw("""
        steps  | 0...................
        gpu s7 | .....KKKKK.....KKKKK
        main   | ..L..........L......
        ahead  | ......WWWWWW........
    """)
    )
    assert in_us(found.loader) == []
    assert in_us(found.input.elsewhere) == [(6, 12)]


def test_the_thread_that_marks_the_steps_waits_for_the_step_though_another_launches() -> None:
    rows = [
        span("ProfilerStep#0", ORIGIN, ORIGIN + 40 * US, tid=1),
        span("enumerate(DataLoader)#x.__next__", ORIGIN + 5 * US, ORIGIN + 15 * US, tid=1),
        launch(ORIGIN + 16 * US, ORIGIN + 17 * US, correlation=1),
        kernel("k", ORIGIN + 20 * US, ORIGIN + 40 * US, correlation=1),
    ]
    found = host_states(trace_of(rows))
    assert in_us(found.loader) == [(5, 15)]
    assert in_us(found.input.elsewhere) == []


def test_waits_in_the_operating_system_are_summed_by_call_the_longest_first() -> None:
    trace = draw("""
        steps  | 0...................
        gpu s7 | .....KKKKK.....KKKKK
        main   | ..L..........L......
        other  | .........O..........
    """)
    (thread,) = launching_threads(trace)
    waits = Spans(
        start_ns=ORIGIN + US * np.array([0, 3, 5, 9, 10]),
        end_ns=ORIGIN + US * np.array([2, 4, 8, 11, 19]),
        name=np.array([0, 1, 1, 0, 1], np.int32),
        kind=np.zeros(5, np.int8),
        thread=np.array([thread, thread, thread, thread, thread + 1], np.int32),
    )
    during = Intervals.pairs([(ORIGIN, ORIGIN + 10 * US)])
    trace = replace(trace, waits=waits, strings=("poll", "futex", *trace.strings))
    assert os_waits(trace, (thread,), during) == (("futex", 4 * US), ("poll", 3 * US))
    assert os_waits(trace, (thread + 1,), during) == ()


def test_a_thread_that_waits_while_another_one_launches_holds_nobody_up() -> None:
    """The main thread waits for the backward pass, whose own thread launches at 5 us; later it waits alone."""
    calls = [launch(each, each + US, correlation=n + 1) for n, each in enumerate([0, 5 * US])]
    rows = [replace(call, tid=n + 1) for n, call in enumerate(calls)]
    rows += [kernel("gemm", (2 + n) * US, (3 + n) * US, correlation=n + 1) for n in range(2)]
    waits = Spans(
        start_ns=US * np.array([1, 8]),
        end_ns=US * np.array([7, 10]),
        name=np.zeros(2, np.int32),
        kind=np.zeros(2, np.int8),
        thread=np.array([0, 0], np.int32),
    )
    trace = trace_of(rows)
    first, second = launching_threads(trace)
    trace = replace(trace, waits=replace(waits, thread=np.full(2, first, np.int32)), strings=("wait", *trace.strings))
    during = Intervals.pairs([(0, 20 * US)])
    assert os_waits(trace, (first, second), during) == (("wait", 2 * US),)
    assert os_waits(trace, (first,), during) == (("wait", 8 * US),)


def test_the_operator_around_each_is_the_latest_on_its_thread_that_holds_it() -> None:
    for n_threads in (1, 3, 50):  # from 33 on threads are laid out on one line
        rows = [
            span(
                f"aten::op{depth}", 10_000 * at + 100 * depth, 10_000 * at + 9_000 - 100 * depth, cat="cpu_op", tid=tid
            )
            for tid in range(1000, 1000 + n_threads)
            for at in range(4)
            for depth in range(3)
        ]
        ops = trace_of(rows).ops
        parent = parent_rows(ops)
        for row in range(len(ops)):
            around = [
                other
                for other in range(len(ops))
                if ops.thread[other] == ops.thread[row]
                and ops.start_ns[other] < ops.start_ns[row]
                and ops.end_ns[other] > ops.end_ns[row]
            ]
            assert parent[row] == max(around, key=lambda other: ops.start_ns[other], default=-1)
