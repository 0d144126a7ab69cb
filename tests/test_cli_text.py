"""Whatever files and the names in them hold, what is printed is lines of text: a terminal finds nothing to obey."""

import ast
import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from profkit.capture import doctor
from profkit.cli import complain, group
from profkit.errors import ProfkitError, fault
from profkit.redact import redacted_text
from profkit.testing import Row, to_json
from tests.analyzers import test_findings as drawn
from tests.conftest import ROOT
from tests.handover.jobs import Profile, ncu_csv

BAD = "\x1b]52;c;eA==\x07\x1b[31m\x9b2J\u202egnp\u2066\x7f\r\nprofkit: all is well"


def rows() -> list[Row]:
    return [replace(row, name=f"{row.name} {BAD}") for row in drawn.healthy().rows]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / f"runs {BAD}"
    folder.mkdir()
    metadata = {
        "profkit_command": f"python {BAD}",
        "deviceProperties": [{"id": 0, "name": f"H100 {BAD}"}],
        "torch_version": BAD,
    }
    for rank in range(2):
        text = to_json(rows(), metadata=metadata, rank=rank)
        (folder / f"a {BAD} rank{rank}.json.gz").write_bytes(gzip.compress(text))
    (folder / f"broken {BAD} rank2.json").write_text("{")
    (folder / f"table {BAD}.csv").write_text(f"gpus,step_ms,name {BAD}\n1,10,a\n2,6,b{BAD.strip()}\n")
    return folder


def run(*words: object) -> tuple[Result, str]:
    done = CliRunner().invoke(group, [str(word) for word in words], standalone_mode=False)
    if isinstance(done.exception, ProfkitError):
        with CliRunner().isolation() as (_, errors, _):
            complain(done.exception)
            return done, done.output + errors.getvalue().decode()
    assert done.exception is None, done.exception
    return done, done.output


def assert_plain(printed: str) -> None:
    assert printed.strip()
    assert [char for char in printed if not char.isprintable() and char != "\n"] == []
    assert "\nprofkit: all is well" not in printed


@pytest.mark.parametrize(
    "words",
    [
        ["triage", "ONE"],
        ["triage", "ONE", "-v"],
        ["triage", "ONE", "-f", "markdown"],
        ["triage", "ONE", "-f", "json"],
        ["triage", "ONE", "-f", "agent"],
        ["triage", "ONE", "-f", "github"],
        ["triage", "ONE", "-f", "sarif"],
        ["triage", "ONE", "--fail-on", "info"],
        ["triage", "ONE", "-o", "FOLDER/report.md"],
        ["triage", "ONE", "KERNELS", "-v"],
        ["triage", "ONE", "--command", BAD],
        ["triage", "FOLDER", "-v"],
        ["triage", "FOLDER", "-f", "markdown"],
        ["triage", "FOLDER", "--strict"],
        ["triage", "FOLDER/none"],
        ["info", "ONE"],
        ["info", "ONE", "-f", "json"],
        ["info", "BROKEN"],
        ["compare", "ONE", "TWO"],
        ["compare", "ONE", "TWO", "-f", "markdown"],
        ["compare", "ONE", "TWO", "-f", "agent"],
        ["compare", "ONE", "TWO", "--fail-on-regression", "3%"],
        ["verify", "REPORT", "ONE"],
        ["verify", "BROKEN", "ONE"],
        ["scaling", "TABLE"],
        ["ladder", "TABLE"],
        ["ladder", "TABLE", "--rung", "step_ms"],
        ["kernels", "KERNELS"],
        ["kernels", "KERNELS", "-f", "markdown"],
        ["kernels", "ONE"],
        ["ncu", "--from", "ONE"],
        ["ncu", "--from", "ONE", "--run-recorded"],
        ["doctor", "--python", f"/none/{BAD}"],
        ["explain", BAD],
    ],
    ids=lambda words: "_".join(word for word in words if word.isascii() and word.isprintable()),
)
def test_hostile_names_are_text(words: list[str], folder: Path) -> None:
    report = folder / f"report {BAD}.json"
    report.write_text(json.dumps({"schema": "profkit.triage/1", BAD: BAD, "verdict": {"step_ns": 1, "headline": BAD}}))
    profile = ncu_csv(folder / f"k {BAD}.csv", Profile(f"void f{BAD.splitlines()[0]}(int)", 50, 90))
    first, second = sorted(folder.glob("a *.gz"))
    names = {
        "ONE": first,
        "TWO": second,
        "FOLDER": folder,
        "BROKEN": next(folder.glob("broken*")),
        "TABLE": next(folder.glob("table*")),
        "REPORT": report,
        "KERNELS": profile,
    }
    filled = [str(names.get(word, word)).replace("FOLDER", str(folder)) for word in words]
    _, printed = run(*filled)
    assert_plain(printed)


@pytest.mark.parametrize(
    ("command", "name", "content", "hint"),
    [
        ("triage", "it's.csv", b"", "profkit kernels {}; or"),
        ("info", "it's.csv", b"", "profkit kernels {}; or"),
        ("triage", "-r's.json", b"\x28\xb5\x2f\xfd", "zstd -dc {} | profkit triage -"),
        ("triage", "-it's.nsys-rep", b"NVIDIA Tegra Profiler Report", " {} and triage"),
    ],
)
def test_hints_name_files_as_a_shell_takes_them(command, name, content, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/none")
    for module in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    if content:
        Path(name).write_bytes(content)
    else:
        ncu_csv(Path(name), Profile("void f(int)", 50, 90))
    _, printed = run(command, "--", name)
    assert hint.format(shlex.quote(name if not name.startswith("-") else f"./{name}")) in printed


def test_doctors_commands_name_the_python_as_a_shell_takes_it(monkeypatch):
    monkeypatch.setattr(
        doctor, "_asked", lambda _: ({"python": "3", "executable": "x", "frameworks": [], "nvtx": 0}, "")
    )
    fix = next(check.fix for check in doctor.checks("/my envs/$(x)/python") if check.name == "torch")
    assert shlex.split(fix) == ["/my envs/$(x)/python", "-m", "pip", "install", "torch"]


@pytest.mark.parametrize("path", sorted((ROOT / "profkit" / "cli").glob("*.py")), ids=lambda path: path.name)
def test_stderr_is_written_in_one_way(path: Path) -> None:
    """Only `say`, and `complain` beside `main`, print to stderr: what they print is made harmless."""
    if path.name in {"say.py", "__init__.py"}:
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printing = [call for call in calls if ast.unparse(call.func) in {"click.echo", "click.secho", "print"}]
    assert not [call.lineno for call in printing if any(word.arg in {"err", "file"} for word in call.keywords)]


def test_the_name_of_a_file_where_a_command_should_be_is_text(tmp_path):
    (tmp_path / BAD).write_text("{")
    words = [sys.executable, "-m", "profkit", BAD]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode in {2, 3}
    assert done.stdout == ""
    assert_plain(done.stderr)


@pytest.mark.parametrize("name", ["it's $(x).json", "plain.json"])
def test_the_command_for_a_file_is_one_that_a_shell_takes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("{}")
    done = CliRunner().invoke(group, [name])
    assert done.exit_code == 2
    assert shlex.split(done.output.rpartition("to analyse that file: ")[2]) == ["profkit", "triage", name]


def test_what_another_python_answers_is_shown_without_secrets(tmp_path):
    secret = "hf_" + "a1B2" * 8
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf 'cannot start, token={secret}' >&2; exit 1\n")
    python.chmod(0o755)
    for fmt in ("terminal", "json"):
        _, printed = run("doctor", "--python", python, "-f", fmt)
        assert "cannot start, token=[redacted]" in printed
        assert secret not in printed


def test_what_was_raised_is_cut_after_its_secrets_are_out():
    secret = "hf_" + "a1B2" * 8
    for n_before in range(150, 200):
        assert "hf_" not in redacted_text(fault(ValueError("x" * n_before + " " + secret), "reading", "").message)
