"""The study of slopes: what it makes of its tables, and that it runs nothing twice."""

import json

import pytest

from analyses.slopes import run
from analyses.slopes.cases import CASES
from analyses.slopes.told import as_table, summary
from profkit.capture.inside.probe.plan import AFTER, BEFORE, SETTLING

HIDDEN = next(case for case in CASES if case.name == "loop, loader hidden")
SERIAL = next(case for case in CASES if case.name == "data")


def ran(case, arm, repeat="0", **changes):
    measured = {"cost": "0.04", "sum": "0.9", "sum_low": "0.8", "sum_high": "1.0"} if arm == "probed" else {"cost": ""}
    wall_s = "10.5" if arm == "probed" else "10.0"
    usual = {"wall_s": wall_s, "mean_ms": "", "output": "abc", "load_before": "0.5"}
    return {"case": case.name, "repeat": repeat, "arm": arm, **usual, **measured, **changes}


def slope(case, place, value, repeat="0", half=0.1):
    ends = {"low": str(value - half), "high": str(value + half)}
    return {"case": case.name, "repeat": repeat, "place": place, "slope": str(value), **ends}


def test_a_mean_near_the_truth_passes_and_one_beyond_fails():
    runs = [ran(HIDDEN, arm, repeat) for repeat in "01" for arm in run.ARMS]
    slopes = [slope(HIDDEN, "input", value, repeat) for repeat, value in (("0", 0.2), ("1", 0.05))]
    slopes += [slope(HIDDEN, "host", value, repeat) for repeat, value in (("0", 0.7), ("1", 0.9))]
    (case,) = summary(CASES, runs, slopes)
    hidden, host = case["places"]
    assert (hidden["mean"], hidden["n_covering"], hidden["n_within"]) == (pytest.approx(0.125), 1, 1)
    assert hidden["passes"]
    assert (host["mean"], host["n_covering"], host["n_within"]) == (pytest.approx(0.8), 1, 1)
    assert not host["passes"]
    assert case["wall_ratio"] == pytest.approx(1.05)
    assert case["cost_passes"]
    assert as_table([case]).count("FAIL") == 1


def test_the_sum_of_a_serial_job_may_be_a_fifth_off():
    (case,) = summary(CASES, [ran(SERIAL, "probed", sum="0.81")], [])
    (total,) = case["places"]
    assert total["place"] == "sum"
    assert total["passes"]


@pytest.mark.parametrize("changes", [{"cost": "0.051"}, {"output": "another"}], ids=["cost", "output"])
def test_a_dear_probe_or_another_output_fails(changes):
    found = summary(CASES, [ran(HIDDEN, "plain"), ran(HIDDEN, "probed", **changes)], [])
    assert as_table(found).count("FAIL") == 1


def test_of_a_repeat_that_was_stopped_the_last_slope_counts():
    slopes = [slope(HIDDEN, "input", 0.9), slope(HIDDEN, "input", 0.1)]
    (case,) = summary(CASES, [ran(HIDDEN, "probed")], slopes)
    assert [one["mean"] for one in case["places"]] == [0.1]


def test_times_are_no_part_of_what_a_job_printed():
    row = {"final_loss": 4.5, "steps_timed": 2, "step_mean_ms": 3.1, "samples_per_s": 9.5, "step_ms": [3.0, 3.2]}
    later = row | {"step_mean_ms": 4.1, "samples_per_s": 8.5, "step_ms": [4.0, 4.2]}
    assert run.fingerprint(json.dumps(row)) == run.fingerprint(json.dumps(later))
    assert run.fingerprint(json.dumps(row)) != run.fingerprint(json.dumps(row | {"final_loss": 4.500001}))


def test_every_case_has_the_steps_of_a_default_probe():
    for case in CASES:
        given = case.command[case.command.index("--steps") + 1] if "--steps" in case.command else case.command[2]
        assert int(given) > SETTLING + BEFORE + 400 + AFTER


def test_a_run_that_is_in_the_table_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs.csv")
    kept = []
    monkeypatch.setattr(run, "_keep_run", lambda case, repeat, arm, order: kept.append((case.name, repeat, arm)))
    (tmp_path / "runs.csv").write_text(f'case,repeat,arm\n"{HIDDEN.name}",0,plain\n')
    run.measure((HIDDEN,), 2)
    assert sorted(kept) == [(HIDDEN.name, 0, "probed"), (HIDDEN.name, 1, "plain"), (HIDDEN.name, 1, "probed")]
