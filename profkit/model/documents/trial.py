"""What trials found: each change with what was predicted and what was measured. Renderers know nothing else."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from profkit.model.documents.bench import Drift


class Numbers(StrEnum):
    """What a change does to the numbers that the job computes."""

    NONE = "none"
    ROUNDING = "rounding"
    """The same training but for rounding."""
    TRAINING = "training"
    """Another training: only a bound of what removing the work gives."""


class Outcome(StrEnum):
    """What became of a prediction."""

    HELD = "held"
    MISSED = "missed"
    OPEN = "open"
    """The runs cannot tell: their interval reaches from inside the prediction to outside of it."""
    UNPREDICTED = "unpredicted"
    """The verdict says nothing of this change."""
    NOT_MADE = "not made"
    """The run came by nothing that it changes, or has it already."""
    FAILED = "failed"


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """The losses of a change beside those of the unchanged runs, step by step.

    `is_same`: every loss is the same to the last bit. `first_step`: the first with another loss, from 1. `change` is
    that of the mean loss over the measured steps, as a share; None where a loss is no finite number or 0.
    """

    is_same: bool
    first_step: int | None = None
    change: float | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One change. Gains are shares of the unchanged step that are saved, below 0 where it takes longer.

    `predicted` is an interval with `why_predicted`; None where the verdict says nothing. `interval` holds for all
    changes of the table together. `parts_ns` is the host's time per step by part, `baseline_parts_ns` of the unchanged
    runs in the same blocks.
    """

    change: str
    title: str
    is_ablation: bool
    numbers: Numbers
    outcome: Outcome
    made: str = ""
    why_not: str = ""
    keep: str = ""
    finding_ids: tuple[str, ...] = ()
    predicted: tuple[float, float] | None = None
    why_predicted: str = ""
    gain: float | None = None
    interval: tuple[float, float] | None = None
    is_gain: bool = False
    """Whether the interval says that the step is shorter."""
    step_ns: int | None = None
    n_runs: int = 0
    runs_to_settle: int | None = None
    parts_ns: dict[str, int] = {}
    baseline_parts_ns: dict[str, int] = {}
    losses: Losses | None = None

    @property
    def speedup(self) -> float | None:
        """How many times shorter the step is."""
        return None if self.gain is None else 1 / (1 - self.gain)


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `profkit try` knows. `level` is that at which all intervals hold together.

    `bottleneck`, `headline` and `ceiling` are of the verdict that the predictions come from.
    """

    command: str
    bottleneck: str
    verdict: str
    ceiling: float | None
    step_source: str
    step_ns: int
    cv: float | None
    n_steps: int
    n_settling: int
    n_blocks: int
    n_planned: int
    n_ranks: int
    level: float
    trials: tuple[Trial, ...]
    drift: Drift | None = None
    is_repeatable: bool | None = None
    """Whether the unchanged runs all had the same losses; None where no loss was seen, or of one run."""
    wrote: tuple[str, ...] = ()
