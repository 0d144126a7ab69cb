"""The parts of a window that a verdict may rule out, and what looks for them; `model.budget` has their words."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.model.budget import HOST_PARTS


class LookedFor(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the budget that one analyzer explains."""

    analyzer: str
    """Who looks for it: where that one was skipped, nothing is ruled out."""
    budget: tuple[str, ...]
    late_phase: str = ""
    """The phase of a late rank in which it has this, whatever the usual rank's budget says."""


DATA: Final = LookedFor(analyzer="input", budget=("idle_data",), late_phase="data")
COMM: Final = LookedFor(analyzer="overlap", budget=("comm_exposed",))
COPIES: Final = LookedFor(analyzer="transfers", budget=("copy_exposed",), late_phase="copy")
SYNC: Final = LookedFor(analyzer="syncs", budget=("idle_sync",))
LAUNCHES: Final = LookedFor(analyzer="launches", budget=HOST_PARTS, late_phase="host")
PARTS: Final = (DATA, COMM, COPIES, SYNC, LAUNCHES)
"""In the order in which they are named."""
