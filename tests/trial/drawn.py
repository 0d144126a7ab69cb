"""Runs drawn by hand: what a tried process would have left, without one."""

import random
from collections.abc import Callable
from typing import Any

from profkit.trial.outcome import Record, Run, measured

MS = 1_000_000


def record(step_ms: float = 10.0, *, n_steps: int = 20, loss: float = 1.0, **facts: Any) -> Record:
    """One process whose steps all take as long, 60 % of it for their batch."""
    duration = round(step_ms * MS)
    parts = [round(0.6 * duration), round(0.2 * duration), round(0.1 * duration)]
    given: dict[str, Any] = {
        "reason": "",
        "pid": 1,
        "rank": 0,
        "world_size": 1,
        "n_workers": 0,
        "n_queued": 0,
        "n_threads": 1,
        "n_cores": 2,
        "has_bf16": False,
        "uses_cuda": False,
        "traits": {"has_fused": True, "has_foreach": True},
        "step_source": "the optimizer's step",
        "done": "changed",
        "why_not": "",
        "wrote": (),
        "steps": tuple((duration, *parts, duration - sum(parts), 1, number + 1) for number in range(n_steps)),
        "losses": tuple(repr(loss / (number + 1)) for number in range(n_steps)),
    }
    return Record(**{**given, **facts})


def a_run(step_ms: float = 10.0, **facts: Any) -> Run:
    """A run of one such process; three steps settle."""
    return measured([record(step_ms, **facts)], wall_ns=10**9, n_settling=3, n_steps=10)


def machine(steps_ms: dict[str, float], *, noise: float = 0.01, seed: int = 0, **facts: Any) -> Callable[[str], Run]:
    """A job whose arms take these steps, times noise."""
    draw = random.Random(seed)  # noqa: S311 - noise, no secret

    def run(arm: str) -> Run:
        return a_run(steps_ms[arm] * (1 + draw.gauss(0, noise)), done=f"{arm} made" if arm else "", **facts)

    return run
