"""The records that probed processes left in the folder of a run, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.capture.inside.probe.plan import BEFORE
from profkit.files import open_file

HOST: Final = ("input", "forward", "backward", "optimizer")
_MOST_BYTES: Final = 64 * 2**20
_MOST_PROCESSES: Final = 4096
_ROW_BYTES: Final = 24  # of `ROW` in profkit/capture/inside/probe/workers.py

_Step = tuple[int, int, int, int, int, int, str | None, int | None, int]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be done, as the process wrote it."""

    places: tuple[str, ...]
    doses_ns: tuple[int, ...]
    n_steps: int
    seed: int
    step_ns: int
    most_cost: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One process: its steps are `BEFORE` untouched ones, probed ones, untouched ones again."""

    reason: str
    pid: int
    rank: int
    world_size: int
    n_workers: int
    n_queued: int
    uses_cuda: bool
    step_source: str
    plan: Plan | None
    steps: tuple[_Step, ...]

    @property
    def n_probed(self) -> int:
        """Steps that the schedule reached."""
        return 0 if self.plan is None else min(max(len(self.steps) - BEFORE, 0), self.plan.n_steps)

    def column(self, place: int) -> NDArray[np.float64]:
        """One number of each step: 0 its duration, 1 to 4 its parts in the order of `HOST`, 5 batches, 8 delay."""
        return np.array([step[place] for step in self.steps], np.float64)


class Fetches(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers of one process did: mean ns of a fetch (None without one), delay in ns by order, per worker."""

    mean_ns: float | None
    delays_ns: dict[int, float]


def records_in(folder: Path) -> list[Record]:
    """The records of a run's processes, by rank; what is not one is passed over."""
    found = []
    for path in islice(sorted(folder.glob("*.probed")), _MOST_PROCESSES):
        try:
            with open_file(path, follow=False) as file:
                found.append(msgspec.json.decode(file.read(_MOST_BYTES), type=Record))
        except (OSError, msgspec.MsgspecError):
            continue
    return sorted(found, key=lambda record: (record.rank, -len(record.steps)))


def ranks_of(records: Sequence[Record]) -> list[Record]:
    """One record of each rank of the job that was probed longest; [] where none has a plan."""
    planned = [record for record in records if record.plan is not None]
    if not planned:
        return []
    size = max(planned, key=lambda record: record.n_probed).world_size
    if size == 1:
        return [max(planned, key=lambda record: record.n_probed)]
    by_rank = {record.rank: record for record in reversed(planned) if record.world_size == size}
    return [by_rank[rank] for rank in sorted(by_rank)]


def fetches_of(folder: Path, record: Record) -> Fetches:
    """The fetches of one process's workers."""
    parts = []
    for path in islice(sorted(folder.glob(f"{record.pid}.*.rows")), _MOST_PROCESSES):
        try:
            with open_file(path, follow=False) as file:
                data = file.read(_MOST_BYTES)
        except OSError:
            continue
        parts.append(np.frombuffer(data[: len(data) // _ROW_BYTES * _ROW_BYTES], "<i8").reshape(-1, 3))
    rows = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
    obeyed = rows[rows[:, 0] > 0]
    totals: dict[int, float] = {}
    for number, delay_ns, _ in obeyed.tolist():
        totals[number] = totals.get(number, 0.0) + delay_ns / max(record.n_workers, 1)
    return Fetches(mean_ns=float(rows[:, 2].mean()) if len(rows) else None, delays_ns=totals)
