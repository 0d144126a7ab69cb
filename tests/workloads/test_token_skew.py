"""The token lab: plans keep what they promise, packed and padded mean the same, and steps tell their tokens."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from workloads import token_skew  # noqa: E402
from workloads.sequences.model import Classifier, Sizes, packed, padded  # noqa: E402
from workloads.sequences.plans import STRATEGIES, Lengths, Shape, load_of, planned  # noqa: E402

SHAPE = Shape(n_ranks=4, n_steps=20)
LENGTHS = Lengths().drawn(2048, seed=0)
TINY = ("--json", "--hidden=8", "--heads=2", "--vocabulary=32", "--samples=64", "--steps=5", "--batch=2")


@pytest.fixture
def run(printed):
    return partial(printed, token_skew, *TINY)


def loads(strategy):
    lengths = [128] * 2048 if strategy == "uniform" else LENGTHS
    plan = planned(strategy, lengths, SHAPE, seed=0)
    return [[load_of(batch, lengths, is_packed=strategy == "packing") for batch in step] for step in plan]


def padding(strategy):
    held = [load for step in loads(strategy) for load in step]
    return 1 - sum(load.tokens for load in held) / sum(load.padded_tokens for load in held)


def spread(strategy, name):
    values = [[getattr(load, name) for load in step] for step in loads(strategy)]
    return sum(max(step) - min(step) for step in values) / len(values)


def test_lengths_are_log_uniform_with_outliers_at_the_end():
    assert min(LENGTHS) == 64
    assert max(LENGTHS) == 256
    at_most = sum(length == 256 for length in LENGTHS) / len(LENGTHS)
    assert 0.06 < at_most < 0.11
    below = sum(length < 128 for length in LENGTHS) / len(LENGTHS)
    assert below == pytest.approx(0.46, abs=0.03)  # half of the 92 % that are no outliers
    assert max(Lengths(outlier_fraction=0, most=100).drawn(500, seed=0)) <= 100


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_gives_every_rank_each_step_samples_of_its_own(strategy):
    plan = planned(strategy, LENGTHS, SHAPE, seed=1)
    assert [len(step) for step in plan] == [4] * 20
    for step in plan:
        taken = [sample for batch in step for sample in batch]
        assert len(taken) == len(set(taken)) > 0
    assert plan == planned(strategy, LENGTHS, SHAPE, seed=1)
    assert plan != planned(strategy, LENGTHS, SHAPE, seed=2)


def test_an_epoch_takes_no_sample_twice():
    for strategy in STRATEGIES:
        n_steps = {"token_budget": 60, "packing": 60}.get(strategy, 64)
        shape = Shape(n_ranks=4, n_steps=n_steps // 2)
        taken = [sample for step in planned(strategy, LENGTHS, shape, seed=0) for batch in step for sample in batch]
        assert len(taken) == len(set(taken))


def test_budgets_are_kept():
    for strategy in ("token_budget", "packing"):
        held = [load for step in loads(strategy) for load in step]
        assert max(load.padded_tokens for load in held) <= 1280
        assert min(load.padded_tokens for load in held) > 1280 - 256


def test_strategies_differ_in_padding_and_in_how_even_ranks_are():
    assert padding("uniform") == padding("packing") == 0
    assert padding("fixed_count") == pytest.approx(0.395, abs=0.03)  # the published study: 39.5 %
    assert 0 < padding("bucketing") < 0.02
    assert 0 < padding("token_budget") < 0.02
    assert spread("uniform", "tokens") == 0
    assert spread("fixed_count", "tokens") > 3 * max(spread(one, "tokens") for one in ("bucketing", "token_budget"))


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="too few for a step on 4 ranks"):
        planned("fixed_count", [64] * 31, SHAPE, seed=0)


def test_packed_and_padded_mean_the_same():
    """The same sequences give the same logits and gradients, with padding between them or without."""
    torch.manual_seed(0)
    model = Classifier(Sizes(hidden=8, heads=2, layers=2, vocabulary=32, classes=4, most=16))
    sequences = [torch.randint(32, (length,)) for length in (16, 3, 7)]
    gradients = []
    for together in (packed, padded):
        model.zero_grad()
        logits = model(together(sequences, [0, 1, 2]))
        logits.square().sum().backward()
        gradients.append([logits.detach(), *(parameter.grad for parameter in model.parameters())])
    assert gradients[0][0].shape == (3, 4)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_repeats_and_tells_what_its_steps_held(run, strategy, monkeypatch):
    counted = []
    monkeypatch.setattr(token_skew, "told", lambda **counts: counted.append(counts))
    row = run("--strategy", strategy)
    assert row["final_loss"] == run("--strategy", strategy)["final_loss"]
    assert len(counted) == 10
    (rank,) = row["ranks"]
    assert rank["tokens"] == [one["tokens"] for one in counted[2:5]]
    assert rank["padded_tokens"] == [one["padded_tokens"] for one in counted[2:5]]
    assert row["padding_fraction"] == pytest.approx(1 - sum(rank["tokens"]) / sum(rank["padded_tokens"]))
    assert row["useful_tokens_per_s"] == pytest.approx(sum(rank["tokens"]) / (row["slowest_step_ms"] / 1e3 * 3))


@pytest.mark.parametrize("flags", [["--steps=3", "--skip=3"], ["--max-length=2000"], ["--min-length=300"]])
def test_what_cannot_be_run_is_a_usage_error(flags, capsys):
    with pytest.raises(SystemExit) as ended:
        token_skew.read_doses(flags)
    assert ended.value.code == 2
    assert "--" in capsys.readouterr().err
