"""What runs and metrics say of a ladder: repeats, blocks, single runs, units, padding."""

import math

import pytest

from profkit.compare.stats.judge import judge
from profkit.compare.stats.sample import Sample
from profkit.errors import UsageError
from profkit.model.documents.ladder import Counts
from tests.compare.test_ladder import climbed, notes, one, path


def test_repeats_give_the_interval_that_compare_gives() -> None:
    text = "rung,tokens_per_sec\nbase,100\nbase,102\nbase,99\nfast,120\nfast,123\nfast,121\n"
    factor = one(climbed(text)).top.over_first
    judged = judge(
        Sample(name="a", values=(100, 102, 99), unit="tokens/s", higher_is_better=True),
        Sample(name="b", values=(120, 123, 121), unit="tokens/s", higher_is_better=True),
    )
    assert factor.interval == pytest.approx([1 + end for end in judged.interval])
    assert (factor.n, factor.answer, factor.p_value) == ((3, 3), judged.answer, judged.p_value)
    assert "95 % interval" in one(climbed(text)).sentence


def test_blocks_are_compared_within_and_steps_are_times() -> None:
    rows = [(block, name, ms * (1 + 0.1 * block) * (1 + 0.001 * place * block))
            for block in range(4) for place, (name, ms) in enumerate((("base", 20.0), ("fast", 10.0)))]  # fmt: skip
    report = climbed("block,rung,step_ms\n" + "\n".join(f"{b},{name},{ms}" for b, name, ms in rows))
    factor = one(report).top.over_first
    assert factor.n == (4, 4)
    assert factor.value == pytest.approx(2, rel=0.01)
    low, high = factor.interval
    assert 1.98 < low < 2 < high < 2.01
    assert not report.higher_is_better
    assert any("without the work of a step" in warning for warning in report.warnings)


def test_step_times_of_different_batches_are_samples_per_second() -> None:
    report = climbed("rung,batch,step_ms\nbase,2,10\nfast,8,20\n")
    assert report.unit == "samples/s"
    assert [rung.cell.mean for rung in one(report).rungs] == [pytest.approx(200), pytest.approx(400)]
    with pytest.raises(UsageError, match=r"line 3 has no batch"):
        climbed("rung,batch,step_ms\nbase,2,10\nfast,,20\n")


@pytest.mark.parametrize(("column", "unit"), [("tokens_per_step", "tokens/s"), ("samples_per_step", "samples/s")])
def test_the_work_of_a_step_names_the_unit(column: str, unit: str) -> None:
    report = climbed(f"rung,batch,{column},step_ms\nbase,2,1000,10\nfast,8,8000,20\n")
    assert (report.unit, [round(rung.cell.mean) for rung in one(report).rungs]) == (unit, [100_000, 400_000])
    assert f"100,000 -> 400,000 {unit}" in one(report).sentence
    assert climbed(f"rung,batch,{column},step_ms\nbase,2,,10\nfast,8,,20\n").unit == "samples/s"


def test_tokens_of_a_step_are_not_compared_with_a_batch() -> None:
    with pytest.raises(UsageError, match="line 3 has no tokens_per_step, so its step_ms cannot be compared"):
        climbed("rung,batch,tokens_per_step,step_ms\nbase,2,1000,10\nfast,8,,20\n")


@pytest.mark.parametrize(
    ("speeds", "note", "says"),
    [
        ((80, 81, 79), "rung.loss", "a loss; time the rungs after it without it"),
        ((100.1, 100, 99.9), "rung.open", "no change beyond 2.0 %"),
        ((95, 110, 104), "rung.open", "the runs show neither gain nor loss"),
    ],
)
def test_what_repeats_say_of_a_rung(speeds: tuple[float, ...], note: str, says: str) -> None:
    rows = [("base", (100, 101, 99)), ("a", speeds), ("a+b", (150, 151, 149))]
    text = "\n".join(f"{rung},{speed}" for rung, values in rows for speed in values)
    assert says in notes(one(climbed(f"rung,tokens_per_sec\n{text}\n")))[note]


def test_rows_that_differ_in_what_may_be_a_setting_are_no_silent_repeats() -> None:
    text = "rung,prefetch,loss,tokens_per_sec\nbase,2,1.25,100\nbase,4,1.5,140\nfast,2,1.125,150\nfast,4,1.1,180\n"
    report = climbed(text)
    assert report.warnings == (
        "runs that count as repeats differ in prefetch; if that is a setting, say --settings prefetch",
    )
    asked = climbed(text, settings=("prefetch",))
    assert asked.warnings == ()
    assert path(one(asked))[1] == ("settings", "base", 1.4)


def test_noise_is_that_of_the_cells_with_repeats() -> None:
    report = climbed("rung,tokens_per_sec\nbase,100\nbase,104\nfast,150\n")
    assert report.noise.df == 1
    assert report.noise.cv == pytest.approx(math.log(1.04) / math.sqrt(2))
    assert "cells with repeats vary by 2.8 % from run to run" in notes(one(report))["runs.single"]
    assert climbed("rung,tokens_per_sec\nbase,100\nfast,150\n").noise is None


@pytest.mark.parametrize(
    ("metric", "counts", "says"),
    [
        ("real_tokens_per_sec", Counts.REAL, "of its 1.50x, padding 40.0 % -> 0.0 % gives 1.67x, the rest 0.90x"),
        ("tokens_per_sec", Counts.UNKNOWN, "if the metric counts padding, real tokens changed by 2.50x, not 1.50x"),
        ("padded_tokens_per_sec", Counts.PADDED, "2.50x in tokens that are no padding"),
    ],
)
def test_what_padding_has_of_a_factor(metric: str, counts: Counts, says: str) -> None:
    report = climbed(f"rung,pad_pct,{metric}\nbase,40,100\npacked,0,150\n")
    assert report.counts is counts
    assert says in notes(one(report))["rung.padding"]
    as_fraction = climbed(f"rung,pad_fraction,{metric}\nbase,0.4,100\npacked,0,150\n")
    assert one(as_fraction).rungs[1].padding_factor == pytest.approx(1 / 0.6)


@pytest.mark.parametrize(
    ("n_runs", "says"),
    [
        ((1, 1, 1), "one run each: no interval"),
        ((3, 1, 3), "one run on a side of every factor: no interval"),
        ((3, 3, 1), "one run on a side of 1 of 2 factors: no interval"),
    ],
)
def test_single_runs_are_counted_as_they_are(n_runs: tuple[int, ...], says: str) -> None:
    cells = zip((("base", 100), ("a", 120), ("a+b", 150)), n_runs, strict=True)
    text = "\n".join(f"{name},{speed + run}" for (name, speed), n in cells for run in range(n))
    said = notes(one(climbed(f"rung,tokens_per_sec\n{text}\n")))
    assert said["runs.single"].startswith(says)


def test_a_rung_that_was_timed_again_is_not_called_taken_by_one_run() -> None:
    text = "rung,batch,tokens_per_sec\nbase,2,100\nfast,2,120\nfast,4,150\nfast,4,151\n"
    assert "runs.fastest" not in notes(one(climbed(text)))
    once = "rung,batch,tokens_per_sec\nbase,2,100\nfast,2,120\nfast,4,150\n"
    assert "runs.fastest" in notes(one(climbed(once)))


def test_a_change_of_which_one_side_has_repeats_is_not_one_of_single_runs() -> None:
    rows = "base,1,100\nbase,1,101\nbase,1,99\nloss,1,130\nbase,2,100\nloss,2,60\n"
    (effect,) = climbed(f"rung,stage,tokens_per_sec\n{rows}").effects
    assert effect.sentence.endswith("; 2 of 2 pairs have one run on a side")


@pytest.mark.parametrize(
    ("slow", "why"),
    [((100, 100), "2 runs each that do not differ"), ((100, 400), "2 runs each that differ too much for one")],
)
def test_why_repeats_give_no_interval(slow: tuple[int, int], why: str) -> None:
    rows = "\n".join(
        f"{rung},{ms}" for rung, times in (("base", slow), ("fast", (slow[0] - 1, slow[1] - 1))) for ms in times
    )
    assert why in one(climbed(f"rung,step_ms\n{rows}\n")).sentence


LAYERED = "block,rung,layers,tokens_per_sec\n"


def interaction(runs: int, *, is_in_blocks: bool, spread: float) -> str:
    """The sentence on two layers of drawn repeats."""
    rows = [
        f"{run if is_in_blocks else 0},{name},{layers},{speed * (1 + spread * run)}"
        for name, layers, speed in (("base", "", 100), ("a", "a", 150), ("b", "b", 200), ("ab", "a+b", 240))
        for run in range(runs)
    ]
    (found,) = one(climbed(LAYERED + "\n".join(rows))).interactions
    return found.sentence


@pytest.mark.parametrize(
    ("runs", "is_in_blocks", "spread", "says"),
    [
        (1, False, 0.0, "no interval: not every cell has repeats"),
        (3, False, 0.0, "no interval: the repeats do not differ"),
        (3, True, 0.0, "no interval: the repeats do not differ"),
        (3, True, 0.125, "no interval: the ratio is the same in every block"),
        (3, False, 0.125, "(95 % interval "),
    ],
)
def test_why_an_interaction_has_no_interval(runs: int, is_in_blocks: bool, spread: float, says: str) -> None:
    assert says in interaction(runs, is_in_blocks=is_in_blocks, spread=spread)


def test_runs_of_one_block_are_repeats() -> None:
    text = "block,rung,tokens_per_sec\n" + "\n".join(
        f"0,{n},{v + r}" for n, v in (("a", 100), ("b", 150)) for r in range(3)
    )
    factor = one(climbed(text)).top.over_first
    assert factor.n == (3, 3)
    assert factor.interval is not None
