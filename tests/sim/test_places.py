"""Idle time by what ends it, beside a plain sweep over the rows of simulated jobs."""

from collections import Counter

import pytest

from profkit.testing import Row, trace_of
from profkit.timeline import Facts
from tests.sim.job import drawn
from tests.sim.run import ran

_DEVICE = ("kernel", "gpu_memcpy")


def swept(rows: list[Row], low: int, high: int, least: int) -> Counter[bool]:
    """Idle time in gaps above `least` ns, by whether a kernel written by hand ends it."""
    spent: Counter[bool] = Counter()
    done = low
    for row in sorted((row for row in rows if row.cat in _DEVICE), key=lambda row: row.start_ns):
        gap = min(row.start_ns, high) - done
        if gap > least:
            spent[row.name == "written_by_hand"] += gap  # of the last gap the operation that ends it comes later
        done = max(done, row.end_ns)
        if done >= high:
            return spent
    if high - done > least:
        spent[False] += high - done
    return spent


@pytest.mark.parametrize("seed", [seed for seed in range(60) if "launcher" in drawn(seed).kinds][:8])
def test_the_idle_time_before_a_slow_launcher_is_found(seed: int) -> None:
    rows = ran(drawn(seed)).rows
    facts = Facts.of(trace_of(rows))
    main = facts.main_device
    assert main is not None
    truth = swept(rows, *facts.trace.window_ns, main.queue.turnaround_ns)
    places = main.places
    assert sum(place.idle_ns for place in places.places if place.before == "written_by_hand") == truth[True]
    assert sum(places.total_ns.values()) == truth.total()
    is_most = 2 * truth[True] > truth.total()
    first = places.first(tuple(places.total_ns))
    assert not is_most or (first is not None and first[0].before == "written_by_hand")
