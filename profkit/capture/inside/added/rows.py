"""The rows that a capture adds to its trace: what loader workers did, and what the script counted.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import Any, Final

_CATEGORY: Final = "profkit"


def rows(facts: dict[str, Any], base_ns: int) -> list[dict[str, Any]]:
    """The rows a capture adds: fetches of loader workers, each worker its own row, collections, counters of steps."""
    events: list[dict[str, Any]] = []
    for pid, worker in sorted({(row[0], row[1]) for row in facts.get("fetches") or []}):
        name = f"DataLoader worker {worker}"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": {"name": name}})
    for pid, worker, start_ns, end_ns, n_samples in facts.get("fetches") or []:
        event = {"ph": "X", "cat": _CATEGORY, "name": "profkit.worker_fetch", "pid": pid, "tid": pid}
        args = {"worker": worker, "samples": n_samples}
        events.append({**event, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns), "args": args})
    for thread, start_ns, end_ns, generation in facts.get("pauses") or []:
        event = {"ph": "X", "cat": "user_annotation", "name": f"Python GC (generation {generation})"}
        at = {"pid": facts.get("pid", 0), "tid": thread, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns)}
        events.append({**event, **at})
    for thread, start_ns, end_ns, _ in facts.get("handed") or []:
        event = {"ph": "X", "cat": "user_annotation", "name": "profkit.batch_of_thread", "pid": facts.get("pid", 0)}
        events.append({**event, "tid": thread, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns)})
    for name, start_ns, end_ns, number, parent, thread in facts.get("sampled") or []:
        event = {"ph": "X", "cat": "python_function", "name": name, "pid": facts.get("pid", 0), "tid": thread}
        args = {"Python id": number, "Python parent id": parent}
        events.append({**event, "ts": _us(start_ns - base_ns), "dur": _us(end_ns - start_ns), "args": args})
    for unix_ns, counts in facts.get("counters") or []:
        for name, value in counts.items():
            event = {"ph": "C", "cat": _CATEGORY, "name": f"profkit.{name}", "pid": facts.get("pid", 0), "tid": 0}
            events.append({**event, "ts": _us(unix_ns - base_ns), "args": {name: value}})
    return events


def _us(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)
