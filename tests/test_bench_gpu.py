"""The one call for a machine with a GPU: a stage that fails costs the others nothing; what comes back is bounded."""

import json
import sys
import tarfile

import pytest

from bench import gpu


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Run the call with these stages in place of its own; its results and exit code."""

    def run(**stages):
        monkeypatch.setattr(gpu, "STAGES", stages)
        monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path), "--only", *stages])
        code = gpu.main()
        return json.loads((tmp_path / "results.json").read_text()), code

    return run


def test_a_stage_that_fails_is_said_and_the_next_one_runs(called):
    def failing(_):
        raise ValueError("no such device")

    results, code = called(first=failing, second=lambda _: {"n": 3})
    assert results["first"] == {"error": "ValueError: no such device"}
    assert results["second"] == {"n": 3}
    assert code == 1


def test_what_comes_back_is_bounded_and_says_what_was_left(called, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "MOST_BYTES", 1000)

    def writing(call):
        (call.work / "small").write_bytes(b"1" * 400)
        (call.work / "large").write_bytes(b"2" * 900)
        return {}

    results, code = called(writes=writing)
    assert (results["left_out"], code) == (["large"], 0)
    with tarfile.open(tmp_path / "captures.tar.gz") as packed:
        assert packed.getnames() == ["small"]


def test_an_intervention_that_cannot_run_keeps_what_was_measured(tmp_path, monkeypatch):
    call = gpu.Call(tmp_path, "cpu", quick=True, budget_s=10)
    steps = iter((100.0, 50.0, 110.0))
    monkeypatch.setattr(
        call, "step_ns", lambda *_, **__: next(steps, None) or (_ for _ in ()).throw(ValueError("gone"))
    )
    told = gpu._trial(call, "data", (), {}, ("--num-workers", "8"), {})
    assert told == {"regime": "data", "error": "gone", "before": [100.0, 110.0], "after": [50.0]}
