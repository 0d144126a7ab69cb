"""The one place where a path is opened: what waits, what never ends, what belongs to somebody else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit import files
from profkit.files import temporary as temporary_folders
from tests.conftest import ROOT
from tests.special import special_files, within


@pytest.fixture
def special(tmp_path: Path) -> dict[str, Path]:
    return special_files(tmp_path)


@pytest.mark.parametrize("what", ["a named pipe", "a device", "a socket", "a folder"])
@pytest.mark.parametrize(
    "read", [files.open_file, lambda path: files.read_small(path, 9), lambda p: files.read_head(p, 9)]
)
def test_what_is_no_file_is_named_at_once(special, what, read):
    error = within(5, lambda: read(special[what]))
    assert isinstance(error, files.NotAFileError)
    assert error.strerror == f"{what}, not a file"


def test_a_link_to_a_file_is_read_unless_none_is_followed(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert files.read_small(tmp_path / "link", 4) == b"text"
    with pytest.raises(files.NotAFileError, match="a link"):
        files.read_small(tmp_path / "link", 4, follow=False)


def test_a_small_file_has_a_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert files.read_small(tmp_path / "file", 5) == b"12345"
    with pytest.raises(files.TooLargeError) as caught:
        files.read_small(tmp_path / "file", 4)
    assert caught.value.strerror == "more than 4 bytes, which no such file has"
    assert files.read_head(tmp_path / "file", 3) == b"123"


# ------------------------------------------------------------------------------------------------------------- writing


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.md"
    files.write_whole(path, b"one")

    def half() -> None:
        with files.replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert [one.name for one in tmp_path.iterdir()] == ["report.md"]
    assert path.read_bytes() == b"one"


def test_permissions_of_what_was_there_are_kept(tmp_path):
    path = tmp_path / "report.md"
    before = os.umask(0o022)
    try:
        files.write_whole(path, b"one")
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(0o640)
        files.write_whole(path, b"two")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(tmp_path):
    path = tmp_path / "report.md"
    path.write_bytes(b"one")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        files.write_whole(path, b"two")


@pytest.mark.parametrize("what", ["a named pipe", "a socket", "a folder"])
def test_only_a_files_place_is_taken(special, what):
    error = within(5, lambda: files.write_whole(special[what], b""))
    assert isinstance(error, files.NotAFileError)


def test_a_file_to_append_to_is_ours_and_no_link(tmp_path, monkeypatch):
    os.close(files.open_to_append(tmp_path / "rows"))
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to("rows")
    with pytest.raises(OSError, match="symbolic links"):
        files.open_to_append(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user"):
        files.open_to_append(tmp_path / "rows")


# ------------------------------------------------------------------------------------------------------------- folders


def test_a_private_folder_is_ours_alone(tmp_path, monkeypatch):
    folder = files.private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert files.private_folder(folder).stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(files.NotAFileError):
        files.private_folder(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user"):
        files.private_folder(folder)


def test_a_temporary_folder_is_ours_alone_and_gone_afterwards(temporary):
    with files.temporary_folder("test") as folder:
        (folder / "file").write_bytes(b"")
        assert folder.parent == temporary
        assert folder.name.startswith(f"profkit-test-{os.getpid()}-")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_folders_of_killed_runs_are_removed_and_no_others(temporary, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = {
        f"profkit-nsys-{ended.pid}-old": True,
        f"profkit-nsys-{ended.pid}-new": False,
        f"profkit-nsys-{os.getpid()}-alive": False,
        f"profkit-nsys-{ended.pid}-held": False,
        f"another-{ended.pid}-old": False,
        "profkit-somebody-else": False,
    }
    for name in names:
        (temporary / name).mkdir()
        (temporary / name / "file").write_bytes(b"")
        if not name.endswith("new"):
            os.utime(temporary / name, (0, 0))
    link = f"profkit-link-{ended.pid}-old"
    (temporary / link).symlink_to(tmp_path)
    held = temporary_folders._locked(
        temporary / f"profkit-nsys-{ended.pid}-held"
    )  # by a process of another container, say
    files.remove_stale()
    os.close(held)
    left = {name for name, is_removed in names.items() if not is_removed}
    assert {path.name for path in temporary.iterdir()} == left | {link}


def test_another_users_folders_are_left(temporary, monkeypatch):
    (temporary / f"profkit-nsys-{2**22 + 1}-old").mkdir()
    os.utime(temporary / f"profkit-nsys-{2**22 + 1}-old", (0, 0))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    files.remove_stale()
    assert len(list(temporary.iterdir())) == 1


HOLDING = """
import os, sys, time
from profkit import files

with files.temporary_folder("a") as one, files.temporary_folder("b") as two:
    if os.fork() == 0:
        os.kill(os.getpid(), 15)  # a child's end is not the parent's
    os.wait()
    print(one.is_dir() and two.is_dir(), one, two, flush=True)
    time.sleep(60)
"""


def test_a_run_that_is_told_to_end_leaves_no_folder(temporary):
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout.readline().startswith("True")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
    assert list(temporary.iterdir()) == []


def test_the_callers_own_handler_of_signals_stays(temporary):
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with files.temporary_folder("test"):
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    with files.temporary_folder("test"):
        pass
    assert signal.getsignal(signal.SIGTERM) == before


def test_packages_of_a_capture_are_loaded_by_their_paths_without_profkit(tmp_path):
    load = (
        "import sys; sys.path.append(sys.argv[1]); import beside;"
        "print(beside.files().TEMPORARY, beside.redact().REDACTED);"
        "assert not {name for name in sys.modules if name.partition('.')[0] == 'profkit'}"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", load, str(ROOT / "profkit" / "capture")],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "profkit- [redacted]\n"


def test_time_of_making_a_temporary_folder_is_bounded(temporary, monkeypatch):
    monkeypatch.setattr(temporary_folders, "_MOST_LOOKED_AT", 3)
    for number in range(20):
        (temporary / f"profkit-x-{2**22 + number}-y").mkdir()
        os.utime(temporary / f"profkit-x-{2**22 + number}-y", (0, 0))
    begun = time.monotonic()
    files.remove_stale()
    assert time.monotonic() - begun < 5
    assert len(list(temporary.iterdir())) == 17
