"""`profkit bench`: two commands, run in turns, and an answer with an error rate."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from profkit import files
from profkit.cli.shared.amounts import margin_option
from profkit.cli.shared.command import Launcher, command_line_argument
from profkit.cli.shared.options import (
    COUNT,
    Option,
    color_option,
    count_option,
    output_option,
    overwrite_option,
    verbose_option,
)
from profkit.cli.shared.progress import StatusLine
from profkit.cli.shared.say import say
from profkit.errors import ProfkitError, UsageError
from profkit.redact import redacted_command
from profkit.shell import clean, line_of, path_word
from profkit.units import format_change

if TYPE_CHECKING:
    from profkit.compare.bench.interleaved import Design

_DEFAULT_TABLE: Final = "profkit-bench.csv"
_VERSUS: Final = "--vs"
_COLUMNS: Final = ("block", "order", "arm")


@click.command("bench", cls=Launcher, short_help="Run two commands in turns and judge the difference.")
@click.option(
    "-n",
    "--blocks",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar=COUNT,
    help="Run each command so many times.",
)
@count_option(
    "--warmup-runs",
    "warmup",
    what="Run each command so many times before, not counted.",
    value=1,
    least=0,
    old=("--warmup",),
)
@click.option(
    "--metric-regex",
    "metric",
    cls=Option,
    old=("--metric",),
    metavar="REGEX",
    help="Read this number from the output; the name of the group is its unit.",
)
@click.option("--lower", is_flag=True, help="A lower metric is better, if its name does not show it.")
@click.option("--names", default="A,B", show_default=True, metavar="A,B", help="Names of the two in the table.")
@margin_option
@click.option("--stop-early", is_flag=True, help="Stop early when the answer is clear; the error rate stays the same.")
@click.option("--aa", "is_same", is_flag=True, help="Run one command against itself: this machine's noise floor.")
@click.option("--seed", type=int, default=0, show_default=True, metavar=COUNT, help="Draw the order from this seed.")
@output_option("the table of runs", default=_DEFAULT_TABLE)
@overwrite_option
@verbose_option(exposed=False)
@color_option
@command_line_argument("-- COMMAND_A --vs COMMAND_B")
def command(
    blocks: int,
    warmup: int,
    metric: str | None,
    lower: bool,
    names: str,
    margin: float,
    stop_early: bool,
    is_same: bool,
    seed: int,
    output: Path | None,
    overwrite: bool,
    color: bool | None,
    command_line: tuple[str, ...],
) -> int:
    """Run COMMAND_A and COMMAND_B in turns, each time a fresh process, and say which is faster, if either.

    The commands are compared by the number that --metric-regex reads, in its last match. Without it: by the tokens or
    samples per second that the script passes to profkit.capture.step, else by the step time between those calls, else
    by that of the steps that profkit run would find, else by the wall time of the process, start-up included. The
    report says which. Nothing is profiled.

    \b
    Examples:
      profkit bench -n 8 -- python train.py --vs python train.py --compile
      profkit bench --metric-regex 'tok/s: ([0-9.]+)' -- ./a.py --vs ./b.py
      profkit bench --aa -n 10 -- python train.py          the noise floor of this machine
      profkit compare profkit-bench.csv
    """
    from profkit.compare.bench.interleaved import Design

    commands = _commands(command_line, is_same=is_same)
    labels = _names(names)
    column, unit, scale, higher = _measure(metric, lower=lower)
    design = Design(
        n_blocks=blocks,
        seed=seed,
        stops_early=stop_early,
        margin=margin,
        unit=unit,
        scale=scale,
        higher_is_better=higher,
    )
    session = _Session(
        commands=commands,
        labels=labels,
        pattern=re.compile(metric) if metric else None,
        column=column,
        design=design,
        path=_table_path(output, overwrite=overwrite),
    )
    code = session.run(warmup)
    return session.tell(code, is_same=is_same, color=color)


class _Session(msgspec.Struct, kw_only=True):
    """A benchmark under way: every run is in the table before the next one begins."""

    commands: dict[str, list[str]]
    labels: dict[str, str]
    pattern: re.Pattern[str] | None
    column: str
    design: Design
    path: Path
    trials: Sequence[Any] = ()
    line: StatusLine = msgspec.field(default_factory=StatusLine)

    def run(self, warmup: int) -> int:
        """Make the runs; gives 130 if the user ended it. A command that fails ends it too, with what was kept said."""
        from profkit.compare.bench.interleaved import measure

        try:
            for number in range(warmup):
                for arm in self.commands:
                    self.line.show(f"warm-up {number + 1} of {warmup}: {self.labels[arm]}")
                    self._once(arm)
            self.line.show(f"block 1 of {self.design.n_blocks}")
            measure(self._once, self.design, on_trial=self._keep)
        except KeyboardInterrupt:
            self.line.clear()
            say(f"stopped; {self._kept()}")
            return 130
        except ProfkitError as error:
            self.line.clear()
            say(self._kept())
            raise error from None
        self.line.clear()
        return 0

    def tell(self, code: int, *, is_same: bool, color: bool | None) -> int:
        """Print what the whole blocks say, and how to ask again."""
        from profkit.compare.bench.interleaved import report
        from profkit.render import renderer_for

        shown = {arm: shlex.join(redacted_command(words)) for arm, words in self.commands.items()}
        found = report(self.trials, self.design, shown, is_same=is_same)
        if found is None:
            return code
        click.echo(renderer_for("bench", "terminal")(found, color=color), nl=False)
        again = line_of("profkit compare", path_word(str(self.path)))
        click.echo(f"\n  table          {clean(str(self.path))}: {again.text}")
        return code

    def _once(self, arm: str) -> Any:
        from profkit.compare.bench.process import run_once

        return run_once(self.commands[arm], metric=self.pattern)

    def _keep(self, trials: Sequence[Any]) -> None:
        from profkit.compare.bench.interleaved import judged, table

        self.trials = trials
        try:
            files.write_out(self.path, table(trials, self.labels, self.column).encode())
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}", hint="name another with -o") from None
        change = judged(trials, self.design) if self.line.is_wanted else None
        seen = ""
        if change is not None and change.change_interval is not None:
            low, high = change.change_interval
            seen = f", {format_change(change.change)} ({format_change(low)} to {format_change(high)})"
        self.line.show(f"block {trials[-1].block} of {self.design.n_blocks}, run {len(trials)}{seen}")

    def _kept(self) -> str:
        count = len(self.trials)
        if not count:
            return "no run was finished"
        return f"{count} run{'s' * (count != 1)} kept in {self.path}"


def _commands(command_line: Sequence[str], *, is_same: bool) -> dict[str, list[str]]:
    """The words of both commands; one that comes as a single word with spaces is split as a shell does."""
    words = list(command_line)
    count = words.count(_VERSUS)
    if not words:
        raise UsageError("no command to run", hint="profkit bench -- python a.py --vs python b.py")
    if is_same and count:
        raise UsageError(
            "--aa runs one command against itself, but there are two", hint="leave out --vs and the second command"
        )
    if not is_same and count != 1:
        says = "there is no --vs between two commands" if count == 0 else f"--vs appears {count} times"
        raise UsageError(says, hint="profkit bench -- python a.py --vs python b.py, or --aa for one command")
    place = words.index(_VERSUS) if count else len(words)
    pair = words[:place], words if is_same else words[place + 1 :]
    if not all(pair):
        raise UsageError(
            f"a command is missing before or after {_VERSUS}", hint="profkit bench -- python a.py --vs python b.py"
        )
    return {arm: _split(one[0]) if len(one) == 1 else one for arm, one in zip("AB", pair, strict=True)}


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise UsageError(f"the command {line!r} ends inside a quote", hint="close the quote") from None


def _names(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(",")]
    is_plain = all(part.isprintable() and '"' not in part for part in parts)
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1] or not is_plain:
        raise UsageError(f"--names {text!r} is not two different names", hint="--names eager,compiled")
    return dict(zip("AB", parts, strict=True))


def _measure(pattern: str | None, *, lower: bool) -> tuple[str, str, float, bool]:
    """Column, unit, scale and direction of what --metric-regex reads; its group's name says what it is."""
    if pattern is None:
        if lower:
            raise UsageError("--lower needs --metric-regex", hint="for times, lower is always better")
        return "metric", "", 1.0, True
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--metric-regex {pattern!r} is not a regular expression: {error}") from None
    if compiled.groups != 1:
        raise UsageError(
            f"--metric-regex {pattern!r} has {compiled.groups} groups, not one",
            hint="--metric-regex 'tok/s: ([0-9.]+)'",
        )
    name = next(iter(compiled.groupindex), "cost" if lower else "metric")
    if name in _COLUMNS:
        raise UsageError(
            f"--metric-regex names {name}, which the table already has as a column",
            hint="name it tokens_per_s or step_ms",
        )
    from profkit.compare.tables.headings import metric_of

    known = metric_of([name], name, "--metric")
    is_named = name not in ("cost", "metric")
    if lower and known.higher_is_better and is_named:
        raise UsageError(
            f"--metric-regex names {name}, where higher is better", hint="leave out --lower, or name it cost"
        )
    return name, known.unit, known.scale, known.higher_is_better


def _table_path(output: Path | None, *, overwrite: bool) -> Path:
    """The file to write: the one asked for if it is free, else a new one."""
    path = output or Path(_DEFAULT_TABLE)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="create it first, or name another table with -o")
    if output is not None and os.path.lexists(path) and not overwrite:  # a link too, wherever it leads
        raise UsageError(f"{path} already exists", hint="name another table with -o, or add --overwrite")
    number = 1
    while output is None and os.path.lexists(path):
        number += 1
        path = Path(_DEFAULT_TABLE).with_stem(f"{Path(_DEFAULT_TABLE).stem}-{number}")
    return path
