"""What `profkit where` answers: the places in the user's code of findings, or of one module, kernel or operator."""

from __future__ import annotations

import msgspec

from profkit.model.code import ModuleUse, PlaceShare
from profkit.model.documents.rank_report import TableView


class PlacesOf(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one thing."""

    kind: str
    """"finding", "work" (all of it), "module", "kernel" or "operator"."""
    name: str
    """The id of a finding; else the names that the words asked for are part of."""
    title: str
    share: float
    """Of the window, 0-1."""
    ns: int
    """What the places share: over the window; of a finding 0, which says its own."""
    places: tuple[PlaceShare, ...]


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Places of one trace, and of what ranks compared with each other show of its rank."""

    source: str
    window_ns: int
    n_steps: int
    subjects: tuple[PlacesOf, ...]
    modules: tuple[ModuleUse, ...] = ()
    """The module tree, where nothing was asked for."""
    phase_ns: dict[str, int] = {}
    tables: tuple[TableView, ...] = ()
    rank: int | None = None
    n_ranks: int = 1
    """The traces that the rank was chosen from."""
    chosen: str = ""
    """Why this rank, where there are several."""
