"""`straggler.rare`: what one rank alone does now and then while the others wait in a collective, as one cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import py_spy_main
from profkit.findings.ranks.stragglers import OWN_FIX, RARE_WORK
from profkit.findings.whole_run import DECOMPOSES, OTHER_STEPS, RARE, REST_METRIC
from profkit.model.finding import Evidence, Finding
from profkit.ranks.findings.lateness import waiting_words
from profkit.ranks.measure.fleet_measures import Joint
from profkit.redact.later import later
from profkit.timeline.whole_run import EVALUATES

_MEETS: Final = later(
    r"(?:barrier|all_?reduce|all_?gather\w*|broadcast(?:_object_list)?|reduce_scatter\w*|wait_for_everyone"
    r"|gather_(?:for_metrics|object)|\bbackward)\("
)
"""Calls at which a rank waits for others, by the text of the line."""
_LONG: Final = "whole_run.long_ns"


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """One at most: where all that wait do so at such a line, as often and as long as the one rank works elsewhere."""
    rare = {
        rank: one
        for rank, outcome in joint.by_rank.items()
        for one in outcome.report.findings
        if one.id in (RARE.id, DECOMPOSES.id, OTHER_STEPS.id) and one.places
    }
    # of `host.other_steps` nobody says what a wait costs
    waiting = {
        rank: one for rank, one in rare.items() if one.recoverable_ns and _MEETS.search(one.places[0].place.text)
    }
    busy = [rank for rank in rare if rank not in waiting]
    if len(busy) != 1 or len(waiting) < RARE_WORK.limit("waiting") * (len(joint.by_rank) - 1):
        return
    (rank,) = busy
    own, wait = rare[rank], min(waiting.values(), key=lambda one: one.recoverable_ns)
    if all(_is_same(own, one) for one in waiting.values()):
        yield from _found(rank, own, wait, sorted(waiting), joint, scope)


def _is_same(own: Finding, wait: Finding) -> bool:
    """Whether the long steps of two ranks are as long and about as many, and both do not stand at the same line."""
    apart = RARE_WORK.limit("apart")
    shared = sum(one.share for one in own.places if one.place == wait.places[0].place)
    if shared >= RARE_WORK.limit("beside") * wait.places[0].share:
        return False
    n, n_own = wait.places[0].count, own.places[0].count
    long, long_own = wait.seen(_LONG).value, own.seen(_LONG).value
    return abs(n - n_own) <= max(apart * n_own, 1) and abs(long - long_own) <= apart * long_own


def _found(rank: int, own: Finding, wait: Finding, waiting: list[int], joint: Joint, scope: Scope) -> Iterable[Finding]:
    place = own.places[0].place
    is_evaluation = bool(place.single_words & EVALUATES)
    saved = 1 - 1 / len(joint.by_rank) if is_evaluation else 1.0  # its part of what is shared stays with each rank
    if wait.fraction * saved < RARE_WORK.limit("run"):
        return
    often, _, _ = wait.title.partition(", ")
    seen = wait.seen(_LONG)
    rest = wait.recoverable_ns * (1 - saved)
    stays = Evidence(
        "shared among the ranks, a part of it stays with each: it is no part of the share", REST_METRIC, rest, "ns"
    )
    yield replace(
        RARE_WORK.found(
            title=f"{often} rank {rank} alone works at {place.name}, while {waiting_words(waiting)} at"
            f" {wait.places[0].place.words}",
            confidence=min(own.confidence, wait.confidence),
            recoverable_ns=round(wait.recoverable_ns * saved),
            most_recoverable_ns=wait.recoverable_ns,
            fraction=wait.fraction * saved,
            evidence=(
                replace(seen, statement=f"on rank {waiting[0]}: {seen.statement}"),
                replace(own.seen(_LONG), statement=f"on rank {rank}: {own.title}"),
                *([stays] if is_evaluation else []),
            ),
            fix=OWN_FIX if is_evaluation else own.fix,
            next_tools=(py_spy_main(scope.command),),
            rank=rank,
        ),
        places=own.places,
    )
