"""A trace as plain values, free of codes and of the order of the file: equal if and only if two traces say the same."""

from typing import Any

from profkit.model.trace import Trace

TIMES = ("start_ns", "end_ns")
TABLES = ("gpu", "ops", "calls", "spans", "python", "overhead", "device_spans", "sync_rows", "memory", "flows")


def canonical(trace: Trace, *, shift_ns: int = 0) -> dict[str, Any]:
    """Give every table as a sorted list of rows, names and threads spelled out, times moved back by `shift_ns`."""
    calls = _rows(trace, "calls", shift_ns)
    found: dict[str, Any] = {name: sorted(_rows(trace, name, shift_ns), key=repr) for name in TABLES}
    launches = [calls[row] if row >= 0 else None for row in trace.gpu.launch_row.tolist()]
    found["links"] = sorted(zip(_rows(trace, "gpu", shift_ns), launches, strict=True), key=repr)
    found["steps"] = [(step.number, step.start_ns - shift_ns, step.end_ns - shift_ns) for step in trace.steps]
    found["window"] = tuple(edge - shift_ns for edge in trace.window_ns)
    found["warnings"] = sorted(warning.id for warning in trace.warnings)
    found["metadata"] = dict(trace.meta.metadata)
    found["categories"] = dict(trace.meta.categories)
    return found


def _rows(trace: Trace, table: str, shift_ns: int) -> list[tuple[tuple[str, Any], ...]]:
    columns = getattr(trace, table).columns()
    columns.pop("launch_row", None)  # a position; `links` holds what it points to
    spelled: dict[str, list[Any]] = {}
    for name, column in columns.items():
        values = column.tolist()
        if name == "name":
            values = [trace.name(code) for code in values]
        elif name == "thread":
            values = [(trace.threads[code].pid, trace.threads[code].tid, trace.threads[code].name) for code in values]
        elif name in TIMES:
            values = [value - shift_ns for value in values]
        spelled[name] = values
    return [tuple(zip(spelled, row, strict=True)) for row in zip(*spelled.values(), strict=True)]
