"""A trace beside another tool's timeline: same workload or not, what agrees, what is explained, what stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from profkit.crosscheck.agreement import agreement
from profkit.crosscheck.comparability import differing, not_the_same, unpairable
from profkit.crosscheck.launch_match import Match, Total, match, paired_steps
from profkit.crosscheck.timeline_evidence import explained
from profkit.crosscheck.trace_profile import Portrait
from profkit.crosscheck.verdicts import Ruling, ruling
from profkit.findings.crosscheck import CONFIRMED
from profkit.model.arrays import rows_by_value
from profkit.model.documents.handover import FunctionMatch, HandoverStatus, MatchedSide, PartAgreement, TimelineHandover
from profkit.model.documents.report import Verdict
from profkit.model.finding import Evidence, NextTool
from profkit.model.names import family_of, kind_of
from profkit.model.trace import Kind
from profkit.units import format_ceiling, format_fraction, format_ns, format_speedup

_MAX_NAMED: Final = 4


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
    return TimelineHandover(
        **_of_both(first, second),
        status=ruled.status,
        sentence=ruled.sentence,
        evidence=_evidence(first, second, found, ruled),
        paired_by=how,
        n_pairs=len(pairs),
        first=_side(first, found.first),
        second=_side(second, found.second),
        functions=_functions(found, len(pairs), {**second.launches.full_names, **first.launches.full_names}),
        parts=agreement(first, second),
        confidence_after=ruled.confidence,
        confidence_why=ruled.why,
        explained=explained(first, second),
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
        evidence=_unmatched(found) if found is not None else (),
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


def _functions(found: Match, n_pairs: int, full_names: Mapping[str, str]) -> tuple[FunctionMatch, ...]:
    """Every kernel function of both sides, the first's longest first."""
    names = list(dict.fromkeys(key.function for key in found.keys))
    place = {name: number for number, name in enumerate(names)}
    of_key = np.array([place[key.function] for key in found.keys], np.intp)

    def summed(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
        out = np.zeros(len(names), np.int64)
        np.add.at(out, of_key, values)
        return [int(value) for value in out]

    counts = [summed(side.count_by_key) for side in (found.first, found.second)]
    times = [summed(side.ns_by_key) for side in (found.first, found.second)]
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


def _evidence(first: Portrait, second: Portrait, found: Match, ruled: Ruling) -> tuple[Evidence, ...]:
    given = [_matched(found)]
    if ruled.cause is not None:
        given.append(_cause(ruled))
    given += _ceilings(first, second)
    given += [_step_times(first, second), _parts(agreement(first, second)), _durations(second, found)]
    return (*given, *_unmatched(found))


def _matched(found: Match) -> Evidence:
    n = f"{found.first.n_matched:,} of {found.first.n:,} and {found.second.n:,} launches"
    return Evidence(
        statement=f"{format_fraction(found.time_share)} of the kernel time is in kernels that both traces have ({n})",
        metric="handover.matched_time_fraction",
        value=found.time_share,
        unit="fraction",
    )


def _cause(ruled: Ruling) -> Evidence:
    cause = ruled.cause
    assert cause is not None  # noqa: S101 - asked by the caller
    noise = f"{100 * CONFIRMED.limit('floor'):.1f} points of noise between runs"
    if cause.allowed is None:
        scatter = f"one step on a side does not show the variation ({noise})"
    else:
        word = "within" if cause.agrees else "more than"
        scatter = f"{word} the variation of steps ({100 * cause.allowed:.1f} points) and {noise}"
    return Evidence(
        statement=f"its share differs by {100 * cause.difference:+.1f} points: {scatter}",
        metric="handover.cause_difference",
        value=cause.difference,
        unit="fraction",
    )


def _ceilings(first: Portrait, second: Portrait) -> list[Evidence]:
    """What fixing the cause could give by each tool: the first's ceiling holds the first's own cost."""
    ours, theirs = first.verdict, second.verdict
    if ours.bottleneck is not theirs.bottleneck or not (ours.recoverable_ns and theirs.recoverable_ns):
        return []
    return [
        Evidence(
            statement=f"a fix saves at most {_gain(theirs)} by {second.tool}, {_gain(ours)} by {first.tool}",
            metric="handover.second_recoverable_ns",
            value=float(theirs.recoverable_ns),
            unit="ns",
        )
    ]


def _gain(verdict: Verdict) -> str:
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
    return Evidence(
        statement=f"{second.possessive} steps are {format_fraction(abs(ratio - 1))} {longer}: {means} ({n}){told}",
        metric="handover.step_ratio",
        value=ratio,
        unit="ratio",
    )


def _parts(parts: tuple[PartAgreement, ...]) -> Evidence:
    apart = sorted((part for part in parts if not part.agrees), key=lambda part: -abs(part.difference))
    named = ", ".join(f"{_words(part.part)} {100 * part.difference:+.1f}" for part in apart)
    n = f"{len(parts) - len(apart)} of {len(parts)} parts of the budget agree"
    return Evidence(
        statement=f"{n}; differences in points: {named}" if apart else n,
        metric="handover.parts_apart",
        value=float(len(apart)),
        unit="count",
    )


def _words(part: str) -> str:
    return part.removeprefix("idle_").replace("_", " ")


def _durations(second: Portrait, found: Match) -> Evidence:
    ratio = float(np.median(found.second_ns / np.maximum(found.first_ns, 1)))
    return Evidence(
        statement=f"matched kernels take {format_speedup(ratio)} as long under {second.tool} (median)",
        metric="handover.kernel_ratio",
        value=ratio,
        unit="ratio",
    )


def _unmatched(found: Match) -> tuple[Evidence, ...]:
    """Name the functions that one side alone has, with their kernel time."""
    of = [dict[str, int](), dict[str, int]()]
    for key, first_ns, second_ns in zip(
        found.keys, found.first.ns_by_key.tolist(), found.second.ns_by_key.tolist(), strict=True
    ):
        for side, spent in enumerate((first_ns, second_ns)):
            of[side][key.function] = of[side].get(key.function, 0) + spent
    out = []
    for name, mine, other, total in (
        ("first", of[0], of[1], found.first.total_ns),
        ("second", of[1], of[0], found.second.total_ns),
    ):
        alone = sorted(((f, ns) for f, ns in mine.items() if ns and not other.get(f)), key=lambda item: -item[1])
        spent = sum(ns for _, ns in alone)
        if not alone:
            continue
        named = ", ".join(function for function, _ in alone[:_MAX_NAMED])
        more = f" and {len(alone) - _MAX_NAMED} more" if len(alone) > _MAX_NAMED else ""
        out.append(
            Evidence(
                statement=f"only in the {name}: {named}{more} ({format_fraction(spent / total)} of its kernel time)",
                metric=f"handover.only_{name}_fraction",
                value=spent / total,
                unit="fraction",
            )
        )
    return tuple(out)
