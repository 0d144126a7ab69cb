"""`profkit try`: changes made to a job from outside, what the verdict predicts of them, and what they measure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click

from profkit.cli.shared.command import Launcher, command_line_argument, required
from profkit.cli.shared.options import COUNT, report_options, showing, step_on_option
from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.progress import StatusLine
from profkit.cli.shared.say import say, say_below
from profkit.errors import ProfkitError, UsageError

if TYPE_CHECKING:
    from profkit.model.documents.report import Report
    from profkit.trial.choose import Candidate
    from profkit.trial.outcome import Run
    from profkit.trial.session import Session

_LEAST_STEPS: Final = 5
_NUMBERS: Final = {
    "none": "changes no number",
    "rounding": "changes rounding",
    "training": "another training, a bound only",
}


@click.command("try", cls=Launcher, short_help="Try the fixes of the verdict on the job itself.")
@report_options("trial")
@click.option("--only", metavar="A,B", help="Try these changes (those of the verdict): workers,compile,one_batch.")
@click.option(
    "-n",
    "--blocks",
    type=click.IntRange(3),
    default=6,
    show_default=True,
    metavar=COUNT,
    help="Run each command so many times: the job as it is, and with each change.",
)
@click.option(
    "--timed-steps",
    "steps",
    type=click.IntRange(_LEAST_STEPS),
    default=40,
    show_default=True,
    metavar=COUNT,
    help="Time so many steps of each run, then stop it.",
)
@click.option("--ablations/--no-ablations", default=True, show_default=True, help="Also leave work out, for a bound.")
@click.option("--report-of", "given", metavar="TRACE", help="Take the verdict from this capture, without a new one.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Run without asking.")
@click.option("--seed", type=int, default=0, show_default=True, metavar=COUNT, help="Draw the order from this seed.")
@step_on_option
@showing("trial", has_paths=False)
@command_line_argument()
def command(
    how: Showing,
    only: str | None,
    blocks: int,
    steps: int,
    ablations: bool,
    given: str | None,
    is_sure: bool,
    seed: int,
    step_on: str,
    command_line: tuple[str, ...],
) -> int:
    """Capture COMMAND once, choose changes by the verdict, and run it with each and without, in turns.

    Each change is made from outside, in the run alone: no file is touched but those that the script itself writes.
    Every run is unprofiled and stops after its timed steps. The report sets what the verdict predicts of a change
    beside what the runs measure, and says what became of the losses. A gain is claimed only where its interval is above
    0. The exit code is 0, or the command's own where it fails by itself.

    \b
    Examples:
      profkit try -- python train.py --lr 3e-4
      profkit try --only workers,tf32 -n 8 --yes -- python train.py
      profkit try -o tried.html -- torchrun --nproc-per-node 4 train.py
      profkit try --report-of profkit-capture -- python train.py
    """
    required(command_line, "profkit try -- python train.py")
    if not is_sure and not sys.stdin.isatty():
        raise UsageError("the runs start the command again and again, and nobody is there to ask", hint="add --yes")
    wanted = [key.strip() for key in only.split(",") if key.strip()] if only else []
    _known(wanted)
    flow = _Flow(command_line, step_on=step_on, n_steps=steps)
    try:
        return flow.go(wanted, given, how, blocks=blocks, seed=seed, with_ablations=ablations, is_sure=is_sure)
    except ProfkitError as error:
        code = getattr(error, "code", None)
        if code is None:
            raise
        from profkit.capture.runner import leave_like

        say(error.message)
        return leave_like(code)


def _known(wanted: Sequence[str]) -> None:
    from profkit.trial.catalogue import CATALOGUE

    for key in wanted:
        if key not in CATALOGUE:
            raise UsageError(f"there is no change {key!r}", hint=f"one of {', '.join(CATALOGUE)}")


class _Flow:
    """From a command to its report: captured, asked, run in turns."""

    def __init__(self, command: Sequence[str], *, step_on: str, n_steps: int) -> None:
        self._command, self._step_on, self._n_steps = command, step_on, n_steps
        self._line = StatusLine()
        self._n_done = 0

    def go(
        self,
        wanted: Sequence[str],
        given: str | None,
        how: Showing,
        *,
        blocks: int,
        seed: int,
        with_ablations: bool,
        is_sure: bool,
    ) -> int:
        """All of it; gives the exit code."""
        from profkit.findings.probe import PREDICTION
        from profkit.trial.choose import SETTLING, chosen, expected_ns, settling
        from profkit.trial.session import Session, keys, measure

        triaged = self._verdict(given)
        plain = self._run(None, SETTLING)
        candidates = chosen(triaged, plain, wanted, with_ablations=with_ablations)
        able = [one for one in candidates if not one.why_not]
        if not able:
            return self._nothing(triaged, candidates)
        session = Session(arms=keys([one.change.key for one in able]), n_blocks=blocks, seed=seed)
        n_settling = settling(able, plain)
        announced_ns = blocks * expected_ns(able, plain, n_settling)
        session.most_ns = round(PREDICTION.limit("overrun") * announced_ns)
        self._tell(triaged, able, session, plain, (n_settling, announced_ns))
        if not is_sure and not click.confirm("Run them?", default=True, err=True):
            return 0
        by_key = {one.change.key: one for one in able}
        total = len(session.arms) * blocks
        code = 0
        try:
            measure(
                session,
                lambda arm: self._run(by_key.get(arm), n_settling, session.left_ns),
                on_run=lambda arm, block: self._show(f"block {block} of {blocks}: {arm or 'unchanged'}", total),
            )
        except KeyboardInterrupt:
            code = 130
        self._line.clear()
        return self._report(session, candidates, triaged, how, n_settling=n_settling) or code

    def _verdict(self, given: str | None) -> Report:
        from profkit.api import triage
        from profkit.trial.outcome import captured

        if given is not None:
            return triage(given)
        say("one run is recorded for a verdict, and stopped when its steps are")
        with ExitStack() as stack:
            return triage(str(stack.enter_context(captured(self._command, step_on=self._step_on))))

    def _run(self, one: Candidate | None, n_settling: int, most_ns: int | None = None) -> Run:
        from profkit.trial.outcome import Made, run_once

        change = Made() if one is None else one.made
        return run_once(
            self._command,
            change,
            n_settling=n_settling,
            n_steps=self._n_steps,
            step_on=self._step_on,
            most_ns=most_ns,
        )

    def _nothing(self, triaged: Report, candidates: Sequence[Candidate]) -> int:
        """Say why there is nothing to try, and what else would show a cause."""
        from profkit.capture.beside import redact
        from profkit.shell import line_of

        for one in candidates:
            say(f"{one.change.key} cannot be made here: {one.why_not}")
        if not candidates:
            say(f"no change that can be made from outside belongs to this verdict: {triaged.verdict.headline}")
        words = redact().redacted_command(list(self._command))
        say("delays show what is on the critical path:")
        say_below(line_of("profkit probe --", *words).text)
        return 0

    def _tell(
        self, triaged: Report, able: Sequence[Candidate], session: Session, plain: Run, of: tuple[int, int]
    ) -> None:
        """What will run, for how long, and what it leaves behind."""
        from profkit.units import format_fraction, format_ns

        n_settling, announced_ns = of
        verdict = triaged.verdict
        say(f"{verdict.bottleneck.value}: {verdict.headline}")
        width = max(len(one.change.key) for one in able)
        for one in able:
            ends = one.told
            said = (
                "no prediction"
                if ends is None
                else f"{format_fraction(ends[0])} to {format_fraction(ends[1])} of the step predicted"
            )
            what = one.keep or one.change.title
            say_below(f"{one.change.key:<{width}}  {what}; {said}; {_NUMBERS[one.change.numbers.value]}")
        n_runs = len(session.arms) * session.n_blocks
        spent = format_ns(announced_ns)
        say(
            f"{n_runs} runs at most, of {n_settling} + {self._n_steps} steps each, in turns with the unchanged one:"
            f" about {spent}, at most {format_ns(session.most_ns or announced_ns)}: then it ends with what it has"
        )
        wrote = plain.record.wrote
        if wrote:
            say(f"each run writes what the script writes in its first steps: {', '.join(wrote[:5])}")

    def _report(
        self, session: Session, candidates: Sequence[Candidate], triaged: Report, how: Showing, *, n_settling: int
    ) -> int:
        from profkit.capture.command import redacted_command
        from profkit.trial.report import report

        shown = redacted_command(self._command)
        found = report(session, candidates, triaged, shown, n_settling=n_settling)
        if found is None:
            say("stopped before every arm was run once")
            return 130
        show("trial", found, how, source=shown)
        return 0

    def _show(self, text: str, total: int) -> None:
        self._n_done += 1
        self._line.show(f"{text} (run {self._n_done} of {total} at most)")
