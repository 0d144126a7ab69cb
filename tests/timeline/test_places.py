"""Idle time by the operation that ends it, and by what launches that operation."""

import pytest

from profkit.pipeline import analyse
from profkit.testing import Row, kernel, launch, span, trace_of
from profkit.timeline import Facts, IdlePlaces

US = 1000
START = 10**9


def places_of(rows: list[Row]) -> IdlePlaces:
    main = Facts.of(trace_of(rows)).main_device
    assert main is not None
    return main.places


def one_step(at: int, number: int, *, slow_us: int, stacks: bool = True) -> list[Row]:
    """A step of nine quick operators, and one kernel whose Python launcher takes long."""
    rows: list[Row] = []
    now = at
    for place in range(10):
        is_slow = place == 6
        length = slow_us if is_slow else 5
        correlation = 100 * number + place + 1
        if is_slow and stacks:
            rows += [
                span("train.py(40): step", now, now + (length + 4) * US, cat="python_function"),
                span("ops/fused/attention.py(33): launch", now, now + (length + 4) * US, cat="python_function"),
                span("torch/cuda/__init__.py(1): call", now + US, now + (length + 4) * US, cat="python_function"),
            ]
        if not is_slow:
            rows.append(span("aten::mm", now, now + (length + 4) * US, cat="cpu_op"))
        now += length * US
        rows.append(launch(now, now + 4 * US, correlation=correlation))
        name = "written_by_hand" if is_slow else "gemm"
        rows.append(kernel(name, now + 6 * US, now + 9 * US, correlation=correlation))
        now += 4 * US
    return [span(f"ProfilerStep#{number}", at, now), *rows]


def job(*, slow_us: int, n_steps: int = 8, stacks: bool = True) -> list[Row]:
    rows: list[Row] = []
    at = START
    for number in range(n_steps):
        step = one_step(at, number, slow_us=slow_us, stacks=stacks)
        at = step[0].end_ns
        rows += step
    return rows


def test_a_slow_launcher_is_found_with_its_line() -> None:
    found = places_of(job(slow_us=2250))
    first = found.first(("idle_launch", "idle_host"))
    assert first is not None
    place, share = first
    assert (place.before, place.op, place.line) == ("written_by_hand", "", "launch() (fused/attention.py:33)")
    assert share > 0.9
    assert place.n_gaps == 8
    assert found.outstanding(("idle_launch", "idle_host"), 0.5) == place


def test_all_rows_together_are_the_idle_time_but_for_gaps_between_queued_operations() -> None:
    facts = Facts.of(trace_of(job(slow_us=100)))
    main = facts.main_device
    assert main is not None
    assert sum(main.places.total_ns.values()) == main.budget.idle_ns - main.idle.turnaround.total_ns
    assert sum(place.idle_ns for place in main.places.places) == sum(main.places.total_ns.values())


def test_the_advice_is_about_the_launcher_and_not_about_compiling_the_model() -> None:
    verdict = analyse(trace_of(job(slow_us=2250))).verdict
    assert verdict.bottleneck.value == "overhead-bound"
    assert "written_by_hand" in verdict.fixes[0]
    assert "launch() (fused/attention.py:33)" in verdict.fixes[0]
    assert not any("torch.compile" in fix for fix in verdict.fixes)
    assert "written_by_hand" in verdict.findings[0].seen("launches.first_place_share").statement


def test_the_same_operation_everywhere_is_no_place() -> None:
    analysed = analyse(trace_of(job(slow_us=5, stacks=False)))
    assert "torch.compile" in analysed.verdict.fixes[0]
    assert analysed.facts.main_device is not None
    assert analysed.facts.main_device.places.outstanding(("idle_launch", "idle_host"), 0.5) is None


def test_what_the_host_does_half_way_is_named() -> None:
    rows = [
        span("ProfilerStep#0", START, START + 1000 * US),
        launch(START, START + US, correlation=1),
        kernel("first", START + 5 * US, START + 10 * US, correlation=1),
        span("aten::sort", START + 12 * US, START + 880 * US, cat="cpu_op"),
        span("aten::copy_", START + 890 * US, START + 900 * US, cat="cpu_op"),
        launch(START + 895 * US, START + 899 * US, correlation=2),
        kernel("second", START + 902 * US, START + 1000 * US, correlation=2),
    ]
    first = places_of(rows).first(("idle_host", "idle_launch"))
    assert first is not None
    assert first[0].words == "before second, launched by aten::copy_, while the host is in aten::sort"


@pytest.mark.parametrize(
    ("names", "shown"), [(("epoch 1", "epoch 1", "epoch 1"), "epoch 1"), (("a", "b", "c"), ""), (("a", "a", "b"), "a")]
)
def test_a_range_stands_for_a_place_where_most_of_its_idle_time_is_in_it(names: tuple[str, ...], shown: str) -> None:
    rows = [span("ProfilerStep#0", START, START + 400 * US)]
    for n, name in enumerate(names, 1):
        at = START + 100 * n * US
        rows += [
            span(name, at - 50 * US, at + 5 * US),
            launch(at, at + US, correlation=n),
            kernel("k", at + 5 * US, at + 9 * US, correlation=n),
        ]
    by_name = {place.before: place for place in places_of(rows).places}
    assert by_name["k"].span == shown


def test_without_launches_the_operation_alone_is_named() -> None:
    rows = [
        span("ProfilerStep#0", START, START + 100 * US),
        kernel("k", START + 50 * US, START + 60 * US, correlation=77),
    ]
    assert [(place.before, place.op, place.cause, place.idle_ns) for place in places_of(rows).places] == [
        ("k", "", "idle_unknown", 50 * US),
        ("", "", "idle_unknown", 40 * US),
    ]
