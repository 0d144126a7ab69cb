"""`profkit export`: a trace with what profkit found in it, for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from profkit.allocator import collector_paused
from profkit.cli.shared.command import Command
from profkit.cli.shared.newest import newest_capture
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import (
    Option,
    around_option,
    common_options,
    lenient_option,
    output_option,
    step_range_option,
)
from profkit.cli.shared.progress import ReadingProgress
from profkit.cli.shared.say import say
from profkit.errors import UsageError

if TYPE_CHECKING:
    from profkit.cli.shared.gathered import Asked, Gathered
    from profkit.export.document import Written
    from profkit.export.own import Around
    from profkit.export.place import Place
    from profkit.export.tables import Columns
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.trace import Trace

_JSON: Final = (".json", ".json.gz")
_SUFFIXES: Final = (*_JSON, ".csv", ".parquet", ".speedscope.json")
TABLES: Final = ("gpu", "ops", "calls", "spans", "steps", "budget", "findings", "work")
"""What a table can hold."""


@click.command("export", cls=Command, short_help="A trace with profkit's findings in it, for other viewers.")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True), metavar="[TRACE]...")
@output_option(
    ".json or .json.gz (Chrome trace), .csv or .parquet (a table), .speedscope.json (a flame chart)", is_required=True
)
@around_option
@step_range_option
@click.option(
    "--table",
    cls=Option,
    type=click.Choice(TABLES),
    metavar="TABLE",
    show_default="gpu, or ops where no device worked",
    help=f"Write this table to .csv or .parquet: {', '.join(TABLES)}.",
)
@lenient_option
@common_options
def command(
    paths: tuple[str, ...],
    output: Path,
    around: str | None,
    step_text: str | None,
    table: str | None,
    lenient: bool,
) -> int:
    """Write a trace for other tools: with profkit's own rows beside its events, or as tables.

    TRACE is whatever `profkit triage` reads. A Chrome trace (.json, .json.gz) holds all events of the traces as they
    stand, and rows of profkit's: steps, budget, idle causes, findings. Several ranks come into one file, on one clock.
    It is read by https://ui.perfetto.dev (`profkit open`), by chrome://tracing, and by profkit. Without TRACE: the
    newest capture below this folder.

    \b
    Examples:
      profkit export trace.json.gz -o with-findings.json.gz
      profkit export run/ -o all-ranks.json.gz                       one file, clocks aligned
      profkit export trace.json.gz --around host.sync -o sync.json   the proof alone, for a ticket
      profkit export trace.json.gz -o kernels.parquet                device work (pip install 'profkit[parquet]')
      profkit export trace.json.gz --table budget -o budget.csv
      profkit export report.sqlite -o nsys.json.gz                   an nsys export, for Perfetto
    """
    click.get_current_context().with_resource(collector_paused(is_last=True))
    load_numpy()
    from profkit.cli.shared.gathered import Asked, local_files
    from profkit.cli.triage import jobs_for, parsed_steps

    suffix = _suffix(output)
    if table and suffix in (*_JSON, ".speedscope.json"):
        raise UsageError(f"--table is for .csv and .parquet, not {suffix}", hint="leave it out, or write a .csv")
    paths = paths or (newest_capture(),)
    with local_files(paths) as sources, ReadingProgress() as progress:
        _refuse_overwriting(output, sources)
        asked = Asked(lenient=lenient, step_range=parsed_steps(step_text), jobs=jobs_for(sources))
        if suffix in _JSON:
            _chrome(sources, asked, around, output, progress)
        elif suffix == ".speedscope.json":
            _charts(sources, asked, around, output, progress)
        else:
            _table(sources, asked, around, table, output, progress)
    return 0


def _suffix(output: Path) -> str:
    """The format by the name of the output; raises UsageError for one that is not known."""
    name = output.name.lower()
    found = [suffix for suffix in _SUFFIXES if name.endswith(suffix)]
    if not found:
        raise UsageError(f"cannot tell a format from {output.name!r}", hint=f"end -o in {', '.join(_SUFFIXES)}")
    return max(found, key=len)


def _refuse_overwriting(output: Path, sources: list[str]) -> None:
    for source in sources:
        place = Path(source)
        if output.exists() and place.exists() and output.samefile(place):
            raise UsageError(f"-o {output} is the trace itself", hint="choose another name for the export")


def _chrome(sources: list[str], asked: Asked, key: str | None, output: Path, progress: Progress) -> None:
    from profkit.cli.shared.gathered import gathered
    from profkit.export.document import Written

    found = gathered(sources, asked, progress)
    where = _around(found, key)
    written = Written()
    n_bytes = write_chrome(found, asked, where, output, progress, written)
    _tell(found, asked, where, written, n_bytes, output)


def _table(
    sources: list[str], asked: Asked, key: str | None, table: str | None, output: Path, progress: Progress
) -> None:
    """Write a table and say which, with how many rows."""
    from profkit.cli.shared.output import deliver_chunks
    from profkit.export.tables import csv_of, parquet_of

    name, columns = _tabled(sources, asked, key, table, progress)
    is_csv = output.name.lower().endswith(".csv")
    deliver_chunks(csv_of(columns) if is_csv else [parquet_of(columns)], output)
    n = len(next(iter(columns.values()), []))
    say(f"wrote {output}: the table {name}, {n:,} row{'' if n == 1 else 's'}")


def _tabled(
    sources: list[str], asked: Asked, key: str | None, name: str | None, progress: Progress
) -> tuple[str, Columns]:
    """The name of the table, of none asked for the device's work or operators where there is none; its columns."""
    from profkit.cli.shared.gathered import gathered
    from profkit.export import tables

    if name in tables.OF_REPORTS:
        found = gathered(sources, asked, progress)
        if name == "budget":
            return name, tables.budget(found.ranks)
        if name == "findings":
            return name, tables.findings(found.findings)
        return "work", tables.work(found.tracks)
    parts: list[Columns] = []
    for trace, place, window_ns in _each_trace(sources, asked, key, progress):
        name = name or ("gpu" if len(trace.gpu) else "ops")
        rank = place.rank if trace.meta.rank is None else trace.meta.rank
        parts.append(tables.of_trace(trace, name, rank=rank, shift_ns=place.shift_ns, window_ns=window_ns))
    return name or "gpu", tables.together(parts)


def _each_trace(
    sources: list[str], asked: Asked, key: str | None, progress: Progress
) -> Iterator[tuple[Trace, Place, tuple[int, int] | None]]:
    """Each trace with its place among the others, and the window of it that is asked for, on its own clock."""
    from profkit.cli.shared.gathered import gathered, windows_of
    from profkit.export.place import Place
    from profkit.ingest.read import read_traces
    from profkit.pipeline import narrowed

    if len(sources) == 1 and key is None:
        for trace in read_traces(sources[0], lenient=asked.lenient, jobs=asked.jobs, progress=progress):
            cut = trace if asked.step_range is None else narrowed(trace, asked.step_range)
            yield trace, Place(rank=trace.meta.rank), None if asked.step_range is None else cut.window_ns
        return
    found = gathered(sources, asked, progress)
    windows = windows_of(found, asked, _around(found, key))
    for path, _ in found.files():
        for number, trace in found.traces_in(path, lenient=asked.lenient, progress=progress):
            yield trace, found.places[number], windows[number]


def _charts(sources: list[str], asked: Asked, key: str | None, output: Path, progress: Progress) -> None:
    from profkit.cli.shared.output import deliver_chunks
    from profkit.export.speedscope import Charts

    charts = Charts()
    for trace, place, window_ns in _each_trace(sources, asked, key, progress):
        charts.add(trace, prefix=place.prefix, shift_ns=place.shift_ns, window_ns=window_ns)
    deliver_chunks([charts.text(Path(sources[0]).name)], output)
    say(f"wrote {output}: {len(charts)} charts, a thread or a stream each; look at it on https://www.speedscope.app")


def _around(found: Gathered, key: str | None) -> Around | None:
    if key is None:
        return None
    from profkit.export.own import around

    return around(found.tracks, key)


def write_chrome(
    found: Gathered,
    asked: Asked,
    where: Around | None,
    output: Path,
    progress: Progress,
    written: Written,
) -> int:
    """Write the document; its size in bytes. Raises UsageError where the place cannot be written."""
    from profkit.cli.shared.gathered import parts_of
    from profkit.cli.shared.output import deliver_chunks
    from profkit.export.document import chrome_trace
    from profkit.ingest.bytes.bytesource import gzipped

    parts = list(parts_of(found, asked, where, progress))
    told: dict[str, object] = {} if where is None else {"around": where.key, "span_ns": list(where.span_ns)}
    if any(part.path is None for part in parts):
        told["drawn_from"] = "nsys"
    chunks = chrome_trace(parts, told=told, lenient=asked.lenient, progress=progress, written=written)
    return deliver_chunks(gzipped(chunks) if output.name.lower().endswith(".gz") else chunks, output)


def _tell(found: Gathered, asked: Asked, where: Around | None, written: Written, n_bytes: int, output: Path) -> None:
    """Say what was written, what of the trace it is, and how to look at it."""
    from profkit.cli.shared.say import say_below
    from profkit.shell import line_of
    from profkit.units import format_bytes, format_ns

    n = len(found.tracks)
    say(f"wrote {output} ({format_bytes(n_bytes)}{f', {n} ranks on one clock' if n > 1 else ''})")
    if where is not None:
        length, room = where.span_ns[1] - where.span_ns[0], where.span_ns[0] - where.window_ns[0]
        of = f" of {found.places[where.number].label}" if n > 1 else ""
        many = f"the longest of its {where.n:,} intervals" if where.n > 1 else "its interval"
        key = where.key.removeprefix("finding:")
        say_below(f"around {key}: {many}{of}, {format_ns(length)}, with {format_ns(room)} on each side")
        say_below("left out: all events that do not touch this window" + _arrows(written))
    elif asked.step_range is not None:
        say_below("left out: all events outside of these steps" + _arrows(written))
    say_below(f"look at it: {line_of('profkit open', str(output)).text}")


def _arrows(written: Written) -> str:
    n = written.n_arrows_cut
    return "" if n == 0 else f", and {n:,} arrow{'s' if n > 1 else ''} that lead{'' if n > 1 else 's'} out of it"
