"""The capture from code: `session` around a loop, `step` for the work a step did."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack

from profkit.errors import MissingCapabilityError, UsageError

_STATE = "_profkit_capture_state"


class WindowOptions(TypedDict, total=False):
    """What `session` may be told; the meanings are those of `profkit capture --help`."""

    baseline: int
    warmup: int
    steps: int
    shapes: bool
    stacks: bool
    memory: bool
    ranks: str
    step_on: str
    device: str


@contextmanager
def session(folder: str | Path = "profkit-capture", **options: Unpack[WindowOptions]) -> Iterator[Path]:
    """Capture the training steps made inside the block; gives the folder that `profkit triage` reads.

    What goes wrong inside the capture never reaches the block. Under `profkit capture`, which captures already, it
    does nothing. Raises UsageError for unknown options and MissingCapabilityError without torch.
    """
    from profkit.capture.options import DEVICES, STEP_SOURCES, Options

    for name, known in (("step_on", STEP_SOURCES), ("device", DEVICES)):
        if options.get(name, "auto") not in known:
            raise UsageError(f"{name}={options.get(name)!r} is not one of {', '.join(known)}")
    target = Path(folder).absolute()
    if sys.modules.get(_STATE) is not None:
        yield target
        return
    try:
        from profkit.capture import inject
        from profkit.capture.command import redacted_command
        from profkit.capture.outcome import outcomes_of, told
    except ImportError as error:
        raise MissingCapabilityError(f"a session needs torch ({error})", hint="pip install torch") from None
    controller = inject.begin(
        Options(
            folder=str(target),
            command=redacted_command(["python", *sys.argv]),
            capture_id=uuid.uuid4().hex,
            finishes=True,
            **options,
        )
    )
    try:
        yield target
    finally:
        controller.finish()
        inject.forget()
        for line in told(outcomes_of(target), target):
            sys.stderr.write(f"profkit: {line}\n")


def step(*, tokens: float = 0, padded_tokens: float = 0, samples: float = 0) -> None:
    """Record what the step that now ends has worked on, and that it ends here.

    `tokens` counts real tokens, `padded_tokens` all of them with padding, `samples` examples; 0 is left out.
    """
    controller: Any = sys.modules.get(_STATE)
    if controller is not None:
        controller.step(tokens=tokens, padded_tokens=padded_tokens, samples=samples)
