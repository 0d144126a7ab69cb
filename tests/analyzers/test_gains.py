"""What a fix saves at most comes from a replay of the launches, for each cause on the host."""

from msgspec.structs import replace

from profkit.analyzers import input as loader
from profkit.analyzers import launches, memory
from profkit.findings.host import LAUNCH_BOUND
from profkit.findings.memory import PRESSURE
from profkit.testing import draw
from tests.drawing import US, facts_of, finding_in

# the wait ends under the first kernel, whose end finds nothing queued: the debt is paid in later gaps
LOADER = """
    steps  | 0..........................1..........................
    gpu s7 | .KKKKKKKKKKKKKK....kk..KK...KKKKKKKKKKKKKK....kk..KK..
    main   | LWWWWWWWWWWWWWWW..L...L....LWWWWWWWWWWWWWWW..L...L....
"""
ALLOCATOR = LOADER.replace("W", "A")


def test_a_loader_wait_is_charged_for_what_it_delays() -> None:
    facts = facts_of(LOADER)
    main = facts.main_device
    measured = loader.measure(facts)
    assert measured.gain_ns == main.gains.data_ns > 3 * main.budget.idle_data


def test_the_allocator_is_charged_for_what_it_delays() -> None:
    measured = memory.measure(facts_of(ALLOCATOR))
    assert measured.gain_ns > measured.cost_ns
    assert finding_in(draw(ALLOCATOR), PRESSURE.id).recoverable_ns == measured.gain_ns // 2


def test_a_cpu_has_no_replay() -> None:
    picture = """
        steps | 0.........1.........
        main  | OOOOOWWWWWOOOOOWWWWW
    """
    assert loader.measure(facts_of(picture)).gain_ns == 10 * US


def test_launch_overhead_saves_no_more_than_the_replay_gives() -> None:
    picture = """
        steps  | 0...................1...................2...................
        gpu s7 | .kk......KK......kk..KK......kk......KK..kk......KK......kk.
        main   | L.......L.......L...L.......L.......L...L.......L.......L...
        main   | .OOOOOO..OOOOOO......OOOOOO..OOOOOO......OOOOOO..OOOOOO.....
    """
    measured = launches.measure(facts_of(picture))
    assert measured.gain_ns is not None
    (finding,) = launches.judge(replace(measured, few_gaps_share=0.0))
    assert finding.id == LAUNCH_BOUND.id
    assert finding.recoverable_ns == measured.gain_ns // 3
