"""What a probe found: the slope of each place, as plain values. Renderers know nothing else."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reading(StrEnum):
    """What a slope and its interval say of a place."""

    CRITICAL = "critical"
    """Every millisecond saved there shortens the step by about as much."""
    PARTLY = "partly"
    HIDDEN = "hidden"
    """There is nothing to gain."""
    INCONCLUSIVE = "inconclusive"


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """One place: change of the step per unit of delay, with a 95 % interval.

    `time_ns` is what its part takes of a step without delays, None where that is unknown. `worth_ns` is the time times
    the slope (0-1), an upper bound of what a saving there gives. `slack_ns` is how much longer the part could take for
    free, with `slack_least_ns` from the interval. `more_steps` would settle an inconclusive reading.
    """

    place: str
    slope: float
    interval: tuple[float, float]
    reading: Reading
    n_treated: int
    dose_ns: int
    time_ns: int | None = None
    worth_ns: int | None = None
    worth_interval_ns: tuple[int, int] | None = None
    slack_ns: int | None = None
    slack_least_ns: int | None = None
    more_steps: int | None = None


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `profkit probe` knows.

    `total` is the sum over places of slope x time, over the step: about 1 where the places explain it.

    `step_ns` is the mean untouched step before, `after_ns` that after the probed ones (None if the run ended before).
    `cost` is the share of the probed steps' time that was delay, `most_cost` what was planned at most.
    """

    command: str
    step_source: str
    step_ns: int
    after_ns: int | None
    probed_ns: int
    n_before: int
    n_probed: int
    n_planned: int
    n_after: int
    doses_ns: tuple[int, ...]
    seed: int
    n_ranks: int
    n_workers: int
    most_cost: float
    cost: float
    slopes: tuple[Slope, ...]
    host: Slope | None = None
    """The mean slope of the host's places after the fetch; None where they were not all probed."""
    total: float | None = None
    total_interval: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    """What limits the answer, a sentence each."""

    def slope_of(self, place: str) -> Slope | None:
        """The slope of one place, or of "host"; None where it was not probed."""
        if place == "host":
            return self.host
        return next((slope for slope in self.slopes if slope.place == place), None)
