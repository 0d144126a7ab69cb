"""What nsys exports hold, and how their user records them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profkit.model.trace import Traits

FORMAT: Final = "nsys"
TOOL: Final = "nsys"
STEP_SOURCE: Final = "NVTX"


def traits() -> Traits:
    """What nsys exports hold."""
    from profkit.model.trace import Traits

    return Traits(
        format=FORMAT,
        tool=TOOL,
        step_source=STEP_SOURCE,
        step_marks="NVTX ranges of steps",
        has_host_calls=True,
        is_system_wide=True,
        recapture="profkit nsys --warmup 5 --steps 12 --also waits",
        how_to_mark_steps="open an NVTX range around every iteration: torch.cuda.nvtx.range('step 7')",
        how_to_mark_input="wrap the code that fetches a batch in torch.cuda.nvtx.range('data_loader')",
        how_to_have_operators="run the job under torch.autograd.profiler.emit_nvtx()",
        how_to_be_steady=(
            "record again: a window of steady steps, each in an NVTX range named step N, well before the job's end"
        ),
    )
