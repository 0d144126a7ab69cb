"""The verdict that predictions come from: the command captured once, and stopped when its window is over."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from profkit.capture.command import redacted_command
from profkit.capture.options import Options
from profkit.capture.outcome import outcomes_of
from profkit.capture.runner import environment, holding
from profkit.compare.bench.process import ending, last_line, run_quietly
from profkit.errors import ProfkitError
from profkit.files import temporary_folder
from profkit.trial.outcome import TrialError

_MOST_OUTPUT_BYTES: Final = 1 << 20


@contextmanager
def captured(command: Sequence[str], *, step_on: str = "auto") -> Iterator[Path]:
    """A folder with the traces of one run, which is gone when the context ends.

    Raises TrialError where the command fails, ProfkitError where nothing was recorded.
    """
    with temporary_folder("try") as place:
        folder = place / "capture"
        options = Options(
            folder=str(folder),
            command=redacted_command(command),
            capture_id=uuid.uuid4().hex,
            step_on=step_on,
            stack_steps=0,
            stops=True,
        )
        with holding(options) as problem:
            if problem:
                raise ProfkitError(problem)
            _run(command, options, place)
            facts = outcomes_of(options, folder)
        if not any(one.get("trace") for one in facts):
            reasons = [str(one["reason"]) for one in facts if one.get("reason")]
            why = reasons[0] if reasons else "the command never imported torch, or left without its exit handlers"
            raise ProfkitError(f"there is no verdict to predict from: {why}")
        yield folder


def _run(command: Sequence[str], options: Options, place: Path) -> None:
    with tempfile.TemporaryFile(dir=place) as output:
        code, _ = run_quietly(command, {**os.environ, **environment(options, os.environ)}, output.fileno())
        output.seek(max(output.seek(0, os.SEEK_END) - _MOST_OUTPUT_BYTES, 0))
        text = output.read(_MOST_OUTPUT_BYTES).decode("utf-8", errors="replace")
    if code:
        raise TrialError(f"the command {ending(code)}: {last_line(text)}", code)
