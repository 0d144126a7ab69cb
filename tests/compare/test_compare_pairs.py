"""Natural experiments of others: what the authors changed, told in size, direction and name (README beside them)."""

from functools import cache

import pytest

from profkit.compare.captures.sides import Side, read_side
from profkit.compare.comparison import compare
from profkit.model.documents.comparison import Comparison
from tests.conftest import ROOT, dear

PAIRS = ROOT.parent / "shared" / "data" / "pairs"
pytestmark = [pytest.mark.shared, pytest.mark.skipif(not PAIRS.is_dir(), reason="no real pairs beside this checkout")]


@cache
def side(name: str, pattern: str) -> Side:
    (path,) = PAIRS.glob(pattern)
    return read_side(name, [str(path)])


def compared(before: str, after: str) -> Comparison:
    return compare(side("baseline", f"{before}*"), side("candidate", f"{after}*"))


NERSC, SAM = "nersc-sc21/", "sam2-amg/"
TOLD = [
    (f"{NERSC}1-", f"{NERSC}2-", -0.708, "compare.input", "waiting for data falls: 8 loader workers, before 2"),
    (f"{NERSC}2-", f"{NERSC}3-", -0.205, "compare.input", "waiting for data falls: DALI makes batches now"),
    (f"{NERSC}3-", f"{NERSC}4-", -0.097, "compare.precision", "mixed precision"),
    (f"{NERSC}4-", f"{NERSC}5-", -0.041, "compare.optimizer", "the optimizer is fused, before a loop over tensors"),
    (f"{NERSC}6-", f"{NERSC}7-", -0.023, "compare.bucket_copies", "gradient_as_bucket_view"),
    (f"{NERSC}7-", f"{NERSC}8-", 0.011, "compare.buckets", "fewer, larger buckets (bucket_cap_mb)"),
    ("ai-profiler/1-baseline-nvtx", "ai-profiler/2-", -0.240, "compare.input", "2 loader workers, before 1"),
    ("ai-profiler/1-baseline-no", "ai-profiler/2-", -0.089, "compare.input", "waiting for data falls"),
    (f"{SAM}1-", f"{SAM}2-", -0.179, "compare.syncs", "the host waits for the device less often"),
    (f"{SAM}2-", f"{SAM}3-", -0.282, "compare.compiled", "compiled (torch.compile) and replayed as CUDA graphs"),
    (f"{SAM}3-", f"{SAM}4-", 0.381, "compare.compiled", "no longer compiled (torch.compile)"),
]
"""The change is by the captures themselves: of whole steps, of the same input, without what was lost. The second
`ai-profiler` baseline ends with an evaluation, which is no step; the last sam2 commit takes torch.compile out again."""
DEAR = {2, 3, 5, 7, 10}


@pytest.mark.parametrize(
    ("before", "after", "change", "first", "words"),
    [dear(*told) if place in DEAR else told for place, told in enumerate(TOLD)],
)
def test_what_its_authors_changed_is_told(before, after, change, first, words):
    comparison = compared(before, after)
    assert comparison.judgement.is_comparable
    assert comparison.judgement.change == pytest.approx(change, abs=0.005)
    assert comparison.readings[0].id == first
    assert words in comparison.readings[0].title


def test_exports_with_lost_records_and_another_clock_are_as_sound_as_others():
    comparison = compared(f"{NERSC}6-", f"{NERSC}7-")
    for one in (comparison.baseline, comparison.candidate):
        assert one.bottleneck == "kernel-bound"
        assert one.occupancy["idle"] < 0.05
    assert sum("records are lost in" in caveat for caveat in comparison.caveats) == 2
    assert sum("are shifted" in caveat for caveat in comparison.caveats) == 2
    assert comparison.compute.delta_ns == pytest.approx(0, abs=0.01 * comparison.compute.baseline_ns)


def test_steps_that_wait_now_and_then_are_told_beside_the_mean():
    told = [caveat for caveat in compared(f"{NERSC}2-", f"{NERSC}3-").caveats if "median" in caveat]
    slow = "steps 7, 15, 23 of the baseline take over twice its median"
    assert told == [f"{slow}; the median step changes by -6.9 % (177 ms -> 165 ms)"]
