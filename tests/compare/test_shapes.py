"""Shapes of the operators' inputs tell whether a step does other work, on a CPU too and whatever kernels run."""

import gzip
from pathlib import Path

import pytest

from profkit.compare.captures.measured import Inputs, recorded_inputs
from profkit.compare.captures.sides import Side, read_side
from profkit.compare.comparison import compare
from profkit.model.documents.comparison import Comparison
from profkit.testing import Row, span, to_json

OPS = ("linear", "gelu", "layer_norm", "softmax", "add", "mul", "matmul", "dropout", "view", "transpose")


def side(
    tmp_path: Path,
    name: str,
    *,
    batch: int,
    step_us: int = 1000,
    calls: int = 1,
    lengths: dict[str, int] | None = None,
    ops: tuple[str, ...] = OPS,
) -> Side:
    """Four steps of ten operators on `[batch, 64]` and one on a weight; with `calls` each runs so often in a step."""
    rows = []
    for number in range(4):
        begin = number * step_us * 1000
        rows.append(span(f"ProfilerStep#{number}", begin, begin + step_us * 1000))
        for place, op in enumerate(ops * calls):
            at = begin + place * (step_us * 900 // (len(ops) * calls))
            dims = [[(lengths or {}).get(op, batch), 64], [128, 64], []]
            rows.append(Row(name=f"aten::{op}", cat="cpu_op", start_ns=at, end_ns=at + 2000, args={"Input Dims": dims}))
    file = tmp_path / f"{name}.json.gz"
    file.write_bytes(gzip.compress(to_json(rows)))
    return read_side(name, [str(file)])


def work(comparison: Comparison) -> list[str]:
    return [item.title for item in comparison.readings if item.id == "compare.work_changed"]


def test_the_batch_is_told_by_shapes_where_there_is_nothing_else(tmp_path):
    """128x the batch in 3x the time: no step is set against a step."""
    comparison = compare(side(tmp_path, "a", batch=4), side(tmp_path, "b", batch=512, step_us=3000))
    assert work(comparison) == ["a step does 128x the work"]
    assert not comparison.judgement.is_comparable
    assert comparison.judgement.sentence.endswith(
        "97.7 % less time per unit of work (42.7x): 1.00 ms -> 3.00 ms per step"
    )
    (reading,) = comparison.readings
    assert reading.seen("compare.input_elements_ratio").statement == (
        "operators work on 128x the elements per step (median of the 10 that changed, of 10)"
    )


@pytest.mark.parametrize(
    ("batch", "calls"), [(64, 1), (32, 2), (65, 1)], ids=["same", "accumulated in two parts", "hardly another"]
)
def test_the_same_work_stays_comparable(tmp_path, batch, calls):
    comparison = compare(side(tmp_path, "a", batch=64), side(tmp_path, "b", batch=batch, calls=calls, step_us=900))
    assert work(comparison) == []
    assert comparison.judgement.is_comparable


def test_inputs_that_moved_apart_tell_nothing(tmp_path):
    """Half grow, half shrink: another program, and no factor to divide by."""
    lengths = {op: 16 if place % 2 else 256 for place, op in enumerate(OPS)}
    comparison = compare(side(tmp_path, "a", batch=64), side(tmp_path, "b", batch=64, lengths=lengths))
    assert work(comparison) == []


def test_inputs_that_all_grew_are_other_work_even_without_one_factor(tmp_path):
    """Longer sequences: attention grows with their square."""
    lengths = {op: 64 * (place + 2) for place, op in enumerate(OPS)}
    comparison = compare(side(tmp_path, "a", batch=64), side(tmp_path, "b", batch=64, lengths=lengths))
    assert work(comparison) == ["a step does 7.00x the work"]
    assert "the middle half of them 4.00x to 9.00x" in comparison.readings[0].evidence[0].statement
    assert not comparison.judgement.is_comparable


def test_the_batch_is_named_by_operators_whose_first_dimension_it_is(tmp_path):
    ops = ("conv2d", *OPS)
    sides = side(tmp_path, "a", batch=16, ops=ops), side(tmp_path, "b", batch=32, step_us=1500, ops=ops)
    judged = compare(*sides).judgement
    assert judged.sentence.startswith("the batch is 32, before 16: 25.0 % less time per sample (1.33x)")
    assert judged.change == pytest.approx(-0.25)


def test_shapes_are_read_from_the_file_and_bounded(tmp_path):
    file = tmp_path / "a.json"
    long = "9" * 40
    file.write_text(
        '{"traceEvents": ['
        '{"name": "aten::mm", "args": {"Input Dims": [[2, 3], [3, 4], []]}},'
        '{"name":"aten::mm","args":{"Input Dims":[[4, 3], [3, 4]]}},'
        f'{{"name": "aten::add", "args": {{"Input Dims": [[{long}]]}}}},'
        '{"name": "aten::cat", "args": {"Input Dims": "x"}}]}'
    )
    assert recorded_inputs(str(file)).shapes == {"aten::mm 0": 9.0, "aten::mm 1": 12.0}
    file.write_text('{"traceEvents": [{"name": "aten::mm", "args": {}}]}')
    assert recorded_inputs(str(file)) == Inputs()
    assert recorded_inputs("-") == Inputs()
