"""Bad input: one line that says what and where, exit code 3, bounded memory; lenient keeps the rest."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.ingest.bytes import bytesource
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.texts import LONGEST_TEXT
from tests.conftest import ROOT

GOOD = [
    f'{{"ph":"X","cat":"cpu_op","name":"op{n}","pid":1,"tid":1,"ts":{1000 + 20 * n}.500,"dur":10.250}}'
    for n in range(30)
]


def event(**changes: object) -> str:
    return json.dumps({"ph": "X", "cat": "cpu_op", "name": "bad", "pid": 1, "tid": 1, "ts": 5.5, "dur": 1, **changes})


def document(*events: str) -> bytes:
    return f'{{"schemaVersion": 1, "traceEvents": [{", ".join(events)}], "traceName": "t"}}'.encode(
        "utf-8", "surrogatepass"
    )


NESTED = "[" * 10**6 + "]" * 10**6
BAD_EVENTS = {
    "ts is text": event(ts="abc"),
    "ts is null": event(ts=None),
    "ts is an object": event(ts={"a": 1}),
    "dur is true": event(dur=True),
    "dur is negative": event(dur=-5),
    "dur beyond int64": '{"ph":"X","cat":"cpu_op","name":"bad","ts":1,"dur":99999999999999999999999}',
    "end beyond int64": '{"ph":"X","cat":"cpu_op","name":"bad","ts":9223372036854775,"dur":9223372036854775}',
    "huge exponent": '{"ph":"X","cat":"cpu_op","name":"bad","ts":1e999999999,"dur":1}',
    "NaN": '{"ph":"X","cat":"cpu_op","name":"bad","ts":NaN,"dur":1}',
    "Infinity": '{"ph":"X","cat":"cpu_op","name":"bad","ts":1,"dur":Infinity}',
    "lone surrogate": '{"ph":"X","cat":"cpu_op","name":"\\ud800","ts":1,"dur":1}',
    "name is a list": event(name=[1]),
    "args is a list": event(args=[1]),
    "ph is a number": event(ph=3),
    "pid is an object": event(pid={}),
    "nested too deeply": '{"ph":"X","cat":"cpu_op","name":"bad","ts":1,"dur":1,"args":{"a":' + NESTED + "}}",
}


def refused(path: Path) -> ProfkitError:
    with pytest.raises(ProfkitError) as caught:
        read_trace(str(path))
    error = caught.value
    assert error.exit_code == 3
    assert "\n" not in error.message
    assert path.name in error.message
    return error


@pytest.mark.parametrize("what", BAD_EVENTS)
def test_a_bad_event_is_named_and_lenient_leaves_it_out(what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(document(*GOOD[:10], BAD_EVENTS[what], *GOOD[10:]))
    assert "event 11" in refused(path).message
    trace = read_trace(str(path), lenient=True)
    assert len(trace.ops) == len(GOOD)
    assert {warning.id: warning.count for warning in trace.warnings}["events.unreadable"] == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n\t ",
        b"hello",
        b"42",
        b"null",
        b'"text"',
        b"\x00" * 1000,
        bytes(range(256)) * 40,
        b"PK\x03\x04....",
        b"SQLite format 3\x00....",
        b'{"a": [1, 2]}',
        b'{"traceEvents": null}',
        b'{"traceEvents": "x"}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": []}',
        b"[]",
        b"[1, 2, 3]",
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b'{"traceEvents":[' + b"[" * 10**6,
        b"\xff\xfe" + b'{"traceEvents": []}',
        gzip.compress(b"", mtime=0),
        gzip.compress(document(*GOOD), mtime=0)[:40],
        gzip.compress(document(*GOOD), mtime=0)[:30] + b"damage" + gzip.compress(document(*GOOD), mtime=0)[36:],
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_trace_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    refused(path)
    try:
        read_trace(str(path), lenient=True)
    except ProfkitError as error:
        assert error.exit_code == 3  # noqa: PT017 - lenient may also find something whole


def test_a_name_of_a_megabyte_is_a_name_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_bytes(document(event(name="x" * 10**6), *GOOD))
    trace = read_trace(str(path))
    assert max(map(len, trace.strings)) == LONGEST_TEXT
    assert "1,000,000" in next(warning.message for warning in trace.warnings if warning.id == "names.cut")


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytesource, "FREE_EXPANSION_BYTES", 10**6)
    monkeypatch.setattr(bytesource, "MAX_EXPANSION", 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b",".join([GOOD[0].encode()] * 10**5)))
    assert "expands to more than" in refused(path).message


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: ru_maxrss would count the parent's memory")
def test_an_endless_element_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(300):
            file.write(b" " * 2**20)
    code = (
        "from profkit.ingest.kineto.reader import read_trace\n"
        "from profkit.errors import ProfkitError\n"
        f"try: read_trace({str(path)!r})\n"
        "except ProfkitError as error: print(error.message)\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    message, peak_kb = done.stdout.splitlines()
    assert "larger than 8 MB" in message
    assert int(peak_kb) < 400_000


def test_impossible_times_are_left_out_and_said(tmp_path: Path) -> None:
    start = 10**15
    rows = [
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{start + n}.000,"dur":1,"args":{{"device":0,"stream":7}}}}'
        for n in range(10)
    ]
    rows.append('{"ph":"X","cat":"kernel","name":"k","ts":0,"dur":1,"args":{"device":0,"stream":7}}')
    rows.append(
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{start},"dur":4294967295000000,"args":{{"device":0,"stream":7}}}}'
    )
    path = tmp_path / "odd.json"
    path.write_bytes(document(*rows))
    trace = read_trace(str(path))
    assert len(trace.gpu) == 10
    assert {warning.id for warning in trace.warnings} == {"ts.zero", "dur.overflow"}
