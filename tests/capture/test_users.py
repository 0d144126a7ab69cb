"""Scripts as people write them, none of them for profkit: they do what they did, and what can be captured is."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.ranks.fleet import triage
from tests.capture.running import manifest, run_forked

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

USERS = Path(__file__).resolve().parent / "users"
STEPS = {
    "accelerate_loop": 5,
    "by_hand": 0,  # neither optimizer nor module nor loader: nothing to see
    "char_gpt": 5,
    "cnn_epochs": 5,
    "dcgan": 5,
    "dqn": 5,
    "forecaster_cli": 5,
    "stream_workers": 6,  # whole rounds of two workers
    "swa_ema": 5,
    "threaded": 5,
}


def test_what_users_write_is_captured_and_does_what_it_did(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed here")
    scripts = [(str(USERS / f"{name}.py"),) for name in STEPS]
    plain = run_forked(tmp_path / "plain", scripts)
    captured = run_forked(tmp_path / "captured", scripts, out=tmp_path / "out")
    assert [one.out for one in captured] == [one.out for one in plain]
    assert all(one.out for one in plain)
    found = {one["pid"]: one for one in manifest(tmp_path / "out")["ranks"]}
    for name, one in zip(STEPS, captured, strict=True):
        told = found.get(one.pid, {"n_steps": 0})
        assert (name, told["n_steps"]) == (name, STEPS[name])
        if STEPS[name]:
            report = triage([str(tmp_path / "out" / told["trace"])])
            assert (name, report.ranks[0].steps.n) == (name, STEPS[name])
            assert report.verdict.next_tool.command


def test_every_script_is_tried():
    assert {path.stem for path in USERS.glob("*.py")} == {*STEPS, "spawn_ddp"}
