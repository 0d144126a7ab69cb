"""The runs of a table as cells: one rung at one choice of settings of one series, with its repeats.

Each column of a table names the rungs, tells series apart, was set, or was seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from profkit.compare.stats.inference import t_quantile
from profkit.compare.stats.judge import DEFAULT_MARGIN, judge
from profkit.compare.stats.sample import Sample, is_plausible, variation
from profkit.compare.tables import headings
from profkit.compare.tables.headings import Metric
from profkit.compare.tables.result_tables import FAILED, Cells, ResultTable, Row, blocks_of, is_number, is_setting
from profkit.errors import TraceFormatError, UsageError
from profkit.model.documents.ladder import Cell, Counts, Factor, Noise, Settings
from profkit.model.grouped import grouped
from profkit.model.switches import is_off, is_on

_LEVEL: Final = 0.95
_BASE: Final = "base"
"""The rung that has no switch on."""
_RUNGS: Final = (
    "rung", "rungs", "category", "recipe", "configuration", "config", "variant", "arm", "optimization", "optimisation",
    "change", "method", "layers", "layer",
)  # fmt: skip
"""Columns of text that name the rungs, the surest first."""
_NAMES: Final = ("setup", "experiment", "name", "label", "mode")
"""Columns that do where neither these nor two switches are there."""
_LAYERS: Final = ("layers", "layer")
_SERIES: Final = frozenset(
    {
        "model", "stage", "phase", "task", "dataset", "machine", "host", "device", "gpu", "hardware", "accelerator",
        "size", "seq", "seqlen", "length", "hidden", "layers", "vocab", "vocabulary", "depth",
        "resolution", "nodes",
    }
)  # fmt: skip
"""Words of headings that say what was trained and on what: a throughput there is compared with no other."""
_NO_SERIES: Final = frozenset(
    {"workers", "parallel", "batch", "shard", "offload", "multiple", "chunk", "block", "tile", "bucket", "compile"}
)
_REMARKS: Final = frozenset(
    {"note", "notes", "comment", "comments", "date", "timestamp", "started", "command", "trace", "path", "folder",
     "file", "log", "url", "commit", "exit", "error", "status", "crashed", "slug", "title", "description", "uuid",
     "hash"}
)  # fmt: skip
_PADDING: Final = re.compile(
    r"(?:^|_)pad(?:ding|ded)?(?:_tokens?)?(?:_(?P<of>pct|percent|perc|fraction|frac|ratio|share|waste))?$"
)
_MOST_VALUES: Final = 8
"""Different whole numbers up to which a column may be a setting (chosen: a sweep rarely has more)."""
_PER_BATCH: Final = ("micro_batch", "accumulation", "global_batch")
_REAL: Final = ("real", "useful", "nonpad", "global_useful")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked beside the table; None leaves it to the names of the columns."""

    order: str | None = None
    rung: str | None = None
    series: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    metric: str | None = None
    margin: float = DEFAULT_MARGIN


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Headings by what they are. `rung` is "" where `switches` compose the rungs; `layers` may list a rung's layers.

    `batches` are those of `settings` that say how much is worked on at once. `padding` is a heading with the fraction
    that its unit is. `unknown` are whole numbers of few values that may be settings: nothing in their names tells.
    """

    rung: str
    switches: tuple[str, ...]
    layers: str
    series: tuple[str, ...]
    settings: tuple[str, ...]
    batches: tuple[str, ...]
    padding: tuple[str, float] | None
    unknown: tuple[str, ...]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is: the series, the rung and all settings."""

    series: tuple[str, ...]
    rung: str
    settings: Settings


class Tried(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A cell with its sample, for comparisons. `lines` are those of its runs in the file."""

    key: Key
    sample: Sample
    lines: tuple[int, ...]
    memory_bytes: float | None
    padding: float | None

    @property
    def rung(self) -> str:
        """The name of its rung."""
        return self.key.rung

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """Its settings by heading."""
        return dict(self.key.settings)

    def without(self, heading: str) -> Settings:
        """Its settings but one."""
        return tuple(item for item in self.key.settings if item[0] != heading)

    @cached_property
    def speed(self) -> float:
        """The mean of its runs where more is better, else its inverse."""
        mean = self.sample.mean
        return mean if self.sample.higher_is_better else 1 / mean

    @cached_property
    def cell(self) -> Cell:
        """The cell as a document holds it."""
        return Cell(
            rung=self.key.rung,
            settings=self.key.settings,
            runs=self.sample.values,
            mean=self.sample.mean,
            cv=variation(self.sample.values),
            memory_bytes=self.memory_bytes,
            padding=self.padding,
        )


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared: the unit, whether more is better, and a run's value of it in the order of the table's rows."""

    unit: str
    higher_is_better: bool
    values: tuple[float, ...]
    warnings: tuple[str, ...] = ()


def rates(table: ResultTable) -> Rate:
    """The values of a table's runs; a time per step becomes work per second where the table has the work of a step.

    The column of the work says of what: samples or tokens. Raises UsageError where it has that of some rows only.
    """
    metric, rows = table.metric, table.rows
    plain_values = tuple(row.value for row in rows)
    is_rate = metric.unit == "steps/s"
    if metric.unit != "ns/step" and not is_rate:
        assumed = f"{metric.column} is a time: profkit assumes that every run did the same work"
        warnings = (assumed,) if metric.unit == "ns" else ()
        better = metric.higher_is_better
        return Rate(unit=metric.unit, higher_is_better=better, values=plain_values, warnings=warnings)
    works = [_work(row) for row in rows]
    if all(work is None for work in works):
        assumed = f"{metric.column} without the work of a step: profkit assumes that it is the same in every run"
        return Rate(unit=metric.unit, higher_is_better=is_rate, values=plain_values, warnings=(assumed,))
    unit = max(row.work_unit for row in rows)  # tokens, where a row counts them
    lacking = next((row for row, work in zip(rows, works, strict=True) if work is None or row.work_unit != unit), None)
    if lacking is not None:
        named = "batch" if unit == "samples" else f"{unit}_per_step"
        raise UsageError(
            f"{table.source} line {lacking.line} has no {named}, so its {metric.column} cannot be compared",
            hint=f"give every row a {named}, or a column of tokens_per_sec",
        )
    per_s = [value if is_rate else 1e9 / value for value in plain_values]
    values = tuple(work * rate for work, rate in zip(works, per_s, strict=True) if work is not None)
    bad = next((row for row, value in zip(rows, values, strict=True) if not is_plausible(value)), None)
    if bad is not None:
        raise TraceFormatError(f"{table.source} line {bad.line}: work and {metric.column} give no speed of a run")
    return Rate(unit=f"{unit}/s", higher_is_better=True, values=values)


def _work(row: Row) -> float | None:
    if row.work is not None or row.micro_batch is None:
        return row.work
    return row.micro_batch * (row.accumulation or 1)


def cells_of(
    table: ResultTable, records: Mapping[int, Cells], columns: Columns, rate: Rate
) -> dict[tuple[str, ...], list[Tried]]:
    """The cells of each series, both in the order of their first rows; `records` are by line."""
    by_cell = grouped((_key(records[row.line], columns), number) for number, row in enumerate(table.rows))
    cells: list[Tried] = []
    for key, numbers in by_cell.items():
        rows = [table.rows[number] for number in numbers]
        sizes = [row.memory_bytes for row in rows if row.memory_bytes is not None]
        shares = [share for row in rows if (share := _padding(table.source, row.line, records, columns)) is not None]
        sample = Sample(
            name=key.rung,
            values=tuple(rate.values[number] for number in numbers),
            unit=rate.unit,
            higher_is_better=rate.higher_is_better,
            blocks=blocks_of(rows),
        )
        one = Tried(
            key=key,
            sample=sample,
            lines=tuple(row.line for row in rows),
            memory_bytes=max(sizes, default=None),
            padding=math.fsum(shares) / len(shares) if shares else None,
        )
        cells.append(one)
    return grouped((one.key.series, one) for one in cells)


def unlike(table: ResultTable, records: Mapping[int, Cells], columns: Columns) -> tuple[str, ...]:
    """The columns that may be settings and differ between the runs of one cell."""
    values: dict[tuple[Key, str], set[str]] = {}
    for row in table.rows if columns.unknown else ():
        cells = records[row.line]
        key = _key(cells, columns)
        for name in columns.unknown:
            values.setdefault((key, name), set()).add(plain(cells.get(name, "")))
    differing = {name for (_, name), seen in values.items() if len(seen) > 1}
    return tuple(name for name in columns.unknown if name in differing)


def _key(cells: Cells, columns: Columns) -> Key:
    if columns.rung:
        rung = cells.get(columns.rung, "").strip() or "(empty)"
    else:
        on = [switch_name(name) for name in columns.switches if is_on(plain(cells.get(name, "")))]
        rung = "+".join(on) or _BASE
    return Key(
        series=tuple(plain(cells.get(name, "")) for name in columns.series),
        rung=rung,
        settings=tuple((name, plain(cells.get(name, ""))) for name in columns.settings),
    )


def switch_name(heading: str) -> str:
    """A switch as the name of what it switches on: `use_packing` is packing."""
    return re.sub(r"^(?:use|enable|with|is)_(?=.)", "", heading.strip(), flags=re.IGNORECASE)


def _padding(source: str, line: int, records: Mapping[int, Cells], columns: Columns) -> float | None:
    if columns.padding is None:
        return None
    heading, scale = columns.padding
    text = records[line].get(heading, "").strip()
    if text.lower() in FAILED:
        return None
    share = float(text) * scale
    if not 0 <= share < 1:
        raise TraceFormatError(f"{source} line {line}: {heading} is {text[:40]!r}, not a share of the tokens below 1")
    return share


def factor(old: Tried, new: Tried, margin: float) -> Factor:
    """How many times as fast the new cell is, with the interval of the runs where both sides have several."""
    value = new.speed / old.speed
    judged = judge(old.sample, new.sample, margin=margin)
    return Factor(
        value=value,
        interval=_interval(judged.change_interval, value, higher_is_better=old.sample.higher_is_better),
        answer=judged.answer,
        p_value=judged.p_value,
        n=judged.n,
    )


def _interval(
    change: tuple[float, float] | None, value: float, *, higher_is_better: bool
) -> tuple[float, float] | None:
    """The interval of a change of the value as that of a factor of speed, which it holds.

    Blocks that lack a run on one side make the mean of ratios another than the ratio of means, by little.
    """
    if change is None:
        return None
    low, high = (max(1 + end, 0.0) for end in change)
    if not higher_is_better:
        if low == 0:  # so wide that it excludes no speed
            return None
        low, high = 1 / high, 1 / low
    return min(low, value), max(high, value)


def noise_of(cells: Sequence[Tried]) -> Noise | None:
    """The spread of runs within cells, pooled on logs; None where no cell has repeats that differ."""
    repeated = [np.log(one.sample.values) for one in cells if len(one.sample.values) > 1]
    df = sum(len(logs) - 1 for logs in repeated)
    squares = math.fsum(float(np.var(logs, ddof=1)) * (len(logs) - 1) for logs in repeated)
    if not squares:
        return None
    spread = math.sqrt(squares / df)
    limit = math.exp(min(t_quantile((1 + _LEVEL) / 2, df) * math.sqrt(2) * spread, 700.0))
    return Noise(cv=spread, df=df, n_cells=len(repeated), limit=limit)


def plain(text: str) -> str:
    """A cell as it is compared and shown: numbers in one spelling, "" for none."""
    stripped = text.strip()
    if stripped.lower() in FAILED:
        return ""
    return f"{float(stripped):.12g}" if is_number(stripped) else stripped


def columns_of(records: Sequence[Cells], metric: Metric, source: str, asked: Asked) -> Columns:
    """What the columns are; what is asked names those that their headings do not tell.

    Raises UsageError for a column that is not there, TraceFormatError where nothing names the rungs.
    """
    names = list(dict.fromkeys(name for cells in records for name in cells))
    rung, settings = asked.rung, asked.settings
    for wanted in (*([rung] if rung else []), *(asked.series or ()), *settings):
        if wanted not in names:
            raise UsageError(f"{source} has no column {wanted!r}", hint=f"its columns: {', '.join(names)}")
    values = {name: {plain(cells.get(name, "")) for cells in records} for name in names}
    seen = _seen(names, values, metric) - set(settings)
    chosen = _series(names, values, seen | {rung or ""}) if asked.series is None else asked.series
    rung_column, switches = _rungs(names, values, {*seen, *chosen}, rung)
    if not rung_column and not switches:
        raise TraceFormatError(
            f"{source} has no column that names the rungs; its columns: {', '.join(names) or 'none'}",
            hint="call one rung or category, or choose one with --rung",
        )
    layers = next((n for n in names if headings.normal(n) in _LAYERS and n not in {rung_column, *chosen}), "")
    taken = {*seen, *chosen, *switches, rung_column, layers}
    rows = [name for name in names if name not in taken and len(values[name]) > 1]
    identity = [rung_column, *chosen]
    chosen_rows = tuple(
        name
        for name in rows
        if name in settings or (_is_set(name, values, len(records)) and not _is_label(name, identity, records))
    )
    batches = {headings.role_of(chosen_rows, role) for role in _PER_BATCH}
    if headings.role_of(chosen_rows, "micro_batch"):  # the batch of all GPUs follows from it
        whole = headings.role_of(chosen_rows, "global_batch")
        chosen_rows = tuple(name for name in chosen_rows if name != whole)
    return Columns(
        rung=rung_column,
        switches=switches,
        layers=layers,
        series=tuple(name for name in chosen if len(values[name]) > 1),
        settings=chosen_rows,
        batches=tuple(name for name in chosen_rows if name in batches),
        padding=_padding_column(names, values),
        unknown=tuple(name for name in rows if name not in chosen_rows and _may_be_set(values[name])),
    )


def counts_of(metric: Metric, unit: str) -> Counts:
    """Whether a metric counts padding, by the name of its column."""
    kind = headings.normal(metric.column)
    if kind.startswith("padded"):
        return Counts.PADDED
    return Counts.REAL if unit != "tokens/s" or kind.startswith(_REAL) else Counts.UNKNOWN


def words_of(heading: str) -> set[str]:
    """The words of a heading or a name, in lower case."""
    return set(headings.normal(heading).split("_"))


def _seen(names: Sequence[str], values: Mapping[str, set[str]], metric: Metric) -> set[str]:
    """Columns of results and remarks, which configure nothing."""
    sized = {found[0] for found in (headings.memory_of(names), headings.capacity_of(names)) if found}
    padding = _padding_column(names, values)
    roles = {headings.role_of(names, role) for role in ("work", "block", "run")}
    return {
        name
        for name in names
        if name in {*sized, *roles, metric.column, *(padding or ())[:1]}
        or headings.is_measure(name)
        or words_of(name) & _REMARKS
    }


def _series(names: Sequence[str], values: Mapping[str, set[str]], without: set[str]) -> tuple[str, ...]:
    gpus = headings.role_of(names, "gpus")
    return tuple(
        name
        for name in names
        if name not in without
        and (name == gpus or (words_of(name) & _SERIES and not words_of(name) & _NO_SERIES))
        and (headings.normal(name) not in _LAYERS or all(map(is_number, values[name])))
        and not headings.role_of([name], "micro_batch")
    )


def _rungs(
    names: Sequence[str], values: Mapping[str, set[str]], without: set[str], wanted: str | None
) -> tuple[str, tuple[str, ...]]:
    """The column that names the rungs, or the switches that compose them."""
    if wanted:
        return wanted, ()
    by_name = {headings.normal(name): name for name in reversed(names) if name not in without}
    switches = tuple(name for name in names if name not in without and _is_switch(values[name]))
    strong, weak = ([by_name[name] for name in kind if name in by_name] for kind in (_RUNGS, _NAMES))
    for column in strong:
        if len(values[column]) > 1:
            return column, ()
    if len(switches) > 1:
        return "", switches
    return next((column for column in weak if len(values[column]) > 1), ""), ()


def _is_switch(values: set[str]) -> bool:
    n_on, n_off = sum(map(is_on, values)), sum(map(is_off, values))
    return n_on > 0 and n_off > 0 and n_on + n_off == len(values)


def _is_set(name: str, values: Mapping[str, set[str]], n_rows: int) -> bool:
    """Whether a column that varies is a setting: words, switches, batches, numbers named so; others are results."""
    mine = values[name]
    if any(headings.role_of([name], role) for role in (*_PER_BATCH, "arm")) or _is_switch(mine):
        return True
    if all(map(is_number, filter(None, mine))):
        return is_setting(name) or bool(words_of(name) & _NO_SERIES)
    return n_rows < 3 or len(mine) < n_rows  # else it names single runs


def _is_label(name: str, identity: Sequence[str], records: Sequence[Cells]) -> bool:
    """Whether a column of three words or more only names the rungs again, or the rungs of each series."""
    values = {plain(cells.get(name, "")) for cells in records}
    if len(values) < 3 or all(map(is_number, filter(None, values))):
        return False
    for columns in (identity[:1], identity):
        pairs = {(plain(cells.get(name, "")), *(plain(cells.get(one, "")) for one in columns)) for cells in records}
        if len(pairs) == len(values) == len({pair[1:] for pair in pairs}):
            return True
    return False


def _may_be_set(values: set[str]) -> bool:
    """Whether a column of numbers looks like a setting: whole numbers, few of them."""
    numbers = [float(value) for value in values if value and is_number(value)]
    return (
        1 < len(values) <= _MOST_VALUES and len(numbers) == len(values - {""}) and all(map(float.is_integer, numbers))
    )


def _padding_column(names: Sequence[str], values: Mapping[str, set[str]]) -> tuple[str, float] | None:
    """The column of the share of padding; of one without a unit, values above 1 are percent."""
    for name in names:
        found = _PADDING.search(headings.normal(name))
        numbers = [float(value) for value in values[name] if value and is_number(value)]
        if not found or not numbers or len(numbers) < len(values[name] - {""}):
            continue
        is_percent = found["of"] in ("pct", "percent", "perc") or (found["of"] is None and max(numbers) > 1)
        return name, 0.01 if is_percent else 1.0
    return None
