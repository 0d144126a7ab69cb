"""What a tried process leaves: its steps, its losses, what was changed, in a file of the run's folder.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...beside import files

SUFFIX: Final = ".tried"


@dataclass(frozen=True)
class Row:
    """One step: times in ns, batches fetched, and how many losses had gone backward when it ended."""

    duration_ns: int
    parts_ns: Mapping[str, int]
    n_loads: int
    n_losses: int


def written(folder: Path, facts: Mapping[str, Any], name: str) -> None:
    """Write the record of a process. Raises OSError."""
    files().write_whole(folder / f"{name}{SUFFIX}", json.dumps(facts).encode())
