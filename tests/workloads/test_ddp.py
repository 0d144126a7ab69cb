"""The DDP lab: a fault changes when work is done and not what, its dose is a flag, and every rank's steps are told."""

import json
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from tests.conftest import IN_FULL  # noqa: E402
from workloads import ddp  # noqa: E402
from workloads.ddp import MODES, Doses, read_doses  # noqa: E402
from workloads.rank_steps import RankSteps, figures, slowest, spread_ns  # noqa: E402

pytestmark = pytest.mark.torch

TINY = ("--json", "--batch=4", "--features=8", "--hidden=8", "--classes=4", "--samples=16", "--steps=6")
SMALL_DOSES = {"straggler": ["--fetch-sleep-ms=2"], "comm": ["--extra-mb=0.01"], "barrier": ["--rank0-ms=2"]}


@pytest.fixture
def run(printed):
    return partial(printed, ddp, *TINY)


def test_a_fault_changes_no_loss_and_the_seed_does(run):
    healthy = run()
    assert healthy["final_loss"] == run()["final_loss"]
    for mode, flags in SMALL_DOSES.items():
        assert run("--mode", mode, *flags)["final_loss"] == healthy["final_loss"]
    assert run("--seed=1")["final_loss"] != healthy["final_loss"]


def test_the_doses_do_what_they_say(run):
    healthy, slow, alone = (
        run(),
        run("--mode=straggler", "--fetch-sleep-ms=15"),
        run("--mode=barrier", "--rank0-ms=15"),
    )
    data = [min(row["ranks"][0]["data_ms"]) for row in (healthy, slow, alone)]
    work = [min(row["ranks"][0]["compute_sync_ms"]) for row in (healthy, slow, alone)]
    assert data[1] >= 15
    assert max(data[0], data[2], work[0], work[1]) < 15  # the least of four steps: a busy machine cannot raise it
    assert work[2] >= 15


def test_only_the_slow_rank_sleeps(run):
    row = run("--mode=straggler", "--fetch-sleep-ms=15", "--slow-rank=1")
    assert min(row["ranks"][0]["data_ms"]) < 15


def test_a_row_holds_what_the_tables_need(run):
    row = run("--skip=1")
    (rank,) = row["ranks"]
    assert len(rank["data_ms"]) == len(rank["compute_sync_ms"]) == row["steps_timed"] == 5
    steps = [data + work for data, work in zip(rank["data_ms"], rank["compute_sync_ms"], strict=True)]
    assert row["slowest_step_ms"] == rank["step_mean_ms"] == pytest.approx(sum(steps) / 5)
    assert row["samples_per_s"] == pytest.approx(4 / row["slowest_step_ms"] * 1e3)
    assert row["rank_spread_ms"] == 0


def test_figures_of_two_ranks():
    ranks = [
        RankSteps(rank=0, data_ns=(10, 20), work_ns=(100, 100)),
        RankSteps(rank=1, data_ns=(1, 1), work_ns=(120, 104)),
    ]
    assert slowest(ranks).rank == 0
    assert spread_ns(ranks) == (11 + 15) / 2
    shown = figures(ranks)
    assert (shown["slowest_step_ms"], shown["steps_timed"]) == (115 / 1e6, 2)
    assert [one["compute_sync_mean_ms"] for one in shown["ranks"]] == [100 / 1e6, 112 / 1e6]


def test_each_fault_is_a_dose_and_no_dose_is_the_healthy_twin():
    for mode, preset in MODES.items():
        assert read_doses(["--mode", mode])[1] == preset
    assert read_doses(["--mode=straggler", "--fetch-sleep-ms=0"])[1] == Doses()
    assert read_doses(["--mode=comm", "--extra-mb=0"])[1] == Doses()
    assert read_doses(["--mode=barrier", "--rank0-ms=0", "--barrier-every=0"])[1] == Doses()


def test_a_run_that_times_nothing_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        read_doses(["--steps=3", "--skip=3"])
    assert ended.value.code == 2
    assert "leaves no step to time" in capsys.readouterr().err


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="as many processes as the straggler of tests/ranks/test_labs.py: make full")
def test_two_ranks_take_different_samples_and_share_what_they_learn(on_two_ranks):
    """Half the batch on each of two ranks has the mean loss over both."""
    row = json.loads(on_two_ranks("workloads.ddp", "--mode=comm", "--extra-mb=0.5", *TINY))
    assert (row["world_size"], row["global_batch"], len(row["ranks"])) == (2, 8, 2)
    assert row["slowest_step_ms"] == max(rank["step_mean_ms"] for rank in row["ranks"])
    assert 0 < row["final_loss"] < 5
