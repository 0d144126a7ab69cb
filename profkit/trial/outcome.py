"""One run of a tried command: a fresh process with one change in it, stopped once its steps are timed."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from profkit.capture.command import redacted_command
from profkit.capture.inside.probe.plan import HOST
from profkit.capture.options import Options
from profkit.capture.outcome import outcomes_of
from profkit.capture.runner import environment, holding
from profkit.compare.bench.process import ending, last_line, records_left, run_quietly, why_nothing
from profkit.errors import ProfkitError
from profkit.files import temporary_folder
from profkit.units import MANY_FETCHES

PARTS: Final = HOST
"""Parts of the step on the host, in the order of a record's columns."""


class TrialError(ProfkitError):
    """The tried command failed; `code` is its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What one process left. A step: duration, the parts in the order of `PARTS`, batches, losses until its end."""

    reason: str
    pid: int
    rank: int
    world_size: int
    n_workers: int
    n_queued: int
    n_threads: int
    n_cores: int
    has_bf16: bool
    uses_cuda: bool
    traits: dict[str, bool]
    step_source: str
    done: str
    why_not: str
    wrote: tuple[str, ...]
    steps: tuple[tuple[int, int, int, int, int, int, int], ...]
    losses: tuple[str, ...]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run. `step_ns` and `parts_ns` are means over the measured steps, of ranks the mean.

    `losses` are those of rank 0 until the last measured step, `loss` the mean of those in the measured steps.
    """

    wall_ns: int
    step_ns: float
    parts_ns: dict[str, float]
    n_steps: int
    losses: tuple[float, ...]
    loss: float
    record: Record

    @property
    def metric(self) -> None:
        """Nothing is read from the output (`profkit/compare/bench`)."""

    tokens_per_s = samples_per_s = metric


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A change as a run is given it: its key ("" for none), its arguments, and variables of the environment."""

    key: str = ""
    how: Mapping[str, object] = {}
    variables: Mapping[str, str] = {}


def run_once(
    command: Sequence[str],
    change: Made,
    *,
    n_settling: int,
    n_steps: int,
    step_on: str = "auto",
    most_ns: int | None = None,
) -> Run:
    """Run the command with one change until its steps are timed.

    Raises TrialError where it fails, TooLongError where it takes longer than `most_ns`, ProfkitError where no steps
    were seen, UsageError where there is no such program.
    """
    with temporary_folder("try") as folder:
        trial = {"change": change.key, "how": dict(change.how), "n_settling": n_settling, "n_steps": n_steps}
        options = Options(folder=str(folder), trial=trial, step_on=step_on, stops=True)
        wall_ns = _finished(command, options, folder, {**os.environ, **change.variables}, most_ns=most_ns)
        return measured(
            records_left(folder, "*.tried", Record), wall_ns=wall_ns, n_settling=n_settling, n_steps=n_steps
        )


@contextmanager
def captured(command: Sequence[str], *, step_on: str = "auto") -> Iterator[Path]:
    """The verdict that predictions come from: a folder with the traces of one run, stopped when its window is over.

    It is gone when the context ends. Raises TrialError where the command fails, ProfkitError where nothing was
    recorded.
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
            _finished(command, options, place, os.environ)
            facts = outcomes_of(options, folder)
        if not any(one.get("trace") for one in facts):
            why = why_nothing(str(one.get("reason") or "") for one in facts)
            raise ProfkitError(f"there is no verdict to predict from: {why}")
        yield folder


def _finished(
    command: Sequence[str], options: Options, folder: Path, outer: Mapping[str, str], *, most_ns: int | None = None
) -> int:
    """Run a command under a capture's options; its wall time in ns."""
    env = {**outer, **environment(options, outer)}
    code, wall_ns, text = run_quietly(command, env, folder, most_ns=most_ns)
    if code:
        raise TrialError(f"the command {ending(code)}: {last_line(text)}", code)
    return wall_ns


def measured(records: Sequence[Record], *, wall_ns: int, n_settling: int, n_steps: int) -> Run:
    """The run that these processes made. Raises ProfkitError where none of them has steps."""
    trained = [record for record in records if record.steps]
    if not trained:
        raise ProfkitError(f"nothing to compare: {why_nothing(record.reason for record in records)}")
    size = max(trained, key=lambda record: len(record.steps)).world_size
    by_rank = {record.rank: record for record in trained if record.world_size == size}
    ranks = [by_rank[rank] for rank in sorted(by_rank)]
    means = [_means(record, n_settling, n_steps) for record in ranks]
    first = ranks[0]
    rows = first.steps[: n_settling + n_steps]
    losses = tuple(map(float, first.losses[: rows[-1][-1]]))
    before = first.steps[n_settling - 1][-1] if n_settling else 0
    timed = losses[before:]
    return Run(
        wall_ns=wall_ns,
        step_ns=max(step_ns for step_ns, _, _ in means),
        parts_ns={name: sum(parts[name] for _, parts, _ in means) / len(means) for name in PARTS},
        n_steps=means[0][2],
        losses=losses,
        loss=math.fsum(timed) / len(timed) if timed else math.nan,
        record=first,
    )


def _means(record: Record, n_settling: int, n_steps: int) -> tuple[float, dict[str, float], int]:
    """Mean step and parts in ns, and over how many steps: without those that hold another loop (a validation)."""
    steps = record.steps[n_settling : n_settling + n_steps]
    fetches = sorted(step[5] for step in steps)
    most = MANY_FETCHES * max(fetches[len(fetches) // 2], 1) - 1
    usual = [step for step in steps if step[5] <= most]
    parts = {name: sum(step[1 + place] for step in usual) / len(usual) for place, name in enumerate(PARTS)}
    return sum(step[0] for step in usual) / len(usual), parts, len(usual)
