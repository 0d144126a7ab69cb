"""Every idle nanosecond has one cause: pictures in which the cause can be seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.model.budget import Budget
from profkit.testing import Row, draw, kernel, launch, span, trace_of
from profkit.timeline import Facts
from tests.conftest import examples

US = 1000


def budget(picture: str, **options: int) -> Budget:
    """Give the budget of a picture, in us."""
    parts = Facts.of(draw(picture, **options)).budget
    return Budget(window_ns=parts.window_ns // US, **{name: part // US for name, part in parts.parts.items()})


def test_waiting_for_the_loader_is_data() -> None:
    found = budget("""
        steps  | 0.............................
        gpu s7 | .....KKKKK..............KKKKK.
        main   | OL.........WWWWWWWWWWW..L.....
    """)
    assert (found.compute, found.idle_data) == (10, 11)
    assert found.idle_ns == 20


def test_a_loader_wait_under_a_kernel_costs_nothing() -> None:
    found = budget("""
        steps  | 0...................
        gpu s7 | ..KKKKKKKKKKKKKKKKKK
        main   | OL..WWWWWWWWWWWW....
    """)
    assert found.idle_data == 0


def test_dispatching_is_launch_and_the_rest_is_host() -> None:
    found = budget("""
        steps  | 0.................................
        gpu s7 | ....KKKK................KKKK......
        main   | OL........OOOOOOOOOOO.L...........
        main   | ............................O.....
    """)
    # idle 0-4: operator, call, latency. 8-24: Python to 10, operator 10-21 (no launch inside, but short), Python to 22,
    # call and latency. From 28 on nothing is launched: operator 28-29, Python.
    assert found.idle_host == 2 + 1 + 5
    assert found.idle_launch == 4 + (11 + 2) + 1
    assert found.idle_data == found.idle_sync == 0


def test_a_wait_for_the_device_costs_what_the_host_would_have_been_ahead() -> None:
    found = budget("""
        steps  | 0.............................
        gpu s7 | ..KKKKKKKKKK..........KKKKKKKK
        main   | OLSSSSSSSSSSSS......L.........
        main   | ..............OOOOOO..........
    """)
    # blocked 2-14 while the device works to 12; idle 12-22 until the next kernel, of which 12-20 before its launch
    assert found.idle_sync == 8
    assert found.idle_launch == 2 + 2  # before the first kernel, and the call at 20-21 with its latency
    assert found.idle_host == 0


def test_of_a_wait_counts_what_the_device_worked_meanwhile() -> None:
    found = budget("""
        steps  | 0.................................................................
        gpu s7 | .............KKKKKKKKKKKKKK.............................KKKKKKKKKK
        main   | OLSSSSSSSSSSSSSSSSSSSSSSSSSSS..........................L..........
    """)
    # blocked 2-29 while the device works 13-27: of the idle time 27-56 the call's last 2 us and 14 us after it
    assert found.idle_sync == 2 + 14
    assert found.idle_host == 12
    assert found.idle_launch == 13 + 1


@pytest.mark.parametrize(("start", "launch", "dependency"), [(24, 15, 0), (25, 1, 15)])
def test_beyond_the_platforms_latency_a_launched_kernel_waits_for_something_else(
    start: int, launch: int, dependency: int
) -> None:
    found = budget(f"""
        steps  | 0.............................
        gpu s7 | .KKK{"." * (start - 4)}{"K" * (30 - start)}
        main   | L.OOOOOOOL....................
    """)
    # 0-1 call, 4-9 operator; launched at 9, where a launch takes up to one and a half times the default of 10 us
    assert (found.idle_launch - (1 + 5), found.idle_dependency) == (launch, dependency)


def test_a_call_on_a_drained_device_is_not_the_cause() -> None:
    found = budget("""
        steps  | 0.............................
        gpu s7 | ..KKKK................KKKKKKKK
        main   | OL..............SS..L.........
        main   | ......OOOOOOOO................
    """)
    assert found.idle_sync == 2  # the call's own time, nothing of what follows


def test_queued_work_that_waits_is_a_dependency() -> None:
    found = budget("""
        steps   | 0.......................................
        gpu s7  | ....KKKK........................KKKKKKKK
        main    | OLl.....................................
    """)
    assert found.idle_dependency == 24


def test_launch_latency_is_launch() -> None:
    found = budget("""
        steps  | 0.............................
        gpu s7 | .....KKKK.........KKKK........
        main   | OL...........L................
    """)
    # launch calls 1-2 and 13-14 on a drained device, starts at 5 and 18: all five us are launch
    assert found.idle_launch == 5 + 5
    assert found.idle_dependency == 0


def test_without_operators_the_trace_cannot_tell_dispatch_from_python() -> None:
    found = budget("""
        steps  | 0...................
        gpu s7 | ..KKKK.......KKKK...
    """)
    # the drawn calls at -3 and 8 last 1 us and their latency is launch; 6-8 and the end are not known
    assert found.idle_unknown == 2 + 3
    assert found.idle_launch == 2 + 5
    assert found.idle_host == 0


def test_an_unlinked_row_has_no_cause() -> None:
    start = 10**9
    rows = [
        span("ProfilerStep#0", start, start + 100 * US),
        kernel("k", start + 50 * US, start + 60 * US, correlation=77),
    ]
    found = Facts.of(trace_of(rows)).budget
    assert found.idle_unknown == 90 * US


def test_overlap_copies_and_two_streams() -> None:
    found = budget("""
        steps   | 0...................
        gpu s7  | ..KKKKKK............
        gpu s20 | .....NNNNNN.........
        gpu s21 | .........CCCC.......
    """)
    assert (found.compute, found.comm_exposed, found.copy_exposed) == (6, 3, 2)


@st.composite
def busy_traces(draw_value: st.DrawFn) -> list[Row]:
    """Random device rows, launches, operators, waits and syncs in one step; overlapping, unlinked, out of order."""
    n = draw_value(st.integers(1, 25))
    rows: list[Row] = [span("ProfilerStep#3", 10**9, 10**9 + 500_000)]
    instant = st.integers(10**9 - 50_000, 10**9 + 550_000)
    length = st.integers(0, 60_000)
    for number in range(1, n + 1):
        start = draw_value(instant)
        name = draw_value(st.sampled_from(["k", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pinned -> Device)"]))
        stream = draw_value(st.sampled_from([7, 20]))
        rows.append(kernel(name, start, start + draw_value(length), correlation=number, stream=stream))
        if draw_value(st.booleans()):
            call = draw_value(st.sampled_from(["cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync"]))
            issued = start - draw_value(st.integers(-5_000, 80_000))
            rows.append(launch(issued, issued + draw_value(length), correlation=number, name=call))
    for cat, name in (
        ("cpu_op", "aten::op"),
        ("user_annotation", "enumerate(DataLoader)#x"),
        ("cuda_runtime", "cudaStreamSynchronize"),
    ):
        for _ in range(draw_value(st.integers(0, 4))):
            start = draw_value(instant)
            rows.append(Row(name=name, cat=cat, start_ns=start, end_ns=start + draw_value(length)))
    return draw_value(st.permutations(rows))


@settings(max_examples=examples(60), deadline=None)
@given(busy_traces(), st.integers(-(10**8), 10**15))
def test_parts_sum_to_the_window_whatever_the_order_and_the_clock(rows: list[Row], shift_ns: int) -> None:
    facts = Facts.of(trace_of(rows))
    budget = facts.budget
    assert sum(budget.parts.values()) == budget.window_ns == 500_000
    ordered = sorted(rows, key=lambda row: (row.start_ns, row.end_ns, row.name, str(row.args)))
    shifted = [replace(row, start_ns=row.start_ns + shift_ns, end_ns=row.end_ns + shift_ns) for row in ordered]
    assert Facts.of(trace_of(shifted)).budget == budget


@settings(max_examples=examples(30), deadline=None)
@given(busy_traces())
def test_busy_time_agrees_with_a_mask(rows: list[Row]) -> None:
    facts = Facts.of(trace_of(rows))
    low, _ = facts.trace.window_ns
    mask = np.zeros(500, np.bool_)
    ends = {low + 1000 * n for n in range(501)}
    if any(row.start_ns not in ends or row.end_ns not in ends for row in rows if row.cat == "kernel"):
        rows = [_on_grid(row) for row in rows]
        facts = Facts.of(trace_of(rows))
    for row in rows:
        if row.cat == "kernel":
            first, stop = (row.start_ns - low) // 1000, (row.end_ns - low) // 1000
            mask[max(first, 0) : max(stop, 0)] = True
    assert facts.devices[0].activity.any.total_ns == 1000 * int(mask.sum())


def _on_grid(row: Row) -> Row:
    return replace(row, start_ns=row.start_ns // 1000 * 1000, end_ns=row.end_ns // 1000 * 1000)


@pytest.mark.parametrize("n_launches", [4, 200])
def test_rho_counts_launches_into_a_drained_device(n_launches: int) -> None:
    start = 10**9
    rows = [span("ProfilerStep#0", start, start + n_launches * 20 * US)]
    for n in range(n_launches):
        low = start + (n * 20 + 10) * US
        rows += [
            kernel("k", low, low + 5 * US, correlation=n + 1),
            launch(low - 6 * US, low - 4 * US, correlation=n + 1),
        ]
    queue = Facts.of(trace_of(rows)).devices[0].queue
    assert queue.rho_count == 1.0
    assert queue.floor_median_ns == (6 * US if n_launches >= 5 else None)
