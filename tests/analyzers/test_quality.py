"""What a failed check takes from the confidence: one rung of a ladder each."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.quality.checks import confidence_cap
from profkit.analyzers.quality.measured import Quality, measure
from profkit.findings.capture import QUALITY
from profkit.model.documents.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline import Facts
from tests.analyzers.test_findings import healthy


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
    rows = [
        row
        for n in range(30)
        for row in (
            launch(n * 10_000, n * 10_000 + 2_000, correlation=n + 1),
            kernel("gemm", (n + 1) * 10_000, (n + 2) * 10_000 + 80, correlation=n + 1),
        )
    ]
    overlapped = measure(Facts.of(trace_of(rows))).overlapped_fraction or 0
    assert 0 < overlapped < QUALITY.limit("stream.overlap")


@pytest.mark.parametrize(
    ("waits_us", "is_refused"),
    [([(0, 900)], True), ([(0, 90)], False), ([(0, 900), (1_100, 1_200)], False)],
    ids=["one long wait", "a short one", "another one inside"],
)
def test_the_first_batch_alone_says_nothing_of_later_ones(waits_us: list[tuple[int, int]], is_refused: bool) -> None:
    """Thirty kernels of 10 us each from 1 ms on; the loader's ranges stand before them, or between."""
    rows = [span("enumerate(DataLoader)#_Iter.__next__", start * 1_000, end * 1_000) for start, end in waits_us]
    for n in range(30):
        asked = 1_000_000 + n * 10_000
        rows += [launch(asked, asked + 2_000, correlation=n + 1)]
        rows += [kernel("gemm", asked + 5_000, asked + 15_000, correlation=n + 1)]
    rank, verdict = triage_trace(trace_of(rows))
    failed = {check.id for check in rank.checks if not check.ok}
    assert ("input.first_batch" in failed) == is_refused
    if is_refused:
        assert verdict.bottleneck is Bottleneck.INCONCLUSIVE


@pytest.mark.parametrize(("told", "said"), [({"with_stack": 1}, True), ({"with_stack": 0}, False)], ids=str)
def test_host_time_recorded_with_stacks_is_doubted(told: dict[str, object], said: bool) -> None:
    """A kernel of 1 us each 10 us: the device waits for launches nine tenths of the time."""
    rows = []
    for n in range(60):
        rows.append(launch(n * 10_000, n * 10_000 + 2_000, correlation=n + 1))
        rows.append(kernel("gemm", n * 10_000 + 5_000, n * 10_000 + 6_000, correlation=n + 1))
    rank, verdict = triage_trace(trace_of(rows, **told))
    assert ("profiler.stacks" in {check.id for check in rank.checks if not check.ok}) == said
    assert (verdict.confidence <= 0.6) or not said
    timed = trace_of(rows, **told, profkit_unprofiled_step_mean_ns=600_000)
    assert "profiler.stacks" not in {check.id for check in triage_trace(timed)[0].checks}
