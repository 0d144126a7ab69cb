"""Both sides are cut alike, and nothing is claimed of what was not recorded."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as changed

from profkit.compare.captures.pair import Pair
from profkit.compare.comparison import compare
from profkit.model.trace import Trace
from profkit.testing import Row, kernel, launch, span, trace_of
from tests.compare.drawn import K, compared, explained, host, job, read, side

US = 1000


def rows_of(kernels: list[tuple[str, int]], *, gap_us: int = 20, first: int = 1, at_us: int = 0) -> list[Row]:
    """Kernels one after another, each launched 5 us before it starts, without steps."""
    rows: list[Row] = []
    begin = 10**9 + at_us * US
    for number, (name, us) in enumerate(kernels, first):
        rows.append(launch(begin - 5 * US, begin - 4 * US, correlation=number))
        grid = {"grid": [64, 1, 1], "block": [128, 1, 1]}
        rows.append(kernel(name, begin, begin + us * US, correlation=number, **grid))
        begin += (us + gap_us) * US
    return rows


def passes(n: int, *, us: int, odd: bool = False) -> Trace:
    """An encoder's kernels, then n passes of eleven and an optimizer's; of an odd recording no period is found."""
    passed = [
        (f"gemm_{k * k * (turn + 1 if odd else 1)}" if k else "multi_tensor_apply_kernel", us)
        for turn in range(n)
        for k in range(12)
    ]
    return trace_of(rows_of([*((f"encoder_{k * k}", 400) for k in range(12)), *passed]))


def test_where_one_side_shows_steps_both_are_compared_by_their_windows():
    """The period of one side leaves its encoder out; the other has no period, and the encoder in its window."""
    before, after = passes(20, us=100, odd=True), passes(20, us=80)
    assert not before.steps
    assert after.steps
    comparison = compared(before, after)
    whole = [one.window_duration_ns for one in (before, after)]
    assert comparison.judgement.change == pytest.approx(whole[1] / whole[0] - 1)
    assert "the recorded windows are compared" in comparison.caveats[0]


def marked(n: int, *, marker_us: int, step_us: int = 1000, last_us: int = 0) -> Trace:
    """Steps whose markers end before the next one begins; a kernel runs at the end of each."""
    rows: list[Row] = []
    for number in range(n):
        begin = 10**9 + number * step_us * US
        rows.append(span(f"ProfilerStep#{number}", begin, begin + (marker_us + (number == n - 1) * last_us) * US))
        for place in range(5):
            start = begin + (10 + place * marker_us // 6) * US
            correlation = number * 5 + place + 1
            rows += [
                launch(start - 5 * US, start - 4 * US, correlation=correlation),
                kernel(f"gemm_{place}", start, start + 50 * US, correlation=correlation),
            ]
    return trace_of(rows)


def test_a_last_step_whose_end_nobody_recorded_is_no_step():
    """Markers of 600 us in steps of 1 ms and of 900 us: the last one would be 600 us long on both sides."""
    comparison = compared(marked(6, marker_us=600), marked(6, marker_us=600, step_us=900))
    assert comparison.judgement.baseline_mean == 1_000_000
    assert comparison.judgement.candidate_mean == 900_000
    assert (comparison.baseline.n_steps, comparison.candidate.n_steps) == (5, 5)
    whole = compared(marked(6, marker_us=995), marked(6, marker_us=995))
    assert whole.baseline.n_steps == 6


# ------------------------------------------------------------------------------------------------------- lost, hidden


def without_kernels(trace: Trace, share: int) -> Trace:
    """The trace without every so many-th row of the device."""
    kept = np.flatnonzero(np.arange(len(trace.gpu)) % share)
    return changed(trace, gpu=trace.gpu.take(kept))


GEMMS = [K(at=10 + 80 * place, us=60, name=f"gemm_{place}") for place in range(9)]


def test_lost_records_are_not_less_work():
    """Every third kernel of the candidate was lost: fewer kernels, less compute, findings gone; none of it is said."""
    sound = job(GEMMS)
    comparison = compared(sound, without_kernels(sound, 3))
    assert comparison.readings == ()
    assert comparison.waterfall is comparison.compute is None
    assert comparison.judgement.is_comparable
    assert comparison.judgement.change == 0
    assert {item.presence for item in comparison.findings} <= {"both"}
    assert comparison.caveats[0] == "records are lost: only the whole time is compared, not what it was spent on"


def test_windows_with_lost_records_prove_nothing():
    rows = rows_of([(f"gemm_{place}", 50) for place in range(6)] * 8)
    sound, lossy = trace_of(rows), without_kernels(trace_of(rows), 4)
    judged = compared(sound, lossy).judgement
    assert "the windows may hold different work" in judged.sentence


def test_kernels_inside_whole_graphs_are_not_gone():
    """The candidate replays everything in one graph, of which one row was recorded."""
    before = job([*GEMMS, K(at=800, us=80, name="softmax_warp_forward")])
    after = job([K(at=10, us=600, name="CUDA graph 7")], step_us=700)
    comparison = compared(before, after)
    assert {item.id for item in comparison.readings} <= {
        "compare.compute",
        "compare.launches",
        "compare.compiled",
        "compare.idle",
    }
    assert comparison.compute is None
    assert any("CUDA graphs hide kernels" in caveat for caveat in comparison.caveats)
    assert {item.presence for item in comparison.findings} <= {"both"}


# ----------------------------------------------------------------------------------------------------------- outliers


def test_one_slow_step_is_named_and_no_cause():
    """Of 20 steps the eighth idles for 8 ms more: 400 us of the mean, 40 %; the others are as before."""
    steady, slow = job(GEMMS, n_steps=20), job(GEMMS, n_steps=20, slow={7: 8000})
    (found,) = compared(steady, slow).readings
    assert found.id == "compare.slow_step"
    assert found.title == "one step of 20 is slow: step 7 of the candidate takes 9.00 ms"
    assert explained(found) == 400_000
    assert found.seen("compare.steady_change_ns").value == 0
    comparison = compared(steady, slow)
    assert comparison.judgement.sentence.endswith("; without its slow step 0.0 % more time (1.00x)")
    assert "step 7 of the candidate takes over twice its median; the median step changes by +0.0 %" in (
        " ".join(comparison.caveats)
    )


def test_one_slow_step_on_a_cpu_is_named_as_well():
    """There the slow step has no part for waits for a device."""
    ranges = [host("aten::mm", 10, 500)]
    found = read(job([], ranges=ranges, n_steps=20), job([], ranges=ranges, n_steps=20, slow={7: 8000}))
    assert explained(found["slow_step"]) == pytest.approx(400_000, rel=0.02)


def test_a_slow_step_does_not_hide_what_changed_in_all_steps():
    slower = [replace(item, us=75) for item in GEMMS]
    found = read(job(GEMMS, n_steps=20), job(slower, n_steps=20, slow={3: 9000}))
    assert set(found) >= {"slow_step", "same_work_slower"}
    assert "launches" not in found


@pytest.mark.parametrize("slow", [{}, {2: 8000, 9: 8000}, {2: 700}])
def test_steps_that_are_even_or_slow_again_and_again_are_no_outlier(slow):
    assert "slow_step" not in read(job(GEMMS, n_steps=20), job(GEMMS, n_steps=20, slow=slow))


def test_few_steps_have_no_outlier():
    assert "slow_step" not in read(job(GEMMS, n_steps=6), job(GEMMS, n_steps=6, slow={3: 8000}))


def test_medians_stand_beside_means_where_a_few_steps_make_them():
    before, after = job(GEMMS, n_steps=20, slow={3: 4000, 11: 4000}), job(GEMMS, n_steps=20, step_us=900)
    comparison = compared(before, after)
    assert comparison.judgement.change == pytest.approx(900 / 1400 - 1)
    told = next(caveat for caveat in comparison.caveats if "median" in caveat)
    assert told == (
        "steps 3, 11 of the baseline take over twice its median; the median step changes by -10.0 % (1.00 ms -> 900 us)"
    )


def test_groups_of_compute_sum_to_its_change():
    before = side("baseline", job([*GEMMS, K(at=760, us=90, name="softmax_warp_forward")]))
    after = side("candidate", job([replace(item, us=41) for item in GEMMS], step_us=777))
    pair = Pair(baseline=before, candidate=after)
    assert sum(pair.groups.values()) == pair.waterfall.bar("compute").delta_ns
    assert compare(before, after).waterfall == pair.waterfall
