"""What one rank alone does now and then while the others wait: one cause, and twins that are none."""

from typing import Any

import pytest

from profkit.api import triage
from profkit.model.documents.report import Bottleneck, Report
from profkit.testing import operator, span, to_json
from tests.analyzers.test_whole_run import MS, RARE, RUN
from tests.ranks.scripted import of

EVALUATES = {"file": "train.py", "line": 8, "function": "evaluate", "text": "score.update(net(x), y)", "share": 0.96}
SAVES = {"file": "train.py", "line": 31, "function": "keep", "text": "torch.save(state, path)", "share": 0.96}
WAITS = {"file": "train.py", "line": 43, "function": "main", "text": "dist.barrier()", "share": 0.96}
STEPS_ON = {"file": "train.py", "line": 44, "function": "main", "text": "queue.put(step)", "share": 0.96}


def report_of(folder: Any, *lines: dict[str, Any], others: tuple[Any, ...] = (), **waiting: Any) -> Report:
    """CPU ranks, each with its rare line and another one; `waiting` is of the last rank alone."""
    for rank, line in enumerate(lines):
        rows = []
        for step in range(12):
            at = 10**9 + step * 32 * MS
            rows.append(span(f"ProfilerStep#{step}", at, at + 32 * MS))
            rows += [operator("aten::mm", at + part * 4 * MS, at + (part + 1) * 4 * MS - 1000) for part in range(7)]
            rows.append(operator("c10d::allreduce_", at + 28 * MS, at + 28 * MS + 9000))
            rows.append(span("gloo:all_reduce", at + 28 * MS + 9000, at + 31 * MS, tid=99))
        rare = {
            **RARE,
            "way": "",
            "callee": "",
            "lines": [line, *others[rank : rank + 1]],
            **(waiting if rank == len(lines) - 1 else {}),
        }
        told = {
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": len(lines)},
            "profkit_run": {**RUN, "rare": rare},
        }
        (folder / f"rank{rank}.pt.trace.json").write_bytes(to_json(rows, metadata=told))
    return triage(folder)


def test_ranks_at_the_same_two_lines_do_not_wait_for_one(tmp_path: Any) -> None:
    """A penalty every so many steps: which of its lines has most of the looks is chance."""
    grad = {"file": "train.py", "line": 20, "function": "penalty", "text": "g, = torch.autograd.grad(y, x)"}
    loss = {"file": "train.py", "line": 50, "function": "main", "text": "loss.backward()"}
    first, second = ({**grad, "share": 0.5}, {**loss, "share": 0.4}), ({**loss, "share": 0.5}, {**grad, "share": 0.4})
    report = report_of(tmp_path, first[0], second[0], others=(first[1], second[1]))
    assert not of(report, "straggler.rare")


@pytest.mark.parametrize(("own", "saved"), [(EVALUATES, 0.1), (SAVES, 0.2)])
def test_a_rare_wait_for_one_rank_s_rare_work_is_that_rank_s(tmp_path: Any, own: Any, saved: float) -> None:
    """An evaluation can be shared, so that half of it stays with each of two ranks; a save is left out."""
    report = report_of(tmp_path, own, WAITS)
    (one,) = of(report, "straggler.rare")
    assert report.verdict.bottleneck is Bottleneck.STRAGGLER
    assert report.verdict.rank == 0
    assert f"every 10 steps rank 0 alone works at train.py:{own['line']}" in report.verdict.headline
    assert "while rank 1 waits at train.py:43 in main(): dist.barrier()" in report.verdict.headline
    assert one.fraction == pytest.approx(saved)
    assert one.recoverable_ns == pytest.approx(saved * 40 * MS, rel=0.01)
    assert one.most_recoverable_ns >= 0.2 * 40 * MS
    assert report.verdict.step_ns == pytest.approx(40 * MS, rel=0.01)
    assert [share.place.line for share in one.places] == [own["line"]]
    assert not {"host.rare", "host.other_steps"} & {one.id for one in report.findings}


def test_of_three_ranks_it_need_not_be_the_first(tmp_path: Any) -> None:
    (one,) = of(report_of(tmp_path, WAITS, EVALUATES, WAITS), "straggler.rare")
    assert one.rank == 1
    assert "while 2 ranks wait at" in one.title


@pytest.mark.parametrize(
    ("lines", "waiting"),
    [
        ((EVALUATES, EVALUATES), {}),
        ((WAITS, WAITS), {}),
        ((EVALUATES, STEPS_ON), {}),
        ((EVALUATES, {**STEPS_ON, "text": "q = values.gather(1, actions)"}), {}),
        ((EVALUATES, {**WAITS, "function": "collect_rollout"}), {}),
        ((EVALUATES, WAITS), {"n": 3}),
        ((EVALUATES, WAITS), {"long_ns": 60 * MS}),
        ((EVALUATES, WAITS), {"share": 0.05}),
    ],
    ids=["all evaluate", "all wait", "none waits", "indexes", "collects", "more seldom", "shorter", "little"],
)
def test_other_rare_steps_are_no_wait_for_one_rank(tmp_path: Any, lines: Any, waiting: Any) -> None:
    assert not of(report_of(tmp_path, *lines, **waiting), "straggler.rare")
