"""`profkit explain`: what a finding means and how to prove it, or where one number of a report comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from profkit.cli.shared.columns import width_of, wrapped
from profkit.cli.shared.command import Command
from profkit.cli.shared.options import common_options
from profkit.errors import UsageError
from profkit.findings.kind import FindingKind
from profkit.render.words.explain import Explained, explained, groups, known_names, of_finding
from profkit.shell import clean, line_of

_WIDEST: Final = 96


def _names_like(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids that begin so; with `--report`, those of the report's evidence."""
    return [name for name in _names(ctx.params.get("report")) if name.startswith(incomplete)]


@click.command("explain", cls=Command, short_help="What a finding, a verdict or a number means, and how to prove it.")
@click.argument("name", required=False, shell_complete=_names_like, metavar="[ID]")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="REPORT.json",
    help="ID is the path of a number in this report (-f json): its value, its unit and how to recompute it.",
)
@common_options
def command(name: str | None, report: Path | None) -> None:
    """Print what a finding means, how it is measured, its thresholds and their source, what else could look like it,
    the experiment that proves it, and the fix; of a verdict, the findings that lead to it; of a check of the capture,
    what follows where it fails. Without ID: list all.

    With --report, ID is a path into a report of triage, compare or where, as the page of -f agent has it in brackets.
    Without ID: the paths of all evidence in the report.

    \b
    Examples:
      profkit explain                list all
      profkit explain input.starved  a finding
      profkit explain data-bound     a verdict
      profkit explain steps.few      a check of the capture
      profkit explain verdict.step_ns --report report.json
    """
    if report is not None:
        click.echo(_number(name, report))
    elif name is None:
        click.echo("\n".join(_list()))
    else:
        click.echo(_laid_out(_explained(name)))


def _explained(name: str) -> Explained:
    try:
        return explained(name)
    except UsageError:
        from profkit.agents.evidence import is_path

        if not any(is_path(document, name) for document in ("triage", "compare")):
            raise
        asked = line_of("profkit explain", clean(name)).text
        hint = f"profkit triage TRACE -f json -o report.json, then {asked} --report report.json"
        raise UsageError(f"{clean(name)} is a path into a report: which one?", hint=hint) from None


def _number(name: str | None, report: Path) -> str:
    from profkit.agents.evidence import evidence_ids, looked_up
    from profkit.agents.reports import read_report

    document = read_report(report)
    if name is None:
        return "\n".join(clean(line) for line in evidence_ids(document)) or "the report holds no evidence"
    return "\n".join(clean(line) for line in looked_up(document, name, report=str(report)).lines)


def _names(report: Path | None) -> tuple[str, ...]:
    if report is None:
        return known_names()
    from profkit.agents.evidence import evidence_ids
    from profkit.agents.reports import read_report
    from profkit.errors import ProfkitError

    try:
        return tuple(line.partition(" ")[0] for line in evidence_ids(read_report(report)))
    except ProfkitError:
        return ()


def _list() -> list[str]:
    """All ids with what they are, in groups."""
    told = groups()
    column = max(len(name) for _, names in told for name in names) + 2
    lines: list[str] = []
    for title, names in told:
        lines += ["", _heading(title)] if lines else [_heading(title)]
        for name, said in names.items():
            lines += wrapped(said, width_of(_WIDEST), first=f"{name:{column}}", rest=" " * column)
    return lines


def _heading(text: str) -> str:
    return click.style("\n".join(wrapped(text, width_of(_WIDEST))), bold=True)


def as_text(kind: FindingKind) -> str:
    """What is known of a kind of finding, laid out for the terminal."""
    return _laid_out(of_finding(kind))


def _laid_out(told: Explained) -> str:
    parts = [_heading(told.heading), ""]
    for title, body in told.parts:
        parts += [_heading(title), *_lines(body), ""]
    return "\n".join(parts).rstrip()


def _lines(body: str | tuple[str, ...]) -> list[str]:
    if isinstance(body, str):
        return wrapped(body, width_of(_WIDEST), first="  ", rest="  ")
    lines: list[str] = []
    for item in body:
        first, *code = item.split("\n")  # a fix may carry code to paste, which keeps its lines
        lines += wrapped(first, width_of(_WIDEST), first="  - ", rest="    ")
        lines += ["      " + line for line in code]
    return lines
