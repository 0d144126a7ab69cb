"""One slow link among hosts, told by how long the kernel had data under way on each connection."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import profkit
from profkit.model.finding import Finding
from tests.ranks.jobs import edited
from tests.ranks.scripted import MS, Group, Writing, run, said, write
from tests.ranks.test_links import program

SENT = 900_000_000
"""Bytes on each link of the ring: what 24 all-reduces of 32 MB send around three ranks."""
SPENT_MS = 480
"""How long the collectives of `test_links.program` take in all."""
QUIET = "collective time is mostly data transfer between 3 hosts, not hidden under compute"
Busy = Mapping[tuple[int, int], float]
"""By sender and receiver, of the collectives' time."""
RING: Busy = {(0, 2): 0.02, (2, 1): 0.76, (1, 0): 1.0}
"""As measured where host1 sends at 200 Mbit/s: what it receives waits for acknowledgements."""
Edit = Callable[[dict[int, list[dict]]], None]


def connections(busy: Busy, *, sent: int = SENT) -> dict[int, list[dict]]:
    """The connections of each rank, one for each two ranks."""
    found: dict[int, list[dict]] = {rank: [] for pair in busy for rank in pair}
    for low, high in {(min(pair), max(pair)) for pair in busy}:
        name = hashlib.sha256(f"{low} {high}".encode()).hexdigest()[:12]
        for end, (sender, receiver) in enumerate(((low, high), (high, low))):
            share = busy.get((sender, receiver))
            row = {"id": name, "end": end, "acked_bytes": 20_000 if share is None else sent, "received_bytes": 0}
            row |= {"busy_ns": round((share or 0) * SPENT_MS * MS), "peer_limited_ns": 0, "buffer_limited_ns": 0}
            found[sender].append({**row, "resent_bytes": 0, "round_trip_ns": 2_000_000})
    return found


def judged(folder: Path, told: Mapping[int, object], *, host: str = "node") -> Finding:
    """What is said of the links of ranks on hosts of their own, whose traces have these connections."""
    world = Group(name="0", ranks=tuple(told), transfer_ns=20 * MS)
    ranks = run({rank: program(world) for rank in told})
    write(ranks, folder, Writing(host_of=lambda rank: f"{host}{rank}" if host else ""))
    for rank, rows in told.items():
        edited(folder / f"rank{rank}.json.gz", lambda document, rows=rows: document.update(profkit_connections=rows))
    report = profkit.triage([str(folder)])
    (found,) = [finding for finding in report.findings if finding.id == "comm.bandwidth"]
    assert report.verdict.findings[0].id == "comm.bandwidth"
    return found


def test_a_host_that_sends_slowly_is_named_by_its_rank(tmp_path):
    found = judged(tmp_path, connections(RING))
    assert found.title == "collectives wait for the slow network link of rank 1, not hidden under compute"
    first, second = (one for one in found.evidence if one.metric == "comm.link_busy_fraction")
    assert first.statement.startswith("rank 1 sends to rank 0 for ")
    assert "at 15 Gbit/s; links that do not reach rank 1 are busy for at most 2.0 %" in first.statement
    assert second.statement.startswith("rank 2 to rank 1 is busy for ")
    assert "its acknowledgements wait" in second.statement
    assert (first.value, second.value) == pytest.approx((1, 0.76), abs=0.005)
    assert "do not show which one" not in said(found)
    assert found.next_tools[0].command == "iperf3 -c node0"
    assert "run it on node1" in found.next_tools[0].purpose


@pytest.mark.parametrize(
    ("busy", "link", "text", "command"),
    [
        ({(0, 2): 0.03, (2, 1): 1.0, (1, 0): 0.69}, "of rank 1,", "rank 2 sends to rank 1 for ", "iperf3 -c node1"),
        (
            {(0, 2): 0.02, (2, 1): 1.0, (1, 0): 0.97},
            "of rank 1,",
            " % as well: the link may be slow in both directions",
            "",
        ),
        (
            {(0, 2): 0.02, (2, 1): 0.05, (1, 0): 1.0},
            "from rank 1 to rank 0,",
            "every other link is busy for at most 5.0 %",
            "",
        ),
        ({(0, 1): 0.26, (1, 0): 1.0}, "from rank 1 to rank 0,", "", ""),
    ],
    ids=["a host receives slowly", "a host is slow both ways", "either end may be slow", "two hosts"],
)
def test_the_slow_link_is_named(tmp_path, busy: Busy, link: str, text: str, command: str):
    found = judged(tmp_path, connections(busy))
    assert f"wait for the slow network link {link} not hidden" in found.title
    assert text in said(found)
    assert found.next_tools[0].command.startswith(command)


def test_a_link_that_loses_packets_is_said_to(tmp_path):
    told = connections(RING)
    next(row for row in told[1] if row["busy_ns"] == SPENT_MS * MS)["resent_bytes"] = SENT // 20
    found = judged(tmp_path, told)
    assert "it sends 5.0 % of that twice" in said(found)
    assert "twice" not in said(judged(tmp_path / "none", connections(RING)))


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param({(0, 2): 0.98, (2, 1): 0.98, (1, 0): 0.99}, id="all are slow"),
        pytest.param({(0, 2): 0.28, (2, 1): 0.42, (1, 0): 0.31}, id="none is slow"),
        pytest.param({(0, 2): 0.02, (2, 1): 0.3, (1, 0): 0.8}, id="not busy enough"),
        pytest.param({(0, 2): 0.5, (2, 1): 0.76, (1, 0): 1.0}, id="the others are busy too"),
    ],
)
def test_where_links_are_alike_none_is_named(tmp_path, busy: Busy):
    found = judged(tmp_path, connections(busy))
    assert found.title == QUIET
    assert "do not show which one" in said(found)


def test_two_slow_links_without_a_host_in_common_are_nobodys(tmp_path):
    found = judged(tmp_path, connections({(0, 1): 1.0, (1, 2): 0.02, (2, 3): 0.99, (3, 0): 0.02}))
    assert "slow network link" not in found.title


def _each(change: Callable[[dict], object]) -> Edit:
    return lambda told: [change(row) for rows in told.values() for row in rows]


def _twice(told: dict[int, list[dict]]) -> None:
    for rank in (0, 1):
        told[rank] += told[rank]


def _wrong(**values: object) -> Edit:
    return lambda told: [row.update(values) for row in told[1]]


@pytest.mark.parametrize(
    "edit",
    [
        lambda told: told.update({2: []}),
        _each(lambda row: row.update(peer_limited_ns=row["busy_ns"])),
        _each(lambda row: row.update(acked_bytes=row["acked_bytes"] // 100)),
        _twice,
        lambda told: [row.update(end=1 - row["end"]) for row in told[1]],
        _wrong(busy_ns=-1),
        _wrong(busy_ns=10**30),
        _wrong(acked_bytes="many"),
        _wrong(acked_bytes=1e300),
        _wrong(id=[7]),
        _wrong(id="../../etc/passwd"),
        _wrong(end=2),
        _wrong(peer_limited_ns=None),
    ],
)
def test_ends_that_are_missing_or_cannot_be_name_nobody(tmp_path, edit: Edit):
    told = connections(RING)
    edit(told)
    assert judged(tmp_path, told).title == QUIET


@pytest.mark.parametrize("rows", ["text", 7, {"id": "a"}, [None, "x", [], {}]])
def test_what_is_no_list_of_connections_is_none(tmp_path, rows: object):
    assert judged(tmp_path, dict.fromkeys(range(3), rows)).title == QUIET


def test_without_names_of_hosts_no_link_is_named(tmp_path):
    assert "slow network link" not in judged(tmp_path, connections(RING), host="").title
