"""A CPU rank that is late because it has more to do: more operators or larger inputs, and what only looks so."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.ranks.reduce.records import NameRows
from profkit.ranks.reduce.summary import first_inputs
from profkit.testing import operator, span, to_json, trace_of
from profkit.verdict.on_cpu import BEYOND_SHARED
from tests.ranks.simulate import MS, Job, simulate, stragglers_of

NAMES = ("aten::mm", "aten::sigmoid_backward", "aten::log")


def late(*counts, inputs=None, phase="host", is_cpu=True):
    """Rank 1 of two is 5 ms late in a phase; by rank how often each of `NAMES` runs in a step, and inputs of layers."""
    ranks = []
    for summary in simulate(Job(seed=7, n_ranks=2, slow={1: (phase, 5 * MS)})).summaries:
        strings = (*summary.strings, *NAMES)
        count = np.array(counts[summary.rank], np.int64) * len(summary.steps)
        work = NameRows(
            name=np.arange(len(summary.strings), len(strings), dtype=np.int32),
            shape=np.zeros(3, np.int64),
            count=count,
            total_ns=count * 1000,
            median_ns=np.full(3, 1000),
        )
        given = inputs[summary.rank] if inputs else ()
        ranks.append(replace(summary, strings=strings, work=work, is_cpu=is_cpu, inputs=given))
    (found,) = stragglers_of(ranks)
    (straggler,) = found.named
    assert straggler.rank == 1
    return straggler


@pytest.mark.parametrize("phase", ["host", "compute"])
def test_more_operators_are_more_work(phase):
    found = late((100, 100, 1), (300, 300, 1), phase=phase)
    assert found.phase == "compute"
    assert found.more.words.startswith("which has more work: 2.99x as many operators")


def test_larger_inputs_are_more_work():
    found = late((100, 100, 1), (100, 100, 1), inputs=[((16, 17), (16, 27)), ((16, 55), (16, 82))])
    assert found.more.words == "which has more work: larger inputs"
    assert found.more.factor == pytest.approx((55 + 82) / (17 + 27))


def test_operators_without_a_backward_pass_are_work_of_its_own():
    larger = [((16, 17),), ((512, 17),)]
    found = late((100, 100, 1), (100, 100, 900), inputs=larger, phase="compute")
    assert found.phase == "compute"
    words = "which does work of its own: 5.47x as many operators, no more of them in the backward pass"
    assert (found.more.words, found.more.is_own) == (words, True)
    assert late((100, 100, 1), (100, 100, 900), inputs=larger).more is None, "it is not operators that take long"


@pytest.mark.parametrize(
    ("counts", "more"),
    [
        ([(100, 100, 1), (100, 100, 1)], {}),
        ([(100, 100, 1), (100, 100, 900)], {}),
        ([(100, 100, 1), (300, 300, 1)], {"is_cpu": False}),
        ([(100, 100, 1), (300, 300, 1)], {"phase": "data"}),
        ([(100, 100, 1), (100, 100, 1)], {"inputs": [((16, 20),), ((16, 21),)]}),
        ([(100, 100, 1), (100, 100, 1)], {"inputs": [(), ((16, 99),)]}),
    ],
    ids=["as much", "what it alone logs", "a GPU's host", "waits for data", "inputs alike", "unknown inputs"],
)
def test_what_is_not_more_work(counts, more):
    assert late(*counts, **more).more is None


def test_the_first_layer_tells_how_large_a_batch_is():
    rows = []
    for step, length in enumerate((17, 55)):
        at = 10**9 + step * 10 * MS
        rows.append(span(f"ProfilerStep#{step}", at, at + 10 * MS))
        rows.append(operator("aten::embedding", at + MS, at + 2 * MS, **{"Input Dims": [[60, 48], [16, length]]}))
        rows.append(operator("aten::linear", at + 2 * MS, at + 3 * MS, **{"Input Dims": [[16, 48], [3, 48]]}))
    assert first_inputs(trace_of(rows)) == ((16, 17), (16, 55))
    assert first_inputs(trace_of([row for row in rows if "embedding" not in str(row)])) == ((16, 48), (16, 48))
    assert first_inputs(trace_of([span("ProfilerStep#0", 10**9, 10**9 + MS)])) == ()


def unbalanced(folder, *, every, n_steps=20, plain_ms=(10, 10), marks="with the meeting"):
    """Two CPU ranks whose inputs differ: rank 1 takes 4 ms of 9 more in each step, and they meet after each `every`."""
    for rank in (0, 1):
        rows, at, ahead = [], 10**9, 0
        for step in range(n_steps):
            begin, work = at, (9 if rank else 5) * MS
            length = 50 if rank else 20
            rows.append(operator("aten::embedding", at, at + MS // 5, Input_Dims=[[60, 48], [16, length]]))
            rows.append(operator("aten::mm", at + MS // 5, at + work, Input_Dims=[[length, 48], [48, 48]]))
            at, ahead = at + work, ahead + (0 if rank else 4 * MS)
            ends = at
            if step % every == every - 1:
                rows.append(operator("c10d::allreduce_", at + MS // 100, at + MS // 50))
                rows.append(span("gloo:all_reduce", at + MS // 50, at + MS // 2 + ahead, tid=99))
                at, ahead = at + MS // 2 + ahead, 0
            if marks:
                rows.append(span(f"ProfilerStep#{step}", begin, at if marks == "with the meeting" else ends))
        told = {
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2},
            "profkit_unprofiled_step_mean_ns": plain_ms[rank] * MS,
        }
        (folder / f"rank{rank}.pt.trace.json").write_bytes(to_json(rows, metadata=told))
    report = triage(folder)
    return report.verdict, next(one for one in report.findings if one.id == "straggler.rank")


@pytest.mark.parametrize("every", [1, 6])
def test_balanced_work_saves_about_half_of_the_delay_and_at_most_all_of_it(tmp_path, every):
    """Also where ranks meet rarely: what is late behind the last time waits at one that is not recorded."""
    _, one = unbalanced(tmp_path, every=every)
    assert "larger inputs" in one.title
    assert one.recoverable_ns == pytest.approx(2 * MS, rel=0.01)
    assert one.most_recoverable_ns == pytest.approx((1 + BEYOND_SHARED) * 4 * MS, rel=0.01)


def test_the_step_of_a_rank_that_waits_rarely_is_not_that_of_the_job(tmp_path):
    """Its few long steps are no usual ones: rank 0 seems to take 5 ms a step, and the job waits for rank 1."""
    verdict, _ = unbalanced(tmp_path, every=6, plain_ms=(5, 9))
    assert verdict.recorded_step_ns is None
    assert verdict.step_ns == pytest.approx(9 * MS, rel=0.05)


@pytest.mark.parametrize(("marks", "saved_ms"), [("before the meeting", 1.8), ("", 72)], ids=["in no step", "no steps"])
def test_a_delay_at_collectives_in_no_marked_step_is_neither_lost_nor_multiplied(tmp_path, marks, saved_ms):
    """Of 20 steps 18 are before a meeting: half of 4 ms in each where inputs are larger, else all of it."""
    _, one = unbalanced(tmp_path, every=6, marks=marks)
    assert one.recoverable_ns == pytest.approx(saved_ms * MS, rel=0.01)
