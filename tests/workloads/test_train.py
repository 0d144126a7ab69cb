"""The workloads at tiny doses: all regimes run and repeat, and `profkit capture` sees their phases."""

import hashlib
import json
import socket
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.capture.running import capture, per_step, trace  # noqa: E402
from tests.conftest import IN_FULL  # noqa: E402
from workloads import record_traces, train  # noqa: E402
from workloads.options import build_parser, resolve  # noqa: E402
from workloads.presets import DEVICE_TYPES, PRESETS, REGIMES  # noqa: E402
from workloads.scrub import scrub_trace, write_trace  # noqa: E402
from workloads.timing import summarise  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
TINY_DOSES = {"batch": 4, "hidden": 8, "features": 8, "classes": 4, "samples": 16, "heap-mib": 8}
TINY = ["--device=cpu", "--json", *(f"--{name}={value}" for name, value in TINY_DOSES.items())]
TINY_BY_REGIME = {
    "baseline": [],
    "data": ["--item-sleep-ms", "0.1", "--item-rounds", "1"],
    "overhead": ["--rounds", "2"],
    "kernel": ["--rounds", "2"],
}


@pytest.fixture
def run(printed):
    return lambda regime, *flags: printed(train, "--regime", regime, *TINY, *TINY_BY_REGIME[regime], *flags)


def parsed(*flags):
    parser = build_parser()
    args = parser.parse_args(flags)
    return resolve(parser, args, "cpu")


@pytest.mark.parametrize("regime", REGIMES)
def test_a_regime_repeats_to_the_last_bit(run, regime):
    first, second = run(regime, "--steps", "6"), run(regime, "--steps", "6")
    assert first["final_loss"] == second["final_loss"]
    assert np.isfinite(first["final_loss"])
    assert first["steps_timed"] == len(first["step_ms"]) == 4
    assert first["step_mean_ms"] == pytest.approx(np.mean(first["step_ms"]))
    assert first["samples_per_s"] == pytest.approx(4 / first["step_mean_ms"] * 1e3)


def test_the_seed_changes_the_loss_and_the_workers_do_not(run):
    alone = run("data", "--steps", "6")
    assert run("data", "--steps", "6", "--seed", "1")["final_loss"] != alone["final_loss"]
    assert run("data", "--steps", "6", "--num-workers", "1")["final_loss"] == alone["final_loss"]


def test_bf16_runs_the_forward_pass_in_another_precision(run):
    fp32, bf16 = run("baseline", "--steps", "3"), run("baseline", "--steps", "3", "--dtype", "bf16")
    assert bf16["final_loss"] != fp32["final_loss"]
    assert bf16["final_loss"] == pytest.approx(fp32["final_loss"], rel=0.05)


@pytest.mark.sampled
@pytest.mark.skipif(not IN_FULL, reason="tests/test_ground_truth.py captures all regimes as well: make full")
def test_a_capture_sees_the_phases_and_changes_no_loss(run, tmp_path):
    workload = [sys.executable, "-m", "workloads.train", "--regime", "data", *TINY, *TINY_BY_REGIME["data"]]
    captured = capture(tmp_path / "out", *workload)
    assert json.loads(captured.out)["final_loss"] == run("data")["final_loss"]
    content = trace(tmp_path / "out")
    for phase in ("data_loader", "forward", "backward", "optimizer"):
        assert per_step(content, phase) == [1] * 5


def test_the_human_line_gives_the_numbers_of_the_json_line(capsys):
    flags = [flag for flag in TINY if flag != "--json"]
    assert train.main(["--regime", "kernel", *flags, "--steps", "4"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("kernel on cpu: step mean ")
    assert "(n=2)" in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "2"], "--steps 2 leaves no step to time after the first 2"),
        (["--batch", "0"], "must be at least 1, not 0"),
        (["--item-sleep-ms", "-1"], "must be at least 0"),
    ],
)
def test_a_run_that_cannot_be_measured_is_a_usage_error(capsys, flags, message):
    with pytest.raises(SystemExit) as ended:
        parsed("--regime", "data", *flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_every_regime_has_its_doses_on_every_device():
    assert set(PRESETS) == {(regime, device) for regime in REGIMES for device in DEVICE_TYPES}
    assert PRESETS["data", "cuda"].item_sleep_ms == 2.0
    assert PRESETS["overhead", "cuda"].rounds == 48
    assert PRESETS["kernel", "cuda"].rounds == 8


@pytest.mark.parametrize("durations_ns", [[5], [3, 1], [10, 20, 40, 30, 1000]])
def test_step_times_are_summed_up_as_numpy_does(durations_ns):
    times = summarise(durations_ns, batch=2)
    assert times.p50_ns == pytest.approx(np.percentile(durations_ns, 50))
    assert times.p95_ns == pytest.approx(np.percentile(durations_ns, 95))
    assert times.samples_per_s == pytest.approx(2 / np.mean(durations_ns) * 1e9)


def test_no_steps_have_no_summary():
    with pytest.raises(ValueError, match="no step"):
        summarise([], batch=1)


def test_scrubbing_edits_a_name_and_no_number():
    text = '{"host_name": "box", "traceEvents": [{"ts": 4345934709677.850}]}'
    assert scrub_trace(text) == text.replace("box", "scrubbed")


@pytest.mark.parametrize("secret", [f'"{socket.gethostname()}"', f'"{Path.cwd()}/model.py"'])
def test_scrubbing_refuses_what_still_names_the_machine(secret):
    with pytest.raises(ValueError, match="still holds"):
        scrub_trace(f'{{"a": {secret}}}')


def test_the_same_text_gives_the_same_bytes(tmp_path):
    for name in ("one.json.gz", "two.json.gz"):
        write_trace(tmp_path / name, "{}")
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()


def test_the_manifest_lists_every_committed_trace_as_it_is():
    rows = tomllib.loads((ROOT / "traces" / "MANIFEST.toml").read_text(encoding="utf-8"))["trace"]
    recipes = {recipe.file: recipe for recipe in record_traces.RECIPES}
    on_disk = {path.name for path in (ROOT / "traces").glob("*.gz")}
    assert {row["file"] for row in rows} >= set(recipes)
    assert {row["file"] for row in rows} >= on_disk
    for row in rows:
        data = (ROOT / "traces" / row["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"]
        assert len(data) < 1e6
        if row["file"] in recipes:
            recipe = recipes[row["file"]]
            assert row["command"] == recipe.command
            assert (row["truth"], row["bottleneck"]) == (recipe.truth, recipe.bottleneck)
            parsed(*recipe.arguments()[2:])


def test_recording_one_trace_keeps_the_other_rows(tmp_path):
    other = {"file": "kernel_cpu.pt.trace.json.gz", "regime": "kernel", "healthy": False}
    (tmp_path / "MANIFEST.toml").write_text(record_traces.manifest_text([other]), encoding="utf-8")
    assert record_traces.read_manifest(tmp_path / "MANIFEST.toml") == {other["file"]: other}
    assert record_traces.read_manifest(tmp_path / "none.toml") == {}
