"""What a probe does in which step: drawn from a seed, by a generator of its own, the same on every rank.

The first process that has a plan leaves it for the others of its host.
Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ...beside import files
from ...command import tell

SETTLING: Final = 3
"""First steps that count for nothing: allocator, autotuning, first batches (as in a capture)."""
BEFORE: Final = 20
"""Untouched steps from which the doses are taken (chosen: their median is known to a few per cent)."""
AFTER: Final = 20
PLANNED: Final = 0.9
"""Share of the cost asked for that is planned: a sleep lasts longer than it was asked to (chosen)."""
OVERRUN: Final = 1.5
"""Times as long as announced after which probing ends with the steps that it has (promised by the command)."""
DOSES: Final = (0.15, 0.45)
"""Delays as shares of an untouched step (chosen: the smaller is above a step's usual noise, both leave most of it)."""
SHORTEST_STEP_NS: Final = 1_000_000
"""Below it a sleep, late by some 60 us, is no dose (chosen)."""
MOST_RANKS: Final = 8
"""Ranks that are places of their own (chosen: each takes its share of the treated steps)."""
HOST: Final = ("input", "forward", "backward", "optimizer")
"""Places of the host, in the order of a step."""
DEVICE: Final = ("device", "copy", "comm")

LEAST_STEPS: Final = 400
"""Probed where nothing else is asked for (chosen: they tell 0 from 1 where steps vary by some 10 %)."""
MOST_STEPS: Final = 2000
_NAME: Final = "plan.json"
_MOST_BYTES: Final = 1 << 16
_LONG_ENOUGH_NS: Final = 30_000_000_000
"""Shorter steps vary more, and more of them are probed: as many as take so long, up to `MOST_STEPS` (chosen)."""

Treatment = tuple[str, int]
"""A place, and the index of a dose."""


@dataclass(frozen=True)
class Plan:
    """A schedule: `places` in `n_steps` steps with delays of `doses_ns`, of which a share `cost` of the time is delay.

    `step_ns` is the median untouched step.
    """

    places: tuple[str, ...]
    doses_ns: tuple[int, ...]
    n_steps: int
    seed: int
    cost: float
    step_ns: int

    @property
    def block(self) -> int:
        """Steps among which every treatment comes once; the others are untreated."""
        n_treatments = len(self.places) * len(self.doses_ns)
        dose = sum(self.doses_ns) / len(self.doses_ns) / max(self.step_ns, 1)
        return max(math.ceil(n_treatments * dose / (PLANNED * self.cost)), n_treatments + 1)

    @property
    def most_cost(self) -> float:
        """What the delays add to the time of the probed steps if all of them show."""
        return sum(self.doses_ns) * len(self.places) / self.block / max(self.step_ns, 1)

    def treatment(self, step: int) -> Treatment | None:
        """What is done in a step, counted from the first probed one."""
        if not 0 <= step < self.n_steps:
            return None
        return _block(self, step // self.block)[step % self.block]

    def to_text(self) -> str:
        """The plan for the other ranks."""
        return json.dumps(asdict(self))


def from_text(text: str) -> Plan:
    """The plan that `to_text` wrote. Raises ValueError, TypeError or KeyError for anything else."""
    given: Mapping[str, Any] = json.loads(text)
    places, doses_ns = tuple(map(str, given["places"])), tuple(map(int, given["doses_ns"]))
    numbers = {name: int(given[name]) for name in ("n_steps", "seed", "step_ns")}
    return Plan(places=places, doses_ns=doses_ns, cost=float(given["cost"]), **numbers)


def plan_of_all(folder: Path, mine: Plan, world_size: int) -> Plan:
    """The plan that the first rank has settled for; this one, where that is this process or there is but one rank.

    Raises OSError.
    """
    text = mine.to_text().encode()
    plan, is_mine = mine, True
    if world_size > 1:
        files().write_if_absent(folder / _NAME, text)
        found: bytes = files().read_small(folder / _NAME, _MOST_BYTES, follow=False)
        plan, is_mine = from_text(found.decode()), found == text
    if is_mine:
        doses = " or ".join(f"{dose / 1e6:.3g} ms" for dose in plan.doses_ns)
        tell(
            f"probing {plan.n_steps} steps of {plan.step_ns / 1e6:.3g} ms: {len(plan.places) * len(plan.doses_ns)} in"
            f" {plan.block} get a delay of {doses}; that makes them at most {100 * plan.most_cost:.1f} % longer"
        )
    return plan


def steps_for(step_ns: int) -> int:
    """The steps to probe of a job whose steps take so long, where nothing else is asked for."""
    return min(max(_LONG_ENOUGH_NS // max(step_ns, 1), LEAST_STEPS), MOST_STEPS)


def doses_for(step_ns: int) -> tuple[int, ...]:
    """The delays for a step that takes so long untouched."""
    return tuple(round(share * step_ns) for share in DOSES)


def ranks_of(world_size: int) -> tuple[int, ...]:
    """The ranks that are places of their own: none of one, all of a few, else some spread evenly."""
    if world_size < 2:
        return ()
    n_ranks = min(world_size, MOST_RANKS)
    return tuple(round(place * (world_size - 1) / (n_ranks - 1)) for place in range(n_ranks))


@lru_cache(maxsize=4)
def _block(plan: Plan, number: int) -> tuple[Treatment | None, ...]:
    """The treatments of one block of steps, shuffled."""
    treatments: list[Treatment | None] = [(place, dose) for place in plan.places for dose in range(len(plan.doses_ns))]
    treatments += [None] * (plan.block - len(treatments))
    random.Random(f"{plan.seed} {number}").shuffle(treatments)  # noqa: S311 - a schedule needs a seed, not a secret
    return tuple(treatments)
