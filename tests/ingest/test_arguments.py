"""What operators and Python frames say of themselves: autograd's numbers, recorded arguments, callers."""

from typing import Any

import pytest

from profkit.ingest.assemble.build import build_trace
from profkit.ingest.assemble.raw import RawTrace
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.source import traits
from profkit.model.signature import Signature
from profkit.testing import HOST_PID, Row, operator, trace_of

MM: dict[str, Any] = {
    "Input_Dims": [[8, 16], [16, 4]],
    "Input_type": ["float", "float"],
    "Input_Strides": [[16, 1], [4, 1]],
    "Concrete_Inputs": ["", ""],
}


def frame(name: str, start: int, end: int, **args: int) -> Row:
    """A Python frame."""
    arguments = {key.replace("_", " "): value for key, value in args.items()}
    return Row(name=name, cat="python_function", start_ns=start, end_ns=end, args=arguments)


def test_operators_have_autograds_number_and_the_thread_of_their_forward_side() -> None:
    rows = [
        operator("aten::mm", 0, 10, Sequence_number=7, Fwd_thread_id=0),
        operator("MmBackward0", 20, 30, tid=HOST_PID + 1, Sequence_number=7, Fwd_thread_id=1),
        operator("aten::ones", 40, 50),
    ]
    ops = trace_of(rows).ops
    assert ops.sequence.tolist() == [7, 7, -1]
    assert ops.forward_thread.tolist() == [0, 1, -1]


def test_the_same_arguments_are_one_signature() -> None:
    rows = [
        operator("aten::mm", 0, 10, **MM),
        operator("aten::ones", 20, 30),
        operator("aten::mm", 40, 50, **MM),
        operator("aten::mm", 60, 70, **(MM | {"Input_Dims": [[2, 16], [16, 4]]})),
    ]
    trace = trace_of(rows)
    first, none, again, other = trace.ops.signature.tolist()
    assert first == again != other
    assert none == -1
    assert trace.signatures[first] == Signature(
        dims=((8, 16), (16, 4)), types=("float", "float"), strides=((16, 1), (4, 1)), concrete=("", "")
    )


def test_views_carry_no_signature_since_they_do_no_work() -> None:
    assert trace_of([operator("aten::view", 0, 10, **MM)]).ops.signature.tolist() == [-1]


def test_a_list_of_tensors_has_the_sizes_of_each() -> None:
    row = operator("aten::cat", 0, 10, Input_Dims=[[[2, 3], [4, 3]], []], Input_type=["TensorList", "Scalar"])
    trace = trace_of([row])
    assert trace.signatures == (Signature(dims=(((2, 3), (4, 3)), ()), types=("TensorList", "Scalar")),)


@pytest.mark.parametrize(
    "dims",
    ["[2, 3]", [[2.5]], [["2"]], [[[[2]]]], [[2**60]], {"a": 1}, [None], [[2] * 20_000]],
    ids=["text", "fraction", "text inside", "too deep", "too large", "object", "null", "too long"],
)
def test_arguments_that_cannot_be_read_are_none(dims: object) -> None:
    trace = trace_of([operator("aten::mm", 0, 10, Input_Dims=dims)])
    assert trace.signatures == (None,)


def test_only_numbers_and_flags_are_kept_of_concrete_values() -> None:
    values = ["[1, 1]", "True", "-0.5", "hunter2", "", 3, ["x"], "1" * 300, "[True, False]", "[hunter2]"]
    trace = trace_of([operator("aten::op", 0, 10, Input_Dims=[], Concrete_Inputs=values)])
    assert trace.signatures[0] is not None
    assert trace.signatures[0].concrete == ("[1, 1]", "True", "-0.5", "", "", "3", "", "", "[True, False]", "")


def test_batches_with_and_without_arguments_make_one_table() -> None:
    with_all = [operator("aten::mm", 0, 10, Sequence_number=7, Fwd_thread_id=0, **MM)]
    without = [operator("aten::ones", 20, 30)]
    other = [operator("aten::mm", 40, 50, **(MM | {"Input_Dims": [[1, 16], [16, 4]]}))]
    batches = [
        decode_batch(f"[{','.join(row.as_json() for row in rows)}]".encode()) for rows in (with_all, without, other)
    ]
    apart = build_trace(RawTrace("drawn", traits(), batches=batches))
    whole = trace_of([*with_all, *without, *other])
    assert apart.ops.sequence.tolist() == whole.ops.sequence.tolist() == [7, -1, -1]
    assert apart.ops.signature.tolist() == whole.ops.signature.tolist()
    assert apart.signatures == whole.signatures


def test_python_frames_have_their_callers_and_modules() -> None:
    rows = [
        frame("train.py(3): step", 0, 100, Python_id=1),
        frame("nn.Module: Linear_0", 10, 90, Python_id=2, Python_parent_id=1, Python_module_id=0),
    ]
    python = trace_of(rows).python
    assert python.frame_id.tolist() == [1, 2]
    assert python.parent_id.tolist() == [-1, 1]
    assert python.module_id.tolist() == [-1, 0]


def test_an_old_trace_says_none_of_it() -> None:
    trace = trace_of([operator("aten::mm", 0, 10), frame("a.py(1): f", 0, 10)])
    assert trace.ops.sequence.tolist() == trace.ops.forward_thread.tolist() == trace.ops.signature.tolist() == [-1]
    assert trace.python.frame_id.tolist() == [-1]
    assert trace.signatures == ()
