"""How many steps a window holds, and what it holds beside them."""

import pytest
from msgspec.structs import replace

from profkit.testing import draw
from profkit.timeline import Facts

US = 1000
TWO_STEPS = """
    steps  | 0.........1.........
    gpu s7 | ..KKKK....KK........
"""


@pytest.mark.parametrize(
    ("window_us", "startup_us", "n_steps"), [(20, 0, 2), (24, 0, 2), (26, 0, 3), (40, 0, 4), (41, 21, 2)]
)
def test_beside_the_steps_found_by_their_period_lie_parts_of_steps_or_the_start_up(
    window_us: int, startup_us: int, n_steps: int
) -> None:
    trace = draw(TWO_STEPS)
    low, _ = trace.window_ns
    facts = Facts.of(replace(trace, step_source="period", window_ns=(low, low + window_us * US)))
    assert (facts.startup_ns, facts.n_steps) == (startup_us * US, n_steps)


def test_marked_steps_are_counted_whatever_lies_beside_them() -> None:
    trace = draw(TWO_STEPS)
    low, _ = trace.window_ns
    facts = Facts.of(replace(trace, window_ns=(low, low + 41 * US)))
    assert (facts.startup_ns, facts.n_steps) == (0, 2)


def test_what_several_ask_of_facts_is_worked_out_once() -> None:
    asked = []

    def steps(of: Facts) -> int:
        asked.append(of)
        return of.n_steps

    facts = Facts.of(draw(TWO_STEPS))
    assert [facts.once(steps), facts.once(steps)] == [2, 2]
    assert asked == [facts]
    assert replace(facts, code=None).once(steps) == 2
    assert len(asked) == 2
