"""What one rank tells the others."""

import zlib

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from profkit.model.trace import Spans
from profkit.ranks.reduce.activity import longest_before
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import PHASES, TABLES, RankFacts
from profkit.ranks.reduce.summary import summarise
from profkit.ranks.run.store import PackedSummary
from profkit.testing import draw, kernel, launch, span, trace_of
from profkit.timeline import Facts
from tests.ranks.simulate import Job, simulate

US = 1000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def drawn(picture, **metadata):
    return summarise(Facts.of(draw(picture, **metadata)), rank=0)


def test_what_a_rank_did_before_each_collective():
    """Compute, a copy, and between them what the host let pass; the wait for data is a phase of its own."""
    found = drawn("""
        steps  | 0...............................
        gpu s7 | ....KKKK..CC....NNNN......KKNNNN
        main   | ..L.....H.....L..WWWW...L..L....
    """)
    lead = dict(zip(PHASES, found.collectives.lead_ns[0].tolist(), strict=True))
    assert lead == {"data": 0, "compute": 4 * US, "host": 10 * US, "copy": 2 * US, "device": 0}
    lead = dict(zip(PHASES, found.collectives.lead_ns[1].tolist(), strict=True))
    assert lead == {"data": 1 * US, "compute": 2 * US, "host": 5 * US, "copy": 0, "device": 0}
    assert found.collectives.kind.tolist() == [CollectiveKind.ALL_REDUCE] * 2
    assert found.collectives.step.tolist() == [0, 0]


def test_what_compute_hides_of_a_collective():
    found = drawn("""
        steps   | 0...........
        gpu s7  | ..KKKK......
        gpu s20 | ....NNNN....
    """)
    assert found.collectives.hidden_ns.tolist() == [2 * US]


def collective_args(**changed):
    return {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Seq": 5,
        **changed,
    }


def collective_trace(**changed):
    rows = [
        span("ProfilerStep#3", 0, 100 * US),
        launch(10 * US, 12 * US, correlation=1),
        kernel(ALL_REDUCE, 20 * US, 50 * US, correlation=1, **collective_args(**changed)),
    ]
    return trace_of(rows, distributedInfo={"rank": 1, "world_size": 2, "backend": "nccl"})


def test_arguments_of_a_collective():
    found = summarise(Facts.of(collective_trace()))
    (group,) = found.groups
    assert (group.name, group.ranks, group.size) == ("0", (0, 1), 2)
    rows = found.collectives
    assert (rows.seq.tolist(), rows.in_elements.tolist(), rows.issued_ns.tolist()) == ([5], [1000], [10 * US])
    assert found.name(rows.dtype[0]) == "Float"
    assert found.steps.number.tolist() == [3]
    assert (found.rank, found.world_size) == (1, 2)


@pytest.mark.parametrize("size", [2**31, 2**21, -1, "many", None])
def test_a_group_of_a_size_that_cannot_be_is_of_unknown_size(size):
    """It was "2 of -1" ranks; 0 is what stands for a size that nobody says."""
    (group,) = summarise(Facts.of(collective_trace(**{"Group size": size}))).groups
    assert (group.name, group.size) == ("0", 0)


@pytest.mark.parametrize(("name", "key"), [("send", "Dst Rank"), ("recv", "Src Rank")])
def test_the_peer_of_a_send_or_receive(name, key):
    rows = summarise(Facts.of(collective_trace(**{"Collective name": name, key: 3}))).collectives
    assert rows.peer.tolist() == [3]
    other = {"Src Rank": 0, "Dst Rank": 0, key: 3}
    assert summarise(Facts.of(collective_trace(**{"Collective name": name, **other}))).collectives.peer.tolist() == [3]
    assert summarise(Facts.of(collective_trace())).collectives.peer.tolist() == [-1]


def test_a_cut_list_of_ranks_is_not_guessed():
    (group,) = summarise(Facts.of(collective_trace(**{"Process Group Ranks": "[0, 1, ..., 7]"}))).groups
    assert group.ranks == ()


GLOO = [
    span("ProfilerStep#0", 0, 1000 * US),
    span("aten::mm", 100 * US, 300 * US, cat="cpu_op"),
    span("save_checkpoint", 310 * US, 380 * US),
    span("autograd::engine::evaluate_function: Add", 395 * US, 420 * US, cat="cpu_op"),
    span("c10d::_reduce_scatter_base_", 400 * US, 410 * US, cat="cpu_op"),
    span("gloo:all_reduce", 405 * US, 700 * US, tid=2000),
]


def test_gloo_ranges_are_what_was_asked_for():
    """FSDP's reduce-scatter runs as gloo:all_reduce; it was asked for when the c10d operator began."""
    found = summarise(Facts.of(trace_of(GLOO)))
    rows = found.collectives
    assert rows.kind.tolist() == [CollectiveKind.REDUCE_SCATTER]
    assert rows.issued_ns.tolist() == [400 * US]
    assert rows.start_ns.tolist() == [405 * US]
    assert found.name(rows.issuer[0]) == "autograd::engine::evaluate_function: Add"
    longest = {found.name(n): int(ns) for n, ns in zip(found.lead_ranges.name, found.lead_ranges.total_ns, strict=True)}
    assert longest == {"aten::mm": 200 * US, "save_checkpoint": 70 * US}


def test_a_functional_collective_is_asked_for_once():
    """torch.compile calls _c10d_functional, which calls c10d, and waits by an operator of the same family."""
    around = span("_c10d_functional::reduce_scatter_tensor", 396 * US, 415 * US, cat="cpu_op")
    wait = span("_c10d_functional::wait_tensor", 430 * US, 700 * US, cat="cpu_op")
    found = summarise(Facts.of(trace_of([*GLOO, around, wait])))
    assert found.collectives.kind.tolist() == [CollectiveKind.REDUCE_SCATTER]
    assert found.collectives.issued_ns.tolist() == [400 * US]


def test_before_each_collective_the_three_names_that_took_longest_from_20_us_on():
    """Ranges of one name add up, and count up to the issue."""
    lasts = [("a", 0, 20_000), ("b", 100, 20_099), ("c", 200, 30_200), ("a", 30_500, 30_600), ("d", 40_000, 90_000)]
    lasts += [("b", 50_000, 62_000), ("b", 70_000, 99_000), ("c", 80_000, 105_000), ("e", 81_000, 102_000)]
    name, start, end = zip(*lasts, strict=True)
    ranges = Spans(
        start_ns=np.array(start),
        end_ns=np.array(end),
        name=np.array(["abcde".index(one) for one in name], np.int32),
        kind=np.zeros(len(lasts), np.int8),
        thread=np.zeros(len(lasts), np.int32),
    )
    found = longest_before(ranges, np.array([40_000, 100_000]))
    rows = zip(found.row.tolist(), found.name.tolist(), found.total_ns.tolist(), strict=True)
    assert [(row, "abcde"[code], ns) for row, code, ns in rows] == [
        (0, "c", 30_000),
        (0, "a", 20_100),
        (1, "d", 50_000),
        (1, "b", 41_000),
        (1, "c", 20_000),
    ]


def test_gloo_ranges_without_requests_stand_for_themselves():
    found = summarise(Facts.of(trace_of([row for row in GLOO if "c10d" not in row.name])))
    assert found.collectives.kind.tolist() == [CollectiveKind.ALL_REDUCE]
    assert found.collectives.issued_ns.tolist() == [405 * US]


def test_a_rank_without_collectives():
    found = drawn("""
        steps  | 0...
        gpu s7 | .KK.
    """)
    assert len(found.collectives) == 0
    assert found.groups == ()
    assert unpacked(packed(found)).rank == 0


def packed(summary):
    return zlib.compress(msgspec.msgpack.encode(PackedSummary.of(summary)))


def unpacked(data):
    return msgspec.msgpack.decode(zlib.decompress(data), type=PackedSummary).unpacked()


def test_packed_and_back():
    for summary in (simulate(Job()).summaries[2], summarise(Facts.of(trace_of(GLOO)))):
        again = unpacked(packed(summary))
        for table in TABLES:
            mine, other = getattr(summary, table).columns(), getattr(again, table).columns()
            assert all(np.array_equal(mine[name], other[name]) for name in mine)
            assert all(mine[name].dtype == other[name].dtype for name in mine)
        assert all(getattr(again, name) == getattr(summary, name) for name in RankFacts.__struct_fields__)


def test_a_summary_stays_small():
    """What the parent holds of a rank does not grow with its trace, only with its collectives."""
    small = packed(simulate(Job(n_ranks=2, n_steps=12)).summaries[1])
    large = packed(simulate(Job(n_ranks=2, n_steps=250)).summaries[1])
    assert len(small) < 6_000
    assert len(large) < 70 * 1000


@pytest.mark.parametrize("shape", [(2**33,), (2**40, 2**40), (11,)])
@pytest.mark.parametrize("dtype", ["<i8", "|O", "<U1000000", "nonsense"])
def test_a_column_that_is_not_what_it_says_is_refused_before_it_is_made(shape, dtype):
    whole = PackedSummary.of(simulate(Job()).summaries[0])
    _, _, data = whole.columns["steps.number"]
    wrong = replace(whole, columns=whole.columns | {"steps.number": (dtype, shape, data)})
    with pytest.raises((TypeError, ValueError)):
        wrong.unpacked()


@pytest.mark.parametrize(
    ("name", "value"),
    [("strings", 1), ("window_ns", [1]), ("groups", [1]), ("rank", "x"), ("columns", []), ("host", {})],
)
def test_fields_of_another_type_are_refused(name, value):
    fields = msgspec.to_builtins(PackedSummary.of(simulate(Job()).summaries[0]))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**fields, name: value}, PackedSummary)
