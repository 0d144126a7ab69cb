"""What a capture tells beside the events (`profkit/capture/inside/added.py`), one of each kind, and odd values."""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

MS: Final = 1_000_000
LINE: Final = {
    "file": "train.py",
    "line": 31,
    "function": "parse",
    "defined": 30,
    "text": "json.loads(line)",
    "call": "loads()",
}
LOOKED: Final = {
    "stream": {
        "n_samples": 64,
        "ns": 90 * MS,
        "n_workers": 2,
        "lines": [{**LINE, "call": "", "runs": 128, "given": 0, "ns": 80 * MS}],
    },
    "fetch_ns": 90 * MS,
    "seen_ns": 88 * MS,
    "n_workers": 2,
    "n_batches": 6,
    "n_looks": 60,
    "held_share": 0.5,
    "idle_ns": 9 * MS,
    "lines": [{**LINE, "ns": 70 * MS, "n_looks": 50}, {**LINE, "line": 0, "ns": 9 * MS, "n_looks": 10}],
}
AT: Final = {"file": "train.py", "line": 40, "function": "log", "text": "save(model)", "share": 0.9}
HOT: Final = {**AT, "share": 0.4, "n_looks": 900, "every": 1, "around": ["main"], "in_thirds": [0.1, 0.4, 0.7]}
HELD: Final = {"name": "losses", "has_graph": True, "has_tensor": True, "per_step": 1.0, **AT}
TOLD: Final[dict[str, Any]] = {
    "profkit_run": {
        "n": 90,
        "median_ns": 40 * MS,
        "mean_ns": 44 * MS,
        "usual_ns": 40 * MS,
        "first_ns": 36 * MS,
        "last_ns": 50 * MS,
        "n_long": 4,
        "hooks": [1, 9],
        "lines": [HOT],
        "rare": {
            "lines": [AT],
            "n": 4,
            "every": 20.0,
            "long_ns": 120 * MS,
            "beyond_ns": 320 * MS,
            "share": 0.08,
            "at_place": 0.9,
            "n_looks": 90,
            "is_regular": True,
            "inside": [AT],
            "callers": [AT],
            "way": "save",
            "callee": "save()",
        },
        "memory": {
            "bytes_per_step": 2**20,
            "grown_bytes": 90 * 2**20,
            "first_step": 1,
            "n_steps": 90,
            "held": {k: v for k, v in HELD.items() if k != "share"},
        },
        "slower": {
            "pace_ns": 36 * MS,
            "beyond_ns": 900 * MS,
            "n": 90,
            "line": AT,
            "callee": "log()",
            "at_place": 0.9,
            "n_looks": 90,
        },
    },
    "profkit_threads": [
        {"name": "feeder", "thread": 7, "run_ns": 200 * MS, "wait_ns": 5 * MS, "awaited_ns": 90 * MS, "looked": LOOKED}
    ],
    "profkit_loaders": [
        {"n_workers": 2, "dataset": {"name": "Rows.__iter__", "file": "train.py", "line": 28}, "collate": None}
    ],
    "profkit_worker_fetch_ns": 60 * MS,
    "profkit_worker_lines": LOOKED,
    "profkit_workers_busy": 0.9,
    "profkit_workers": [
        {"worker": 0, "n": 5, "ns": 20 * MS},
        {"worker": 1, "n": 5, "ns": 21 * MS},
        {"worker": 2, "n": 5, "ns": 99 * MS},
    ],
    "profkit_worker_starts": [{"n_workers": 2, "starts": 4, "ns": 900 * MS, "batches": 60, "is_rebuilt": True}],
    "profkit_other_loop": {
        "name": "Adam",
        "recorded": "SGD",
        "share": 0.09,
        "spent_ns": 380 * MS,
        "options": "--optimizer 2 --steps 2",
    },
    "profkit_steps_wanted": 20,
    "profkit_padding": {
        "n_batches": 16,
        "n_padded": 9_000,
        "n_all": 12_000,
        "longest": 31,
        "lengths": [64],
        "of": "input_ids",
    },
    "profkit_subnormals": {
        "flushes": False,
        "kinds": [{"of": "what Cell gives", "n_found": 3, "n_looks": 9}],
        "products": [{"of": "x", "shape": [8, 9], "flop_per_s": 2 * 10**9, "flop_per_s_of_zeros": 3 * 10**10}],
    },
    "profkit_call_lines": {"unix_ns": [5 * MS], "line": [3], "looked_unix_ns": [6 * MS]},
    "profkit_scheduling": {
        "span_ns": 300 * MS,
        "run_ns": 200 * MS,
        "wait_ns": 90 * MS,
        "all_run_ns": 250 * MS,
        "children_run_ns": 9,
        "cores": 2,
        "ranks": 1,
        "threads": 2,
    },
    "profkit_clocks": {"n": 3, "n_thermal": 1, "mhz": 900, "held_mhz": 900, "highest_mhz": 1900, "sampled_ms": 100},
    "profkit_connections": [
        {"id": "0123456789ab", "end": 0, "acked_bytes": 9, "resent_bytes": 0, "busy_ns": 9}
        | {"peer_limited_ns": 1, "buffer_limited_ns": 1}
    ],
    "profkit_device": {"type": "cpu", "has_bf16": True},
    "profkit_memory": {"peak_host_bytes": 9},
    "profkit_user_files": ["train.py"],
    "profkit_modules": {"Linear_0": "head"},
    "profkit_source_lines": {"train.py:31": "json.loads(line)"},
    "profkit_unprofiled_usual_ns": 40 * MS,
    "profkit_profiled_usual_ns": 41 * MS,
}
ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    "x\x1b[31m\u202e",
    "9" * 5000,
    -1,
    0,
    1,
    0.5,
    -0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    2**63,
    -(2**63) - 1,
    10**400,
    [],
    {},
    [[[[]]]],
    [None],
    {"a": {"b": []}},
    [-1] * 9,
    ["x"] * 300,
    [{}] * 300,
)


def instead(value: Any) -> Iterator[Any]:
    """The value with each thing in it, and itself, replaced by each odd value in turn."""
    yield from ODD
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, inner in places:
        for other in instead(inner):
            copy = json.loads(json.dumps(value))
            copy[place] = other
            yield copy
