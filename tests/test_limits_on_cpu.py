"""Where the CPU is the device: the usual overhead of a program is no bottleneck, and less of another cause is one."""

import pytest

from profkit.findings.host import LAUNCH_BOUND
from profkit.model.documents.report import Bottleneck, Verdict
from profkit.testing import Row, span
from profkit.units import format_fraction
from profkit.verdict.case import DOMINANT_ON_CPU, NEARLY_ALL_WORK_ON_CPU
from tests.drawing import MS, in_steps, triaged

USUAL = LAUNCH_BOUND.limit("usual")


def judged(*, between: float, waiting: float = 0.0, at_once: float = 0.0) -> Verdict:
    """The verdict on steps of 40 ms with shares of Python between ten operators, waiting for data, one stretch."""
    each, gap = round((1 - waiting - at_once) * 4 * MS), round(between * 4 * MS)
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def drawn(start: int, _: int) -> list[Row]:
        loaded = start + round(waiting * 40 * MS)
        waits = [span(name, start, loaded, cat="cpu_op")] if waiting else []
        work = range(loaded, loaded + 10 * each, each)
        return [*waits, *(span("aten::mm", at, at + each - gap, cat="cpu_op") for at in work)]

    return triaged(in_steps(8, 40 * MS, drawn)).verdict


def test_what_ordinary_programs_have_of_overhead_is_no_bottleneck():
    verdict = judged(between=USUAL + 0.03)
    assert verdict.bottleneck is Bottleneck.KERNEL
    assert "host.launch_bound" in {finding.id for finding in verdict.findings}, "it is said all the same"


def test_more_than_that_is():
    verdict = judged(between=USUAL + DOMINANT_ON_CPU + 0.03)
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert verdict.recoverable_ns == pytest.approx((USUAL + DOMINANT_ON_CPU + 0.03) * 40 * MS, rel=0.02), "all of it"


def test_what_one_stretch_in_each_step_has_competes_whole():
    assert judged(between=0.1, at_once=DOMINANT_ON_CPU - 0.03).bottleneck is Bottleneck.KERNEL
    verdict = judged(between=0.1, at_once=DOMINANT_ON_CPU + 0.03)
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    said = verdict.findings[0].seen("launches.one_stretch_fraction")
    assert said.value == pytest.approx(DOMINANT_ON_CPU + 0.03 + 0.1 / 10, rel=0.02), "with the gap of the last operator"
    share = format_fraction(said.value)
    assert said.statement.startswith(f"{share} of the window is one stretch between two operators in each of 8 steps")


def test_waiting_for_data_stands_before_the_usual_overhead():
    verdict = judged(between=USUAL + 0.05, waiting=DOMINANT_ON_CPU + 0.02)
    assert verdict.bottleneck is Bottleneck.DATA


def test_where_nearly_all_is_work_nothing_else_is_the_bottleneck():
    waiting = min((1 - NEARLY_ALL_WORK_ON_CPU) * 0.9, DOMINANT_ON_CPU * 0.9)
    assert judged(between=0.0, waiting=waiting).bottleneck is Bottleneck.KERNEL
