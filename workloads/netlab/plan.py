"""What a lab of hosts consists of, as commands: a switch, hosts with one link each, and limits on the slow links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MOST_HOSTS: Final = 8
"""Chosen: a host has a rank or more of its own, and the lab is for machines of a few cores."""
_RATE: Final = re.compile(r"(?P<number>[1-9]\d*)(?P<unit>[kmg])bit")
_UNITS: Final = {"k": 10**3, "m": 10**6, "g": 10**9}
_SLOW: Final = re.compile(r"host(?P<number>\d+)(?::(?P<direction>in|out))?")
SHAPE: Final = ("burst", "64kb", "latency", "50ms")
"""The queue of a limited link: 64 KiB at once, which is what a sender segments at most, and 50 ms of waiting."""

CARD: Final = "eth0"
BRIDGE: Final = "switch"
PORT: Final = 29500
"""Where the ranks meet: the lab's own network has no other jobs."""
HOLDS: Final = (
    'set -e; hostname "$0"; mount -t tmpfs netlab /mnt; printf "%s" "$1" > /mnt/hosts;'
    " mount --bind /mnt/hosts /etc/hosts; umount -l /mnt; echo ready; exec cat"
)
"""What a holder does, with its name and its /etc/hosts as arguments. `cat` ends when its standard input does."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host: its number, its host name, its address, and which directions of its link are limited."""

    number: int
    name: str
    address: str
    limits: frozenset[str]
    """Of "out" (what it sends) and "in" (what it receives)."""

    @property
    def port(self) -> str:
        """The name of the switch's end of its link."""
        return f"port{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A lab: its hosts, and the rate of their slow links as tc writes it."""

    hosts: tuple[Host, ...]
    rate: str

    @property
    def names(self) -> str:
        """The hosts' names as /etc/hosts has them."""
        lines = [f"{host.address} {host.name}\n" for host in self.hosts]
        return "".join(["127.0.0.1 localhost\n", *lines])


def planned(*, hosts: int, rate: str, slow: str) -> Plan:
    """The plan of so many hosts; `slow` is as `lab` takes it. Raises ValueError for what cannot be."""
    if not 2 <= hosts <= MOST_HOSTS:
        raise ValueError(f"a lab has 2 to {MOST_HOSTS} hosts, not {hosts}")
    bits_per_s(rate)
    limits = _limits(slow, hosts)
    made = [
        Host(number=number, name=f"host{number}", address=f"10.77.0.{number + 1}", limits=frozenset(limits[number]))
        for number in range(hosts)
    ]
    return Plan(hosts=tuple(made), rate=rate)


def bits_per_s(rate: str) -> int:
    """A rate such as 200mbit as a number; raises ValueError for any other text."""
    found = _RATE.fullmatch(rate)
    if found is None:
        raise ValueError(f"a rate is a whole number of kbit, mbit or gbit, such as 200mbit, not {rate!r}")
    return int(found["number"]) * _UNITS[found["unit"]]


def _limits(slow: str, n_hosts: int) -> list[set[str]]:
    """The limited directions of each host's link."""
    limits: list[set[str]] = [set() for _ in range(n_hosts)]
    if slow == "none":
        return limits
    if slow in ("both", "all"):
        # One limit on each path: a second one in series would only drop more.
        return [{"out"} for _ in range(n_hosts)]
    for part in slow.split(","):
        found = _SLOW.fullmatch(part)
        if found is None or int(found["number"]) >= n_hosts:
            raise ValueError(
                f"slow is none, both, all, or hosts such as host1 or host1:out, of host0 to host{n_hosts - 1};"
                f" not {slow!r}"
            )
        limits[int(found["number"])] |= {found["direction"]} if found["direction"] else {"in", "out"}
    return limits


def holder(name: str, names: str = "", *, is_root: bool) -> Command:
    """The command that makes a host's (or the switch's) namespaces and keeps them until its standard input ends.

    `names` is what it has for /etc/hosts. It prints a line when all is there. Its last process is the first of the new
    process namespace: when that ends, the kernel ends all others in there, and with the last process the network
    namespace and its links are gone.
    """
    rights = () if is_root else ("--user", "--map-root-user")
    namespaces = ("--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    return ("unshare", *rights, *namespaces, "sh", "-c", HOLDS, name, names)


def entering(pid: int, command: Command, *, namespaces: Command, is_root: bool) -> Command:
    """The command that runs `command` in these namespaces of a process ("net", "uts", "mount", "pid")."""
    rights = () if is_root else ("--user", "--preserve-credentials")
    return ("nsenter", f"--target={pid}", *rights, *(f"--{name}" for name in namespaces), "--", *command)


def switch_commands() -> Iterator[Command]:
    """What makes the switch, in its network namespace."""
    yield ("ip", "link", "add", "name", BRIDGE, "type", "bridge")
    yield ("ip", "link", "set", "dev", BRIDGE, "up")


def link_commands(host: Host, pid: int, plan: Plan) -> Iterator[Command]:
    """What links a host to the switch, in the switch's network namespace; `pid` is of a process of the host."""
    port = host.port
    yield ("ip", "link", "add", "name", port, "type", "veth", "peer", "name", CARD, "netns", str(pid))
    yield ("ip", "link", "set", "dev", port, "master", BRIDGE)
    yield ("ip", "link", "set", "dev", port, "up")
    if "in" in host.limits:
        yield _limit(port, plan.rate)


def host_commands(host: Host, plan: Plan) -> Iterator[Command]:
    """What sets up a host's end of its link, in the host's network namespace."""
    yield ("ip", "link", "set", "dev", "lo", "up")
    yield ("ip", "address", "add", f"{host.address}/24", "dev", CARD)
    yield ("ip", "link", "set", "dev", CARD, "up")
    if "out" in host.limits:
        yield _limit(CARD, plan.rate)


def _limit(device: str, rate: str) -> Command:
    return ("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, *SHAPE)


def torchrun(plan: Plan, host: Host, arguments: Sequence[str], *, ranks_per_host: int, python: str) -> Command:
    """The command that starts one host's ranks of a job; `arguments` are torchrun's, from the script or -m on."""
    first = plan.hosts[0].address
    nodes = ("--nnodes", str(len(plan.hosts)), "--node-rank", str(host.number))
    meeting = ("--rdzv-backend", "static", "--master-addr", first, "--master-port", str(PORT))
    ranks = ("--nproc-per-node", str(ranks_per_host))
    return (python, "-m", "torch.distributed.run", *nodes, *meeting, *ranks, *arguments)


def variables(plan: Plan, host: Host) -> dict[str, str]:
    """The environment of what runs on a host, beside the lab's own."""
    return {"GLOO_SOCKET_IFNAME": CARD, "NETLAB_HOST": host.name, "NETLAB_HOSTS": str(len(plan.hosts))}
