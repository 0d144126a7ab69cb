"""Which calls wait, who makes them, and from when on that is a finding."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.base import idle_before
from profkit.analyzers.syncs import Syncs, judge, measure
from profkit.findings.communication import EXPOSED
from profkit.findings.host import LAUNCH_BOUND
from profkit.model.budget import HOST_PARTS
from profkit.pipeline import analyse
from profkit.testing import draw, kernel, launch, span
from profkit.timeline import IdlePlaces
from profkit.verdict.compete import ranked_causes
from tests.drawing import US, facts_of

PLACE = "launches.first_place_share"


def found_in(picture: str) -> Syncs:
    return measure(facts_of(picture))


def waiting() -> Syncs:
    """Two steps, each with a call that holds the host for 9 us while the device works to its end."""
    return found_in("""
        steps  | 0.............1.............
        gpu s7 | ..KKKKKKKK......KKKKKKKK....
        main   | LSSSSSSSSSS...LSSSSSSSSSS...
    """)


def test_what_waiting_costs_is_the_idle_time_behind_it() -> None:
    found = waiting()
    assert (found.n_calls, found.blocked_ns) == (2, 20 * US)
    assert found.callers == (("cudaStreamSynchronize", "outside operators", 2, 20 * US),)


@pytest.mark.parametrize(
    ("cost_us", "n_calls", "worst_share", "fires"),
    [(30, 4, 0.49, True), (29, 4, 0.49, False), (30, 3, 0.49, False), (30, 4, 0.5, False)],
)
def test_it_fires_at_three_hundredths_of_the_window_and_one_call_a_step(
    cost_us: int, n_calls: int, worst_share: float, fires: bool
) -> None:
    found = waiting()
    scope = replace(found.scope, window_ns=1000 * US, n_steps=4)
    changed = replace(found, scope=scope, gain_ns=cost_us * US, n_calls=n_calls, worst_share=worst_share)
    assert bool(judge(changed)) == fires


def test_allocating_calls_are_not_this_analyzers() -> None:
    found = found_in("""
        steps  | 0.............
        gpu s7 | ..KKKKKKKK....
        main   | LSSSAAAAAAA...
    """)
    assert (found.n_calls, found.blocked_ns) == (1, 3 * US)


def test_callers_come_with_their_operators_the_longest_first() -> None:
    start = 10**9
    rows = [
        span("ProfilerStep#0", start, start + 100 * US),
        launch(start, start + US, correlation=1),
        kernel("k", start + 2 * US, start + 90 * US, correlation=1),
        span("aten::item", start + 9 * US, start + 21 * US, cat="cpu_op"),
        launch(start + 10 * US, start + 20 * US, correlation=0, name="cudaStreamSynchronize"),
        launch(start + 30 * US, start + 60 * US, correlation=0, name="cudaDeviceSynchronize"),
        span("aten::item", start + 69 * US, start + 76 * US, cat="cpu_op"),
        launch(start + 70 * US, start + 75 * US, correlation=0, name="cudaStreamSynchronize"),
    ]
    found = measure(facts_of(rows))
    assert found.callers == (
        ("cudaDeviceSynchronize", "outside operators", 1, 30 * US),
        ("cudaStreamSynchronize", "aten::item", 2, 15 * US),
    )
    assert found.longest_span_ns == (start + 30 * US, start + 60 * US)


HELD_THEN_LATE = """
        steps  | 0..............................
        gpu s7 | .KKKKKKKKKKKK.....kk...KK...kk.
        main   | LSSSSSSSSSSSSS...L....L....L...
    """


def test_a_wait_is_charged_for_later_gaps_too() -> None:
    found = found_in(HELD_THEN_LATE)
    # free of the wait, the host launches at 4, 9 and 14 what it launched at 17, 22 and 27: the device is done at 20.5,
    # with the least gap of 0.5 between operations, and no longer at 31
    assert (found.gain_ns, found.cost_ns, found.held_ns) == (10_500, 4 * US, 13 * US)


def test_the_finding_says_what_comes_later() -> None:
    found = replace(found_in(HELD_THEN_LATE), worst_share=0.0)
    (finding,) = judge(found)
    assert finding.recoverable_ns == 10_500
    assert finding.fraction == pytest.approx(10.5 / 31)
    metrics = [item.metric for item in finding.evidence]
    assert metrics == ["syncs.gain_ns", "syncs.n_calls", "budget_ns.idle_sync", PLACE]


def test_what_comes_at_once_needs_no_second_sentence() -> None:
    (finding,) = judge(replace(found_in(HELD_THEN_LATE), worst_share=0.0, cost_ns=8_400))
    assert [item.metric for item in finding.evidence] == ["syncs.gain_ns", "syncs.n_calls", PLACE]


@pytest.mark.parametrize(("at_once_ns", "is_sure"), [(1_100, True), (900, False)])
def test_what_nearly_all_comes_later_is_less_sure_than_what_is_seen(at_once_ns: int, is_sure: bool) -> None:
    """Communication that is as long and that no compute hides comes first then."""
    (held,) = judge(replace(found_in(HELD_THEN_LATE), worst_share=0.0, cost_ns=at_once_ns))
    assert held.confidence == (0.8 if is_sure else 0.5)
    alone = EXPOSED.found(
        fraction=0.5, confidence=0.6, recoverable_ns=held.recoverable_ns, evidence=held.evidence, fix=""
    )
    assert (ranked_causes([held, alone])[0] is alone) is not is_sure


def test_a_single_call_is_a_single_event() -> None:
    assert found_in(HELD_THEN_LATE).worst_share == 1.0


def test_what_holds_the_host_is_never_ruled_out() -> None:
    picture = """
        steps  | 0...................1...................
        gpu s7 | .KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK.
        main   | LSSSSSSSSSSSSSSSSSSSS.SSSSSSSSSSSSSSSSSS
    """
    analysed = analyse(draw(picture))
    assert "syncs" in analysed.case.not_ruled_out
    assert not any("synchronisation" in said for said in analysed.verdict.ruled_out)
    free = analyse(draw(picture.replace("SSSSSSSSSSSSSSSSSSSS.SSSSSSSSSSSSSSSSSS", "SSSS" + "." * 35)))
    assert "syncs" not in free.case.not_ruled_out


@pytest.mark.parametrize(("late", "first"), [(0.3, "host.sync"), (0.7, "host.launch_bound")])
def test_launches_that_waits_make_late_are_not_blamed_on_the_host(late: float, first: str) -> None:
    (sync,) = judge(replace(found_in(HELD_THEN_LATE), worst_share=0.0))
    assert sync.fraction == pytest.approx(0.34, abs=0.01)
    bound = LAUNCH_BOUND.found(
        fraction=late,
        confidence=0.85,
        recoverable_ns=round(late * 10**6),
        evidence=sync.evidence,
        fix="",
        severity=sync.severity,
    )
    held = replace(sync, recoverable_ns=round(sync.fraction * 10**6))
    assert ranked_causes([bound, held])[0].id == first


def test_spread_idle_time_is_called_spread() -> None:
    found = found_in(HELD_THEN_LATE)
    place = found.places.places[0]
    few = IdlePlaces(places=(place,), total_ns={"idle_sync": 10 * place.in_parts(["idle_sync", *HOST_PARTS])})
    said = idle_before(few, found.scope, "idle_sync", *HOST_PARTS)[0].statement
    assert said.startswith("this idle time is spread: the largest part, 10.0 %, is before compute_kernel")
    assert idle_before(IdlePlaces(), found.scope, "idle_sync") == ()


@pytest.mark.parametrize(
    ("callers", "fix"),
    [
        ((("cudaDeviceSynchronize", "outside operators", 5, 100),), "take torch.cuda.synchronize() out of the loop"),
        (
            (("cudaStreamSynchronize", "aten::nonzero", 5, 80), ("cudaMemcpyAsync", "aten::copy_", 5, 20)),
            "use torch.where instead of boolean indexing; copy from pinned memory with non_blocking=True",
        ),
        (
            (("cudaStreamSynchronize", "aten::_local_scalar_dense", 5, 95), ("cudaMemcpyAsync", "aten::copy_", 1, 5)),
            "keep metrics on the GPU and read them every N steps",
        ),
        (
            (("cudaStreamSynchronize", "mylib::solve", 5, 100),),
            "keep metrics on the GPU and read them every N steps; copy",
        ),
    ],
)
def test_the_advice_is_about_the_calls_that_take_the_time(
    callers: tuple[tuple[str, str, int, int], ...], fix: str
) -> None:
    found = waiting()
    scope = replace(found.scope, window_ns=100 * US, n_steps=2)
    (finding,) = judge(replace(found, scope=scope, gain_ns=50 * US, worst_share=0.3, callers=callers, blocked_ns=100))
    assert finding.fix.startswith(fix)
    assert ("; " in finding.fix) == ("; " in fix)


@pytest.mark.parametrize(
    ("host_us", "kernel_us", "first"),
    [
        (12, 4, "host.launch_bound"),  # without the waits, the host's 12 us of 17 still set the pace
        (5, 11, "host.sync"),  # without the waits, the host is ahead: it was late because it was held
    ],
)
def test_of_waits_and_late_launches_the_one_without_which_more_is_saved_leads(
    host_us: int, kernel_us: int, first: str
) -> None:
    n = 12
    each = host_us + kernel_us + 1
    gpu = ("." * (host_us + 1) + "K" * kernel_us) * n
    main = ("." * host_us + "L" + "S" * kernel_us) * n
    ops = ("O" * host_us + "." * (each - host_us)) * n
    steps = "".join(f"{step}" + "." * (3 * each - 1) for step in range(n // 3))
    analysed = analyse(draw(f"steps | {steps}\ngpu s7 | {gpu}\nmain | {main}\nmain | {ops}"))
    main_device = analysed.facts.main_device
    # three times a step: the shorter of both is hidden without the waits, all of the host's without its work
    gains = main_device.gains
    assert gains.sync_ns == pytest.approx(n * min(host_us, kernel_us) * US, rel=0.35)
    assert gains.host_ns == pytest.approx(n * host_us * US, rel=0.35)
    assert analysed.verdict.findings[0].id == first
