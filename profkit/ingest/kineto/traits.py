"""What torch.profiler's traces hold, and how their user records them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profkit.model.trace import Traits

FORMAT: Final = "kineto"
TOOL: Final = "torch.profiler"
STEP_SOURCE: Final = "ProfilerStep"


def traits() -> Traits:
    """What torch.profiler's traces hold."""
    from profkit.model.trace import Traits

    return Traits(
        format=FORMAT,
        tool=TOOL,
        step_source=STEP_SOURCE,
        step_marks="ProfilerStep# markers",
        has_host_calls=False,
        is_system_wide=False,
        recapture="profkit capture --unprofiled-steps 10 --warmup-steps 5",
        how_to_mark_steps="call prof.step() at the end of every iteration, with a schedule",
        how_to_mark_input="use torch's DataLoader, or wrap your own in record_function('data_loader')",
        how_to_have_operators="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        how_to_be_steady="record again: wait 10 steps, warm up 5, record 12, and stop before the job ends",
    )
