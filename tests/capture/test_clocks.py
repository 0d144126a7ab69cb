"""Samples of clocks beside a command: from a stand-in for nvidia-smi, and from files as Linux writes them."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from profkit.capture.options import Options
from profkit.capture.place import machine, work_folder
from profkit.capture.tools import clocks
from profkit.capture.tools.clocks import ClockWatch, Sample, sample_of, summary, watched

SMI = """#!{python}
import os, sys, time
open({calls!r}, "a").write(repr((sys.argv[1:], os.getpid())) + "\\n")
if {old!r} and "clocks_event_reasons" in sys.argv[1]:
    sys.exit("Field is not a valid field to query.")
while True:
    now = time.time()
    text = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{{int(now % 1 * 1000):03d}}"
    for line in {lines!r}:
        print(text + ", " + line, flush=True)
    if "-lms" not in sys.argv:
        break
    time.sleep(0.02)
"""
HOT = "GPU-11, 1410, 1980, 0x0000000000000020, 89, 512.34, 700.00, 700.00"
IDLE = "GPU-22, 345, 1980, 0x0000000000000001, 40, 70.00, 700.00, 700.00"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts a stand-in on PATH that prints these lines; gives the file of its calls."""
    calls = tmp_path / "calls"
    calls.touch()

    def install(*lines: str, old: bool = False) -> Path:
        path = tmp_path / "bin" / "nvidia-smi"
        path.parent.mkdir()
        path.write_text(SMI.format(python=sys.executable, calls=str(calls), lines=lines, old=old))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
        return calls

    monkeypatch.setattr(clocks, "_CPU", tmp_path / "no cpufreq")
    return install


def sampled(folder: Path, n: int) -> ClockWatch:
    """What was sampled until there were so many, or for ten seconds."""
    with watched(Options(folder=str(folder), capture_id="one")) as watch:
        for _ in range(1000):
            if len(watch.samples) >= n:
                break
            time.sleep(0.01)
    return watch


def facts(**more: object) -> dict[str, object]:
    """Those of a process on this machine that used the hot GPU."""
    now = time.time_ns()
    told = {"machine": machine(), "device": {"type": "cuda"}, "gpu_uuid": "11"}
    return {**told, "recorded_unix_ns": [now - 60 * 10**9, now + 10**9], **more}


@pytest.mark.parametrize("old", [False, True], ids=["event reasons", "throttle reasons"])
def test_a_gpu_that_is_too_hot_is_sampled(tmp_path, smi, old):
    calls = smi(HOT, IDLE, old=old)
    watch = sampled(tmp_path, 12)
    told = watch.of(facts())["clocks"]
    assert told["n"] == told["n_thermal"] >= 5
    assert (told["held_mhz"], told["highest_mhz"], told["temperature_c"]) == (1410, 1980, 89)
    assert (told["power_mw"], told["limit_mw"], told["default_limit_mw"]) == (512340, 700000, 700000)
    assert watch.of(facts(gpu_uuid="22"))["clocks"] == {"n": 0}, "idle is no throttling"
    assert watch.of(facts(gpu_uuid="33")) == {}, "another GPU"
    assert watch.of(facts(gpu_uuid="")) == {}, "one of several"
    assert watch.of(facts(device={"type": "cpu"}, gpu_uuid="")) == {}, "a GPU's clock is not the CPU's"
    assert watch.of(facts(recorded_unix_ns=[1, 2])) == {}, "another time"
    assert watch.of({}) == {}
    (_, pid) = eval(calls.read_text().splitlines()[-1])  # noqa: S307 - the stand-in wrote it
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_single_gpu_needs_no_id(tmp_path, smi):
    smi(HOT)
    watch = sampled(tmp_path, 3)
    assert watch.of(facts(gpu_uuid=""))["clocks"]["n"] >= 3
    assert watch.of(facts(gpu_uuid="", machine="another")) == {}


def test_it_ends_when_a_recording_is_there(tmp_path, smi, monkeypatch):
    smi(HOT)
    monkeypatch.setattr(clocks, "_LOOK_S", 0.01)
    monkeypatch.setattr(clocks, "_LINGERS_S", 0.01)
    folder = work_folder(tmp_path, "one")
    folder.mkdir(parents=True)
    with watched(Options(folder=str(tmp_path), capture_id="one")) as watch:
        while not watch.samples:
            time.sleep(0.01)
        (folder / "rank0.raw").touch()
        assert watch.tool.wait(10) != 0


@pytest.mark.parametrize(
    "line",
    [
        "GPU-11, [N/A], 1980, 0x20, 89, 512.34, 700.00, 700.00",
        "GPU-11, 1410, 1980, [N/A], 89, 512.34, 700.00, 700.00",
        "GPU-11, 1410, 1980, 0x20",
        "NVIDIA H100",
        "GPU-11, 1e99, 1980, 0x20, 89, 512.34, 700.00, 700.00",
        "",
    ],
)
def test_lines_that_name_no_clock_are_no_samples(tmp_path, smi, line):
    smi(line)
    assert sample_of(f"2026/11/22 10:00:00.000, {line}".encode()) is None
    with watched(Options(folder=str(tmp_path), capture_id="one")) as watch:
        time.sleep(0.2)
    assert not watch.samples


def test_where_power_is_not_told_the_clock_still_is():
    one = sample_of(b"2026/11/22 10:00:00.000, GPU-1, 1410, 1980, 0x4, [N/A], [N/A], [N/A], [N/A]")
    assert one is not None
    told = summary([one])
    assert told["n_power"] == 1
    assert not {"power_mw", "limit_mw", "temperature_c"} & set(told)


def test_nothing_is_started_for_the_cpu(tmp_path, smi):
    calls = smi(HOT)
    with watched(Options(folder=str(tmp_path), capture_id="one", device="cpu")) as watch:
        time.sleep(0.05)
    assert not watch.samples
    assert not calls.read_text()


def core(folder: Path, number: int, khz: int, throttled_ms: int) -> None:
    """A core's files."""
    place = folder / f"cpu{number}"
    for name, value in {
        "cpufreq/scaling_cur_freq": khz,
        "cpufreq/cpuinfo_max_freq": 4_000_000,
        "thermal_throttle/package_throttle_total_time_ms": throttled_ms,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{value}\n")


def test_of_a_cpu_the_fastest_core_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(clocks, "_CPU", tmp_path)
    monkeypatch.setenv("PATH", "")
    core(tmp_path, 0, 800_000, 500)
    core(tmp_path, 1, 2_400_000, 500)
    (tmp_path / "cpufreq").mkdir()
    watch = sampled(tmp_path / "out", 3)
    told = watch.of(facts(device={"type": "cpu"}))["clocks"]
    assert (told["mhz"], told["highest_mhz"], told["throttled_ms"]) == (2400, 4000, 0)
    assert watch.of(facts(device={"type": "cpu"}, machine="another")) == {}
    assert watch.of(facts()) == {}, "a CPU's clock is not the GPU's"


def test_throttled_time_is_that_between_the_samples():
    samples = [Sample(at * 10**8, "", 2000, 4000, throttled_ms=700 + at * 60) for at in range(11)]
    told = summary(samples)
    assert (told["throttled_ms"], told["sampled_ms"]) == (600, 1000)


def test_samples_come_into_the_trace() -> None:
    pytest.importorskip("torch")
    from profkit.capture.inside.added import top_level

    assert top_level({"clocks": {"n": 7}})["profkit_clocks"] == {"n": 7}
    assert "profkit_clocks" not in top_level({})


def test_the_facts_of_a_process_name_machine_and_device():
    pytest.importorskip("torch")
    from profkit.capture.inside.export import manifest
    from profkit.capture.inside.store import _process

    told = _process()
    assert told["machine"] == machine()
    assert told["gpu_uuid"] == ""
    kept = json.dumps(manifest([{**told, "machine": "here"}], capture_id="", command="", details={}))
    assert "machine" not in kept
    assert "gpu_uuid" not in kept


def test_the_clock_that_is_held_is_that_of_the_main_reason():
    heat, power = (Sample(1, "GPU-1", mhz, 1980, reasons) for mhz, reasons in ((1400, 0x40), (1900, 0x4)))
    told = summary([heat, heat, power])
    assert (told["held_mhz"], told["n_thermal"], told["n_power"]) == (1400, 2, 1)
