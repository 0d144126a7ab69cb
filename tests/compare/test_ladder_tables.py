"""The published recipe from its rows, and what holds of the ladder of every table."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.compare.ladder.cells import Asked
from profkit.compare.ladder.study import climb_records
from profkit.compare.tables.result_tables import read_records
from profkit.errors import TraceFormatError, UsageError
from profkit.model.documents.ladder import LadderReport, Mix, Step
from tests.compare.test_ladder import by_name, climbed, notes, path
from tests.conftest import ROOT

SEED = ROOT.parent / "shared" / "data" / "seeds" / "vlm_recipe" / "benchmarks.csv"
PUBLISHED = "vanilla_fp32,vanilla_bf16,compile|liger_no_ce|liger|tilegym,packing|pack_tilegym"


# ------------------------------------------------------------------------------------------------------- the published


@pytest.fixture(name="published")
def _published() -> LadderReport:
    if not SEED.is_file():
        pytest.skip("no seed studies beside this checkout")
    return climb_records(SEED.name, read_records(SEED), Asked(order=PUBLISHED))


@pytest.mark.shared
@pytest.mark.parametrize("order", [None, PUBLISHED])
def test_the_published_totals_to_their_digits(order: str | None) -> None:
    if not SEED.is_file():
        pytest.skip("no seed studies beside this checkout")
    report = climb_records(SEED.name, read_records(SEED), Asked(order=order))
    totals = {name: f"{ladder.total:.2f}" for name, ladder in by_name(report).items()}
    assert totals == {
        "small, stage 1": "6.86", "small, stage 2": "2.95", "large, stage 1": "6.73", "large, stage 2": "2.09",
    }  # fmt: skip
    ends = {
        name: (round(ladder.base.cell.mean), round(ladder.top.cell.mean)) for name, ladder in by_name(report).items()
    }
    assert ends["small, stage 1"] == (14_713, 100_923)
    assert ends["small, stage 2"] == (29_167, 86_080)
    assert ends["large, stage 1"] == (4_626, 31_110)
    assert ends["large, stage 2"] == (11_569, 24_153)


@pytest.mark.shared
def test_the_published_ladder_goes_through_precision_batch_fusion_packing(published: LadderReport) -> None:
    first = by_name(published)["small, stage 1"]
    assert path(first) == [
        ("base", "vanilla_fp32", 1.0),
        ("layer", "vanilla_bf16", 2.362),
        ("settings", "vanilla_bf16", 3.680),
        ("layer", "compile", 6.412),
        ("layer", "pack_tilegym", 6.860),
    ]
    assert [rung.confounds for rung in first.rungs[1:4]] == [(), (), ()]
    assert "also went from batch_size 32 to 64 and use_bucketing True to False" in notes(first)["rung.confound"]
    assert "no interval" in first.sentence
    assert "no repeats that show how much runs vary" in notes(first)["runs.single"]
    second = notes(by_name(published)["small, stage 2"])
    assert (
        "from vanilla_bf16 (batch_size=32, use_bucketing), the fastest vanilla_bf16, it is 1.88x"
        in second["base.settings"]
    )


@pytest.mark.shared
def test_the_published_interaction_where_the_cells_were_run_and_what_is_missing_elsewhere(
    published: LadderReport,
) -> None:
    (first,) = by_name(published)["small, stage 1"].interactions
    assert first.product == pytest.approx(93_344.483 / 51_191.323 * 57_203.570 / 51_191.323, rel=1e-6)
    assert first.ratio == pytest.approx(0.9675, abs=1e-4)
    (second,) = by_name(published)["small, stage 2"].interactions
    assert second.ratio is None
    assert second.missing == "pack_tilegym at batch_size=32 was not run"
    assert by_name(published)["large, stage 1"].interactions == ()


@pytest.mark.shared
def test_the_published_fused_loss_wins_in_one_stage_and_loses_in_the_other(published: LadderReport) -> None:
    effect = next(effect for effect in published.effects if (effect.before, effect.after) == ("vanilla_bf16", "liger"))
    assert effect is published.effects[0]
    assert effect.mix is Mix.SERIES
    signs = {(gain.series, gain.factor.value > 1) for gain in effect.gains}
    assert signs == {
        ("large, stage 1", True), ("small, stage 1", True), ("large, stage 2", False), ("small, stage 2", False),
    }  # fmt: skip
    cross = next(effect for effect in published.effects if {effect.before, effect.after} == {"liger", "liger_no_ce"})
    worse = {gain.series: gain.factor.value for gain in cross.gains}
    assert worse["small, stage 1"] == pytest.approx(66_028.84 / 76_252.39, rel=1e-6)
    assert min(worse.values()) == worse["small, stage 1"]


@pytest.mark.shared
def test_the_published_front(published: LadderReport) -> None:
    spots = by_name(published)["small, stage 1"].spots
    assert [spot.cell.rung for spot in spots if spot.by is None] == ["vanilla_bf16", "liger", "tilegym", "pack_tilegym"]


# ------------------------------------------------------------------------------------------------------ every table

CELLS = st.lists(
    st.tuples(
        st.sampled_from(["base", "bf16", "compile", "packing", "bf16_packing"]),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["2", "4", "8"]),
        st.floats(1, 1e6),
        st.sampled_from([1, 2, 3]) | st.floats(0.1, 80),
    ),
    min_size=2,
    max_size=24,
)


def table(rows: list[tuple[object, ...]]) -> str:
    return "\n".join(["rung,stage,batch,tokens_per_sec,peak_mem_gb", *(",".join(map(str, row)) for row in rows)])


def tried(rows: list[tuple[object, ...]], **asked: object) -> LadderReport | None:
    """The report, None where no series has two rungs."""
    rungs: dict[object, set[object]] = {}
    for rung, stage, *_ in rows:
        rungs.setdefault(stage, set()).add(rung)
    if max(map(len, rungs.values())) > 1:
        return climbed(table(rows), **asked)
    with pytest.raises((UsageError, TraceFormatError), match=r"no two rungs|no column that names the rungs"):
        climbed(table(rows), **asked)
    return None


@given(CELLS)
def test_factors_multiply_to_the_total_and_intervals_hold_them(rows: list[tuple[object, ...]]) -> None:
    report = tried(rows)
    for ladder in report.ladders if report else ():
        product = math.prod(rung.over_before.value for rung in ladder.rungs[1:])
        assert product == pytest.approx(ladder.total)
        assert ladder.total == pytest.approx(ladder.top.cell.mean / ladder.base.cell.mean)
        assert ladder.base.step is Step.BASE
        for before, rung in pairwise(ladder.rungs):
            assert rung.over_before.value == pytest.approx(rung.cell.mean / before.cell.mean)
            for factor in (rung.over_before, rung.over_first):
                assert factor.interval is None or factor.interval[0] <= factor.value <= factor.interval[1]


@given(CELLS)
def test_the_front_is_what_nothing_dominates(rows: list[tuple[object, ...]]) -> None:
    report = tried(rows)
    for ladder in report.ladders if report else ():
        places = [(spot.cell.mean, spot.cell.memory_bytes) for spot in ladder.spots]
        for spot, (speed, size) in zip(ladder.spots, places, strict=True):
            better = [
                place for place, (other, least) in enumerate(places)
                if other >= speed and least <= size and (other > speed or least < size)
            ]  # fmt: skip
            assert (spot.by is None) == (not better)
            assert spot.by is None or spot.by in better


@given(CELLS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_where_an_order_is_given(
    rows: list[tuple[object, ...]], rng: random.Random
) -> None:
    order = ",".join(dict.fromkeys(str(row[0]) for row in rows))
    shuffled = rng.sample(rows, len(rows))
    first, second = tried(rows, order=order), tried(shuffled, order=order)
    assert (first is None) == (second is None)
    if first is None or second is None:
        return
    for name, ladder in by_name(first).items():
        other = by_name(second)[name]
        assert [rung.cell.settings for rung in ladder.rungs] == [rung.cell.settings for rung in other.rungs]
        assert [rung.cell.rung for rung in ladder.rungs] == [rung.cell.rung for rung in other.rungs]
        assert ladder.total == pytest.approx(other.total)
        assert [item.cell.rung for item in ladder.beside] == [item.cell.rung for item in other.beside]
        fronts = [{(s.cell.rung, s.cell.settings) for s in one.spots if s.by is None} for one in (ladder, other)]
        assert fronts[0] == fronts[1]
        assert [i.missing for i in ladder.interactions] == [i.missing for i in other.interactions]
    assert {(e.before, e.after) for e in first.effects} == {(e.before, e.after) for e in second.effects}
