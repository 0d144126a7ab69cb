"""One plan for all ranks: the first process that has one leaves it for the others of its host.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...beside import files
from ...command import tell
from .plan import Plan, from_text

_NAME: Final = "plan.json"
_MOST_BYTES: Final = 1 << 16


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
