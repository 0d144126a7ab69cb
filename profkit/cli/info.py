"""`profkit info`: what is in a file, and which analyses it can feed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli.shared.amounts import Stretch
from profkit.cli.shared.columns import hanging, width_of
from profkit.cli.shared.command import Command
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import common_options, format_option, lenient_option
from profkit.cli.shared.progress import ReadingProgress
from profkit.errors import UsageError
from profkit.model.finding import Skipped
from profkit.shell import clean, line_of, path_word
from profkit.units import format_bytes, format_fraction, format_ns

if TYPE_CHECKING:
    from profkit.model.trace import Trace


@click.command("info", cls=Command, short_help="What is in a trace, and what it can show.")
@click.argument("path", type=click.Path(allow_dash=True), metavar="TRACE")
@format_option()
@click.option("--stats", is_flag=True, help="Also count and time each kernel, copy, call, OS call, range and operator.")
@click.option(
    "--between",
    type=Stretch(),
    metavar="500ms:1.5s",
    help="With --stats: only what begins in this stretch, from the first event on.",
)
@lenient_option
@common_options
def command(path: str, fmt: str, stats: bool, between: tuple[int, int] | None, lenient: bool) -> None:
    """Say what a trace or an nsys export holds (events, devices, steps, options of the profiler), whether the capture
    is sound, and which analyses it can feed; for the others, what is missing and how to get it. Of a folder: the
    captures, traces, exports and kernel profiles in it, a line each, and the command that reads each. Of a memory
    snapshot (torch.cuda.memory._dump_snapshot): what holds memory at its end and at the peak, and what is free.

    \b
    Examples:
      profkit info trace.json.gz
      profkit info runs/                                      what lies in a folder
      profkit info profile.sqlite --stats                     totals, medians and spread by name, as nsys stats has them
      profkit info profile.sqlite --stats --between 2s:2.5s   of half a second
    """
    if between is not None and not stats:
        raise UsageError("--between chooses what --stats counts", hint="profkit info TRACE --stats --between 2s:2.5s")
    if path != "-" and os.path.isdir(path):  # noqa: PTH112 - no error for a long name
        _tell_folder(Path(path), fmt, is_asked_more=stats or lenient)
        return
    load_numpy()
    if _tell_snapshot(Path(path), fmt):
        return
    from profkit.ingest.read import read_traces

    with ReadingProgress() as progress:
        contents = [
            describe(trace) | (_stats(trace, between) if stats else {})
            for trace in read_traces(path, lenient=lenient, progress=progress)
        ]
    if fmt == "json":
        click.echo(json.dumps(contents[0] if len(contents) == 1 else contents, indent=1))
        return
    click.echo("\n\n".join(map(_as_text, contents)))


def _tell_snapshot(path: Path, fmt: str) -> bool:
    """Print what a memory snapshot holds; False where the file is no pickle."""
    from profkit.ingest.snapshot.reader import is_pickle, read_snapshot

    if not is_pickle(path):
        return False
    snapshot = read_snapshot(path)
    if fmt == "json":
        from msgspec import to_builtins

        click.echo(json.dumps(to_builtins(snapshot), indent=1))
        return True
    from profkit.cli.parts.snapshot import lines_of

    click.echo("\n".join(map(clean, lines_of(snapshot))))
    return True


def _tell_folder(folder: Path, fmt: str, *, is_asked_more: bool) -> None:
    """Print what lies in a folder; raises UsageError where more is asked than a folder has."""
    from msgspec.structs import asdict

    from profkit.cli.parts.contents import contents, lines

    entries = contents(folder)
    if is_asked_more:
        hint = line_of("profkit info", path_word(entries[0].path), "--stats").text
        raise UsageError(f"{folder} is a folder: --stats and --lenient are for one trace", hint=hint)
    if fmt == "json":
        click.echo(json.dumps({"source": str(folder), "entries": [asdict(one) for one in entries]}, indent=1))
        return
    click.echo("\n".join(lines(folder, entries)))


def describe(trace: Trace) -> dict[str, Any]:
    """What a trace holds as plain values."""
    from msgspec import to_builtins

    from profkit.analyzers import ANALYZERS, quality
    from profkit.timeline import Facts
    from profkit.timeline.pace import paced
    from profkit.timeline.unexplained import unexplained

    trace = paced(trace).trace
    facts = Facts.of(trace)
    results = {name: analyzer.measure(facts) for name, analyzer in ANALYZERS.items()}
    gate = quality.measure(facts)
    meta = trace.meta
    return {
        "source": meta.source,
        "format": meta.traits.format,
        "n_bytes": meta.n_bytes,
        "n_events": meta.n_events,
        "rank": meta.rank,
        "world_size": meta.world_size,
        "backend": meta.backend or None,
        "window_ns": trace.window_duration_ns,
        "n_steps": len(trace.steps),
        "step_source": trace.step_source,
        "devices": [
            {"device": d.index, "name": d.name, "n_sms": d.n_sms, "memory_bytes": d.memory_bytes} for d in meta.devices
        ],
        "active_devices": list(trace.device_indices),
        "options": {
            "with_stack": meta.has_stacks,
            "record_shapes": meta.has_shapes,
            "profile_memory": meta.has_memory,
        },
        "rows": {name: len(getattr(trace, name)) for name in _TABLES},
        "categories": dict(meta.categories),
        "checks": [{"id": c.id, "ok": c.ok, "value": c.value, "message": c.message} for c in quality.checks(gate)],
        "analyses": {
            name: None
            if not isinstance(result, Skipped)
            else {"missing": result.reason, "how_to_get": result.how_to_get}
            for name, result in results.items()
        },
        "open_kernel_names": to_builtins(unexplained(trace)),
        "warnings": [warning.message for warning in trace.warnings],
        "metadata": {str(key): value for key, value in meta.metadata.items() if key not in _BULKY},
    }


_BULKY = ("deviceProperties", "profkit_call_lines", "profkit_source_lines", "profkit_modules")
"""Keys of the metadata that have a row for each device, line or module."""

_STATS = {
    "kernels": "kernels",
    "copies": "copies and memsets",
    "calls": "CUDA calls",
    "waits": "calls of the operating system",
    "ranges": "ranges (one inside another counts in both)",
    "operators": "operators (one inside another counts in both)",
}
_OF_CODE = frozenset({"kernels", "operators"})  # C++ names, of which the bare one is shown; others are as written
_SPREAD = ("total", "mean", "median", "min", "max", "stddev")
_WIDE = 120
"""Columns that a table with all of these takes, and names that can be read (chosen)."""
_NARROWEST_NAME = 20
_PIPED = 2_000
"""Columns where nothing says how many there are: names are whole for what reads them."""
_MOST_NAMES = 15
"""Names shown of each table; JSON has all."""


def _stats(trace: Trace, between: tuple[int, int] | None) -> dict[str, Any]:
    """The totals of each name by table, as plain values, and the stretch that they are of."""
    from msgspec.structs import asdict

    from profkit.model.intervals import Intervals
    from profkit.timeline.totals import first_ns, sampled, totals

    found = totals(trace, between)
    first = first_ns(trace)
    during = None if between is None else Intervals.pairs([(first + between[0], first + between[1])])
    return {
        "stats_between_ns": None if between is None else list(between),
        "stats": {table: [asdict(one) for one in found.get(table, ())] for table in _STATS},
        "cpu_samples": [asdict(one) for one in sampled(trace, during=during)],
    }


def _stats_lines(contents: dict[str, Any]) -> list[str]:
    from profkit.model.names import short_name
    from profkit.render.terminal.layout import fitted

    between = contents["stats_between_ns"]
    of = "" if between is None else f", begun {format_ns(between[0])} to {format_ns(between[1])} after the first event"
    columns = _SPREAD if width_of(piped=_PIPED) >= _WIDE else _SPREAD[:3]
    lines: list[str] = []
    for table, title in _STATS.items():
        names = contents["stats"][table]
        if not names:
            continue
        heads = "".join(f"{head:>11}" for head in columns)
        lines += ["", f"{title}{of}", f"  {'share':>7}{'count':>10}{heads}  name"]
        shown = short_name if table in _OF_CODE else clean
        for one in names[:_MOST_NAMES]:
            times = "".join(f"{format_ns(one[f'{column}_ns']):>11}" for column in columns)
            before = f"  {format_fraction(one['share']):>7}{one['n']:>10,}{times}  "
            lines.append(
                before + fitted(shown(one["name"]), max(width_of(piped=_PIPED) - len(before), _NARROWEST_NAME))
            )
        if len(names) > _MOST_NAMES:
            lines.append(f"  and {len(names) - _MOST_NAMES:,} more names: -f json")
    if lines and columns != _SPREAD:
        lines += ["", f"{', '.join(_SPREAD[3:-1])} and {_SPREAD[-1]}: in a terminal of {_WIDE} columns, or -f json"]
    return (lines + _sample_lines(contents["cpu_samples"], of)) or ["", f"nothing{of}"]


def _sample_lines(samples: list[dict[str, Any]], of: str) -> list[str]:
    """The functions in which CPU samples found the threads, the most first."""
    from profkit.timeline.totals import Sampled

    if not samples:
        return []
    lines = ["", f"CPU samples: functions that ran{of}", f"  {'share':>7}{'samples':>10}  thread, function"]
    for one in (Sampled(**each) for each in samples[:_MOST_NAMES]):
        caller = f", called from {one.caller}" if one.caller not in {"", one.words} else ""
        lines.append(f"  {format_fraction(one.share):>7}{one.n:>10,}  {clean(f'{one.thread}: {one.words}{caller}')}")
    if len(samples) > _MOST_NAMES:
        lines.append(f"  and {len(samples) - _MOST_NAMES:,} more functions: -f json")
    return lines


_TABLES = (
    "gpu", "ops", "calls", "spans", "waits", "python", "collectives", "device_spans", "sync_rows", "memory", "flows",
    "samples",
)  # fmt: skip


def _open_names(found: dict[str, Any] | None) -> list[str]:
    """How many names of kernels leave open what they are, and the largest of them."""
    from profkit.model.names import short_name

    if found is None or not found["n"]:
        return []
    head = f"names    {found['n']:,} of {found['n_names']:,} kernel names do not tell all, {{}} of kernel time"
    each = "         {:>7}  {} ({})"
    return [head.format(format_fraction(found["share"]))] + [
        each.format(
            format_fraction(one["share"]),
            short_name(one["name"]),
            "a product; its number format is open" if one["is_product"] else "what it does is open",
        )
        for one in found["largest"]
    ]


def _as_text(contents: dict[str, Any]) -> str:
    of = f" of {contents['world_size']}" if contents["world_size"] else ""
    rank = "" if contents["rank"] is None else f", rank {contents['rank']}{of}"
    head = f"{contents['source']}: {contents['format']}"
    lines = [
        f"{head}, {contents['n_events']:,} events, {format_bytes(contents['n_bytes'])}{rank}",
        f"window   {format_ns(contents['window_ns'])}, {contents['n_steps']} steps (from {contents['step_source']})",
        "rows     " + ", ".join(f"{count:,} {name}" for name, count in contents["rows"].items() if count),
    ]
    active = set(contents["active_devices"])
    for device in contents["devices"]:
        if device["device"] in active:
            size = format_bytes(device["memory_bytes"])
            lines.append(f"device   {device['device']}: {device['name']}, {device['n_sms']} SMs, {size}")
    on = [name for name, is_on in contents["options"].items() if is_on]
    lines += [f"options  {', '.join(on) or 'none'}", *_open_names(contents["open_kernel_names"]), "", "checks"]
    lines += [
        f"  {'ok   ' if check['ok'] else 'FAILS'}  {check['id']:18} {check['message']}" for check in contents["checks"]
    ]
    lines += ["", "analyses"]
    for name, missing in contents["analyses"].items():
        lines.append(f"  {name:12} {'yes' if missing is None else 'no: ' + missing['missing']}")
        if missing is not None:
            lines.append(f"  {'':12} -> {missing['how_to_get']}")
    if contents["warnings"]:
        lines += ["", "warnings", *(f"  {message}" for message in contents["warnings"])]
    lines = [part for line in lines for part in hanging(clean(line), width_of(piped=_PIPED))]
    if "stats" in contents:
        lines += map(clean, _stats_lines(contents))
    return "\n".join(lines)
