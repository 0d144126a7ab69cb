"""The command as it is shown: pasteable, without secrets."""

import gzip
import json
import os

import pytest

from profkit.capture.command import redacted_command
from profkit.capture.doctor import _torch_checks
from profkit.capture.inside import export
from profkit.capture.inside.export import manifest, places_level, top_level, write_trace
from profkit.capture.lines import told
from profkit.capture.options import Options
from profkit.cli import capture as cli
from profkit.ingest.kineto.reader import read_trace


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["python", "train.py", "--lr", "3e-4"], "python train.py --lr 3e-4"),
        (
            ["python", "t.py", "--tokenizer", "gpt2", "--max-tokens=512"],
            "python t.py --tokenizer gpt2 --max-tokens=512",
        ),
        (["python", "t.py", "--api-key", "abc"], "python t.py --api-key '[redacted]'"),
        (["python", "t.py", "--api_key=abc", "x"], "python t.py '--api_key=[redacted]' x"),
        (["env", "HF_TOKEN=abc", "python", "a b.py"], "env 'HF_TOKEN=[redacted]' python 'a b.py'"),
        (["python", "skeleton_training_script.py"], "python skeleton_training_script.py"),
        (["python", "t.py", "hf_" + "a1" * 12], "python t.py '[redacted]'"),
        (["python", "-c", "print(1);" * 99], f"python -c '{'print(1);' * 99}'"),  # longer than a file name may be
    ],
)
def test_secrets_go_and_the_rest_stays(arguments, shown):
    assert redacted_command(arguments) == shown


RAW = """{
  "schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1000000,
  "traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 12.125, "dur": 3.000,
   "args": {"External id": 1}}
  ], "traceName": "x"
}"""


def test_what_a_capture_knows_is_spliced_around_the_profilers_own_text(tmp_path):
    (tmp_path / "raw").write_text(RAW)
    facts = {
        "pid": 7,
        "torch": "2.13.0",
        "command": "python t.py",
        "baseline": {"n": 2, "mean_ns": 50, "median_ns": 49},
        "fetches": [[11, 0, 1_012_000, 1_014_500, 8]],
        "counters": [[1_013_000, {"tokens": 100}]],
    }
    write_trace(tmp_path / "raw", tmp_path / "rank0.pt.trace.json.gz", facts)
    trace = read_trace(str(tmp_path / "rank0.pt.trace.json.gz"))
    assert trace.meta.unprofiled_step_ns == 50
    assert trace.meta.torch_version == "2.13.0"
    assert trace.meta.metadata["profkit_command"] == "python t.py"
    assert trace.meta.command == "python t.py"
    assert [int(end - start) for start, end in zip(trace.ops.start_ns, trace.ops.end_ns, strict=True)] == [3000]
    assert not list(tmp_path.glob("*.partial"))


def test_a_raw_file_that_is_no_trace_leaves_no_file(tmp_path):
    (tmp_path / "raw").write_text("{}")
    with pytest.raises(ValueError, match="no traceEvents"):
        write_trace(tmp_path / "raw", tmp_path / "x.gz", {})
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_what_is_not_known_is_absent_not_zero():
    assert json.dumps(top_level({"baseline": {"n": 0}})) == '{"profkit_unprofiled_steps": 0}'


def test_no_secret_of_the_script_is_in_what_the_capture_adds():
    secret = "ghp_" + "a1B2" * 9
    line = {"file": "train.py", "line": 3, "function": "step", "text": f"client = login('{secret}')"}
    thread = {"name": f"upload to https://me:{secret}@host/x", "thread": 8, "run_ns": 5, "wait_ns": 0}
    facts = {
        "command": "python train.py",
        "threads": [thread],
        "thread_lines": [{"thread": 8, "lines": [line]}],
        "worker_lines": {"fetch_ns": 9, "lines": [line]},
        "padding": {"of": secret, "n_batches": 2},
        "run": {"n": 9, "rare": {"lines": [line], "callee": f"token={secret}"}, "memory": {"held": {"name": secret}}},
        "loaders": [{"dataset": secret}],
        "loops": [{"optimizers": [secret], "spent_ns": 9, "is_recorded": True}],
        "found": {"texts": {f"train.py({secret}):3": line["text"]}, "calls": {secret: 1}, "modules": {secret: [2]}},
    }
    again = {**facts, "places": {"n_steps": 1}, "places_found": facts["found"]}
    listed = manifest([facts], capture_id="c", command="python train.py", details={})
    for written in (top_level(facts), places_level(again), listed):
        assert secret not in json.dumps(written)
    assert top_level(facts)["profkit_threads"][0]["name"] == "upload to https://[redacted]@host/x"
    assert top_level(facts)["profkit_run"]["rare"]["lines"][0]["text"] == "client = login('[redacted]')"


def test_without_a_process_that_has_torch_one_line_says_so(tmp_path):
    (line,) = told([], tmp_path)
    assert "never imported torch" in line


TIMED = {"n": 5, "mean_ns": 10_000_000, "median_ns": 10_000_000}
RECORDED = {
    "pid": 11,
    "trace": "rank0.pt.trace.json.gz",
    "n_steps": 5,
    "first_step": 15,
    "step_source": "the optimizer's step",
    "baseline": TIMED,
    "profiled": {**TIMED, "median_ns": 12_000_000, "mean_ns": 12_000_000},
    "after": {"n": 0},
    "stop_ns": 2_000_000,
    "export_ns": 3_000_000,
}


def test_a_line_says_what_was_recorded_and_how_long_the_script_waited(tmp_path):
    (line,) = told([{**RECORDED, "stalled_ns": 1_200_000_000, "why_steps": "chosen for 4 ranks"}], tmp_path)
    assert line.startswith(
        "rank 0: 5 steps (chosen for 4 ranks) from step 15 on, by the optimizer's step; 10.0 ms a step"
    )
    assert "the script waited 1.20 s for the profiler to start, stop and write" in line
    assert "batches" not in line


def test_processes_that_share_a_rank_are_told_apart(tmp_path):
    lines = told([RECORDED, {**RECORDED, "pid": 12}, {"rank": 1, "reason": "none"}], tmp_path)
    assert [line.partition(":")[0] for line in lines] == [
        "process 11 (rank 0, as others are)",
        "process 12 (rank 0, as others are)",
        "rank 1",
    ]


def test_a_step_that_holds_another_loop_is_named(tmp_path):
    (line,) = told([{**RECORDED, "fetches_per_step": [1, 1, 31, 1, 2], "odd_steps": [2]}], tmp_path)
    assert "step 17 fetches 31 batches, the others 1: is a validation in it?" in line
    assert line.count("batches") == 1


def test_a_driver_that_torch_refuses_is_no_missing_gpu():
    facts = {"torch": "2.13.0", "cuda": "13.0", "devices": [], "nvtx": True, "activities": ["CPU"]}
    said = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update"
    (gpu,) = [check for check in _torch_checks({**facts, "refusal": said}, "python") if check.name == "gpu"]
    assert (gpu.is_ok, "driver on your system is too old" in gpu.seen, "driver" in gpu.fix) == (False, True, True)


def written(folder, raw: str, **facts) -> str:
    """The text of the trace that is made of an export."""
    (folder / "raw").write_text(raw)
    write_trace(folder / "raw", folder / "x.gz", facts)
    return gzip.decompress((folder / "x.gz").read_bytes()).decode()


def annotated(name: str, ending: str = "") -> str:
    """Give an export whose only range has a name that the script gave it."""
    event = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": 7, "ts": 12.125, "dur": 3.0}
    head = {"schemaVersion": 1, "baseTimeNanoseconds": 1_234_567_890_123_456_789}
    return json.dumps(
        {**head, **({"run": ending} if ending else {}), "traceEvents": [event] * 3, "traceName": "x"}, indent=1
    )


@pytest.mark.parametrize("chunk_bytes", [7, 64, 4 * 2**20])
def test_a_captured_trace_holds_no_secret_that_a_script_put_into_it(tmp_path, monkeypatch, chunk_bytes):
    secret, other = "q7Rt" * 8, "Zk2m" * 8
    monkeypatch.setattr(export, "_CHUNK_BYTES", chunk_bytes)
    raw = annotated(f'say "login" api_key={secret}', f"postgres://svc:{other}@db/x")
    text = written(tmp_path, raw, command="python t.py")
    assert secret not in text
    assert other not in text
    trace = json.loads(text)
    assert trace["baseTimeNanoseconds"] == 1_234_567_890_123_456_789
    assert [event["name"] for event in trace["traceEvents"]] == ['say "login" api_key=[redacted]'] * 3


@pytest.mark.parametrize(
    "broken",
    [
        '"config": "{/"model/": /"gpt2/", /"api_key/": /"%s/"}"',  # as torch 2.13 writes a JSON string of a script's
        '"config": "{"api_key": "%s", "x": 1 "}"',
        '"config": {"api_key": "%s", oops}',
        'api_key="%s"',
    ],
)
def test_metadata_that_is_no_json_holds_no_secret_either(tmp_path, broken):
    secret, other = "q7Rt" * 8, "Zk2m" * 8
    lines = [f'"secrets": {{"wandb": "{other}"}},', broken % secret + ",", '"dir": "/data/",', '"lr": 1,']
    text = written(tmp_path, RAW.replace("{\n", "{\n" + "\n".join(lines) + "\n", 1), command="python t.py")
    assert secret not in text
    assert other not in text
    assert '"dir": "/data/",\n"lr": 1,' in text
    assert len(json.loads(text)["traceEvents"]) == 1


@pytest.mark.parametrize("name", ['{"run": "p", "api_key": "%s"}', '{/"run/": /"p/", /"api_key/": /"%s/"}'])
def test_a_range_whose_quotes_torch_does_not_escape_holds_no_secret_either(tmp_path, name):
    secret = "q7Rt" * 8
    text = written(tmp_path, annotated("NAME").replace("NAME", name % secret), command="python t.py")
    assert secret not in text
    assert len({event["name"] for event in json.loads(text)["traceEvents"]}) == 1


def test_what_holds_no_secret_stays_to_the_byte(tmp_path):
    raw = annotated("train step {key: value}", "s3://bucket/run?versionId=3")
    text = written(tmp_path, raw)
    assert text.removeprefix("{\n,") == raw.removeprefix("{").replace('"traceName": "x"', '"traceName": "x.gz"')


def test_of_the_environment_only_known_settings_are_kept(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in ("NCCL_DEBUG", "OMP_NUM_THREADS", "WANDB_API_KEY", "DATABASE", "CUDA_TOKEN"):
        monkeypatch.setenv(name, f"value of {name}")
    options = Options(folder="x")
    kept = cli._circumstances(options)["variables"]
    assert kept == {
        "CUDA_TOKEN": "[redacted]",
        "NCCL_DEBUG": "value of NCCL_DEBUG",
        "OMP_NUM_THREADS": "value of OMP_NUM_THREADS",
    }
