"""What a probed process leaves: a record of its steps in the folder of the run, whole or not at all.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Optional

from ...beside import files
from .plan import HOST, Plan

SUFFIX: Final = ".probed"


@dataclass(frozen=True)
class Row:
    """One step: times in ns, batches fetched, and its treatment with the delay that it had on the host."""

    duration_ns: int
    parts_ns: Mapping[str, int]
    n_loads: int
    place: Optional[str] = None  # noqa: UP045 - Python 3.9
    dose: Optional[int] = None  # noqa: UP045
    delayed_ns: int = 0

    @staticmethod
    def joined(rows: Sequence[Row]) -> Row:
        """Untouched pieces of one step as that step."""
        return Row(
            duration_ns=sum(row.duration_ns for row in rows),
            parts_ns={name: sum(row.parts_ns[name] for row in rows) for name in HOST},
            n_loads=sum(row.n_loads for row in rows),
        )


def written(folder: Path, facts: Mapping[str, Any], plan: Optional[Plan], rows: Sequence[Row]) -> None:  # noqa: UP045
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
