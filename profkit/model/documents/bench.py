"""What a benchmark of two commands found, as plain values. Renderers know nothing else."""

from __future__ import annotations

import msgspec


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One command and its runs: their mean, its unit, and cv (sample standard deviation over mean), None of one run."""

    name: str
    command: str
    mean: float
    unit: str
    cv: float | None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The trend over the session, arms set equal: `fraction` from the first run to the last, p of none.

    `is_seen` says that it is more than noise; runs are interleaved, so that it does not pass for an effect.
    """

    fraction: float
    p_value: float
    is_seen: bool


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `profkit bench` knows. `interval` has level `level`, which early looks make higher.

    `is_same` says that both arms ran one command, so that every difference is the machine's. `blocks_for` pairs changes
    with the number of blocks that would see them.
    """

    answer: str
    sentence: str
    effect: float
    interval: tuple[float, float] | None
    level: float
    p_value: float | None
    minimum_detectable_effect: float | None
    runs_to_settle: int | None
    margin: float
    is_same: bool
    n_blocks: int
    n_planned: int
    arms: tuple[Arm, Arm]
    blocks_for: tuple[tuple[float, int], ...]
    drift: Drift | None
    judged_by: str = ""
    """In words, the number of a run that the arms are compared by."""
