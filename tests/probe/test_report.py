"""Records as processes leave them, to a report: ranks side by side, orders of workers, the sum, and what is refused."""

import json
import struct

import numpy as np
import pytest

from profkit.capture.inside.probe.plan import AFTER, BEFORE, HOST, Plan
from profkit.capture.inside.probe.record import Row, written
from profkit.errors import UnsupportedTraceError
from profkit.probe.report import report

MS = 1_000_000


def plan(places=HOST, n_steps=200):
    return Plan(places=places, doses_ns=(2 * MS, 6 * MS), n_steps=n_steps, seed=3, cost=0.1, step_ns=20 * MS)


def facts(pid=1, rank=0, world_size=1, n_workers=0, **more):
    base = {"reason": "", "pid": pid, "rank": rank, "world_size": world_size, "n_workers": n_workers, "n_queued": 0}
    return {**base, "uses_cuda": False, "step_source": "the optimizer's step", "torch": "2", **more}


def leave(folder, one, *, shows, n_steps=None, **given):
    """Leave the record of a process whose steps take 20 ms and the delays at the places of `shows`."""
    rng = np.random.default_rng(given.get("rank", 0))
    rows = []
    for step in range(BEFORE + one.n_steps + AFTER if n_steps is None else n_steps):
        place, dose = one.treatment(step - BEFORE) or (None, None)
        delay_ns = 0 if place is None else one.doses_ns[dose]
        duration_ns = 20 * MS + round(rng.normal(0, 0.2 * MS)) + delay_ns * (place in shows)
        parts = dict(zip(HOST, (8 * MS, 6 * MS, 4 * MS, 2 * MS), strict=True))
        rows.append(Row(duration_ns, parts, 1, place, dose, delay_ns))
    written(folder, facts(**given), one, rows)


def test_a_serial_loop_sums_to_one(tmp_path):
    leave(tmp_path, plan(), shows=HOST)
    found = report(tmp_path, "python train.py")
    assert [one.reading for one in found.slopes] == ["critical"] * 4
    assert found.total == pytest.approx(1.0, abs=0.1)
    assert found.host.slope == pytest.approx(1.0, abs=0.1)
    assert found.slope_of("input").time_ns == 8 * MS
    assert found.slope_of("input").worth_ns == pytest.approx(8 * MS, rel=0.1)
    assert (found.n_before, found.n_probed, found.n_after) == (BEFORE, 200, AFTER)
    assert found.cost <= 0.1


def test_a_hidden_place_has_slack(tmp_path):
    leave(tmp_path, plan(), shows=HOST[1:])
    hidden = report(tmp_path, "c").slope_of("input")
    assert hidden.reading == "hidden"
    assert 4 * MS < hidden.slack_least_ns <= hidden.slack_ns <= 6 * MS


def test_places_that_were_not_asked_for_leave_no_sum(tmp_path):
    leave(tmp_path, plan(places=("input",)), shows=HOST)
    found = report(tmp_path, "c")
    assert found.total is None
    assert "there is no sum" in found.notes[0]


def test_orders_to_workers_count_as_the_workers_obeyed_them(tmp_path):
    one = plan(places=("input", "forward"))
    leave(tmp_path, one, shows=("input", "forward"), n_workers=2)
    orders = [one.doses_ns[found[1]] for found in map(one.treatment, range(200)) if found and found[0] == "input"]
    for worker in (5, 6):
        rows = [(number, 2 * delay, 3 * MS) for number, delay in enumerate(orders, 1)]  # twice what was ordered
        (tmp_path / f"1.{worker}.rows").write_bytes(b"".join(struct.pack("<qqq", *row) for row in rows) + b"cut")
    found = report(tmp_path, "c")
    assert found.slope_of("input").slope == pytest.approx(0.5, abs=0.15)
    assert found.slope_of("input").time_ns == 3 * MS // 2


def test_ranks_are_laid_side_by_side(tmp_path):
    one = plan(places=("forward", "rank0", "rank1"))
    for rank in (0, 1):
        leave(tmp_path, one, shows=("forward", "rank1"), pid=10 + rank, rank=rank, world_size=2)
    found = report(tmp_path, "c")
    assert found.n_ranks == 2
    assert found.slope_of("rank1").reading == "critical"
    assert found.slope_of("rank0").reading == "hidden"


@pytest.mark.parametrize(
    ("n_steps", "said"), [(0, "after 0 probed steps"), (BEFORE + 1, "after 1 probed step,"), (59, "at least 40")]
)
def test_a_run_that_ends_early_is_refused(tmp_path, n_steps, said):
    leave(tmp_path, plan(), shows=HOST, n_steps=n_steps)
    with pytest.raises(UnsupportedTraceError, match=said):
        report(tmp_path, "c")


def test_reasons_are_told_and_rubbish_is_passed_over(tmp_path):
    with pytest.raises(UnsupportedTraceError, match="never imported torch"):
        report(tmp_path, "c")
    (tmp_path / "7.probed").write_text(json.dumps({"steps": "many"}))
    (tmp_path / "8.probed").write_bytes(b"\xff\x00")
    written(tmp_path, facts(pid=9, reason="no training step was seen"), None, [])
    with pytest.raises(UnsupportedTraceError, match="no training step was seen"):
        report(tmp_path, "c")
