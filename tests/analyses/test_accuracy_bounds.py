"""What is added to the time of a cause: the least with which 19 of 20 ceilings hold, each group by the others."""

import pytest

from analyses.accuracy import bounds, reports, score
from analyses.accuracy.shares import Share
from tests.analyses.drawn_cells import cell, said


def judged(time, low, number, family="mlp"):
    """A cell whose cause takes that share of the step, and whose removal surely gives `low`."""
    word = said("data-bound", gain=min(1.2 * time, 1.0), time=time)
    key = f"{family}/loader_serial/large/{number}"
    return cell(key, says=word, gain=low + 0.05, gain_interval=(low, low + 0.1))


def test_the_least_addition_that_holds_is_chosen():
    cells = [judged(0.40, 0.20, number) for number in range(20)] + [judged(0.40, 0.47, 20)]
    of = score.judged(cells, "profkit")
    assert bounds.held(of, 0.0) == bounds.covered(of, 0.0) == Share(20, 21)
    assert bounds.chosen(of) == 0.0, "20 of 21 are more than nine of ten"
    of = score.judged([*cells, judged(0.40, 0.42, 21), judged(0.40, 0.49, 22)], "profkit")
    assert bounds.chosen(of) == 0.20, "a gain of 0.47"
    assert bounds.held(of, 0.20) == Share(22, 23)
    assert bounds.covered(of, 0.20) == Share(21, 23)


def test_a_ceiling_that_was_cut_at_the_whole_step_keeps_its_time():
    (one,) = score.judged([judged(0.9, 0.85, 0)], "profkit")
    assert (one.ceiling, one.time_share) == (1.0, 0.9)
    assert bounds.held([one], 0.0) == Share(1, 1)


def test_rows_without_times_are_judged_by_what_they_said():
    (one,) = score.judged([cell(says=said("data-bound", gain=0.3), gain=0.4, gain_interval=(0.35, 0.45))], "profkit")
    assert one.time_share == one.ceiling == 0.3


def test_each_family_is_judged_by_the_others():
    cells = [judged(0.40, 0.20, number) for number in range(30)]
    cells += [judged(0.40, 0.47, number, family="cnn") for number in range(3)]
    by = {one.name: one for one in bounds.families(score.judged(cells, "profkit"))}
    assert (by["cnn"].beyond, by["cnn"].held) == (0.0, Share(0, 3))
    assert (by["mlp"].beyond, by["mlp"].held) == (0.3, Share(30, 30)), "three tenths reach a gain of 0.52"
    assert bounds.held_out(list(by.values())) == Share(30, 33)


@pytest.mark.parametrize(("most_ns", "ceiling"), [(30, 0.3), (None, 0.2)])
def test_a_report_has_the_time_of_a_cause_and_the_most_that_a_fix_saves(most_ns, ceiling):
    finding = {"id": "input.starved", "recoverable_ns": 20, "most_recoverable_ns": most_ns}
    verdict = {
        "bottleneck": "data-bound", "confidence": 0.7, "headline": "", "step_ns": 100, "recoverable_ns": 20,
        "most_recoverable_ns": most_ns, "speedup_ceiling": 1.25,
    }  # fmt: skip
    found = reports.said({"verdict": verdict, "findings": [finding]})
    assert (found.gain, found.finding_gains) == (pytest.approx(ceiling), (pytest.approx(ceiling),))
    assert (found.time, found.finding_times) == (0.2, (0.2,))
