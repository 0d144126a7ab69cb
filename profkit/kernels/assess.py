"""Profiles to assessments: what limits each launch, the numbers it stands on, and what to change.

Each sentence of advice has the number it stands on; at most a handful, the weightiest first: what saves a tenth of the
time or more, by ncu's own estimates or its formulas (`claims`), the largest in front; then what the roof asks for
(`roofs`); then what a lack of warps may cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from profkit.kernels.claims import DURATION, Claim, Launch, claims, cut, excess_percent, largest
from profkit.kernels.fixes import fixes, narrow_loads
from profkit.kernels.pipes import PIPES, busiest_pipe
from profkit.kernels.roofline import RULE, roofline, said_percents, tensor_percent
from profkit.kernels.roofs import roof_advice
from profkit.kernels.speed import ACHIEVED, MEMORY_THROUGHPUT, SM_THROUGHPUT, THEORETICAL, WAVES, memory_unit
from profkit.kernels.stalls import MEANINGS, evidence
from profkit.model.finding import Evidence
from profkit.model.kernel import (
    Advice,
    BusiestPipe,
    KernelAssessment,
    KernelClass,
    KernelProfile,
    KernelReport,
    Occupancy,
    Roofline,
    SpeedOfLight,
    Topic,
    Waves,
)
from profkit.units import format_count, format_fraction, format_ns

BIG_CLAIM: Final = 0.1  # chosen: below a tenth of the time, an estimate does not change what comes first
LEAST_CLAIM: Final = 0.02  # chosen: as the severity "low"; told only where there is nothing larger
MOST_ADVICE: Final = 5  # chosen: a handful
_AS_SAID: Final = 0.95  # chosen: what is cut by less is not worth two numbers
_ROOFS: Final = (Topic.ROOF, Topic.PIPE)
_WAITS: Final = (KernelClass.LATENCY, KernelClass.SMALL)
_SEE_STALLS: Final = Advice(
    topic=Topic.STALL,
    fix="see what its warps wait for: ncu --set full (or --section WarpStateStats --section SchedulerStats)",
    because=Evidence(statement="the page holds no stall reasons", metric="rule:CPIStall", value=0, unit="results"),
)


def advice(launch: Launch, pipe: BusiestPipe | None) -> tuple[Advice, ...]:
    """What to change, by what limits the launch, ranked by ncu's estimates where there are any; () without data."""
    known = [claim for claim in claims(launch) if claim.share >= LEAST_CLAIM]
    big = [claim for claim in known if claim.share >= BIG_CLAIM]
    roofs = list(roof_advice(launch, pipe))
    given = [item for claim in big if claim.is_sure for item in _claimed(launch, claim, roofs)]
    given += [*_alignment(launch), *roofs]
    given += [item for claim in big if not claim.is_sure for item in _claimed(launch, claim, roofs)]
    if launch.speed.kernel_class in _WAITS and not launch.stalls and not any(one.is_sure for one in big):
        given.append(_SEE_STALLS)
    if not big and not roofs:
        given += [item for claim in known[:1] for item in _claimed(launch, claim, roofs)]
    first = {item.fix: item for item in reversed(given)}
    return tuple(item for item in given if first.get(item.fix) is item)[:MOST_ADVICE]


def why_not_ncus(launch: Launch, given: tuple[Advice, ...]) -> Evidence | None:
    """Why the first advice is not on ncu's largest estimate of a tenth of the time or more; None where it is."""
    top = largest(launch.profile)
    if top is None or top.estimate.fraction < BIG_CLAIM or not given:
        return None
    estimate, claim, first = top.estimate, cut(launch, top), given[0]
    is_named = first.estimate is not None and first.estimate.rule == estimate.rule
    is_answered = is_named or (claim.topic is first.topic and not (claim.why and claim.topic in _ROOFS))
    if is_answered or (not claim.why and first.at_most == estimate.fraction):
        return None
    why = claim.why or "by the formulas of ncu since 2024 the first advice can save more"
    then = f", so at most {format_fraction(claim.share)} can be saved" if claim.share > 0 and claim.why else ""
    said = (
        f"ncu's largest estimate is {format_fraction(estimate.fraction)} (rule {estimate.rule}); it is not first: {why}"
    )
    return Evidence(said + then, f"rule:{estimate.rule}", 100 * estimate.fraction, "%")


def _claimed(launch: Launch, claim: Claim, roofs: list[Advice]) -> Iterable[Advice]:
    """What to change on a claim; on stalls that a full roof makes what the roof asks for, with their estimate."""
    if claim.topic in _ROOFS:
        for item in roofs[:1]:
            said = "; ".join(filter(None, (item.because.statement, _told(claim))))
            yield replace(item, because=replace(item.because, statement=said), estimate=claim.estimate)
        return
    measured = _because(launch, claim)
    is_told = claim.estimate is not None or not launch.is_too_short
    for place, fix in enumerate(fixes(launch, claim.topic, claim.estimate)):
        is_known = place > 0 and measured.statement  # ncu's number stands beside the first one
        said = "; ".join(filter(None, (measured.statement, "" if is_known or not is_told else _told(claim))))
        yield Advice(
            topic=claim.topic,
            fix=fix,
            because=replace(measured, statement=said),
            at_most=claim.share if claim.is_sure and is_told else None,
            estimate=claim.estimate,
        )


def _told(claim: Claim) -> str:
    """What ncu estimates, in words; "" for nothing."""
    estimate = claim.estimate
    share = format_fraction(claim.share)
    if estimate is None:
        return f"by ncu's formula at most {share} of the kernel's time" if claim.is_sure else ""
    said = f"ncu's rule {estimate.rule}"
    if not claim.is_sure:
        part = " for one part of the device" if estimate.scope else ""  # one word stood for both until 2022
        return f"{said} estimates at most {format_fraction(estimate.fraction)}{part}"
    if claim.share < _AS_SAID * estimate.fraction:
        return f"at most {share} of the kernel's time, though {said} says {format_fraction(estimate.fraction)}"
    return f"{said} estimates at most {format_fraction(estimate.fraction)} of the kernel's time"


def _because(launch: Launch, claim: Claim) -> Evidence:
    """The measured number that a claim stands on, in words; ncu's estimate where the page holds no other."""
    held, filled, topic = launch.held, launch.filled, claim.topic
    if topic is Topic.STALL and launch.waits:
        top = launch.waits[0]
        said = f"{format_fraction(top.fraction)} of a warp's time goes into {MEANINGS.get(top.reason, top.reason)}"
        return evidence(said, top)
    if topic is Topic.OCCUPANCY and held.theoretical_percent is not None:
        said = f"theoretical occupancy is only {held.theoretical_percent:.1f} %"
        return Evidence(said, THEORETICAL, held.theoretical_percent, "%")
    if topic is Topic.ACHIEVED and held.achieved_percent is not None and held.theoretical_percent is not None:
        said = f"achieved occupancy is {held.achieved_percent:.1f} %, theoretical {held.theoretical_percent:.0f} %"
        return Evidence(said, ACHIEVED, held.achieved_percent, "%")
    if topic in {Topic.GRID, Topic.TAIL} and filled is not None:
        return Evidence(_waves(launch, topic), WAVES, filled.waves, "waves")
    if topic is Topic.BLOCK and launch.profile.block is not None:
        threads = math.prod(launch.profile.block)
        return Evidence(f"{threads} threads per block", "launch__block_size", threads, "threads")
    if launch.is_too_short and claim.estimate is None:
        lasts = launch.profile.metrics[DURATION]
        said = f"{format_ns(round(lasts))} is hardly longer than an empty launch: no share of the time is estimated"
        return Evidence(said, DURATION, lasts, "ns")
    if topic in {Topic.ACCESS, Topic.BANKS} and (found := excess_percent(launch.profile, topic)) is not None:
        what = "sectors are excess" if topic is Topic.ACCESS else "shared-memory wavefronts are excess"
        return Evidence(f"{found[1]:.0f} % of the {what}", found[0], found[1], "%")
    metric = f"rule:{claim.estimate.rule}" if claim.estimate is not None else f"formula:{topic.value}"
    return Evidence("", metric, 100 * claim.share, "%")


def _waves(launch: Launch, topic: Topic) -> str:
    filled = launch.filled
    if filled is None:
        return ""
    if topic is Topic.TAIL:
        unused = format_fraction(filled.tail_fraction)
        return f"{filled.waves:.3g} waves: the last one leaves {unused} of the time unused"
    blocks = "" if filled.n_blocks is None else f"{format_count(filled.n_blocks)} block{'s' * (filled.n_blocks != 1)}"
    on = f" for {filled.n_sms} SMs" if filled.n_sms is not None else ""
    return ", ".join(filter(None, (f"{blocks}{on}", f"the grid fills only {filled.waves:.2g} of a wave")))


def _alignment(launch: Launch) -> Iterable[Advice]:
    """What a library's kernel says by its name: it was chosen for operands that allow narrow loads only."""
    elements = narrow_loads(launch.profile.name)
    if elements is not None and launch.speed.kernel_class is not KernelClass.NO_DATA:
        fix = "pad the matrices so that rows begin at multiples of 16 bytes: the library has faster kernels for these"
        said = f"this kernel loads {elements} element{'s' * (elements != 1)} at once (align{elements})"
        yield Advice(topic=Topic.ALIGNMENT, fix=fix, because=Evidence(said, "name", elements, "elements"))


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
    launch, roof = Launch.of(profile), roofline(profile)
    pipe = busiest_pipe(profile, launch.speed.compute_percent)
    given = advice(launch, pipe)
    return KernelAssessment(
        profile=profile,
        speed=launch.speed,
        duration_ns=profile.metrics.get(DURATION),
        occupancy=launch.held,
        waves=launch.filled,
        roofline=roof,
        stalls=launch.stalls,
        busiest_pipe=pipe,
        evidence=(
            *_speed_evidence(launch.speed, profile),
            *_pipe_evidence(pipe),
            *_occupancy_evidence(launch.held),
            *_waves_evidence(launch.filled),
            *_roof_evidence(roof, profile),
            *(
                evidence(
                    f"{stall.reason} takes {format_fraction(stall.fraction)} of a warp's time between instructions"
                    + (f": {MEANINGS[stall.reason]}" if stall.reason in MEANINGS else ""),
                    stall,
                )
                for stall in launch.stalls[:_MAX_STALLS]
            ),
            *filter(None, [why_not_ncus(launch, given)]),
        ),
        advice=given,
    )


def _speed_evidence(speed: SpeedOfLight, profile: KernelProfile) -> Iterable[Evidence]:
    if speed.compute_percent is not None:
        said = f"compute {speed.compute_percent:.1f} % of peak"
        yield Evidence(said, SM_THROUGHPUT, speed.compute_percent, "%")
    if speed.memory_percent is not None:
        unit = memory_unit(profile.metrics)
        busiest = f", its busiest level {unit[0]} {unit[2]:.1f} %" if unit else ""
        said = f"memory {speed.memory_percent:.1f} % of peak{busiest}"
        yield Evidence(said, MEMORY_THROUGHPUT, speed.memory_percent, "%")


def _pipe_evidence(pipe: BusiestPipe | None) -> Iterable[Evidence]:
    if pipe is not None:
        name, runs = PIPES[pipe.name]
        said = f"busiest part of the SM: {name} ({runs}), {pipe.percent:.1f} % of its peak"
        yield Evidence(said, pipe.metric, pipe.percent, "%")


def _occupancy_evidence(held: Occupancy) -> Iterable[Evidence]:
    if held.theoretical_percent is not None:
        why = ""
        if held.limiters:
            fit = f"{held.blocks_per_sm} blocks fit" if held.blocks_per_sm != 1 else "1 block fits"
            why = f", limited by {' and '.join(held.limiters)}: {fit} on an SM"
        said = f"theoretical occupancy {held.theoretical_percent:.1f} %{why}"
        yield Evidence(said, THEORETICAL, held.theoretical_percent, "%")
    if held.achieved_percent is not None:
        said = f"achieved occupancy {held.achieved_percent:.1f} %"
        yield Evidence(said, ACHIEVED, held.achieved_percent, "%")


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
    yield Evidence(f"{blocks}{filled.waves:.3g} waves{on}{tail}", WAVES, filled.waves, "waves")


def _roof_evidence(roof: Roofline | None, profile: KernelProfile) -> Iterable[Evidence]:
    if roof is None:
        for name, percent in said_percents(profile).items():
            said = f"{name} arithmetic {percent:.0f} % of its peak (ncu's roofline rule)"
            yield Evidence(said, f"rule:{RULE}", percent, "%")
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
    yield Evidence(said, "roofline.flop_per_s", roof.flop_per_s, "FLOP/s")
