"""What each column of a table is to a ladder: it names the rungs, tells series apart, was set, or was seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from profkit.compare.stats.judge import DEFAULT_MARGIN
from profkit.compare.tables import headings
from profkit.compare.tables.headings import Metric
from profkit.compare.tables.records import Cells
from profkit.compare.tables.result_tables import FAILED, is_number, is_setting
from profkit.errors import TraceFormatError, UsageError
from profkit.model.documents.ladder import Counts
from profkit.model.switches import is_off, is_on

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
        padding=_padding(names, values),
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
    padding = _padding(names, values)
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


def _padding(names: Sequence[str], values: Mapping[str, set[str]]) -> tuple[str, float] | None:
    """The column of the share of padding; of one without a unit, values above 1 are percent."""
    for name in names:
        found = _PADDING.search(headings.normal(name))
        numbers = [float(value) for value in values[name] if value and is_number(value)]
        if not found or not numbers or len(numbers) < len(values[name] - {""}):
            continue
        is_percent = found["of"] in ("pct", "percent", "perc") or (found["of"] is None and max(numbers) > 1)
        return name, 0.01 if is_percent else 1.0
    return None
