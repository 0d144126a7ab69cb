"""The workloads at tiny doses: all regimes run and repeat, and a recorded window holds what it should."""

import gzip
import hashlib
import json
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from workloads import record_traces, train  # noqa: E402
from workloads.capture import Window, scrub_trace, write_trace  # noqa: E402
from workloads.options import build_parser, resolve  # noqa: E402
from workloads.presets import DEVICE_TYPES, PRESETS, REGIMES  # noqa: E402
from workloads.ranges import NVTX_VARIABLE, PHASES  # noqa: E402
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
WINDOW = ["--wait", "4", "--warmup", "1", "--active", "3"]


@pytest.fixture(autouse=True)
def same_threads_after():
    n_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def run(capsys):
    def run_tiny(regime, *flags):
        assert train.main(["--regime", regime, *TINY, *TINY_BY_REGIME[regime], *flags]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return json.loads(line)

    return run_tiny


def parsed(*flags):
    parser = build_parser()
    args = parser.parse_args(flags)
    return resolve(parser, args, "cpu")


def is_inside(inner, outer):
    slack_us = 0.002  # ts and dur are rounded to 1 ns each
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack_us


@pytest.mark.parametrize("regime", REGIMES)
def test_a_regime_repeats_to_the_last_bit(run, regime):
    first, second = run(regime, "--steps", "6"), run(regime, "--steps", "6")
    assert first["final_loss"] == second["final_loss"]
    assert np.isfinite(first["final_loss"])
    assert first["steps_timed"] == len(first["step_ms"]) == 4
    assert first["step_mean_ms"] == pytest.approx(np.mean(first["step_ms"]))
    assert first["samples_per_s"] == pytest.approx(4 / first["step_mean_ms"] * 1e3)
    assert first["trace"] is None
    assert first["profiled_step_mean_ms"] is None


def test_the_seed_changes_the_loss_and_the_workers_do_not(run):
    alone = run("data", "--steps", "6")
    assert run("data", "--steps", "6", "--seed", "1")["final_loss"] != alone["final_loss"]
    assert run("data", "--steps", "6", "--num-workers", "1")["final_loss"] == alone["final_loss"]


def test_bf16_runs_the_forward_pass_in_another_precision(run):
    fp32, bf16 = run("baseline", "--steps", "3"), run("baseline", "--steps", "3", "--dtype", "bf16")
    assert bf16["final_loss"] != fp32["final_loss"]
    assert bf16["final_loss"] == pytest.approx(fp32["final_loss"], rel=0.05)


@pytest.mark.parametrize("regime", REGIMES)
def test_a_recorded_window_holds_whole_steps_with_their_ranges(run, regime, tmp_path):
    path = tmp_path / "new" / "run.pt.trace.json.gz"
    result = run(regime, *WINDOW, "--profile", str(path))
    trace = json.loads(gzip.decompress(path.read_bytes()))
    rows = [row for row in trace["traceEvents"] if row.get("ph") == "X"]
    steps = [row for row in rows if row["name"].startswith("ProfilerStep#")]
    assert [row["name"] for row in steps] == ["ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7"]
    for step in steps:
        inside = [row for row in rows if row is not step and is_inside(row, step)]
        phases = sorted((row for row in inside if row["name"] in PHASES), key=lambda row: row["ts"])
        assert [row["name"] for row in phases] == list(PHASES)
        (fetch,) = (row for row in inside if row["name"].endswith("DataLoaderIter.__next__"))
        assert is_inside(fetch, phases[0])
    assert trace["profkit_unprofiled_steps"] == result["steps_timed"] == 2
    assert trace["profkit_unprofiled_step_ns"] == pytest.approx(result["step_p50_ms"] * 1e6, abs=1)
    assert trace["profkit_unprofiled_step_mean_ns"] == pytest.approx(result["step_mean_ms"] * 1e6, abs=1)
    assert result["profiled_step_mean_ms"] > 0
    assert result["trace"] == str(path)


def test_a_recorded_file_names_no_machine_and_no_time(run, tmp_path):
    path = tmp_path / "run.pt.trace.json.gz"
    run("baseline", *WINDOW, "--profile", str(path))
    raw = path.read_bytes()
    trace = json.loads(gzip.decompress(raw))
    assert raw[4:8] == bytes(4)
    assert not raw[3] & 0x08  # FNAME
    assert trace["host_name"] == "scrubbed"
    assert trace["traceName"] == path.name


def test_shapes_are_recorded_only_on_request(run, tmp_path):
    plain, shapes = tmp_path / "plain.json", tmp_path / "shapes.json"
    run("baseline", *WINDOW, "--profile", str(plain))
    run("baseline", *WINDOW, "--profile", str(shapes), "--record-shapes")
    assert "Input Dims" not in plain.read_text()
    assert "Input Dims" in shapes.read_text()


def test_an_error_inside_the_window_leaves_no_profiler_running(monkeypatch, tmp_path):
    steps_left = iter(range(5))  # 4 waited, 1 warm-up, then fails in the first recorded step
    whole_step = train.train_step

    def failing_step(job, batches):
        next(steps_left)
        return whole_step(job, batches)

    monkeypatch.setattr(train, "train_step", failing_step)
    path = tmp_path / "run.json"
    with pytest.raises(StopIteration):
        train.main(["--regime", "baseline", *TINY, *WINDOW, "--profile", str(path)])
    assert not torch.autograd._profiler_enabled()
    assert not path.exists()


def test_nvtx_ranges_mark_steps_and_phases_on_request(run, monkeypatch):
    nvtx = pytest.importorskip("nvtx")
    names, annotate = [], nvtx.annotate
    monkeypatch.setattr(nvtx, "annotate", lambda name: names.append(name) or annotate(name))
    run("baseline", "--steps", "3")
    assert names == []
    monkeypatch.setenv(NVTX_VARIABLE, "1")
    run("baseline", "--steps", "3")
    assert names == [name for index in range(3) for name in (f"ProfilerStep#{index}", *PHASES)]


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
        (["--profile", "x.json", "--steps", "19"], "--profile needs 20 steps"),
        (["--profile", "x.json", "--wait", "2"], "--wait 2 leaves no unprofiled step"),
        (["--batch", "0"], "must be at least 1, not 0"),
        (["--item-sleep-ms", "-1"], "must be at least 0"),
    ],
)
def test_a_run_that_cannot_be_measured_is_a_usage_error(capsys, flags, message):
    with pytest.raises(SystemExit) as ended:
        parsed("--regime", "data", *flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_profiling_sets_the_steps_to_the_window():
    doses, window = parsed("--regime", "baseline", "--profile", "x.json")
    assert doses.steps == window.n_steps == 20


def test_workers_of_the_data_regime_are_recorded_in_whole_periods():
    _, window = parsed("--regime", "data", "--profile", "x.json", "--num-workers", "3")
    assert (window.skip, window.wait, window.active) == (3, 12, 9)
    odd = Window(skip=2, wait=10, warmup=2, active=8)
    assert odd.in_periods_of(1) == odd
    assert odd.in_periods_of(16) == Window(skip=16, wait=32, warmup=2, active=16)


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


def test_scrubbing_edits_two_names_and_no_number():
    text = '{"host_name": "box", "traceEvents": [{"ts": 4345934709677.850}], "traceName": "/tmp/a/t.json" }'
    scrubbed = scrub_trace(text, trace_name="b.json")
    wanted = text.replace("box", "scrubbed").replace("/tmp/a/t.json", "b.json")  # noqa: S108
    assert scrubbed == wanted


@pytest.mark.parametrize("secret", [f'"{socket.gethostname()}"', f'"{Path.cwd()}/model.py"'])
def test_scrubbing_refuses_what_still_names_the_machine(secret):
    with pytest.raises(ValueError, match="still holds"):
        scrub_trace(f'{{"a": {secret}, "traceName": "x"}}', trace_name="b.json")


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
            assert row["command"].split()[1:] == recipe.arguments("traces")
            assert (row["truth"], row["bottleneck"]) == (recipe.truth, recipe.bottleneck)
            parsed(*recipe.arguments("traces")[2:])


def test_recording_one_trace_keeps_the_other_rows(tmp_path):
    other = {"file": "kernel_cpu.pt.trace.json.gz", "regime": "kernel", "healthy": False}
    (tmp_path / "MANIFEST.toml").write_text(record_traces.manifest_text([other]), encoding="utf-8")
    assert record_traces.read_manifest(tmp_path / "MANIFEST.toml") == {other["file"]: other}
    assert record_traces.read_manifest(tmp_path / "none.toml") == {}
