"""Profiles a training script: unmodified through `profkit capture`, or in three lines of code.

    from profkit.capture import session
    with session("out/capture"):
        train()

`step(tokens=...)` records what a step really held; it does nothing while nothing is captured. Importing this loads
neither torch nor anything else that is heavy.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypedDict, Unpack

from profkit.errors import MissingCapabilityError, UsageError

__all__ = ["session", "step"]

_STATE = "_profkit_capture_state"
_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE")
"""What a launcher tells to all ranks alike, and to those of no other job that runs at the same time."""


class WindowOptions(TypedDict, total=False):
    """What `session` may be told; the meanings are those of `profkit capture --help`."""

    baseline: int
    warmup: int
    steps: int
    shapes: bool
    stacks: bool
    stack_steps: int
    memory: bool
    ranks: str
    step_on: str
    device: str
    overwrite: bool


@contextmanager
def session(folder: str | Path = "profkit-capture", **options: Unpack[WindowOptions]) -> Iterator[Path]:
    """Capture the training steps made inside the block; gives the folder that `profkit triage` reads.

    Where a capture lies in the folder this one goes to the next of its name and a number (`profkit-capture-2`), unless
    it may `overwrite` that. What goes wrong inside the capture never reaches the block. Under `profkit capture`, which
    captures already, it does nothing. Raises UsageError for unknown options and MissingCapabilityError without torch.
    """
    from profkit.capture.options import DEVICES, STEP_SOURCES, Options

    for name, known in (("step_on", STEP_SOURCES), ("device", DEVICES)):
        if options.get(name, "auto") not in known:
            raise UsageError(f"{name}={options.get(name)!r} is not one of {', '.join(known)}")
    target = Path(folder).absolute()
    overwrites = options.get("overwrite", False)
    if sys.modules.get(_STATE) is not None:
        yield target
        return
    try:
        from profkit.capture import place
        from profkit.capture.beside import quoted
        from profkit.capture.command import redacted_command, tell
        from profkit.capture.inside import export, inject, store
        from profkit.capture.lines import told
        from profkit.capture.outcome import outcomes_of, put_aside
    except ImportError as error:
        raise MissingCapabilityError(f"a session needs torch ({error})", hint="pip install torch") from None
    capture_id = _capture_id(store.world_size())
    target = target if overwrites else _place_beside(target, capture_id)
    chosen = Options(
        folder=str(target),
        command=redacted_command(["python", *sys.argv]),
        capture_id=capture_id,
        finishes=True,
        has_budget="stack_steps" not in options,
        **options,
    )
    lines: list[str] = []
    with suppress(OSError):
        lines = put_aside(target)
        again = [one for one in export.read_manifest(target).get("ranks", ()) if one.get("rank") == store.rank()]
        if again and not overwrites:  # a job whose script runs twice
            lines.append(f"rank {store.rank()}: its capture of the same job in {target} was replaced")
        export.remove_published(target, capture_id=capture_id, rank=store.rank())
    controller = inject.begin(chosen)
    try:
        yield target
    finally:
        controller.finish()
        inject.forget()
        try:
            facts = outcomes_of(chosen, only=place.process_name(os.getpid()))
            lines += told(facts, target)
            lines += [f"next: profkit triage {quoted(target)}"] if any(one.get("trace") for one in facts) else []
        except OSError as error:
            lines += [f"the trace could not be written ({error})"]
        store.leave(chosen)
        for line in lines:
            head, _, trace = line.partition("\n")
            tell(head, below=trace.strip())


def step(*, tokens: float = 0, padded_tokens: float = 0, samples: float = 0) -> None:
    """Record what the step that now ends has worked on, and that it ends here.

    `tokens` counts real tokens, `padded_tokens` all of them with padding, `samples` examples; 0 is left out.
    """
    controller: Any = sys.modules.get(_STATE)
    if controller is not None:
        controller.step(tokens=tokens, padded_tokens=padded_tokens, samples=samples)


def _place_beside(folder: Path, capture_id: str) -> Path:
    """The folder, or the first of its name and a number in which no other capture lies."""
    from profkit.capture.inside.export import MANIFEST, read_manifest

    for number in count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        is_free = not os.path.lexists(place / MANIFEST)
        if is_free or read_manifest(place).get("capture_id") == capture_id:
            break
    return place


def _capture_id(world_size: int) -> str:
    """The id of a session's capture: a new one; for the ranks of a job, who each begin their own, the same."""
    if world_size == 1:
        return uuid.uuid4().hex
    told = [os.environ.get(name, "") for name in _JOB]
    same = told if any(told) else [str(os.getppid())]
    return uuid.uuid5(uuid.NAMESPACE_OID, repr((same, world_size))).hex
