"""Which changes a verdict speaks for, with which arguments, and what it predicts of them."""

import pytest
from msgspec.structs import replace

import profkit
from profkit.errors import UsageError
from profkit.findings.communication import EXPOSED
from profkit.trial.choose import chosen, settling
from profkit.verdict.on_cpu import BEYOND_SHARED, most_share
from tests.conftest import ROOT
from tests.trial.drawn import a_run


def triaged(name):
    return profkit.triage(ROOT / "traces" / f"{name}.pt.trace.json.gz")


@pytest.fixture(scope="module")
def data():
    return triaged("data_cpu")


def by_key(candidates):
    return {one.change.key: one for one in candidates}


def test_a_starved_job_gets_workers_and_one_batch(data):
    found = chosen(data, a_run(), [], with_ablations=True)
    assert [one.change.key for one in found] == ["workers", "one_batch"]
    workers, bound = found
    assert workers.how == {"n_workers": 2}
    assert workers.keep == "DataLoader(..., num_workers=2)"
    share = data.verdict.recoverable_ns / data.verdict.step_ns
    assert bound.predicted == pytest.approx((0.8 * share, most_share(share)))
    low, high = workers.predicted
    assert high == pytest.approx(1 - share / 2)  # two workers, each fetching every second batch
    assert low == pytest.approx(1 - max(share / 2, 1 / 2) - 0.05)
    assert settling(found, a_run()) == 3 + 4 + 2 + 1


def test_fewer_ablations_where_none_are_wanted(data):
    assert [one.change.key for one in chosen(data, a_run(), [], with_ablations=False)] == ["workers"]


def test_with_workers_there_are_more_of_them_and_more_batches(data):
    found = by_key(chosen(data, a_run(n_workers=2, n_queued=4), [], with_ablations=False))
    assert found["workers"].how == {"n_workers": 4}
    assert found["prefetch"].how == {"prefetch_factor": 4}
    assert found["workers"].predicted[0] == 0


def test_what_is_asked_for_is_tried_in_that_order_whatever_the_verdict_says(data):
    found = chosen(data, a_run(), ["compile", "tf32", "workers", "compile"], with_ablations=True)
    assert [one.change.key for one in found] == ["compile", "tf32", "workers"]
    assert by_key(found)["tf32"].why_not == "the run does not use CUDA"
    with pytest.raises(UsageError, match="there is no change 'turbo'"):
        chosen(data, a_run(), ["turbo"], with_ablations=True)


def test_an_overhead_bound_job_is_compiled_and_that_may_fuse_more_than_the_ceiling_says():
    report = triaged("overhead_cpu")
    found = by_key(chosen(report, a_run(), [], with_ablations=True))
    low, high = found["compile"].predicted
    assert low == 0
    assert high >= report.verdict.recoverable_ns / report.verdict.step_ns
    assert found["fused"].predicted == pytest.approx((0.0, 0.1))  # the optimizer's part of the step


def test_contention_predicts_nothing_of_more_threads(data):
    finding = replace(data.findings[0], id="host.contention", recoverable_ns=data.verdict.step_ns // 10)
    crowded = replace(data, findings=(*data.findings, finding))
    (more,) = chosen(crowded, a_run(), ["threads"], with_ablations=False)
    (fewer,) = chosen(crowded, a_run(n_threads=8), ["threads"], with_ablations=False)
    assert more.predicted == (0.0, 0.5)
    assert fewer.predicted == pytest.approx((0.0, most_share(0.1)), rel=1e-6)


def test_what_ranks_do_together_takes_more_from_the_rest_of_the_step(data):
    finding = replace(data.findings[0], id=EXPOSED.id, recoverable_ns=data.verdict.step_ns // 10)
    of_ranks = replace(data, findings=(finding,), verdict=replace(data.verdict, findings=()))
    (bucket,) = chosen(of_ranks, a_run(), ["ddp_bucket"], with_ablations=False)
    assert bucket.predicted == pytest.approx((0.0, 0.1 * (1 + BEYOND_SHARED)), rel=1e-6)


def test_idle_cores_are_worth_a_trial_where_the_work_itself_takes_the_step(data):
    report = triaged("kernel_cpu")
    found = by_key(chosen(report, a_run(), [], with_ablations=True))
    assert found["threads"].how == {"n_threads": 2}
    assert found["threads"].predicted == (0.0, 0.5)
    assert "threads" not in by_key(chosen(report, a_run(n_threads=2), [], with_ablations=True))
    assert "threads" not in by_key(chosen(data, a_run(), [], with_ablations=True))


def test_idle_cores_that_a_finding_names_are_worth_a_trial(data):
    finding = replace(data.findings[0], id="host.idle_cores", recoverable_ns=data.verdict.step_ns // 5)
    beside = replace(data, findings=(*data.findings, finding))
    assert "threads" in by_key(chosen(beside, a_run(), [], with_ablations=False))
