"""Under an Nsight tool: the range lies around the steady steps, each step is marked, torch's profiler stays off."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from profkit.capture.inside import clock  # noqa: E402
from profkit.capture.inside.record import tool_recorder  # noqa: E402
from profkit.capture.inside.record.ranges import tool_marks  # noqa: E402
from profkit.capture.options import Options, from_text  # noqa: E402

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


def recorded(tool):
    recorder = tool_recorder.ToolRecorder(Options(folder="x", tool=tool), first_step=13, n_warmup=2)
    recorder.start()
    for _ in range(3):
        recorder.step()
    recorder.stop()
    recorder.stop()


def test_nsys_begins_before_the_warm_up_and_the_marks_after_it(calls):
    recorded("nsys")
    steps = ["ProfilerStep#15", "end ProfilerStep#15", "ProfilerStep#16", "end ProfilerStep#16"]
    assert calls == ["synchronize", "start", *steps, "synchronize", "stop"]


def test_ncu_begins_with_the_first_recorded_step(calls):
    recorded("ncu")
    steps = ["ProfilerStep#15", "end ProfilerStep#15", "ProfilerStep#16", "end ProfilerStep#16"]
    assert calls == ["synchronize", "start", *steps, "synchronize", "stop"]
    calls.clear()
    recorder = tool_recorder.ToolRecorder(Options(folder="x", tool="ncu"), first_step=13, n_warmup=2)
    recorder.start()
    recorder.step()
    assert calls == []
    recorder.stop()
    assert calls == []


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
