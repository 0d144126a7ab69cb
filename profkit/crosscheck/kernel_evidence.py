"""A trace beside ncu's profiles: how much of the step the profiled kernels are, what limits them, what is to be won.

A profile stands for the launches of its function in its grid and block. ncu runs a kernel alone, so it can refine
"kernel-bound" and can say nothing of a step that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.tools import kernel_profile
from profkit.crosscheck.launches import KernelKey
from profkit.crosscheck.trace_profile import Portrait, seen
from profkit.findings.crosscheck import CONFIRMED
from profkit.model.arrays import I64
from profkit.model.documents.handover import HandoverStatus, KernelHandover, ProfiledKernel
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import Evidence, NextTool
from profkit.model.kernel import KernelAssessment, KernelClass, KernelReport
from profkit.shell import line_of, path_word
from profkit.units import format_fraction, format_ns, format_speedup

MIN_LEFT: Final = 0.05
"""Share of kernel time from which a kernel is worth a profile of its own. Chosen: severity "medium"."""
_SIDE_BY_SIDE: Final = 0.01
"""By so much all kernels may take longer than any runs and count as one after the other. Chosen: last ends of steps."""
_MAX_NAMED: Final = 4
_USUAL_RATIO: Final = (0.5, 2.0)
"""ncu's duration over the trace's outside which the profile is of another state (clocks, cold caches, another batch in
the same grid) and confirms nothing. Chosen: caches and clocks of the real samples move it by a third."""


class _Use(msgspec.Struct, frozen=True):
    """A kernel over the portrait's steps: launches and time, summed."""

    key: KernelKey
    count: int
    total_ns: int


def profiled(portrait: Portrait, report: KernelReport) -> KernelHandover:
    """What ncu's profiles say of the kernels of a trace."""
    uses = _uses(portrait)
    foreign = [one for one in report.kernels if _other_device(portrait, one)]
    chosen, unmatched = _chosen(uses, [one for one in report.kernels if not _other_device(portrait, one)])
    unmatched = tuple(dict.fromkeys((*unmatched, *(one.profile.function for one in foreign))))
    n_steps = max(portrait.launches.n_steps, 1)
    kernels = tuple(_kernel(use, profiles, n_steps) for use, profiles in chosen)
    by_class: dict[str, int] = {}
    for kernel in kernels:
        by_class[kernel.kernel_class] = by_class.get(kernel.kernel_class, 0) + kernel.kernel_ns
    device = _other_device(portrait, foreign[0]) if foreign else ""
    kernel_ns = sum(use.total_ns for use in uses) // n_steps
    told = KernelHandover(
        rank=portrait.rank.rank,
        sources=report.sources,
        status=HandoverStatus.REFUSED,
        sentence="",
        evidence=(),
        step_ns=portrait.mean_step_ns or portrait.rank.window_ns[1] - portrait.rank.window_ns[0],
        kernel_ns=kernel_ns,
        busy_ns=min(portrait.compute_ns, kernel_ns),
        covered_ns=sum(kernel.kernel_ns for kernel in kernels),
        by_class=tuple(sorted(by_class.items(), key=lambda item: -item[1])),
        kernels=kernels,
        unmatched=unmatched,
        next_tool=_next(portrait, uses, chosen, report.sources),
    )
    status, sentence = _status(portrait, told, device)
    return replace(told, status=status, sentence=sentence, evidence=tuple(_evidence(told, portrait)))


def _other_device(portrait: Portrait, one: KernelAssessment) -> str:
    """How the device of a profile differs from the trace's, "" where it does not or either does not say."""
    ours, theirs = portrait.compute_capability, one.profile.compute_capability
    if ours and theirs and ours != theirs:
        return f"compute capability {theirs}, the trace's is {ours}"
    names = [name.removeprefix("NVIDIA ") for name in (one.profile.device_name, portrait.device_name)]
    return f"{names[0]}, the trace's is {names[1]}" if all(names) and names[0] != names[1] else ""


def _is_doubted(kernel: ProfiledKernel) -> bool:
    low, high = _USUAL_RATIO
    return bool(kernel.ncu_ns and kernel.mean_ns) and not low <= (kernel.ncu_ns or 0) / kernel.mean_ns <= high


def _uses(portrait: Portrait) -> list[_Use]:
    """The compute kernels, the longest first: collectives are never profiled."""
    launches = portrait.launches
    n = len(launches.keys)
    total: I64 = np.zeros(n, np.int64)
    np.add.at(total, launches.key, launches.duration_ns)
    count = np.bincount(launches.key, minlength=n)
    rows = zip(launches.keys, count.tolist(), total.tolist(), launches.is_comm.tolist(), strict=True)
    uses = [_Use(key, n_launches, spent) for key, n_launches, spent, is_comm in rows if not is_comm]
    return sorted(uses, key=lambda use: -use.total_ns)


_Chosen = list[tuple[_Use, list[KernelAssessment]]]


def _chosen(uses: Sequence[_Use], profiles: Sequence[KernelAssessment]) -> tuple[_Chosen, tuple[str, ...]]:
    """Each kernel of the trace with its profiles, and the functions whose profiles fit none.

    A profile that tells no shape (a summary page) fits a function that the trace launches in one shape only.
    """
    found: dict[KernelKey, list[KernelAssessment]] = {}
    unmatched: list[str] = []
    for one in profiles:
        profile = one.profile
        named = [use.key for use in uses if use.key.function == profile.function]
        if profile.grid is not None and profile.block is not None:
            shape = profile.grid, profile.block  # a trace that tells none leaves the name alone
            named = [key for key in named if key.grid[0] == 0 or (key.grid, key.block) == shape]
        if len(named) == 1:
            found.setdefault(named[0], []).append(one)
        else:
            unmatched.append(profile.function)
    return [(use, found[use.key]) for use in uses if use.key in found], tuple(dict.fromkeys(unmatched))


def _kernel(use: _Use, profiles: list[KernelAssessment], n_steps: int) -> ProfiledKernel:
    """A kernel with the profile of median duration."""
    ordered = sorted(profiles, key=lambda one: one.duration_ns or 0)
    middle = ordered[len(ordered) // 2]
    speed = middle.speed
    spent = use.total_ns // n_steps
    known = [percent for percent in (speed.compute_percent, speed.memory_percent) if percent is not None]
    roof = min(max(known), 100.0) if len(known) == 2 else None  # of passes that differ, ncu prints some above
    return ProfiledKernel(
        function=use.key.function,
        grid=use.key.grid if use.key.grid[0] else None,
        block=use.key.block if use.key.block[0] else None,
        kernel_class=speed.kernel_class.value,
        count=use.count / n_steps,
        kernel_ns=spent,
        mean_ns=use.total_ns // use.count,
        ncu_ns=middle.duration_ns,
        roof_percent=roof,
        recoverable_ns=None if roof is None else int(spent * max(0.0, 1 - roof / 100)),
        n_profiles=sum(one.profile.n_launches for one in profiles),
    )


def _status(portrait: Portrait, told: KernelHandover, device: str) -> tuple[HandoverStatus, str]:
    per, whole = _per(portrait)
    if not told.by_class or not told.kernel_ns:
        named = ", ".join(told.unmatched[:_MAX_NAMED])
        why = f"the trace launches none of the profiled kernels with this grid and block ({named})"
        why = f"the kernels of the trace last 0 ns {per}" if told.by_class else why
        why = f"taken on another device ({device})" if device else why
        return HandoverStatus.REFUSED, f"ncu's profiles are not merged: {why}"
    shares = ", ".join(
        f"{name} kernels {format_fraction(told.share(spent))}"
        for name, spent in told.by_class
        if name != KernelClass.NO_DATA.value
    )
    covered = f"{format_fraction(told.covered_ns / told.kernel_ns)} of the kernel time is profiled"
    said = f"{shares} of the {whole}{_side_by_side(told, per)}; {covered}" if shares else covered
    said += "" if shares else ", but never with both throughputs"
    bottleneck = portrait.verdict.bottleneck
    if bottleneck is not Bottleneck.KERNEL:
        return HandoverStatus.OPEN, f"ncu runs kernels alone, so it says nothing about {bottleneck.value}: {said}"
    if not shares or told.covered_ns < CONFIRMED.limit("covered") * told.kernel_ns:
        asked = f"{format_fraction(CONFIRMED.limit('covered'))} is needed"
        return HandoverStatus.OPEN, f"ncu cannot confirm kernel-bound yet: {said}, {asked}"
    doubted_ns = sum(kernel.kernel_ns for kernel in told.kernels if _is_doubted(kernel))
    if told.covered_ns - doubted_ns < CONFIRMED.limit("covered") * told.kernel_ns:
        doubted = format_fraction(doubted_ns / told.kernel_ns)
        why = f"{doubted} of it took less than half or more than twice as long under ncu as in the trace"
        return HandoverStatus.OPEN, f"ncu cannot confirm kernel-bound: {said}, but {why}"
    return HandoverStatus.CONFIRMED, f"ncu refines kernel-bound: {said}"


def _per(portrait: Portrait) -> tuple[str, str]:
    """What times are per, and of what shares are."""
    return ("per step", "step") if portrait.step_ns.size else ("in the window", "window")


def _side_by_side(told: KernelHandover, per: str) -> str:
    """How shares of the step come of kernels that run side by side, "" where hardly any do."""
    if told.kernel_ns <= (1 + _SIDE_BY_SIDE) * told.busy_ns:
        return ""
    return f" ({format_ns(told.kernel_ns)} of kernels overlap in {format_ns(told.busy_ns)} {per})"


def _evidence(told: KernelHandover, portrait: Portrait) -> Iterable[Evidence]:
    kernels = told.kernels
    per, whole = _per(portrait)
    for kernel in kernels[:_MAX_NAMED]:
        at = "" if kernel.roof_percent is None else f", its busier roof at {kernel.roof_percent:.1f} % of peak"
        share = f"{format_fraction(told.share(kernel.kernel_ns))} of the {whole}"
        said = f"{kernel.function}: {kernel.kernel_class}{at}; {format_ns(kernel.kernel_ns)} {per} ({share})"
        yield seen(said, "profiled_kernel_ns", kernel.kernel_ns)
    known = [kernel.recoverable_ns for kernel in kernels if kernel.recoverable_ns is not None]
    if known:
        won = min(sum(known), told.busy_ns)  # kernels side by side give back no more than the time that any runs
        share = f"{format_fraction(won / told.step_ns if told.step_ns else 0.0)} of the {whole}"
        said = "with the work they do now, at the peak of their busier roofs, these kernels would save at most"
        yield seen(f"{said} {format_ns(won)} {per} ({share})", "kernel_recoverable_ns", won)
    ratios = [kernel.ncu_ns / kernel.mean_ns for kernel in kernels if kernel.ncu_ns and kernel.mean_ns]
    if ratios:
        ratio = float(np.median(ratios))
        low, high = _USUAL_RATIO
        doubt = "" if low <= ratio <= high else ": other clocks or a cold cache, so its class may differ in the job"
        said = f"under ncu, these kernels take {format_speedup(ratio)} as long as in the trace (median){doubt}"
        yield seen(said, "ncu_duration_ratio", ratio, "ratio")


def _next(portrait: Portrait, uses: Sequence[_Use], chosen: _Chosen, sources: Sequence[str]) -> NextTool:
    """What the trace's verdict asks for; of a kernel-bound one the profile that covers most of what is left.

    Where no kernel without a profile is worth one, what to change about those that have one.
    """
    if portrait.verdict.bottleneck is not Bottleneck.KERNEL:
        return portrait.verdict.next_tool
    done = {use.key for use, _ in chosen}
    left = next((use for use in uses if use.key not in done), None)
    if left is not None and left.total_ns >= MIN_LEFT * sum(use.total_ns for use in uses):
        purpose = "the hottest kernel without a profile"
        look_for = "Speed of Light, beside the profiles that are there"
        return kernel_profile(portrait.scope, left.key.function, purpose, look_for)
    return NextTool(
        name="profkit kernels",
        line=line_of("profkit kernels", *map(path_word, sources)),
        purpose="what to change about each profiled kernel",
        look_for="the stall reasons and the advice below the longest ones",
    )
