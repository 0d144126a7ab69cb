"""One rank's report: what was measured of its trace, as plain values, named as in the JSON contract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Self

import msgspec

from profkit.model.budget import Budget
from profkit.model.finding import Finding, Skipped

if TYPE_CHECKING:
    import pandas as pd


class StreamUse(msgspec.Struct, frozen=True, kw_only=True):
    """One stream: what it carries and how long it is busy inside the window."""

    stream: int
    label: str
    busy_ns: int
    occupancy: float
    n_ops: int


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One device (or the CPU) over the window. `occupancy` values are shares of the window."""

    device: int
    name: str
    kind: str
    budget: Budget
    busy_compute_ns: int
    busy_comm_ns: int
    busy_copy_ns: int
    busy_any_ns: int
    comm_overlapped_ns: int
    streams: tuple[StreamUse, ...] = ()
    n_streams: int = 0
    """How many there are; `streams` holds the busiest."""

    @property
    def comm_hidden_fraction(self) -> float | None:
        """Share of communication under compute; None without communication."""
        return self.comm_overlapped_ns / self.busy_comm_ns if self.busy_comm_ns else None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the quality gate."""

    id: str
    ok: bool
    value: float | None
    message: str


UNEVEN: Final = 0.5
"""Standard deviation of steps over their mean, above which a few of them have no usual one. Chosen: one of three that
takes 2.7 times as long as the others has it."""


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Step times inside the window, ns; None where no steps were found."""

    n: int
    source: str
    mean_ns: int | None
    p50_ns: int | None
    p95_ns: int | None
    cv: float | None
    durations_ns: tuple[int, ...] = ()


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """A table ready to print: `units` names how renderers format each column (ns, fraction, count, text, bytes)."""

    title: str
    headers: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""

    @classmethod
    def of(cls, title: str, columns: Mapping[str, str], rows: Iterable[tuple[object, ...]], *, note: str = "") -> Self:
        """A table by the headers of its columns, each with its unit."""
        return cls(title=title, headers=tuple(columns), units=tuple(columns.values()), rows=tuple(rows), note=note)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame: its numbers, with the unit in a column's name ("total_ns")."""
        import pandas as pd

        names = [
            f"{header}_{unit}".replace(" ", "_") if unit in {"ns", "bytes"} else header.replace(" ", "_")
            for header, unit in zip(self.headers, self.units, strict=True)
        ]
        return pd.DataFrame(list(self.rows), columns=names)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What one analyzer shows: plain numbers for JSON, tables for people."""

    analyzer: str = ""
    """Its name, which the pipeline gives it."""
    title: str
    values: dict[str, object]
    tables: tuple[TableView, ...] = ()


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that a capture recorded once more, after the timed ones and with Python stacks: where places are from."""

    source: str
    n_steps: int
    mean_step_ns: int
    """None of the report's times; 0 where it is not known."""
    stalled_ns: int
    """What the script waited for their recording beside the steps themselves."""
    matched: float
    """The part of the timed steps' operators that were found in them, 0-1."""
    shapes: float | None = None
    """The part of those with arguments whose shapes are from them, 0-1; None where the timed steps have their own."""
    is_sampled: bool = False
    """Whether the stack was looked at every 2 ms, since a step makes too many calls to record each."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's measurements."""

    source: str
    format: str
    rank: int | None
    world_size: int | None
    torch_version: str | None
    n_events: int
    checks: tuple[Check, ...]
    window_ns: tuple[int, int]
    steps: Steps
    devices: tuple[DeviceReport, ...]
    sections: tuple[Section, ...]
    warnings: tuple[str, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    unprofiled_step_ns: int | None = None
    """The mean step without the profiler, where the capture timed some."""
    recorded_command: str = ""
    """What the source says it was recorded with; anybody may have written it there."""
    is_command_used: bool = False
    """Whether the next commands name the user's command: it was typed, or this user's own capture recorded it."""
    stand_in: str = ""
    """What stands in them for the user's command where it is not known, its last word."""
    roof: str = ""
    """How far the work is from what the device can do, in a line; "" where that was not measured."""
    again: Again | None = None
