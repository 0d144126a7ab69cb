"""What a failed check takes from the confidence: one rung of a ladder each."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.quality.checks import confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.findings.capture import QUALITY
from profkit.model.documents.report import Bottleneck
from profkit.testing import Row, span
from profkit.timeline import Facts
from tests.analyzers.test_findings import healthy
from tests.drawing import US, facts_of, failed_checks, launched, triaged


def kernels(n: int, *, every: int, us: int, begin: int = 0, after: int = 5) -> list[Row]:
    """So many kernels of that length, one each `every` us from `begin` on, `after` us after the calls of 2 us."""
    starts = [(begin + each * every) * US for each in range(n)]
    return [
        row
        for number, at in enumerate(starts, 1)
        for row in launched("gemm", at, at + after * US, at + (after + us) * US, number, call_ns=2 * US)
    ]


@pytest.fixture(scope="module")
def sound() -> Quality:
    return measure(Facts.of(healthy().trace()))


def test_a_sound_capture_takes_nothing(sound: Quality) -> None:
    assert confidence_cap(sound) == 1.0


@pytest.mark.parametrize(
    ("failed", "cap"),
    [
        ({"lost_launch_fraction": 1.0}, 0.2),
        ({"n_removed": 1}, 0.4),
        ({"n_giant": 1}, 0.4),
        ({"n_damage": 1}, 0.4),
        ({"n_rows": 0, "n_steps": 0}, 0.2),
        ({"n_cpu_ops": 0}, 0.2),
        ({"whole_graph_fraction": 1.0}, 0.4),
        ({"early_fraction": 1.0}, 0.5),
        ({"unlinked_fraction": 1.0}, 0.6),
        ({"n_steps": 1}, 0.6),
        ({"overlapped_fraction": 1.0}, 0.7),
        ({"overhead_fraction": 1.0}, 0.7),
        ({"startup_fraction": 1.0}, 0.4),
        ({"first_batch_ns": 10**12}, 0.4),
        ({"stacked_fraction": 0.3}, 0.6),
        ({"n_read": 3}, 0.6),
        ({"stacked_fraction": 0.1}, 1.0),
        ({"perturbation": 0.4}, 0.7),
        ({"perturbation": 0.5}, 1 / 1.5),
        ({"perturbation": 0.6}, 0.6),
        ({"perturbation": 9.0}, 0.1),
    ],
)
def test_a_failed_check_caps_the_confidence(sound: Quality, failed: dict[str, object], cap: float) -> None:
    assert confidence_cap(replace(sound, **failed)) == cap


def test_rows_whose_ends_were_rounded_cost_no_confidence() -> None:
    """Each row ends 80 ns into the one after it: all rows overlap, 0.8 % of their time does."""
    rows = kernels(30, every=10, us=10, after=10)
    longer = [replace(row, end_ns=row.end_ns + 80) if row.name == "gemm" else row for row in rows]
    overlapped = measure(facts_of(longer)).overlapped_fraction or 0
    assert 0 < overlapped < QUALITY.limit("stream.overlap")


@pytest.mark.parametrize(
    ("waits_us", "is_refused"),
    [([(0, 900)], True), ([(0, 90)], False), ([(0, 900), (1_100, 1_200)], False)],
    ids=["one long wait", "a short one", "another one inside"],
)
def test_the_first_batch_alone_says_nothing_of_later_ones(waits_us: list[tuple[int, int]], is_refused: bool) -> None:
    """Thirty kernels of 10 us each from 1 ms on; the loader's ranges stand before them, or between."""
    rows = [span("enumerate(DataLoader)#_Iter.__next__", start * 1_000, end * 1_000) for start, end in waits_us]
    of = triaged([*rows, *kernels(30, every=10, us=10, begin=1_000)])
    assert ("input.first_batch" in failed_checks(of.rank)) == is_refused
    if is_refused:
        assert of.verdict.bottleneck is Bottleneck.INCONCLUSIVE


@pytest.mark.parametrize(("told", "said"), [({"with_stack": 1}, True), ({"with_stack": 0}, False)], ids=str)
def test_host_time_recorded_with_stacks_is_doubted(told: dict[str, object], said: bool) -> None:
    """A kernel of 1 us each 10 us: the device waits for launches nine tenths of the time."""
    rows = kernels(60, every=10, us=1)
    of = triaged(rows, **told)
    assert ("profiler.stacks" in failed_checks(of.rank)) == said
    assert (of.verdict.confidence <= 0.6) or not said
    timed = triaged(rows, **told, profkit_unprofiled_step_mean_ns=600_000).rank
    assert "profiler.stacks" not in {check.id for check in timed.checks}
