"""Result tables, one row per run, as people keep them: CSV, TSV or JSON, columns found by their names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit import files
from profkit.compare.stats.sample import LARGEST, Sample, is_plausible
from profkit.compare.tables import headings
from profkit.compare.tables.headings import Metric
from profkit.errors import TraceFormatError, TraceNotFoundError, UsageError
from profkit.ingest.bytes.bytesource import path_size
from profkit.ingest.texts import LONGEST_LABEL
from profkit.model.grouped import grouped
from profkit.redact import redacted_cell, redacted_text

MAX_BYTES: Final = 64 * 2**20
ROW_KEYS: Final = ("rows", "runs", "results", "data", "cases")
"""Where the rows of a JSON object may lie."""

Cells = Mapping[str, str]
FAILED: Final = frozenset({"", "-", "nan", "none", "null", "oom", "fail", "failed", "error", "timeout", "crashed"})
"""What people write in place of a number when a run gave none; the row is left out, and the table says so."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `value` is in the metric's unit; sizes are bytes; what the table does not tell is None.

    `work` is what all GPUs do in one step, in `work_unit`: samples or tokens. `labels` are the columns that say
    how the run was configured, by heading, without batch and GPUs.
    """

    line: int
    value: float
    gpus: int | None
    work: float | None = None
    micro_batch: float | None = None
    accumulation: float | None = None
    memory_bytes: float | None = None
    capacity_bytes: float | None = None
    arm: str = ""
    block: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    work_unit: str = "samples"


class ResultTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was read: rows in the order of the file, and what was left out."""

    source: str
    metric: Metric
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    def sample(self, name: str, rows: Sequence[Row]) -> Sample:
        """Rows as the runs of one side; they have blocks if every row has one."""
        return Sample(
            name=name,
            values=tuple(row.value for row in rows),
            unit=self.metric.unit,
            higher_is_better=self.metric.higher_is_better,
            blocks=blocks_of(rows),
        )

    def arms(self) -> dict[str, Sample]:
        """The runs by the column that names their side ("arm"), or by configuration where there is none."""
        by_arm = grouped((row.arm or configuration(row), row) for row in self.rows)
        return {name: self.sample(name, rows) for name, rows in by_arm.items()}


def blocks_of(rows: Sequence[Row]) -> tuple[int, ...]:
    """The block of each run; none where a run has none."""
    blocks = tuple(row.block for row in rows if row.block is not None)
    return blocks if len(blocks) == len(rows) else ()


def is_result_table(path: Path) -> bool:
    """Whether a file is a table of runs rather than a trace: by suffix, and a JSON file by what it begins with."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return True
    if path.suffix.lower() != ".json":
        return False
    try:
        with files.open_file(path) as file:
            if path_size(file) > MAX_BYTES:
                return False
            head = file.read(65536).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:  # the reader of traces says what is wrong with it
        return False
    is_trace = b'"ph"' in head or b'"traceEvents"' in head or b'"schemaVersion"' in head
    return not is_trace and (head.startswith(b"[") or any(f'"{key}"'.encode() in head for key in ROW_KEYS))


def read_table(path: str | Path, *, metric: str | None = None) -> ResultTable:
    """The table in a CSV, TSV or JSON file; `metric` names the measured column where its name does not tell.

    Raises TraceNotFoundError, TraceFormatError or UsageError, each with line, column and the value seen.
    """
    file = Path(path)
    return table_of(file.name, read_records(file), metric=metric)


def table_of(source: str, records: Sequence[tuple[int, Cells]], *, metric: str | None = None) -> ResultTable:
    """The table of records that were read; raises as `read_table` does."""
    names = list(dict.fromkeys(name for _, cells in records for name in cells))
    measured = headings.metric_of(names, metric, source)
    configuring = _configuration_columns(names, [cells for _, cells in records], measured)
    rows: list[Row] = []
    failed: list[str] = []
    for line, cells in records:
        told = cells.get(measured.column, "").strip()
        if told.lower() in FAILED:
            failed.append(f"line {line} ({told or 'empty'})")
            continue
        rows.append(_Reader(source=source, line=line, cells=cells, names=names).row(measured, configuring))
    if not rows:
        raise TraceFormatError(f"{source} has no run with a number in {measured.column!r}", hint="one row per run")
    warnings = (f"{len(failed)} of {len(records)} rows of {source} have no result: {', '.join(failed[:5])}",)
    return ResultTable(source=source, metric=measured, rows=tuple(rows), warnings=warnings if failed else ())


def matched(baseline: ResultTable, candidate: ResultTable) -> list[tuple[str, Sample, Sample]]:
    """The runs of two tables side by side, for each configuration that both have (GPUs, batch, labels).

    Raises UsageError where the tables measure different things or share no configuration.
    """
    ours, theirs = baseline.metric, candidate.metric
    if (ours.unit, ours.higher_is_better) != (theirs.unit, theirs.higher_is_better):
        raise UsageError(
            f"the tables measure different things: {baseline.source}: {ours.words}; {candidate.source}: {theirs.words}",
            hint="choose a column that both have with --metric",
        )
    sides = [grouped((configuration(row), row) for row in table.rows) for table in (baseline, candidate)]
    shared = [(name, sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]]
    if not shared and all(len(side) == 1 for side in sides):  # one configuration each: that is what is compared
        ((before, old),), ((after, new),) = (side.items() for side in sides)
        shared = [(f"{before} -> {after}", old, new)]
    if not shared:
        raise UsageError(
            f"{baseline.source} and {candidate.source} share no configuration",
            hint=f"the first has {'; '.join(list(sides[0])[:3])}, the second {'; '.join(list(sides[1])[:3])}",
        )
    return [
        (name, baseline.sample(baseline.source, old), candidate.sample(candidate.source, new))
        for name, old, new in shared
    ]


def configuration(row: Row) -> str:
    """How a run was set up in words: `8 GPUs, batch 4 x 1, activation_ckpt=False`."""
    parts = [] if row.gpus is None else [f"{row.gpus} GPU" + "s" * (row.gpus != 1)]
    if row.micro_batch is not None:
        accumulation = "" if row.accumulation is None else f" x {row.accumulation:g}"
        parts.append(f"batch {row.micro_batch:g}{accumulation}")
    parts += [f"{name}={value}" for name, value in row.labels]
    return ", ".join(parts) or "all runs"


def _configuration_columns(names: Sequence[str], records: Sequence[Cells], metric: Metric) -> list[str]:
    """The columns that tell configurations apart: words and switches, no measures, no names of single runs."""
    chosen = []
    for name in names:
        values = [cells.get(name, "").strip() for cells in records]
        is_name_of_run = len(values) > 2 and len(set(values)) == len(values)
        are_numbers = all(is_number(value) for value in values if value)
        is_kind = {"weak", "strong"} & set(values)  # the same run may be a point of both
        if name == metric.column or not any(values) or is_name_of_run or is_kind:
            continue
        if headings.has_role(name) or headings.is_measure(name) or (are_numbers and not is_setting(name)):
            continue
        chosen.append(name)
    return chosen


def is_setting(name: str) -> bool:
    """Whether a column of numbers is a setting: workers, lengths, depths; other numbers are results."""
    words = set(headings.normal(name).split("_"))
    return bool(
        words & {"workers", "seq", "seqlen", "length", "stage", "layers", "hidden", "nodes", "shard", "tp", "pp"}
    )


def is_number(text: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Reader(msgspec.Struct, frozen=True, kw_only=True):
    """One record on its way to a Row."""

    source: str
    line: int
    cells: Cells
    names: Sequence[str]

    def row(self, metric: Metric, configuring: Sequence[str]) -> Row:
        gpus = self._whole("gpus")
        value = self._positive(metric.column) * metric.scale
        micro, accumulation = self._of_role("micro_batch"), self._of_role("accumulation")
        arm, told = headings.role_of(self.names, "arm"), self._of_role("work")
        return Row(
            line=self.line,
            value=value * (gpus or 1) if metric.is_per_gpu else value,
            gpus=gpus,
            work=told
            or self._of_role("global_batch")
            or (micro * (accumulation or 1) * gpus if micro and gpus else None),
            micro_batch=micro,
            accumulation=accumulation,
            memory_bytes=self._bytes(headings.memory_of(self.names)),
            capacity_bytes=self._bytes(headings.capacity_of(self.names)),
            arm=self.cells.get(arm, "").strip() if arm else "",
            block=self._whole("block"),
            labels=tuple((name, self.cells.get(name, "").strip()) for name in configuring),
            work_unit=headings.work_unit(self.names) if told else "samples",
        )

    def _of_role(self, role: str) -> float | None:
        column = headings.role_of(self.names, role)
        return self._positive(column) if column and self.cells.get(column, "").strip() else None

    def _whole(self, role: str) -> int | None:
        column = headings.role_of(self.names, role)
        text = self.cells.get(column, "").strip() if column else ""
        if not text:
            return None
        value = self._number(column or "")
        if not value.is_integer() or value < (0 if role == "block" else 1) or value > 10**9:
            raise self._bad(column or "", "a whole number")
        return int(value)

    def _bytes(self, found: tuple[str, float] | None) -> float | None:
        if found is None or self.cells.get(found[0], "").strip().lower() in FAILED:
            return None
        value = self._number(found[0])
        if not 0 <= value <= LARGEST:
            raise self._bad(found[0], "a size")
        return value * found[1]

    def _positive(self, column: str) -> float:
        value = self._number(column)
        if not is_plausible(value):
            raise self._bad(column, f"a positive number of up to {LARGEST:g}")
        return value

    def _number(self, column: str) -> float:
        try:
            return float(self.cells[column])
        except ValueError:
            raise self._bad(column, "a number") from None

    def _bad(self, column: str, wanted: str) -> TraceFormatError:
        seen = self.cells[column].strip()[:40]
        return TraceFormatError(f"{self.source} line {self.line}: {column} is {seen!r}, not {wanted}")


def read_records(file: Path) -> list[tuple[int, Cells]]:
    """Line (of JSON: number of the record) and cells of each row; raises TraceNotFoundError, TraceFormatError."""
    text = _text(file)
    records = _json_records(text, file.name) if file.suffix.lower() == ".json" else _csv_records(text, file.name)
    return [
        (line, {redacted_text(name): redacted_cell(name, cell) for name, cell in cells.items()})
        for line, cells in records
    ]


def _text(file: Path) -> str:
    try:
        return files.read_small(file, MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise TraceNotFoundError(f"there is no file {file}") from None
    except files.TooLargeError:
        most = files.size_of(MAX_BYTES)
        raise TraceFormatError(f"{file.name} has more than {most}: too large for a table of runs") from None
    except OSError as error:
        raise TraceNotFoundError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{file.name} is not text: byte {error.start} is not UTF-8") from None


def _csv_records(text: str, source: str) -> list[tuple[int, Cells]]:
    if "\0" in text:
        raise TraceFormatError(f"{source} is not text: it holds NUL bytes")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise TraceFormatError(f"{source} is not CSV: {error}") from None
    if len(lines) < 2:
        raise TraceFormatError(f"{source} has no rows below its headings", hint="a line of headings, then one per run")
    names = [name.strip() for name in lines[0][1]]
    _refuse_long(names, source)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TraceFormatError(f"{source} has several columns named {twice[0]!r}")
    for line, cells in lines[1:]:
        if len(cells) != len(names):
            raise TraceFormatError(f"{source} line {line} has {len(cells)} cells, the headings are {len(names)}")
    return [(line, dict(zip(names, cells, strict=True))) for line, cells in lines[1:]]


def _refuse_long(names: Iterable[str], source: str) -> None:
    """Raise TraceFormatError for what is no heading; what one means is looked for with patterns."""
    long = next((name for name in names if len(name) > LONGEST_LABEL), None)
    if long is not None:
        raise TraceFormatError(f"{source} has a heading of {len(long):,} characters: {long[:40]!r}...")


def _json_records(text: str, source: str) -> list[tuple[int, Cells]]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"{source} is not JSON: {error}") from None
    if isinstance(document, dict):
        document = next((document[key] for key in ROW_KEYS if isinstance(document.get(key), list)), None)
    if not isinstance(document, list) or not document or not all(isinstance(row, dict) for row in document):
        raise TraceFormatError(
            f"{source} is not a table of runs", hint='a list of objects, one per run, or {"runs": [...]}'
        )
    for row in document:
        _refuse_long(row, source)
    return [(number, {str(key): _cell(value) for key, value in row.items()}) for number, row in enumerate(document, 1)]


def _cell(value: object) -> str:
    """A JSON value as a cell; what is nested is no cell."""
    return "" if value is None or isinstance(value, (list, dict)) else str(value)
