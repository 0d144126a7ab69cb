"""Which finding of a late rank says why it is late: one that its peers have less of, by enough."""

from types import SimpleNamespace

import pytest

from profkit.findings.host import LAUNCH_BOUND
from profkit.findings.input import STARVED
from profkit.model.code import CodePlace, Phase, PlaceShare
from profkit.ranks.findings import late_cause
from profkit.ranks.findings.late_cause import Late
from profkit.ranks.reduce.records import PHASES

MS = 1_000_000
OWN = SimpleNamespace(id=STARVED.id, fraction=0.3)


def named(monkeypatch: pytest.MonkeyPatch, *, waits_ms: tuple[float, ...], phase: str | None = "data") -> str:
    """The own finding of rank 1, which is 6 ms per step late, where ranks wait so long for data."""
    reports = [SimpleNamespace(findings=[OWN]) for _ in waits_ms]
    outcomes = [SimpleNamespace(report=report, waits_ns=ms * MS) for report, ms in zip(reports, waits_ms, strict=True)]
    joint = SimpleNamespace(n_steps=10, outcome_of=outcomes.__getitem__)
    excess = [60 * MS if name == "data" else 0 for name in PHASES]
    straggler = SimpleNamespace(rank=1, phase=phase, phase_excess_ns=excess, lateness_ns=60 * MS)
    monkeypatch.setattr(late_cause, "_cost_ns", lambda outcome, name: outcome.waits_ns)
    found = Late(straggler, SimpleNamespace(ranks=range(len(waits_ms))), None, joint).own_finding
    return found.id if found is not None else ""


@pytest.mark.parametrize(
    ("waits_ms", "is_named"),
    [((1, 7, 1, 1), True), ((1, 4, 1, 2), True), ((1, 3.9, 1, 2), False), ((7, 7, 7, 7), False), ((0, 3, 9, 0), True)],
    ids=["all of it", "half of it", "less than half", "all wait alike", "one peer waits longer"],
)
def test_a_finding_that_explains_half_of_the_delay_is_its_cause(monkeypatch, waits_ms, is_named):
    """Rank 1 has more of it than the median of its peers by at least 3 of the 6 ms."""
    assert (named(monkeypatch, waits_ms=waits_ms) == STARVED.id) == is_named


@pytest.mark.parametrize("phase", ["compute", "host", None])
def test_a_finding_of_another_phase_is_not(monkeypatch, phase):
    assert named(monkeypatch, waits_ms=(1, 7, 1, 1), phase=phase) == ""


def share(line: int, ms: float) -> PlaceShare:
    """What a rank spends at a line in 10 steps."""
    place = CodePlace(file="train.py", function="log", line=line)
    return PlaceShare(place=place, phase=Phase.OTHER, ns=int(10 * ms * MS), share=0.5, count=1)


def late_lines(
    monkeypatch: pytest.MonkeyPatch, *ranks: dict[int, float], host_ms: float = 1.0, phase: str = "host"
) -> list[tuple[int, float]]:
    """The lines that make rank 0 late, by 6 ms per step, where the ranks' host findings have so many ms at lines."""
    reports = []
    for lines in ranks:
        places = tuple(share(line, ms) for line, ms in lines.items())
        one = SimpleNamespace(id=LAUNCH_BOUND.id, fraction=0.3, places=places)
        reports.append(SimpleNamespace(findings=[one] if lines else [], steps=SimpleNamespace(n=10)))
    joint = SimpleNamespace(n_steps=10, outcome_of=[SimpleNamespace(report=one) for one in reports].__getitem__)
    excess = [60 * MS if name == phase else 0 for name in PHASES]
    straggler = SimpleNamespace(rank=0, phase=phase, phase_excess_ns=excess, lateness_ns=60 * MS)
    monkeypatch.setattr(late_cause, "spent_ns", lambda *_: host_ms * MS)
    found = late_cause.late_places(Late(straggler, SimpleNamespace(ranks=range(len(ranks))), None, joint))
    assert {one.of for one in found} <= {"delay"}
    return [(one.place.line, round(one.share, 3)) for one in found]


def test_the_lines_of_a_late_rank_are_those_its_peers_spend_less_on(monkeypatch):
    """What all ranks spend alike is no cause, however large."""
    common = {10: 9.0, 20: 0.5}
    assert late_lines(monkeypatch, {10: 9.0, 20: 6.5}, common, common) == [(20, 1.0)]
    assert late_lines(monkeypatch, {10: 9.0, 30: 6.0}, common, common) == [(30, round(5.5 / 6, 3))], (
        "0.5 ms are possible"
    )
    assert late_lines(monkeypatch, {10: 9.0, 20: 3.0}, common, common) == [], "not half of the delay"


def test_lines_have_no_more_than_all_of_the_delay(monkeypatch):
    """They take 8 ms longer than on the peers, of which the others wait for 6."""
    usual = {10: 1.0, 20: 1.0}
    assert late_lines(monkeypatch, {10: 7.0, 20: 3.0}, usual, usual) == [(10, 0.75), (20, 0.25)]


def test_of_a_peer_without_lines_all_its_host_work_may_be_there(monkeypatch):
    assert late_lines(monkeypatch, {20: 6.0}, {}, {}) == [(20, round(5 / 6, 3))]
    assert late_lines(monkeypatch, {20: 6.0}, {}, {}, host_ms=4.0) == []


def test_lines_are_told_of_host_work_alone(monkeypatch):
    assert late_lines(monkeypatch, {20: 6.0}, {}, phase="compute") == []
    assert late_lines(monkeypatch, {}, {}) == []
