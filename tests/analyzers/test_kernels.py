"""Shares of the work by family, and from when on fusing would be worth it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.kernels import Kernels, judge, measure, present
from profkit.testing import draw, kernel, launch, span, trace_of
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


def unmarked(names_of_kernels: str, operator: str):
    """Kernels of one name without steps, one of them far longer, and the operator around each launch."""
    rows = []
    for number, length in enumerate((2, 3, 900, 2), 1):
        at = 10**9 + 1_000_000 * number
        rows += [launch(at, at + 2000, correlation=number), span(operator, at - 1000, at + 3000, cat="cpu_op")]
        rows.append(kernel(names_of_kernels, at + 5000, at + 5000 + length * 1000, correlation=number))
    return Facts.of(trace_of(rows))


def test_a_name_that_says_nothing_is_shown_with_the_operator_that_launches_it():
    found = measure(unmarked("triton__0d1d2de", "triton_poi_fused_add_0"))
    assert isinstance(found, Kernels)
    assert found.top[0].shown == "triton__0d1d2de (triton_poi_fused_add_0)"
    table = present(found).tables[0]
    assert table.headers[-1] == "launched by"
    assert table.rows[0][-1] == "triton_poi_fused_add_0"
    said = measure(unmarked("layer_norm_kernel", "aten::native_layer_norm"))
    assert isinstance(said, Kernels)
    assert said.top[0].shown == "layer_norm_kernel"


def test_the_launch_to_profile_is_the_one_that_has_the_time():
    found = measure(unmarked("triton_", "CompiledFunction"))
    assert isinstance(found, Kernels)
    assert (found.top[0].typical_launch, found.top[0].typical_ns) == (2, 900 * US)
