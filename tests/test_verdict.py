"""The verdict: its step, gain and ceiling are one sum, and what nobody looked for is not ruled out."""

from __future__ import annotations

import pytest

from profkit.model.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.testing import kernel, launch, span, trace_of
from profkit.verdict import CHEAPER_WORK, LEAVE_IT

MS = 1_000_000


def test_step_gain_and_ceiling_are_one_sum_where_steps_do_not_touch():
    rows = []
    for number in range(8):
        start = number * 10 * MS  # 1 ms lies between a marker and the next
        rows.append(span(f"ProfilerStep#{number}", start, start + 9 * MS))
        rows.append(span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 6 * MS))
        rows.append(span("aten::mm", start + 6 * MS, start + 9 * MS, cat="cpu_op"))
    _, verdict = triage_trace(trace_of(rows))
    assert verdict.bottleneck is Bottleneck.DATA
    assert verdict.step_ns == 9 * MS
    assert verdict.speedup_ceiling == pytest.approx(79 / (79 - 8 * 6), rel=1e-6)  # of the window, gaps included
    assert verdict.speedup_ceiling == pytest.approx(9 * MS / (9 * MS - verdict.recoverable_ns), rel=1e-6)


def worked(share: float, n_steps: int = 8):
    """Steps of 10 ms, so much of each in one kernel that is launched in time."""
    rows = []
    for number in range(n_steps):
        start, end = number * 10 * MS, number * 10 * MS + int(share * 10 * MS)
        rows.append(span(f"ProfilerStep#{number}", start, start + 10 * MS))
        rows.append(launch(start, start + 5_000, correlation=number + 1))
        rows.append(kernel("ampere_bf16_s16816gemm_bf16", start + 10_000, end, correlation=number + 1))
    return trace_of(rows)


def test_what_nobody_looked_for_is_not_ruled_out():
    rank, verdict = triage_trace(worked(0.9))
    assert {"input", "overlap", "transfers"} <= {skip.analyzer for skip in rank.skipped}
    assert not [line for line in verdict.ruled_out if line.startswith(("data", "exposed"))]


@pytest.mark.parametrize(("share", "fix"), [(0.9, LEAVE_IT), (0.76, CHEAPER_WORK)])
def test_work_is_left_alone_where_there_is_little_else(share, fix):
    _, verdict = triage_trace(worked(share))
    assert verdict.bottleneck is Bottleneck.KERNEL
    assert verdict.fixes == (fix,)
