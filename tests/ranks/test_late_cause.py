"""Which finding of a late rank says why it is late: one that its peers have less of, by enough."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from profkit.findings.input import STARVED
from profkit.ranks.findings import late_cause
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
    monkeypatch.setattr(late_cause, "_cost_ns", lambda outcome, _: outcome.waits_ns)
    found = late_cause.own_finding(straggler, SimpleNamespace(ranks=range(len(waits_ms))), joint)
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
