"""Token skew and padding, on ranks whose time is made from their tokens."""

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.model.finding import Skipped
from profkit.ranks.measure.tokens import Level, padding_waste, step_tokens, token_skew
from tests.ranks.simulate import TRANSFER, Job, measured, simulate

NS_PER_TOKEN = 10_000
SAMPLES = 8


def job(tokens, *, padded=None, level="tokens", seed=0):
    """Give ranks that compute 10 us per padded token before each step's only collective; `tokens` [S, R]."""
    tokens = np.asarray(tokens)
    padded = tokens if padded is None else np.asarray(padded)
    n_steps, n_ranks = tokens.shape
    extra = padded * NS_PER_TOKEN
    out = []
    for summary in simulate(
        Job(n_ranks=n_ranks, n_steps=n_steps, n_buckets=1, jitter=0.001, seed=seed, has_seq=True)
    ).summaries:
        late = extra - extra.min(axis=1, keepdims=True)
        waited = late.max(axis=1) - late[:, summary.rank]
        rows = summary.collectives
        grown = np.cumsum(extra.max(axis=1))
        end = rows.end_ns + grown
        start = np.minimum(end - TRANSFER - waited, end)
        phase = summary.steps.phase_ns.copy()
        phase[:, 1] += extra[:, summary.rank]
        begin = summary.steps.start_ns + np.append(0, grown[:-1])
        counts = {"tokens": tokens[:, summary.rank], "padded_tokens": padded[:, summary.rank]}
        if level == "embedded":
            counts = {"embedded": padded[:, summary.rank]}
        steps = replace(
            summary.steps,
            start_ns=begin,
            end_ns=np.append(begin[1:], end[-1]),
            phase_ns=phase,
            samples=np.full(n_steps, 0 if level == "embedded" else SAMPLES),
            **counts,
        )
        out.append(replace(summary, steps=steps, collectives=replace(rows, start_ns=start, ready_ns=start, end_ns=end)))
    return out


def skew_of(summaries):
    return token_skew(summaries, measured(summaries)[2])


def lengths(n_steps, n_ranks, *, seed=0):
    return np.random.default_rng(seed).integers(600, 1400, (n_steps, n_ranks))


@pytest.mark.parametrize("level", ["tokens", "embedded"])
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_skew_is_found_with_what_it_costs(n_ranks, level):
    tokens = lengths(12, n_ranks)
    found = skew_of(job(tokens, level=level))
    assert found.is_found
    assert found.level is (Level.COUNTED if level == "tokens" else Level.ESTIMATED)
    assert found.skew_fraction == pytest.approx((tokens.max(axis=1) / tokens.mean(axis=1) - 1).mean())
    assert found.correlation > 0.95
    assert found.p_value < 0.01
    assert found.ns_per_token == pytest.approx(NS_PER_TOKEN, rel=0.01)
    assert found.explained_fraction > 0.99
    assert found.recoverable_ns == pytest.approx(
        (tokens.max(axis=1) - tokens.mean(axis=1)).mean() * NS_PER_TOKEN, rel=0.01
    )
    worst = (tokens.max(axis=1) / tokens.mean(axis=1)).argmax()
    assert found.largest == (worst, tokens[worst].argmax(), tokens[worst].max())
    assert found.is_rotating


def test_a_rank_that_always_has_more_does_not_rotate():
    tokens = lengths(12, 4)
    tokens[:, 2] += 900
    found = skew_of(job(tokens))
    assert found.is_found
    assert found.rotation == 0.0


def test_equal_tokens_are_no_skew():
    found = skew_of(job(np.full((12, 4), 1024)))
    assert not found.is_found
    assert found.skew_fraction == 0.0
    assert "0.0 % more than the mean" in found.reason
    assert found.recoverable_ns == 0


def test_tokens_that_do_not_order_the_waiting():
    """The counts of one rank belong to another: unequal all the same, but they explain nothing."""
    tokens = lengths(12, 4)
    ranks = job(tokens)
    told = [replace(s, steps=replace(s.steps, **other(ranks, s))) for s in ranks]
    found = skew_of(told)
    assert not found.is_found
    assert "Spearman" in found.reason


def other(ranks, summary):
    steps = ranks[(summary.rank + 1) % len(ranks)].steps
    return {"tokens": steps.tokens, "padded_tokens": steps.padded_tokens}


def test_few_steps_say_so():
    assert "5 steps" in skew_of(job(lengths(5, 4))).reason
    assert "chance" in skew_of(job(lengths(6, 2))).reason  # two ranks in order six times: 1 of 64


def test_without_counts_it_is_skipped_with_the_way_out():
    ranks = simulate(Job()).summaries
    for answer in (step_tokens(ranks), skew_of(ranks), padding_waste(ranks)):
        assert isinstance(answer, Skipped)
        assert "capture.step(tokens=" in answer.how_to_get
    partly = [replace(ranks[0], steps=replace(ranks[0].steps, tokens=np.full(12, 9))), *ranks[1:]]
    assert "on every rank" in step_tokens(partly).reason


def test_without_collectives_nobody_waited():
    assert "no collective" in token_skew(job(lengths(12, 2)), ()).reason


def test_padding_waste():
    padded = np.full((12, 4), 2048)
    tokens = np.full((12, 4), 1229)
    ranks = job(tokens, padded=padded)
    found = padding_waste(ranks)
    assert found.is_found
    assert found.waste_fraction == pytest.approx(1 - 1229 / 2048)
    assert (found.tokens, found.padded_tokens, found.n_steps) == (tokens.sum(), padded.sum(), 12)
    compute = np.max([summary.steps.phase_ns[:, 1] for summary in ranks], axis=0).mean()
    assert found.compute_ns == pytest.approx(compute, abs=1)
    assert found.recoverable_ns == pytest.approx(compute * found.waste_fraction, rel=1e-4)
    spent_ns = np.median([(summary.steps.end_ns - summary.steps.start_ns).sum() for summary in ranks])
    assert found.tokens_per_s == pytest.approx(tokens.sum() / spent_ns * 1e9)


def test_little_padding_is_no_finding():
    found = padding_waste(job(np.full((12, 2), 1000), padded=np.full((12, 2), 1006)))
    assert not found.is_found
    assert "0.6 %" in found.reason


def test_padding_that_cannot_be_known():
    tokens = lengths(12, 2)
    assert "padded tokens only" in padding_waste(job(tokens, level="embedded")).reason
    assert "must count all tokens" in padding_waste(job(tokens, padded=tokens // 2)).reason
    ranks = [replace(s, steps=replace(s.steps, padded_tokens=np.zeros(12, np.int64))) for s in job(tokens)]
    assert "missing" in padding_waste(ranks).reason
    assert skew_of(ranks).is_found  # what is not padded is what was computed on


def test_steps_that_one_rank_misses_are_left_out():
    ranks = job(lengths(12, 2))
    steps = ranks[1].steps
    ranks[1] = replace(ranks[1], steps=steps.take(np.arange(2, 12)))
    rows = ranks[1].collectives
    ranks[1] = replace(ranks[1], collectives=replace(rows, step=np.maximum(rows.step - 2, -1)))
    assert step_tokens(ranks).number.tolist() == list(range(2, 12))
    assert skew_of(ranks).is_found


def test_steps_of_nearly_equal_tokens_do_not_hide_the_others():
    """Half of the steps differ by a token or two, and there it is noise who waits; in the others it is the tokens."""
    tokens = np.array([[1000, 1001], [700, 1400], [1001, 1000], [1500, 800], [999, 1001], [1300, 600]] * 2)
    ranks = job(tokens)
    rows = ranks[1].collectives
    late = np.where(np.arange(12) % 2 == 0, 1_000_000, 0)  # whatever its tokens: a millisecond more waiting
    ranks[1] = replace(ranks[1], collectives=replace(rows, start_ns=rows.start_ns - late))
    found = skew_of(ranks)
    assert found.correlation > 0.8
    assert found.is_found


def test_ties_share_their_place():
    tokens = np.tile([500, 500, 800, 800], (12, 1))
    assert skew_of(job(tokens)).correlation == pytest.approx(1.0, abs=0.15)


def test_a_rank_that_could_not_be_matched_counts_for_nothing():
    """It waited somewhere, but where is not known: without it the others say the same."""
    ranks = job(lengths(12, 4))
    found = token_skew(ranks, measured(ranks[:3])[2])
    assert found.is_found
    assert found.n_ranks == 3
    assert found.correlation > 0.95
