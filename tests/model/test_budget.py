"""The parts of a budget: every one has its words, and the budget is their partition."""

import msgspec
import pytest

from profkit.model.budget import IDLE_PARTS, PARTS, WORK_PARTS, Budget, column, label, words
from profkit.render.terminal import page


def test_every_part_of_the_budget_has_words_and_no_other():
    assert list(PARTS) == [name for name in Budget.__struct_fields__ if name != "window_ns"]
    assert {*WORK_PARTS, *IDLE_PARTS} == set(PARTS)
    assert all(label(name, is_cpu=is_cpu) and words(name, is_cpu=is_cpu) for name in PARTS for is_cpu in (True, False))


def test_every_part_has_a_glyph_of_its_own():
    assert list(page.PARTS) == list(PARTS)
    assert len({glyph for glyph, _ in page.PARTS.values()}) == len(PARTS)


def test_a_cpu_has_words_of_its_own():
    assert (label("idle_host", is_cpu=False), label("idle_host", is_cpu=True)) == (
        "other host work",
        "between operators",
    )
    assert column("idle_host", is_cpu=True) == "host"
    assert column("idle_sync", is_cpu=False) == label("idle_sync", is_cpu=False)


@pytest.mark.parametrize(
    ("parts", "is_cpu", "said"),
    [
        (("comm_exposed",), False, "exposed communication"),
        (("idle_launch", "idle_host"), False, "idle for late launches and other host work"),
        (("idle_launch", "idle_host"), True, "dispatch (estimated) and between operators"),
    ],
)
def test_parts_in_a_sentence(parts, is_cpu, said):
    assert words(*parts, is_cpu=is_cpu) == said


def test_a_budget_is_a_partition():
    parts = dict.fromkeys(PARTS, 1)
    assert Budget(window_ns=len(PARTS), **parts).idle_ns == len(IDLE_PARTS)
    with pytest.raises(ValueError, match="partition"):
        Budget(window_ns=len(PARTS) + 1, **parts)
    assert msgspec.structs.asdict(Budget(window_ns=0, **dict.fromkeys(PARTS, 0)))["window_ns"] == 0
