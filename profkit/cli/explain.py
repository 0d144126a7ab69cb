"""`profkit explain`: what a finding means, how it is measured, and how to prove it."""

from __future__ import annotations

import textwrap

import click

from profkit.errors import UsageError
from profkit.model.finding import Explanation

_WIDTH = 96


class _FindingId(click.ParamType):  # type: ignore[type-arg]
    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Give the ids that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in _explanations() if name.startswith(incomplete)]


def _explanations() -> dict[str, Explanation]:
    """Give what is known of findings of `triage`, of one rank and of many, and readings of `compare`, by id."""
    from profkit import analyzers
    from profkit.compare import explanations as readings
    from profkit.crosscheck import explanations as second
    from profkit.ranks.findings import explanations as across

    return {**analyzers.EXPLANATIONS, **across.EXPLANATIONS, **second.EXPLANATIONS, **readings.EXPLANATIONS}


@click.command("explain", short_help="What a finding means and how to prove it.")
@click.argument("finding_id", required=False, type=_FindingId(), metavar="[ID]")
def command(finding_id: str | None) -> None:
    """Print what a finding means, how it is measured, its thresholds and their source, what else could look like it,
    the experiment that proves it, and the fix. Without ID: list all findings.

    \b
    Examples:
      profkit explain
      profkit explain input.starved
    """
    known = _explanations()
    if finding_id is None:
        for explanation in known.values():
            click.echo(f"{explanation.id:31} {explanation.title}")
        return
    if finding_id not in known:
        from difflib import get_close_matches

        near = get_close_matches(finding_id, known, n=1, cutoff=0.4)
        raise UsageError(
            f"there is no finding {finding_id!r}" + (f"; did you mean {near[0]}?" if near else ""),
            hint="profkit explain lists all of them",
        )
    click.echo(as_text(known[finding_id]))


def as_text(explanation: Explanation) -> str:
    """Give the explanation as text of at most 96 columns."""
    parts = [f"{explanation.id}: {explanation.title}", ""]
    for title, body in (
        ("what it means", explanation.meaning),
        ("how it is measured", explanation.measured),
        ("thresholds and their source", explanation.thresholds),
        ("what else looks like it", explanation.lookalikes),
        ("the experiment that proves it", explanation.proof),
        ("what to do", explanation.fixes),
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
