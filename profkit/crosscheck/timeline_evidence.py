"""What a timeline of the whole system shows that the first tool could not: calls, waits, ranges, its own cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.crosscheck.trace_profile import Portrait
from profkit.model.finding import Evidence
from profkit.units import format_count, format_fraction, format_ns

MIN_SHARE: Final = 0.02
"""Share of the step below which a wait or a range is not told: severity "low" begins there (`severity_of`)."""
_MAX_NAMED: Final = 3
_UNRESOLVED: Final = ("idle_dependency", "idle_unknown")


def explained(first: Portrait, second: Portrait) -> tuple[Evidence, ...]:
    """What the second tool adds, in the order of what a reader asks."""
    return (
        *_unresolved(first, second),
        *_waits(second),
        *_ranges(second),
        *_calls(first, second),
    )


def _unresolved(first: Portrait, second: Portrait) -> Iterable[Evidence]:
    shares = [sum(side.share(part) for part in _UNRESOLVED) for side in (first, second)]
    if shares[0] >= MIN_SHARE:
        yield Evidence(
            statement=f"idle time without a known cause: {format_fraction(shares[0])} of the step by {first.tool},"
            f" {format_fraction(shares[1])} by {second.tool}",
            metric="handover.unresolved_fraction",
            value=shares[1],
            unit="fraction",
        )


def _waits(second: Portrait) -> Iterable[Evidence]:
    total = sum(spent for _, spent in second.host.waits)
    if total < MIN_SHARE * second.mean_step_ns:
        return
    named = ", ".join(f"{name} {format_ns(spent)}" for name, spent in second.host.waits[:_MAX_NAMED])
    yield Evidence(
        statement=f"while the GPU was idle, the launching thread was in the operating system: {named} per step",
        metric="handover.os_wait_ns",
        value=float(total),
        unit="ns",
    )


def _ranges(second: Portrait) -> Iterable[Evidence]:
    big = [(name, spent) for name, spent in second.host.idle_by_range if spent >= MIN_SHARE * second.mean_step_ns]
    if not big:
        return
    named = ", ".join(f"{name} {format_ns(spent)}" for name, spent in big[:_MAX_NAMED])
    yield Evidence(
        statement=f"GPU idle time inside ranges, per step: {named}",
        metric="handover.idle_in_range_ns",
        value=float(big[0][1]),
        unit="ns",
    )


def _calls(first: Portrait, second: Portrait) -> Iterable[Evidence]:
    """The time of a launch call in both, and of calls that block in the second."""
    ours, theirs = first.host.calls.get("launch"), second.host.calls.get("launch")
    if ours is not None and theirs is not None:
        yield Evidence(
            statement=f"a launch call takes {format_ns(ours.median_ns)} under {first.tool},"
            f" {format_ns(theirs.median_ns)} under {second.tool} (medians),"
            f" {format_count(round(theirs.count, 1))} of them per step",
            metric="handover.launch_call_ns",
            value=float(theirs.median_ns),
            unit="ns",
        )
    for kind, words in (("sync", "synchronising"), ("alloc", "allocating")):
        calls = second.host.calls.get(kind)
        if calls is not None and calls.total_ns >= MIN_SHARE * second.mean_step_ns:
            yield Evidence(
                statement=f"{words} calls hold the launching thread {format_ns(calls.total_ns)} per step under"
                f" {second.tool} ({format_count(round(calls.count, 1))} of them)",
                metric=f"handover.{kind}_call_ns",
                value=float(calls.total_ns),
                unit="ns",
            )
