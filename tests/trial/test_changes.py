"""What each change does to a run, what it leaves alone, and why it is not made."""

import json
import math
import subprocess
import sys

import pytest

from profkit.capture.inside.trial.changes import names
from profkit.findings import KINDS
from profkit.trial.catalogue import CATALOGUE
from tests.capture.running import ENVIRONMENT
from tests.conftest import ROOT

pytestmark = pytest.mark.torch

TRIED = (
    ("", "plain"),
    ("workers", "plain"),
    ("workers", "stream"),
    ("prefetch", "plain"),
    ("prefetch", "workers"),
    ("persistent", "workers"),
    ("bf16", "plain"),
    ("channels_last", "plain"),
    ("fused", "plain"),
    ("foreach", "plain"),
    ("no_gc", "plain"),
    ("threads", "plain"),
    ("one_batch", "plain"),
    ("one_batch", "epochs"),
    ("fp32", "plain"),
    ("fp32", "double"),
    ("flush_denormal", "plain"),
    ("no_grad", "plain"),
    ("no_grad", "teacher"),
    ("", "teacher"),
    ("no_item", "plain"),
    ("no_saves", "plain"),
    ("no_collectives", "plain"),
    ("ddp_view", "plain"),
)


@pytest.fixture(scope="module")
def runs():
    lines = "".join(json.dumps(pair) + "\n" for pair in TRIED)
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "trial" / "forked.py")],
        input=lines,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(TRIED), done.stderr
    return dict(zip(TRIED, rows, strict=True))


def test_the_catalogue_and_the_process_know_the_same_changes():
    assert set(names()) == set(CATALOGUE)
    assert {key for kind in KINDS.values() for key in kind.tries} == set(CATALOGUE)


def test_an_unchanged_run_is_seen_as_it_is(runs):
    plain = runs["", "plain"]
    record = plain["record"]
    assert not record["reason"]
    assert not record["done"]
    assert len(record["steps"]) == 5  # of six: the last one is ended by no other fetch
    assert [float(loss) for loss in record["losses"]] == plain["losses"]
    assert plain["is_put_back"]
    seen = {"has_convolutions": True, "is_ddp": False, "is_fsdp": False, "has_fused": True, "has_foreach": True}
    seen["has_fp64"] = False
    assert record["traits"] == seen
    assert not runs["fused", "plain"]["record"]["traits"]["has_fused"]
    for duration_ns, *parts, n_loads, _ in record["steps"]:
        assert duration_ns == sum(parts)
        assert n_loads == 1


@pytest.mark.parametrize(
    "pair", [("workers", "plain"), ("prefetch", "workers"), ("persistent", "workers"), ("no_gc", "plain")]
)
def test_changes_of_no_number_leave_every_loss_as_it_is(runs, pair):
    assert runs[pair]["record"]["done"]
    assert runs[pair]["losses"] == runs["", "plain"]["losses"]


@pytest.mark.parametrize("name", ["bf16", "channels_last", "fused", "foreach", "threads"])
def test_changes_of_rounding_train_the_same(runs, name):
    changed = runs[name, "plain"]
    assert changed["record"]["done"]
    for loss, other in zip(changed["losses"], runs["", "plain"]["losses"], strict=True):
        assert math.isclose(loss, other, rel_tol=0.05 if name == "bf16" else 1e-4)
    if name == "bf16":  # with weights that were cast once and for all the losses would leave those of the plain run
        assert changed["losses"] != runs["", "plain"]["losses"]


@pytest.mark.parametrize(
    ("pair", "fact", "value"),
    [
        (("workers", "plain"), "n_workers", 2),
        (("channels_last", "plain"), "is_channels_last", True),
        (("fused", "plain"), "fused", True),
        (("foreach", "plain"), "foreach", True),
        (("foreach", "plain"), "fused", False),
        (("no_gc", "plain"), "gc", False),
        (("threads", "plain"), "threads", 2),
        (("", "plain"), "threads", 1),
        (("", "plain"), "gc", True),
        (("", "plain"), "fused", False),
    ],
)
def test_the_change_is_in_the_run(runs, pair, fact, value):
    assert runs[pair][fact] == value


def test_an_ablation_leaves_its_work_out(runs):
    assert runs["one_batch", "plain"]["record"]["done"]
    assert len(runs["one_batch", "plain"]["losses"]) == 6  # an epoch is as long as before
    assert runs["no_item", "plain"]["losses"][1:] == runs["no_item", "plain"]["losses"][:1] * 5
    assert "1 line" in runs["no_item", "plain"]["record"]["done"]
    assert runs["no_saves", "plain"]["record"]["done"]


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (("workers", "stream"), "the dataset is iterable: each worker would yield all of it"),
        (("prefetch", "plain"), "the DataLoader has no workers"),
        (("no_collectives", "plain"), "the run came by nothing that it changes"),
        (("ddp_view", "plain"), "the run made no DistributedDataParallel"),
    ],
)
def test_what_cannot_be_made_says_why(runs, pair, why):
    record = runs[pair]["record"]
    assert not record["done"]
    assert record["why_not"] == why
    assert not record["reason"]


def test_one_batch_serves_all_epochs(runs):
    ran = runs["one_batch", "epochs"]
    assert len(ran["losses"]) == 12
    assert ran["record"]["done"] == "the first batch is used for all steps"


def test_a_model_in_double_precision_runs_in_single(runs):
    assert runs["fp32", "double"]["needed"] == [False] * 6
    assert runs["fp32", "double"]["record"]["done"] == "weights and inputs float64 -> float32"
    assert runs["fp32", "plain"]["record"]["why_not"] == "the model has no weights in double precision"


def test_gradients_end_where_no_backward_pass_reads_them(runs):
    ran = runs["no_grad", "teacher"]
    assert ran["needed"] == [True, True, False, False, False, False]
    assert ran["losses"] == runs["", "teacher"]["losses"]
    assert ran["record"]["done"] == "torch.no_grad() around Linear"
    assert not runs["no_grad", "plain"]["record"]["done"]


def test_subnormal_numbers_are_taken_for_zero(runs):
    ran = runs["flush_denormal", "plain"]
    assert ran["record"]["done"] == "subnormal numbers are taken for zero"
    assert ran["losses"] == pytest.approx(runs["no_gc", "plain"]["losses"])
