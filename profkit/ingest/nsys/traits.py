"""What nsys exports hold, and how their user records them again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profkit.model.trace import Traits

FORMAT: Final = "nsys"
TOOL: Final = "nsys"
STEP_SOURCE: Final = "NVTX"


_STEADY: Final = "profkit nsys --warmup-steps 5 --steps 12"
RECAPTURE: Final = f"{_STEADY} --also waits"
RECAPTURE_LOST: Final = f"{_STEADY} --trace cuda-sw,nvtx,osrt"
"""Where nsys recorded launches and nothing on the device: from Blackwell on, `cuda` is the tracing by hardware, which
fails on some systems."""
_RECAPTURE_LOST_BEFORE: Final = f"{_STEADY} --trace cuda,nvtx,osrt"
_BY_HARDWARE_SINCE: Final = (2025, 6)
"""The version of nsys in which `cuda` became the tracing by hardware: older ones do not know `cuda-sw`."""
RECAPTURE_CPU: Final = "profkit nsys --whole --also waits"
"""Of a job without a GPU: nothing opens the range of its steps."""


def recapture_lost(version: str) -> str:
    """How an export of this version of nsys is recorded again whose kernels are lost."""
    numbers = re.match(r"(\d{4})\.(\d{1,3})", version)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _BY_HARDWARE_SINCE
    return RECAPTURE_LOST if is_new else _RECAPTURE_LOST_BEFORE


def is_lost(recapture: str) -> bool:
    """Whether that is how an export is recorded again whose kernels are lost."""
    return recapture in {RECAPTURE_LOST, _RECAPTURE_LOST_BEFORE}


def traits(recapture: str = RECAPTURE) -> Traits:
    """What nsys exports hold; `recapture` is how this one is better recorded again."""
    from profkit.model.trace import Traits

    return Traits(
        format=FORMAT,
        tool=TOOL,
        step_source=STEP_SOURCE,
        step_marks="NVTX ranges of steps",
        has_host_calls=True,
        is_system_wide=True,
        recapture=recapture,
        how_to_mark_steps="open an NVTX range around every iteration: torch.cuda.nvtx.range('step 7')",
        how_to_mark_input="wrap the code that fetches a batch in torch.cuda.nvtx.range('data_loader')",
        how_to_have_operators=(
            "record it with torch.profiler: profkit capture -- COMMAND"
            if recapture == RECAPTURE_CPU  # emit_nvtx needs CUDA
            else "run the job under torch.autograd.profiler.emit_nvtx()"
        ),
        how_to_be_steady=(
            "record again: a window of steady steps, each in an NVTX range named step N, well before the job's end"
        ),
    )
