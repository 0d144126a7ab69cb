"""Where a report is written: whole or not there, through no link, and what is no file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.cli.shared.output import deliver, is_standard_output
from profkit.errors import UsageError
from tests.conftest import ROOT
from tests.special import special_files

TRACE = ROOT / "traces" / "data_cpu.pt.trace.json.gz"


def triage(*arguments: object, line: str = "") -> subprocess.CompletedProcess[str]:
    """Run profkit in a process of its own; `line` is what the shell does with its output."""
    command = " ".join([sys.executable, "-m profkit triage", str(TRACE), *map(str, arguments), line])
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)


def test_nothing_is_written_through_a_link(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("x.md", "x.md.part", ".x.md.part"):
        (tmp_path / name).symlink_to(precious)
    deliver("report", tmp_path / "x.md")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "x.md").is_symlink()
    assert (tmp_path / "x.md").read_text() == "report"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.md.part", "precious", "x.md", "x.md.part"]


@pytest.mark.parametrize("name", ["-", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_may_be_named(name):
    done = triage("-o", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert "confidence" in done.stdout


def test_names_of_standard_output():
    """By their names alone: a test that writes to /dev/stdout as root would replace it if this were wrong."""
    assert all(is_standard_output(Path(name)) for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))
    assert not any(is_standard_output(Path(name)) for name in ("x.md", "/dev/stderr", "/dev/null"))


def test_standard_output_that_is_a_file_is_added_to(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    assert triage("-o", "-", "-f", "markdown", line=f">> {path}").returncode == 0
    assert path.read_text().startswith("before\n#")


def test_a_device_or_a_pipe_is_written_to_and_not_replaced(tmp_path):
    ours, theirs = os.openpty()  # a device in a folder where no file can be made, whatever we do
    terminal = Path(os.ttyname(theirs))
    deliver("report", terminal)
    assert os.read(ours, 100) == b"report"
    assert terminal.is_char_device()
    os.close(ours)
    os.close(theirs)
    pipe = tmp_path / "x.md"
    os.mkfifo(pipe)
    done = triage("-o", pipe, line=f"& cat {pipe}; wait $!")
    assert done.returncode == 0
    assert done.stdout.startswith("#")
    assert pipe.is_fifo()


@pytest.mark.parametrize("what", ["no folder", "a folder", "a socket"])
def test_where_nothing_can_be_written_is_one_line(tmp_path, what):
    folder = tmp_path
    path = {"no folder": folder / "no" / "x.md", "a folder": folder}.get(what)
    path = path or special_files(tmp_path)[what]
    with pytest.raises(UsageError, match=f"cannot write {path}: "):
        deliver("report", path)


@pytest.mark.parametrize("fails", ["open", "write"])
def test_a_system_that_refuses_all_is_one_line(tmp_path, monkeypatch, fails):
    """As a file system that is read-only does: it does not let one delete what was not written either."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open" if fails == "open" else "fdopen", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UsageError, match="Read-only file system"):
        deliver("report", tmp_path / "x.md")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_read_only_is_one_line(tmp_path, what):
    path = tmp_path / "x.md"
    path.touch()
    (path if what == "file" else tmp_path).chmod(0o555)
    with pytest.raises(UsageError, match="cannot write"):
        deliver("report", path)
    tmp_path.chmod(0o755)
