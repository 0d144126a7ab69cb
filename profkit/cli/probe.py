"""`profkit probe`: delays of known size in a script's steps say what is on the critical path."""

from __future__ import annotations

from typing import Any

import click

from profkit.cli.shared.amounts import Percent
from profkit.cli.shared.command import Launcher, command_line_argument, required
from profkit.cli.shared.options import COUNT, count_option, report_options, showing, step_on_option
from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.say import say
from profkit.errors import UnsupportedTraceError, UsageError

_MOST_COST = 0.5
_PLACES = ("input", "forward", "backward", "optimizer", "device", "copy", "comm")


@click.command("probe", cls=Launcher, short_help="Show by delays what is on a step's critical path.")
@report_options("probe")
@count_option(
    "--probed-steps",
    "steps",
    what="Probe so many steps.",
    default="400, or as many as take 30 s, up to 2000",
    least=40,
    old=("--steps",),
)
@click.option(
    "--cost",
    type=Percent(),
    default="5%",
    show_default=True,
    metavar="5%",
    help="Let the probed steps become so much longer at most.",
)
@click.option("--places", metavar="A,B", help="Probe only these, each then more often: input,forward,rank1 (all).")
@click.option("--seed", type=int, default=0, show_default=True, metavar=COUNT, help="Draw the order from this seed.")
@step_on_option
@showing("probe", has_paths=False)
@command_line_argument()
def command(
    how: Showing,
    steps: int | None,
    cost: float,
    places: str | None,
    seed: int,
    step_on: str,
    command_line: tuple[str, ...],
) -> int:
    """Run COMMAND once, delay some of its steps at one place each, and say which delays made the step longer.

    A slope of 1 is the critical path: each millisecond saved there shortens the step by one. A slope of 0 is hidden.
    Nothing is profiled and no number changes: the script's output is what it is without. The exit code is the
    command's own, 4 if that is 0 and there are no slopes.

    \b
    Examples:
      profkit probe -- python train.py --lr 3e-4
      profkit probe -o probe.json -- torchrun --nproc-per-node 4 train.py
      profkit triage trace.json.gz --probe probe.json      ceilings from the experiment
      profkit probe --places input --probed-steps 200 -- python train.py
    """
    required(command_line, "profkit probe -- python train.py")
    if not 0 < cost <= _MOST_COST:
        raise UsageError(f"--cost {cost:.3g} is not above 0 and at most {_MOST_COST:.0%}", hint="--cost 5%")
    asked = {"n_steps": steps or 0, "seed": seed, "cost": cost, "places": _places(places)}
    many = "some" if steps is None else f"up to {steps}"
    say(f"delays in {many} steps will show what limits them; they add at most {100 * cost:.3g} % to the probed steps")
    return _probed(command_line, asked, step_on, how)


def _places(text: str | None) -> list[str]:
    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if name not in _PLACES and not (name.startswith("rank") and name[4:].isdecimal()):
            raise UsageError(f"there is no place {name!r}", hint=f"one of {', '.join(_PLACES)}, rank0, rank1 ...")
    return names


def _probed(command_line: tuple[str, ...], asked: dict[str, Any], step_on: str, how: Showing) -> int:
    """Run the command, show what its steps say, and give the exit code."""
    from profkit.capture import runner
    from profkit.capture.command import redacted_command
    from profkit.capture.options import Options
    from profkit.files import temporary_folder

    shown = redacted_command(command_line)
    is_lacking = False
    with temporary_folder("probe") as folder:
        options = Options(folder=str(folder), probe=asked, step_on=step_on, command=shown)
        ran = runner.run(command_line, options=options)
        try:
            from profkit.probe.report import report

            show("probe", report(folder, shown), how, source=shown)
        except UnsupportedTraceError as error:
            is_lacking = True
            say(f"{error.message}" + (f"; {error.hint}" if error.hint else ""))
    if ran.code:
        say(f"the command ended with {f'exit code {ran.code}' if ran.code > 0 else f'signal {-ran.code}'}")
    return runner.leave_like(ran.code) or 4 * is_lacking
