"""What a capture was asked for: one value, handed to the traced process by one environment variable.

This file runs in the traced process too: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

VARIABLE: Final = "PROFKIT_CAPTURE"
STEP_SOURCES: Final = ("auto", "optimizer", "loader", "forward", "time")
DEVICES: Final = ("auto", "cpu", "cuda")
OLDEST_TORCH: Final = (2, 1)
"""The first with `torch._C._current_graph_task_id`, without which a profiler could be started inside backward."""
SETTLING_STEPS: Final = 3
"""First steps that no time is taken of: allocator, autotuning, compilation, first batches (chosen)."""
STEPS_AFTER: Final = 6
"""Unprofiled steps timed after the window (chosen: as many as the prototype took)."""
DEFAULT_BASELINE: Final = 10
DEFAULT_WARMUP: Final = 1
DEFAULT_STEPS: Final = 5
DEFAULT_STACK_STEPS: Final = 2
"""Recorded once more with Python stacks (chosen: one could be odd, and each costs seconds of a large model's run)."""
ENOUGH_COLLECTIVES: Final = 20
"""Late ranks are told from so many matched collectives on (`matched` in profkit/findings/communication.py)..."""
LEAST_STEPS_OF_RANKS: Final = 6
"""...and tested over steps from so many on (`MIN_STEPS` in profkit/ranks/measure/permutation_test.py)."""
SHORT_STEP_NS: Final = 250_000_000
STEPS_OF_SHORT: Final = 20
"""Steps recorded of one of several ranks whose steps are no longer than that, 5 s in all (chosen: more tell more)."""
ENOUGH_NS: Final = 1_000_000_000
"""Of a process alone, short steps are recorded until they take so long together, or are as many (chosen: of five steps
of 20 ms, a cause that comes with each fourth one has none, or twice its share)."""
STEADY_NS: Final = 250_000_000
"""...but as many as take so long together: what another process takes in one slice of the CPU, 4 to 10 ms on Linux, is
then at most 4 % of them..."""
STEPS_OF_VERY_SHORT: Final = 50
"""...and at most so many (chosen: a trace of them has no more events than one of 20 larger steps)."""
LEAST_RUN_NS: Final = 5_000_000_000
"""A loop without a DataLoader tells nothing of its length: so long it lasts if somebody records it (chosen)."""
WRITES_NS: Final = 300_000_000
"""What the script may wait until the steps are written, from which no more than the least are recorded (chosen)..."""
WRITTEN_OVER_SLOWER: Final = 7
"""...and what it waits over what the profiler slows the steps by: both come with each event (measured with torch 2.13
on two slow cores: 25 us to 3.6 us)."""
LONGEST_WINDOW_NS: Final = 60_000_000_000
"""What the steps of one of several ranks may take together where nothing was asked for, but for the least (chosen)."""
MAX_WAIT_STEPS: Final = 32
"""Steps that profkit adds by itself at most, to let the loader's queue run dry (chosen)."""


@dataclass(frozen=True)
class Options:
    """The window of a capture and what is recorded in it; numbers of 0 are chosen in the process.

    `baseline` unprofiled steps are timed, `warmup` steps run with the profiler prepared, `steps` are recorded.
    `stack_steps` are recorded after that, with Python stacks and shapes, into a file of their own; 0 for none.
    `device` "cpu" leaves CUDA unrecorded, "cuda" refuses a process that does not use it.
    `finishes` is true where no runner waits for the process: it then compresses its own trace, and `tells` how it went.
    `overwrite` is true where traces may replace files of their names that no capture wrote.
    `tool` is "nsys" or "ncu" where that records instead of torch.profiler; with `marks_only` it records the whole run,
    and steps are marked in it.
    `probe` is what delays are asked for where nothing is recorded: `n_steps` (0: chosen), `seed`, `cost` (a share),
    `places`.
    `trial` is what is changed and timed instead: `change`, `how`, `n_settling`, `n_steps`.
    `optimizer` N: the steps of optimizers before the Nth one that steps are passed over; 0 for none.
    `has_budget` is true where what the script waits for the steps with Python stacks has a limit.
    `stops` is true where the process is to end once it has what was asked for.
    """

    folder: str
    baseline: int = 0
    warmup: int = 0
    steps: int = 0
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    ranks: str = "all"
    step_on: str = "auto"
    device: str = "auto"
    command: str = ""
    capture_id: str = ""
    finishes: bool = False
    tells: bool = False
    strict: bool = False
    overwrite: bool = False
    tool: str = ""
    marks_only: bool = False
    stack_steps: int = DEFAULT_STACK_STEPS
    probe: Mapping[str, Any] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)
    stops: bool = False
    optimizer: int = 0
    has_budget: bool = True

    def to_text(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def wants_rank(self, rank: int) -> bool:
        """Whether this rank is to be captured."""
        return self.ranks == "all" or str(rank) in [part.strip() for part in self.ranks.split(",")]


def from_text(text: str) -> Options:
    """The options that `to_text` wrote; keys of a newer profkit are ignored."""
    given: Mapping[str, Any] = json.loads(text)
    known = {one.name for one in fields(Options)}
    return Options(**{key: value for key, value in given.items() if key in known})


@dataclass(frozen=True)
class Window:
    """How many steps of each kind one process takes, once it is known how its data is loaded."""

    settling: int
    baseline: int
    warmup: int
    steps: int
    after: int
    least: int = 0
    """Steps from which the recording may end before it has all; 0 where it may not."""

    @property
    def n_needed(self) -> int:
        """The steps a run needs until its trace is written."""
        return self.settling + self.baseline + self.warmup + self.steps


def window_for(options: Options, *, n_workers: int, n_queued: int) -> Window:
    """The window for a run with so many loader workers and batches queued by them.

    Starting the profiler stalls the loop, and the workers fill their queue meanwhile: recorded at once, a starved run
    would look fed. So the warm-up lasts until the queue is used up; and as N saturated workers deliver in bursts of
    N batches, baseline and window hold whole bursts. What the user asked for is taken as it is.
    """
    burst = n_workers if 1 < n_workers <= MAX_WAIT_STEPS // 2 else 1
    drained = min(n_queued + 1, MAX_WAIT_STEPS) if n_workers else 0
    return Window(
        settling=SETTLING_STEPS,
        baseline=options.baseline or _whole(DEFAULT_BASELINE, burst),
        warmup=options.warmup or max(DEFAULT_WARMUP, drained),
        steps=options.steps or _whole(DEFAULT_STEPS, burst),
        after=STEPS_AFTER,
    )


def why_too_few(seen: int, window: Window, *, least: int) -> str:
    """That so many steps were too few for the window, and the options that would have fitted them.

    `least`: steps that must be seen before it is known which optimizer leads.
    """
    before = max(window.settling + window.baseline + 1, least)
    needed = before + window.warmup + window.steps
    said = f"{seen} step{'s' * (seen != 1)} of the script were seen to end, a capture with these options needs {needed}"
    smallest = max(window.settling + 2, least) + 2
    if seen < smallest:
        return f"{said}; the script must run at least {smallest} (--unprofiled-steps 1 --warmup-steps 1 --steps 1)"
    steps = max(1, min(DEFAULT_STEPS, window.steps, (seen - smallest) // 2 + 1))
    baseline = max(1, min(DEFAULT_BASELINE, seen - window.settling - 2 - steps))
    warmup = ["--warmup-steps", "1"] if window.warmup > 1 else []
    fits = ["--unprofiled-steps", str(baseline), *warmup, "--steps", str(steps)]
    return f"{said}; {' '.join(fits)} would fit"


def steps_of_one(step_ns: int, least: int, n_left: float) -> int:
    """The steps to record of a process alone, if nothing else was asked for: `least`, or a multiple of it.

    `n_left` steps may be recorded without the run's end cutting them, as far as that is known.
    """
    n_short = min(STEPS_OF_VERY_SHORT, max(STEPS_OF_SHORT, STEADY_NS // max(step_ns, 1)))
    n_wanted = min(n_short, ENOUGH_NS // max(step_ns, 1), n_left)
    return least * max(1, int(n_wanted // least))


def steps_of_ranks(step_ns: int, n_collectives: float | None) -> int:
    """The steps to record of one of several ranks, if nothing else was asked for.

    Its steps take so long, and have so many collectives of one process group; None where these were not counted: then
    one.
    """
    if step_ns <= SHORT_STEP_NS:
        return STEPS_OF_SHORT
    needed = math.ceil(ENOUGH_COLLECTIVES / max(n_collectives or 1.0, 1.0))
    return max(LEAST_STEPS_OF_RANKS, min(needed, LONGEST_WINDOW_NS // step_ns))


def why_steps_of_ranks(steps: int, n_ranks: int, n_collectives: float | None) -> str:
    """Say why so many steps are recorded of each rank, and how to have enough where they may be too few."""
    if n_collectives is None:
        return f"chosen for {n_ranks} ranks"
    said = f"chosen for {n_ranks} ranks with {n_collectives:.3g} collective{'s' * (n_collectives != 1)} a step"
    if steps * n_collectives >= ENOUGH_COLLECTIVES or n_collectives <= 0:
        return said
    needed = math.ceil(ENOUGH_COLLECTIVES / n_collectives)
    return f"{said}; late ranks are told from {ENOUGH_COLLECTIVES} on, which --steps {needed} would record"


def _whole(count: int, burst: int) -> int:
    return -(-count // burst) * burst


def torch_problem(version: str) -> str:
    """Say why this torch cannot be captured, "" if it can."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_TORCH:
        return f"torch {version} is too old for profkit (needs {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer)"
    return ""
