"""`profkit verify`: does every number of a report follow from its traces?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from profkit.agents.reports import text_of
from profkit.allocator import collector_paused
from profkit.cli.shared.amounts import metric_option
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import PLACE, color_option, lenient_option, step_range_option, verbose_option
from profkit.cli.shared.sides import ManyPaths, side_options, sides_of
from profkit.errors import UsageError
from profkit.redact import redacted_text
from profkit.shell import clean, line_of, path_word
from profkit.version import __version__

if TYPE_CHECKING:
    from profkit.model.documents.comparison import Comparison
    from profkit.model.documents.report import Report
    from profkit.render.json.recomputed import Checked, Difference

_SHOWN: Final = 10
_LONGEST: Final = 100
_BEFORE: Final = 24  # characters of a long text before the place in which it differs


@click.command("verify", cls=ManyPaths, short_help="Does every number of a report follow from its traces?")
@click.argument("report", type=click.Path(path_type=Path), metavar="REPORT.json")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True), metavar="TRACE...")
@side_options
@metric_option
@step_range_option
@lenient_option
@click.option(
    "--probe",
    type=click.Path(path_type=Path),
    metavar=PLACE,
    help="Use what profkit probe -o FILE.json measured, if the report did; else probe.json in the folder of traces.",
)
@verbose_option("every difference, not the first ten")
@color_option
def command(
    report: Path,
    paths: tuple[str, ...],
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    metric: str | None,
    step_text: str | None,
    probe: Path | None,
    lenient: bool,
    verbose: bool,
    color: bool | None,
) -> int:
    """Recompute every number of a report (profkit triage -f json, profkit compare -f json) from its traces, and name
    those that do not hold.

    TRACE is what triage was given: traces, folders, a second tool's recording. What compare was given are two sides:
    A B, or --baseline and --candidate. Flags that change numbers must be the same. Integers, all times among them, must
    be equal, fractions to nine digits; so must the words, if the report is of this version of profkit. Paths and
    commands to paste are not compared: they depend on who runs profkit, and where. Exit code 0: everything holds; 1:
    something does not; 3: the report or a trace cannot be read.

    \b
    Examples:
      profkit verify report.json trace.json.gz
      profkit verify report.json runs/                     all ranks of a job
      profkit verify report.json trace.json.gz --step-range 2:8
      profkit verify report.json trace.json.gz kernels.ncu-rep -v
      profkit verify comparison.json before/ after/
      profkit verify comparison.json --baseline a1 a2 a3 --candidate b1 b2 b3
    """
    from profkit.render.json import compare, triage
    from profkit.render.json.recomputed import checked, read_document

    text = text_of(report, "give the report first, then its traces")
    said = read_document(text, str(report), triage.SCHEMA_ID, compare.SCHEMA_ID)
    if said["schema"] == compare.SCHEMA_ID:
        if step_text is not None or probe is not None:
            raise UsageError("--step-range and --probe are of reports of triage", hint="leave them out")
        sides = sides_of(paths, baseline, candidate, call=line_of("profkit verify", path_word(str(report))).text)
        comparison = _compared_again(said, sides, metric, lenient=lenient)
        found, given = json.loads(compare.render(comparison)), _files_of(comparison)
    else:
        if baseline or candidate or metric or not paths:
            hint = f"{line_of('profkit verify', path_word(str(report))).text} TRACE..."
            raise UsageError(f"{clean(str(report))} is a report of triage: name its traces", hint=hint)
        found = json.loads(triage.render(_recomputed(paths, step_text, probe, lenient=lenient)))
        given = _counted(len(found["ranks"]), "trace")
    answer = checked(said, found)
    for line in _lines(answer, report.name, given=given, most=None if verbose else _SHOWN):
        click.echo(clean(redacted_text(line)))
    return int(bool(answer.differences))


def _files_of(comparison: Comparison) -> str:
    sides = (comparison.baseline, comparison.candidate)
    n_traces = sum(side.n_traces for side in sides)
    return _counted(n_traces, "trace") if n_traces else _counted(len({*sides[0].sources, *sides[1].sources}), "table")


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


def _recomputed(paths: tuple[str, ...], step_text: str | None, probe: Path | None, *, lenient: bool) -> Report:
    """The report that triage makes of these paths now, of nothing that an earlier run kept."""
    click.get_current_context().with_resource(collector_paused(is_last=True))
    load_numpy()
    from profkit.cli.triage import parsed_steps, probe_in, report_of
    from profkit.crosscheck.sources import sources_of
    from profkit.ranks.reduce.options import Options

    sources = sources_of(paths)
    options = Options(lenient=lenient, step_range=parsed_steps(step_text))
    return report_of(sources, options, 0, {"is_cached": False}, probe_in(probe, paths))


def _compared_again(
    said: Mapping[str, Any], sides: tuple[list[str], list[str]], metric: str | None, *, lenient: bool
) -> Comparison:
    """The comparison of these sides now, with the margin that the report was made with."""
    load_numpy()
    from profkit.cli.compare import compared
    from profkit.compare.stats.judge import DEFAULT_MARGIN

    judged = said.get("judgement")
    margin = judged.get("margin") if isinstance(judged, Mapping) else None
    if not isinstance(margin, (int, float)) or not 0 <= margin < 1:
        margin = DEFAULT_MARGIN
    return compared(*sides, margin=float(margin), metric=metric, lenient=lenient)


def _lines(answer: Checked, name: str, *, given: str, most: int | None) -> Iterable[str]:
    """What is said of a report: one line where everything holds, else each difference. `given`: "2 traces"."""
    looked_at = f"{answer.n_numbers:,} numbers and {answer.n_others:,} texts and flags"
    other = "" if answer.is_same_version else f"; profkit {answer.version} wrote it, this is {__version__}"
    if not answer.differences:
        yield f"{name} holds: {looked_at} recomputed from {given}, all equal{other}"
        return
    n_differ = len(answer.differences)
    yield f"{name} does not hold: {n_differ:,} of {looked_at} differ{'s' * (n_differ == 1)}{other}"
    for one in answer.differences[:most]:
        yield f"  {_sentence(one, given.partition(' ')[2])}"
    if most is not None and n_differ > most:
        yield f"  and {n_differ - most:,} more: -v"
    if not answer.is_same_version:
        yield "  rules and limits change between versions: verify with the profkit that wrote it"
    elif any(one.path.endswith((".window.n_steps", ".window.duration_ns")) for one in answer.differences):
        yield "  another window: give the traces that the report is of, with its --step-range and --lenient"


def _sentence(one: Difference, given: str) -> str:
    verb = "say" if given.endswith("s") else "says"
    said, found = _shown(one.said), _shown(one.found)
    if isinstance(one.said, str) and isinstance(one.found, str):
        same = next((n for n, pair in enumerate(zip(said, found, strict=False)) if pair[0] != pair[1]), 0)
        said, found = _around(said, same), _around(found, same)
    return f"{one.path}: the report says {_cut(said)}, the {given} {verb} {_cut(found)}"


def _around(text: str, place: int) -> str:
    """A long text from a little before a place."""
    return text if len(text) <= _LONGEST or place <= _BEFORE else f'"...{text[place - _BEFORE :]}'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _shown(value: Any) -> str:
    from profkit.render.json.recomputed import ABSENT

    if value is ABSENT:
        return "nothing"
    if isinstance(value, dict):
        return f"an object with {len(value):,} fields"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    return json.dumps(value, ensure_ascii=False)
