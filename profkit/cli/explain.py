"""`profkit explain`: what a finding means, how it is measured, and how to prove it."""

from __future__ import annotations

import textwrap

import click

from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.findings.capture import CHECKS, QUALITY, CheckKind
from profkit.findings.kind import FindingKind
from profkit.model.finding import confidence_label

_WIDTH = 96


class _FindingId(click.ParamType):  # type: ignore[type-arg]
    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The ids that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in (*KINDS, *CHECKS) if name.startswith(incomplete)]


@click.command("explain", short_help="What a finding means and how to prove it.")
@click.argument("finding_id", required=False, type=_FindingId(), metavar="[ID]")
def command(finding_id: str | None) -> None:
    """Print what a finding means, how it is measured, its thresholds and their source, what else could look like it,
    the experiment that proves it, and the fix; of a check, what follows where it fails. Without ID: list all.

    \b
    Examples:
      profkit explain
      profkit explain input.starved
    """
    if finding_id is None:
        for kind in KINDS.values():
            click.echo(f"{kind.id:31} {kind.title}")
        for check in CHECKS.values():
            click.echo(f"{check.id:31} check of the capture: {check.allows.says.format(check.allows.shown)}")
        return
    if finding_id in CHECKS:
        click.echo(check_text(CHECKS[finding_id]))
        return
    if finding_id not in KINDS:
        from difflib import get_close_matches

        near = get_close_matches(finding_id, (*KINDS, *CHECKS), n=1, cutoff=0.4)
        raise UsageError(
            f"there is no finding or check {finding_id!r}" + (f"; did you mean {near[0]}?" if near else ""),
            hint="profkit explain lists all of them",
        )
    click.echo(as_text(KINDS[finding_id]))


def check_text(check: CheckKind) -> str:
    """What is known of a check of the capture, in lines of at most 96 columns."""
    if check.is_refusing:
        result = "no verdict"
    else:
        result = f"a verdict with {confidence_label(check.cap)} confidence at most ({check.cap:g} of 1)"
    parts = [f"{check.id}: check of the capture", ""]
    for title, body in (
        ("what it means where it fails", check.meaning),
        ("what it allows, and the source", (check.allows.text,)),
        ("where it fails", f"{result}; the finding is {QUALITY.id}"),
        ("what to do", QUALITY.fixes[:1]),
    ):
        parts += [title, *_lines(body), ""]
    return "\n".join(parts).rstrip()


def as_text(kind: FindingKind) -> str:
    """What is known of a kind of finding, in lines of at most 96 columns."""
    parts = [f"{kind.id}: {kind.title}", ""]
    for title, body in (
        ("what it means", kind.meaning),
        ("how it is measured", kind.measured),
        ("thresholds and their source", kind.threshold_lines),
        ("what else looks like it", kind.lookalikes),
        ("the experiment that proves it", kind.proof),
        ("the same on a CPU", kind.proof_on_cpu),
        ("what to do", kind.fixes),
    ):
        if body:
            parts += [title, *_lines(body), ""]
    return "\n".join(parts).rstrip()


def _lines(body: str | tuple[str, ...]) -> list[str]:
    if isinstance(body, str):
        return textwrap.wrap(body, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines: list[str] = []
    for item in body:
        first, *code = item.split("\n")  # a fix may carry code to paste, which keeps its lines
        lines += textwrap.wrap(first, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
        lines += ["      " + line for line in code]
    return lines
