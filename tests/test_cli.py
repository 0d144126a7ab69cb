"""The command line as a user meets it: output, exit codes, one-line errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.cli import COMMANDS
from profkit.testing import span, to_json
from tests.calling import profkit
from tests.conftest import ROOT

OVERHEAD = ROOT / "traces" / "overhead_cpu.pt.trace.json.gz"
DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"


def started(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run profkit in a process of its own, as a shell does."""
    command = [sys.executable, "-m", "profkit", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=ROOT)


def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run profkit in a process that is forked rather than started."""
    done = profkit(*arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())


def test_triage_prints_the_verdict_first() -> None:
    done = started("triage", OVERHEAD)
    assert done.returncode == 0
    assert done.stderr == b""
    first = next(line for line in done.stdout.decode().splitlines() if line.strip())
    assert "OVERHEAD-BOUND" in first
    assert b"\x1b" not in done.stdout


def test_standard_input() -> None:
    done = started("triage", "-", "-f", "json", stdin=DATA.read_bytes())
    document = json.loads(done.stdout)
    assert document["verdict"]["bottleneck"] == "data-bound"
    assert document["ranks"][0]["source"] == "standard input"


def test_the_suffix_of_the_output_picks_the_format(tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    done = run("triage", DATA, "-o", out)
    assert done.returncode == 0
    assert done.stdout == b""
    assert out.read_text().startswith("## profkit: data-bound")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_steps_narrow_the_window() -> None:
    document = json.loads(run("triage", DATA, "--steps", "2:5", "-f", "json").stdout)
    assert document["ranks"][0]["window"]["n_steps"] == 3
    assert run("triage", DATA, "--steps", "90:99").returncode == 2
    assert run("triage", DATA, "--steps", "x").returncode == 2


def test_the_users_command_is_in_the_next_command() -> None:
    document = json.loads(run("triage", DATA, "--command", "python my.py --lr 1", "-f", "json").stdout)
    assert document["verdict"]["next_tool"]["command"].endswith("python my.py --lr 1")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"hello world", "not a trace"),
        (b"PK\x03\x04 zip", "a ZIP archive"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": []}', "no events"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "x", "cat": "cpu_op"', "ends inside event 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_3(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    done = run("triage", path)
    assert done.returncode == 3
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("profkit: ")
    assert str(path) in lines[0]
    assert says in lines[0]
    assert len(lines) <= 2
    assert done.stdout == b""


def test_a_name_longer_than_the_system_takes_is_a_missing_file() -> None:
    for done in (run("triage", "n" * 300), run("triage", "n" * 300, "m" * 300)):
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.endswith(b": file name too long\n  hint: check the path\n"), done.stderr
    assert b"no such command" in run("n" * 300).stderr


def test_a_missing_file_and_a_bad_command() -> None:
    assert run("triage", "nothing.json").returncode == 3
    assert run("triage", "--nothing").returncode == 2
    assert run("nothing").returncode == 2
    assert run("explain", "host.snyc").returncode == 2
    assert b"did you mean host.sync" in run("explain", "host.snyc").stderr


def test_one_bad_trace_of_several_is_a_failure_in_the_report(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    done = run("triage", DATA, bad, "-f", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert len(document["ranks"]) == 1
    assert document["failures"][0]["source"] == str(bad)
    assert run("triage", bad, bad).returncode == 3


def test_a_folder_is_its_traces_by_rank(tmp_path: Path) -> None:
    rows = [span("ProfilerStep#1", 10**9, 2 * 10**9), span("x", 10**9, 2 * 10**9, cat="cpu_op")]
    for rank in (10, 9, 2):
        (tmp_path / f"rank{rank}.json").write_bytes(to_json(rows, rank=rank))
    (tmp_path / "capture.json").write_text("{}")
    document = json.loads(run("triage", tmp_path, "-f", "json").stdout)
    assert [row["rank"] for row in document["ranks"]] == [2, 9, 10]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("triage", empty).returncode == 3


def test_info_says_what_a_trace_can_feed() -> None:
    text = run("info", OVERHEAD).stdout.decode()
    assert "5 steps" in text
    assert "profiler.cost" in text
    document = json.loads(run("info", OVERHEAD, "-f", "json").stdout)
    assert document["analyses"]["launches"] is None
    assert document["analyses"]["streams"]["how_to_get"]


def test_schema_and_completion() -> None:
    assert json.loads(run("schema", "triage").stdout)["title"] == "profkit triage report"
    for shell in ("bash", "zsh", "fish"):
        done = run("completion", shell)
        assert done.returncode in (0, 4)
        assert b"profkit" in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_command_has_help_with_an_example(name: str) -> None:
    done = run(*([name] if name else []), "--help")
    assert done.returncode == 0
    assert b"profkit" in done.stdout
    assert b"xample" in done.stdout or not name
    assert b"\\b" not in done.stdout


def test_profkit_alone_prints_the_help() -> None:
    alone = run()
    assert (alone.returncode, alone.stderr) == (0, b"")
    assert alone.stdout == run("--help").stdout


def test_the_reader_of_a_pipe_may_leave_early() -> None:
    done = subprocess.run(
        f"{sys.executable} -m profkit triage {DATA} -f json | head -1",
        shell=True,
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == b""


def test_every_check_that_a_report_names_is_listed():
    from profkit.findings.capture import CHECKS

    listed = run("explain").stdout.decode().split()
    assert set(CHECKS) <= set(listed)
    assert b"confidence at most (0.7 of 1)" in run("explain", "profiler.cost").stdout
    assert b"did you mean profiler.cost" in run("explain", "profiler.cots").stderr


def test_a_missing_page_of_ncu_is_asked_for_by_its_kind():
    done = run("kernels", "missing.ncu-rep")
    assert done.returncode == 3
    assert b"missing.ncu-rep: no such file" in done.stderr
    assert b"give an .ncu-rep, or the output of ncu --csv" in done.stderr


def test_what_one_may_not_look_at_is_no_trace(tmp_path, monkeypatch):
    from pathlib import Path

    from profkit.ingest.discover import find_sources
    from profkit.ingest.ncu.reader import find_ncu_sources

    for name in ("mine.json", "theirs.json", "mine.csv", "theirs.csv"):
        (tmp_path / name).touch()
    is_file = Path.is_file

    def refused(path):
        if path.name.startswith("theirs"):
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert find_sources([str(tmp_path)]) == [str(tmp_path / "mine.json")]
    assert find_sources([f"{tmp_path}/*.json"]) == [str(tmp_path / "mine.json")]
    assert find_ncu_sources([str(tmp_path)]) == [str(tmp_path / "mine.csv")]
