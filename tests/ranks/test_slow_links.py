"""Groups that are slower than their twins, and what looks so: a first step, messages of a few bytes, late ranks."""

from collections.abc import Iterator

import numpy as np
import pytest

from profkit.model.documents.report import Bottleneck, Report
from tests.ranks.scripted import MS, US, Group, Op, found, run, triaged


def step(tensor: Group, data: Group, elements: int) -> Iterator[Op]:
    yield Op(what="step")
    yield Op(what="data", ns=MS)
    for _ in range(6):
        yield Op(what="compute", ns=MS)
        yield Op(what="collective", name="allreduce", group=tensor, elements=elements)
        yield Op(what="join_stream")
    yield Op(what="collective", name="allreduce", group=data, elements=8_000_000, stream=24)
    yield Op(what="join")
    yield Op(what="sync")


def job(folder, *, slow_ns: tuple[int, ...], usual_ns: int = 200 * US, elements: int = 4_000_000) -> Report:
    """Eight ranks in pairs; the transfers of the third pair take `slow_ns` in each of so many steps."""

    def program(rank: int) -> Iterator[Op]:
        block, place = divmod(rank, 2)
        data = Group(name=f"dp{place}", ranks=tuple(range(place, 8, 2)), transfer_ns=400 * US)
        for slow in slow_ns:
            transfer = slow if block == 2 else usual_ns
            tensor = Group(name=f"tp{block}", ranks=(2 * block, 2 * block + 1), transfer_ns=transfer)
            yield from step(tensor, data, elements)

    return triaged(run({rank: program(rank) for rank in range(8)}), folder)


def test_a_slow_first_step_of_a_communicator_is_no_slow_link(tmp_path):
    assert found(job(tmp_path, slow_ns=(4 * MS, 200 * US)), "comm.slow_link") is None


def test_a_link_that_is_slow_in_most_steps_is_one(tmp_path):
    link = found(job(tmp_path, slow_ns=(200 * US, *[800 * US] * 7)), "comm.slow_link")
    assert link.title == "group tp2 (ranks 4-5) transfers at 20.2 GB/s, its 3 twin groups at 79.5 GB/s"


def test_of_messages_of_a_few_bytes_the_time_is_said(tmp_path):
    report = job(tmp_path, slow_ns=(400 * US,) * 6, usual_ns=60 * US, elements=16)
    link = found(report, "comm.slow_link")
    assert link.title == ("group tp2 (ranks 4-5) takes 401 us for a collective of 64 B, its 3 twin groups 61.3 us")
    assert not any("/s" in evidence.statement for evidence in link.evidence)
    assert link.next_tools[0].command == "all_reduce_perf -b 8 -e 64K -f 2 -g 2"


def test_small_messages_in_all_groups_are_latency(tmp_path):
    report = job(tmp_path, slow_ns=(300 * US,) * 6, usual_ns=300 * US, elements=16)
    few = found(report, "comm.bandwidth")
    assert few.title == "collectives of few bytes take long, not hidden under compute"
    assert "that is latency, not bandwidth" in few.evidence[-1].statement
    assert few.fix.startswith("fewer collectives")
    assert report.verdict.next_tool.command == "all_reduce_perf -b 8 -e 64K -f 2 -g 2"
    assert report.verdict.proof.startswith("Fuse two of these collectives")


def test_ranks_that_a_slow_group_holds_up_do_not_wait_in_turn(tmp_path):
    """Those of the slow pair come late to what they share with the others, and worked no longer."""
    report = job(tmp_path, slow_ns=(800 * US,) * 24)
    skew = found(report, "comm.skew")
    assert report.verdict.findings[0].id == "comm.slow_link"
    assert skew.title == "ranks wait for late ranks, whose own work in the steps does not explain it"
    assert "came last, of" in skew.evidence[2].statement


@pytest.mark.parametrize(("fixed_us", "us_per_mb", "is_latency"), [(70, 10, True), (0, 45, False)])
def test_what_a_transfer_takes_whatever_its_size_is_latency(tmp_path, fixed_us, us_per_mb, is_latency):
    """Buckets of 2 MB are no small messages; where half of their time does not grow with bytes, they are too small."""
    ranks = tuple(range(4))

    def program(rank: int) -> Iterator[Op]:
        generator = np.random.default_rng(rank)
        for _ in range(6):
            yield Op(what="step")
            for _ in range(40):
                yield Op(what="compute", ns=round(500 * US * (1 + 0.001 * generator.standard_normal())))
            for number in range(40):
                n = (400_000, 450_000, 600_000)[number % 3]
                took = round(fixed_us * US + us_per_mb * US * 4 * n / 1e6 + 2 * US * ((number * 7) % 5 - 2))
                group = Group(name="0", ranks=ranks, transfer_ns=took)
                yield Op(what="collective", name="allreduce", group=group, elements=n)
            yield Op(what="join_stream")
            yield Op(what="sync")

    report = triaged(run({rank: program(rank) for rank in ranks}), tmp_path)
    latency = found(report, "comm.bandwidth")
    assert latency.title.startswith("collective time is mostly latency") == is_latency
    assert ("bucket_cap_mb" in latency.fix) == is_latency
    assert any("are the same for all sizes" in one.statement for one in latency.evidence) == is_latency
    assert report.verdict.bottleneck is (Bottleneck.COMM if is_latency else Bottleneck.KERNEL)
