"""Damage of every kind: one ProfkitError that says what and where, no other; lenient reading keeps what is whole."""

import gzip
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import ProfkitError, TraceFormatError, TraceNotFoundError, TruncatedTraceError
from profkit.ingest.discover import find_sources
from profkit.ingest.kineto import reader as kineto
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.kineto.split import MAX_ELEMENT_BYTES, count_members, depths
from profkit.model.trace import Trace
from tests.conftest import rarely

OPS = [
    f'{{"ph":"X","cat":"cpu_op","name":"op{n}","pid":1,"tid":1,"ts":{1000 + 20 * n}.500,"dur":10.250}}'
    for n in range(6)
]
HEAD = '"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}'
LONG = "9" * 5000  # Python refuses to turn more than 4,300 digits into an integer


def file_of(*events: str, head: str = HEAD, tail: str = '"traceName": "t"', comma: str = ", ") -> bytes:
    return f'{{{head}, "traceEvents": [{comma.join(events)}], {tail}}}'.encode("utf-8", "surrogatepass")


def read(data: bytes, folder: Path, **options: Any) -> Trace:
    path = folder / "damaged.json"
    path.write_bytes(data)
    return read_trace(str(path), **options)


def refused(data: bytes, folder: Path, **options: Any) -> ProfkitError:
    with pytest.raises(ProfkitError) as caught:
        read(data, folder, **options)
    error = caught.value
    assert error.exit_code == 3
    assert "\n" not in error.message
    assert "damaged.json" in error.message
    return error


def warned(trace: Trace) -> set[str]:
    return {warning.id for warning in trace.warnings}


def kernel_with(args: str, *, tid: str = "7") -> str:
    event = f'"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": {tid}, "ts": 5.0, "dur": 1'
    return f'{{{event}, "args": {args}}}'


# ------------------------------------------------------------------------------------------------------------ cut files


@pytest.mark.parametrize("chunk_bytes", [3, rarely(1.6, 10**6)])
def test_cut_at_every_byte(chunk_bytes: int, tmp_path: Path) -> None:
    names = ("},{", '[{\\"}]', "back\\\\slash\\\\")
    ops = [text.replace(f"op{n}", name) for n, (text, name) in enumerate(zip(OPS, names, strict=False))]
    data = file_of(*ops)
    ends = [data.index(text.encode()) + len(text) for text in ops]
    array = data.index(b"[{") + 1
    for length in range(1, len(data)):
        n_whole = sum(length >= end for end in ends)
        error = refused(data[:length], tmp_path, chunk_bytes=chunk_bytes)
        assert isinstance(error, TruncatedTraceError), length
        assert error.n_whole_events == n_whole
        if length < array:
            continue
        if n_whole == 0:
            refused(data[:length], tmp_path, lenient=True, chunk_bytes=chunk_bytes)
            continue
        trace = read(data[:length], tmp_path, lenient=True, chunk_bytes=chunk_bytes)
        assert len(trace.ops) == n_whole
        assert warned(trace) == {"trace.truncated"}
        assert (trace.meta.rank, trace.meta.world_size) == (3, 8)  # what stands before the events survives


def test_a_list_cut_at_every_byte(tmp_path: Path) -> None:
    data = f"[{','.join(OPS[:2])}]".encode()
    for length in range(2, len(data)):
        error = refused(data[:length], tmp_path)
        assert isinstance(error, TruncatedTraceError)
        assert error.n_whole_events == (length > len(OPS[0])) + (length == len(data) - 1)


def test_a_gzip_cut_at_every_tenth_byte(tmp_path: Path) -> None:
    data = gzip.compress(file_of(*OPS * 20), mtime=0)
    for length in range(20, len(data), 10):
        error = refused(data[:length], tmp_path)
        try:
            kept = len(read(data[:length], tmp_path, lenient=True).ops)
        except ProfkitError:
            kept = 0
        assert getattr(error, "n_whole_events", 0) == kept
        assert not kept or re.search(rf"ends inside event {kept + 1:,} .*cut at byte", error.message)


def test_a_damaged_gzip_keeps_what_comes_before_the_damage(tmp_path: Path) -> None:
    ops = [OPS[0].replace("op0", f"op{n * n * 7919 % 1_000_003}") for n in range(4000)]
    data = bytearray(gzip.compress(file_of(*ops), mtime=0))
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    assert "broken compressed data" in refused(bytes(data), tmp_path).message
    trace = read(bytes(data), tmp_path, lenient=True)
    assert 100 < len(trace.ops) < 4000
    assert trace.meta.rank == 3


# -------------------------------------------------------------------------------------------- between and among events


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("trailing comma", ", ".join([*OPS, ""])),
        ("leading comma", ", ".join(["", *OPS])),
        ("two commas", ",, ".join(OPS)),
        ("no comma", " ".join(OPS)),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [40, 10**6])
def test_commas(name: str, array: str, chunk_bytes: int, tmp_path: Path) -> None:
    data = file_of(array)
    error = refused(data, tmp_path, chunk_bytes=chunk_bytes)
    assert isinstance(error, TraceFormatError)
    assert "comma" in error.message
    trace = read(data, tmp_path, lenient=True, chunk_bytes=chunk_bytes)
    assert len(trace.ops) == len(OPS)
    assert warned(trace) == {"events.separators"}


@pytest.mark.parametrize("intruder", ["5", "null", '"},{"', "[{}]", "true", "-1.5e3"])
@pytest.mark.parametrize("chunk_bytes", [40, 10**6])
def test_what_is_no_event_is_named_and_spoils_no_other(intruder: str, chunk_bytes: int, tmp_path: Path) -> None:
    data = file_of(*OPS[:2], intruder, *OPS[2:])
    assert "event 3: Expected 'object'" in refused(data, tmp_path, chunk_bytes=chunk_bytes).message
    trace = read(data, tmp_path, lenient=True, chunk_bytes=chunk_bytes)
    assert len(trace.ops) == len(OPS)
    assert warned(trace) == {"events.unreadable"}


@pytest.mark.parametrize("key", ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "other", "\\u0074s"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_repeated_key_is_named(key: str, is_first: bool, tmp_path: Path) -> None:
    value = {"ph": '"X"', "cat": '"cpu_op"', "name": '"n"', "args": '{"name": "deep", "ts": 1}'}.get(key, "7")
    pair = f'"{key}": {value}'
    event = OPS[0].replace('"ph"', f'"other": [{{"ts": 1}}, {{"ts": 2}}], "args": {{"ts": "{{,"}}, {pair}, "ph"')
    row = 0 if is_first else 4
    data = file_of(*OPS[:row], event, *OPS[row:])
    shown = "ts" if key.startswith("\\") else key
    assert f"event {row + 1}: key '{shown}' appears twice" in refused(data, tmp_path).message
    assert len(read(data, tmp_path, lenient=True).ops) == len(OPS)


def test_keys_may_repeat_inside_arguments_and_across_events(tmp_path: Path) -> None:
    thread = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "name", "ts": 1}}'
    trace = read(file_of(thread, "{}", OPS[0], kernel_with('{"device": 0, "stream": 7, "stream": 8}')), tmp_path)
    assert trace.meta.n_events == 4
    assert trace.gpu.stream.tolist() == [8]


def test_a_good_event_is_good_in_any_company(tmp_path: Path) -> None:
    """A number that no column of an operator is made from, beside collectives that have it, and one that is read."""
    odd = OPS[0].replace('"dur"', '"args": {"Seq": 1e999}, "dur"')
    thread = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "a"}}'
    announced = OPS[1].replace('"dur"', '"args": {"Seq": 4}, "dur"').replace("op1", "record_param_comms")
    assert len(read(file_of(odd, announced, thread), tmp_path).ops) == 2
    bad = odd.replace("Seq", "External id")
    assert "event 1: Number out of range" in refused(file_of(bad, announced, thread), tmp_path).message
    assert len(read(file_of(bad, announced, thread), tmp_path, lenient=True).ops) == 1


def test_many_bad_events_among_many(tmp_path: Path) -> None:
    events = [text.replace('"dur":', '"dur":-') if n % 7 == 3 else text for n, text in enumerate(OPS * 100)]
    assert "event 4: negative dur" in refused(file_of(*events), tmp_path).message
    trace = read(file_of(*events), tmp_path, lenient=True, chunk_bytes=5000)
    n_bad = len(range(3, 600, 7))
    assert len(trace.ops) == 600 - n_bad
    assert [warning.count for warning in trace.warnings] == [n_bad]


# --------------------------------------------------------------------------------------------------------- odd values


@pytest.mark.parametrize(
    ("event", "stream"),
    [
        (kernel_with(f'{{"device": 0, "stream": "{LONG}"}}'), None),
        (kernel_with('{"device": 0}', tid='"stream \\u00b2"'), -1),  # a superscript two is a digit to str.isdigit
        (kernel_with('{"device": 0}', tid=f'"{LONG}"'), None),
        (kernel_with('{"device": 0}', tid='"stream 7 (compute)"'), 7),
        (kernel_with('{"device": 0, "stream": [8]}'), 7),
        (kernel_with(f'{{"device": 0, "stream": 7, "grid": "[{LONG}, 1, 1]"}}'), 7),
        (kernel_with('{"device": 0, "stream": 7, "grid": ' + "[" * 900 + "]" * 900 + "}"), 7),
        (kernel_with('{"device": 0, "stream": 7, "grid": [1, 2], "block": [[1], 2, "3"]}'), 7),
        (kernel_with('{"device": 0, "stream": 7, "correlation": 18446744073709551615, "bytes": null}'), 7),
    ],
    ids=range(9),
)
def test_odd_arguments_are_no_reason_to_refuse_a_trace(event: str, stream: int | None, tmp_path: Path) -> None:
    trace = read(file_of(*OPS, event), tmp_path)
    assert len(trace.gpu) == 1
    if stream is not None:
        assert trace.gpu.stream.tolist() == [stream]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (kernel_with('{"device": 99999999999, "stream": 7}'), "device 99999999999 is not a device number"),
        (kernel_with(f'{{"device": 0, "stream": {LONG}}}'), "Integer value out of range"),
        (kernel_with("{}", tid="7.5"), "got 'float' - at 'event.tid'"),
        (OPS[0].replace('"op0"', "1.5"), "got 'float' - at 'event.name'"),
        (OPS[0].replace('"cpu_op"', "5"), "got 'int' - at 'event.cat'"),
        (OPS[0].replace("1000.500", "1_0"), "JSON is malformed"),
        (OPS[0].replace("1000.500", "01"), "invalid number"),
        (OPS[0].replace('"op0"', '"a\nb"'), "JSON is malformed"),
    ],
    ids=range(8),
)
def test_events_that_make_no_sense_are_named(event: str, message: str, tmp_path: Path) -> None:
    data = file_of(*OPS, event)
    found = refused(data, tmp_path).message
    assert "event 7: " in found
    assert message in found
    assert len(read(data, tmp_path, lenient=True).ops) == len(OPS)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    collective = '{"device": 0, "stream": 7, "Collective name": "ar", "Process Group Ranks": "@"}'
    data = file_of(*OPS, kernel_with(collective)).replace(b"@", b"\xff\xfe")
    assert "event 7: Process Group Ranks is not text" in refused(data, tmp_path).message
    unread = file_of(*OPS, kernel_with('{"device": 0, "stream": 7, "name": "x", "foo": "@"}')).replace(b"@", b"\xff")
    assert len(read(unread, tmp_path).gpu) == 1


def test_names_that_are_no_text(tmp_path: Path) -> None:
    thread = '{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": ["a"]}}'
    trace = read(file_of(*OPS, OPS[0].replace('"op0"', "null"), OPS[0].replace('"op0"', "7"), thread), tmp_path)
    assert {"", "7"} <= set(trace.strings)
    assert "None" not in trace.strings
    assert [thread.name for thread in trace.threads] == ["['a']"]


def test_all_kernels_left_out_with_their_collective(tmp_path: Path) -> None:
    args = '{"device": 0, "stream": 7, "Collective name": "allreduce"}'
    trace = read(file_of(*OPS, kernel_with(args).replace('"dur": 1', '"dur": 4294967295000000')), tmp_path)
    assert len(trace.gpu) == len(trace.collectives) == 0
    assert warned(trace) == {"dur.overflow"}


def test_an_announced_collective_without_its_operator(tmp_path: Path) -> None:
    note = OPS[0].replace('"cpu_op"', '"user_annotation"').replace('"op0"', '"record_param_comms"')
    nccl = kernel_with('{"device": 0, "stream": 7, "External id": 3}').replace('"k"', '"ncclDevKernel_AllReduce"')
    trace = read(file_of(note, *OPS[1:], nccl), tmp_path)
    assert (len(trace.gpu), len(trace.collectives)) == (1, 0)


def test_a_trace_that_begins_at_zero_keeps_its_first_row(tmp_path: Path) -> None:
    events = [f'{{"ph":"X","cat":"cpu_op","name":"a","ts":{n * 500_000},"dur":10}}' for n in range(20)]
    trace = read(file_of(*events), tmp_path)
    assert len(trace.ops) == 20
    assert not trace.warnings


# ------------------------------------------------------------------------------------------------------------ metadata


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('"x": NaN', "NaN is not JSON"),
        ('"x": -Infinity', "-Infinity is not JSON"),
        ('"x": 1e999', "Out of range"),
        ('"x": 1, "x": 2', "key 'x' appears twice"),
        ('"x": {"y": 1, "y": 2}', "key 'y' appears twice"),
        ('"x": "\\ud800"', "surrogate"),
        ('"x": ' + "[" * 150 + "]" * 150, "nested too deeply"),
        ('"x": ' + '{"a":' * 950 + "1" + "}" * 950, "nested too deeply"),
        (f'"x": {LONG}', "4300 digits"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("is_tail", [False, True])
def test_metadata_that_cannot_be_read(head: str, message: str, is_tail: bool, tmp_path: Path) -> None:
    data = file_of(*OPS, tail=head) if is_tail else file_of(*OPS, head=head)
    assert message in refused(data, tmp_path).message
    trace = read(data, tmp_path, lenient=True)
    assert len(trace.ops) == len(OPS)
    assert warned(trace) == {"metadata.unreadable"}
    assert trace.meta.rank == (3 if is_tail else None)


@pytest.mark.parametrize(
    "head",
    [
        '"distributedInfo": [1]',
        '"distributedInfo": {"rank": {"a": 1}, "world_size": "x", "backend": [1]}',
        '"deviceProperties": [1, null, {"id": "x", "name": ["a"], "numSms": [1], "totalGlobalMem": true}]',
        '"deviceProperties": {"id": 0}',
        '"baseTimeNanoseconds": "soon", "with_stack": {}, "torch_version": [2]',
        '"x": "\\"traceEvents\\": [", "y": {"traceEvents": [{}]}, "z": "\\\\"',
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 10**6])
def test_metadata_of_other_types_is_just_not_used(head: str, chunk_bytes: int, tmp_path: Path) -> None:
    trace = read(file_of(*OPS, head=head), tmp_path, chunk_bytes=chunk_bytes)
    assert len(trace.ops) == len(OPS)
    assert trace.meta.rank is None


def test_a_long_string_before_the_events_costs_no_more_than_its_length(tmp_path: Path) -> None:
    head = '"x": "' + '\\"{[' * (MAX_ELEMENT_BYTES // 5) + '"'
    assert len(read(file_of(*OPS, head=head), tmp_path).ops) == len(OPS)


def test_large_metadata_after_the_events(tmp_path: Path) -> None:
    tail = '"x": [' + ", ".join('{"a": "],}{["}' for _ in range(20_000)) + "]"
    trace = read(file_of(*OPS, tail=tail), tmp_path, chunk_bytes=50_000)
    assert len(trace.meta.metadata["x"]) == 20_000


# --------------------------------------------------------------------------------------------------------------- paths


def test_a_named_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(file_of(*OPS)),))
    writer.start()
    trace = read_trace(str(pipe))
    writer.join()
    assert len(trace.ops) == len(OPS)


@pytest.mark.parametrize("name", ["x" * 5000, "nowhere.json", ""])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    source = str(tmp_path / name)
    assert find_sources([source]) == [source] if name else True
    with pytest.raises(TraceNotFoundError):
        read_trace(source)


# ------------------------------------------------------------------------------------------- what the reader counts by


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[]", []),
        (b"[{}]", [1]),
        (b'[{"a": 1, "b": [1, 2, {"c": 3, "d": 4}]}, {"e": "},{,"}]', [2, 1]),
        (b'[{"a": "\\\\", "b": "\\",", "a": {}}]', [3]),
    ],
)
def test_members_are_counted(text: bytes, expected: list[int]) -> None:
    assert count_members(text).tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", (0, 0)), (b"[[]]", (2, 0)), (b'{"a": "]]"', (1, 1)), (b'{"a": "\\"{{', (1, 1)), (b"}", (-1, -1))],
)
def test_depths(text: bytes, expected: tuple[int, int]) -> None:
    assert depths(text) == expected


def test_files_beyond_the_limit_are_not_searched_for_repeated_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "UNIQUE_KEYS_UP_TO_BYTES", 10)
    twice = OPS[0].replace('"dur"', '"ts":7.000,"dur"')
    assert read(file_of(twice), tmp_path).ops.start_ns.tolist() == [7000]  # the last one counts, as in any reader
