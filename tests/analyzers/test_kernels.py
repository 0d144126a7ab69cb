"""Shares of the work by family, and from when on fusing would be worth it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.kernels import Kernels, judge, measure
from profkit.testing import draw
from profkit.timeline import Facts

US = 1000


@pytest.fixture(scope="module")
def measured() -> Kernels:
    found = measure(
        Facts.of(
            draw("""
        steps  | 0...................
        gpu s7 | .KKKKKkkkkk.........
    """)
        )
    )
    assert isinstance(found, Kernels)
    return found


def test_shares_are_of_the_sum_of_work(measured: Kernels) -> None:
    found = replace(measured, work_ns=10, by_family={"matmul": 2, "attention": 1, "elementwise": 4, "other": 3})
    assert found.matrix_share == 0.3
    assert found.memory_share == 0.4
    assert replace(found, by_family={"other": 10}).matrix_share == 0
    assert replace(found, by_family={"other": 10}).memory_share == 0
    assert replace(found, work_ns=0).matrix_share == 0


@pytest.mark.parametrize(("fusable_us", "fires"), [(50, True), (49, False)])
def test_fusing_is_worth_a_twentieth_of_the_window(measured: Kernels, fusable_us: int, fires: bool) -> None:
    found = replace(
        measured,
        scope=replace(measured.scope, window_ns=1000 * US),
        busy_ns=900 * US,
        work_ns=900 * US,
        by_family={"elementwise": 900 * US},
        fusable_ns=fusable_us * US,
    )
    assert bool(judge(found)) == fires
