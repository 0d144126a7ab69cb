"""The sentences that say how launches hold a device, or a CPU, up."""

from __future__ import annotations

from profkit.analyzers.launches.measured import Launches
from profkit.findings.host import LAUNCH_BOUND
from profkit.model.budget import label
from profkit.model.finding import Evidence
from profkit.units import format_count, format_fraction, format_ns

MIN_OS_SHARE = 0.2  # chosen: below, the calls are noise beside the host's own work


def device_evidence(result: Launches, fraction: float) -> tuple[Evidence, ...]:
    """Say how long the device waits for launches, how many find it drained, how long kernels are, what the host did."""
    scope = result.scope
    rho = result.rho_count or 0.0
    floor = (
        f"; launch to start takes {format_ns(result.floor_median_ns)} on the idle device"
        if result.floor_median_ns
        else ""
    )
    evidence = [
        Evidence(
            statement=f"{format_ns(scope.per_step(result.launch_idle_ns + result.host_idle_ns))} {scope.each} idle before launches:"
            f" {format_fraction(scope.fraction(result.launch_idle_ns))} {'dispatching' if result.has_ops else 'in CUDA calls'},"
            f" {format_fraction(scope.fraction(result.host_idle_ns))} {label('idle_host', is_cpu=False) if result.has_ops else 'outside them (no operators recorded: Python or dispatch)'}",
            metric="budget_ns.idle_launch+idle_host-launches.turnaround_ns",
            value=float(result.launch_idle_ns + result.host_idle_ns),
            unit="ns",
            expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
            span_ns=result.longest_gap_ns,
        ),
        Evidence(
            statement=f"{format_count(result.n_drained)} operations ({format_fraction(rho)} of all) were launched into a"
            f" drained device{floor}",
            metric="launches.rho_count",
            value=rho,
            unit="fraction",
            expected="< 50 % when the host runs ahead",
        ),
    ]
    if result.shorter_than_launch is not None:
        evidence.append(
            Evidence(
                statement=f"median kernel {format_ns(result.median_kernel_ns)};"
                f" {format_fraction(result.shorter_than_launch)} of kernels are shorter than their own launch call",
                metric="launches.median_kernel_ns",
                value=float(result.median_kernel_ns),
                unit="ns",
            )
        )
    evidence += _os_evidence(result)
    if result.top_operators:
        named = ", ".join(name for name, _, _ in result.top_operators)
        share = sum(count for _, count, _ in result.top_operators) / max(result.n_operations, 1)
        evidence.append(
            Evidence(
                statement=f"{named}: {format_fraction(share)} of all device operations",
                metric="launches.top_operator_share",
                value=share,
                unit="fraction",
            )
        )
    return tuple(evidence)


def _os_evidence(result: Launches) -> list[Evidence]:
    total = sum(spent for _, spent in result.os_waits)
    if not result.host_idle_ns or total < MIN_OS_SHARE * result.host_idle_ns:
        return []
    named = ", ".join(f"{name} {format_fraction(spent / result.host_idle_ns)}" for name, spent in result.os_waits[:3])
    return [
        Evidence(
            statement=f"of that host time the launching thread spent {named} in the operating system:"
            " it waited for another thread, a process or a file",
            metric="launches.os_wait_ns",
            value=float(total),
            unit="ns",
        )
    ]


def cpu_evidence(result: Launches, fraction: float) -> tuple[Evidence, ...]:
    """Say what dispatching costs on a CPU, and what lies between operators."""
    scope = result.scope
    cost = (
        f"; the fixed cost of one is about {format_ns(result.op_cost_ns)} (estimated), the rest of dispatch is time inside"
        " operators around those that they call"
        if result.op_cost_ns
        else ""
    )
    return (
        Evidence(
            statement=f"{format_fraction(scope.fraction(result.launch_idle_ns))} of the window goes into dispatching operators,"
            f" {format_fraction(scope.fraction(result.host_idle_ns))} into Python between them",
            metric="budget_ns.idle_launch+idle_host",
            value=float(result.launch_idle_ns + result.host_idle_ns),
            unit="ns",
            expected=f"< {format_fraction(LAUNCH_BOUND.limit('window'))} of the window",
        ),
        Evidence(
            statement=f"{format_count(scope.per_step(result.n_operations))} operators {scope.each},"
            f" {format_fraction(result.rho_count or 0)} of them up to 10 us long" + cost,
            metric="launches.small_operator_fraction",
            value=result.rho_count or 0.0,
            unit="fraction",
        ),
    )
