"""Scaling: the seeds' numbers from their raw rows, the case against a sick base, and accounts that sum."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

from profkit.compare.scaling.study import WORK_PART, decompose, efficiency_interval, fit_usl, scale, serial_fraction
from profkit.compare.tables.result_tables import read_table
from profkit.errors import UsageError
from profkit.model.documents.rank_report import RankReport, Section
from profkit.model.documents.scaling import Bearing, Clue, Held, ScalingReport, Series, Standing
from profkit.render.markdown import scaling as scaling_markdown
from profkit.render.terminal import scaling
from tests.conftest import ROOT
from tests.render.reports import budget, gpu, rank

SEED = ROOT.parent / "shared" / "data" / "seeds" / "fsdp_study" / "results1.csv"
# The seed's facts: tokens/s by GPUs, at a global batch of 32, without and with activation checkpointing.
PLAIN = {2: (546, 545), 4: (1812, 1683, 1716), 8: (3230, 3197, 3104, 3125)}
CHECKPOINTED = {2: (556, 482, 534), 4: (1419, 1392, 1334), 8: (2353, 2076, 1964, 2139)}
PEAKS_GB = {False: {2: 12.94, 4: 11.29, 8: 7.08}, True: {2: 9.93, 4: 8.28, 8: 4.18}}
HEADINGS = "world_size,per_gpu_batch,grad_accum,effective_batch,tokens_per_sec,peak_mem_gb,activation_ckpt"


def study(folder: Path) -> Path:
    """The seed's runs as a table."""
    lines = [
        f"{gpus},4,{8 // gpus},32,{value},{PEAKS_GB[flag][gpus]},{flag}"
        for flag, cells in ((False, PLAIN), (True, CHECKPOINTED))
        for gpus, values in cells.items()
        for value in values
    ]
    path = folder / "study.csv"
    path.write_text("\n".join([HEADINGS, *lines]))
    return path


def by_name(report: ScalingReport) -> dict[str, Series]:
    return {series.name: series for series in report.series}


def scaled(folder: Path, text: str, **options: object) -> ScalingReport:
    path = folder / "runs.csv"
    path.write_text(text)
    return scale([read_table(path)], **options)


def clue(series: Series, name: str) -> Clue:
    return next(clue for clue in series.clues if clue.id == name)


def assert_is_the_seeds_study(report: ScalingReport) -> None:
    plain, checkpointed = (by_name(report)[f"activation_ckpt={flag}"] for flag in (False, True))
    assert (round(plain.largest.speedup, 2), round(plain.largest.efficiency, 2)) == (5.80, 1.45)
    assert (plain.base.n, plain.largest.n) == (2, 4)
    assert plain.largest.is_pilot
    assert plain.standing is Standing.ACCUSED
    assert (round(checkpointed.largest.speedup, 2), round(checkpointed.largest.efficiency, 2)) == (4.07, 1.02)
    assert (checkpointed.base.n, checkpointed.largest.n) == (3, 4)
    low, high = checkpointed.largest.interval
    assert low < 1 < high
    assert not checkpointed.largest.is_pilot


def test_the_seeds_study_from_its_numbers(tmp_path: Path) -> None:
    assert_is_the_seeds_study(scale([read_table(study(tmp_path))]))


@pytest.mark.shared
def test_the_seeds_study_from_its_file() -> None:
    if not SEED.is_file():
        pytest.skip("no seed studies beside this checkout")
    assert_is_the_seeds_study(scale([read_table(SEED)]))


def test_the_base_without_checkpointing_is_accused_with_evidence(tmp_path: Path) -> None:
    report = scale([read_table(study(tmp_path))], capacity_bytes=16e9)
    plain = by_name(report)["activation_ckpt=False"]
    clues = {clue.id: clue for clue in plain.clues}
    assert clues["memory.share"].bearing is Bearing.SUGGESTS
    assert "12.94 GB of 16 GB, 80.9 %" in clues["memory.share"].statement
    assert clues["baseline.cross_check"].bearing is Bearing.ACCUSES
    assert "70.2 % of that. From there, the speed-up is 4.07x" in clues["baseline.cross_check"].statement
    assert clues["memory.allocator"].bearing is Bearing.UNKNOWN
    assert clues["work.shape"].bearing is Bearing.CLEARS
    assert plain.next_command.startswith("profkit capture --memory")


def test_what_is_published_instead_of_an_accused_base(tmp_path: Path) -> None:
    plain = by_name(scale([read_table(study(tmp_path))]))["activation_ckpt=False"]
    assert "8 GPUs give 1.82x the throughput of 4 (ideal 2x), E = 0.91" in plain.sentence
    assert "E = 1.45" not in plain.sentence
    assert any("4.07x the throughput of 2 (ideal 4x), E = 1.02" in sentence for sentence in plain.honest)


def test_an_excess_that_a_later_loss_hides_puts_the_base_in_doubt(tmp_path: Path) -> None:
    checkpointed = by_name(scale([read_table(study(tmp_path))]))["activation_ckpt=True"]
    assert checkpointed.standing is Standing.DOUBTFUL
    assert "in doubt, because 4 GPUs give 2.64x of the same base, E = 1.32" in checkpointed.sentence


def test_the_interval_is_that_of_welch_on_logs() -> None:
    base, larger = CHECKPOINTED[2], CHECKPOINTED[8]
    theirs = stats.ttest_ind(np.log(larger), np.log(base), equal_var=False).confidence_interval(0.95)
    ours = efficiency_interval(larger, base, 4)
    assert ours == pytest.approx([math.exp(bound) / 4 for bound in theirs], rel=1e-8)
    assert efficiency_interval(larger, base[:1], 4) is None
    low, high = efficiency_interval((7222.0, 7227.0, 7227.0), (0.5, 0.5, 0.5, 1000.0, 0.5), 8)
    assert low <= 4.50682 <= high  # where runs vary manyfold
    assert efficiency_interval((1, 1), (2, 2), 4) is None


def test_a_single_run_gives_no_interval(tmp_path: Path) -> None:
    (series,) = scaled(tmp_path, "gpus,tokens_per_s\n1,100\n2,180\n").series
    assert series.largest.interval is None
    assert series.largest.cv is None
    assert "no interval: one run on a side" in series.sentence


def test_strong_and_weak_series_may_share_runs(tmp_path: Path) -> None:
    # The DDP study's facts: samples/s on 1, 2 and 4 ranks, 128 per rank and 512 in all.
    runs = ((1, 128, 4263.66), (2, 128, 6004.03), (4, 128, 7289.15), (1, 512, 6096.18), (2, 256, 8263.46))
    lines = [f"{gpus},{batch},{rate}" for gpus, batch, rate in runs]
    report = scaled(tmp_path, "\n".join(["world_size,batch_size,samples_per_s", *lines]))
    strong, weak = report.series
    assert (strong.held, weak.held) == (Held.STRONG, Held.WEAK)
    assert [round(point.efficiency, 3) for point in strong.points[1:]] == [0.678, 0.299]
    assert [round(point.efficiency, 3) for point in weak.points[1:]] == [0.704, 0.427]
    assert (round(strong.usl.alpha, 3), round(strong.usl.beta, 3), round(strong.usl.peak_gpus, 1)) == (
        0.169,
        0.153,
        2.3,
    )
    assert (round(weak.usl.alpha, 3), round(weak.usl.beta, 3)) == (0.394, 0.013)
    assert strong.usl.df == 0
    assert strong.usl.residual is None
    assert "would pass through every point" in " ".join(scaling.render(report, width=80).split())
    only = scaled(tmp_path, "\n".join(["world_size,batch_size,samples_per_s", *lines]), held=Held.WEAK)
    assert [series.held for series in only.series] == [Held.WEAK]


def test_step_times_become_work_per_second(tmp_path: Path) -> None:
    (series,) = scaled(tmp_path, "gpus,batch_size,step_ms\n1,8,100\n2,8,125\n").series
    assert (series.held, series.unit) == (Held.WEAK, "samples/s")
    assert [point.mean for point in series.points] == [80, 128]
    assert series.largest.efficiency == pytest.approx(0.8)
    (tokens,) = scaled(tmp_path, "gpus,batch,tokens_per_step,step_ms\n1,8,800,100\n2,8,1600,125\n").series
    assert (tokens.unit, [point.mean for point in tokens.points]) == ("tokens/s", [8000, 12_800])


def test_without_a_batch_what_is_held_is_said_or_taken_on_trust(tmp_path: Path) -> None:
    text = "gpus,step_ms\n1,100\n2,100\n"
    report = scaled(tmp_path, text)
    assert report.series[0].held is Held.UNKNOWN
    assert report.series[0].largest.efficiency == pytest.approx(0.5)
    assert "assumes it is the same" in report.warnings[0]
    assert report.series[0].unit == "steps/s"
    (weak,) = scaled(tmp_path, text, held=Held.WEAK).series
    assert (weak.unit, weak.largest.efficiency) == ("shares of work/s", pytest.approx(1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus,tokens_per_s\n4,100\n4,101\n", "nothing to scale: sizes 4"),
        ("tokens_per_s,loss\n100,1\n", "does not say how many GPUs"),
        ("gpus,batch_size,tokens_per_s\n1,8,100\n4,3,100\n", "nothing to scale"),
        ("gpus,batch,tokens_per_step,step_ms\n1,8,800,100\n2,8,,125\n", "others only a batch"),
    ],
)
def test_what_cannot_be_scaled_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scaled(tmp_path, text)


def test_a_sound_series_has_no_case(tmp_path: Path) -> None:
    (series,) = scaled(tmp_path, "gpus,tokens_per_s\n1,100\n1,101\n1,99\n2,190\n2,191\n2,192\n").series
    assert series.standing is Standing.SOUND
    assert series.clues == ()
    assert series.sentence.endswith("3 and 3 runs")


@pytest.mark.parametrize(
    ("first", "second", "third", "is_slow"),
    [(94, 100, 100, True), (96, 100, 100, False), (90, 91, 130, True), (90, 90, 130, False)],
)
def test_a_first_run_is_slow_by_a_twentieth_and_slower_than_each_later_one(
    first: int, second: int, third: int, is_slow: bool, tmp_path: Path
) -> None:
    rows = "".join(f"1,{value}\n" for value in (first, second, third))
    (series,) = scaled(tmp_path, f"gpus,tokens_per_s\n{rows}2,400\n2,401\n").series
    assert clue(series, "baseline.warmup").bearing is (Bearing.SUGGESTS if is_slow else Bearing.CLEARS)
    assert ("warm-up?" in clue(series, "baseline.warmup").statement) == is_slow


@pytest.mark.parametrize(("rate", "standing"), [(210, Standing.SOUND), (211, Standing.ACCUSED)])
def test_the_base_is_accused_beyond_an_efficiency_of_1_05(rate: int, standing: Standing, tmp_path: Path) -> None:
    assert scaled(tmp_path, f"gpus,tokens_per_s\n1,100\n2,{rate}\n").series[0].standing is standing


@pytest.mark.parametrize(
    ("capacity_bytes", "says", "bearing"),
    [
        (None, "peaks at 13.00 GB of 16 GB (assumed: the smallest card that fits", Bearing.SUGGESTS),
        (16.25e9, "peaks at 13.00 GB of 16.25 GB, 80", Bearing.SUGGESTS),
        (40e9, "peaks at 13.00 GB of 40 GB, 32.5", Bearing.UNKNOWN),
    ],
)
def test_peak_memory_is_a_share_of_what_is_told_or_of_the_smallest_card(
    capacity_bytes: float | None, says: str, bearing: Bearing, tmp_path: Path
) -> None:
    text = "gpus,tokens_per_s,peak_mem_gb\n1,100,13\n2,250,9\n"
    (series,) = scaled(tmp_path, text, capacity_bytes=capacity_bytes).series
    assert says in clue(series, "memory.share").statement
    assert clue(series, "memory.share").bearing is bearing


def test_the_allocator_is_cleared_only_where_the_memory_of_all_ranks_was_looked_at(tmp_path: Path) -> None:
    looked = replace(rank_report(100), sections=(Section(analyzer="memory", title="memory", values={}),))
    for ranks, bearing in (([looked] * 2, Bearing.CLEARS), ([looked, rank_report(100)], Bearing.UNKNOWN)):
        text = "gpus,batch_size,step_ms\n2,8,0.1\n4,8,0.04\n"
        (series,) = scaled(tmp_path, text, traces={2: ranks}).series
        assert clue(series, "memory.allocator").bearing is bearing


def test_a_smaller_batch_per_gpu_at_the_base_is_seen(tmp_path: Path) -> None:
    text = "gpus,per_gpu_batch,grad_accum,tokens_per_s\n1,1,8,100\n2,4,1,260\n"
    (series,) = scaled(tmp_path, text).series
    assert clue(series, "work.shape").bearing is Bearing.SUGGESTS


@given(alpha=st.floats(0, 0.5), beta=st.floats(0, 0.05), gamma=st.floats(1, 1e6))
def test_the_law_is_found_again_from_its_own_points(alpha: float, beta: float, gamma: float) -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    rates = [gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1)) for n in sizes]
    fit = fit_usl(sizes, rates)
    assert (fit.gamma, fit.alpha, fit.beta) == pytest.approx((gamma, alpha, beta), rel=1e-6, abs=1e-6)
    assert fit.df == 3
    assert fit.residual == pytest.approx(0, abs=1e-9)


def test_two_sizes_are_too_few_for_the_law() -> None:
    assert fit_usl([1, 2], [1, 2]) is None


@pytest.mark.parametrize("serial", [0, 0.05, 0.5, 1])
def test_karp_and_flatt_invert_amdahl(serial: float) -> None:
    assert serial_fraction(1 / (serial + (1 - serial) / 8), 8) == pytest.approx(serial)


def rank_report(step_us: int, **parts_us: int) -> RankReport:
    """One rank of 10 steps whose budget has these parts per step; what is left is compute."""
    parts = budget(step_us * 10_000, **{name: us * 10_000 for name, us in parts_us.items()})
    return rank(gpu(parts, comm_ns=parts.comm_exposed), n_steps=10)


def test_lost_efficiency_goes_to_exposed_communication() -> None:
    base, larger = [rank_report(100)], [rank_report(125, comm_exposed=25)] * 2
    efficiency, parts = decompose(base, larger, work_growth=1)
    assert efficiency == pytest.approx(0.8)
    assert {part.name: part.log_efficiency for part in parts} == pytest.approx(
        {WORK_PART: 0, "comm_exposed": math.log(0.8)}
    )


def test_other_work_per_compute_second_shows_as_such() -> None:
    efficiency, parts = decompose([rank_report(100)], [rank_report(80)], work_growth=1)
    assert efficiency == pytest.approx(1.25)
    assert {part.name: part.log_efficiency for part in parts} == pytest.approx({WORK_PART: math.log(1.25)})


costs = st.integers(0, 30)


@given(costs, costs, costs, costs, st.integers(60, 200), st.floats(0.1, 2))
def test_the_parts_of_log_efficiency_sum_to_it(
    comm: int, data: int, later_comm: int, later_launch: int, step: int, growth: float
) -> None:
    base = [rank_report(120, comm_exposed=comm, idle_data=data)]
    larger = [rank_report(step + 1, comm_exposed=later_comm, idle_launch=min(later_launch, step - later_comm))]
    efficiency, parts = decompose(base, larger, work_growth=growth)
    assert efficiency == pytest.approx(growth * 120 / (step + 1))
    assert sum(part.log_efficiency for part in parts) == pytest.approx(math.log(efficiency), abs=1e-9)


def test_no_account_without_steps_or_compute() -> None:
    nothing = replace(rank_report(10, comm_exposed=10))
    assert decompose([rank_report(10)], [nothing], work_growth=1) is None
    assert decompose([], [rank_report(10)], work_growth=1) is None


def test_traces_of_both_sizes_give_the_account_and_the_allocator(tmp_path: Path) -> None:
    traces = {1: [rank_report(100)], 2: [rank_report(125, comm_exposed=25)] * 2}
    text = "gpus,batch_size,step_ms\n1,8,0.1\n2,8,0.125\n"
    (series,) = scaled(tmp_path, text, traces=traces).series
    (one,) = series.decompositions
    assert one.efficiency == pytest.approx(series.largest.efficiency)
    assert "exposed" in scaling.render(scaled(tmp_path, text, traces=traces), width=80)


def test_the_markdown_holds_the_table_and_the_sentence(tmp_path: Path) -> None:
    shown = scaling_markdown.render(scale([read_table(study(tmp_path))]))
    assert shown.startswith("## profkit: baseline suspect, activation_ckpt=False")
    assert "| 8 | 4 | 3,164 | 1.9 % | 5.80x | 1.45 |" in shown
    assert "**Publish**" in shown
