"""Bubbles of pipelines whose schedule says how large they are."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.ranks.align.match import matched
from profkit.ranks.measure.pipelines import pipeline_bubbles
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from tests.ranks.pipeline import MS, in_one_group, pipeline
from tests.ranks.simulate import Job, simulate


def bubbles_of(summaries):
    return pipeline_bubbles(summaries, matched(summaries))


@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 6), (4, 8), (4, 2)])
def test_the_bubble_is_what_the_schedule_leaves(kind, p, m):
    (found,) = bubbles_of(pipeline(kind, p=p, m=m))
    assert [stage.rank for stage in found.stages] == list(range(p))
    assert (found.n_microbatches, found.n_chunks) == (m, 1)
    assert found.theoretical_fraction == pytest.approx((p - 1) / (m + p - 1))
    assert found.observed_fraction == pytest.approx(found.theoretical_fraction)
    assert found.step_ns == 3 * (m + p - 1) * MS
    assert found.doubled_fraction == pytest.approx((p - 1) / (2 * m + p - 1))
    assert found.imbalance == 1.0
    assert 0 < found.waiting_fraction <= found.observed_fraction


@pytest.mark.parametrize(("p", "m", "v"), [(3, 4, 2), (4, 8, 2), (4, 6, 3)])
def test_chunks_that_go_round(p, m, v):
    (found,) = bubbles_of(pipeline(p=p, m=m, v=v))
    assert [stage.rank for stage in found.stages] == list(range(p))
    assert (found.n_microbatches, found.n_chunks) == (m, v)
    assert found.observed_fraction == pytest.approx((p - 1) / (m * v + p - 1))


def test_stages_of_one_group_with_named_peers():
    plain = pipeline("1f1b", p=4, m=8)
    assert bubbles_of([in_one_group(summary) for summary in plain]) == bubbles_of(plain)


def test_a_long_last_stage_is_imbalance_not_bubble():
    (found,) = bubbles_of(pipeline("1f1b", p=4, m=8, lengths=[1, 1, 1, 2]))
    assert found.imbalance == pytest.approx(2 / 1.25)
    assert found.busiest.rank == 3
    assert found.observed_fraction - found.theoretical_fraction > 0.2
    assert found.recoverable_ns == pytest.approx(found.waiting_fraction * found.step_ns, abs=1)
    assert found.stages[3].busy_ns == 8 * 6 * MS


def test_more_microbatches_do_what_the_doubled_theory_says():
    (few,), (many,) = bubbles_of(pipeline(p=4, m=8)), bubbles_of(pipeline(p=4, m=16))
    assert many.observed_fraction == pytest.approx(few.doubled_fraction)


def test_collectives_are_no_pipeline():
    assert bubbles_of(simulate(Job()).summaries) == ()


def test_an_exchange_is_no_pipeline():
    """Both send at once, as in ring attention: nothing comes back that waits for what went there."""
    ranks = []
    for summary in pipeline(p=2, m=4):
        rows = summary.collectives
        order = np.argsort(rows.kind == CollectiveKind.RECV, kind="stable")
        start = np.sort(rows.start_ns)
        ranks.append(replace(summary, collectives=replace(rows.take(order), start_ns=start, end_ns=start + 1000)))
    assert bubbles_of(ranks) == ()


def test_microbatches_that_vary_have_no_theory():
    """The last of three steps sends two more each way."""
    ranks = []
    for summary in pipeline(p=2, m=4, n_steps=2):
        step = summary.collectives.step.copy()
        step[-5:] = 1
        step[:-5] = 0
        ranks.append(replace(summary, collectives=replace(summary.collectives, step=step)))
    (found,) = bubbles_of(ranks)
    assert found.n_microbatches is None
    assert found.theoretical_fraction is None
    assert found.observed_fraction == pytest.approx(1 / 5)


def test_two_pipelines_beside_each_other():
    one = pipeline(p=2, m=4)
    other = [
        replace(
            summary,
            rank=summary.rank + 2,
            groups=tuple(replace(group, name="other", ranks=(2, 3)) for group in summary.groups),
        )
        for summary in pipeline(p=2, m=8)
    ]
    found = bubbles_of([*one, *other])
    assert [(len(each.stages), each.n_microbatches) for each in found] == [(2, 4), (2, 8)]


def test_waiting_between_steps_is_no_part_of_them():
    """Steps may leave time between them: a marker around the first tenth of each, the rest beside it."""
    ranks = []
    for summary in pipeline("1f1b", p=4, m=8):
        steps = summary.steps
        end = steps.start_ns + (steps.end_ns - steps.start_ns) // 10
        short = replace(steps, end_ns=end, phase_ns=np.minimum(steps.phase_ns, (end - steps.start_ns)[:, None] // 4))
        ranks.append(replace(summary, steps=short))
    (found,) = bubbles_of(ranks)
    assert all(0 <= stage.waiting_fraction <= 1 for stage in found.stages)
    assert found.recoverable_ns <= found.step_ns
