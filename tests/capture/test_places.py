"""The second window: lines and modules from steps that follow the timed ones, which it leaves as they are."""

import gzip
import json
import signal
import sys
from decimal import Decimal

import pytest

from profkit.api import triage
from profkit.ingest.discover import find_sources
from tests.capture.running import SCRIPTS, capture, manifest, names, run_forked, trace, trace_of

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LAYERED = str(SCRIPTS / "layered.py")
LINES = {text.strip(): number for number, text in enumerate((SCRIPTS / "layered.py").read_text().splitlines(), 1)}
WAITS = "seen = loss.item()  # the line that waits"


def places(folder, name="rank0.places.json.gz"):
    """The content of the file of the second window."""
    with gzip.open(folder / name) as file:
        return json.load(file, parse_float=Decimal)


def calls(content):
    """The Python calls: name, arguments, the name of the call around, and the start."""
    events = [event for event in content["traceEvents"] if event.get("cat") == "python_function"]
    found = {event["args"]["Python id"]: event for event in events}
    around = [found.get(event["args"]["Python parent id"]) or {} for event in events]
    starts = [content["baseTimeNanoseconds"] + round(Decimal(event["ts"]) * 1000) for event in events]
    return [
        (event["name"], event["args"], outer.get("name"), start)
        for event, outer, start in zip(events, around, starts, strict=True)
    ]


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A folder with the capture of a script that runs on, and what the script wrote with it and without."""
    folder = tmp_path_factory.mktemp("places")
    (done,) = run_forked(folder / "captured", [("layered.py", "40")], out=folder / "out")
    (plain,) = run_forked(folder / "plain", [("layered.py", "40")])
    assert (done.code, done.out) == (0, plain.out), "the script computes what it computed"
    return folder / "out"


ENDS = {"raise": ("layered.py", "40", "28", "raise"), "sigterm": ("layered.py", "40", "27", "sigterm")}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder of captures of scripts that end in the second window, or record by themselves; how each ended."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "profiled.py").write_text(PROFILED.format(path=LAYERED))
    scripts = {**ENDS, "profiled": (str(folder / "profiled.py"),), "plain": ("layered.py", "34")}
    ran = run_forked(folder / "ran", [*scripts.values()], out=folder / "out")
    return folder / "out", dict(zip(scripts, ran, strict=True))


def told_of(folder, pid):
    """What capture.json says of a process."""
    return next(one for one in manifest(folder)["ranks"] if one["pid"] == pid)


def test_two_steps_are_recorded_again_after_the_timed_ones(captured):
    timed, again = trace(captured), places(captured)
    assert names(timed) == [f"ProfilerStep#{step}" for step in range(15, 20)]
    assert names(again) == ["ProfilerStep#27", "ProfilerStep#28"]
    assert not [event for event in timed["traceEvents"] if event.get("cat") == "python_function"]
    assert again["profkit_places_of"] == "rank0.pt.trace.json.gz"
    assert again["profkit_capture_id"] == timed["profkit_capture_id"] == manifest(captured)["capture_id"]
    assert again["traceName"] == "rank0.places.json.gz"
    ops = [event for event in again["traceEvents"] if event.get("cat") == "cpu_op"]
    assert any("Input Dims" in event["args"] for event in ops)
    told = manifest(captured)["ranks"][0]["places"]
    assert (told["trace"], told["n_steps"], told["is_cut"]) == ("rank0.places.json.gz", 2, False)
    assert told["stalled_ns"] > 0
    assert not {"found", "places_found"} & manifest(captured)["ranks"][0].keys()


def test_a_call_names_the_line_of_the_script_that_made_it(captured):
    content = places(captured)
    assert any(name.endswith("layered.py") for name in content["profkit_user_files"])
    assert not any(name.startswith(("torch/", "profkit/", "contextlib")) for name in content["profkit_user_files"])
    told = content["profkit_call_lines"]
    lines = dict(zip(told["unix_ns"], told["line"], strict=True))
    found = calls(content)
    items = [(lines.get(unix_ns), around) for name, _, around, unix_ns in found if "method item" in name]
    assert len(items) == 2
    assert {line for line, _ in items} == {LINES[WAITS]}
    assert all("layered.py" in around and around.endswith(": train") for _, around in items)
    relu = [lines[unix_ns] for name, _, _, unix_ns in found if "method relu" in name]
    assert set(relu) == {LINES["hidden = torch.relu(self.up(x))"]}
    assert WAITS in [
        text for place, text in content["profkit_source_lines"].items() if place.endswith(f":{LINES[WAITS]}")
    ]


def test_modules_are_named_as_in_the_script(captured):
    modules = places(captured)["profkit_modules"]
    assert modules["Sequential_0"] == "network"
    assert (modules["Layer_0"], modules["Layer_2"]) == ("network.0", "network.2")
    assert [modules[f"Linear_{number}"] for number in (0, 1, 5)] == ["network.0.up", "network.0.down", "network.2.down"]


def test_only_the_scripts_own_calls_their_children_and_modules_stay(captured):
    content = places(captured)
    own = tuple(content["profkit_user_files"])
    for name, _, around, _ in calls(content):
        is_own = name.startswith(own)
        assert is_own or name.startswith("nn.Module: ") or around.startswith(own) or around.endswith("wrapper"), name
        assert " at 0x" not in name


def test_the_second_window_is_no_rank_and_no_trace_of_its_own(captured):
    assert find_sources([str(captured)]) == [str(captured / "rank0.pt.trace.json.gz")]
    assert triage(captured).ranks[0].steps.n == 5


@pytest.mark.long(5)
@pytest.mark.parametrize(("how", "code", "n_whole"), [("raise", 1, 1), ("sigterm", -signal.SIGTERM, 0)])
def test_a_run_that_ends_in_the_second_window_keeps_the_timed_trace_and_whole_steps(how, code, n_whole, ended):
    folder, ran = ended
    assert ran[how].code == code
    assert trace_of(folder, ran[how].pid)["profkit_is_cut"] is False
    told = told_of(folder, ran[how].pid)
    assert not told["is_failure"]
    if n_whole:
        content = places(folder, told["places"]["trace"])
        assert content["profkit_places_steps"] == n_whole
        assert content["profkit_modules"]["Layer_1"] == "network.1"
    else:
        assert not (folder / told["trace"].replace(".pt.trace.", ".places.")).exists()
        assert told["places"]["reason"] == "the run ended"


@pytest.mark.long(3)
def test_no_stacks_leaves_it_out(tmp_path):
    done = capture(tmp_path / "out", sys.executable, LAYERED, "40", options=("--no-stacks",))
    assert done.code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["capture.json", "rank0.pt.trace.json.gz"]
    assert "places" not in manifest(tmp_path / "out")["ranks"][0]


PROFILED = """
import sys, torch
sys.argv = ["layered.py", "34"]
source = open({path!r}).read().replace("for step in", "profiler = torch.profiler.profile()\\n    for step in")
source = source.replace("        loss = ", "        step == 27 and profiler.start()\\n        loss = ")
exec(compile(source, {path!r}, "exec"))
"""
"""The script with a profiler of its own that begins while Python calls are counted, and runs to the end."""


def test_a_profiler_of_the_scripts_own_goes_first(ended):
    folder, ran = ended
    done = ran["profiled"]
    assert "loss" in done.out, done.err
    assert names(trace_of(folder, done.pid))[0] == "ProfilerStep#15"
    assert told_of(folder, done.pid)["places"]["reason"] == "the script started its own profiler"
    assert ran["plain"].out == done.out
