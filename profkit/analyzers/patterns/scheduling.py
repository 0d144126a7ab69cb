"""Whether the training thread had a core to run on, as profkit capture read it from the scheduler."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.findings.patterns import CONTENTION
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.timeline import Facts
from profkit.units import format_fraction, format_ns

_CONFIDENCE: Final = 0.8
"""The kernel counts it; how much of it the step loses is not known. Chosen."""


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the recorded steps, ns; None where the capture could not read them."""

    scope: Scope
    span_ns: int
    run_ns: int
    wait_ns: int
    all_run_ns: int | None = None
    """Of all threads of the process, as `all_wait_ns`."""
    all_wait_ns: int | None = None
    throttled_ns: int | None = None
    """Taken by the container's quota, from all its processes."""
    cores: int | None = None
    threads: int | None = None
    """Threads that share one operator."""

    @property
    def wait_share(self) -> float:
        """Share (0-1) of the recorded time in which the training thread waited for a core."""
        return min(self.wait_ns / self.span_ns, 1.0)


def measure(facts: Facts) -> Scheduling | Skipped:
    """Read what the capture wrote."""
    told = facts.trace.meta.scheduling
    span, run, wait = (told.get(key) for key in ("span_ns", "run_ns", "wait_ns"))
    if not span or run is None or wait is None:
        return Skipped(
            analyzer="scheduling",
            reason="the trace does not say whether the training thread had a core",
            how_to_get="record with profkit capture, on Linux",
        )
    return Scheduling(
        scope=scope_of(facts),
        span_ns=span,
        run_ns=run,
        wait_ns=wait,
        all_run_ns=told.get("all_run_ns"),
        all_wait_ns=told.get("all_wait_ns"),
        throttled_ns=told.get("throttled_ns"),
        cores=told.get("cores"),
        threads=told.get("threads"),
    )


def judge(result: Scheduling) -> tuple[Finding, ...]:
    """`host.contention` where it waited for long enough."""
    share = result.wait_share
    if share < CONTENTION.limit("window"):
        return ()
    scope = result.scope
    lost_ns = round(share * scope.window_ns)
    return (
        CONTENTION.found(
            fraction=share,
            confidence=_CONFIDENCE,
            recoverable_ns=scope.per_step(lost_ns),
            evidence=(
                Evidence(
                    statement=f"the training thread was ready and waited for a core for {format_fraction(share)} of the"
                    f" recorded time ({format_ns(result.wait_ns)} of {format_ns(result.span_ns)})",
                    metric="scheduling.wait_ns",
                    value=float(result.wait_ns),
                    unit="ns",
                    expected=f"< {format_fraction(CONTENTION.limit('window'))}",
                ),
                *_around(result),
            ),
            fix=CONTENTION.fixes[0],
        ),
    )


def _around(result: Scheduling) -> tuple[Evidence, ...]:
    """What wanted to run, and what held it."""
    said = []
    if result.all_run_ns is not None and result.all_wait_ns is not None and result.cores:
        wanted = (result.all_run_ns + result.all_wait_ns) / result.span_ns
        said.append(
            Evidence(
                statement=f"the threads of this process wanted {wanted:.1f} cores at a time; it may use {result.cores}"
                + (f", and an operator runs on up to {result.threads}" if result.threads else ""),
                metric="scheduling.wanted_cores",
                value=wanted,
                unit="count",
            )
        )
    if result.throttled_ns:
        said.append(
            Evidence(
                statement=f"the container's CPU quota held its processes for {format_ns(result.throttled_ns)}",
                metric="scheduling.throttled_ns",
                value=float(result.throttled_ns),
                unit="ns",
            )
        )
    return tuple(said)


def present(result: Scheduling) -> Section:
    """Show what was read."""
    return Section(
        analyzer="scheduling",
        title="cores",
        values={
            "span_ns": result.span_ns,
            "run_ns": result.run_ns,
            "wait_ns": result.wait_ns,
            "all_run_ns": result.all_run_ns,
            "all_wait_ns": result.all_wait_ns,
            "throttled_ns": result.throttled_ns,
            "cores": result.cores,
            "threads": result.threads,
        },
    )


SCHEDULING = Analyzer(
    name="scheduling",
    question="did the training thread have a core to run on?",
    needs="what profkit capture reads from the scheduler of Linux",
    measure=measure,
    judge=judge,
    present=present,
)
