"""Operators and moments of the host joined with lines, functions and modules of the user's code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.model.code import CodePlace, Phase
from profkit.model.intervals import Intervals
from profkit.testing import Row, span, trace_of
from profkit.timeline.code import Rows, code_of, shares
from profkit.timeline.code.code import Code
from profkit.timeline.code.frames import is_own_file
from profkit.timeline.code.join import call_words
from profkit.timeline.code.modules import pattern
from tests.conftest import examples

US = 1000
START = 10**9


def frame(name: str, first: int, last: int, *, tid: int = 1000) -> Row:
    """A Python frame, in us from the start."""
    return span(name, START + first * US, START + last * US, cat="python_function", tid=tid)


def op(name: str, first: int, last: int, *, tid: int = 1000) -> Row:
    return span(name, START + first * US, START + last * US, cat="cpu_op", tid=tid)


def code(*rows: Row, **metadata: object) -> Code:
    """The code of a trace in which the script runs, and something ended before anything else is called."""
    begun = (frame("train.py(90): <module>", 0, 5000), frame("torch/profiler/profiler.py(1): start", 1, 2))
    found = code_of(trace_of([span("ProfilerStep#0", START, START + 5000 * US), *begun, *rows], **metadata))
    assert found is not None
    return found


def place_at(found: Code, at_us: int) -> CodePlace | None:
    place = found.at(np.array([0], np.int32), np.array([START + at_us * US]))
    return found.places[int(place.place[0])] if place.place[0] >= 0 else None


def module_at(found: Code, at_us: int) -> str:
    module = found.at(np.array([0], np.int32), np.array([START + at_us * US])).module
    return found.modules[int(module[0])].name if module[0] >= 0 else ""


def test_a_trace_without_frames_has_no_code() -> None:
    assert code_of(trace_of([span("ProfilerStep#0", START, START + US), op("aten::mm", 0, 1)])) is None


def test_an_operator_is_where_the_innermost_frame_of_the_user_is() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("my/model.py(30): attend", 110, 800),
        frame("torch/nn/functional.py(5): softmax", 120, 700),
        frame("<built-in method softmax of Tensor object at 0x7f12>", 130, 600),
        op("aten::softmax", 140, 500),
        op("aten::add", 850, 860),
    )
    inner = found.places[int(found.place_of_op[0])]
    assert (inner.file, inner.function, inner.defined, inner.line) == ("my/model.py", "attend", 30, 0)
    assert inner.words == "attend() (my/model.py:30) calling softmax()"
    assert found.places[int(found.place_of_op[1])].words == "step() (train.py:12)"


def test_a_function_that_ran_before_the_recording_has_no_line_of_its_definition() -> None:
    found = code()
    place = place_at(found, 3)
    assert place is not None
    assert (place.defined, place.name) == (0, "train.py outside functions")


def test_it_has_the_line_once_it_is_called_again() -> None:
    rows = [
        frame("train.py(44): train", 0, 100),
        frame("torch/x.py(1): f", 1, 2),
        frame("train.py(20): train", 200, 300),
    ]
    found = code_of(trace_of([span("ProfilerStep#0", START, START + 900 * US), *rows]))
    assert found is not None
    assert [place_at(found, at).name for at in (50, 250)] == ["train() (train.py:20)"] * 2  # type: ignore[union-attr]


def test_the_line_that_calls_is_known_where_the_capture_recorded_it() -> None:
    rows = (frame("train.py(12): step", 100, 900), frame("<built-in method item of Tensor object at 0x1>", 200, 300))
    found = code(
        *rows,
        profkit_call_lines={"unix_ns": [START + 200 * US], "line": [83]},
        profkit_source_lines={"train.py:83": "    total += loss.item()"},
    )
    place = place_at(found, 250)
    assert place is not None
    assert (place.line, place.words) == (83, "train.py:83 in step(): total += loss.item()")


def test_two_calls_in_one_nanosecond_have_no_line() -> None:
    rows = (frame("train.py(12): step", 100, 900), frame("<built-in method item of Tensor object at 0x1>", 200, 300))
    found = code(*rows, profkit_call_lines={"unix_ns": [START + 200 * US] * 2, "line": [83, 84]})
    place = place_at(found, 250)
    assert place is not None
    assert place.line == 0


def test_what_autograds_thread_does_between_its_nodes_is_where_the_backward_pass_is_called() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("torch/_tensor.py(5): backward", 110, 800),
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 200, 210, tid=7),
    )
    (thread,) = found.ops.thread.tolist()
    moments = found.at(np.array([thread] * 3, np.int32), START + US * np.array([205, 300, 850]))
    assert [found.places[one].words if one >= 0 else "" for one in moments.place.tolist()] == [
        "step() (train.py:12) calling backward()",
        "step() (train.py:12) calling backward()",
        "",
    ]
    assert moments.phase.tolist() == [Phase.BACKWARD, Phase.BACKWARD, Phase.OTHER]


def test_damaged_metadata_of_lines_is_no_metadata() -> None:
    row = frame("train.py(12): step", 100, 900)
    for told in ({"unix_ns": [1], "line": []}, {"unix_ns": "x", "line": [1]}, [], {"unix_ns": [1e30], "line": [1]}):
        place = place_at(code(row, profkit_call_lines=told), 250)
        assert place is not None
        assert place.line == 0


def test_generated_code_is_said_to_be_compiled() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("torch/_dynamo/eval_frame.py(1): _fn", 110, 890),
        frame("/scratch/torchinductor_me/ab/cab.py(77): call", 120, 880),
        op("triton_poi_fused_0", 130, 140),
    )
    place = found.places[int(found.place_of_op[0])]
    assert place.is_generated
    assert place.words == "step() (train.py:12) calling call(), compiled"


def test_of_a_packages_module_the_packages_function_is_named_too() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("nn.Module: GPT2Attention_0", 110, 890),
        frame("transformers/models/gpt2/modeling_gpt2.py(198): _attn", 120, 880),
        frame("torch/nn/functional.py(5): softmax", 130, 870),
        op("aten::softmax", 140, 150),
    )
    place = found.places[int(found.place_of_op[0])]
    assert place.words == "step() (train.py:12) calling GPT2Attention, by _attn() (gpt2/modeling_gpt2.py:198)"


def test_of_a_function_that_a_package_runs_in_ones_own_module_only_the_own_one_is_named() -> None:
    found = code(
        frame("nn.Module: Net_0", 100, 900),
        frame("net.py(12): forward", 110, 890),
        frame("einops/einops.py(5): rearrange", 120, 880),
        op("aten::reshape", 140, 150),
    )
    place = found.places[int(found.place_of_op[0])]
    assert place.words == "forward() (net.py:12) calling rearrange()"


def test_a_wrapper_of_torch_is_not_what_is_called() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("torch/optim/optimizer.py(1): wrapper", 110, 890),
        frame("torch/optim/adam.py(2): step", 120, 880),
    )
    place = place_at(found, 500)
    assert place is not None
    assert place.words == "step() (train.py:12) calling step()"


def test_an_annotation_that_outlives_its_frame_changes_nothing() -> None:
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("torch/autograd/profiler.py(3): __enter__", 110, 120),
        span("forward", START + 115 * US, START + 800 * US),
        op("aten::mm", 300, 400),
    )
    assert found.places[int(found.place_of_op[0])].words == "step() (train.py:12)"


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("train.py", True),
        ("my/project/data.py", True),
        ("/home/me/train.py", True),
        ("logger/tools.py", True),
        ("torch/nn/functional.py", False),
        ("logging/__init__.py", False),
        ("typing.py", False),
        ("/usr/lib/python3.12/random.py", False),
        ("/opt/venv/lib/python3.12/site-packages/foo/bar.py", False),
        ("transformers/models/gpt2/modeling_gpt2.py", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_whose_a_file_is(file: str, is_own: bool) -> None:
    assert is_own_file(file, {}) == is_own


def test_the_capture_knows_which_files_are_the_users() -> None:
    assert not is_own_file("vllm/worker.py", {"profkit_user_files": ["train.py"]})
    assert is_own_file("timm/train.py", {"profkit_user_files": ["timm/train.py"]})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("<built-in method item of Tensor object at 0x7f>", "Tensor.item()"),
        ("<built-in method mm of type object at 0x7f>", "mm()"),
        ("<built-in function linear>", "linear()"),
        ("nn.Module: Linear_3", "Linear"),
        ("torch/_tensor.py(1): backward", "backward()"),
    ],
)
def test_calls_read_as_people_write_them(name: str, words: str) -> None:
    assert call_words(name) == words


def model(first: int) -> list[Row]:
    """A model of two blocks, each with two linear layers."""
    rows = [frame("nn.Module: Model_0", first, first + 100), frame("net.py(9): forward", first + 1, first + 99)]
    for block in range(2):
        at = first + 2 + 40 * block
        rows += [frame(f"nn.Module: Block_{block}", at, at + 40)]
        for layer in range(2):
            name = f"nn.Module: Linear_{2 * block + layer}"
            rows += [frame(name, at + 1 + 10 * layer, at + 10 + 10 * layer)]
            rows += [op("aten::linear", at + 2 + 10 * layer, at + 9 + 10 * layer)]
    return rows


def test_modules_have_paths_of_their_classes() -> None:
    found = code(*model(200), *model(400))
    names = [found.modules[one].name for one in found.module_of_op.tolist()]
    assert names[:2] == ["Model/Block[0]/Linear[0]", "Model/Block[0]/Linear[1]"]
    assert names[2:4] == ["Model/Block[1]/Linear[0]", "Model/Block[1]/Linear[1]"]
    assert names[4:] == names[:4]
    assert set(found.phase_of_op.tolist()) == {Phase.FORWARD}
    assert found.places[int(found.place_of_op[0])].function == "forward"


def test_modules_have_qualified_names_where_the_capture_recorded_them() -> None:
    found = code(*model(200), profkit_modules={"Linear_2": "model.blocks.1.first"})
    assert module_at(found, 245 + 2) == "model.blocks.1.first"


def test_a_module_called_again_without_its_root_keeps_its_path() -> None:
    again = [frame("nn.Module: Linear_2", 700, 720), op("aten::linear", 705, 710)]
    found = code(*model(200), *again)
    assert found.modules[int(found.module_of_op[-1])].name == "Model/Block[1]/Linear[0]"


def test_modules_inside_each_other_in_a_circle_are_no_endless_path() -> None:
    found = code(
        frame("nn.Module: A_0", 100, 200),
        frame("nn.Module: B_0", 110, 190),
        frame("nn.Module: B_0", 300, 400),
        frame("nn.Module: A_0", 310, 390),
    )
    assert len(found.modules) == 2


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["a.0.x", "a.1.x"], "a.*.x"),
        (["M/B[0]/L", "M/B[1]/L"], "M/B[*]/L"),
        (["M/B[0]", "M/B[1]/L"], "M/B[*]"),
        (["a.0.x"], "a.0.x"),
        (["a", "b"], ""),
    ],
)
def test_what_modules_have_in_common(names: list[str], common: str) -> None:
    assert pattern(names) == common


def test_shares_add_up_by_line_whatever_the_module() -> None:
    found = code(*model(200))
    rows = Rows(
        thread=np.array([0, 0, 0, 0, -1], np.int32),
        at_ns=START + US * np.array([206, 216, 246, 256, 0]),
        ns=np.array([10, 20, 30, 20, 20]),
    )
    (one,) = shares(found, rows)
    assert (one.ns, one.share, one.count, one.n_modules) == (80, 0.8, 4, 4)
    assert one.place.module == "Model/Block[*]/Linear[*]"
    assert one.words == "forward() (net.py:9) calling Block, in Model/Block[*]/Linear[*]"
    assert one.phase is Phase.FORWARD


def test_what_reads_alike_is_one_place() -> None:
    """One line that makes two calls: its text is told, and not what it calls."""
    found = code(
        frame("train.py(12): step", 100, 900),
        frame("<built-in function next>", 200, 300),
        frame("torch/utils/data/dataloader.py(9): __next__", 400, 500),
        profkit_call_lines={"unix_ns": [START + 200 * US, START + 400 * US], "line": [71, 71]},
        profkit_source_lines={"train.py:71": "inputs = next(batches)"},
    )
    at_ns, ns = START + US * np.array([250, 450]), np.array([30, 70])
    (one,) = shares(found, Rows(thread=np.zeros(2, np.int32), at_ns=at_ns, ns=ns))
    assert (one.words, one.share, one.count) == ("train.py:71 in step(): inputs = next(batches)", 1.0, 2)


def test_what_runs_behind_a_graph_break_is_in_the_function_that_is_broken() -> None:
    """Of several of its name it is the one around the line of the break; a call at `def` is none of the script's."""
    resumed = "net.py(14): torch_dynamo_resume_in_forward_at_14"
    found = code(
        frame("net.py(5): forward", 100, 190),
        frame("net.py(12): forward", 200, 900),
        frame("torch/_dynamo/eval_frame.py(8): _fn", 250, 300),
        frame(resumed, 400, 800),
        frame("<built-in method item of Tensor object at 0x7f>", 500, 600),
        frame("net.py(20): forward", 1000, 1100),
        profkit_call_lines={"unix_ns": [START + 250 * US, START + 500 * US], "line": [12, 14]},
        profkit_source_lines={"net.py:12": "def forward(self, x):", "net.py:14": "scale = x.max().item()"},
    )
    at_ns = START + US * np.array([220, 270, 550, 700])
    told = shares(found, Rows(thread=np.zeros(4, np.int32), at_ns=at_ns, ns=np.array([10, 20, 40, 5])))
    assert [(one.words, one.ns) for one in told] == [
        ("net.py:14 in forward(): scale = x.max().item()", 40),
        ("forward() (net.py:12)", 35),
    ]


def test_nothing_has_no_share() -> None:
    none = np.empty(0, np.int64)
    assert shares(code(), Rows(thread=none.astype(np.int32), at_ns=none, ns=none)) == ()


@given(
    frames=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(-1, 20)), max_size=20),
    ops=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), min_size=1, max_size=8),
    has_ids=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_whatever_the_frames_are_the_innermost_one_runs(
    frames: list[tuple[int, int, int]], ops: list[tuple[int, int]], has_ids: bool
) -> None:
    names = ("train.py(1): f", "torch/x.py(2): g", "nn.Module: A_0", "nn.Module: B_1", "<built-in function h>", "x")
    rows = [op("aten::mm", first, first + length) for first, length in ops]
    for number, (first, length, parent) in enumerate(frames):
        row = frame(names[number % len(names)], first, first + length)
        ids = {"Python id": number, "Python parent id": None if parent < 0 else parent}
        rows.append(replace(row, args=ids) if has_ids else row)
    found = code_of(trace_of([span("ProfilerStep#0", START, START + 99 * US), *rows]))
    if found is None:
        assert not frames
        return
    assert found.joined is not None
    assert found.place_of_op.max() < len(found.places)
    at = START + US * np.arange(0, 95)
    inner = found.joined.frames.at(np.zeros(at.size, np.int32), at)
    table = found.joined.frames.rows
    runs = inner >= 0
    assert (table.start_ns[inner[runs]] <= at[runs]).all()
    assert (table.end_ns[inner[runs]] > at[runs]).all()
    starts = {int(start) for start, end in zip(table.start_ns, table.end_ns, strict=True) if end > start}
    assert all(row >= 0 for row, time in zip(inner.tolist(), at.tolist(), strict=True) if time in starts)
    pieces, lengths = found.during(0, Intervals.pairs([(START, START + 90 * US)]))
    assert int(lengths.sum()) == 90 * US
    assert (np.diff(pieces) >= 0).all()


def test_a_line_number_that_no_file_has_is_no_frame() -> None:
    assert place_at(code(frame(f"train.py({'9' * 5000}): f", 100, 200)), 150) is not None
