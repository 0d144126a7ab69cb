"""One cell of the accuracy benchmark: a program with a dose of a pathology, what removing it gave, what tools said."""

from __future__ import annotations

import msgspec


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool answered; `bottleneck` is one of profkit's verdicts, "healthy", or "" where it does not answer.

    `gain` is the share of the step that it says could be saved at most, None where it says nothing of it. `time` is the
    share that the cause takes, where that is another number, and `finding_times` of findings, as `finding_gains`.
    `finding_ids` are its findings, the first one first; `classes` the bottleneck class of each.
    """

    bottleneck: str
    confidence: float | None = None
    gain: float | None = None
    is_healthy: bool = False
    finding_ids: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    finding_gains: tuple[float, ...] = ()
    headline: str = ""
    rank: int | None = None
    time: float | None = None
    finding_times: tuple[float, ...] = ()


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """A row of results.jsonl. Times in ns; `gain` is the measured share of the step that removal saves.

    `kind` is "fault", "decoy" or "healthy"; `dose` "none", "small", "medium" or "large". `expected` is the verdict that
    is right if the gain is large, `base` the one that is right without it ("a|b": either).
    `tools` has "profkit", "naive", "hta".
    `slope` and `slope_interval` are of `profkit probe` at the place of the pathology, where it was run.
    """

    key: str  # family/pathology/dose/seed
    family: str
    pathology: str
    dose: str
    kind: str
    seed: int
    n_ranks: int = 1
    expected: str = ""
    base: str = ""
    late_rank: int | None = None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None
    step_on_ns: float | None = None
    step_off_ns: float | None = None
    n_blocks: int = 0
    tools: dict[str, Said] = {}
    slope: float | None = None
    slope_interval: tuple[float, float] | None = None
    load: float = 0.0
    duration_s: float = 0.0
    error: str = ""
    versions: dict[str, str] = {}
    expected_finding: str = ""  # the finding that names the pathology itself, "" where there is none in particular
