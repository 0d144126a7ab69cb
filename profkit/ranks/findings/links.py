"""Links between ranks: what is said of those that collectives cross, which is slow, and what shows if they can do more.

`comm.slow_link` is found here: a group that transfers more slowly than its twins, for whose ranks the others wait.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import system_timeline
from profkit.findings.communication import BANDWIDTH
from profkit.findings.ranks.stragglers import SLOW_LINK
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.slow_links import HostLink, SlowLink, SlowSide
from profkit.ranks.measure.waits import GroupWaits
from profkit.shell import line_of
from profkit.units import format_bytes, format_fraction, format_ns, format_numbers, format_speedup

_MOST_NAMED: Final = 4
"""Hosts that a sentence names; of more it says how many there are. Chosen."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""What is a host's name: it becomes a word of a command."""

_AS_BUSY: Final = 0.9
"""From this part of the busiest link's share on, another one may be as slow. Chosen from analyses/netlab: 97 % where a
host's link has a limit in both directions, up to 87 % where only acknowledgements wait."""
_SIDE_FIX: Final = (
    "look at {}: the card's speed (ethtool), its limits (tc qdisc), cable and switch port, other jobs' traffic; until"
    " it is as fast as the others, fewer bytes (bf16 gradients, gradient accumulation)"
)
_SIDE_PROOF: Final = "Run on other hosts in the place of {}: exposed transfer must fall."
_SURE: Final = 0.85

Hosts = Mapping[str, int]
"""The ranks on each host, in the order of hosts; empty where a trace does not say its host."""


def hosts_of(waits: GroupWaits, joint: Joint) -> Hosts:
    """The hosts of a group's ranks, as the traces have them; {} where one has none that could be."""
    names = [joint.outcome_of(rank).summary.host for rank in waits.ranks]
    return dict(Counter(names)) if are_names(names) else {}


def are_names(hosts: Iterable[str]) -> bool:
    """Whether these can be the names of hosts, and so words of a command."""
    return all(map(_HOST.fullmatch, hosts))


def where(hosts: Hosts, waits: GroupWaits) -> str:
    """Between what a group transfers, where each of its ranks has a host of its own: else "".

    Without their names: a title stands in comparisons and pages, too, where other hosts are as good.
    """
    if len(hosts) < 2 or len(hosts) < len(waits.ranks):
        return ""
    return f" between {len(hosts)} hosts"


def between(hosts: Hosts, waits: GroupWaits, bus_bytes_per_s: float | None, *, is_known: bool) -> Iterable[Evidence]:
    """What the traces tell of the links between a group's hosts, where it has several.

    Where each rank has a host of its own, what bus bandwidth counts is what crosses each host's link. `is_known`:
    whether other evidence says which link is slow.
    """
    if len(hosts) < 2:
        return
    n_ranks = len(waits.ranks)
    is_one_each = bus_bytes_per_s is not None and len(hosts) == n_ranks
    rate = f" at about {bits(bus_bytes_per_s or 0)}" if is_one_each else ""
    which = (
        ""
        if len(hosts) == 2 or is_known
        else "; one slow link slows all ranks alike, so the traces do not show which one"
    )
    yield Evidence.count(
        "comm.n_hosts",
        len(hosts),
        f"its {n_ranks} ranks are on {_named(hosts)}, so its collectives cross the network{rate}{which}",
    )


def link_test(waits: GroupWaits, hosts: Hosts, scope: Scope, *, is_small: bool) -> NextTool:
    """What shows whether the links of a group can do more."""
    if scope.is_cpu and len(hosts) > 1:
        return network_test(tuple(hosts))
    if scope.is_cpu:
        return system_timeline(
            scope, "are the links or the cores busy?", "cores at 100 % in gloo's threads: memory copies"
        )
    sizes, seen = ("-b 8 -e 64K", "the time") if is_small else ("-b 1M -e 1G", "busbw")
    n_ranks = str(max(len(waits.ranks), 2))
    places = ",".join(f"{host}:{count}" for host, count in hosts.items())
    return NextTool(
        name="nccl-tests",
        line=line_of("mpirun -np", n_ranks, "--host", places, *f"all_reduce_perf {sizes} -f 2 -g 1".split())
        if len(hosts) > 1
        else line_of(f"all_reduce_perf {sizes} -f 2 -g", n_ranks),
        purpose="what can these links do? run it on the same ranks while the job is stopped",
        look_for=(
            f"{seen} at the job's message size: if the job reaches it, send"
            f" {'fewer messages' if is_small else 'fewer bytes'}; else tune the job"
        ),
    )


def network_test(hosts: Sequence[str]) -> NextTool:
    """What shows how fast the network between two hosts or more is."""
    first, second, *more = hosts
    if not more:
        purpose = f"how fast is the network between {first} and {second}? run it on {second} while the job is stopped"
        look_for = "a rate far below that of the network cards: the link is slow; else the job sends too much"
    else:
        purpose = f"which link is slow? run it between each two of {_named(hosts)} while the job is stopped"
        look_for = "a host whose rates with all others are low: its link is the slow one"
    return NextTool(
        name="iperf3",
        line=line_of("iperf3 --bidir -c", first),
        purpose=f"{purpose} (on {first}: iperf3 -s)",
        look_for=look_for,
    )


def bits(bytes_per_s: float) -> str:
    """A rate as networks have it, to two digits: what sockets still hold when a collective ends counts as sent."""
    bits = 8 * bytes_per_s
    number, unit = (bits / 1e9, "Gbit/s") if bits >= 1e9 else (bits / 1e6, "Mbit/s")
    return f"{float(f'{number:.2g}'):g} {unit}"


def _named(hosts: Iterable[str]) -> str:
    names = list(hosts)
    more = [] if len(names) <= _MOST_NAMED else [f"{len(names) - _MOST_NAMED} more hosts"]
    *first, last = [*names[:_MOST_NAMED], *more]
    return f"{', '.join(first)} and {last}"


# ------------------------------------------------------------------------------- a host that sends or receives slowly


def with_slow_side(finding: Finding, side: SlowSide) -> Finding:
    """The finding with the link that is slow in its words, its evidence and its next command."""
    first = side.busy[0]
    ranks = f"rank{'s' if len(side.ranks) > 1 else ''} {format_numbers(side.ranks)}"
    both = f"rank {first.sender} to rank {first.receiver}"
    link = f"the slow network link of {ranks}" if side.host else f"the slow network link from {both}"
    measure, *others = finding.evidence
    return replace(
        finding,
        title=f"collectives wait for {link}, not hidden under compute",
        evidence=(measure, *_of_slow_side(side, first, ranks), *others),
        fix=_SIDE_FIX.format(f"the link of {side.host}" if side.host else f"the path from {_hosts(first)}"),
        proof=_SIDE_PROOF.format(side.host or f"{first.sender_host} and {first.receiver_host}"),
        next_tools=(_sender_test(first),),
    )


def _of_slow_side(side: SlowSide, first: HostLink, ranks: str) -> Iterable[Evidence]:
    others = f"links that do not reach {ranks}" if side.host else "every other link"
    free = format_fraction(side.free_fraction)
    yield Evidence.share(
        "comm.link_busy_fraction",
        first.busy_fraction,
        f"rank {first.sender} sends to rank {first.receiver} for {format_fraction(first.busy_fraction)} of its"
        f" collectives' time, at {bits(first.bytes_per_s)}; {others}"
        f" {'are' if side.host else 'is'} busy for at most {free} (the kernel's counts of each connection)",
        expected=f"{free} or less, as on other links",
    )
    lost = first.resent_bytes / first.sent_bytes
    if lost >= BANDWIDTH.limit("lost"):
        yield Evidence.share(
            "comm.resent_fraction",
            min(lost, 1.0),
            f"it sends {format_fraction(lost)} of that twice: packets are lost, or come late",
            expected=f"< {format_fraction(BANDWIDTH.limit('lost'))}",
        )
    for link in side.busy[1:2]:
        yield Evidence.share(
            "comm.link_busy_fraction",
            link.busy_fraction,
            f"rank {link.sender} to rank {link.receiver} is busy for {_why_busy(link, first)}",
        )


def _why_busy(link: HostLink, first: HostLink) -> str:
    share = format_fraction(link.busy_fraction)
    if link.sender_host == first.sender_host or link.receiver_host == first.receiver_host:
        return f"{share}, by the same link"
    if link.busy_fraction >= _AS_BUSY * first.busy_fraction:
        return f"{share} as well: the link may be slow in both directions"
    return f"{share}: its acknowledgements wait behind what the slow direction carries"


def _hosts(link: HostLink) -> str:
    return f"{link.sender_host} to {link.receiver_host}"


def _sender_test(first: HostLink) -> NextTool:
    sender, receiver = first.sender_host, first.receiver_host
    return NextTool(
        name="iperf3",
        line=line_of("iperf3 -c", receiver),
        purpose=(
            f"how fast does {sender} send to {receiver}? run it on {sender} while the job is stopped"
            f" (on {receiver}: iperf3 -s)"
        ),
        look_for=(
            f"a rate near {bits(first.bytes_per_s)}: the link is slow without the job, too; ethtool and tc qdisc show"
            " say why"
        ),
    )


# ------------------------------------------------------------------------------------- a group slower than its twins


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
    name, twins = _name_of(link), _twins(link)
    fraction = joint.fraction(link.exposed_ns)
    evidence = [
        Evidence(
            f"{name} (ranks {format_numbers(link.ranks)}): its collectives of {format_bytes(link.n_bytes)}"
            f" {'take' if is_small else 'run at'} {here}, the same ones in {twins}{at} {there}"
            f" ({'' if is_small else 'bus bandwidth, '}median)",
            "comm.transfer_ns" if is_small else "comm.bus_bytes_per_s",
            float(link.transfer_ns) if is_small else link.bus_bytes_per_s,
            "ns" if is_small else "bytes/s",
            f"{there}, as in {twins}",
        ),
        Evidence.time(
            "comm.slow_link_ns",
            link.exposed_ns,
            f"{link.n_instances:,} of its transfers take {format_ns(joint.per_step(link.longer_ns))} {joint.per}"
            f" longer than in {twins}; compute does not hide {format_ns(joint.per_step(link.exposed_ns))} of it"
            f" ({format_fraction(fraction)} of the window)",
            expected=f"< {format_fraction(SLOW_LINK.limit('window'))} of the window",
        ),
    ]
    hosts = sorted({joint.outcome_of(rank).summary.host for rank in link.ranks} - {""})
    if len(hosts) > 1 or len({summary.host for summary in joint.summaries}) > 1:
        where = "one host" if len(hosts) == 1 else f"{len(hosts)} hosts"
        evidence.append(Evidence.count("comm.n_hosts", len(hosts), f"its ranks are on {where}: {', '.join(hosts[:4])}"))
    evidence += [_also(other) for other in others[:2]]
    return SLOW_LINK.found(
        title=(
            f"{name} (ranks {format_numbers(link.ranks)}) takes {here} for a collective of"
            f" {format_bytes(link.n_bytes)}, {twins} {there}"
            if is_small
            else f"{name} (ranks {format_numbers(link.ranks)}) transfers at {here}, {twins} at {there}"
        ),
        confidence=joint.sure(_SURE, link.ranks, joint.n_steps),
        recoverable_ns=joint.per_step(link.exposed_ns),
        fraction=fraction,
        evidence=tuple(evidence),
        fix="find out what lies between these ranks and not between the others: an NVLink that is down, PCIe lanes, a"
        " slower network card, a path through the CPU; or place the group as its twins are placed",
        next_tools=(_twin_test(link, scope, hosts),),
    )


def _name_of(link: SlowLink) -> str:
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
    name = f"{_name_of(link)} (ranks {format_numbers(link.ranks)})"
    return Evidence(
        f"{name} also takes {slower} as long as its twins", "comm.bus_bytes_per_s", link.bus_bytes_per_s, "bytes/s"
    )


def _twin_test(link: SlowLink, scope: Scope, hosts: Sequence[str]) -> NextTool:
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
