"""Devices, pipes and endless streams where a file is expected: one line, at once."""

import gzip
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.compare.captures.sides import read_side
from profkit.compare.tables.result_tables import read_table
from profkit.errors import ProfkitError, TraceFormatError, TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.bytes import spool
from profkit.ingest.discover import find_sources
from profkit.ingest.ncu.reader import read_profiles
from profkit.ingest.ncu.source import is_ncu
from profkit.ingest.nsys.sqlite import opened
from profkit.ingest.read import read_traces
from profkit.ingest.sources import source_of
from tests.conftest import ROOT
from tests.ingest.nsys_files import training
from tests.special import special_files, within

DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
NOT_A_PIPE = ("a device", "a socket", "a folder")
GB = 10**9


def profkit(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run profkit in a process with little memory, for a time that is long enough."""
    script = "import resource as r; r.setrlimit(r.RLIMIT_AS, (6 * 10**9,) * 2); from profkit.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=30, **options,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- named by the user


@pytest.mark.parametrize("what", NOT_A_PIPE)
@pytest.mark.parametrize("read", [lambda path: list(read_traces(path)), read_profiles, read_table])
def test_what_is_no_file_is_refused_in_a_line_that_names_it(tmp_path, what, read):
    path = special_files(tmp_path, "z.csv")[what]
    error = within(5, lambda: read(str(path)))
    assert isinstance(error, ProfkitError)
    assert what in error.message
    assert str(path.name) in error.message


def test_a_table_that_is_a_pipe_or_endless_is_refused(tmp_path, monkeypatch):
    pipe = special_files(tmp_path, "z.csv")["a named pipe"]
    assert "a named pipe" in str(within(5, lambda: read_table(pipe)))
    monkeypatch.setattr("profkit.compare.tables.result_tables.MAX_BYTES", 1000)
    (tmp_path / "large.csv").write_bytes(b"a" * 1001)
    with pytest.raises(TraceFormatError, match=r"large\.csv has more than 1000 bytes: too large for a table"):
        read_table(tmp_path / "large.csv")


def test_a_side_that_is_a_device_is_one_line(tmp_path):
    for name in ("z.csv", "z.json"):
        (tmp_path / name).symlink_to("/dev/zero")
        done = profkit("compare", tmp_path / name, tmp_path / name)
        assert (done.returncode, done.stdout) == (3, "")
        assert "a device, not a file" in done.stderr.splitlines()[0]


# --------------------------------------------------------------------------------------------- found beside traces


@pytest.mark.parametrize("what", ["a named pipe", *NOT_A_PIPE])
def test_a_manifest_that_is_no_file_is_none(tmp_path, what):
    path = special_files(tmp_path, "capture.json")[what]
    shutil.copy(DATA, path.parent / "rank0.pt.trace.json.gz")
    side = within(20, lambda: read_side("A", [str(path.parent)]))
    assert len(side.runs) == 1


def test_a_manifest_without_an_end_is_none(tmp_path, monkeypatch):
    shutil.copy(DATA, tmp_path / "rank0.pt.trace.json.gz")
    (tmp_path / "capture.json").write_text('{"ranks": [' + " " * 5000 + "]}")
    monkeypatch.setattr("profkit.compare.captures.sides._MAX_MANIFEST_BYTES", 5000)
    assert len(read_side("A", [str(tmp_path)]).runs) == 1


@pytest.mark.parametrize("what", ["a named pipe", *NOT_A_PIPE])
@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_lies_beside_an_export_and_is_no_file_is_not_waited_for(tmp_path, what, suffix):
    beside = special_files(tmp_path, f"x.sqlite{suffix}")[what]
    path = beside.with_name("x.sqlite")
    shutil.copy(training().write(tmp_path / "written.sqlite"), path)
    read = within(20, lambda: list(read_traces(str(path))))
    assert len(read) == 1


def test_folders_and_patterns_give_no_pipe_and_no_device(tmp_path):
    for path in special_files(tmp_path, "rank0.json").values():
        with pytest.raises(TraceNotFoundError):
            find_sources([str(path.parent)])
        with pytest.raises(TraceNotFoundError):
            find_sources([f"{path.parent}/rank?.json"])


@pytest.mark.parametrize("what", ["a named pipe", *NOT_A_PIPE])
def test_what_wrote_it_is_asked_of_files_alone(tmp_path, what):
    path = special_files(tmp_path, "x.json")[what]
    assert within(5, lambda: source_of(path, str(path))).tool == "torch.profiler"
    assert within(5, lambda: is_ncu(path, str(path))) is False


def test_a_database_that_is_no_file_is_not_given_to_sqlite(tmp_path):
    def read(path: Path) -> None:
        with opened(path, "x.sqlite"):
            raise AssertionError

    for what, path in special_files(tmp_path).items():
        error = within(5, lambda path=path: read(path))
        assert isinstance(error, TraceNotFoundError)
        assert error.message == f"x.sqlite: {what}, not a file"


# ------------------------------------------------------------------------------------------------------- streams


class Endless(io.RawIOBase):
    """Gives the same bytes for ever, and counts them."""

    def __init__(self, head: bytes, rest: bytes) -> None:
        self.given, self._head, self._rest = 0, head, rest

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self._head or (self._rest * (len(buffer) // len(self._rest) + 1))
        data, self._head = data[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(data)] = data
        self.given += len(data)
        assert self.given < 2**28, "nobody stops it"
        return len(data)


def from_stdin(monkeypatch, stream, read=read_traces):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(stream)))
    return list(read("-"))


@pytest.mark.parametrize(
    ("head", "rest"),
    [(b"", b"\0"), (b"", b"y\n"), (b"", b" \n"), (b"PK\x03\x04", b"a"), (gzip.compress(b"\0" * 2**22), b"\0")],
)
def test_a_stream_that_is_no_trace_is_refused_after_its_first_megabyte(monkeypatch, temporary, head, rest):
    stream = Endless(head, rest)
    with pytest.raises(TraceFormatError, match="standard input is not a trace"):
        from_stdin(monkeypatch, stream)
    assert stream.given <= 2 * 2**20
    assert list(temporary.iterdir()) == []


def test_a_stream_that_begins_like_a_trace_has_a_bound(monkeypatch, temporary):
    monkeypatch.setattr(spool, "MOST_BYTES", 5 * 2**20)
    stream = Endless(b'{"traceEvents": [', b"[")
    with pytest.raises(UnsupportedTraceError, match="standard input has more than 5 MiB") as caught:
        from_stdin(monkeypatch, stream)
    assert "TMPDIR" in caught.value.hint
    assert stream.given <= 7 * 2**20
    assert list(temporary.iterdir()) == []


def test_a_stream_leaves_room_in_the_temporary_folder(monkeypatch, temporary):
    monkeypatch.setattr("profkit.files.free_bytes", lambda _: 3 * 2**20)
    with pytest.raises(UnsupportedTraceError, match="standard input has more than 2 MiB"):
        from_stdin(monkeypatch, Endless(b"[", b"["))


def test_a_stream_of_ncus_pages_is_no_device_either(monkeypatch, temporary):
    stream = Endless(b"", b"\0")
    with pytest.raises(TraceFormatError, match="standard input is neither text nor an ncu report"):
        from_stdin(monkeypatch, stream, lambda source: read_profiles(source).profiles)
    assert stream.given <= 2 * 2**20


@pytest.mark.parametrize("command", ["triage", "info", "kernels"])
def test_standard_input_that_is_a_device_is_refused_at_once(command):
    with Path("/dev/zero").open("rb") as zero:
        done = profkit(command, "-", stdin=zero)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[0] == "profkit: standard input is a device, not a trace"


def test_an_endless_pipe_that_is_named_is_refused_after_its_first_megabyte(tmp_path, temporary):
    pipe = special_files(tmp_path, "x.json")["a named pipe"]

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 2**16)
            except BrokenPipeError:
                return

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    error = within(10, lambda: list(read_traces(str(pipe))))
    assert isinstance(error, TraceFormatError)
    assert "is not a trace" in error.message
    thread.join(5)
    assert not thread.is_alive()


def test_a_signal_is_heard_while_nothing_comes():
    read_end, write_end = os.pipe()
    heard = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())

    def signalled() -> None:  # in this thread: the read of the other is not interrupted
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        is_heard.append(heard.wait(10))
        os.close(write_end)

    is_heard: list[bool] = []
    thread = threading.Thread(target=signalled)
    try:
        with os.fdopen(read_end, "rb") as pipe:
            thread.start()
            assert list(spool._chunks(pipe)) == []
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert is_heard == [True]


def test_what_is_no_file_is_read_as_it_is():
    assert b"".join(spool._chunks(io.BytesIO(b"[1]"))) == b"[1]"


def test_a_killed_stream_leaves_nothing(temporary):
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "profkit", "triage", "-"]
    with subprocess.Popen(command, stdin=read_end, cwd=ROOT, stderr=subprocess.PIPE) as process:
        os.close(read_end)
        os.write(write_end, b"[")
        try:
            while not [*temporary.glob("profkit-stream-*/*")]:  # other folders may come and go meanwhile
                assert process.poll() is None
            process.terminate()
            assert process.wait(10) == -15
        finally:
            process.kill()  # or leaving the context waits for ever
    os.close(write_end)
    assert list(temporary.iterdir()) == []
