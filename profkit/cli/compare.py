"""`profkit compare`: did the change help, and why?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from profkit.cli.shared.amounts import Limit, Loss, limit_of, margin_option, metric_option
from profkit.cli.shared.options import (
    Option,
    lenient_option,
    report_options,
    showing,
)
from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.progress import ReadingProgress
from profkit.cli.shared.say import say
from profkit.cli.shared.sides import ManyPaths, side_options, sides_of
from profkit.errors import TraceNotFoundError, UsageError
from profkit.model.documents.comparison import Comparison, Judgement
from profkit.units import format_change, format_fraction

_TWO_SIDES: Final = "profkit compare before.ncu-rep after.ncu-rep"
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
@showing("compare", verbose="every reading, kernel and collective")
def command(
    how: Showing,
    paths: tuple[str, ...],
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    margin: float,
    metric: str | None,
    limit: Loss | None,
    lenient: bool,
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
    before, after = sides_of(paths, baseline, candidate)
    limit = limit_of(limit)
    if _are_profiles(before, after):
        return _compare_profiles(before, after, how, metric=metric, limit=limit)
    comparison = compared(before, after, margin=margin, metric=metric, lenient=lenient)
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


def _are_profiles(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether both sides are ncu's; raises UsageError where some of it is and the rest is not."""
    found = [_is_profile(path) for path in (*before, *after)]
    if not any(found):
        return False
    if not all(found):
        raise UsageError("an ncu report and a trace cannot be compared", hint=f"{_TWO_SIDES}; or two traces")
    if not after:
        raise UsageError(f"{before[0]} is one side", hint=f"name the other one as well: {_TWO_SIDES}")
    return True


def _is_profile(path: str) -> bool:
    """A report or page of ncu, or a folder that holds those and no trace."""
    from profkit.ingest.discover import find_sources
    from profkit.ingest.ncu.reader import find_ncu_sources
    from profkit.ingest.ncu.source import is_ncu

    if path == "-" or not Path(path).is_dir():
        return path != "-" and Path(path).is_file() and is_ncu(Path(path), path)
    try:
        find_sources([path])
    except TraceNotFoundError:
        pass
    else:
        return False
    try:
        return any(is_ncu(Path(source), source) for source in find_ncu_sources([path]))
    except TraceNotFoundError:
        return False


def _compare_profiles(
    before: Sequence[str], after: Sequence[str], how: Showing, *, metric: str | None, limit: Loss | None
) -> int:
    """Print what changed in each kernel; 1 where one is slower than the limit allows."""
    from profkit.compare.kernels import compare_kernels
    from profkit.ingest.ncu.reader import find_ncu_sources, read_profiles

    if metric is not None:
        raise UsageError("--metric names a column, but these are ncu reports", hint="leave it out")
    sources = find_ncu_sources(before), find_ncu_sources(after)
    read = [[read_profiles(source) for source in side] for side in sources]
    comparison = compare_kernels(
        *([profile for one in side for profile in one.profiles] for side in read),
        sources=sources,
        warnings=[warning for side in read for one in side for warning in one.warnings],
    )
    show("compare_kernels", comparison, how, source=before[0])
    if limit is None:
        return 0
    changes = {one.function: one.change for one in comparison.kernels if one.answer == "slower" and one.change}
    worst = max(changes, key=lambda name: changes[name], default="")
    is_beyond = bool(worst) and changes[worst] > limit.fraction
    said = f"{worst} {format_change(changes[worst])}" if worst else "no kernel is slower"
    say(f"{limit.asked}: {said}; exit code {int(is_beyond)}")
    return int(is_beyond)
