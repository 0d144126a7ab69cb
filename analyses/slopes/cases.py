"""The jobs whose slopes are measured, and what is true of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

NEAR: Final = 0.15
"""How far the mean slope of a place may lie from the truth (asked of the probe before it was built)."""
SUM_NEAR: Final = 0.2
"""How far the sum over a loop in one thread may lie from 1 (asked of it as well)."""
MOST_COST: Final = 0.05
"""The default of `profkit probe --cost`."""
_STEPS: Final = 460
"""Steps of a job: 3 settle, 20 untouched, 400 probed, 20 untouched, and some for the loader's queue."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job, the options it is probed with, and its true slopes; `sum_is_one` where one thread does all of the step."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    truth: dict[str, float] = field(default_factory=dict)
    sum_is_one: bool = False


def _loop(n_workers: int, fetch_ms: int, forward_ms: int) -> tuple[str, ...]:
    return ("-m", "tests.probe.loops", str(_STEPS), str(n_workers), str(fetch_ms), str(forward_ms))


def _train(regime: str, *doses: str) -> tuple[str, ...]:
    flags = ("--regime", regime, "--device", "cpu", "--threads", "1", "--steps", str(_STEPS), "--json", *doses)
    return ("-m", "workloads.train", *flags)


_SERIAL: Final = {"input": 1.0, "host": 1.0}
_HIDDEN: Final = {"input": 0.0, "host": 1.0}

CASES: Final = (
    Case(name="loop, no workers", command=_loop(0, 14, 10), truth=_SERIAL, sum_is_one=True),
    Case(name="loop, loader limits", command=_loop(1, 24, 8), truth={"input": 1.0, "host": 0.0}),
    Case(name="loop, loader hidden", command=_loop(1, 3, 8), truth=_HIDDEN),
    Case(name="loop, 2 workers hidden", command=_loop(2, 14, 20), truth=_HIDDEN),
    Case(name="data", command=_train("data"), truth=_SERIAL, sum_is_one=True),
    Case(
        name="data, 2 places",
        command=_train("data"),
        options=("--places", "input,forward"),
        truth={"input": 1.0, "forward": 1.0},
    ),
    # a batch sleeps for 3.2 ms and its step computes for some 25 ms; the worker computes next to nothing
    Case(
        name="baseline, loader hidden",
        command=_train("baseline", "--batch", "32", "--hidden", "2560", "--num-workers", "1", "--item-sleep-ms", "0.1"),
        truth=_HIDDEN,
    ),
    Case(name="overhead", command=_train("overhead"), truth=_SERIAL, sum_is_one=True),
    Case(name="kernel", command=_train("kernel"), truth=_SERIAL, sum_is_one=True),
)
