"""Traces that the compiled scanner and Python read both: whole files, and arrays of events whose text or values change."""

import copy
import json
import random
from typing import Any

import msgspec

from profkit.ingest.kineto.arguments import Args
from profkit.ingest.kineto.columns import TABLE_OF_CATEGORY
from tests.fuzz.documents import Blob, Case, File
from tests.fuzz.kinds import kineto

Event = dict[str, Any]


def _keys_of(kind: type[Args]) -> set[str]:
    own = {field.encode_name for field in msgspec.structs.fields(kind)}
    return own.union(*map(_keys_of, kind.__subclasses__()))


KEYS = sorted(_keys_of(Args))
"""Of all arguments that profkit reads of some event."""
_COLLECTIVE = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 6,
    "Group size": 2,
    "Process Group Ranks": "[0, 1]",
    "Seq": 4,
}
_SHAPES = {
    "Input Dims": [[9, 3], [2, 5]],
    "Input type": ["float", ""],
    "Input Strides": [[3, 1], []],
    "Concrete Inputs": ["", "1"],
}
_RANGE = {"ph": "X", "pid": 9, "tid": 9, "ts": 1000.5, "dur": 2.25}
_LANE = {"device": 0, "stream": 7, "correlation": 3, "External id": 5}


def _range(cat: str, name: str, **args: Any) -> Event:
    return {**_RANGE, "cat": cat, "name": name, "args": args}


_EVENTS: list[Event] = [
    _range("cpu_op", "aten::mm", **{"External id": 3, "Sequence number": 4, "Fwd thread id": 0}, **_SHAPES),
    _range("cpu_op", "aten::view", **{"External id": 4}, **_SHAPES),
    _range("cpu_op", "aten::embedding", **{"External id": 5}, **_SHAPES),
    _range("cpu_op", "record_param_comms", **{"External id": 6}, **_COLLECTIVE),
    _range("Operator", "aten::add", **{"external id": 7}),
    _range("cuda_runtime", "cudaLaunchKernel", **{"correlation": 3, "External id": 5}),
    _range("cuda_driver", "cuLaunchKernelEx", correlation=4, **{"external id": "7"}),
    _range("kernel", "void gemm<1, 2>(float*)", grid=[1, 2, 3], block=[64, 1, 1], **_LANE),
    _range("kernel", "ncclDevKernel_AllReduce", grid="[4, 5, 6]", **{"graph node id": 8}, **_LANE, **_COLLECTIVE),
    _range("Kernel", "gemm") | {"pid": 1, "tid": "stream 7"},
    _range("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", bytes=4096, **_LANE),
    _range("cuda_sync", "Stream Sync", device=0, stream=7),
    _range("gpu_user_annotation", "ProfilerStep#3", device=0, stream=7),
    _range("user_annotation", "ProfilerStep#3"),
    _range("python_function", "train.py(3): step", **{"Python id": 1, "Python parent id": None, "Python module id": 2}),
    _range("overhead", "Activity Buffer Request"),
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 9, "ts": 5, "args": {"Bytes": 512, "Addr": 9, "Device Type": 1, "Device Id": 0, "Total Allocated": 5}},
    {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "pid": 9, "tid": 9, "ts": 5, "id": 5},
    {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "pid": 9, "tid": 8, "ts": 7, "id": 5, "bp": "e"},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 9, "tid": 9, "ts": 5, "id": 1},
    {"ph": "M", "name": "thread_name", "pid": 9, "tid": 9, "ts": 0, "args": {"name": "thread 9 (python)"}},
    {"ph": "X", "name": "aten::mm", "pid": "CPU functions", "tid": 9, "ts": 5, "dur": 2},
    {"ph": "C", "cat": "profkit", "name": "profkit.tokens", "pid": 9, "tid": 0, "ts": 5, "args": {"tokens": 70}},
]  # fmt: skip
_CATEGORIES = [*TABLE_OF_CATEGORY, "fwdbwd", "ac2g", "profkit", "x", None]
_VALUES: list[Any] = [
    *(0, 1, -1, 7, 2**31, 2**40, -(2**40), 2**62, 10**18, 10**19, -(10**18), 1.5, 2.0, 1e20, None, True),
    *("", "7", "stream 7", "gpu", "12x", "x" * 201 + "3", "é", "é7", "1 2", "a1b2", "tokens", "aten::embedding", "record_param_comms"),
    *([], [1, 2, 3], [1, 2], [1, 2, 3, 4], "1 2 3 4", ["1", 2, 3], {}, {"a": [1, 1e300]}, "[1, 2, 3]", "(4,5)", "[[2, 3], [4, 5]]", [[2, 3], [4]], "a.py(3): f;b.py(4): g"),
]  # fmt: skip
_NAMES = [
    *("a", "aten::view", "aten::mm", "record_param_comms", "aten::embedding", "[memory]", "thread_name", "profkit.tokens", "profkit.samples"),
    *("", '\n"x"\\', "é", "🙂", "x" * 300),
]  # fmt: skip
_TIMES = [
    *(0, 1, 5.125, 5.0045, 5.00450001, 0.0005, 1.0015, 1723456789012345.5, 1723456789012345, 2**51),
    *(2305843009213693.9, -3, -0.0005, 4398046511103.9995),
]
_PIECES = [
    *('"', "\\", "\\u0041", "\\u00e9", "\\ud800", "\\n", "{", "}", "[", "]", ",", ":", " ", "\n", "é", "\x00", "\x1f", "x"),
    *("null", "true", "-", "0", "-0", "1e3", "1E400", "0.0005", "0.0015", "0.00050001", ".5", "5.", "01", "123456789012345678901", "NaN"),
    *('"ts": 1, ', '"bp": "e", ', '"cat": "x", ', '"args": {}, ', '"args": null, ', '"x": [[{"y": {}}], 1.50], ', '"pid": "CPU functions", '),
    *('"External id": 7, ', '"device": "gpu 3", ', '"stream": 1.5, ', '"grid": "[1, 2, 3]", ', '"block": [7, 8], ', '"Bytes": null, '),
    *('"Input Dims": [[2, 3], []], ', '"Call stack": "a.py(3): f", ', '"Collective name": "x", ', '"Seq": 1e999, ', '"Addr": "", '),
]  # fmt: skip


def _changed(rng: random.Random, events: list[Event]) -> None:
    """Change one event's values: mostly to what some trace might have."""
    event = rng.choice(events)
    what = rng.choice(
        [
            *("argument", "argument", "argument", "name", "cat", "ph", "ts", "dur", "pid", "tid", "id", "other"),
            *("args", "drop"),
        ]
    )
    if what == "argument":
        if not isinstance(event.get("args"), dict):
            event["args"] = {}
        known = [*event["args"]] if rng.random() < 0.6 else []
        event["args"][rng.choice(known or [*KEYS, "other"])] = rng.choice(_VALUES)
    elif what == "name":
        event["name"] = rng.choice(_NAMES)
    elif what == "cat":
        event["cat"] = rng.choice(_CATEGORIES)
        if event["cat"] is None and rng.random() < 0.9:
            del event["cat"]
    elif what == "ph":
        event["ph"] = rng.choice("XXXXiMCsfBEXX")
    elif what in ("ts", "dur"):
        event[what] = rng.choice(_TIMES)
    elif what in ("pid", "tid", "id"):
        event[what] = rng.choice(_VALUES)
    elif what == "other":
        event[rng.choice(["bp", "other", "cat "])] = rng.choice(_VALUES)
    elif what == "args":
        event["args"] = rng.choice([None, {}, {"Collective name": "x"}])
    elif event:
        event.pop(rng.choice([*event]))


def _damaged(rng: random.Random, text: str) -> str:
    """Text with a piece put in, taken out, written twice, or in the place of a value."""
    at = rng.randrange(len(text) + 1)
    after = [place + 1 for place, letter in enumerate(text) if letter in "{:"] or [0]
    place = rng.choice(after)
    how = rng.randrange(6)
    if how == 0:
        return text[:at] + rng.choice(_PIECES) + text[at:]
    if how == 1:
        return text[:at] + text[at + rng.randrange(6) :]
    if how == 2:
        return text[: at + 30] + text[at:]
    if how == 3:
        return text[:place] + rng.choice(_PIECES) + text[place:]
    end = min((found for found in (text.find(",", place), text.find("}", place)) if found > 0), default=place)
    return text[:place] + rng.choice(_PIECES).strip(", ") + text[end:]


def array(rng: random.Random) -> bytes:
    """The text of an array of events: changed in its values, and at times damaged."""
    events = [copy.deepcopy(rng.choice(_EVENTS)) for _ in range(rng.randrange(12))]
    for _ in range(rng.randrange(5) if events else 0):
        _changed(rng, events)
    text = json.dumps(events, indent=rng.choice([None, None, 1]), ensure_ascii=rng.random() < 0.5)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        text = _damaged(rng, text)
    return text.encode("utf-8", "surrogatepass")


def drawn(rng: random.Random) -> Case:
    """A file that `profkit info` reads, in either way: most are arrays of events, some are whole traces."""
    words = ["info", "--lenient"] if rng.random() < 0.3 else ["info"]
    if rng.random() < 0.3:
        case = kineto.drawn(rng)
        (name,) = case.files
        return Case(kind="native", files={"t.json": case.files[name]}, commands=[[*words, "t.json"]], done=case.done)
    return Case(kind="native", files={"t.json": File(body=Blob(array(rng)))}, commands=[[*words, "t.json"]])
