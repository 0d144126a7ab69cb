"""How far ahead of the device the host is, counted in pictures."""

from profkit.testing import draw, kernel, launch, span, trace_of
from profkit.timeline import Facts

US = 1000
ORIGIN = 10**9


def test_a_launch_at_the_moment_the_device_ends_is_not_into_a_drained_device() -> None:
    found = Facts.of(
        draw("""
        steps  | 0.................
        gpu s7 | ..KKKK..KKKK..KKKK
        main   | L.....L......L....
    """)
    ).devices[0]
    assert (found.queue.n_linked, found.queue.n_drained) == (3, 2)  # at 0 and 13; at 6 the device has just ended


def test_the_kernels_of_one_graph_count_as_one_launch() -> None:
    rows = [
        span("ProfilerStep#0", ORIGIN, ORIGIN + 100 * US),
        launch(ORIGIN + 10 * US, ORIGIN + 12 * US, correlation=1, name="cudaGraphLaunch"),
        *(kernel("k", ORIGIN + at * US, ORIGIN + (at + 5) * US, correlation=1) for at in (20, 30, 40)),
        launch(ORIGIN + 60 * US, ORIGIN + 62 * US, correlation=2),
        *(kernel("k", ORIGIN + at * US, ORIGIN + (at + 5) * US, correlation=2) for at in (70, 80)),
    ]
    found = Facts.of(trace_of(rows)).devices[0].queue
    assert (found.n_linked, found.n_drained) == (1 + 2, 1 + 1)  # the device still works when the last comes
