"""Memory snapshots: what holds memory in drawn ones, and files that mean harm."""

import json
import pickle
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.errors import ProfkitError, TraceFormatError
from profkit.ingest.snapshot import plain_pickle, reader
from profkit.ingest.snapshot.plain_pickle import NotPlainError, loads
from profkit.ingest.snapshot.reader import read_snapshot
from profkit.model.snapshot import Snapshot
from tests.calling import profkit

MB = 10**6


def stack(line: int, file: str = "/home/me/train.py") -> list[dict[str, Any]]:
    """A stack as the allocator records it, the innermost frame first."""
    return [
        {"filename": "??", "line": 0, "name": "at::native::empty_cuda(c10::ArrayRef<long>)"},
        {"filename": "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 114, "name": "forward"},
        {"filename": file, "line": line, "name": "step"},
        {"filename": file, "line": 900, "name": "<module>"},
    ]


def block(size: int, state: str = "active_allocated", frames: Any = (), asked: int | None = None) -> dict[str, Any]:
    return {
        "address": 0,
        "size": size,
        "requested_size": size if asked is None else asked,
        "state": state,
        "frames": list(frames),
    }


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    total = sum(one["size"] for one in blocks)
    return {
        "device": device,
        "address": 4096,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "blocks": list(blocks),
    }


def event(action: str, address: int, size: int, frames: Any = (), **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": list(frames), **more}


SEGMENTS = [
    segment(
        block(60 * MB, frames=stack(30)), block(20 * MB, "inactive"), block(20 * MB, frames=stack(31), asked=18 * MB)
    ),
    segment(block(10 * MB, "active_pending_free", frames=stack(30)), block(10 * MB, frames=stack(30))),
    segment(block(40 * MB, "inactive")),
    segment(block(5 * MB), device=1),
]
HISTORY = [
    event("alloc", 1, 60 * MB, stack(30)),
    event("alloc", 2, 100 * MB, stack(44)),
    event("segment_alloc", 3, 100 * MB),
    event("alloc", 3, 10 * MB, stack(30)),
    event("free_requested", 2, 100 * MB),
    event("free_completed", 2, 100 * MB),
    event("oom", 0, 500 * MB, device_free=7 * MB),
]


def written(value: Any, folder: Path, protocol: int | None = None) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol=protocol))
    return path


def snapshot(folder: Path, value: Any = None, protocol: int | None = None) -> Snapshot:
    drawn = {"segments": SEGMENTS, "device_traces": [HISTORY, []], "allocator_settings": {}}
    return read_snapshot(written(drawn if value is None else value, folder, protocol))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_parts_of_reserved_memory_add_up(tmp_path: Path, protocol: int) -> None:
    first, second = snapshot(tmp_path, protocol=protocol).devices
    assert (first.reserved_bytes, first.n_segments, first.n_blocks) == (160 * MB, 3, 6)
    assert (first.allocated_bytes, first.requested_bytes, first.pending_bytes) == (90 * MB, 88 * MB, 10 * MB)
    assert (first.split_bytes, first.cached_bytes, first.largest_free_bytes) == (20 * MB, 40 * MB, 40 * MB)
    assert (second.device, second.reserved_bytes) == (1, 5 * MB)


def test_memory_is_held_by_lines_of_the_users_own_code(tmp_path: Path) -> None:
    first = snapshot(tmp_path).devices[0]
    assert [(one.where, one.is_own, one.n, one.n_bytes, one.largest_bytes) for one in first.holdings] == [
        ("me/train.py:30 in step()", True, 2, 70 * MB, 60 * MB),
        ("me/train.py:31 in step()", True, 1, 20 * MB, 20 * MB),
    ]
    assert [one.n_bytes for one in first.largest] == [60 * MB, 20 * MB, 10 * MB]


def test_the_peak_is_counted_back_from_the_end(tmp_path: Path) -> None:
    peak = snapshot(tmp_path).devices[0].peak
    assert peak is not None
    assert (peak.n_bytes, peak.n_events_before_end) == (188 * MB, 3)
    assert peak.earlier_bytes == 18 * MB
    assert [(one.where, one.n_bytes) for one in peak.holdings] == [
        ("me/train.py:44 in step()", 100 * MB),
        ("me/train.py:30 in step()", 70 * MB),
    ]


def test_an_allocation_that_failed_is_told(tmp_path: Path) -> None:
    first = snapshot(tmp_path).devices[0]
    assert (first.n_failed, first.failed_bytes, first.failed_free_bytes) == (1, 500 * MB, 7 * MB)


def test_a_list_of_segments_and_old_blocks_are_read(tmp_path: Path) -> None:
    old = {
        "size": 8 * MB,
        "state": "active_allocated",
        "history": [{"addr": 1, "real_size": 7 * MB, "frames": stack(12)}],
    }
    (device,) = snapshot(tmp_path, [segment(old)]).devices
    assert device.requested_bytes is None
    assert device.peak is None
    assert device.holdings[0].where == "me/train.py:12 in step()"


def test_a_library_is_named_where_no_frame_is_the_users_own(tmp_path: Path) -> None:
    (device,) = snapshot(tmp_path, [segment(block(MB, frames=stack(1)[:2]))]).devices
    assert (device.holdings[0].is_own, "linear.py:114" in device.holdings[0].where) == (False, True)


def test_info_prints_it(tmp_path: Path) -> None:
    path = written({"segments": SEGMENTS, "device_traces": [HISTORY]}, tmp_path)
    shown = profkit("info", path)
    assert shown.returncode == 0, shown.stderr
    for part in (
        "160 MB reserved in 3 segments",
        "out of memory: an allocation failed; the last asked for 500 MB, 7.00 MB were left on the device",
        "me/train.py:44 in step()",
        "before the history began",
        "no Python stack",
    ):
        assert part in shown.stdout
    told = json.loads(profkit("info", path, "-f", "json").stdout)
    assert told["devices"][0]["peak"]["n_bytes"] == 188 * MB


TORCH = "/usr/lib/python3.11/site-packages/torch"


def frame(file: str, name: str) -> dict[str, Any]:
    return {"filename": file, "line": 7, "name": name}


ME = frame("/home/me/train.py", "step")
CALLED = frame(f"{TORCH}/nn/modules/module.py", "_call_impl")
ENGINE = frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward")
STEPPED = frame(f"{TORCH}/optim/optimizer.py", "wrapper")


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([frame(f"{TORCH}/nn/modules/linear.py", "forward"), CALLED, ME], "forward"),
        ([frame(f"{TORCH}/nn/modules/linear.py", "__init__"), ME], "model"),
        ([frame(f"{TORCH}/nn/modules/module.py", "_apply"), ME], "model"),
        ([frame(f"{TORCH}/optim/adam.py", "_init_group"), STEPPED, ME], "optimizer"),
        ([frame(f"{TORCH}/_tensor.py", "backward"), ENGINE, ME], "backward"),
        ([frame("??", "torch::autograd::Engine::evaluate_function(x)"), frame("??", "clone")], "backward"),
        ([CALLED, ENGINE, ME], "forward"),  # run again in backward, for a checkpoint
        ([CALLED, ME, STEPPED, ME], "forward"),  # in the closure of the optimizer
        ([ME], "other"),
        ([frame("??", "at::native::empty_cuda")], "unknown"),
        ([], "unknown"),
        ([{"filename": 3, "name": []}, 5], "unknown"),
    ],
)
def test_the_innermost_frame_that_tells_it_says_when_memory_was_allocated(
    tmp_path: Path, frames: Any, phase: str
) -> None:
    history = [event("alloc", 1, 7 * MB, frames), event("alloc", 2, MB, frames), event("free_completed", 2, MB)]
    value = {"segments": [segment(block(7 * MB, frames=frames), block(3 * MB))], "device_traces": [history]}
    (device,) = snapshot(tmp_path, value).devices
    unknown = 3 * MB
    assert sum(one.n_bytes for one in device.phases) == device.allocated_bytes
    told = {one.phase.value: one.n_bytes for one in device.phases}
    assert told == ({"unknown": 10 * MB} if phase == "unknown" else {phase: 7 * MB, "unknown": unknown})
    assert device.peak is not None
    assert sum(one.n_bytes for one in device.peak.phases) == device.peak.n_bytes == 11 * MB
    at_peak = {one.phase.value: (one.n, one.n_bytes) for one in device.peak.phases}
    assert at_peak["unknown"] == (None, 11 * MB if phase == "unknown" else unknown)
    assert phase == "unknown" or at_peak[phase] == (2, 8 * MB)


def test_info_prints_when_memory_was_allocated(tmp_path: Path) -> None:
    path = written([segment(block(6 * MB, frames=[CALLED, ME]), block(2 * MB, frames=[STEPPED, ME]))], tmp_path)
    shown = profkit("info", path).stdout
    assert "75.0 %   6.00 MB        1  forward, in modules: activations" in shown
    assert "25.0 %   2.00 MB        1  a step of the optimizer: its state" in shown


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harmed"),)


def _bomb() -> bytes:
    """Lists of ten of the list before, 40 times: 10^40 rows, in 900 bytes."""
    value: Any = {"blocks": [], "device": 0}
    for _ in range(40):
        value = {"device": 0, "blocks": [value] * 10, "state": value, "size": value, "frames": [value, value]}
    return pickle.dumps({"segments": [value]})


def _shared(n: int) -> bytes:
    blocks = [{"size": 1, "state": "inactive"}] * n
    return pickle.dumps({"segments": [{"device": 0, "blocks": blocks}] * n})


HOSTILE = {
    "a global": pickle.dumps(_Harm()),
    "a global inside": pickle.dumps({"segments": [_Harm()]}),
    "a set": pickle.dumps({"segments": {1, 2}}),
    "bytes": pickle.dumps({"segments": b"x"}),
    "a long byte array": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "a long text": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".",
    "a huge number": pickle.dumps({"segments": 1 << 40_000}),
    "another object": pickle.dumps([1, 2, 3]),
    "nothing": b"\x80\x04.",
    "an endless stack": b"\x80\x04" + b"(" * 100_000,
    "a value from before a mark": b"\x80\x04](a.",
    "a number filled": b"\x80\x04K\x01(K\x02e.",
    "a name that was not given": b"\x80\x04h\x05.",
    "rows without end": _shared(1000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_means_harm_is_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reader, "MOST_ROWS", 100_000)
    begun = time.monotonic()
    with pytest.raises(TraceFormatError) as told:
        read_snapshot(written(HOSTILE[name], tmp_path))
    assert "\n" not in told.value.message
    assert time.monotonic() - begun < 5
    assert not Path("harmed").exists()


def test_nested_and_shared_parts_are_looked_at_once_a_row(tmp_path: Path) -> None:
    (device,) = read_snapshot(written(_bomb(), tmp_path)).devices
    assert device.n_blocks == 10


def test_a_high_place_in_the_memo_takes_no_memory() -> None:
    assert loads(b"\x80\x04]r\xff\xff\xff\x7f.") == []


def test_keys_that_are_no_texts_are_left_out() -> None:
    nested: Any = ()
    for _ in range(60):
        nested = (nested, nested)  # its hash would take 2^60 steps
    machine = pickle.dumps([nested])[:-2]
    assert loads(pickle.dumps({1: 2, "a": 3})) == {"a": 3}
    assert loads(machine.replace(b"]", b"}", 1) + b"K\x01s.") == {}


def test_numbers_that_cannot_be_true_count_as_nothing(tmp_path: Path) -> None:
    blocks = [{"size": 2**90, "state": "active_allocated"}, {"size": -5, "state": 7}, {"size": "x"}]
    rows = [{"device": 0, "blocks": blocks}, {"device": -1, "blocks": []}, {"device": 2**70, "blocks": []}]
    (device,) = snapshot(tmp_path, rows).devices
    assert (device.reserved_bytes, device.n_blocks) == (0, 3)


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = pickle.dumps({"segments": SEGMENTS[:1]})
    for n in range(2, len(whole) - 1, 7):
        with pytest.raises(TraceFormatError):
            read_snapshot(written(whole[:n], tmp_path))


def test_too_many_instructions_are_refused() -> None:
    with pytest.raises(NotPlainError, match="more than 10 instructions"):
        loads(pickle.dumps([1] * 20), most_instructions=10)


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_SNAPSHOT_BYTES", 10)
    with pytest.raises(ProfkitError, match="more than 10 bytes"):
        snapshot(tmp_path)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(plain, st.sampled_from([2, 3, 4, 5]))
def test_plain_values_are_read_as_python_reads_them(value: Any, protocol: int) -> None:
    assert loads(pickle.dumps(value, protocol=protocol)) == value


@given(st.binary(max_size=60))
def test_whatever_the_bytes_it_raises_nothing_else(data: bytes) -> None:
    with suppress(NotPlainError):
        loads(plain_pickle.MAGIC[2] + data)
