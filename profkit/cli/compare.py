"""`profkit compare`: did the change help, and why?"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from profkit.cli.parts.kernel_sides import are_profiles, compare_profiles
from profkit.cli.parts.sides import ManyPaths, side_options, sides_of
from profkit.cli.shared.options import (
    Option,
    color_option,
    lenient_option,
    report_options,
    verbose_option,
    with_paths_option,
)
from profkit.cli.shared.output import Showing, format_for, show
from profkit.cli.shared.percent import Limit, Loss, limit_of, margin_option, metric_option
from profkit.cli.shared.progress import ReadingProgress
from profkit.cli.shared.say import say
from profkit.model.documents.comparison import Comparison, Judgement
from profkit.units import format_change, format_fraction

_MIN_RUNS: Final = 3  # as compare.judge, which gives no answer below


@click.command("compare", cls=ManyPaths, short_help="Did a change help, how sure is that, and why?")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True), metavar="[A B]")
@side_options
@margin_option
@metric_option
@click.option(
    "--fail-on-regression",
    "limit",
    cls=Option,
    type=Limit(),
    metavar="3%",
    show_default="as [tool.profkit] in pyproject.toml has it",
    help="Exit 1 if the whole interval is worse than this; never: do not.",
)
@report_options("compare")
@lenient_option
@verbose_option("every reading, kernel and collective")
@with_paths_option
@color_option
def command(
    paths: tuple[str, ...],
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    margin: float,
    metric: str | None,
    limit: Loss | None,
    fmt: str | None,
    output: Path | None,
    lenient: bool,
    verbose: bool,
    with_paths: bool,
    color: bool | None,
) -> int:
    """Say whether B is faster than A, by how much, how sure that is, and where the difference comes from.

    A side is traces, capture folders, a result table (CSV, JSON), or Nsight Compute's profiles. Every path is one run,
    and so are ranks of one recording together; steps, windows and ranks of one run do not count as separate runs. With
    three runs a side there is an answer: improved, regressed, equivalent or inconclusive. With one run a side, the
    report shows what happened, and why. Profiles are compared kernel by kernel.

    \b
    Examples:
      profkit compare before.json.gz after.json.gz         what changed between two captures
      profkit compare profkit-capture/ profkit-capture-2/
      profkit compare --baseline a1 a2 a3 --candidate b1 b2 b3
      profkit compare before.ncu-rep after.ncu-rep         the same kernels, and what moved in them
      profkit compare results.csv                          the two arms of a table, as profkit bench writes it
      profkit compare main.csv branch.csv --fail-on-regression 3%
      profkit compare a/ b/ -o report.md                   markdown for a pull request
    """
    format_name = format_for("compare", fmt, output)
    before, after = sides_of(paths, baseline, candidate)
    limit = limit_of(limit)
    if are_profiles(before, after):
        how = Showing(fmt=format_name, output=output, color=color, verbose=verbose, with_paths=with_paths)
        return compare_profiles(before, after, how, metric=metric, limit=limit)
    comparison = compared(before, after, margin=margin, metric=metric, lenient=lenient)
    how = Showing(fmt=format_name, output=output, color=color, verbose=verbose, with_paths=with_paths)
    show("compare", comparison, how, source=before[0])
    return 0 if limit is None else _gate(comparison, limit)


def compared(before: list[str], after: list[str], *, margin: float, metric: str | None, lenient: bool) -> Comparison:
    """The comparison of two sides, with progress on a terminal."""
    from profkit.compare.paths import compare_paths

    with ReadingProgress() as progress:
        return compare_paths(before, after or None, margin=margin, metric=metric, lenient=lenient, progress=progress)


def _gate(comparison: Comparison, loss: Loss) -> int:
    """The gate's exit code, said on stderr: 1 if the whole interval of a regression is beyond the limit, else 0."""
    limit = loss.fraction
    judged = [judgement for _, judgement in comparison.configurations] or [comparison.judgement]
    beyond = [item for item in judged if _is_beyond(item, limit)]
    code = int(bool(beyond))
    said = (
        f"regressed by {format_fraction(_least_loss(beyond[0]))} or more"
        if beyond
        else _why_not(comparison.judgement, limit)
    )
    say(f"{loss.asked}: {said}; exit code {code}")
    return code


def _is_beyond(judged: Judgement, limit: float) -> bool:
    return judged.is_comparable and judged.answer == "regressed" and _least_loss(judged) > limit


def _least_loss(judged: Judgement) -> float:
    """The end of the interval that is kinder to the candidate, as a loss."""
    return -judged.interval[1] if judged.interval is not None else 0.0


def _why_not(judged: Judgement, limit: float) -> str:
    if not judged.is_comparable:
        return "the sides do different work, so a regression cannot be judged"
    if min(judged.n) < _MIN_RUNS:
        return f"{judged.n[0]} and {judged.n[1]} runs cannot rule out noise; three a side can"
    if judged.change_interval is None:
        return f"no interval can be given: {judged.test.removeprefix('none: ')}"
    kinder = judged.change_interval[judged.higher_is_better]
    reaches = f"the interval of the change reaches {format_change(kinder)}"
    return f"the slowdown may be below {format_fraction(limit)}: {reaches}"
