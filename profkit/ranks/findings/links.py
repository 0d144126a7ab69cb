"""The links that a group's collectives cross: its hosts, what is said of them, and what shows if they can do more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import system_timeline
from profkit.model.finding import Evidence, NextTool
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.waits import GroupWaits
from profkit.shell import line_of

_MOST_NAMED: Final = 4
"""Hosts that a sentence names; of more it says how many there are. Chosen."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""What is a host's name: it becomes a word of a command."""

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
    yield Evidence(
        statement=f"its {n_ranks} ranks are on {_named(hosts)}, so its collectives cross the network{rate}{which}",
        metric="comm.n_hosts",
        value=float(len(hosts)),
        unit="count",
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
