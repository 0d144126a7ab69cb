"""`comm.slow_link`: one group transfers more slowly than its twins, and the others wait for its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.analyzers.base import Scope
from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.findings.links import are_names, network_test
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.permutation_test import FEW_STEPS, MIN_STEPS
from profkit.ranks.measure.slow_links import SlowLink
from profkit.shell import line_of
from profkit.units import format_bytes, format_fraction, format_ns, format_numbers, format_speedup

_SURE = 0.85


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """The group that loses most, if that is worth a word."""
    least = SLOW_LINK.limit("window")
    found = [link for link in joint.slow_links if joint.fraction(link.exposed_ns) >= least]
    if found:
        yield _slow(found[0], found[1:], joint, scope)


def _slow(link: SlowLink, others: list[SlowLink], joint: Joint, scope: Scope) -> Finding:
    is_small = link.n_bytes <= SLOW_LINK.limit("small")
    here, there = _paces(link, is_small=is_small)
    at = "" if is_small else " at"
    name, twins = _name(link), _twins(link)
    fraction = joint.fraction(link.exposed_ns)
    evidence = [
        Evidence(
            statement=(
                f"{name} (ranks {format_numbers(link.ranks)}): its collectives of {format_bytes(link.n_bytes)}"
                f" {'take' if is_small else 'run at'} {here}, the same ones in {twins}{at} {there}"
                f" ({'' if is_small else 'bus bandwidth, '}median)"
            ),
            metric="comm.transfer_ns" if is_small else "comm.bus_bytes_per_s",
            value=float(link.transfer_ns) if is_small else link.bus_bytes_per_s,
            unit="ns" if is_small else "bytes/s",
            expected=f"{there}, as in {twins}",
        ),
        Evidence(
            statement=(
                f"{link.n_instances:,} of its transfers take {format_ns(joint.per_step(link.longer_ns))} {joint.per}"
                f" longer than in {twins}; compute does not hide {format_ns(joint.per_step(link.exposed_ns))} of it"
                f" ({format_fraction(fraction)} of the window)"
            ),
            metric="comm.slow_link_ns",
            value=float(link.exposed_ns),
            unit="ns",
            expected=f"< {format_fraction(SLOW_LINK.limit('window'))} of the window",
        ),
    ]
    hosts = sorted({joint.outcome_of(rank).summary.host for rank in link.ranks} - {""})
    if len(hosts) > 1 or len({summary.host for summary in joint.summaries}) > 1:
        where = "one host" if len(hosts) == 1 else f"{len(hosts)} hosts"
        evidence.append(
            Evidence(
                statement=f"its ranks are on {where}: {', '.join(hosts[:4])}",
                metric="comm.n_hosts",
                value=float(len(hosts)),
                unit="count",
            )
        )
    evidence += [_also(other) for other in others[:2]]
    sure = _SURE * (FEW_STEPS if joint.n_steps < MIN_STEPS else 1.0)
    return SLOW_LINK.found(
        title=(
            f"{name} (ranks {format_numbers(link.ranks)}) takes {here} for a collective of"
            f" {format_bytes(link.n_bytes)}, {twins} {there}"
            if is_small
            else f"{name} (ranks {format_numbers(link.ranks)}) transfers at {here}, {twins} at {there}"
        ),
        confidence=min(sure, *(joint.outcome_of(rank).confidence_cap for rank in link.ranks)),
        recoverable_ns=joint.per_step(link.exposed_ns),
        fraction=fraction,
        evidence=tuple(evidence),
        fix="find out what lies between these ranks and not between the others: an NVLink that is down, PCIe lanes, a"
        " slower network card, a path through the CPU; or place the group as its twins are placed",
        next_tools=(_tool(link, scope, hosts),),
    )


def _name(link: SlowLink) -> str:
    if link.is_pair:
        return "the pair"
    return f"group {link.group.name}" if link.group.name else "the group"


def _twins(link: SlowLink) -> str:
    if link.is_pair:
        return f"{link.n_twins} other pair{'s' if link.n_twins > 1 else ''}"
    return f"its {link.n_twins} twin groups" if link.n_twins > 1 else "its twin group"


def _paces(link: SlowLink, *, is_small: bool) -> tuple[str, str]:
    """How fast the group and its twins are, in words: the time where the message is so small that latency decides."""
    if is_small:
        return format_ns(link.transfer_ns), format_ns(link.twin_transfer_ns)
    return f"{format_bytes(link.bus_bytes_per_s)}/s", f"{format_bytes(link.twin_bytes_per_s)}/s"


def _also(link: SlowLink) -> Evidence:
    slower = format_speedup(link.twin_bytes_per_s / link.bus_bytes_per_s)
    name = f"{_name(link)} (ranks {format_numbers(link.ranks)})"
    return Evidence(
        statement=f"{name} also takes {slower} as long as its twins",
        metric="comm.bus_bytes_per_s",
        value=link.bus_bytes_per_s,
        unit="bytes/s",
    )


def _tool(link: SlowLink, scope: Scope, hosts: Sequence[str]) -> NextTool:
    ranks = format_numbers(link.ranks)
    if scope.is_cpu and len(hosts) > 1 and are_names(hosts):
        return network_test(hosts)
    if scope.is_cpu:
        return NextTool(
            name="iperf3",
            line=line_of("iperf3 -s"),
            purpose=f"how fast is the network between the hosts of ranks {ranks}? run it on one of them,"
            " and iperf3 -c with its name on another",
            look_for="the rate between two other hosts: a slower one is the cause",
        )
    is_small = link.n_bytes <= SLOW_LINK.limit("small")
    low, high, seen = ("8", "64K", "longer times") if is_small else ("1M", "1G", "busbw lower")
    return NextTool(
        name="nccl-tests",
        line=line_of(f"all_reduce_perf -b {low} -e {high} -f 2 -g", str(len(link.ranks))),
        purpose=f"are the links of ranks {ranks} slow without the job? run it on their devices, then on a twin group's",
        look_for=f"{seen} on these devices; nvidia-smi nvlink --status and nvidia-smi topo -m show why",
    )
