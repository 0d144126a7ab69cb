"""What `comm.bandwidth` says where the kernel's counts of connections tell which link is slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from profkit.findings.communication import BANDWIDTH
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.findings.links import bits
from profkit.ranks.measure.slow_links import HostLink, SlowSide
from profkit.shell import line_of
from profkit.units import format_fraction, format_numbers

_AS_BUSY: Final = 0.9
"""From this part of the busiest link's share on, another one may be as slow. Chosen from analyses/netlab: 97 % where a
host's link has a limit in both directions, up to 87 % where only acknowledgements wait."""
_FIX: Final = (
    "look at {}: the card's speed (ethtool), its limits (tc qdisc), cable and switch port, other jobs' traffic; until"
    " it is as fast as the others, fewer bytes (bf16 gradients, gradient accumulation)"
)
_PROOF: Final = "Run on other hosts in the place of {}: exposed transfer must fall."


def named(finding: Finding, side: SlowSide) -> Finding:
    """The finding with the link that is slow in its words, its evidence and its next command."""
    first = side.busy[0]
    ranks = f"rank{'s' if len(side.ranks) > 1 else ''} {format_numbers(side.ranks)}"
    both = f"rank {first.sender} to rank {first.receiver}"
    link = f"the slow network link of {ranks}" if side.host else f"the slow network link from {both}"
    measure, *others = finding.evidence
    return replace(
        finding,
        title=f"collectives wait for {link}, not hidden under compute",
        evidence=(measure, *_evidence(side, first, ranks), *others),
        fix=_FIX.format(f"the link of {side.host}" if side.host else f"the path from {_hosts(first)}"),
        proof=_PROOF.format(side.host or f"{first.sender_host} and {first.receiver_host}"),
        next_tools=(_tool(first),),
    )


def _evidence(side: SlowSide, first: HostLink, ranks: str) -> Iterable[Evidence]:
    others = f"links that do not reach {ranks}" if side.host else "every other link"
    free = format_fraction(side.free_fraction)
    yield Evidence(
        statement=(
            f"rank {first.sender} sends to rank {first.receiver} for {format_fraction(first.busy_fraction)} of its"
            f" collectives' time, at {bits(first.bytes_per_s)}; {others}"
            f" {'are' if side.host else 'is'} busy for at most {free} (the kernel's counts of each connection)"
        ),
        metric="comm.link_busy_fraction",
        value=first.busy_fraction,
        unit="fraction",
        expected=f"{free} or less, as on other links",
    )
    lost = first.resent_bytes / first.sent_bytes
    if lost >= BANDWIDTH.limit("lost"):
        yield Evidence(
            statement=f"it sends {format_fraction(lost)} of that twice: packets are lost, or come late",
            metric="comm.resent_fraction",
            value=min(lost, 1.0),
            unit="fraction",
            expected=f"< {format_fraction(BANDWIDTH.limit('lost'))}",
        )
    for link in side.busy[1:2]:
        yield Evidence(
            statement=f"rank {link.sender} to rank {link.receiver} is busy for {_why_busy(link, first)}",
            metric="comm.link_busy_fraction",
            value=link.busy_fraction,
            unit="fraction",
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


def _tool(first: HostLink) -> NextTool:
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
