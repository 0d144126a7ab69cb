"""Timed steps without shapes take them from later steps of the same process, where nothing speaks against it."""

import random

import pytest
from msgspec.structs import replace

from profkit.pipeline import analyse, triage_trace
from profkit.roof.carried import with_shapes
from profkit.testing import Row, kernel, launch, span, trace_of
from profkit.timeline.code import matched

MS = 10**6
START = 10**9
A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SIZE = 4096
FLOPS = 2 * SIZE**3


def step(number, first_ms, last_ms):
    return span(f"ProfilerStep#{number}", START + first_ms * MS, START + last_ms * MS)


def op(name, at_ns, until_ns, dims=None, *, kind="c10::BFloat16", concrete=None):
    args = {}
    if dims is not None:
        strides = [[*size[1:], 1] for size in dims]
        args = {
            "Input Dims": dims,
            "Input type": [kind] * len(dims),
            "Input Strides": strides,
            "Concrete Inputs": concrete or [""] * len(dims),
        }
    return Row(name=name, cat="cpu_op", start_ns=START + at_ns, end_ns=START + until_ns, args=args)


def product(at_ns, until_ns, rows=None):
    """A linear layer, and the product inside."""
    dims = None if rows is None else [[rows, SIZE], [SIZE, SIZE]]
    return [op("aten::linear", at_ns, until_ns, dims), op("aten::mm", at_ns + 100, until_ns - 100, dims)]


def launched(number, at_ns, first_ns, last_ns, grid):
    return [
        launch(START + at_ns, START + at_ns + 1000, correlation=number),
        kernel(GEMM, START + first_ns, START + last_ns, correlation=number, grid=[grid, 1, 1], block=[128, 1, 1]),
    ]


def timed(n_steps=4, per_step=2, *, grids=None, rows=None):
    """Steps of 2 ms with products of 0.8 ms each; shapes only where `rows` are given."""
    out = []
    for number in range(n_steps):
        out.append(step(15 + number, 2 * number, 2 * number + 2))
        for place in range(per_step):
            at = 2 * number * MS + place * 20_000
            grid = 1024 if grids is None else grids(number, place)
            out += product(at, at + 10_000, rows)
            begin = 2 * number * MS + 100_000 + place * 800_000
            out += launched(number * per_step + place + 1, at + 1000, begin, begin + 800_000, grid)
    return out


def later(*rows, per_step=2, extra=None):
    """A step of 10 ms for each number of rows, of the host alone, with shapes."""
    out = []
    for number, size in enumerate(rows):
        out.append(step(27 + number, 10 * number, 10 * number + 10))
        for place in range(per_step):
            at = 10 * number * MS + place * MS // 8
            out += product(at, at + MS // 10, size)
        out += extra(number) if extra else []
    return out


def pair(mine, theirs, **metadata):
    return replace(trace_of(mine, **(A100 | metadata)), again=trace_of(theirs))


def shaped(trace):
    return with_shapes(trace, matched(trace))


def roof_of(trace):
    return analyse(trace).results.get("roof")


def without_rows(uses):
    """The uses without the rows of their operators, which are arrays."""
    return [replace(use, rows=None, row_ns=None) for use in uses]


def test_timed_products_have_the_rates_that_shapes_of_their_own_would_give():
    own, carried = roof_of(trace_of(timed(rows=SIZE), **A100)), roof_of(pair(timed(), later(SIZE, SIZE)))
    assert carried.flops() == own.flops() == 8 * FLOPS
    assert carried.mfu == own.mfu == pytest.approx(8 * FLOPS / (8e-3 * 312e12))
    assert without_rows(carried.uses) == without_rows(own.uses)


def test_the_report_says_whose_shapes_they_are():
    rank = analyse(pair(timed(), later(SIZE, SIZE))).rank
    assert rank.roof.endswith("; shapes are from 2 later steps, which agree on 100.0 % of the operators")
    assert rank.again.shapes == 1.0


def test_shapes_that_differ_between_the_later_steps_are_nobodys():
    trace = pair(timed(), later(SIZE, SIZE // 2))
    assert roof_of(trace) is None
    rank = analyse(trace).rank
    reason = next(skip.reason for skip in rank.skipped if skip.analyzer == "roof")
    assert "do not tell them for certain" in reason
    assert rank.again.shapes == 0.0


def test_one_later_step_settles_nothing():
    assert shaped(pair(timed(), later(SIZE))).shapes_carried == 0.0


def test_a_third_step_that_differs_speaks_against_two_that_agree():
    assert shaped(pair(timed(), later(SIZE, SIZE, SIZE // 2))).shapes_carried == 0.0
    assert shaped(pair(timed(), later(SIZE, SIZE, SIZE))).shapes_carried == 1.0


def test_timed_operators_keep_shapes_of_their_own():
    trace = shaped(pair(timed(rows=SIZE // 2), later(SIZE, SIZE)))
    assert trace.shapes_carried is None
    assert roof_of(trace).flops() == 4 * FLOPS
    assert "later steps" not in analyse(trace).rank.roof


def test_a_learning_rate_may_differ_a_flag_may_not():
    def update(*values):
        return lambda number: [
            op("aten::add_", (10 * number + 5) * MS, (10 * number + 6) * MS, [[8]] * 2, concrete=["", values[number]])
        ]

    mine = [*timed(), *(op("aten::add_", (2 * n + 1) * MS, (2 * n + 1) * MS + 9000) for n in range(4))]
    assert shaped(pair(mine, later(SIZE, SIZE, extra=update("-0.0010", "-0.0009")))).shapes_carried == 1.0
    for values in (("True", "False"), ("0", "1"), ("0.0", "0.5"), ("[1, 1]", "[2, 2]")):
        found = shaped(pair(mine, later(SIZE, SIZE, extra=update(*values))))
        assert found.shapes_carried == pytest.approx(16 / 20)


def test_operators_that_later_steps_lack_have_no_shapes():
    mine = [*timed(), op("aten::mul", MS, MS + 9000)]
    assert shaped(pair(mine, later(SIZE, SIZE))).shapes_carried == pytest.approx(16 / 17)


def test_operators_without_arguments_are_not_asked_for_shapes():
    mine = [*timed(), *(op("aten::empty", (2 * n + 1) * MS, (2 * n + 1) * MS + 9000) for n in range(4))]
    theirs = later(SIZE, SIZE, extra=lambda n: [op("aten::empty", (10 * n + 5) * MS, (10 * n + 6) * MS)])
    assert shaped(pair(mine, theirs)).shapes_carried == 1.0


def test_grids_that_change_from_step_to_step_are_shapes_that_change():
    assert shaped(pair(timed(grids=lambda number, _: 1024 + number), later(SIZE, SIZE))).shapes_carried == 0.0


def test_one_operator_whose_values_decide_costs_itself_and_what_is_around_it():
    """One product of 32 has another grid in one step: neither it nor its layer has a shape."""
    mine = timed(per_step=32, grids=lambda number, place: 1 + (number == 2 and place == 3))
    found = shaped(pair(mine, later(SIZE, SIZE, per_step=32)))
    assert found.shapes_carried == pytest.approx(62 / 64)
    lost = [found.name(code) for code in found.ops.name[found.ops.signature < 0]]
    assert sorted(lost) == ["aten::linear"] * 4 + ["aten::mm"] * 4


def host_only(*took_us):
    """Steps of 10 ms on a CPU with two products that take so long."""
    out = []
    for number, us in enumerate(took_us):
        out.append(step(15 + number, 10 * number, 10 * number + 10))
        for place in range(2):
            at = 10 * number * MS + place * 5 * MS
            out += product(at, at + us * 1000)
    return out


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (lambda: pair(host_only(400, 450, 900), later(SIZE, SIZE)), "products take much longer in one step than in"),
        (lambda: pair(timed(grids=lambda number, _: 1024 + number), later(SIZE, SIZE)), "grids or copies differ from"),
        (lambda: pair(timed(), later(SIZE)), "the later steps do not tell them for certain"),
    ],
)
def test_the_report_says_why_later_steps_do_not_tell_shapes(trace, why):
    rank, _ = triage_trace(trace())
    (skipped,) = [one for one in rank.skipped if one.analyzer == "roof"]
    assert why in skipped.reason
    assert "--shapes" in skipped.how_to_get


@pytest.mark.parametrize(("took_us", "share"), [((400, 450, 500), 1.0), ((400, 450, 900), 0.0)])
def test_on_a_cpu_products_that_take_longer_in_one_step_may_be_larger(took_us, share):
    assert shaped(pair(host_only(*took_us), later(SIZE, SIZE))).shapes_carried == share


def counted(counts, at_ns):
    return [
        Row(
            name=f"profkit.{kind}",
            cat="profkit",
            ph="C",
            start_ns=START + at_ns,
            end_ns=START + at_ns,
            args={kind: count},
        )
        for kind, count in counts.items()
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "share"),
    [
        (({"samples": 8, "tokens": 4096},) * 3, {"samples": 8, "tokens": 4096}, 1.0),
        (({"samples": 8, "padded_tokens": 4096},) * 3, {"samples": 8, "padded_tokens": 4096}, 1.0),
        (({"samples": 8, "tokens": 4096},) * 2, {"samples": 8, "tokens": 4096}, 0.0),  # not of every step
        (({"samples": 8, "tokens": 4096, "padded_tokens": 5000},) * 3, {"samples": 8, "tokens": 4096}, 0.0),
        (({"samples": 8},) * 3, {"samples": 8}, 0.0),  # they may be longer
        (({"tokens": 4096},) * 3, {"tokens": 4096}, 0.0),
        (({"samples": 0, "tokens": 4096},) * 3, {"samples": 0, "tokens": 4096}, 0.0),
    ],
)
def test_on_a_busy_cpu_steps_that_the_script_counted_alike_have_the_same_shapes(mine, theirs, share):
    first = [*host_only(400, 450, 900), *(row for n, one in enumerate(mine) for row in counted(one, 10 * n * MS + 5))]
    second = [*later(SIZE, SIZE), *(row for n in range(2) for row in counted(theirs, 10 * n * MS + 5))]
    assert shaped(pair(first, second)).shapes_carried == share


@pytest.mark.parametrize(
    ("mine", "theirs", "share"),
    [
        ({"tokens": 900}, {"tokens": 1000}, 0.0),
        ({"tokens": 1000}, {"tokens": 1000}, 1.0),
        ({"tokens": 900, "padded_tokens": 1024}, {"tokens": 1000, "padded_tokens": 1024}, 1.0),
        ({"tokens": 900, "padded_tokens": 1000}, {"tokens": 900, "padded_tokens": 1024}, 0.0),
        ({"samples": 8}, {"samples": 16}, 0.0),
        ({"samples": 8}, {"tokens": 16}, 1.0),
    ],
)
def test_steps_that_the_script_counted_otherwise_have_no_shapes(mine, theirs, share):
    first = [*timed(), *(row for n in range(4) for row in counted(mine, 2 * n * MS + 5000))]
    second = [*later(SIZE, SIZE), *(row for n in range(2) for row in counted(theirs, 10 * n * MS + 5000))]
    assert shaped(pair(first, second)).shapes_carried == share


def test_on_a_cpu_the_share_of_products_with_shapes_is_known():
    mine = [*host_only(400, 400), op("aten::bmm", 8 * MS, 8 * MS + 400_000)]
    result = roof_of(pair(mine, later(SIZE, SIZE)))
    assert result.matrix_known_share == pytest.approx(4 / 5, abs=0.01)
    assert roof_of(pair(host_only(400, 400), later(SIZE, SIZE))).matrix_known_share is None


def test_casts_are_known_by_the_later_steps():
    def cast(at_ns, until_ns, *, has_shapes):
        return op(
            "aten::_to_copy", at_ns, until_ns, [[8], []] if has_shapes else None, kind="float", concrete=["", "15"]
        )

    mine = [*host_only(400, 400), *(cast((10 * n + 1) * MS, (10 * n + 4) * MS, has_shapes=False) for n in range(2))]
    theirs = later(SIZE, SIZE, extra=lambda n: [cast((10 * n + 5) * MS, (10 * n + 6) * MS, has_shapes=True)])
    theirs = [row for row in theirs if "linear" not in row.name and "mm" not in row.name]
    mine = [row for row in mine if "linear" not in row.name and "mm" not in row.name]
    ids = [finding.id for finding in analyse(pair(mine, theirs)).rank.findings]
    assert "precision.casts" in ids
    assert "precision.casts" not in [finding.id for finding in analyse(trace_of(mine)).rank.findings]


@pytest.mark.parametrize("theirs", [[step(27, 0, 10), step(28, 10, 20)], later(None, None)])
def test_later_steps_without_operators_or_shapes_tell_nothing(theirs):
    trace = shaped(pair(timed(), theirs))
    assert trace.shapes_carried == 0.0
    assert trace.signatures == ()


def test_a_timed_trace_without_operators_takes_nothing():
    mine = [row for row in timed() if row.cat != "cpu_op"]
    assert shaped(pair(mine, later(SIZE, SIZE))).shapes_carried == 0.0


NAMES = ("aten::linear", "aten::mm", "aten::add", "aten::copy_", "aten::empty")


def window(first_step, lists, *, is_shaped):
    """A step of 10 ms for each list of (name, rows, thread); products take as long whatever they multiply."""
    out = []
    for number, ops in enumerate(lists):
        out.append(step(first_step + number, 10 * number, 10 * number + 10))
        for place, (name, rows, thread) in enumerate(ops):
            at = 10 * number * MS + place * 50_000
            row = op(name, at, at + 40_000, [[rows, 8]] if is_shaped else None, kind="float")
            out.append(replace(row, tid=thread))
    return out


@pytest.mark.parametrize("seed", range(60))
def test_operators_more_or_less_never_give_a_wrong_shape(seed):
    """A collection, an allocation, another thread's operators in some steps: in the timed or in the later ones.

    Steps have either more or fewer: one less and one more of a name are not told from a change of shape.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    base = [(chance.choice(NAMES), chance.choice((16, 32, 64)), 1000) for _ in range(chance.randrange(5, 40))]
    is_timed, has_fewer = bool(seed % 2), seed % 3 == 0

    def disturbed():
        ops = list(base)
        for _ in range(chance.choice((0, 1, 1, 3))):
            at = chance.randrange(len(ops))
            if has_fewer:
                del ops[at]
            else:
                ops.insert(at, (chance.choice(NAMES), 999, chance.choice((1000, 2000))))
        return ops

    mine = [disturbed() if is_timed else base for _ in range(3)]
    theirs = [base if is_timed else disturbed() for _ in range(2)]
    found = shaped(pair(window(15, mine, is_shaped=False), window(27, theirs, is_shaped=True)))
    given = found.ops.signature
    rows = [rows for ops in mine for _, rows, _ in ops]
    wrong = [
        (place, rows[place], found.signatures[code].dims)
        for place, code in enumerate(given.tolist())
        if code >= 0 and found.signatures[code].dims[0][0] != rows[place]
    ]
    assert not wrong
    assert found.shapes_carried > 0 or len(base) < 10  # of a few, none may be certain


def test_an_operator_too_many_has_no_shape():
    add = ("aten::add", SIZE, 1000)
    mine = window(15, [[add, ("aten::add", 8, 1000), add]] * 2, is_shaped=False)
    found = shaped(pair(mine, window(27, [[add, add]] * 2, is_shaped=True)))
    assert found.ops.signature.tolist() == [-1] * 6  # which of the three it is, is not known
