"""The compiled scanner gives what Python gives, to the last bit, or steps aside."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.ingest.kineto import scanner
from profkit.native.library import Scanner
from tests.conftest import ROOT, SHARED_TRACES, every, examples
from tests.fuzz.kinds import kineto, native
from tests.ingest.both_ways import decoded_both_ways, needs_library, read_both_ways, reason
from tests.ingest.test_same_trace import COLLECTIVE, EVENTS, ID, other, x

OWN = sorted((ROOT / "traces").rglob("*.pt.trace.json.gz"))
SHARED = sorted(SHARED_TRACES.rglob("*.json*"), key=lambda path: (path.stat().st_size, path))
SMALL = [path for path in SHARED if path.stat().st_size < 400_000]
pytestmark = needs_library


def array_of(*events: dict[str, Any], indent: int | None = None) -> bytes:
    return json.dumps(events, indent=indent).encode()


def op(name: str = "aten::mm", **args: Any) -> dict[str, Any]:
    return x("cpu_op", name, 10, 2, **args)


def agree(by_scanner: Any, plain: Any) -> None:
    assert by_scanner == plain


# ------------------------------------------------------------------------------------------------------ whole files


@pytest.mark.parametrize("path", every(4, OWN, 0.2), ids=lambda path: str(path.relative_to(ROOT / "traces")))
def test_our_traces_are_read_to_the_same_bits(path: Path) -> None:
    agree(*read_both_ways(path))


@pytest.mark.shared
@pytest.mark.skipif(not SMALL, reason="no real traces beside this checkout")
@pytest.mark.parametrize("path", every(12, SMALL, 0.5), ids=lambda path: path.name)
def test_real_traces_are_read_to_the_same_bits(path: Path) -> None:
    agree(*read_both_ways(path))


@pytest.mark.parametrize("path", OWN[:3], ids=lambda path: path.name)
def test_our_traces_are_taken_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    scan = Scanner.scan

    def listening(own: Scanner, array: bytes, *, unique_keys: bool) -> tuple[memoryview, int]:
        block, why = scan(own, array, unique_keys=unique_keys)
        told.append(scanner.REASONS[why])
        return block, why

    monkeypatch.setattr(Scanner, "scan", listening)
    read_both_ways(path)
    assert told
    assert set(told) == {"taken"}


@settings(max_examples=examples(400))
@given(seed=st.integers(0, 2**32))
def test_mutated_files_give_the_same_trace_or_the_same_error(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = kineto.drawn(random.Random(seed))  # noqa: S311 - inputs, no secrets
    ((_, file),) = case.files.items()
    path = tmp_path_factory.getbasetemp() / "native-mutated.json"
    path.write_bytes(file.data())
    agree(*read_both_ways(path, lenient=seed % 3 == 0))


# ----------------------------------------------------------------------------------------------------------- arrays

NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(-5, 10**16, allow_nan=False, places=4).map(str),
    st.sampled_from(
        [
            *("0.0005", "1.0015", "1.0025", "4398046511103.9995", "2305843009213693.952", "2305843009213693.951"),
            *("-0", "-0.0", "1e3", "1.50"),
        ]
    ),
)


@settings(max_examples=examples(4000))
@given(seed=st.integers(0, 2**32), unique_keys=st.booleans())
def test_mutated_arrays_give_the_same_batch_or_the_same_error(seed: int, *, unique_keys: bool) -> None:
    drawn = native.array(random.Random(seed))  # noqa: S311 - inputs, no secrets
    agree(*decoded_both_ways(drawn, unique_keys=unique_keys))


@settings(max_examples=examples(400))
@given(ts=NUMBERS, dur=NUMBERS, first=NUMBERS)
def test_times_are_rounded_alike(ts: str, dur: str, first: str) -> None:
    row = '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": %s, "dur": %s}'
    array = f"[{row % (first, 1)}, {row % (ts, dur)}]".encode()
    agree(*decoded_both_ways(array))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("unique_keys", [False, True])
def test_all_usual_events_are_taken(indent: int | None, unique_keys: bool) -> None:
    array = array_of(*EVENTS, indent=indent)
    assert reason(array, unique_keys=unique_keys) == "taken"
    agree(*decoded_both_ways(array, unique_keys=unique_keys))


SHAPES = {"Input Dims": [[9, 3], [2, 5]], "Input type": ["float", ""], "Concrete Inputs": ["", "1"]}
TAKEN = {
    "no events": [],
    "an empty event in company": [{"ph": "X"}],
    "shapes": [
        op(**SHAPES),
        op("aten::view", **SHAPES),
        op(**SHAPES),
        op("aten::add", **(SHAPES | {"Input type": []})),
    ],
    "an embedding": [op("aten::embedding", **SHAPES), op("aten::embedding"), op()],
    "collectives of both": [
        x("kernel", "k", 1, 1),
        x("kernel", "nccl", 1, 1, **COLLECTIVE),
        x("kernel", "k", 1, 1, **{"Collective name": ""}),
        op("record_param_comms", **COLLECTIVE, **{"Process Group Ranks": "[0, 1]", ID: 4}),
        op("aten::embedding", **SHAPES),
    ],
    "threads by text and number": [
        op() | {"pid": pid, "tid": tid} for pid, tid in [(1, 2), ("1", 2), (1, "é"), (None, 2), (1, "é")]
    ],
    "lanes from pid and tid": [
        x("Kernel", "k", 1, 1) | {"pid": "gpu 3", "tid": "stream 7"},
        x("gpu_memcpy", "c", 1, 1, device=-1),
    ],
    "old ids": [op(**{"external id": 5}), x("cuda_runtime", "c", 1, 1, **{ID: -1, "external id": "7"})],
    "frames": [
        x("python_function", "f", 1, 1, **{"Python id": 1}),
        x("python_function", "g", 1, 1, **{"Python id": 2, "Python parent id": 1}),
    ],
    "a later phase first": [
        other("f", "fwdbwd", "b", 3, id=5),
        other("s", "fwdbwd", "a", 1, id=5),
        other("f", "fwdbwd", "b", 4, id=6),
    ],
    "arrows of any phase": [other("s", "ac2g", "a", 3, id=5), other("f", "ac2g", "a", 3, id=5)],
    "categories in turn": [
        x("Operator", "a", 1, 1),
        x("cuda_driver", "b", 1, 1),
        op("c"),
        x("cuda_runtime", "d", 1, 1),
        x("Operator", "e", 1, 1),
    ],
    "a category with two phases": [
        other("i", "cpu_op", "[memory]", 1),
        op(),
        other("B", "cpu_op", "x", 1),
        other("i", "x", "y", 1),
    ],
    "what a script counted": [
        {**other("C", "profkit", f"profkit.{kind}", 1), "args": {kind: value}}
        for kind, value in [("tokens", 5), ("samples", 2.5), ("tokens", "x")]
    ]
    + [op("aten::embedding", **SHAPES)],
    "escapes": [op('a "b" \\ / \n\t é \u20ac'), op('a "b" \\ / \n\t é \u20ac')],
    "memory without a size": [
        other("i", "cpu_instant_event", "[memory]", 1, args={"Bytes": None}),
        other("i", "cpu_instant_event", "[memory]", 1),
    ],
    "graph nodes": [x("kernel", "k", 1, 1, **{"graph node id": node}) for node in (None, "x")]
    + [x("kernel", "k", 1, 1, **{"graph node id": 7}), x("gpu_memset", "m", 1, 1, **{"graph node id": "node 7"})],
    "grids of four": [x("kernel", "k", 1, 1, grid=grid) for grid in ([1, 2, 3, 4], "1 2 3 4", [])],
    "grids": [
        x("kernel", "k", 1, 1, grid=grid) for grid in ([1, 2, 3], "[4, 5, 6]", [1, 2], "x", None, [-1, 2**40, 0])
    ],
    "names of threads": [
        {**other("M", "", name, 0), "args": {"name": "t"}} for name in ("thread_name", "process_name")
    ],
}
for events in TAKEN.values():
    for event in events:
        if event.get("cat") == "":
            del event["cat"]


@pytest.mark.parametrize("case", TAKEN)
@pytest.mark.parametrize("unique_keys", [False, True])
def test_what_is_certain_is_taken_and_the_same(case: str, unique_keys: bool) -> None:
    array = array_of(*TAKEN[case])
    assert reason(array, unique_keys=unique_keys) == "taken"
    agree(*decoded_both_ways(array, unique_keys=unique_keys))


ROW = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "args": {}}'
LEFT = {
    "is no plain JSON": ["", "{}", f"[{ROW}", f"[{ROW} {ROW}]", f"[{ROW}] x", '[{"ph": "X",}]', '[{"x" 1}]'],
    "holds what is no event": ["[", "[1]", "[null]", f"[{ROW},]", f"[{ROW}, []]"],
    "has an escape in a key": ['[{"p\\u0068": "X"}]', '[{"ph": "X", "args": {"d\\u0065vice": 1}}]'],
    "has a key twice": ['[{"ph": "X", "ph": "X"}]', '[{"ph": "X", "args": {"device": 1, "device": 2}}]'],
    "has a member of another kind": [
        *('[{"ph": 1}]', '[{"ph": ""}]', '[{"cat": "x"}]', '[{"ph": "X", "cat": ""}]', '[{"ph": "X", "cat": null}]'),
        *(
            '[{"ph": "X", "name": 5}]',
            '[{"ph": "X", "pid": 1.5}]',
            '[{"ph": "X", "pid": true}]',
            '[{"ph": "X", "id": []}]',
        ),
        *(
            '[{"ph": "X", "args": []}]',
            '[{"ph": "X", "x": tru}]',
            '[{"ph": "X", "name": "\\ud800"}]',
            '[{"ph": "X", "name": "\x1f"}]',
        ),
    ],
    "has an argument of another kind": [
        ROW.replace("{}", f'{{"External id": {value}}}').join("[]")
        for value in ("1.5", "true", "[]", "1e3", "-0", "99999999999999999999", '"7 8"', "nul")
    ],
    "has an argument of another kind ": [
        f'[{ROW.replace("{}", args)}, {{"ph": "M", "name": "thread_name"}}]'
        for args in ('{"tokens": 1e999}', '{"Seq": [1e999]}', '{"dtype": {"a": 99999999999999999999}}')
    ],
    "has a time of another kind": [
        *(
            ROW.replace('"dur": 1', f'"dur": {value}').join("[]")
            for value in ("-1", "1e3", '"1"', "null", "-0", "99999999999999999")
        ),
        *(
            ROW.replace('"ts": 1', f'"ts": {value}').join("[]")
            for value in ("2305843009213693.953", "01", "1.", ".1", "+1", "NaN")
        ),
    ],
    "has a device that is none": [ROW.replace("cpu_op", "kernel").replace("{}", '{"device": 3000000000}').join("[]")],
    "is of an old version": [
        '[{"ph": "X", "name": "a", "pid": "CPU functions", "ts": 1}]',
        ROW.replace("cpu_op", "Operator").replace('"a"', '"record_param_comms"').join("[]"),
    ],
}


@pytest.mark.parametrize(("why", "text"), [(why, text) for why, texts in LEFT.items() for text in texts])
def test_what_is_not_certain_is_left_to_python(why: str, text: str) -> None:
    assert reason(text.encode()) == why.strip()
    agree(*decoded_both_ways(text.encode()))


def test_a_member_that_nobody_reads_may_stand_twice_only_in_a_large_file() -> None:
    array = b'[{"ph": "X", "bp": 1, "bp": 2}]'
    assert reason(array) == "taken"
    assert reason(array, unique_keys=True) == "has a key twice"


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_what_is_not_utf8_is_left_to_python(byte: bytes) -> None:
    array = b'[{"ph": "X", "x": "' + b"a" * 40 + byte + b'"}]'
    assert reason(array) == "is not UTF-8"


def test_text_that_nests_deeply_and_categories_without_number_are_left_to_python() -> None:
    assert reason(b'[{"ph": "X", "x": ' + b"[" * 65 + b"]" * 65 + b"}]") == "has a member of another kind"
    assert reason(array_of(*({"ph": "X", "cat": f"c{n}"} for n in range(300)))) == "has too much of a kind"


def test_stacks_of_old_versions_are_left_to_python() -> None:
    array = array_of(op(**{"Call stack": "train.py(3): step;train.py(9): main"}))
    assert scanner.decode(array, unique_keys=False) is None
    agree(*decoded_both_ways(array))


def test_one_scanner_remembers_nothing_of_the_batch_before() -> None:
    arrays = [array_of(*EVENTS), array_of(op("z", **SHAPES)), b"[]", b"[{]", array_of(*EVENTS[:3]), array_of(*EVENTS)]
    first = [decoded_both_ways(array) for array in arrays]
    assert all(by_scanner == plain for by_scanner, plain in first)
    assert first[0] == first[-1]


def test_names_that_differ_in_their_last_bytes_are_taken() -> None:
    rows = [x("cpu_op", f"{name} {n}", 1000 + n, 1) for n in range(500) for name in ("node", "aten::ab")]
    array = json.dumps(rows).encode()
    assert reason(array) == "taken"
    agree(*decoded_both_ways(array))
