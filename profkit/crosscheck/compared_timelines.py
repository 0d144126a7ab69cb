"""A trace beside another tool's timeline: same workload or not, what agrees, what is explained, what stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.crosscheck.launches import Match, Total, match, paired_steps
from profkit.crosscheck.trace_profile import Portrait, seen
from profkit.crosscheck.verdicts import agreement, ruling
from profkit.findings.crosscheck import CONFIRMED, REFUSED
from profkit.model.arrays import I64, rows_by_value
from profkit.model.documents.handover import FunctionMatch, HandoverStatus, MatchedSide, PartAgreement, TimelineHandover
from profkit.model.documents.report import Verdict
from profkit.model.finding import Evidence, NextTool
from profkit.model.names import family_of, kind_of
from profkit.model.trace import Kind
from profkit.units import format_ceiling, format_count, format_fraction, format_ns, format_speedup

USUAL_RATIO: Final = (0.5, 2.0)
"""The length of a kernel over that of its partner, outside which the two are not of one workload. Chosen: over 9 pairs
of real runs of one job the median is 1.00, and clocks move it by a third."""
SAME_LAUNCHES: Final = 0.1
"""Share by which the launches per step may differ. Chosen: 7 % between runs of one job for which cudnn chose other
kernels each time, 21 % between ranks that do other work."""
MIN_SHARE: Final = 0.02
"""Share of the step below which a wait or a range is not told: severity "low" begins there (`severity_of`)."""
_MAX_NAMED: Final = 4
_MAX_TIMES: Final = 3
_UNRESOLVED: Final = ("idle_dependency", "idle_unknown")


def timeline(first: Portrait, second: Portrait) -> TimelineHandover:
    """What the second tool's timeline says of the first's verdict on one rank."""
    refusal = unpairable(first, second)
    if refusal:
        return _refused(first, second, refusal, None)
    pairs, how = paired_steps(first.step_numbers, second.step_numbers)
    has_shapes = first.launches.has_shapes and second.launches.has_shapes
    ours, theirs = (side.launches if has_shapes else side.launches.named() for side in (first, second))
    found = match(ours, theirs, pairs)
    refusal = not_the_same(first, second, found, has_shapes=has_shapes)
    if refusal:
        return _refused(first, second, refusal, found)
    ruled = ruling(first, second, differs=differing(first, second, found, len(pairs)))
    parts = agreement(first, second)
    return TimelineHandover(
        **_of_both(first, second),
        status=ruled.status,
        sentence=ruled.sentence,
        evidence=tuple(_evidence(first, second, found, parts, ruled.cause)),
        paired_by=how,
        n_pairs=len(pairs),
        first=_side(first, found.first),
        second=_side(second, found.second),
        functions=_functions(found, len(pairs), {**second.launches.full_names, **first.launches.full_names}),
        parts=parts,
        confidence_after=ruled.confidence,
        confidence_why=ruled.why,
        explained=tuple(_explained(first, second)),
        next_tool=ruled.next_tool,
    )


def _of_both(first: Portrait, second: Portrait) -> dict[str, Any]:
    """What is said of two timelines whatever comes of them."""
    return {
        "rank": first.rank.rank,
        "source": second.rank.source,
        "first_tool": first.tool,
        "second_tool": second.tool,
        "first_bottleneck": first.verdict.bottleneck.value,
        "second_bottleneck": second.verdict.bottleneck.value,
        "has_shapes": first.launches.has_shapes and second.launches.has_shapes,
        "confidence_before": first.verdict.confidence,
        "other_rank": second.rank,
    }


def _refused(first: Portrait, second: Portrait, why: str, found: Match | None) -> TimelineHandover:
    return TimelineHandover(
        **_of_both(first, second),
        status=HandoverStatus.REFUSED,
        sentence=f"{second.possessive} export is not merged: {why}",
        evidence=tuple(_alone(found)) if found is not None else (),
        paired_by="",
        n_pairs=0,
        first=_side(first, found.first) if found is not None else None,
        second=_side(second, found.second) if found is not None else None,
        functions=(),
        parts=(),
        confidence_after=first.verdict.confidence,
        confidence_why="",
        explained=(),
        next_tool=_same_job(first),
    )


def _same_job(first: Portrait) -> NextTool:
    return NextTool(
        name="nsys",
        line=first.scope.command.under("profkit nsys", *(("--whole",) if first.scope.is_cpu else ())),
        purpose="record the same job in the same way with the other tool",
        look_for="the same batch size, device and number of ranks; steps are marked by profkit",
    )


def _side(portrait: Portrait, total: Total) -> MatchedSide:
    return MatchedSide(
        n_steps=int(portrait.step_ns.size),
        step_ns=portrait.mean_step_ns,
        unprofiled_step_ns=portrait.unprofiled_step_ns,
        n_launches=total.n,
        n_matched=total.n_matched,
        kernel_ns=total.total_ns,
        matched_ns=total.matched_ns,
    )


def unpairable(first: Portrait, second: Portrait) -> str:
    """Why the two cannot be set against each other at all, "" where they can."""
    for side in (first, second):
        if side.device < 0:
            return f"{side.possessive} trace has no kernels of a GPU"
        if not side.step_ns.size:
            return (
                f"{side.possessive} trace has no steps, so nothing can be compared per step (profkit nsys marks them)"
            )
        if not side.launches.key.size:
            return f"no kernels were launched inside the steps of {side.possessive} trace"
    names = [side.device_name for side in (first, second)]
    if all(names) and names[0] != names[1]:
        return f"recorded on different devices: {names[0]} and {names[1]}"
    return ""


def not_the_same(first: Portrait, second: Portrait, found: Match, *, has_shapes: bool) -> str:
    """Why two traces with these matches are not of one workload, "" where they are."""
    limit = REFUSED.limit("matched" if has_shapes else "named")
    if found.time_share < limit:
        return _too_few_matched(first, second, found, limit, has_shapes=has_shapes)
    ratio = compute_ratio(first, second, found)
    if USUAL_RATIO[0] <= ratio <= USUAL_RATIO[1]:
        return ""
    return (
        f"the same kernels take {format_speedup(ratio)} as long under {second.tool} (median): another batch size with"
        " the same grids, or other clocks"
    )


def compute_ratio(first: Portrait, second: Portrait, found: Match) -> float:
    """How long matched kernels take under the second tool, median; collectives wait, and do not count."""
    comm = {
        key
        for side in (first.launches, second.launches)
        for key, is_comm in zip(side.keys, side.is_comm.tolist(), strict=True)
        if is_comm
    }
    is_compute = np.array([key not in comm for key in found.keys], np.bool_)[found.key]
    ratios = found.second_ns[is_compute] / np.maximum(found.first_ns[is_compute], 1)
    return float(np.median(ratios)) if ratios.size else 1.0


def differing(first: Portrait, second: Portrait, found: Match, n_pairs: int) -> str:
    """What makes the runs differ though they are of one workload, "" for nothing: then one may judge the other."""
    ranks = first.rank.rank, second.rank.rank
    if None not in ranks and ranks[0] != ranks[1]:
        return f"the runs differ: rank {ranks[0]} by {first.tool}, rank {ranks[1]} by {second.tool}"
    counts = found.first.n / n_pairs, found.second.n / n_pairs
    if min(counts) >= (1 - SAME_LAUNCHES) * max(counts):
        return ""
    ours, theirs = (format_count(round(count)) for count in counts)
    return f"the runs differ: {ours} launches per step by {first.tool}, {theirs} by {second.tool}"


def _too_few_matched(first: Portrait, second: Portrait, found: Match, limit: float, *, has_shapes: bool) -> str:
    shares = f"{format_fraction(found.first.time_share)} of {first.possessive} kernel time and"
    shares += f" {format_fraction(found.second.time_share)} of {second.possessive} has a partner"
    by = "function, grid, block and order in the step" if has_shapes else "function and order in the step alone"
    why = f"not the same workload: by {by}, {shares}; both need {format_fraction(limit)}"
    graphs = [side.tool for side in (first, second) if side.launches.n_graphs]
    if len(graphs) == 1:
        return f"{why} ({graphs[0]} recorded CUDA graphs without their kernels: record again with --also graphs)"
    if has_shapes:
        pairs, _ = paired_steps(first.step_numbers, second.step_numbers)
        by_name = match(first.launches.named(), second.launches.named(), pairs).time_share
        if by_name >= REFUSED.limit("named"):
            return f"{why} ({format_fraction(by_name)} by function alone: another batch size or other shapes?)"
    return why


def _by_function(found: Match) -> tuple[list[str], NDArray[np.intp], list[list[int]], list[list[int]]]:
    """The functions of both sides, that of each key, and the launches and the time (ns) of each on either side."""
    names = list(dict.fromkeys(key.function for key in found.keys))
    place = {name: number for number, name in enumerate(names)}
    of_key = np.array([place[key.function] for key in found.keys], np.intp)

    def summed(by_key: I64) -> list[int]:
        out = np.zeros(len(names), np.int64)
        np.add.at(out, of_key, by_key)
        return [int(value) for value in out]

    sides = found.first, found.second
    return names, of_key, [summed(side.count_by_key) for side in sides], [summed(side.ns_by_key) for side in sides]


def _functions(found: Match, n_pairs: int, full_names: Mapping[str, str]) -> tuple[FunctionMatch, ...]:
    """Every kernel function of both sides, the first's longest first."""
    names, of_key, counts, times = _by_function(found)
    matched = of_key[found.key] if found.key.size else np.empty(0, np.intp)
    ratio = np.divide(found.second_ns, np.maximum(found.first_ns, 1))
    medians = {int(code): float(np.median(ratio[rows])) for code, rows in rows_by_value(matched)}
    n_matched = np.bincount(matched, minlength=len(names))
    rows = [
        FunctionMatch(
            function=name,
            family=_family(full_names[name]),
            first_count=counts[0][code] / n_pairs,
            second_count=counts[1][code] / n_pairs,
            first_ns=times[0][code] // n_pairs,
            second_ns=times[1][code] // n_pairs,
            n_matched=int(n_matched[code]),
            ratio=medians.get(code),
        )
        for code, name in enumerate(names)
    ]
    return tuple(sorted(rows, key=lambda row: (-max(row.first_ns, row.second_ns), row.function)))


def _family(name: str) -> str:
    return "comm" if kind_of(name, is_copy=False) is Kind.COMM else family_of(name)


def _evidence(
    first: Portrait, second: Portrait, found: Match, parts: Sequence[PartAgreement], cause: PartAgreement | None
) -> Iterable[Evidence]:
    """What the ruling stands on; `cause` is the share that decides, None where the first names no cause."""
    share = format_fraction(found.time_share)
    n = f"{found.first.n_matched:,} of {found.first.n:,} and {found.second.n:,} launches"
    said = f"{share} of the kernel time is in kernels that both traces have ({n})"
    yield seen(said, "matched_time_fraction", found.time_share, "fraction")
    if cause is not None:
        said = f"its share differs by {100 * cause.difference:+.1f} points: {_scatter(cause)}"
        yield seen(said, "cause_difference", cause.difference, "fraction")
    ours, theirs = first.verdict, second.verdict
    if ours.bottleneck is theirs.bottleneck and ours.recoverable_ns and theirs.recoverable_ns:
        said = f"a fix saves at most {_gain(theirs)} by {second.tool}, {_gain(ours)} by {first.tool}"
        yield seen(said, "second_recoverable_ns", theirs.recoverable_ns)
    yield _step_times(first, second)
    apart = sorted((part for part in parts if not part.agrees), key=lambda part: -abs(part.difference))
    named = ", ".join(f"{_words(part.part)} {100 * part.difference:+.1f}" for part in apart)
    n = f"{len(parts) - len(apart)} of {len(parts)} parts of the budget agree"
    yield seen(f"{n}; differences in points: {named}" if apart else n, "parts_apart", len(apart), "count")
    ratio = float(np.median(found.second_ns / np.maximum(found.first_ns, 1)))
    said = f"matched kernels take {format_speedup(ratio)} as long under {second.tool} (median)"
    yield seen(said, "kernel_ratio", ratio, "ratio")
    yield from _alone(found)


def _scatter(cause: PartAgreement) -> str:
    """The difference of a share beside the scatter of steps."""
    noise = f"{100 * CONFIRMED.limit('floor'):.1f} points of noise between runs"
    if cause.allowed is None:
        return f"one step on a side does not show the variation ({noise})"
    word = "within" if cause.agrees else "more than"
    return f"{word} the variation of steps ({100 * cause.allowed:.1f} points) and {noise}"


def _gain(verdict: Verdict) -> str:
    """What fixing the cause could give by one tool: the first's ceiling holds the first's own cost."""
    saved = f"{format_ns(verdict.recoverable_ns)} per step"
    ceiling = verdict.speedup_ceiling
    return saved if ceiling is None else f"{saved} (at best {format_ceiling(ceiling)} faster)"


def _step_times(first: Portrait, second: Portrait) -> Evidence:
    ratio = second.mean_step_ns / first.mean_step_ns
    longer = "longer" if ratio > 1 else "shorter"
    means = f"{format_ns(second.mean_step_ns)} against {format_ns(first.mean_step_ns)}"
    n = f"{second.step_ns.size} and {first.step_ns.size} steps"
    plain = first.unprofiled_step_ns or second.unprofiled_step_ns
    told = f"; {format_ns(plain)} without a profiler" if plain else ""
    said = f"{second.possessive} steps are {format_fraction(abs(ratio - 1))} {longer}: {means} ({n}){told}"
    return seen(said, "step_ratio", ratio, "ratio")


def _words(part: str) -> str:
    return part.removeprefix("idle_").replace("_", " ")


def _alone(found: Match) -> Iterable[Evidence]:
    """Name the functions that one side alone has, with their kernel time."""
    names, _, _, times = _by_function(found)
    for which, total, mine, other in (("first", found.first, 0, 1), ("second", found.second, 1, 0)):
        both = zip(names, times[mine], times[other], strict=True)
        spent_ns = {name: ns for name, ns, others in both if ns and not others}
        alone = sorted(spent_ns, key=lambda name: -spent_ns[name])
        if alone:
            share = sum(spent_ns.values()) / total.total_ns
            more = f" and {len(alone) - _MAX_NAMED} more" if len(alone) > _MAX_NAMED else ""
            said = f"only in the {which}: {', '.join(alone[:_MAX_NAMED])}{more}"
            said += f" ({format_fraction(share)} of its kernel time)"
            yield seen(said, f"only_{which}_fraction", share, "fraction")


def _explained(first: Portrait, second: Portrait) -> Iterable[Evidence]:
    """What a timeline of the whole system adds to the first tool's, in the order of what a reader asks."""
    shares = [sum(side.share(part) for part in _UNRESOLVED) for side in (first, second)]
    if shares[0] >= MIN_SHARE:
        by = f"{format_fraction(shares[0])} of the step by {first.tool}, {format_fraction(shares[1])} by {second.tool}"
        yield seen(f"idle time without a known cause: {by}", "unresolved_fraction", shares[1], "fraction")
    host, least = second.host, MIN_SHARE * second.mean_step_ns
    waiting = sum(spent for _, spent in host.waits)
    if waiting >= least:
        said = "while the GPU was idle, the launching thread was in the operating system"
        yield seen(f"{said}: {_longest(host.waits)} per step", "os_wait_ns", waiting)
    big = [(name, spent) for name, spent in host.idle_by_range if spent >= least]
    if big:
        yield seen(f"GPU idle time inside ranges, per step: {_longest(big)}", "idle_in_range_ns", big[0][1])
    ours, theirs = first.host.calls.get("launch"), host.calls.get("launch")
    if ours is not None and theirs is not None:
        medians = f"{format_ns(ours.median_ns)} under {first.tool}, {format_ns(theirs.median_ns)} under {second.tool}"
        n = format_count(round(theirs.count, 1))
        said = f"a launch call takes {medians} (medians), {n} of them per step"
        yield seen(said, "launch_call_ns", theirs.median_ns)
    for kind, words in (("sync", "synchronising"), ("alloc", "allocating")):
        calls = host.calls.get(kind)
        if calls is not None and calls.total_ns >= least:
            held = f"{format_ns(calls.total_ns)} per step under {second.tool}"
            said = f"{words} calls hold the launching thread {held} ({format_count(round(calls.count, 1))} of them)"
            yield seen(said, f"{kind}_call_ns", calls.total_ns)


def _longest(spent_ns: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {format_ns(spent)}" for name, spent in spent_ns[:_MAX_TIMES])
