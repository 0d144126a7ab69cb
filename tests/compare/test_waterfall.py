"""Accounts of a change are exact for any two traces: they sum, they vanish for one trace, they turn with the sides."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.compare.captures.measured import measured
from profkit.compare.captures.sides import Run, Side
from profkit.compare.captures.waterfall import account, apportioned, waterfall
from profkit.compare.comparison import compare
from profkit.model.documents.comparison import Account, Bar, Presence, Waterfall, WorkChange
from profkit.testing import draw, kernel, launch, row_lists, trace_of
from tests.compare.drawn import K, N, job, side
from tests.conftest import examples

TRACES = st.builds(trace_of, row_lists())
PARTS = st.dictionaries(
    st.text(max_size=3), st.fractions(min_value=-(10**6), max_value=10**9, max_denominator=97), min_size=1
)


@given(PARTS)
def test_apportioned_parts_sum_and_stay_within_one(parts: dict[str, Fraction]):
    total = round(sum(parts.values()))
    whole = apportioned(parts, total)
    assert sum(whole.values()) == total
    assert all(abs(whole[name] - part) <= 1 for name, part in parts.items())


def runs_of(*traces):
    return [[measured(trace)] for trace in traces]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(TRACES, min_size=1, max_size=3), st.lists(TRACES, min_size=1, max_size=3))
def test_the_waterfall_and_the_accounts_sum(first, second):
    both = runs_of(*first), runs_of(*second)
    whole = waterfall(*both)
    assert sum(bar.delta_ns for bar in whole.bars) == whole.delta_ns
    for rows_of, busy in ((lambda trace: trace.compute, "compute"), (lambda trace: trace.comm, None)):
        sums = account(*both, rows_of, n_rows=2)
        parts = [*sums.rows, sums.rest, sums.side_by_side]
        assert sum(part.delta_ns for part in parts) == sums.delta_ns
        assert all(row.by_count_ns + row.by_duration_ns == row.delta_ns for row in sums.rows)
        if busy is not None:
            assert abs(sums.baseline_ns - whole.bar(busy).baseline_ns) <= 1  # both are roundings of one fraction


@settings(max_examples=examples(20), deadline=None)
@given(TRACES)
def test_one_trace_against_itself_is_zero_everywhere(trace):
    comparison = compare(side("baseline", trace), side("candidate", trace))
    assert comparison.waterfall.delta_ns == 0
    assert all(bar.delta_ns == 0 for bar in comparison.waterfall.bars)
    assert all(row.delta_ns == row.by_count_ns == 0 for row in comparison.compute.rows)
    assert comparison.readings == ()
    assert all(item.presence is Presence.BOTH for item in comparison.findings)


@settings(max_examples=examples(20), deadline=None)
@given(TRACES, TRACES)
def test_swapping_the_sides_negates_every_change(first, second):
    there, back = (waterfall(*pair) for pair in ((runs_of(first), runs_of(second)), (runs_of(second), runs_of(first))))
    assert [bar.delta_ns for bar in there.bars] == [-bar.delta_ns for bar in back.bars]

    def changes(one, other):
        sums = account(runs_of(one), runs_of(other), lambda trace: trace.compute)
        return sorted((row.delta_ns, row.by_count_ns, row.by_duration_ns) for row in sums.rows)

    assert changes(first, second) == sorted(tuple(-part for part in row) for row in changes(second, first))


def test_the_parts_of_a_drawn_step_are_those_in_the_picture():
    before = draw("""
        steps  | 0.........1.........
        gpu s7 | KKKK......KKKK......
        gpu s20| ....NN........NN....
    """)
    after = draw("""
        steps  | 0.......1.......
        gpu s7 | KKKK....KKKK....
        gpu s20| NN......NN......
    """)
    whole = waterfall(runs_of(before), runs_of(after))
    assert (whole.baseline_ns, whole.candidate_ns) == (10_000, 8_000)
    assert whole.bar("compute").delta_ns == 0
    assert (whole.bar("comm_exposed").baseline_ns, whole.bar("comm_exposed").candidate_ns) == (2_000, 0)


def test_count_and_duration_are_told_apart():
    before = job([K(at=10 + 100 * place, us=50) for place in range(4)])
    after = job([K(at=10 + 100 * place, us=60) for place in range(6)])
    (row,) = account(runs_of(before), runs_of(after), lambda trace: trace.compute).rows
    assert (row.baseline_count, row.candidate_count, row.delta_ns) == (4, 6, 160_000)
    assert (row.by_count_ns, row.by_duration_ns) == (120_000, 40_000)  # 2 x 60 us more, 4 x 10 us longer


def test_neither_count_nor_duration_is_more_than_the_window():
    """Three long launches become thirty short ones: no part of the split is more than the row ever took."""
    before = job([K(at=10 + 300 * place, us=290) for place in range(3)])
    after = job([K(at=10 + 30 * place, us=5) for place in range(30)])
    (row,) = account(runs_of(before), runs_of(after), lambda trace: trace.compute).rows
    assert (row.baseline_ns, row.candidate_ns) == (870_000, 150_000)
    assert (row.by_count_ns, row.by_duration_ns) == (135_000, -855_000)  # 27 x 5 us more, 3 x 285 us less


def test_a_kernel_that_another_operator_launches_as_well_is_not_new():
    """79 launches on both sides: 79 under one operator before, 49 and 30 under two operators after."""
    before = job([K(at=10 + 12 * place, us=5, op="aten::add") for place in range(79)], n_steps=2)
    ops = ["aten::add"] * 49 + ["aten::mul"] * 30
    after = job([K(at=10 + 12 * place, us=5, op=op) for place, op in enumerate(ops)], n_steps=2)
    for pair in ((before, after), (after, before)):
        (row,) = account(*map(runs_of, pair), lambda trace: trace.compute).rows
        assert (row.presence, row.baseline_count, row.candidate_count) == (Presence.BOTH, 79, 79)
        assert (row.by_count_ns, row.by_duration_ns) == (0, 0)


def test_a_variant_of_a_kernel_that_both_sides_run_is_not_new():
    """The reader sees the short name alone: `new: wgrad` beside 49 launches of `wgrad` on both sides is a riddle."""
    names = ["void wgrad<float, 128>(float*)"] * 79
    before = job([K(at=10 + 12 * place, us=5, name=name) for place, name in enumerate(names)], n_steps=2)
    names = names[:49] + ["void wgrad<float, 512>(float*)"] * 30
    after = job([K(at=10 + 12 * place, us=5, name=name) for place, name in enumerate(names)], n_steps=2)
    (row,) = account(runs_of(before), runs_of(after), lambda trace: trace.compute).rows
    assert row.presence in {Presence.BOTH, Presence.REPLACED}
    assert (row.baseline_count, row.candidate_count, row.delta_ns) == (79, 79, 0)


def test_what_runs_side_by_side_is_counted_once():
    both = [K(at=10, us=100), K(at=10, us=100, stream=9, name="other_kernel")]
    sums = account(runs_of(job([K(at=10, us=100)])), runs_of(job(both)), lambda trace: trace.compute)
    assert sums.delta_ns == 0
    assert (sums.rows[0].name, sums.rows[0].presence, sums.rows[0].delta_ns) == ("other_kernel", "appeared", 100_000)
    assert sums.side_by_side.delta_ns == -100_000


def test_runs_weigh_alike_however_many_ranks_and_steps_they_have():
    short, long = job([K(at=10, us=100)], n_steps=2), job([K(at=10, us=300)], n_steps=7)
    runs = [[measured(short)], [measured(long), measured(long)]]
    assert waterfall(runs, runs_of(short)).bar("compute").baseline_ns == 200_000


def test_collectives_on_a_device_sum_to_their_busy_time():
    sums = account(runs_of(job([N(10, 100)])), runs_of(job([N(10, 100), N(200, 50)])), lambda trace: trace.comm)
    assert sums.delta_ns == 50_000
    (row,) = sums.rows
    assert row.by_count_ns + row.by_duration_ns == 50_000


def test_the_values_refuse_sums_that_are_off():
    bar = Bar(name="compute", baseline_ns=3, candidate_ns=5)
    with pytest.raises(ValueError, match="do not sum"):
        Waterfall(baseline_ns=4, candidate_ns=5, bars=(bar,))
    row = WorkChange(
        name="k", operator="", family="", presence=Presence.BOTH, baseline_count=1, candidate_count=1,
        baseline_ns=3, candidate_ns=5, by_count_ns=0, by_duration_ns=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match="is not 2 ns"):
        replace(row, by_count_ns=1)
    with pytest.raises(ValueError, match="do not sum"):
        Account(baseline_ns=6, candidate_ns=9, rows=(row,), rest=row, n_rest=1, side_by_side=bar)


def test_several_windows_of_one_run_are_one_run():
    window = measured(job([K(at=10, us=100)]))
    run = Run(name="a", traces=(window, window), unprofiled_ns=((), ()))
    comparison = compare(Side(name="baseline", runs=(run,)), Side(name="candidate", runs=(run,)))
    assert comparison.judgement.n == (1, 1)
    assert comparison.baseline.n_traces == 2


def windows(name, *pictures):
    return side(name, *(draw(f"gpu s7 | {one * 6}", lag_us=0) for one in pictures))


def test_windows_without_steps_that_hold_other_work_are_shown_and_prove_nothing():
    """A recording cut by the clock is as long as ever, however fast the job is."""
    slow = windows("baseline", "K.K.K.K.K.K.K.KK", "K.K.K.K.K.K.K.K.K", "K.K.K.K.K.K.K.KK")
    fast = windows("candidate", "K.K...K..K...K", "K.K...K..K..KK", "K.K...K..K...K")
    comparison = compare(slow, fast, margin=0.01)
    judged = comparison.judgement
    assert (judged.answer, judged.is_comparable, judged.interval, judged.p_value) == ("inconclusive", True, None, None)
    assert judged.sentence.startswith("the windows may hold different work, so this is unproven: ")
    assert judged.sentence.endswith("less time (1.17x) in these runs")
    assert comparison.waterfall.delta_ns < 0
    assert comparison.caveats[0].startswith("no steps were found, so the recorded windows are compared")
    assert "45 -> 25 operations" in comparison.caveats[0]
    assert compare(slow, slow, margin=0.5).judgement.answer == "equivalent"  # a fixed piece of work, timed whole


def unmarked(kernels, *, whole_us=1000):
    """A window without steps: these kernels, one after another."""
    rows = []
    for number, (name, us) in enumerate(kernels):
        begin = 10**9 + number * 1000 * whole_us // len(kernels)
        rows += [
            launch(begin - 2000, begin - 1000, correlation=number),
            kernel(name, begin, begin + us * 1000, correlation=number, grid=[64, 1, 1], block=[128, 1, 1]),
        ]
    return trace_of(rows)


def test_windows_with_as_many_products_are_the_same_work_in_other_kernels():
    """Fusion leaves fewer kernels, and as many products of matrices."""
    eager = [
        unmarked([("ampere_sgemm", 10), *[("elementwise_add", 10)] * 4] * 12, whole_us=wide) for wide in (900, 905)
    ]
    fused = [unmarked([("ampere_sgemm", 10), ("triton_poi_fused_add", 15)] * 12, whole_us=wide) for wide in (600, 605)]
    comparison = compare(side("baseline", eager[0], *eager), side("candidate", fused[0], *fused))
    assert comparison.judgement.answer == "improved"
    assert "60 -> 24 operations, 12 products of matrices on both sides" in comparison.caveats[0]
    assert "the same work in other kernels" in comparison.caveats[0]


def test_windows_with_more_of_everything_hold_more_work():
    """A recording of fixed length: the same kernels, each run less often, is a slower job and not an equal one."""
    one = [(f"kernel_{number}", 5) for number in range(6)]
    comparison = compare(side("baseline", unmarked(one * 20)), side("candidate", unmarked(one * 18)))
    assert not comparison.judgement.is_comparable
    assert comparison.judgement.sentence.startswith("a window does 0.90x the work")
    (work,) = comparison.readings
    assert work.seen("compare.launches_ratio").value == pytest.approx(0.9)
    assert work.seen("compare.time_per_work_ratio").value == pytest.approx(1.11, abs=0.01)


def test_a_kernel_more_often_beside_others_is_the_same_work():
    one = [(f"kernel_{number}", 5) for number in range(6)]
    more = [*one * 10, *[("kernel_0", 5)] * 20]
    comparison = compare(side("baseline", unmarked(one * 10)), side("candidate", unmarked(more)))
    assert comparison.judgement.is_comparable


def test_a_capture_with_next_to_nothing_in_it_is_not_compared():
    whole = unmarked([("ampere_sgemm", 10), *[("elementwise_add", 10)] * 4] * 8)
    little = unmarked([("ampere_sgemm", 10), ("elementwise_add", 10)])
    comparison = compare(side("baseline", whole), side("candidate", little))
    assert not comparison.judgement.is_comparable
    assert comparison.judgement.sentence.startswith("candidate: 2 rows of activity recorded: too little")


def test_ranks_of_one_recording_on_two_sides_are_called_so():
    kernels = [K(at=10, us=100)]
    ranks = [job(kernels, distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"}) for rank in (0, 1)]
    said = compare(side("baseline", ranks[0]), side("candidate", ranks[1])).caveats
    assert any("ranks 0 and 1 of one recording" in caveat for caveat in said)
    assert not any("of one recording" in item for item in compare(side("a", ranks[0]), side("b", ranks[0])).caveats)


def steps_and_none(names, *, whole_us):
    """A side of twelve steps of two kernels each, and one without steps that runs these kernels."""
    stepped = job([K(at=10, us=100, name="ampere_sgemm"), K(at=200, us=100, name="elementwise_add")], n_steps=12)
    whole = unmarked([(name, 20) for name in names], whole_us=whole_us)
    return side("baseline", stepped), side("candidate", whole)


def test_where_one_side_has_no_steps_the_windows_are_compared_and_that_is_said():
    """Twelve steps of 1 ms against a recording of the same 24 kernels: never a step of 1 ms against a window."""
    comparison = compare(*steps_and_none(["ampere_sgemm", "elementwise_add"] * 12, whole_us=4000))
    judged = comparison.judgement
    assert (judged.unit, judged.is_comparable) == ("ns/window", True)
    assert comparison.waterfall.baseline_ns == 12_000_000
    assert judged.sentence.startswith("12.0 -> 3.8")
    assert "1 run each cannot rule out noise" in judged.sentence
    assert "steps were found in baseline only, so the recorded windows are compared; they hold as many operations" in (
        comparison.caveats
    )
    assert (comparison.baseline.n_steps, comparison.candidate.n_steps) == (0, 0)
    assert any(item.what == "steps found by" for item in comparison.unlike)


def test_windows_of_other_work_than_the_steps_prove_nothing():
    comparison = compare(*steps_and_none(["ampere_sgemm", "copy", "add"] * 16, whole_us=4000))
    assert comparison.judgement.answer == "inconclusive"
    assert comparison.judgement.interval is None
    assert "cannot be compared" not in comparison.judgement.sentence
    assert comparison.waterfall is not None


def test_a_fused_all_to_all_is_communication_in_a_comparison():
    """The candidate's all-to-alls take 300 us more and its products 200 us less: that is what the waterfall says."""
    products = [K(at=10, us=400, op="aten::mm")]
    fused = {"name": "_dispatch_all_to_all_expert_major_kernel", "op": "TokenDispatch"}
    nameless = {"name": "_fused_v2", "op": "ExpertAllToAllBackward"}
    before = job([*products, K(at=420, us=100, **fused), K(at=530, us=100, **nameless)])
    less = [K(at=10, us=200, op="aten::mm")]
    after = job([*less, K(at=220, us=250, **fused), K(at=480, us=250, **nameless)])
    whole = compare(side("baseline", before), side("candidate", after)).waterfall
    assert (whole.bar("compute").delta_ns, whole.bar("comm_exposed").delta_ns) == (-200_000, 300_000)
