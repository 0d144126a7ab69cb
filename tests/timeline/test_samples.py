"""CPU samples: which code the launching thread ran while the device waited for it."""

from pathlib import Path

import pytest

from profkit.api import triage
from profkit.cli import group
from profkit.ingest.read import read_traces
from profkit.model.finding import Finding
from profkit.timeline import Facts
from profkit.timeline.totals import sampled, waiting_samples
from tests.ingest.nsys_files import RANK0, Export

STEP, N_STEPS, ORIGIN = 10_000_000, 6, 10_000_000
PROGRAM = "/job/sim"


def job(*, every_ns: int = 200_000, tid: int | None = None) -> Export:
    """Give a host that works 8 of the 10 ms of each step, and is sampled throughout; the device works 2 ms."""
    export = Export()
    for step in range(N_STEPS):
        begin = ORIGIN + step * STEP
        export.range(begin, begin + STEP, f"step {step}")
        export.kernel(begin + 8_000_000, begin + STEP)
        for at in range(begin, begin + STEP, every_ns):
            is_late = at % STEP >= 8_000_000
            frames = (
                [("cudaEventQuery", "/x/libcudart.so")]
                if is_late
                else [("memcpy", "/lib/libc.so.6"), ("fill(int)", PROGRAM)]
            )
            export.sample(at, *frames, tid=tid)
    return export


def findings(export: Export, folder: Path) -> tuple[Finding, ...]:
    return triage(str(export.write(folder / "profile.sqlite"))).ranks[0].findings


def statements(export: Export, folder: Path) -> str:
    return " | ".join(one.statement for finding in findings(export, folder) for one in finding.evidence)


def test_samples_of_the_idle_time_are_evidence(tmp_path: Path) -> None:
    said = statements(job(), tmp_path)
    assert (
        "while the GPU waits for a launch, 240 CPU samples find the launching thread 100.0 % in memcpy (libc.so.6)"
        in said
    )
    assert "100.0 % are in fill (sim) or in a library that it calls" in said
    assert "cudaEventQuery" not in said


def test_too_few_samples_say_nothing(tmp_path: Path) -> None:
    assert "CPU samples" not in statements(job(every_ns=2_000_000), tmp_path)


def test_samples_of_another_thread_say_nothing(tmp_path: Path) -> None:
    assert "CPU samples" not in statements(job(tid=RANK0 + 1), tmp_path)


def test_every_sample_counts_once(tmp_path: Path) -> None:
    (trace,) = read_traces(str(job().write(tmp_path / "profile.sqlite")))
    assert sum(one.n for one in sampled(trace)) == len(trace.samples) == 300
    assert [(one.words, one.n) for one in sampled(trace)] == [
        ("memcpy (libc.so.6)", 240),
        ("cudaEventQuery (libcudart.so)", 60),
    ]
    assert sum(one.share for one in waiting_samples(Facts.of(trace))) == pytest.approx(1)


def test_the_command_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(job().write(tmp_path / "profile.sqlite"))
    group.main(["info", path, "--stats"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "80.0 %       240  144: memcpy (libc.so.6), called from fill (sim)" in shown
    group.main(["info", path, "--stats", "--between", "0ms:5ms"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "100.0 %        25" in shown
    assert "cudaEventQuery" not in shown
