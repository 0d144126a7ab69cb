"""Ladders of drawn tables whose truth is known, and tables that are none."""

import random
from pathlib import Path

import pytest

from profkit.compare.ladder.cells import Asked
from profkit.compare.ladder.plan import Plan
from profkit.compare.ladder.study import climb_records
from profkit.errors import TraceFormatError, UsageError
from profkit.model.documents.ladder import Ladder, LadderReport, Mix, OrderSource, Settings, WhyNot


def climbed(text: str, **asked: object) -> LadderReport:
    """The report on a table drawn as CSV."""
    names, *lines = (line.split(",") for line in text.split())
    records = [(number, dict(zip(names, cells, strict=True))) for number, cells in enumerate(lines, 2)]
    return climb_records("runs.csv", records, Asked(**asked))


def one(report: LadderReport) -> Ladder:
    (ladder,) = report.ladders
    return ladder


def path(ladder: Ladder) -> list[tuple[str, str, float]]:
    return [
        (rung.step.value, rung.cell.rung, round(1.0 if rung.over_first is None else rung.over_first.value, 3))
        for rung in ladder.rungs
    ]


def notes(ladder: Ladder) -> dict[str, str]:
    return {note.id: note.statement for note in ladder.notes}


def by_name(report: LadderReport) -> dict[str, Ladder]:
    return {ladder.name: ladder for ladder in report.ladders}


# ------------------------------------------------------------------------------------------------------------ the climb


def test_two_settings_at_once_are_said() -> None:
    ladder = one(climbed("rung,batch,tokens_per_sec\nfp32,2,100\nbf16,2,200\ncompile,32,500\n"))
    assert [(c.heading, c.before, c.after) for c in ladder.rungs[2].confounds] == [("batch", "2", "32")]
    assert notes(ladder)["rung.confound"].startswith("bf16 -> compile also went from batch 2 to 32")
    clean = one(climbed("rung,batch,tokens_per_sec\nfp32,2,100\nbf16,2,200\ncompile,2,500\n"))
    assert "rung.confound" not in notes(clean)


def test_a_setting_that_the_rung_is_named_for_is_no_second_change() -> None:
    ladder = one(
        climbed("rung,batch,use_packing,tokens_per_sec\nbase,2,no,100\nbatching,8,no,150\npacking,8,yes,180\n")
    )
    assert [rung.confounds for rung in ladder.rungs] == [(), (), ()]


def test_a_rung_passes_through_the_settings_of_the_one_before() -> None:
    text = "rung,batch,tokens_per_sec\na,2,100\na,4,150\nb,2,120\nb,4,180\nb,8,200\n"
    ladder = one(climbed(text))
    assert path(ladder) == [
        ("base", "a", 1.0), ("settings", "a", 1.5), ("layer", "b", 1.8), ("settings", "b", 2.0),
    ]  # fmt: skip
    assert [rung.n_settings for rung in ladder.rungs] == [2, 2, 3, 3]
    assert (
        "2.00x counts from a (batch=2); from a (batch=4), the fastest a, it is 1.33x" in notes(ladder)["base.settings"]
    )


def test_the_base_is_the_plainest_cell_whatever_the_order_of_rows() -> None:
    rows = ["a,8,no,140", "a,2,yes,130", "a,2,no,100", "b,2,no,200"]
    for seed in range(4):
        random.Random(seed).shuffle(rows)  # noqa: S311 - an order
        ladder = one(climbed("\n".join(["rung,batch,bucketing,tokens_per_sec", *rows]), order="a,b"))
        assert ladder.base.cell.mean == 100


def test_the_fastest_of_alternatives_is_taken_and_a_slower_rung_is_left_beside() -> None:
    text = "rung,tokens_per_sec\nbase,100\ncompile,150\nfused,140\npacked,145\n"
    ladder = one(climbed(text, order="base,fused|compile,packed"))
    assert [rung.cell.rung for rung in ladder.rungs] == ["base", "compile"]
    beside = {item.cell.rung: (item.why, item.against, round(item.over.value, 3)) for item in ladder.beside}
    assert beside == {
        "fused": (WhyNot.ALTERNATIVE, "base", 1.4), "packed": (WhyNot.SLOWER, "compile", 0.967),
    }  # fmt: skip


def test_alternatives_of_the_first_group_stand_beside_the_base() -> None:
    text = "rung,batch,tokens_per_sec\nfp32,2,100\nfp32,4,110\ntf32,2,130\ntf32,4,150\npacked,2,200\n"
    ladder = one(climbed(text, order="fp32|tf32,packed"))
    assert [rung.cell.mean for rung in ladder.rungs] == [130, 150, 200]
    assert [(item.cell.mean, item.why, item.against) for item in ladder.beside] == [
        (110, WhyNot.ALTERNATIVE, "tf32"),
    ]  # fmt: skip
    assert ladder.beside[0].over.value == pytest.approx(110 / 130)
    assert notes(ladder)["rung.alternative"] == "alternatives, at their fastest, over tf32: fp32 0.85x"


@pytest.mark.parametrize(
    "text",
    [
        "rung,layers,tokens_per_sec\nab,a+b,90\nbase,,100\na,a,120\nabc,a+b+c,150\nonly_c,c,110\n",
        "rung,tokens_per_sec\na+b,90\nbase,100\na,120\na+b+c,150\nc,110\n",
        "a,b,c,tokens_per_sec\n1,1,0,90\n0,0,0,100\n1,0,0,120\n1,1,1,150\n0,0,1,110\n",
    ],
)
def test_told_layers_make_the_order_and_a_rung_that_loses_stays_where_a_later_one_stands_on_it(text: str) -> None:
    report = climbed(text)
    ladder = one(report)
    assert report.order_source is OrderSource.LAYERS
    assert [round(rung.cell.mean) for rung in ladder.rungs] == [100, 120, 90, 150]
    assert ladder.rungs[2].over_before.value == pytest.approx(0.75)
    assert "0.75x of the rung before" in notes(ladder)["rung.loss"]
    assert [(item.why, item.over.value) for item in ladder.beside] == [(WhyNot.APART, pytest.approx(1.1))]


def test_a_top_that_is_not_the_fastest_is_said() -> None:
    ladder = one(climbed("rung,tokens_per_sec\nbase,100\na,150\na+b,90\na+b+c,120\n"))
    assert ladder.total == pytest.approx(1.2)
    assert "a is the fastest, 1.50x of the base" in notes(ladder)["rung.peak"]


def test_an_order_that_is_given_goes_before_told_layers_and_what_is_swapped_is_said() -> None:
    text = """rung;layers;slug;tokens_per_sec
base;none;s/base;100
batch;batch 16;s/batch;130
bucketing;batch 16, bucketing on;s/bucketing;150
fusion;batch 16, bucketing on, fusion chunked;s/fusion;140
packing;batch 16, fusion chunked, packing on;s/packing;190
only-packing;packing on;s/only-packing;120
"""
    names, *lines = (line.split(";") for line in text.strip().split("\n"))
    records = [(number, dict(zip(names, cells, strict=True))) for number, cells in enumerate(lines, 2)]
    report = climb_records("runs.csv", records, Asked(order="base,batch,bucketing,fusion,packing"))
    ladder = one(report)
    assert [rung.cell.rung for rung in ladder.rungs] == ["base", "batch", "bucketing", "fusion", "packing"]
    assert ladder.rungs[4].added == ("packing on",)
    assert notes(ladder)["rung.layers"].startswith("fusion -> packing adds packing on and takes away bucketing on")
    assert report.setting_columns == ()  # a slug is a name, no setting
    found = climb_records("runs.csv", records, Asked())
    assert found.order_source is OrderSource.LAYERS
    assert path(one(found))[0] == ("base", "base", 1.0)


def test_layers_that_do_not_tell_two_rungs_apart_are_not_used() -> None:
    text = "rung,layers,tokens_per_sec\nab,a+b,150\nbase,,100\na,a,120\nb,b,110\nab2,a+b,190\n"
    report = climbed(text)
    assert not report.are_layers_told
    assert report.warnings == ("ab and ab2 have the same layers in the table: layers are not used",)
    assert one(report).base.cell.rung == "base"
    assert one(report).interactions == ()


@pytest.mark.parametrize("batch", [2, 4])  # a repeat, and another cell of the rung
def test_rows_of_one_rung_that_list_different_layers_are_said(batch: int) -> None:
    text = f"rung,layers,batch,tokens_per_sec\nbase,,2,100\na,a,2,120\nab,a+b,2,150\nab,a+c,{batch},160\n"
    report = climbed(text)
    assert report.warnings == ("rows of ab list different layers (a+b; a+c): column 'layers' is not used",)
    assert not report.are_layers_told
    same = climbed("rung,layers,tokens_per_sec\nbase,none,100\nbase,,101\na,a,120\nab,a+b,150\nab,b;a,160\n")
    assert (same.warnings, same.are_layers_told) == ((), True)


def test_names_that_add_to_all_before_them_and_names_with_numbers() -> None:
    added = climbed("config,tokens_per_sec\nfp32,100\n+bf16,200\n+compile,300\n")
    assert [rung.cell.rung for rung in one(added).rungs] == ["fp32", "+bf16", "+compile"]
    assert added.are_layers_told
    assert [rung.added for rung in one(added).rungs] == [(), ("bf16",), ("compile",)]
    assert [rung.removed for rung in one(added).rungs] == [(), (), ()]
    numbered = climbed("rung,tokens_per_sec\n10_packing,300\n2_bf16,200\n1_base,100\n")
    assert numbered.order_source is OrderSource.NUMBERED
    assert [rung.cell.rung for rung in one(numbered).rungs] == ["1_base", "2_bf16", "10_packing"]


def test_a_series_without_the_base_says_so_and_begins_at_the_next_rung() -> None:
    text = "rung,model,tokens_per_sec\nfp32,a,100\nbf16,a,200\npacked,a,300\nbf16,b,20\npacked,b,50\n"
    ladders = by_name(climbed(text))
    assert path(ladders["b"])[0] == ("base", "bf16", 1.0)
    assert ladders["b"].absent == ("fp32",)
    assert "no run of fp32" in notes(ladders["b"])["rung.absent"]


# ------------------------------------------------------------------------------------------- interactions and effects


GRID = "rung,batch,tokens_per_sec\nbase,2,100\npacking,2,150\ntilegym,2,200\npack_tilegym,2,{}\n"


@pytest.mark.parametrize(("together", "ratio"), [(300, 1.0), (240, 0.8), (390, 1.3)])
def test_gains_that_multiply_and_gains_that_do_not(together: float, ratio: float) -> None:
    (found,) = one(climbed(GRID.format(together))).interactions
    assert (found.layers, found.product, found.ratio) == (
        ("packing", "tilegym"), pytest.approx(3.0), pytest.approx(ratio),
    )  # fmt: skip


def test_an_interaction_with_repeats_has_an_interval_and_one_without_its_cells_none() -> None:
    text = "rung,layers,tokens_per_sec\n" + "\n".join(
        f"{name},{layers},{speed * (1 + noise)}"
        for name, layers, speed in (("base", "", 100), ("a", "a", 150), ("b", "b", 200), ("ab", "a+b", 240))
        for noise in (-0.01, 0, 0.01)
    )
    (found,) = one(climbed(text)).interactions
    low, high = found.interval
    assert low < 0.8 < high < 0.9
    (missing,) = one(climbed("rung,layers,tokens_per_sec\nbase,,100\na,a,150\nab,a+b,240\n")).interactions
    assert missing.ratio is None
    assert missing.missing == "not every layer was run alone"


def test_layers_at_other_batches_do_not_stand_for_layers_at_the_same() -> None:
    text = "rung,batch,tokens_per_sec\nbase,2,100\nbase,8,110\npacking,2,150\ntilegym,8,200\npack_tilegym,2,300\n"
    (found,) = one(climbed(text)).interactions
    assert found.ratio is None
    assert "were not run at one choice of settings with base" in found.missing


def test_an_interaction_looks_at_each_cell_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    n_looks, free = 0, Plan.free

    def counted(self: Plan, settings: Settings) -> Settings:
        nonlocal n_looks
        n_looks += 1
        return free(self, settings)

    monkeypatch.setattr(Plan, "free", counted)
    looks = []
    for n_settings in (100, 400):
        n_looks = 0
        rows = (
            f"{rung},{layers},{workers},{speed + (workers == 0)}"
            for workers in range(n_settings)
            for rung, layers, speed in (("base", "", 100), ("a", "a", 150), ("b", "b", 200), ("ab", "a+b", 240))
        )
        (found,) = one(climbed("rung,layers,num_workers,tokens_per_sec\n" + "\n".join(rows))).interactions
        assert found.together.settings == (("num_workers", "0"),)
        assert found.product == pytest.approx(151 * 201 / 101**2)
        looks.append(n_looks)
    assert looks[1] < 6 * looks[0]  # four times the cells


def test_what_an_interaction_lacks_does_not_hang_on_the_order_of_rows() -> None:
    rows = ["base,2,100", "base,4,110", "packing,2,150", "packing,4,160", "tilegym,2,200", "tilegym,4,220",
            "pack_tilegym,8,300"]  # fmt: skip
    said = {
        one(climbed("\n".join(["rung,batch,tokens_per_sec", *mixed]), order="base,packing,tilegym,pack_tilegym"))
        .interactions[0]
        .missing
        for mixed in (rows, rows[::-1])
    }
    assert said == {"pack_tilegym at batch=4 was not run"}


def test_layers_that_change_one_setting_to_different_values_are_not_combined() -> None:
    rows = "base,,0,100\na,a,1,150\nb,b,2,200\nab,a+b,2,240\nbase,,3,90\nb,b,0,95\n"
    (found,) = one(climbed(f"rung,layers,num_workers,tokens_per_sec\n{rows}")).interactions
    assert found.missing == "ab at num_workers=1 was not run"


def flips(rows: str, **asked: object) -> list[tuple[str, str, Mix]]:
    report = climbed(f"rung,stage,batch,tokens_per_sec\n{rows}", **asked)
    return [(effect.before, effect.after, effect.mix) for effect in report.effects]


def test_a_change_that_gains_in_one_series_and_loses_in_another() -> None:
    assert flips("base,1,2,100\nloss,1,2,115\nbase,2,2,100\nloss,2,2,60") == [("base", "loss", Mix.SERIES)]
    assert flips("base,1,2,100\nloss,1,2,115\nbase,2,2,100\nloss,2,2,105") == []
    assert flips("base,1,2,100\nloss,1,2,115\nbase,2,2,100\nloss,2,2,99") == []  # within the margin
    assert flips("base,1,2,100\nloss,1,2,115\nbase,2,2,100\nloss,2,4,60") == []  # not all else equal


def test_a_change_with_both_signs_inside_a_series() -> None:
    assert flips("base,1,2,100\nloss,1,2,115\nbase,1,4,150\nloss,1,4,100") == [
        ("base", "loss", Mix.SETTINGS), ("2", "4", Mix.SETTINGS),
    ]  # fmt: skip


def test_repeats_decide_whether_a_loss_is_one() -> None:
    quiet = [("base", 1, 100), ("loss", 1, 115), ("base", 2, 100), ("loss", 2, 90)]
    for spread, found in ((0.002, 1), (0.2, 0)):
        rows = "\n".join(
            f"{rung},{stage},2,{speed * (1 + spread * noise)}"
            for rung, stage, speed in quiet
            for noise in (-1, 0, 1, 0.5)
        )
        assert len(flips(rows)) == found


def test_one_added_layer_is_the_same_change_wherever_it_is_added() -> None:
    text = "rung,layers,tokens_per_sec\nbase,,100\nc,c,120\na,a,200\nac,a+c,150\n"
    (effect,) = climbed(text).effects
    assert (effect.before, effect.after, [round(gain.factor.value, 2) for gain in effect.gains]) == (
        "",
        "c",
        [1.2, 0.75],
    )
    assert effect.sentence.startswith("adding c: mixed 0.75 to 1.20x")


# -------------------------------------------------------------------------------------------------------- no ladder


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("rung,tokens_per_sec\na,100\n", TraceFormatError, "no column that names the rungs"),
        ("rung,stage,tokens_per_sec\na,1,100\nb,2,120\n", UsageError, "no two rungs to compare in one series"),
        ("rung,loss\na,1\nb,2\n", TraceFormatError, "no column that measures speed"),
        ("gpus,tokens_per_sec\n1,100\n2,120\n", TraceFormatError, "no column that names the rungs"),
        ("rung,tokens_per_sec\na,0\nb,1\n", TraceFormatError, "line 2: tokens_per_sec is '0', not a positive number"),
        ("rung,tokens_per_sec\na,-1\nb,1\n", TraceFormatError, "line 2: tokens_per_sec is '-1'"),
        ("rung,tokens_per_sec\na,inf\nb,1\n", TraceFormatError, "line 2: tokens_per_sec is 'inf'"),
        ("rung,tokens_per_sec\na,fast\nb,1\n", TraceFormatError, "line 2: tokens_per_sec is 'fast', not a number"),
        ("rung,pad_pct,tokens_per_sec\na,120,1\nb,0,1\n", TraceFormatError, "line 2: pad_pct is '120', not a share"),
        ("rung,vram_gb,tokens_per_sec\na,-1,1\nb,0,1\n", TraceFormatError, "vram_gb is '-1', not a size"),
    ],
)
def test_what_is_no_ladder_is_told_with_its_line(text: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as refused:
        climbed(text)
    assert says in refused.value.message


def test_rows_without_a_result_are_left_out_and_counted() -> None:
    report = climbed("rung,tokens_per_sec\na,100\nb,oom\nb,120\nc,nan\n")
    assert [rung.cell.rung for rung in one(report).rungs] == ["a", "b"]
    assert report.warnings == ("2 of 4 rows of runs.csv have no result: line 3 (oom), line 5 (nan)",)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"order": "a,c"}, "no rung 'c'"),
        ({"order": "a,b|a"}, "names 'a' twice"),
        ({"rung": "recipe"}, "no column 'recipe'"),
        ({"series": ("model",)}, "no column 'model'"),
        ({"metric": "tps"}, "no column 'tps'"),
        ({"settings": ("tps",)}, "no column 'tps'"),
        ({"order": "a"}, "no two rungs"),
    ],
)
def test_what_is_asked_of_a_table_must_be_in_it(asked: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        climbed("rung,tokens_per_sec\na,100\nb,120\n", **asked)


def test_the_columns_can_be_told() -> None:
    text = "x,y,z,tokens_per_sec\na,p,1,100\nb,p,1,120\na,q,1,10\nb,q,1,30\n"
    report = climbed(text, rung="x", series=("y",))
    assert {name: round(ladder.total, 3) for name, ladder in by_name(report).items()} == {"p": 1.2, "q": 3.0}


def test_a_table_of_ten_thousand_rows_and_one_of_too_many_rungs() -> None:
    rng = random.Random(0)  # noqa: S311 - a table
    rows = [
        f"r{rng.randrange(12)},{rng.randrange(4)},{2 ** rng.randrange(3)},{rng.choice('yn')},{1 + rng.random()}"
        for _ in range(10_000)
    ]
    report = climbed("rung,stage,batch,attention,tokens_per_sec\n" + "\n".join(rows))
    assert len(report.ladders) == 4
    assert 0 < len(report.effects) <= 20 < report.n_mixed
    with pytest.raises(UsageError, match="too many for rungs"):
        climbed("rung,tokens_per_sec\n" + "\n".join(f"r{number},{number + 1}" for number in range(100)))


def test_a_ladder_is_of_one_table(tmp_path: Path) -> None:
    from profkit.compare.paths import ladder

    with pytest.raises(UsageError, match="one table, not 2"):
        ladder([tmp_path / "a.csv", tmp_path / "b.csv"])
