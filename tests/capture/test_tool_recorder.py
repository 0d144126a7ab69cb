"""Under an Nsight tool: the range lies around the steady steps, each step is marked, torch's profiler stays off."""

import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from profkit.capture.inside import clock  # noqa: E402
from profkit.capture.inside.hooks import Hooks  # noqa: E402
from profkit.capture.inside.record import ranges  # noqa: E402
from profkit.capture.inside.record import recorder as tool_recorder  # noqa: E402
from profkit.capture.inside.record.ranges import tool_marks  # noqa: E402
from profkit.capture.options import Options, from_text  # noqa: E402
from profkit.ingest.nsys.nvtx import CUT_STEP  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def calls(monkeypatch):
    """What was asked of CUDA and NVTX, in order."""
    made = []
    monkeypatch.setattr(clock, "cuda_in_use", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: made.append("synchronize"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: made.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: made.append("stop"))
    marks = (lambda name: made.append(name) or name, lambda name: made.append(f"end {name}"))
    monkeypatch.setattr(tool_recorder, "tool_marks", lambda: marks)
    return made


def begun(tool, n_warmup=2, n_steps=1):
    recorder = tool_recorder.ToolRecorder(Options(folder="x", tool=tool), first_step=13, n_warmup=n_warmup)
    recorder.start()
    for _ in range(n_steps):
        recorder.step()
    return recorder


@pytest.mark.parametrize(("tool", "before"), [("nsys", ["synchronize", "start"]), ("ncu", [])])
def test_nsys_begins_before_the_warm_up_and_ncu_with_the_first_recorded_step(calls, tool, before):
    recorder = begun(tool)
    assert calls == before
    recorder.stop()
    calls.clear()
    recorder = begun(tool, n_steps=3)
    recorder.close_step()
    recorder.stop()
    recorder.stop()
    steps = ["ProfilerStep#15", "end ProfilerStep#15", "ProfilerStep#16", "end ProfilerStep#16"]
    assert calls == ["synchronize", "start", *steps, "synchronize", "stop"]


def test_where_ncu_recorded_no_step_it_is_not_stopped(calls):
    begun("ncu").stop()
    assert calls == []


def test_a_step_that_is_not_over_is_marked_as_cut(calls):
    begun("nsys", n_warmup=1).stop()
    marks = ["ProfilerStep#14", tool_recorder.CUT, "end ProfilerStep#14", f"end {tool_recorder.CUT}"]
    assert calls == ["synchronize", "start", *marks, "synchronize", "stop"]
    assert tool_recorder.CUT == CUT_STEP


def test_where_the_whole_run_is_recorded_steps_are_marked_without_cuda(calls, monkeypatch):
    monkeypatch.setattr(clock, "cuda_in_use", lambda: False)
    options = Options(folder="x", tool="nsys", marks_only=True)
    recorder = tool_recorder.ToolRecorder(options, first_step=3, n_warmup=1)
    recorder.start()
    recorder.step()
    recorder.close_step()
    recorder.stop()
    assert calls == ["ProfilerStep#4", "end ProfilerStep#4"]
    monkeypatch.setattr(tool_recorder, "tool_marks", lambda: None)
    with pytest.raises(RuntimeError, match="pip install nvtx"):
        tool_recorder.ToolRecorder(options, first_step=3, n_warmup=1)


class FakeDomain:
    """What the nvtx package gives where a tool wants the domain."""

    def __new__(cls, _name):
        return object.__new__(cls)

    def __init__(self, name):
        self.name = name
        self.started = []

    def get_event_attributes(self, message):
        return message

    def start_range(self, attributes):
        self.started.append(attributes)
        return len(self.started)

    def end_range(self, range_id):
        self.started.append(-range_id)


class FakeDummy:
    """What it gives where a tool does not: it takes the same calls and does nothing."""


@pytest.mark.parametrize("is_asked", [True, False])
def test_marks_reach_a_tool_that_does_not_know_the_question_of_the_nvtx_package(monkeypatch, is_asked):
    """nsys 2022.4 under nvtx 0.2.17: the package takes its silence for a no."""
    lib = SimpleNamespace(Domain=FakeDomain, DummyDomain=FakeDummy, DomainHandle=lambda name: f"handle of {name}")
    domain = FakeDomain("profkit") if is_asked else FakeDummy()
    fake = SimpleNamespace(enabled=lambda: True, get_domain=lambda _: domain, _lib=SimpleNamespace(lib=lib))
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    begin, end = tool_marks()
    assert begin("step 1") == 1
    end(1)


def test_the_fetch_has_torchs_name_where_a_tool_records(monkeypatch):
    """torch's own range, which says how the loader works, does not reach the tool."""
    begun = []
    monkeypatch.setattr(ranges, "tool_is_attached", lambda: True)
    monkeypatch.setattr(ranges, "tool_marks", lambda: (begun.append, lambda _: None))
    watched = Hooks(SimpleNamespace(phase=ranges.make_phase()))
    with watched._phase("data_loader", "enumerate(DataLoader)#X.__next__"), watched._phase("forward"):
        pass
    assert begun == ["enumerate(DataLoader)#X.__next__", "forward"]


def test_without_cuda_it_says_so(monkeypatch):
    monkeypatch.setattr(clock, "cuda_in_use", lambda: False)
    with pytest.raises(RuntimeError, match="does not use CUDA"):
        tool_recorder.ToolRecorder(Options(folder="x", tool="nsys"), first_step=0, n_warmup=1)


def test_without_the_nvtx_package_torchs_own_marks_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert tool_marks() == (torch.cuda.nvtx.range_start, torch.cuda.nvtx.range_end)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert tool_marks() is None


def test_the_tool_reaches_the_traced_process():
    assert from_text(Options(folder="x", tool="ncu").to_text()).tool == "ncu"
