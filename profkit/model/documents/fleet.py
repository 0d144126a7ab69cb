"""What is known of all ranks together: who is here, who waits for whom, on which clocks. Values for renderers."""

from __future__ import annotations

import msgspec


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that was read and takes no part in the comparison of ranks, and why."""

    source: str
    reason: str


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank's step goes, ns per step (per window without steps); the parts sum to `step_ns`.

    Of several ranks in one row the medians are shown, which need not add up. `wait_ns` and `transfer_ns` are the
    exposed communication, split; `wait_ns` is None where its collectives are matched with nobody's, and `transfer_ns`
    is all of it then.
    """

    ranks: tuple[int, ...]
    step_ns: int
    data_ns: int
    compute_ns: int
    host_ns: int
    copy_ns: int
    wait_ns: int | None
    transfer_ns: int
    n_last: int
    """Collectives for which others waited for this rank (for any of the row's)."""
    n_instances: int
    cause: str = ""
    device_ns: int = 0
    """Its device is idle although work was launched long ago: another process has its turn, or an event is waited for.
    """


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives that a process group's ranks have in common; times are sums over instances, ns."""

    name: str
    ranks: tuple[int, ...]
    size: int
    method: str
    """How the same collective was recognised on every rank."""
    n_instances: int
    wait_ns: int
    """Waiting for the last rank, the mean over those that are not the last."""
    transfer_ns: int
    exposed_ns: int
    """Not under compute, on the median rank."""
    bus_bytes_per_s: float | None
    note: str = ""


class ClockRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's clock against the reference's: it shows `offset_ns` more in the middle of the run, and drifts."""

    rank: int
    offset_ns: int
    drift_ppm: float
    n_ends: int
    residual_p95_ns: int
    is_fitted: bool


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The step if late ranks did their work as fast as their peers, by replay. Times in ns, the mean over ranks.

    `predicted_ns` is the least that the model allows, `predicted_most_ns` the most; `error_fraction` is how far the
    replay of the job as it was misses the step as it was, on the worst rank.
    """

    ranks: tuple[int, ...]
    observed_ns: int
    replayed_ns: int
    predicted_ns: int
    predicted_most_ns: int
    error_fraction: float
    n_steps: int
    unmodelled: tuple[str, ...]

    @property
    def gain_ns(self) -> int:
        """What the step would lose at most: replay against replay, so that the model's error is on both sides."""
        return max(self.replayed_ns - self.predicted_ns, 0)

    @property
    def most_gain_ns(self) -> int:
        """The same where the model's error may be part of it: what is promised at most is not below the truth then."""
        return max(self.gain_ns, self.observed_ns - self.predicted_ns)

    @property
    def speedup(self) -> float:
        """Replayed over predicted step."""
        return self.replayed_ns / self.predicted_ns if self.predicted_ns else 1.0


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of a job, as far as they were captured."""

    world_size: int | None
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    """The first of the `n_missing` ranks that are not here."""
    left_out: tuple[LeftOut, ...]
    rows: tuple[RankRow, ...]
    """One for each rank."""
    shown: tuple[RankRow, ...]
    """The same for people: ranks with a cause of their own, and all others in one row where there are many."""
    groups: tuple[GroupRow, ...]
    clocks: tuple[ClockRow, ...]
    clock_note: str
    """What the clocks were aligned by, or why they were not, in one line."""
    refusals: tuple[str, ...]
    """What could not be matched across ranks, and why."""
    explained: tuple[str, ...]
    """Findings of single ranks that another rank's lateness explains: said once, and not counted again."""
    n_missing: int = 0
    hosts: tuple[str, ...] = ()
    """The names of the ranks' hosts, where there are several: what a page leaves out of all sentences."""
    prediction: Prediction | None = None
    prediction_note: str = ""
    """Why there is no prediction, where a rank is late."""
