"""Lines and modules of a real trace against what torch itself wrote beside each operator (`Call stack`, verbose)."""

import gzip
import json

import numpy as np
import pytest

from profkit.ingest.read import read_traces
from profkit.timeline.code import code_of
from profkit.timeline.code.frames import MODULE, read_frame
from tests.conftest import SHARED_TRACES

TRACE = SHARED_TRACES / "cpu_captures" / "allopts_w0.pt.trace.json.gz"
pytestmark = [pytest.mark.shared, pytest.mark.skipif(not TRACE.exists(), reason="the shared traces are not here")]


def test_every_operator_is_where_torch_says() -> None:
    with gzip.open(TRACE) as file:
        events = json.load(file)["traceEvents"]
    ops = sorted(
        (event for event in events if event.get("cat") == "cpu_op" and "Call stack" in event["args"]),
        key=lambda event: (event["ts"], -event["dur"]),
    )
    (trace,) = read_traces(str(TRACE))
    found = code_of(trace)
    assert found is not None
    assert found.joined is not None
    assert len(ops) == len(trace.ops)
    frames = found.joined.frames
    row = frames.at(trace.ops.thread, trace.ops.start_ns)
    for event, at in zip(ops, row.tolist(), strict=True):
        names = event["args"]["Call stack"].split(";")
        own = [frame for name in names if (frame := read_frame(name, {})) is not None and frame.is_own]
        place = found.places[int(found.joined.place_of_frame[at])]
        assert (place.file, place.function) == (own[0].file, own[0].function)
        module = [name for name in names if name.startswith(MODULE)]
        inner = frames.module[at]
        assert (trace.name(int(frames.rows.name[inner])) if inner >= 0 else "") == (module[0] if module else "")


def test_every_node_of_the_backward_pass_has_its_forward_operator() -> None:
    (trace,) = read_traces(str(TRACE))
    found = code_of(trace)
    assert found is not None
    assert found.joined is not None
    backward = found.joined.phases.backward
    pairs = {
        (trace.name(int(trace.ops.name[node])).rpartition(": ")[2], trace.name(int(trace.ops.name[forward])))
        for node, forward in zip(backward.rows.tolist(), backward.forward.tolist(), strict=True)
        if forward >= 0
    }
    made = {
        "AddmmBackward0": "aten::addmm",
        "GeluBackward0": "aten::gelu",
        "NativeLayerNormBackward0": "aten::native_layer_norm",
    }
    for node, forward in made.items():
        assert {operator for one, operator in pairs if one == node} == {forward}
    lost = backward.rows[backward.forward < 0]
    assert {trace.name(int(code)).rpartition("::")[2] for code in np.unique(trace.ops.name[lost])} <= {"AccumulateGrad"}
