"""`comm.skew`, `comm.bandwidth`, `collective.extra`: what the communication of a fleet is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import after_change, operators, recapture, system_timeline
from profkit.findings.communication import (
    ASKED,
    BANDWIDTH,
    DEFAULT_BUCKET_BYTES,
    EXTRA,
    LATENCY_METRIC,
    SKEW,
)
from profkit.model.arrays import I64, Bool, median
from profkit.model.code import PlaceShare
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.align.match_types import Method
from profkit.ranks.findings import links
from profkit.ranks.measure.fingerprints import CommunicationLimit, Traffic
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.permutation_test import excess_ns
from profkit.ranks.measure.slow_links import slow_side
from profkit.ranks.measure.stragglers import MOST_OWN, own_excess_ns
from profkit.ranks.measure.tokens import TokenSkew
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import Group
from profkit.units import format_bytes, format_fraction, format_ns

LESS_TRANSFER: Final = (
    "fewer bytes (bf16 gradients, gradient accumulation, HSDP), more overlap (buckets, prefetch), faster links"
)
_FEWER: Final = (
    "fewer collectives: fuse small ones into one (DDP: a larger bucket_cap_mb), or keep on each rank what is reduced;"
    " then faster links, fewer hops"
)
_FEW_BYTES: Final = "collectives of few bytes take long"
_LATENCY: Final = "collective time is mostly latency"
_FUSED: Final = "Fuse two of these collectives into one: the exposed time must fall, though the bytes stay."
_SURELY: Final = 3.0
"""Standard errors by which a line through times may be steeper than measured. Chosen: 1 in 700 is."""
_GUESSED: Final = 0.8
"""What is left of the confidence where the group is a guess: NCCL's ends would agree within microseconds. Chosen."""


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """One finding of each kind at most, on the group where it costs most."""
    pairs = sorted(zip(joint.limits, joint.waits, strict=True), key=lambda pair: -pair[0].exposed_ns)
    enough = [(limit, waits) for limit, waits in pairs if limit.is_enough]
    least = SKEW.limit("window")
    skewed = [pair for pair in enough if pair[0].is_skew and joint.fraction(pair[0].wait_exposed_ns) >= least]
    if skewed:
        yield _skew(*max(skewed, key=lambda pair: pair[0].wait_exposed_ns), joint, scope, n_alike=len(skewed) - 1)
    least = BANDWIDTH.limit("window")
    slow = [pair for pair in enough if not pair[0].is_skew and joint.fraction(pair[0].transfer_exposed_ns) >= least]
    if slow:
        yield _bandwidth(*max(slow, key=lambda pair: pair[0].transfer_exposed_ns), joint, scope, n_alike=len(slow) - 1)
    extra = [row for rows in joint.traffic for row in rows if row.is_suspect]
    extra = [row for row in extra if joint.fraction(row.exposed_ns) >= EXTRA.limit("window")]
    if extra:
        yield _extra(max(extra, key=lambda row: row.exposed_ns), joint, scope)


def group_name(group: Group, n_ranks: int) -> str:
    """A group as people call it."""
    name = f"group {group.name}" if group.name else "the group"
    return f"{name} of {group.size or n_ranks} ranks"


def _alike(n_alike: int) -> str:
    return f" ({n_alike} more group{'s' if n_alike > 1 else ''} like it)" if n_alike else ""


def _split(limit: CommunicationLimit, waits: GroupWaits, joint: Joint, n_alike: int) -> Evidence:
    return Evidence.share(
        "comm.wait_fraction",
        limit.wait_fraction,
        f"{limit.n_instances:,} collectives of {group_name(limit.group, len(waits.ranks))}{_alike(n_alike)}: a rank"
        f" waits up to {format_ns(joint.per_step(limit.wait_ns))} and transfers up to"
        f" {format_ns(joint.per_step(limit.transfer_ns))} {joint.per}, including what compute hides",
        expected=f"{SKEW.limit('matched'):g} collectives or more, on all ranks",
    )


def _confidence(waits: GroupWaits, joint: Joint) -> float:
    sure = 0.85 * (1.0 if waits.uses_clocks and not waits.is_disputed else 0.8)
    sure *= _GUESSED if not joint.outcomes[0].summary.is_cpu and _is_by_order_alone(waits, joint) else 1.0
    return joint.sure(sure, waits.ranks, waits.n_steps)


def _is_by_order_alone(waits: GroupWaits, joint: Joint) -> bool:
    """Whether neither numbers nor ends join these collectives of no known group: there may be several."""
    mine = next(each for each in joint.matching.groups if (each.group, each.ranks) == (waits.group, waits.ranks))
    return not waits.group.name and mine.method in (Method.STEPS, Method.ORDER)


def _skew(limit: CommunicationLimit, waits: GroupWaits, joint: Joint, scope: Scope, *, n_alike: int) -> Finding:
    fraction = joint.fraction(limit.wait_exposed_ns)
    is_worth = joint.fraction(limit.balanced_ns) >= SKEW.limit("window") or waits.n_steps < SKEW.limit("tested")
    chiefly = mostly(waits)
    own = own_excess_ns(waits)
    excess = excess_ns(waits.arrival_ns, waits.present)
    is_their_own = int(own.sum()) >= MOST_OWN * int(excess.sum())
    last = ", ".join(f"rank {rank} in {count:,}" for rank, count in _last(waits, own if is_their_own else excess)[:3])
    title = "" if chiefly is None else f"ranks wait, mostly for rank {chiefly}, which is not a proven straggler"
    return SKEW.found(
        title=title if is_their_own else "ranks wait for late ranks, whose own work in the steps does not explain it",
        confidence=_confidence(waits, joint),
        recoverable_ns=joint.per_step(limit.balanced_ns) if is_worth else 0,
        most_recoverable_ns=joint.per_step(limit.wait_exposed_ns) if is_worth else None,
        fraction=fraction,
        evidence=(
            Evidence.time(
                "comm.wait_exposed_ns",
                limit.wait_exposed_ns,
                f"the rank that waits longest waits {format_ns(joint.per_step(limit.wait_exposed_ns))} {joint.per}"
                f" without compute to hide it ({format_fraction(fraction)} of the window)",
                expected=f"< {format_fraction(SKEW.limit('window'))} of the window",
            ),
            _split(limit, waits, joint, n_alike),
            Evidence.count(
                "comm.n_instances",
                limit.n_instances,
                (
                    (f"others wait for {last} of" if last else "no rank is last by its own work in")
                    if is_their_own
                    else f"{last or 'no rank'} came last, of"
                )
                + f" {limit.n_instances:,} collectives{'' if is_their_own else _held_up(own, excess)}",
            ),
            *_not_a_straggler(chiefly, waits, joint),
            *_not_tokens(joint),
        ),
        fix=f"give all ranks the same work in every step: {'' if _is_equal(joint) else 'equal tokens, '}no work on"
        " some ranks only, garbage collection at the same step"
        if is_their_own
        else "find what holds the last ranks up: a slow collective of another group, or work outside of the steps",
        next_tools=(
            _skew_tool(chiefly, scope)
            if is_their_own
            else system_timeline(scope, "what holds the last ranks up?", "what runs before their collectives"),
        ),
    )


def _held_up(own: I64, excess: I64) -> str:
    share = int(own.sum()) / max(int(excess.sum()), 1)
    return f"; what they did themselves since their last collective explains {format_fraction(share)} of it"


def mostly(waits: GroupWaits) -> int | None:
    """The rank that has nearly all of the lateness, None where ranks share it: as two do that are late together."""
    excess = own_excess_ns(waits).sum(axis=0)
    column = int(excess.argmax())
    waited = int(waits.wait_exposed_ns.sum(axis=0).max(initial=0))
    is_most = excess[column] >= SKEW.limit("mostly_one") * max(int(excess.sum()), 1)
    return waits.ranks[column] if is_most and excess[column] >= SKEW.limit("waiting") * waited else None


def _not_a_straggler(rank: int | None, waits: GroupWaits, joint: Joint) -> Iterable[Evidence]:
    """Why the rank with nearly all of the lateness is not named."""
    if rank is None:
        return
    excess, column = own_excess_ns(waits), waits.ranks.index(rank)
    share = float(excess[:, column].sum() / max(int(excess.sum()), 1))
    # by identity: two groups may be of the same ranks
    reason = next(answer.reason for answer, each in zip(joint.stragglers, joint.waits, strict=True) if each is waits)
    yield Evidence.share(
        "comm.largest_share",
        share,
        f"rank {rank} has {format_fraction(share)} of the delay{_in_one_step(excess[:, column], waits)}; it is not"
        f" proven to be late: {reason}",
        expected=f"< {format_fraction(SKEW.limit('mostly_one'))} where ranks take turns",
    )


def _in_one_step(excess: I64, waits: GroupWaits) -> str:
    """How much of a rank's delay [n] is in its worst step, where that is most of it: a checkpoint looks so."""
    numbers, step = np.unique(waits.step, return_inverse=True)
    by_step = np.bincount(step.reshape(-1), excess)[numbers >= 0]
    if by_step.size < 2 or 2 * by_step.max() < max(excess.sum(), 1):
        return ""
    return f", {format_fraction(float(by_step.max() / excess.sum()))} of that in 1 of {by_step.size} steps"


def _skew_tool(rank: int | None, scope: Scope) -> NextTool:
    if rank is None:
        return system_timeline(scope, "why does the late rank change?", "what the last rank does before its collective")
    return recapture(
        scope, f"record more steps of all ranks: is rank {rank} late by chance?", "20 steps or more on every rank"
    )


def _is_equal(joint: Joint) -> bool:
    return isinstance(joint.token_skew, TokenSkew) and joint.token_skew.is_equal


def _not_tokens(joint: Joint) -> Iterable[Evidence]:
    """Why tokens, where they were counted and differ, are not the cause."""
    skew = joint.token_skew
    if isinstance(skew, TokenSkew) and not skew.is_found and not skew.is_equal:
        yield Evidence(
            f"token counts do not explain it: {skew.reason}", "tokens.skew_fraction", skew.skew_fraction, "ratio"
        )


def _last(waits: GroupWaits, excess: I64) -> list[tuple[int, int]]:
    """Each rank with for how many collectives the others waited for it, by this excess, the most first."""
    counts = (excess > 0).sum(axis=0)
    pairs = [(rank, int(count)) for rank, count in zip(waits.ranks, counts, strict=True) if count]
    return sorted(pairs, key=lambda pair: -pair[1])


def _bandwidth(limit: CommunicationLimit, waits: GroupWaits, joint: Joint, scope: Scope, *, n_alike: int) -> Finding:
    won = limit.transfer_exposed_ns
    fraction = joint.fraction(won)
    evidence = [
        Evidence.time(
            "comm.transfer_exposed_ns",
            won,
            f"compute does not hide {format_ns(joint.per_step(won))} {joint.per} of transfer"
            f" ({format_fraction(fraction)} of the window)",
            expected=f"< {format_fraction(BANDWIDTH.limit('window'))} of the window",
        ),
        _split(limit, waits, joint, n_alike),
    ]
    small = _small_messages(waits)
    if small is not None:
        evidence.append(small)
    hosts = links.hosts_of(waits, joint)
    if small is None and limit.bus_bytes_per_s is not None:
        evidence.append(
            Evidence(
                f"bus bandwidth {format_bytes(limit.bus_bytes_per_s)}/s,"
                f" {'of all together' if limit.is_shared else 'median by size'} (nccl-tests definition);"
                " only a link test shows whether the links can do more",
                "comm.bus_bytes_per_s",
                limit.bus_bytes_per_s,
                "bytes/s",
            )
        )
    side = slow_side(joint.summaries, waits) if small is None and hosts else None
    rate = limit.bus_bytes_per_s if small is None else None
    evidence += links.between(hosts, waits, rate, is_known=side is not None)
    found = BANDWIDTH.found(
        title=f"{_FEW_BYTES if _are_tiny(waits) else _LATENCY}{links.where(hosts, waits)}, not hidden under compute"
        if small is not None
        else f"collective time is mostly data transfer{where}, not hidden under compute"
        if (where := links.where(hosts, waits))
        else "",
        confidence=_confidence(waits, joint),
        recoverable_ns=joint.per_step(won),
        fraction=fraction,
        evidence=tuple(evidence),
        fix=_FEWER if small is not None else LESS_TRANSFER,
        proof=_FUSED if small is not None else "",
        next_tools=(link_test(waits, joint, scope),),
    )
    return found if side is None else links.with_slow_side(found, side)


def _are_tiny(waits: GroupWaits) -> bool:
    """Whether most of the transfers' time is that of messages of which any link moves the bytes in no time."""
    is_tiny = (waits.n_bytes > 0) & (waits.n_bytes <= BANDWIDTH.limit("small"))
    return 2 * int(waits.transfer_ns[is_tiny].sum()) > int(waits.transfer_ns.sum())


def _small_messages(waits: GroupWaits) -> Evidence | None:
    """What the transfers of a group are, where most of their time is that of small messages; None where it is not."""
    is_small = (waits.n_bytes > 0) & (waits.n_bytes <= BANDWIDTH.limit("small"))
    fixed_ns = 0.0
    if not _are_tiny(waits):
        is_small = (waits.n_bytes > 0) & (waits.n_bytes <= DEFAULT_BUCKET_BYTES)
        fixed_ns = _fixed_ns(waits, is_small)
        if 2 * fixed_ns * int(is_small.sum()) <= int(waits.transfer_ns.sum()):
            return None
    usual, most = median(waits.transfer_ns[is_small]), int(waits.n_bytes[is_small].max())
    fixed = f", of which {format_ns(fixed_ns)} or more are the same for all sizes" if fixed_ns else ""
    return Evidence.time(
        LATENCY_METRIC,
        usual,
        f"{int(is_small.sum()):,} of {len(waits.rows):,} collectives have {format_bytes(most)} or less and take"
        f" {format_ns(usual)} each (median) after the last rank has come{fixed}: that is latency, not bandwidth",
    )


def _fixed_ns(waits: GroupWaits, chosen: Bool) -> float:
    """What a transfer among these takes whatever its size, at least: where the line through times by bytes begins.

    Of the kind with most of the time; 0 where sizes are too few or too alike to tell.
    """
    kinds, spent = np.unique(waits.kind[chosen], return_inverse=True)
    if kinds.size == 0:
        return 0.0
    total = np.bincount(spent.reshape(-1), waits.transfer_ns[chosen])
    rows = np.flatnonzero(chosen & (waits.kind == kinds[int(total.argmax())]))
    n_bytes, lasts = waits.n_bytes[rows].astype(np.float64), waits.transfer_ns[rows].astype(np.float64)
    apart = n_bytes - n_bytes.mean()
    if rows.size < BANDWIDTH.limit("matched") or not apart.any():
        return 0.0
    slope = float(apart @ lasts / (apart @ apart))
    error = float(np.sqrt(((lasts - lasts.mean() - slope * apart) ** 2).mean() / (apart @ apart)))
    return float(lasts.mean() - max(slope + _SURELY * error, 0.0) * n_bytes.mean())


def link_test(waits: GroupWaits, joint: Joint, scope: Scope) -> NextTool:
    """What shows whether the links of a group can do more."""
    return links.link_test(waits, links.hosts_of(waits, joint), scope, is_small=_are_tiny(waits))


def _extra(row: Traffic, joint: Joint, scope: Scope) -> Finding:
    fraction = joint.fraction(row.exposed_ns)
    kind = CollectiveKind(row.kind).name.lower().replace("_", "-")
    places = _places_asked(joint, kind)
    size = f" of {format_bytes(row.n_bytes)}" if row.n_bytes >= 0 else ""
    there = f" at {places[0].place.name}" if places else ""
    often = f"{row.per_step:g} per step" if row.per_step is not None else f"{row.n_instances:,} in the window"
    found = EXTRA.found(
        title=f"extra {kind}{size}{there}, not part of the backward pass",
        confidence=0.6,
        recoverable_ns=joint.per_step(row.exposed_ns),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "collective.exposed_ns",
                row.exposed_ns,
                f"the script itself issues it, {often}: {format_ns(joint.per_step(row.exposed_ns))}"
                f" {joint.per} exposed, {format_fraction(row.share)} of the group's traffic",
            ),
        ),
        fix="if it reduces a metric or a loss: do so every n-th step or asynchronously; if it reduces gradients: drop"
        " it, they are reduced twice",
        next_tools=(
            after_change(scope, "bytes and time fall together")
            if places
            else operators(
                scope, "which line of the script issues it?", "the Python frame around it", flags="--stacks"
            ),
        ),
    )
    return replace(found, places=places)


def _places_asked(joint: Joint, kind: str) -> tuple[PlaceShare, ...]:
    """Where the script asks for collectives, mostly of this kind, on the first rank that knows."""
    return next(
        (
            one.places
            for outcome in joint.outcomes
            for one in outcome.report.findings
            if one.id == ASKED.id and one.mostly == kind and one.places
        ),
        (),
    )
