"""From runs to sentences: a prediction is held, missed or open, and a gain is claimed where the interval shows it."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import profkit
from profkit.model.documents.trial import Numbers, Outcome
from profkit.render import formats_of, renderer_for
from profkit.render.schema import schema
from profkit.render.words import trial as words
from profkit.trial.catalogue import CATALOGUE
from profkit.trial.choose import Candidate
from profkit.trial.outcome import TrialError
from profkit.trial.report import report
from profkit.trial.session import Session, keys, measure
from tests.conftest import ROOT
from tests.trial.drawn import a_run, machine


@pytest.fixture(scope="module")
def triaged():
    return profkit.triage(ROOT / "traces" / "data_cpu.pt.trace.json.gz")


def candidate(key, predicted, **fields):
    change = CATALOGUE[key]
    return Candidate(change=change, how={}, keep=change.keep, predicted=predicted, **fields)


def tried(triaged, steps_ms, predicted, *, noise=0.01, n_blocks=6, **options):
    candidates = [candidate(key, predicted.get(key)) for key in steps_ms if key]
    session = Session(arms=keys([one.change.key for one in candidates]), n_blocks=n_blocks)
    measure(session, machine(steps_ms, noise=noise, **options))
    found = report(session, candidates, triaged, "python train.py", n_settling=3)
    assert found is not None
    return found


def of(found, key):
    return next(one for one in found.trials if one.change == key)


@pytest.mark.parametrize(
    ("step_ms", "predicted", "noise", "outcome"),
    [
        (6, (0.3, 0.5), 0.01, Outcome.HELD),
        (6, (0.0, 0.5), 0.01, Outcome.HELD),
        (6, (0.0, 0.2), 0.01, Outcome.MISSED),
        (6, (0.6, 0.7), 0.01, Outcome.MISSED),
        (10, (0.0, 0.3), 0.002, Outcome.HELD),  # a ceiling, and the change gives nothing
        (12, (0.0, 0.3), 0.01, Outcome.MISSED),
        (10, (0.0, 0.3), 0.3, Outcome.OPEN),
        (6, None, 0.01, Outcome.UNPREDICTED),
    ],
)
def test_a_prediction_is_held_missed_or_open(triaged, step_ms, predicted, noise, outcome):
    found = tried(triaged, {"": 10, "workers": step_ms}, {"workers": predicted}, noise=noise)
    assert of(found, "workers").outcome is outcome
    said = words.sentence(of(found, "workers"))
    assert ("prediction missed" in said.lower()) == (outcome is Outcome.MISSED)


def test_the_answer_is_the_fix_that_saves_most_and_no_ablation(triaged):
    found = tried(
        triaged,
        {"": 10, "workers": 7, "compile": 5, "one_batch": 2},
        {"workers": (0.2, 0.4), "compile": (0.3, 0.6), "one_batch": (0.6, 0.9)},
    )
    assert [one.change for one in found.trials] == ["compile", "workers", "one_batch"]
    assert words.headline(found).startswith("compile makes the step ")
    assert "as predicted" in words.headline(found)
    assert words.keep(found) == "model.compile()"
    assert "a bound, no advice" in words.sentence(of(found, "one_batch"))


def test_where_nothing_helps_that_is_said(triaged):
    found = tried(triaged, {"": 10, "compile": 10.1}, {"compile": (0.0, 0.5)}, noise=0.05)
    assert words.headline(found) == "no change made the step shorter by more than these runs can tell"
    assert not words.keep(found)


@settings(max_examples=40, deadline=None)
@given(step_ms=st.floats(2, 30), noise=st.floats(0.001, 0.5), seed=st.integers(0, 99), high=st.floats(0.05, 0.9))
def test_no_gain_is_claimed_that_the_interval_does_not_show(triaged, step_ms, noise, seed, high):
    found = tried(triaged, {"": 10, "workers": step_ms}, {"workers": (0.0, high)}, noise=min(noise, 0.2), seed=seed)
    (one,) = found.trials
    if one.is_gain:
        assert one.interval[0] > 0
        assert "saves" in words.sentence(one)
    else:
        assert "faster" not in words.sentence(one)
        assert words.headline(found).startswith("no change")
    if one.outcome is Outcome.HELD:
        assert one.predicted[0] - 0.02 <= one.gain <= one.predicted[1] + 0.02
    if one.outcome is Outcome.MISSED:
        assert one.interval[1] < one.predicted[0] or one.interval[0] > one.predicted[1]


def test_a_missed_prediction_names_the_part_that_moved(triaged):
    found = tried(triaged, {"": 10, "workers": 20}, {"workers": (0.2, 0.4)})
    said = words.sentence(of(found, "workers"))
    assert "and it gave less: fetching a batch " in said  # the part of 60 % comes first
    moved = of(found, "workers")
    assert moved.parts_ns["input"] / moved.baseline_parts_ns["input"] == pytest.approx(2, rel=0.05)


def test_losses_are_compared_to_the_last_bit(triaged):
    same = tried(triaged, {"": 10, "workers": 8}, {})
    assert of(same, "workers").losses.is_same
    assert same.is_repeatable
    session = Session(arms=keys(["workers"]), n_blocks=3)
    measure(session, lambda arm: a_run(8.0 if arm else 10.0, loss=1.001 if arm else 1.0))
    found = report(session, [candidate("workers", None)], triaged, "python train.py", n_settling=3)
    losses = of(found, "workers").losses
    assert (losses.is_same, losses.first_step) == (False, 1)
    assert losses.change == pytest.approx(0.001)
    assert of(found, "workers").numbers is Numbers.NONE
    assert "should change no number" in words.losses(of(found, "workers"), is_repeatable=True)


def test_a_failed_run_and_one_that_changes_nothing_are_rows(triaged):
    good = machine({"": 10, "workers": 8, "compile": 9})

    def run(arm):
        if arm == "compile":
            raise TrialError("the command ended with exit code 1: no compiler", 1)
        return good(arm)

    candidates = [candidate("workers", (0.1, 0.3)), candidate("compile", (0.0, 0.5))]
    pinned = candidate("pinned", None, why_not="the run does not use CUDA")
    session = Session(arms=keys(["workers", "compile"]), n_blocks=3)
    measure(session, run)
    found = report(session, [*candidates, pinned], triaged, "python train.py", n_settling=3)
    assert of(found, "compile").outcome is Outcome.FAILED
    assert words.sentence(of(found, "compile")).endswith("failed: the command ended with exit code 1: no compiler")
    assert of(found, "pinned").outcome is Outcome.NOT_MADE
    assert "the run does not use CUDA" in words.sentence(of(found, "pinned"))


def test_every_format_shows_every_change(triaged):
    found = tried(triaged, {"": 10, "workers": 7, "one_batch": 2}, {"workers": (0.2, 0.4), "one_batch": (0.6, 0.9)})
    for name in formats_of("trial"):
        text = renderer_for("trial", name)(found, width=100, color=False)
        assert "workers" in text
        assert "one_batch" in text or "one…batch" in text
    document = json.loads(renderer_for("trial", "json")(found))
    jsonschema.Draft202012Validator(schema("trial")).validate(document)
    assert set(formats_of("trial")) >= {"terminal", "json", "markdown", "html"}


def test_a_prediction_that_allows_nearly_all_gains_is_none(triaged):
    found = of(tried(triaged, {"": 10, "workers": 10}, {"workers": (0.0, 0.98)}), "workers")
    assert found.predicted is None
    assert found.outcome is Outcome.UNPREDICTED
    assert found.why_predicted == ""


def test_an_ablation_that_leaves_the_cause_there_bounds_nothing(triaged):
    stays = of(tried(triaged, {"": 10, "one_batch": 11}, {"one_batch": (0.4, 0.6)}), "one_batch")
    assert stays.outcome is Outcome.NOT_MADE  # fetching takes 60 % of the step, as before
    assert "does not remove the cause" in stays.why_not
    assert "does not remove the cause" in words.sentence(stays)
    assert of(tried(triaged, {"": 10, "one_batch": 2}, {"one_batch": (0.6, 0.9)}), "one_batch").outcome is Outcome.HELD
