"""Timed steps take their places from steps that were recorded once more: by operator, and between operators by time."""

import gzip

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.errors import UnsupportedTraceError
from profkit.ingest.read import read_traces
from profkit.model.code import Phase
from profkit.model.trace import Trace
from profkit.pipeline import analyse
from profkit.render import renderer_for
from profkit.testing import Row, span, to_json, trace_of
from profkit.timeline.code import carried
from profkit.timeline.code.code import Code

US = 1000
START = 10**9
MAIN = "train.py(44): train"


def row(name: str, first: int, last: int, *, cat: str = "cpu_op", **args: object) -> Row:
    """A row, in us from the start."""
    return Row(name=name, cat=cat, start_ns=START + first * US, end_ns=START + last * US, args=args)


def step(number: int, first: int, last: int) -> Row:
    return span(f"ProfilerStep#{number}", START + first * US, START + last * US)


def timed_rows(*more: Row, lacks: str = "") -> list[Row]:
    """Two steps of 100 us: a product, a product, a loss that waits; 20 us of Python between them."""
    rows = [step(15, 0, 100), step(16, 100, 200)]
    for begin in (0, 100):
        rows += [row("aten::mm", begin + 10, begin + 30), row("aten::mm", begin + 50, begin + 60)]
        rows += [row("aten::item", begin + 80, begin + 90)]
    return [*(one for one in rows if one.name != lacks), *more]


def called(*calls: tuple[str, int, int]) -> list[Row]:
    """The script's main function for 1,000 us, and what it calls."""
    ids = [{"Python id": number, "Python parent id": None if number == 1 else 1} for number in range(1, len(calls) + 2)]
    made = zip(((MAIN, 0, 1000), *calls), ids, strict=True)
    return [row(name, first, last, cat="python_function", **each) for (name, first, last), each in made]


def again_rows() -> list[Row]:
    """One step of 1,000 us of the same work, with the script's calls."""
    frames = called(
        ("nn.Module: Linear_0", 50, 400),
        ("nn.Module: Linear_1", 450, 640),
        ("train.py(9): log", 650, 780),
        ("<built-in method item of Tensor object>", 790, 950),
    )
    ops = [row("aten::mm", 100, 300), row("aten::mm", 500, 600), row("aten::item", 800, 900)]
    return [step(27, 0, 1000), *frames, *ops]


METADATA = {
    "baseTimeNanoseconds": 10**18,
    "profkit_capture_id": "c" * 32,
    "profkit_places_of": "rank0.pt.trace.json.gz",
    "profkit_profiled_step_mean_ns": 1_000_000,
    "profkit_places_stalled_ns": 3_000_000,
    "profkit_user_files": ["train.py"],
    "profkit_modules": {"Linear_0": "model.up", "Linear_1": "model.down"},
    "profkit_call_lines": {
        "unix_ns": [10**18 + START + at * US for at in (50, 450, 650, 790)],
        "line": [50, 51, 52, 53],
    },
    "profkit_source_lines": {"train.py:53": "total += loss.item()"},
}


def pair(rows: list[Row]) -> Trace:
    return replace(trace_of(rows), again=trace_of(again_rows(), **METADATA))


def code_of_pair(rows: list[Row]) -> Code:
    found = carried(pair(rows))
    assert found is not None
    return found


def lines(found: Code) -> list[tuple[int, str]]:
    """The line and module of each operator."""
    none = (0, "")
    return [
        (found.places[place].line, found.modules[module].name if module >= 0 else "") if place >= 0 else none
        for place, module in zip(found.place_of_op.tolist(), found.module_of_op.tolist(), strict=True)
    ]


def place_at(found: Code, at_us: int) -> str:
    place = found.at(np.array([0], np.int32), np.array([START + at_us * US])).place[0]
    return found.places[int(place)].name if place >= 0 else ""


def test_operators_of_every_timed_step_have_the_places_of_the_recorded_one():
    found = code_of_pair(timed_rows())
    assert lines(found) == [(50, "model.up"), (51, "model.down"), (53, "")] * 2
    assert found.matched == 1.0
    assert found.places[int(found.place_of_op[2])].words == "train.py:53 in train(): total += loss.item()"
    assert found.phase_of_op.tolist()[:3] == [Phase.FORWARD, Phase.FORWARD, Phase.OTHER]


def test_a_moment_between_operators_is_as_far_along_there():
    found = code_of_pair(timed_rows())
    # the Python between the second product and the loss: 60-80 us here, 600-800 us there, of which log has 650-780
    assert place_at(found, 70) == place_at(found, 170) == "log() (train.py:9)"
    assert place_at(found, 55) == "train.py:51 in train()"
    assert place_at(found, 1000) == "", "outside the steps nothing is known"


def test_an_operator_that_was_not_recorded_again_leaves_its_surroundings_open():
    found = code_of_pair(timed_rows(row("aten::copy_", 65, 75)))
    assert found.matched == pytest.approx(6 / 7)
    assert place_at(found, 70) == ""
    assert place_at(found, 62) == "", "what is beside it may belong to its line"
    assert place_at(found, 170) == "log() (train.py:9)", "the other step is whole"


def collection(first: int, last: int, generation: int = 2) -> Row:
    return row(f"Python GC (generation {generation})", first, last, cat="user_annotation")


@pytest.mark.parametrize(
    ("theirs", "known"),
    [
        ((), False),
        ((collection(660, 780),), True),
        ((collection(660, 661, 0),), False),
        ((collection(400, 450),), False),
    ],
    ids=["none", "the same", "a young one", "elsewhere"],
)
def test_a_collection_is_where_the_recorded_step_collects_as_well_or_nowhere(theirs, known):
    """Another step's line would say where the host is without it."""
    trace = trace_of([*timed_rows(), collection(62, 78)])
    found = carried(replace(trace, again=trace_of([*again_rows(), *theirs], **METADATA)))
    thread = np.zeros(3, np.int64)
    places = found.at(thread, START + np.array([70, 40, 170]) * US).place
    assert (places[0] >= 0) == known
    assert (places[1:] >= 0).all()  # beside other operators, and in the step that does not collect


def test_python_of_ones_own_inside_an_operator_is_nearer_than_the_operator():
    """A backward pass written by the user: between its operators its own lines run, not the forward pass's."""
    frames = called(("nn.Module: Linear_0", 100, 190), ("train.py(9): backward", 310, 890))
    node = "autograd::engine::evaluate_function: OwnBackward"
    ops = [row("aten::mm", 110, 180), row(node, 300, 900), row("aten::mul", 400, 500), row("aten::mul", 700, 800)]
    timed = [step(15, 0, 100), row("aten::mm", 11, 18), row(node, 30, 90)]
    timed += [row("aten::mul", 40, 50), row("aten::mul", 70, 80)]
    again = trace_of([step(27, 0, 1000), *frames, *ops], **METADATA)
    found = carried(replace(trace_of(timed), again=again))
    assert place_at(found, 60) == place_at(found, 75) == "backward() (train.py:9)"
    assert place_at(found, 15) == "train() in train.py"


WAIT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_a_wait_for_workers_is_matched_with_a_wait_whatever_torch_makes_of_the_batches_meanwhile():
    """Of the batches that have come: none, one or several while it waits for the next."""

    def load(first: int, last: int) -> Row:
        return row(WAIT, first, last, cat="user_annotation")

    frames = called(("train.py(9): log", 300, 780))
    again = [step(27, 0, 1000), *frames, load(100, 200), row("aten::set_", 150, 160), row("aten::mm", 800, 900)]
    timed = [step(15, 0, 100), load(5, 70), row("aten::mm", 85, 95)]
    timed += [row("aten::set_", 30, 31), row("aten::empty", 50, 51), row("aten::set_", 60, 61)]
    found = carried(replace(trace_of(timed), again=trace_of(again, **METADATA)))
    assert [place_at(found, at) for at in (10, 55, 68)] == ["train() in train.py"] * 3
    assert place_at(found, 77) == "log() in train.py"


def test_two_places_for_one_operator_are_none_unless_they_differ_in_the_module_alone():
    found = code_of_pair(timed_rows(lacks="aten::item")[:-1])
    assert lines(found) == [(50, "model.up"), (51, "model.down"), (0, "")], "which product is it: line 50 or 51?"


def test_times_are_the_timed_steps_own_and_the_report_says_what_the_others_cost():
    alone, both = analyse(trace_of(timed_rows())), analyse(pair(timed_rows()))
    assert both.rank.steps == alone.rank.steps
    assert both.rank.devices == alone.rank.devices
    assert both.rank.again.n_steps == 1
    assert (both.rank.again.mean_step_ns, both.rank.again.stalled_ns, both.rank.again.matched) == (10**6, 3 * 10**6, 1)
    assert alone.rank.again is None
    assert alone.facts.code is None


@pytest.fixture
def folder(tmp_path):
    """A folder with a timed trace and that of its second window."""
    timed = {key: METADATA[key] for key in ("baseTimeNanoseconds", "profkit_capture_id")}
    (tmp_path / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(to_json(timed_rows(), metadata=timed)))
    (tmp_path / "rank0.places.json.gz").write_bytes(gzip.compress(to_json(again_rows(), metadata=METADATA)))
    return tmp_path


def test_a_folder_is_read_as_one_trace_with_its_second_window(folder):
    report = triage(folder)
    assert [rank.source for rank in report.ranks] == [str(folder / "rank0.pt.trace.json.gz")]
    assert report.ranks[0].steps.n == 2
    text = " ".join(renderer_for("triage", "terminal")(report, width=200).split())
    assert "rank0.places.json.gz: 1 later step with Python stacks (1.00 ms each), which no time above is from" in text
    assert "the script waited 3.00 ms more for them; 100.0 % of the timed operators found there" in text


def test_the_second_window_is_none_where_it_is_of_another_capture_or_damaged(folder):
    source = str(folder / "rank0.pt.trace.json.gz")
    (plain,) = read_traces(source)
    (again,) = read_traces(source, again=True)
    assert (plain.again, again.again is None) == (None, False)
    other = {**METADATA, "profkit_capture_id": "d" * 32}
    (folder / "rank0.places.json.gz").write_bytes(gzip.compress(to_json(again_rows(), metadata=other)))
    (found,) = read_traces(source, again=True)
    assert (found.again, found.warnings) == (None, ())
    (folder / "rank0.places.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [{"ph": "X"'))
    (found,) = read_traces(source, again=True)
    assert found.again is None
    assert found.warnings[0].message.startswith("lines of code are missing: ")


def test_a_second_window_alone_is_not_judged(folder):
    with pytest.raises(UnsupportedTraceError, match=r"lines of code for rank0\.pt\.trace\.json\.gz, no times"):
        triage(folder / "rank0.places.json.gz")
