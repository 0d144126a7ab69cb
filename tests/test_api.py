"""What `profkit.triage` takes, and what a command without a path means."""

import json
import os
from pathlib import Path

import pytest

import profkit
from profkit.errors import TraceNotFoundError, UsageError
from tests.calling import profkit as run

ROOT = Path(__file__).resolve().parents[1]
TRACE = ROOT / "traces" / "baseline_cpu.pt.trace.json.gz"


def test_a_path_is_a_path_and_not_its_characters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").symlink_to(TRACE)  # what the first character of "trace.json" names
    with pytest.raises(TraceNotFoundError, match=r"trace\.json"):
        profkit.triage("trace.json")


@pytest.mark.parametrize("given", [str(TRACE), TRACE, [str(TRACE)], (TRACE,), iter([TRACE])])
def test_one_path_or_several_of_either_kind(given):
    assert profkit.triage(given).verdict.source == str(TRACE)


@pytest.mark.parametrize("given", [b"x", 5, None, [5], [b"x"], [], {}, [None]])
def test_what_names_no_file_is_refused(given):
    with pytest.raises(UsageError, match="triage"):
        profkit.triage(given)


def captured(folder: Path, *, name: str = "rank0.pt.trace.json.gz", at_s: int) -> None:
    """A capture's folder of that age."""
    folder.mkdir(parents=True)
    (folder / name).symlink_to(TRACE)
    manifest = {"schema": "profkit.capture/1", "capture_id": "x", "ranks": [{"rank": 0, "trace": name}]}
    (folder / "capture.json").write_text(json.dumps(manifest))
    os.utime(folder / "capture.json", (at_s, at_s))


def test_triage_without_a_path_judges_the_newest_capture_below_this_folder(tmp_path):
    none = run("triage", cwd=tmp_path)
    assert (none.returncode, "no capture with a trace" in none.stderr) == (2, True)
    captured(tmp_path / "profkit-capture", at_s=1_000)
    captured(tmp_path / "out" / "run 2", at_s=2_000)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "capture.json").write_text('{"schema": "someone else\'s", "ranks": []}')
    done = run("triage", "-f", "json", cwd=tmp_path)
    assert "reading the newest capture below this folder, out/run 2" in done.stderr
    assert json.loads(done.stdout)["verdict"]["source"].startswith("out/run 2")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["--", "python", "x.py", "-a", "b c"], "profkit run -- python x.py -a 'b c'"),
        (["train.py"], "profkit run -- python train.py"),
        (["torchrun", "t.py"], "profkit run -- torchrun t.py"),
    ],
)
def test_a_script_in_place_of_a_command_is_told_how_to_run(line, hint, tmp_path):
    done = run(*line, cwd=tmp_path)
    assert (done.returncode, hint in done.stderr) == (2, True)
