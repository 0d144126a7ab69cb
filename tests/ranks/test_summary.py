"""What one rank tells the others: what it did, where it stood still for a collective, what its script counted."""

import json
import zlib

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from profkit.ingest.kineto.reader import read_trace
from profkit.model.trace import Spans
from profkit.ranks.reduce.activity import longest_before
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.records import PHASES, TABLES, RankFacts
from profkit.ranks.reduce.summary import summarise
from profkit.ranks.run.store import PackedSummary
from profkit.testing import draw, kernel, launch, span, to_json, trace_of
from profkit.timeline import Facts
from tests.ingest.test_counted_work import counter, embedding
from tests.ranks.scripted import Op, run, write
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


@pytest.mark.parametrize("shape", [(2**33,), (2**40, 2**40), (11,), (-1,)])
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


ORIGIN = 10**9


def blocks_us(next_work: str, host: str) -> list[tuple[int, int]]:
    """The blocks of a collective at 4-8 after which the compute stream and the host go on as drawn."""
    blocks = summarise(
        Facts.of(
            draw(f"""
        steps   | 0...............
        gpu s7  | {next_work}
        gpu s20 | ....NNNN........
        main    | {host}
    """)
        ),
        rank=0,
    ).blocks
    pairs = zip(blocks.start_ns.tolist(), blocks.end_ns.tolist(), strict=True)
    return [((start - ORIGIN) // US, (end - ORIGIN) // US) for start, end in pairs]


@pytest.mark.parametrize(
    ("next_work", "host", "is_block"),
    [
        pytest.param("..KK........KK..", "L.L..L..........", True, id="launched in time"),
        pytest.param("..KK........KK..", "L.L.....L.......", True, id="launched as it ended"),
        pytest.param("..KK........KK..", "L.L......L......", False, id="launched after its end by a free host"),
        pytest.param("..KK........KK..", "L.LSSSSSSL......", True, id="by a host that had waited for it"),
        pytest.param("..KK........KK..", "L.LSSSSS.L......", True, id="by a host that waited until its end"),
        pytest.param("..KK........KK..", "L.LSSSS..L......", False, id="by a host that had stopped waiting before"),
        pytest.param("..KK............", "L.L.............", True, id="nothing follows"),
    ],
)
def test_a_collective_blocks_unless_the_device_waited_for_its_host(next_work: str, host: str, is_block: bool) -> None:
    assert blocks_us(next_work, host) == ([(4, 8)] if is_block else [])


def test_a_collective_is_ready_when_it_was_asked_for_and_what_was_launched_before_has_ended() -> None:
    found = summarise(
        Facts.of(
            draw("""
        steps   | 0.........................
        gpu s7  | ..KKKKKK......KK..........
        gpu s20 | ..........NN........NN..NN
        main    | L...L.......L..L.....L....
    """)
        ),
        rank=0,
    ).collectives
    # the first waits for the kernel that ends at 8; before the second, launched at 15, one ends at 16; the third at 21
    assert ((found.ready_ns - ORIGIN) // US).tolist() == [8, 16, 21]


def test_collectives_of_one_graph_are_ready_when_they_begin() -> None:
    rows = [
        span("ProfilerStep#0", ORIGIN, ORIGIN + 100 * US),
        launch(ORIGIN, ORIGIN + US, correlation=1),
        kernel("k", ORIGIN + 2 * US, ORIGIN + 10 * US, correlation=1),
        launch(ORIGIN + 4 * US, ORIGIN + 5 * US, correlation=2, name="cudaGraphLaunch"),
        kernel(ALL_REDUCE, ORIGIN + 20 * US, ORIGIN + 25 * US, correlation=2, stream=20),
        kernel(ALL_REDUCE, ORIGIN + 40 * US, ORIGIN + 45 * US, correlation=2, stream=20),
        launch(ORIGIN + 50 * US, ORIGIN + 51 * US, correlation=3),
        kernel(ALL_REDUCE, ORIGIN + 60 * US, ORIGIN + 65 * US, correlation=3, stream=20),
    ]
    found = summarise(Facts.of(trace_of(rows)), rank=0).collectives
    assert ((found.ready_ns - ORIGIN) // US).tolist() == [20, 40, 50]


@pytest.fixture
def steps_of(tmp_path):
    def steps(*events):
        rows = [span(f"ProfilerStep#{number}", number * 100_000, (number + 1) * 100_000) for number in range(3)]
        work = [span("aten::mm", at + 10_000, at + 20_000, cat="cpu_op") for at in (0, 100_000, 200_000)]
        document = json.loads(to_json([*rows, *work]))
        document["traceEvents"] += events
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document))
        return summarise(Facts.of(read_trace(str(path)))).steps

    return steps


def test_a_count_belongs_to_the_step_it_was_told_in(steps_of):
    """Told at the end of each step; twice in the second, as with accumulation; before and after, to none."""
    ends = [(-5, 9), (99, 10), (150, 20), (199, 30), (350, 9)]
    steps = steps_of(*(counter("tokens", ts, value) for ts, value in ends), counter("padded_tokens", 99, 16))
    assert steps.tokens.tolist() == [10, 50, 0]
    assert steps.padded_tokens.tolist() == [16, 0, 0]
    assert steps.samples.tolist() == steps.embedded.tolist() == [0, 0, 0]


def test_the_widest_embedding_tells_what_was_padded(steps_of):
    """Tokens of two micro-batches add up; positions, a table of their own, are fewer."""
    words = [embedding(ts, [[8192, 48], [8, 16]]) for ts in (10, 50)]
    steps = steps_of(*words, embedding(12, [[512, 48], [16]]), embedding(110, [[8192, 48], [8, 20]]))
    assert steps.embedded.tolist() == [256, 160, 0]


@pytest.mark.parametrize("value", [1e300, -5])
def test_absurd_counts_stay_numbers(steps_of, value):
    assert steps_of(counter("tokens", 99, value)).tokens.tolist()[0] in (0, 2**53)


@pytest.mark.shared
def test_a_real_embedding_of_16_by_32(shared_traces):
    path = shared_traces / "cpu_captures" / "shapes_w0.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("no such capture here")
    steps = summarise(Facts.of(read_trace(str(path)))).steps
    assert steps.embedded.tolist() == [16 * 32] * 3
    assert not steps.tokens.any()


@pytest.mark.parametrize(("name", "least", "most"), [("", 0.9, 1.0), ("cudaLaunchKernel", 0.15, 0.25), (None, None, 0)])
def test_a_call_that_lasts_may_wait_for_room_and_is_not_surely_work(tmp_path, name, least, most):
    """Twenty operators of 500 us; their calls take 4 us of it, or all of it, or are not recorded."""
    rank = run({0: [Op(what="step"), *[Op(what="compute", ns=400 * US)] * 20]}, machines={0: {"launch_ns": 500 * US}})[
        0
    ]
    rank.end_step()
    if name is None:
        rank.events = [event for event in rank.events if event[0] != "cuda_runtime"]
    rank.events = [
        (cat, called, begin, begin + 490 * US if called == name else end, args)
        for cat, called, begin, end, args in rank.events
    ]
    facts = Facts.of(read_trace(str(next(write({0: rank}, tmp_path).glob("*.json*")))))
    found, (low, high) = summarise(facts, rank=0).busy_ns, facts.trace.window_ns
    assert (found is None) == (least is None)
    assert found is None or least <= found[0] / (high - low) <= most <= found[1] / (high - low)
