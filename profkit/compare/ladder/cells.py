"""The runs of a table as cells: one rung at one choice of settings of one series, with its repeats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from profkit.compare.ladder.columns import Columns, plain
from profkit.compare.stats.distributions import t_quantile
from profkit.compare.stats.judge import judge
from profkit.compare.stats.sample import Sample, is_plausible, variation
from profkit.compare.tables.records import Cells
from profkit.compare.tables.result_tables import FAILED, ResultTable, Row, blocks_of
from profkit.errors import TraceFormatError, UsageError
from profkit.model.documents.ladder import Cell, Factor, Noise, Settings
from profkit.model.grouped import grouped
from profkit.model.switches import is_on

_LEVEL: Final = 0.95
_BASE: Final = "base"
"""The rung that has no switch on."""


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
