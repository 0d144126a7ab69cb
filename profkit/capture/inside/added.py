"""What a capture adds to the profiler's export: keys before its events, and rows of its own.

The keys say what it knows of the run, and of the time beside the recording; the rows what loader workers did, and what
the script counted.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..beside import redact
from ..lines import other_loop

_CATEGORY: Final = "profkit"
_MOST_WORKERS: Final = 256
_OF_TIMED: Final = (
    "profiled",
    "after",
    "found",
    "worker_lines",
    "thread_lines",
    "threads",
    "handed",
    "run",
    "loops",
)
"""Facts of the timed steps, which the trace of a second window lacks."""
_FAR: Final = 2.0
"""Times the median, from which a step may be a rare one (chosen: a profiler costs steps alike)."""
_RARE: Final = 0.3
"""The share of the steps up to which such ones are rare (chosen: of two waits in five steps the mean is the step)."""


def top_level(facts: dict[str, Any]) -> dict[str, Any]:
    """The keys a capture adds to its trace; times in ns, absent where not known."""
    baseline, profiled, after = (facts.get(name) or {} for name in ("baseline", "profiled", "after"))
    keys = {
        "torch_version": facts.get("torch"),
        "profkit_command": facts.get("command"),
        "profkit_command_mark": _mark(facts.get("command")),
        "profkit_unprofiled_step_mean_ns": baseline.get("mean_ns"),
        "profkit_unprofiled_step_ns": baseline.get("median_ns"),
        "profkit_unprofiled_steps": baseline.get("n"),
        "profkit_unprofiled_usual_ns": usual_mean(*baseline.get("steps_ns", ()), *after.get("steps_ns", ())),
        "profkit_profiled_usual_ns": usual_mean(*profiled.get("steps_ns", ())),
        "profkit_profiled_step_mean_ns": profiled.get("mean_ns"),
        "profkit_after_step_mean_ns": after.get("mean_ns"),
        "profkit_after_steps": after.get("n"),
        "profkit_first_step": facts.get("first_step"),
        "profkit_step_source": facts.get("step_source"),
        "profkit_is_cut": facts.get("is_cut"),
        "profkit_steps_wanted": facts.get("n_wanted"),
        "profkit_other_loop": other_loop(facts.get("loops") or []) or None,
        "profkit_stop_ns": facts.get("stop_ns"),
        "profkit_export_ns": facts.get("export_ns"),
        "profkit_python": facts.get("python"),
        "profkit_cuda": facts.get("cuda"),
        "profkit_device": facts.get("device"),
        "profkit_memory": facts.get("memory"),
        "cores": facts.get("cores"),
        "profkit_scheduling": facts.get("scheduling") or None,
        "profkit_connections": facts.get("connections") or None,
        "profkit_clocks": facts.get("clocks") or None,
        "profkit_rank": facts.get("rank"),
        "profkit_world_size": facts.get("world_size"),
        "profkit_capture_id": facts.get("capture_id"),
        "profkit_loaders": facts.get("loaders") or None,
        "profkit_worker_fetch_ns": _median(end - start for _, _, start, end, _ in facts.get("fetches") or []),
        "profkit_workers_busy": busy_share(facts.get("fetches") or []),
        "profkit_run": facts.get("run") or None,
        "profkit_worker_lines": facts.get("worker_lines") or None,
        "profkit_threads": _threads(facts) or None,
        "profkit_workers": _workers(facts.get("fetches") or []) or None,
        "profkit_worker_starts": facts.get("starts") or None,
        "profkit_padding": facts.get("padding"),
        "profkit_subnormals": facts.get("subnormals"),
        **_code(facts.get("found") or {}),
    }
    return {key: without_secrets(value, key) for key, value in keys.items() if value is not None and value != ""}


def places_level(facts: dict[str, Any]) -> dict[str, Any]:
    """The same of the trace of a second window, whose times are of no use but to say what it cost."""
    places, timed = facts.get("places") or {}, top_level({**facts, **dict.fromkeys(_OF_TIMED)})
    keys = {
        "profkit_places_of": facts.get("trace"),
        "profkit_first_step": places.get("first_step"),
        "profkit_is_cut": places.get("is_cut"),
        "profkit_profiled_step_mean_ns": (places.get("steps") or {}).get("mean_ns"),
        "profkit_places_steps": places.get("n_steps"),
        "profkit_places_stalled_ns": places.get("stalled_ns"),
        "profkit_places_sampled": places.get("is_sampled") or None,
        **_code(facts.get("places_found") or {}),
    }
    timed = {key: value for key, value in timed.items() if key not in ("profkit_stop_ns", "profkit_export_ns")}
    return {**timed, **{key: without_secrets(value) for key, value in keys.items() if value is not None}}


def without_secrets(value: Any, key: str = "") -> Any:
    """What a capture tells, without the secrets in its texts: any of them may be the script's; commands come clean."""
    if isinstance(value, dict):
        return {
            redact().redacted_text(name) if isinstance(name, str) else name: without_secrets(one, str(name))
            for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [without_secrets(one) for one in value]
    return redact().redacted_text(value) if isinstance(value, str) and not key.endswith("command") else value


def _code(found: dict[str, Any]) -> dict[str, Any]:
    """What a recording with Python stacks says of the script's code."""
    return {
        "profkit_modules": found.get("modules"),
        "profkit_user_files": found.get("user_files"),
        "profkit_call_lines": found.get("calls"),
        "profkit_source_lines": (found.get("texts") or {}) if found else None,
    }


def _threads(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The other threads of Python in the timed steps, and as `looked` what each was seen to do."""
    looked = {one["thread"]: one for one in facts.get("thread_lines") or ()}
    handed: dict[int, int] = {}
    for _, start_ns, end_ns, giver in facts.get("handed") or ():
        handed[giver] = handed.get(giver, 0) + end_ns - start_ns
    return [
        {**one, "looked": looked.get(one["thread"]), "awaited_ns": handed.get(one["thread"], 0)}
        for one in facts.get("threads") or ()
    ]


def busy_share(fetches: Iterable[Any]) -> float | None:
    """The mean share (0-1) of their time in which workers fetch: of each from the start of a fetch to that of its last.

    `fetches` are (process, worker, start ns, end ns, samples). None where no worker fetched twice.
    """
    of: dict[Any, list[tuple[int, int]]] = {}
    for pid, worker, start_ns, end_ns, _ in fetches:
        of.setdefault((pid, worker), []).append((start_ns, end_ns))
    shares = []
    for rows in of.values():
        rows.sort()
        spent_ns = rows[-1][0] - rows[0][0]
        if spent_ns > 0:
            shares.append(min(sum(end - start for start, end in rows[:-1]) / spent_ns, 1.0))
    return round(sum(shares) / len(shares), 4) if shares else None


def usual_mean(*steps_ns: int) -> int | None:
    """The mean of step times (ns) without rare long ones; None of no step.

    Not of all: one that saves, or a step of another kind as a rollout, is in some stretches and not in others. Not
    the median: steps that wait for every fourth batch are of two kinds. So the long ones count where they are many.
    """
    ordered = sorted(steps_ns)
    if not ordered:
        return None
    usual = [one for one in ordered if one <= _FAR * ordered[len(ordered) // 2]]
    kept = usual if len(ordered) - len(usual) <= _RARE * len(ordered) else ordered
    return round(sum(kept) / len(kept))


def _workers(fetches: Iterable[Any]) -> list[dict[str, Any]]:
    """Of each worker process its number, the batches that it fetched and the median time (ns) for one."""
    of: dict[Any, list[int]] = {}
    for pid, worker, start_ns, end_ns, _ in fetches:
        of.setdefault((pid, worker), []).append(end_ns - start_ns)
    return [{"worker": worker, "n": len(spent), "ns": _median(spent)} for (_, worker), spent in sorted(of.items())][
        :_MOST_WORKERS
    ]


def _median(lengths_ns: Iterable[int]) -> int | None:
    found = sorted(lengths_ns)
    return found[len(found) // 2] if found else None


def _mark(command: Any) -> str:
    """What tells this user's own profkit that it has recorded this command; "" where no key can be kept."""
    try:
        from profkit import signing
    except ImportError:  # the traced interpreter has no profkit
        return ""
    return str(signing.mark_of(signing.COMMAND, command.encode())) if isinstance(command, str) and command else ""


def rows(facts: dict[str, Any], base_ns: int) -> list[dict[str, Any]]:
    """The rows a capture adds: fetches of loader workers, each worker its own row, collections, counters of steps."""
    fetches, own = facts.get("fetches") or [], facts.get("pid", 0)

    def spent(category: str, name: str, pid: int, thread: int, start_ns: int, end_ns: int) -> dict[str, Any]:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread}
        return {**event, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns)}

    events: list[dict[str, Any]] = []
    for pid, worker in sorted({(row[0], row[1]) for row in fetches}):
        name = f"DataLoader worker {worker}"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": {"name": name}})
    for pid, worker, start_ns, end_ns, n_samples in fetches:
        event = spent(_CATEGORY, "profkit.worker_fetch", pid, pid, start_ns, end_ns)
        events.append({**event, "args": {"worker": worker, "samples": n_samples}})
    for thread, start_ns, end_ns, generation in facts.get("pauses") or []:
        name = f"Python GC (generation {generation})"
        events.append(spent("user_annotation", name, own, thread, start_ns, end_ns))
    for thread, start_ns, end_ns, _ in facts.get("handed") or []:
        events.append(spent("user_annotation", "profkit.batch_of_thread", own, thread, start_ns, end_ns))
    for name, start_ns, end_ns, number, parent, thread in facts.get("sampled") or []:
        event = spent("python_function", name, own, thread, start_ns, end_ns)
        events.append({**event, "args": {"Python id": number, "Python parent id": parent}})
    for unix_ns, counts in facts.get("counters") or []:
        for name, value in counts.items():
            event = {"ph": "C", "cat": _CATEGORY, "name": f"profkit.{name}", "pid": own, "tid": 0}
            events.append({**event, "ts": _us(unix_ns - base_ns), "args": {name: value}})
    return events


def _us(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)
