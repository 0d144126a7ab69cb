"""A verdict in the time that the step takes without the profiler, where the capture has timed that.

Shares stay those of the recorded steps. Step, gains and ceiling are of the run as it is without the profiler: nobody
saves time that only the profiler takes. It takes the host's time: kernels, copies and waits for data last as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from profkit.analyzers.base import bare_step_ns
from profkit.findings import kind_of
from profkit.findings.host import STALL
from profkit.findings.parts import LAUNCHES
from profkit.model.budget import WORK_PARTS
from profkit.model.documents.report import Bottleneck, Verdict, speedup
from profkit.model.finding import Finding
from profkit.units import format_ns
from profkit.verdict.case import Case

_LEAST_OF_SCALED: Final = 0.5
_MOST_OF_STEP: Final = 0.95
"""Chosen: some of the step is the work."""


def in_unprofiled_time(
    verdict: Verdict, findings: Sequence[Finding], case: Case, *, plain_ns: int | None, profiled_ns: int | None
) -> tuple[Verdict, tuple[Finding, ...]]:
    """The verdict and all findings with times of steps as they are without the profiler.

    `plain_ns` is the mean step without it, `profiled_ns` the one with it by the same clock; where that is not known it
    is that of the trace. Unchanged where nothing is known, or where the profiler costs no more than it may.
    """
    rare_ns = case.rare_ns if verdict.step_ns else 0
    recorded_ns = verdict.step_ns - rare_ns if verdict.step_ns else None
    plain_ns = bare_step_ns(recorded_ns, plain_ns, profiled_ns)
    if not plain_ns or not recorded_ns:
        rare = (_rare(rare_ns, recorded_ns),) if rare_ns and recorded_ns else ()
        return replace(verdict, caveats=(*rare, *verdict.caveats)), tuple(findings)
    idle_ns = None if case.is_cpu else _most_idle_ns(case, recorded_ns, plain_ns)

    def scaled(finding: Finding) -> Finding:
        gain_ns = _unprofiled_ns(finding, recorded_ns, plain_ns, idle_ns)
        if case.is_cpu and kind_of(finding.id).part is LAUNCHES:
            gain_ns = _without_operators_ns(finding, recorded_ns, plain_ns, round(case.small_work * recorded_ns))
        return finding.worth(gain_ns)

    top = verdict.findings[0] if verdict.recoverable_ns and verdict.findings else None
    gain_ns = scaled(top).recoverable_ns if top else round(verdict.recoverable_ns * plain_ns / recorded_ns)
    added_ns = round(rare_ns * plain_ns / recorded_ns)
    left = 1 - gain_ns / (plain_ns + added_ns)
    ceiling = verdict.speedup_ceiling
    if ceiling is not None and verdict.recoverable_ns:
        ceiling = speedup(left)
    usual_ns = verdict.recoverable_ns * plain_ns / recorded_ns
    trust = min(gain_ns / usual_ns, 1.0) if usual_ns and idle_ns is not None else 1.0
    shown = replace(
        verdict,
        step_ns=plain_ns + added_ns,
        recorded_step_ns=recorded_ns,
        recoverable_ns=gain_ns,
        speedup_ceiling=ceiling,
        confidence=verdict.confidence * trust,
        findings=tuple(map(scaled, verdict.findings)),
        caveats=(
            *([_rare(added_ns, plain_ns)] if added_ns else ()),
            *_said(plain_ns, recorded_ns, idle_ns if trust < 1 else None),
            *verdict.caveats,
        ),
    )
    return shown, tuple(map(scaled, findings))


def _most_idle_ns(case: Case, recorded_ns: int, plain_ns: int) -> int | None:
    """The most that the device can idle in an unprofiled step: kernels take as long with a profiler as without one.

    None where the device alone works longer than that step, so that this cannot be.
    """
    busy = sum(case.budget.fraction(name) for name in WORK_PARTS)
    idle_ns = plain_ns - round(busy * recorded_ns)
    return idle_ns if idle_ns >= 0 else None


def _unprofiled_ns(finding: Finding, recorded_ns: int, plain_ns: int, idle_ns: int | None) -> int:
    """What a fix saves of an unprofiled step at most; `idle_ns`: the most that the device idles in it, None on a CPU.

    The profiler slows what the host launches, not what the device does, nor waits for data or for the device. Where the
    CPU is the device it slows the work as well: only waits for data, and pauses of Python, last as long.
    """
    kind = kind_of(finding.id)
    scaled_ns = round(finding.recoverable_ns * plain_ns / recorded_ns)
    if kind.is_of_run:
        return scaled_ns
    if idle_ns is None:
        # batches that this process makes of many operators are slowed as well, as waits longer than the step show
        lasts = kind.is_pause or kind.bottleneck is Bottleneck.DATA
        return finding.recoverable_ns if lasts and finding.recoverable_ns <= _MOST_OF_STEP * plain_ns else scaled_ns
    if kind.is_about_work or (kind.part is not None and set(kind.part.budget) & set(WORK_PARTS)):
        return min(finding.recoverable_ns, plain_ns - idle_ns)
    is_launching = kind.part is LAUNCHES or finding.id == STALL.id
    return min(scaled_ns if is_launching else finding.recoverable_ns, idle_ns)


def _without_operators_ns(finding: Finding, recorded_ns: int, plain_ns: int, work_ns: int) -> int:
    """What a fix of the host's overhead saves of an unprofiled step where the CPU is the device.

    What the profiler takes is overhead of operators, all of it; with small operators goes half of what they compute
    (`work_ns`), the rest is computed all the same. On two programs this was 0.93 and 0.94 of what the removal gave, the
    plain proportion 1.02 and 1.22. Where the clocks disagree it is no less than half of that proportion.
    """
    scaled_ns = finding.recoverable_ns * plain_ns / recorded_ns
    own_ns = finding.recoverable_ns - (recorded_ns - plain_ns) + min(work_ns, plain_ns) / 2
    return round(min(max(own_ns, _LEAST_OF_SCALED * scaled_ns), plain_ns * _MOST_OF_STEP))


def _rare(rare_ns: int, usual_ns: int) -> str:
    return (
        f"the step is the mean of the run: {format_ns(usual_ns)} as recorded and {format_ns(rare_ns)} for what"
        " the other steps take more"
    )


def _said(plain_ns: int, recorded_ns: int, idle_ns: int | None) -> tuple[str, ...]:
    times = (
        f"the step and what a fix saves are without the profiler ({format_ns(plain_ns)} per step); shares and evidence"
        f" are of the recorded steps ({format_ns(recorded_ns)})"
    )
    if idle_ns is None:
        return (times,)
    idle = f"without the profiler the GPU idles at most {format_ns(idle_ns)} per step; the profiler adds the rest"
    return times, idle
