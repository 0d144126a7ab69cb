"""The sentences that say how launches hold a device, or a CPU, up."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.analyzers.base import idle_before, sampled_evidence
from profkit.analyzers.launches.measured import Launches
from profkit.findings.communication import EXPOSED
from profkit.findings.host import LAUNCH_BOUND
from profkit.model.budget import HOST_PARTS, label
from profkit.model.finding import Evidence
from profkit.timeline.idle import Place
from profkit.units import format_count, format_fraction, format_ns

MIN_OS_SHARE = 0.2  # chosen: below, the calls are noise beside the host's own work


def _queued_gaps(result: Launches) -> str:
    """What the budget's late launches have beside these, where it shows."""
    gaps = result.scope.fraction(result.turnaround_ns)
    if round(1000 * gaps) == 0:
        return ""
    return f"; not counted: {format_fraction(gaps)} in gaps between operations that were queued in time"


def _parts(result: Launches) -> str:
    """What the host does before late launches, as shares of the window."""
    scope = result.scope
    is_unknown = scope.is_of_torch and not result.has_ops
    host = "Python or dispatch (no operators recorded)" if is_unknown else label("idle_host", is_cpu=False)
    return (
        f"{scope.share(result.launch_idle_ns, 'idle_launch')} of the window in"
        f" {'operator dispatch' if result.has_ops else 'CUDA calls'}, {scope.share(result.host_idle_ns, 'idle_host')} in"
        f" {host}" + _queued_gaps(result)
    )


def _beside(result: Launches) -> str:
    """The share of late launches beside what is judged apart, which has the rest of these parts of the bar."""
    budget = result.scope.budget
    share = budget.shown(*HOST_PARTS, total_ns=result.launch_idle_ns + result.host_idle_ns)
    rest = sum(budget.tenths[name] for name in HOST_PARTS) - round(1000 * share)
    return f"{format_fraction(share)} of the window; not counted: {format_fraction(rest / 1000)} that is start-up or single stalls"


def device_evidence(result: Launches) -> Iterator[Evidence]:
    """Say how long the device waits for launches, how many find it drained, how long kernels are, what the host did."""
    scope = result.scope
    rho = result.rho_count or 0.0
    floor = f"; launch latency is {format_ns(result.floor_median_ns)}" if result.floor_median_ns else ""
    yield Evidence.time(
        "launches.beside_ns" if result.is_beside else "budget_ns.idle_launch+idle_host-launches.turnaround_ns",
        result.launch_idle_ns + result.host_idle_ns,
        f"the GPU is idle {format_ns(scope.per_step(result.launch_idle_ns + result.host_idle_ns))} {scope.each} before"
        f" launches: {_beside(result) if result.is_beside else _parts(result)}",
        expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
        span_ns=result.longest_gap_ns,
    )
    yield from _os_evidence(result)
    if not result.is_beside:
        yield from idle_before(result.places, scope, *HOST_PARTS)
    yield from sampled_evidence(result.samples, is_cpu=scope.is_cpu)
    yield Evidence.share(
        "launches.rho_count",
        rho,
        f"{format_count(result.n_drained)} operations ({format_fraction(rho)} of all) were launched while"
        f" the GPU was idle{floor}",
        expected="< 50 % when the host runs ahead",
    )
    if result.shorter_than_launch is not None:
        yield Evidence.time(
            "launches.median_kernel_ns",
            result.median_kernel_ns,
            f"the median kernel takes {format_ns(result.median_kernel_ns)};"
            f" {format_fraction(result.shorter_than_launch)} of kernels take less time than their own launch call",
        )
    if result.top_operators and one_place(result) is None:
        named = ", ".join(name for name, _, _ in result.top_operators)
        share = sum(count for _, count, _ in result.top_operators) / max(result.n_operations, 1)
        yield Evidence.share(
            "launches.top_operator_share",
            share,
            f"{named} launch {format_fraction(share)} of all device operations",
        )


def hidden_evidence(result: Launches) -> Iterator[Evidence]:
    """Say how much of the host's time communication hides, where that shows: with the idle time it is what it costs."""
    scope = result.scope
    if scope.fraction(result.hidden_ns) < EXPOSED.limit("window"):
        return
    yield Evidence.time(
        "launches.hidden_ns",
        result.hidden_ns,
        f"for {format_ns(scope.per_step(result.hidden_ns))} {scope.each} communication runs alone because the"
        " host has not launched the next kernel: without the host's delay the step is so much shorter, too",
    )


def one_place(result: Launches) -> Place | None:
    """The one place before which most of the idle time of the host lies, if there is one that is no start-up."""
    if result.is_beside:
        return None
    return result.places.outstanding(HOST_PARTS, LAUNCH_BOUND.limit("place"))


def _os_evidence(result: Launches) -> Iterator[Evidence]:
    total = sum(spent for _, spent in result.os_waits)
    if not result.host_idle_ns or total < MIN_OS_SHARE * result.host_idle_ns:
        return
    named = ", ".join(
        f"{format_fraction(spent / result.host_idle_ns)} in {name}" for name, spent in result.os_waits[:3]
    )
    of = (
        "of the time between operators, the training"
        if result.scope.is_cpu
        else "of that other host time, the launching"
    )
    yield Evidence.time(
        "launches.os_wait_ns",
        total,
        f"{of} thread spends {named} (operating system): it waits for another thread, a process or a file",
    )


def cpu_evidence(result: Launches) -> tuple[Evidence, ...]:
    """Say what dispatching costs on a CPU, and what lies between operators."""
    scope = result.scope
    fixed_ns = result.op_cost_ns * result.n_operations
    cost = (
        f"; their fixed cost is about {format_ns(scope.per_step(fixed_ns))} of the"
        f" {format_ns(scope.per_step(result.launch_idle_ns))} of dispatch (estimated), the rest is operators that call others"
        if 0 < fixed_ns <= result.launch_idle_ns
        else ""
    )
    return (
        Evidence.time(
            "budget_ns.idle_launch+idle_host",
            result.launch_idle_ns + result.host_idle_ns,
            f"{scope.share(result.launch_idle_ns, 'idle_launch')} of the window is operator dispatch,"
            f" {scope.share(result.host_idle_ns, 'idle_host')} is"
            f" {'between operators' if result.waits_for_system else 'Python between operators'}",
            expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
        ),
        Evidence.share(
            "launches.small_operator_fraction",
            result.rho_count or 0.0,
            f"{format_count(scope.per_step(result.n_operations))} operators {scope.each};"
            f" {format_fraction(result.rho_count or 0)} of them take at most 10 us" + cost,
        ),
        *_os_evidence(result),
        *sampled_evidence(result.samples, is_cpu=scope.is_cpu),
    )
