"""Ranges that are parts of one pass, or of another loop, are no steps; what steps by ranges leave out is said."""

from pathlib import Path

import pytest

from profkit.api import triage
from profkit.model.documents.rank_report import UNEVEN
from tests.ingest.nsys_files import Export
from tests.ingest.test_nsys import only, passes

MS = 1_000_000
BEGIN = 10 * MS


def around(n_before: int, n_behind: int, *, name: str = "model_forward") -> Export:
    """Six ranges of ten launches each, inside one that launches so many before and behind them."""
    export = passes("part {}")
    export.range(BEGIN - 2 * MS, BEGIN + 14 * MS, name)
    for first, n in ((BEGIN - MS, n_before), (BEGIN + 13 * MS, n_behind)):
        for k in range(n):
            export.kernel(first + k * 20_000 + 5_000, first + k * 20_000 + 15_000)
    return export


@pytest.mark.parametrize(("n_before", "n_behind", "are_steps"), [(2, 4, False), (0, 10, False), (0, 0, True)])
def test_ranges_inside_one_that_launches_beside_them_are_its_parts(
    n_before: int, n_behind: int, are_steps: bool, tmp_path: Path
) -> None:
    trace = only(around(n_before, n_behind).write(tmp_path / "x.sqlite"))
    assert (trace.step_source == "ranges") == are_steps


def test_the_nearest_range_around_them_counts(tmp_path: Path) -> None:
    """A loop has a range of its own, and launches nothing beside its steps; the program around it does."""
    export = around(5, 5, name="main")
    export.range(BEGIN - 10_000, BEGIN + 12 * MS, "the loop")
    assert only(export.write(tmp_path / "x.sqlite")).step_source == "ranges"


def two_loops(n_first: int, n_second: int) -> Export:
    """A loop with two ranges a turn, then one with a range of another name, with so many turns of ten launches."""
    export = Export()

    def turn(at: int, name: str) -> None:
        export.range(at, at + 300_000, name)
        for k in range(10):
            export.kernel(at + 6_000 + k * 20_000, at + 16_000 + k * 20_000)

    for k in range(n_first):
        turn(BEGIN + k * MS, f"load {k}")
        turn(BEGIN + k * MS + 400_000, f"serial chunk {k}")
    for k in range(n_second):
        turn(BEGIN + n_first * MS + k * 400_000, f"overlapped chunk {k}")
    return export


@pytest.mark.parametrize(("n_first", "n_second"), [(6, 6), (3, 5), (6, 12)])
def test_ranges_that_come_in_one_step_alone_are_another_loops(n_first: int, n_second: int, tmp_path: Path) -> None:
    trace = only(two_loops(n_first, n_second).write(tmp_path / "x.sqlite"))
    assert trace.step_source == "ranges"
    assert [step.duration_ns for step in trace.steps][:-1] == [MS] * (n_first - 1)
    assert trace.window_ns == (BEGIN, BEGIN + n_first * MS - 300_000)


def test_what_steps_by_ranges_leave_out_is_said(tmp_path: Path) -> None:
    path = two_loops(6, 6).write(tmp_path / "x.sqlite")
    (said,) = [one for one in triage([str(path)]).verdict.caveats if "lies outside" in one]
    assert said.startswith("the steps are 6 ranges of the program that recur: 600 us of GPU work (33.3 %")
    whole = two_loops(6, 0).write(tmp_path / "whole.sqlite")
    assert not any("lies outside" in one for one in triage([str(whole)]).verdict.caveats)


@pytest.mark.parametrize(("n", "is_sure"), [(4, False), (6, True)])
def test_few_steps_that_differ_much_allow_no_high_confidence(n: int, is_sure: bool, tmp_path: Path) -> None:
    export = Export()
    at = BEGIN
    for k in range(n):
        longer = 4 if k == 1 else 1
        export.range(at, at + longer * 10 * MS, f"ProfilerStep#{k}")
        for j in range(10):
            export.kernel(at + 6_000 + j * longer * MS, at + (j + 1) * longer * MS)
        at += longer * 10 * MS
    report = triage([str(export.write(tmp_path / "x.sqlite"))])
    assert (report.ranks[0].steps.cv or 0) > UNEVEN
    assert (report.verdict.confidence > 0.6) == is_sure
