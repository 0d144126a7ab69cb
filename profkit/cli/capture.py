"""`profkit capture`: profile a training script that knows nothing of it."""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from profkit.cli.shared.command import Launcher, command_line_argument, required
from profkit.cli.shared.options import (
    Option,
    common_options,
    count_option,
    output_option,
    overwrite_option,
    ranks_option,
    step_on_option,
    steps_option,
    together,
    window_steps,
)
from profkit.cli.shared.say import say, say_below
from profkit.errors import MissingCapabilityError, UsageError

DEFAULT_FOLDER = "profkit-capture"


window_options: Final = together(
    window_steps,
    steps_option(
        "5, of short ones up to 20 in a second, in whole rounds of the loader's workers; of ranks, enough for 20"
        " collectives"
    ),
    click.option(
        "--shapes",
        is_flag=True,
        help="Record shapes in the timed steps too: for FLOPs where shapes vary; doubles the stall at the end.",
    ),
    click.option(
        "--stacks/--no-stacks",
        cls=Option,
        default=None,
        show_default="in --stack-steps only",
        help="Record Python stacks in the timed steps, or none at all.",
    ),
    count_option(
        "--stack-steps",
        what="Record so many steps once more, with Python stacks and shapes, after the timed ones.",
        default="2",
    ),
    count_option(
        "--optimizer",
        what="Pass over the steps of optimizers before the Nth that steps: record a later loop of the script.",
        default="the loop that takes most of the time",
    ),
    click.option("--memory", is_flag=True, help="Record every allocation."),
    ranks_option("all"),
    step_on_option,
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="What to record; cuda fails if the run does not use CUDA.",
    ),
    click.option(
        "--strict", is_flag=True, help="Stop if nothing can be recorded, instead of running the script anyway."
    ),
    overwrite_option,
)
"""The options that say what is recorded, which `capture` and `run` share."""


@click.command("capture", cls=Launcher, short_help="Profile a training script without changing it.")
@output_option("a folder, for the traces", default=DEFAULT_FOLDER, is_file=False)
@window_options
@click.option("--inject", type=click.Choice(["env"]), help="Print the variables for another launcher; run nothing.")
@common_options
@command_line_argument()
def command(
    output: Path | None,
    inject: str | None,
    command_line: tuple[str, ...],
    overwrite: bool,
    **chosen: Any,
) -> int:
    """Run COMMAND and record a few of its training steps: no changed line, same output, same exit code.

    Steps before and after the recorded ones are timed without the profiler, so the report knows what it cost.
    Works for python x.py, python -m pkg and torchrun, one trace for each rank. Where a capture lies in the folder, the
    next one goes to profkit-capture-2. The exit code is the command's own; only with
    --strict it is 4 if that is 0 and nothing was recorded.

    \b
    Examples:
      profkit capture -- python train.py --lr 3e-4
      profkit capture -o out/run1 -- torchrun --nproc-per-node 4 train.py
      profkit triage                                     the verdict on the newest capture
      eval "$(profkit capture --inject env)"; srun python train.py; profkit triage
    """
    if inject is not None:
        folder = folder_for(output, overwrite=overwrite, is_strict=chosen["strict"])
        click.echo(_exports(folder, {**chosen, "overwrite": overwrite}))
        return 0
    required(command_line, "profkit capture -- python train.py")
    folder = folder_for(output, overwrite=overwrite, is_strict=chosen["strict"])
    done = captured(command_line, folder, {**chosen, "overwrite": overwrite})
    if done.has_trace:
        from profkit.capture.beside import quoted

        say(f"next: profkit triage {quoted(done.folder)}")
    return done.leave()


def _exports(folder: Path, chosen: dict[str, Any]) -> str:
    from profkit.capture import runner

    asked = {**_with_stacks(chosen), "tells": True, "finishes": True}
    return runner.exports(options_of(folder, asked, ()), os.environ)


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """A capture that is over: how the command ended, whether what it was to record is missing, where a trace lies."""

    code: int
    folder: Path
    has_trace: bool
    is_lacking: bool
    is_strict: bool = False

    def leave(self) -> int:
        """The exit code: the command's own. With `--strict` 4 if that is 0 and profkit recorded nothing, or not all.

        Where a signal ended the command, it ends this process as well.
        """
        from profkit.capture import runner

        return runner.leave_like(self.code) or 4 * (self.is_lacking and self.is_strict)


def captured(command_line: Sequence[str], folder: Path, chosen: dict[str, Any]) -> Captured:
    """Run the command with the capture in it, put the traces together, say how it went on stderr."""
    from profkit.capture import runner
    from profkit.capture.tools.clocks import watched

    options = options_of(folder, {**_with_stacks(chosen), "finishes": False}, command_line)
    with runner.holding(options) as problem:
        if chosen["strict"]:
            if problem:
                raise MissingCapabilityError(problem, hint="choose another folder with -o")
            runner.require_torch(command_line)
        if problem:
            say(f"{problem}; running without a capture")
            code = runner.run(command_line, options=None).code
            return Captured(code=code, folder=folder, has_trace=False, is_lacking=True, is_strict=chosen["strict"])
        with watched(options) as clocks:
            ran = runner.run(command_line, options=options)
        return _outcome(options, ran, clocks)


def _outcome(options: Any, ran: Any, clocks: Any) -> Captured:
    """Put the traces together and say how it went."""
    from profkit.capture.inside.export import is_taken
    from profkit.capture.lines import told
    from profkit.capture.outcome import outcomes_of

    folder = Path(options.folder)
    if is_taken(options, folder):  # by processes that another `--inject env` reached
        folder = _next_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        say(f"another capture was written into {options.folder}: this one is in {folder}")
    details = {"exit_code": ran.code, "duration_ns": ran.duration_ns, **_circumstances(options)}
    try:
        facts = outcomes_of(options, folder, details=details, beside=clocks.of)
    except OSError as error:
        say(f"the traces could not be merged ({error})")
        return Captured(code=ran.code, folder=folder, has_trace=False, is_lacking=True, is_strict=options.strict)
    for line in [*told(facts, folder), *_unused_gpus(facts, len(details["gpus"]))]:
        head, _, trace = line.partition("\n")
        say(head)
        if trace:
            say_below(trace.strip())
    has_trace = any(one.get("trace") for one in facts)
    lacks = not has_trace or any(one.get("is_failure") for one in facts)
    return Captured(code=ran.code, folder=folder, has_trace=has_trace, is_lacking=lacks, is_strict=options.strict)


def _unused_gpus(facts: Sequence[dict[str, Any]], n_gpus: int) -> list[str]:
    """A line if GPUs are there and the run used none of them: mostly a torch without CUDA."""
    kinds = {one.get("device", {}).get("type") for one in facts if one.get("trace")}
    if not n_gpus or kinds != {"cpu"}:
        return []
    return [
        f"no CUDA was used, though this machine has {n_gpus} GPU(s): the trace shows the host only; see profkit doctor"
    ]


def folder_for(
    output: Path | None,
    *,
    overwrite: bool,
    default: str = DEFAULT_FOLDER,
    is_strict: bool = False,
    flag: str = "-o",
) -> Path:
    """The folder to write to, absolute: the one asked for if no capture lies in it, else a new one.

    A new one as well where another capture is writing into it: to wait would hold the command up, to refuse stop it,
    which only `is_strict` asks for.
    `flag` names the folder in hints. What a killed capture left in the folder is put aside, and said.
    """
    from profkit.capture import place
    from profkit.capture.inside.export import remove_published
    from profkit.capture.outcome import put_aside

    folder = (output or Path(default)).absolute()
    there = "" if overwrite else _what_lies_in(folder)
    if there and output is not None:
        raise UsageError(f"{output} already holds {there}", hint=f"name another folder with {flag}, or add --overwrite")
    if not there and place.is_busy(folder):
        there = f"another capture is writing into {folder}"
        if is_strict:
            raise UsageError(there, hint=f"name another folder with {flag}, or wait for it to end")
        say(f"{there}: this one writes into {_next_free(folder)}")
    if there:
        return _next_free(folder)
    for line in put_aside(folder):
        say(line)
    if overwrite:
        remove_published(folder)
        if os.path.lexists(folder / "capture.json"):
            raise UsageError(
                f"profkit did not write {folder / 'capture.json'}", hint=f"name another folder with {flag}"
            )
    return folder


def _what_lies_in(folder: Path) -> str:
    """Name what a capture into this folder would replace or be mixed with; "" for nothing."""
    if os.path.lexists(folder / "capture.json"):
        return "a capture"
    trace = next(iter(sorted(folder.glob("rank*.pt.trace.json.gz"))), None)
    return f"a trace, {trace.name}," if trace is not None else ""


def _next_free(folder: Path) -> Path:
    """The first folder of this name and a number that is not there."""
    taken = {path.name for path in folder.parent.glob(f"{glob.escape(folder.name)}-*")}
    number = next(number for number in range(2, len(taken) + 3) if f"{folder.name}-{number}" not in taken)
    return folder.with_name(f"{folder.name}-{number}")


def options_of(folder: Path, chosen: Mapping[str, Any], command: Sequence[str]) -> Any:
    """What the traced process is told; numbers of None are chosen there."""
    from profkit.capture.command import redacted_command
    from profkit.capture.options import Options

    given = {name: value for name, value in chosen.items() if value is not None}
    return Options(folder=str(folder), command=redacted_command(command), capture_id=uuid.uuid4().hex, **given)


def _with_stacks(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, with the steps for Python stacks: none of them without stacks."""
    stack_steps = 0 if chosen["stacks"] is False else chosen["stack_steps"]
    return {**chosen, "stack_steps": stack_steps, "has_budget": chosen["stack_steps"] is None}


def _circumstances(options: Any) -> dict[str, Any]:
    """What the manifest says of the machine and the request."""
    from profkit.capture.doctor import gpu_facts
    from profkit.redact import redacted

    known = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "TORCHINDUCTOR_", "GLOO_")
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(known)}
    asked = {key: value for key, value in asdict(options).items() if key not in ("folder", "command", "finishes")}
    return {"asked": asked, "variables": redacted(variables)[0], "gpus": list(gpu_facts())}
