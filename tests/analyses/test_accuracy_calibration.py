"""Curves from confidence to the share that is right: by hand, on answers whose truth was drawn, on unseen families."""

import random

import pytest

from analyses.accuracy import calibrate, score
from analyses.accuracy.calibrate import Quality
from analyses.accuracy.shares import Share
from profkit.model.documents.report import Bottleneck
from profkit.render.words import explain
from profkit.verdict.calibrated import calibrated, stated
from tests.analyses.drawn_cells import benchmark, cell, said


def answers(*steps):
    """(confidence, right, wrong) of each step."""
    return [(sure, flag) for sure, right, wrong in steps for flag in [True] * right + [False] * wrong]


def test_without_a_curve_a_confidence_stays_as_it_was_made():
    assert [calibrated(sure, ()) for sure in (0.0, 0.4, 0.9)] == [0.0, 0.4, 0.9]


def test_the_cap_holds_before_and_after_the_curve(monkeypatch):
    monkeypatch.setattr("profkit.verdict.calibrated.calibrated", lambda made: made + 0.2)
    assert [stated(0.9, cap, is_cpu=True) for cap in (0.95, 0.6)] == [0.95, 0.6]
    assert stated(0.3, 0.6, is_cpu=True) == pytest.approx(0.5)


def test_of_a_gpu_the_curve_knows_nothing(monkeypatch):
    monkeypatch.setattr("profkit.verdict.calibrated.calibrated", lambda _: 0.5)
    assert (stated(0.9, 0.95, is_cpu=True), stated(0.9, 0.95, is_cpu=False)) == (0.5, 0.9)


def test_a_curve_is_straight_between_its_points_level_above_and_in_proportion_below():
    curve = ((0.4, 0.5), (0.8, 0.9))
    found = [calibrated(sure, curve) for sure in (0.0, 0.1, 0.4, 0.5, 0.8, 1.0)]
    assert found == pytest.approx([0.0, 0.125, 0.5, 0.6, 0.9, 0.9]), "what nobody measured is no surer than that"


def test_a_step_is_the_share_that_is_right_with_laplaces_rule():
    curve = calibrate.fitted(answers((0.4, 19, 19), (0.9, 38, 0)))
    assert curve == ((0.4, 20 / 40), (0.9, 39 / 40))


def test_steps_that_fall_are_pooled():
    curve = calibrate.fitted(answers((0.4, 30, 10), (0.6, 20, 20), (0.9, 40, 0)))
    assert curve == (pytest.approx((0.5, 51 / 82)), pytest.approx((0.9, 41 / 42)))


def test_few_answers_give_no_curve():
    assert calibrate.fitted(answers((0.4, 30, 20))) == ()


def test_the_quality_of_confidences_by_hand():
    found = calibrate.quality([(0.8, True), (0.8, False), (0.3, False)])
    assert found.n == 3
    assert found.brier == pytest.approx((0.04 + 0.64 + 0.09) / 3)
    assert found.ece == pytest.approx((abs(1.6 - 1) + 0.3) / 3)
    assert calibrate.quality([]) == Quality(n=0, brier=0.0, ece=0.0)


def family(name, confidence, n_right, n_wrong):
    """Cells of large gain, some of which are said right."""
    words = ["data-bound"] * n_right + ["sync-bound"] * n_wrong
    return [
        cell(f"{name}/loader_serial/large/{number}", gain=0.4, says=said(word, confidence=confidence))
        for number, word in enumerate(words)
    ]


def test_no_family_is_tried_on_its_own_curve():
    cells = [*family("mlp", 0.9, 50, 50), *family("cnn", 0.9, 100, 0)]
    found = calibrate.tried(score.judged(cells, "profkit"))
    by_other = (100 * (101 / 102 - 0.5) + 100 * (1 - 0.5)) / 200  # each by the share of the other one, in two bins
    assert found.after.ece == pytest.approx(by_other, abs=1e-9)
    assert found.curve == (pytest.approx((0.9, 151 / 202)),)


def test_a_curve_is_tried_only_where_every_family_has_one():
    found = calibrate.tried(score.judged([*family("mlp", 0.9, 70, 0), *family("cnn", 0.9, 10, 0)], "profkit"))
    assert found.after is None
    assert found.curve


def test_confidence_that_says_too_much_is_better_after_the_curve():
    rng = random.Random(3)  # noqa: S311 - drawn answers
    cells = []
    for name in ("mlp", "cnn", "rnn", "vlm"):
        for confidence in (0.5, 0.7, 0.9):
            n_right = sum(rng.random() < confidence - 0.25 for _ in range(60))
            cells += family(name, confidence, n_right, 60 - n_right)
    found = calibrate.tried(score.judged(cells, "profkit"))
    assert found.before.ece == pytest.approx(0.25, abs=0.05)
    assert found.after.ece < 0.1
    assert found.after.brier < found.before.brier


def test_constants_are_kept_unless_their_answers_exclude_them():
    finding = {"finding_ids": ("capture.quality", "input.starved"), "classes": ("", "data-bound")}
    cells = [
        cell(
            f"mlp/loader_serial/large/{number}",
            gain=0.4 if number < 18 else 0.0,
            says=said("data-bound", confidence=0.9, **finding),
        )
        for number in range(20)
    ]
    cells += family("cnn", 0.4, 20, 0)
    starved, bare = calibrate.constants(score.judged(cells, "profkit"))
    assert (bare.finding_id, bare.right, bare.advice) == ("verdict data-bound", Share(20, 20), "raise toward 0.95")
    assert (starved.finding_id, starved.right, starved.advice) == ("input.starved", Share(18, 20), "keep")


def test_one_command_prints_curve_and_constants(tmp_path, monkeypatch, capsys):
    from tests.analyses.drawn_cells import write

    path = tmp_path / "results.jsonl"
    write(path, benchmark(n_seeds=3))
    monkeypatch.setattr("sys.argv", ["calibrate", str(path)])
    calibrate.main()
    text = capsys.readouterr().out
    assert "by the curve of the other families" in text
    assert "CURVE: Final[Curve] = (" in text
    assert "drawn" in text


def test_explain_cites_the_page_where_there_is_a_curve(monkeypatch):
    monkeypatch.setattr(explain, "CURVE", ())
    assert "docs/accuracy.md" not in str(explain.of_verdict(Bottleneck.DATA))
    monkeypatch.setattr(explain, "CURVE", ((0.4, 0.5),))
    assert "docs/accuracy.md" in str(explain.of_verdict(Bottleneck.DATA))
