"""Profiles to assessments: what limits each launch, the numbers it stands on, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.kernels.advice import advice, why_not_ncus
from profkit.kernels.claims import DURATION, Launch
from profkit.kernels.occupancy import ACHIEVED, THEORETICAL, WAVES, occupancy, waves
from profkit.kernels.pipes import PIPES, busiest_pipe
from profkit.kernels.roofline import RULE, roofline, said_percents, tensor_percent
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, memory_unit, speed_of_light
from profkit.kernels.stalls import MEANINGS, stalls
from profkit.model.finding import Evidence
from profkit.model.kernel import (
    BusiestPipe,
    KernelAssessment,
    KernelProfile,
    KernelReport,
    Occupancy,
    Roofline,
    SpeedOfLight,
    Waves,
)
from profkit.units import format_count, format_fraction

_MAX_STALLS = 3


def assess_all(
    profiles: Iterable[KernelProfile], *, sources: Sequence[str], warnings: Sequence[str] = ()
) -> KernelReport:
    """The report on profiles, the longest launch first, those of unknown length last."""
    kernels = sorted((assess(profile) for profile in profiles), key=lambda one: -(one.duration_ns or -1))
    disagreeing = [one for one in kernels if one.speed.agrees_with_ncu is False and not one.speed.is_by_level]
    told = [
        f"{one.profile.function} (launch {one.profile.number}): ncu's own rule, which has more digits, says otherwise"
        for one in disagreeing
    ]
    told += [said for one in kernels if (said := _not_measured(one.profile))]
    return KernelReport(sources=tuple(sources), kernels=tuple(kernels), warnings=(*warnings, *told))


def _not_measured(profile: KernelProfile) -> str:
    """That a pass failed which measures what the verdict rests on; "" where none did."""
    failed = [name for name in (SM_THROUGHPUT, MEMORY_THROUGHPUT, DURATION) if name in profile.unmeasured]
    if not failed:
        return ""
    n_all = len(profile.metrics) + len(profile.unmeasured)
    return (
        f"{profile.function} (launch {profile.number}): {len(profile.unmeasured)} of {n_all} metrics are NaN,"
        f" {', '.join(failed)} among them: a pass of ncu failed. Profile it again while no other tool (DCGM) reads the"
        " GPU's counters"
    )


def assess(profile: KernelProfile) -> KernelAssessment:
    """Everything that follows from one profile."""
    speed = speed_of_light(profile)
    held, filled, roof = occupancy(profile), waves(profile), roofline(profile)
    reasons, pipe = stalls(profile), busiest_pipe(profile, speed.compute_percent)
    launch = Launch(profile=profile, speed=speed, held=held, filled=filled, stalls=reasons)
    given = advice(launch, pipe)
    return KernelAssessment(
        profile=profile,
        speed=speed,
        duration_ns=profile.metrics.get(DURATION),
        occupancy=held,
        waves=filled,
        roofline=roof,
        stalls=reasons,
        busiest_pipe=pipe,
        evidence=(
            *_speed_evidence(speed, profile),
            *_pipe_evidence(pipe),
            *_occupancy_evidence(held, profile),
            *_waves_evidence(filled),
            *_roof_evidence(roof, profile),
            *(
                _evidence(
                    f"{stall.reason} takes {format_fraction(stall.fraction)} of a warp's time between instructions"
                    + (f": {MEANINGS[stall.reason]}" if stall.reason in MEANINGS else ""),
                    f"smsp__average_warps_issue_stalled_{stall.reason}_per_issue_active.ratio",
                    stall.cycles,
                    "cycle/inst",
                )
                for stall in reasons[:_MAX_STALLS]
            ),
            *filter(None, [why_not_ncus(launch, given)]),
        ),
        advice=given,
    )


def _evidence(statement: str, metric: str, value: float, unit: str) -> Evidence:
    return Evidence(statement=statement, metric=metric, value=value, unit=unit)


def _speed_evidence(speed: SpeedOfLight, profile: KernelProfile) -> Iterable[Evidence]:
    if speed.compute_percent is not None:
        said = f"compute {speed.compute_percent:.1f} % of peak"
        yield _evidence(said, SM_THROUGHPUT, speed.compute_percent, "%")
    if speed.memory_percent is not None:
        unit = memory_unit(profile.metrics)
        busiest = f", its busiest level {unit[0]} {unit[2]:.1f} %" if unit else ""
        said = f"memory {speed.memory_percent:.1f} % of peak{busiest}"
        yield _evidence(said, MEMORY_THROUGHPUT, speed.memory_percent, "%")


def _pipe_evidence(pipe: BusiestPipe | None) -> Iterable[Evidence]:
    if pipe is not None:
        name, runs = PIPES[pipe.name]
        said = f"busiest part of the SM: {name} ({runs}), {pipe.percent:.1f} % of its peak"
        yield _evidence(said, pipe.metric, pipe.percent, "%")


def _occupancy_evidence(held: Occupancy, profile: KernelProfile) -> Iterable[Evidence]:
    if held.theoretical_percent is not None:
        why = ""
        if held.limiters:
            fit = f"{held.blocks_per_sm} blocks fit" if held.blocks_per_sm != 1 else "1 block fits"
            why = f", limited by {' and '.join(held.limiters)}: {fit} on an SM"
        said = f"theoretical occupancy {held.theoretical_percent:.1f} %{why}"
        yield _evidence(said, THEORETICAL, held.theoretical_percent, "%")
    if held.achieved_percent is not None:
        said = f"achieved occupancy {held.achieved_percent:.1f} %"
        yield _evidence(said, ACHIEVED, held.achieved_percent, "%")


def _waves_evidence(filled: Waves | None) -> Iterable[Evidence]:
    if filled is None:
        return
    blocks = ""
    if filled.n_blocks is not None:
        blocks = f"{format_count(filled.n_blocks)} blocks are " if filled.n_blocks != 1 else "1 block is "
    on = f" on {filled.n_sms} SMs" if filled.n_sms is not None else ""
    tail = ""
    if filled.waves >= 1 and filled.tail_fraction > 0:
        tail = f"; the last one leaves at most {format_fraction(filled.tail_fraction)} of the time unused"
    yield _evidence(f"{blocks}{filled.waves:.3g} waves{on}{tail}", WAVES, filled.waves, "waves")


def _roof_evidence(roof: Roofline | None, profile: KernelProfile) -> Iterable[Evidence]:
    if roof is None:
        for name, percent in said_percents(profile).items():
            said = f"{name} arithmetic {percent:.0f} % of its peak (ncu's roofline rule)"
            yield _evidence(said, f"rule:{RULE}", percent, "%")
        return
    said = f"{roof.precision} {roof.flop_per_s / 1e12:.3g} TFLOP/s"
    if roof.peak_flop_per_s:
        said += f" of {roof.peak_flop_per_s / 1e12:.3g}"
    if roof.intensity is not None:
        said += f", {float(f'{roof.intensity:.2g}'):g} FLOP per byte"
    if roof.ridge is not None and roof.intensity is not None:
        side = "left of the ridge: memory" if roof.intensity < roof.ridge else "right of the ridge: arithmetic"
        said += f" ({side} is the roof, at {roof.ridge:.3g})"
    if roof.roof_fraction is not None:
        said += f", {format_fraction(roof.roof_fraction)} of that roof"
    if tensor := tensor_percent(profile.metrics):
        said += f"; tensor cores, at {tensor:.2g} % of their peak, are not in it"
    yield _evidence(said, "roofline.flop_per_s", roof.flop_per_s, "FLOP/s")
