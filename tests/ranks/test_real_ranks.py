"""Real multi-rank sets: everything matches, sizes agree, and the stragglers are those their provenance states."""

from pathlib import Path

import numpy as np
import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.ranks.align.match_types import Method
from profkit.ranks.measure.fingerprints import communication_limit, only_work, traffic
from profkit.ranks.measure.stragglers import find_stragglers
from profkit.ranks.reduce.summary import summarise
from profkit.ranks.run.store import PackedSummary
from profkit.timeline import Facts
from tests.ranks.simulate import measured


def ranks_of(folder: Path, pattern: str):
    files = sorted(folder.glob(pattern))
    if not files:
        pytest.skip(f"no {pattern} here")
    return [PackedSummary.of(summarise(Facts.of(read_trace(str(path))))).unpacked() for path in files]


def analysed(summaries):
    matching, _, waits = measured(summaries)
    return matching, waits, find_stragglers(waits, summaries)


def check_sizes(matching, summaries):
    by_rank = {summary.rank: summary for summary in summaries}
    for match in matching.groups:
        for name in ("kind", "in_elements", "out_elements"):
            columns = [getattr(by_rank[rank].collectives, name) for rank in match.ranks]
            seen = np.stack([column[rows] for column, rows in zip(columns, match.rows.T, strict=True)], axis=1)
            there = match.rows >= 0
            low = np.where(there, seen, np.iinfo(np.int64).max).min(axis=1)
            assert (low == np.where(there, seen, np.iinfo(np.int64).min).max(axis=1)).all()


def everything(summaries):
    matching, waits, found = analysed(summaries)
    check_sizes(matching, summaries)
    assert all(set(match.n_unmatched) == {0} for match in matching.groups)
    assert matching.refusals == ()
    for group, answer in zip(waits, found, strict=True):
        assert (group.wait_ns >= 0).all()
        assert communication_limit(group).wait_fraction <= 1
        assert sum(row.share for row in traffic(group, summaries)) == pytest.approx(1.0)
        assert not any(row.is_suspect for row in traffic(group, summaries))
        for straggler in answer.named:
            only_work(straggler, group, summaries)
    return matching, waits, found


@pytest.mark.shared
def test_megatron_has_two_stragglers(shared_traces):
    summaries = ranks_of(shared_traces, "megatron-tp8-8xA100/*.json.gz")
    (match,), (waits,), (found,) = _unpacked(everything(summaries))
    assert match.method is Method.ENDS
    assert match.rows.shape == (84, 8)
    assert {straggler.rank: straggler.phase for straggler in found.named} == {0: "host", 6: "host"}
    # 167 and 135 ms after the second last, of which what the rank did itself is within 2 ms
    assert [straggler.excess_ns / 1e6 for straggler in found.named] == pytest.approx([167, 135], abs=2)
    assert waits.uses_clocks
    assert not waits.is_disputed
    assert communication_limit(waits).is_skew


@pytest.mark.shared
def test_megatron_with_a_rank_missing(shared_traces):
    summaries = [rank for rank in ranks_of(shared_traces, "megatron-tp8-8xA100/*.json.gz") if rank.rank != 3]
    _, _, (found,) = analysed(summaries)
    assert {straggler.rank for straggler in found.named} == {0, 6}
    assert "1 of 8 ranks are missing" in found.limits[0]


@pytest.mark.shared
def test_dlrm_has_no_single_straggler(shared_traces):
    summaries = ranks_of(shared_traces, "param-et-replay/dlrm_kineto/*.json.gz")
    (match,), (waits,), (found,) = _unpacked(everything(summaries))
    assert match.rows.shape == (8, 8)
    assert found.named == ()
    assert np.bincount(waits.arrival_ns.argmax(axis=1), minlength=8)[7] == 5


@pytest.mark.shared
def test_llama_waits_for_rank_1(shared_traces):
    summaries = ranks_of(shared_traces, "tokenomics-llama-tp2/*layers?_with_annotations.json.gz")
    (match,), (waits,), _ = _unpacked(everything(summaries))
    assert match.rows.shape == (19, 2)
    assert waits.wait_ns[:, 0].sum() > 50 * waits.wait_ns[:, 1].sum()
    assert not communication_limit(waits).is_skew  # dominated by transfer all the same


@pytest.mark.shared
@pytest.mark.parametrize(
    "pattern",
    [
        "tokenomics-llama-tp2/*-trace?.json.gz",
        "cpu_captures/gloo_ddp.*.json.gz",
        "cpu_captures/gloo_fsdp2.*.json.gz",
        "cpu_captures/zerocode_ddp__*.json.gz",
    ],
)
def test_pairs_of_ranks_match_and_blame_nobody(shared_traces, pattern):
    _, _, (found,) = everything(ranks_of(shared_traces, pattern))
    assert found.named == ()


@pytest.mark.parametrize("name", ["fsdp_vlm_prefetch_off", "fsdp_vlm_prefetch_on"])
def test_our_own_two_ranks(traces, name):
    summaries = ranks_of(traces / name, "*.json.gz")
    (match,), _, (found,) = _unpacked(everything(summaries))
    assert match.rows.shape == (30, 2)
    assert found.named == ()


def _unpacked(result):
    matching, waits, found = result
    return matching.groups, waits, found
