"""Transfers between hosts: what is said of the links, and which test comes next."""

from collections.abc import Callable, Iterator

import pytest

import profkit
from profkit.model.documents.report import Report
from profkit.model.finding import Finding
from profkit.render import renderer_for
from profkit.testing import operator, span, to_json
from tests.ranks.scripted import MS, Group, Op, Writing, in_steps, run, triaged


@in_steps(12)
def program(group: Group) -> Iterator[Op]:
    yield Op(what="data", ns=MS)
    for _ in range(2):
        yield Op(what="compute", ns=2 * MS)
        yield Op(what="collective", name="allreduce", group=group, elements=8_000_000)


def job(folder, host_of: Callable[[int], str], *, n_ranks: int, transfer_ns: int = 20 * MS) -> Report:
    world = Group(name="0", ranks=tuple(range(n_ranks)), transfer_ns=transfer_ns)
    ranks = run({rank: program(world) for rank in range(n_ranks)})
    return triaged(ranks, folder, Writing(host_of=host_of))


def bandwidth(report: Report) -> Finding:
    (found,) = [finding for finding in report.findings if finding.id == "comm.bandwidth"]
    assert report.verdict.findings[0].id == "comm.bandwidth"
    return found


def hosts_said(finding: Finding) -> list[str]:
    return [one.statement for one in finding.evidence if one.metric == "comm.n_hosts"]


def test_of_two_hosts_the_link_between_them_is_named(tmp_path):
    found = bandwidth(job(tmp_path, lambda rank: f"node{rank}", n_ranks=2))
    assert found.title == "collective time is mostly data transfer between 2 hosts, not hidden under compute"
    assert hosts_said(found) == [
        "its 2 ranks are on node0 and node1, so its collectives cross the network at about 13 Gbit/s"
    ]
    assert found.next_tools[0].command == "mpirun -np 2 --host node0:1,node1:1 all_reduce_perf -b 1M -e 1G -f 2 -g 1"


def test_of_three_hosts_nobody_can_say_which_link_it_is(tmp_path):
    found = bandwidth(job(tmp_path, lambda rank: f"node{rank}", n_ranks=3))
    assert " between 3 hosts," in found.title
    (said,) = hosts_said(found)
    assert said.startswith("its 3 ranks are on node0, node1 and node2, so its collectives cross the network at about ")
    assert said.endswith("one slow link slows all ranks alike, so the traces do not show which one")


def test_of_many_hosts_some_are_named(tmp_path):
    found = bandwidth(job(tmp_path, lambda rank: f"node{rank}", n_ranks=6))
    assert " on node0, node1, node2, node3 and 2 more hosts, so" in hosts_said(found)[0]


def test_a_page_names_no_host_unless_asked_to(tmp_path):
    report = job(tmp_path, lambda rank: f"gpu-17.corp{rank}", n_ranks=2)
    html, whole = (renderer_for("triage", "html")(report, with_paths=asked) for asked in (False, True))
    assert "gpu-17" not in html
    assert "host-0:1,host-1:1" in html
    assert "its 2 ranks are on host-0 and host-1, so" in html
    assert "gpu-17.corp0:1,gpu-17.corp1:1" in whole


def test_with_several_ranks_on_a_host_part_of_the_transfer_stays_inside(tmp_path):
    found = bandwidth(job(tmp_path, lambda rank: f"node{rank // 2}", n_ranks=4))
    assert "between" not in found.title
    assert hosts_said(found) == ["its 4 ranks are on node0 and node1, so its collectives cross the network"]
    assert "--host node0:2,node1:2" in found.next_tools[0].command


@pytest.mark.parametrize("host", ["node0", "", "-x", "a b", "$(id)"])
def test_on_one_host_or_one_that_is_no_name_no_link_is_named(host, tmp_path):
    found = bandwidth(job(tmp_path, lambda rank: host if rank else "node0", n_ranks=2))
    assert "between" not in found.title
    assert hosts_said(found) == []
    assert found.next_tools[0].command == "all_reduce_perf -b 1M -e 1G -f 2 -g 2"


def gloo_ranks(folder, *, left_ms: tuple[int, ...], hosts: tuple[str, ...]):
    """Ranks whose step is 10 ms of compute and an all-reduce, which each leaves so much later than the first does.

    They leave the slow link one after another, and begin their next step when they have.
    """
    for rank, (left, host) in enumerate(zip(left_ms, hosts, strict=True)):
        events = []
        for step in range(24):
            begin = (100 * step + left) * MS
            ask, end = begin + 10 * MS, begin + 100 * MS
            events += [
                span(f"ProfilerStep#{step}", begin, end - 1000),
                span("aten::mm", begin + 1000, ask - 1000, cat="cpu_op"),
                span("c10d::allreduce_", ask, ask + 50_000, cat="cpu_op"),
                span("gloo:all_reduce", ask + 60_000, end - 2000, cat="user_annotation", tid=2000),
            ]
        head = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": len(hosts)}, "host_name": host}
        (folder / f"rank{rank}.json").write_bytes(to_json(events, metadata=head))
    return profkit.triage([str(folder)])


def test_ends_apart_over_a_network_may_be_a_slow_link_and_no_clock(tmp_path):
    report = gloo_ranks(tmp_path, left_ms=(0, 40), hosts=("host0", "host1"))
    assert bandwidth(report).next_tools[0].command == "iperf3 --bidir -c host0"
    assert " ends lie 40.0 ms apart: " in report.fleet.clock_note
    assert "or a slow link" in report.fleet.clock_note


@pytest.mark.parametrize(
    ("left_ms", "hosts"), [((0, 40), ("host0", "host0")), ((0, 3_000), ("host0", "host1")), ((0, 0), ("a", "b"))]
)
def test_ends_further_apart_than_a_transfer_takes_or_on_one_host_are_called_clocks(tmp_path, left_ms, hosts):
    note = gloo_ranks(tmp_path, left_ms=left_ms, hosts=hosts).fleet.clock_note
    assert "slow link" not in note
    assert (" apart;" in note) == (max(left_ms) > 0)


def bucket(at_ns: int, end_ns: int, *, thread: int, shape: list[int] | None):
    """One of DDP's buckets: asked for where a gradient is ready, and on its way in a thread of gloo's."""
    node = "torch::autograd::AccumulateGrad"
    typed = {"Input_Dims": [shape], "Input_type": ["float"]} if shape else {}
    asked = {"Input_Dims": [[shape], []], "Input_type": ["TensorList", ""]} if shape else {}
    return [
        span(f"autograd::engine::evaluate_function: {node}", at_ns, at_ns + 900_000, cat="cpu_op"),
        operator(node, at_ns + 1000, at_ns + 50_000, **typed),
        operator("c10d::allreduce_", at_ns + 100_000, at_ns + 200_000, **asked),
        span("gloo:all_reduce", at_ns + 300_000, end_ns, cat="user_annotation", tid=thread),
    ]


@pytest.mark.parametrize("has_shapes", [True, False])
def test_buckets_that_share_a_link_have_its_rate_together(tmp_path, has_shapes):
    """Each of 1 MB takes 70 ms and more: one alone looks like 100 Mbit/s, both together are 180."""
    shape = [250_000] if has_shapes else None
    for rank in range(2):
        events = []
        for step in range(24):
            begin = 100 * step * MS
            events += [
                span(f"ProfilerStep#{step}", begin, begin + 100 * MS - 1000),
                span("DistributedDataParallel.forward", begin + 1000, begin + 9 * MS, cat="cpu_op"),
                *bucket(begin + 10 * MS, begin + 80 * MS, thread=2000, shape=shape),
                *bucket(begin + 12 * MS, begin + 99 * MS, thread=2001, shape=shape),
            ]
        head = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}, "host_name": f"host{rank}"}
        (tmp_path / f"rank{rank}.json").write_bytes(to_json(events, metadata=head))
    found = bandwidth(profkit.triage([str(tmp_path)]))
    rate = " at about 180 Mbit/s" if has_shapes else ""
    assert hosts_said(found) == [f"its 2 ranks are on host0 and host1, so its collectives cross the network{rate}"]
    rates = [one.statement for one in found.evidence if one.metric == "comm.bus_bytes_per_s"]
    assert len(rates) == has_shapes
    assert all("22.5 MB/s, of all together" in text for text in rates)
