"""The steps of a probed or tried process with their parts, and the record of a probe in the folder of the run.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ...beside import files
from .plan import HOST, Plan

SUFFIX: Final = ".probed"


@dataclass(frozen=True)
class Row:
    """One step: times in ns, batches fetched, and its treatment with the delay that it had on the host.

    `n_losses` had gone backward when it ended, in a trial.
    """

    duration_ns: int
    parts_ns: Mapping[str, int]
    n_loads: int
    place: str | None = None
    dose: int | None = None
    delayed_ns: int = 0
    n_losses: int = 0

    @staticmethod
    def joined(rows: Sequence[Row]) -> Row:
        """Untouched pieces of one step as that step."""
        return Row(
            duration_ns=sum(row.duration_ns for row in rows),
            parts_ns={name: sum(row.parts_ns[name] for row in rows) for name in HOST},
            n_loads=sum(row.n_loads for row in rows),
            n_losses=rows[-1].n_losses,
        )


class Parts:
    """The parts of the step that runs, in ns of the host, without the delays that a probe puts in.

    Each lasts until the next begins, so they add up to the step.
    """

    def __init__(self) -> None:
        self._spent_ns = dict.fromkeys(HOST, 0)
        self._now = HOST[0]
        self._since_ns = time.perf_counter_ns()

    def enter(self, name: str) -> None:
        """The part of this name begins, or goes on."""
        now_ns = time.perf_counter_ns()
        self._spent_ns[self._now] += now_ns - self._since_ns
        self._now, self._since_ns = name, now_ns

    def spare(self, delay_ns: int) -> None:
        """So much of the part that runs is a delay."""
        self._since_ns += delay_ns

    def taken(self, now_ns: int) -> dict[str, int]:
        """The parts of the step that ends now; the next one begins in its first part."""
        self._spent_ns[self._now] += now_ns - self._since_ns
        found, self._spent_ns = self._spent_ns, dict.fromkeys(HOST, 0)
        self._now, self._since_ns = HOST[0], now_ns
        return found


def written(folder: Path, facts: Mapping[str, Any], plan: Plan | None, rows: Sequence[Row]) -> None:
    """Write the record of a process. Raises OSError."""
    record = {
        **facts,
        "plan": None if plan is None else {**asdict(plan), "block": plan.block, "most_cost": plan.most_cost},
        "steps": [
            [row.duration_ns, *(row.parts_ns[name] for name in HOST), row.n_loads, row.place, row.dose, row.delayed_ns]
            for row in rows
        ],
    }
    files().write_whole(folder / f"{facts['pid']}{SUFFIX}", json.dumps(record).encode())
