"""`profkit explain`: what a finding means, how it is measured, and how to prove it."""

from __future__ import annotations

import textwrap

import click

from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.findings.capture import CHECKS, COST, HIGH_COST_CAP, QUALITY, CheckKind
from profkit.findings.kind import FindingKind

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
    the experiment that proves it, and the fix; or what a check of a trace allows, and what its failure does. Without
    ID: list all findings and checks.

    \b
    Examples:
      profkit explain
      profkit explain input.starved
    """
    if finding_id is None:
        for kind in KINDS.values():
            click.echo(f"{kind.id:31} {kind.title}")
        click.echo("\nchecks of a trace:")
        for check in CHECKS.values():
            click.echo(f"{check.id:31} {allowed(check)}")
        return
    if finding_id in CHECKS:
        click.echo(as_check(CHECKS[finding_id]))
        return
    if finding_id not in KINDS:
        from difflib import get_close_matches

        near = get_close_matches(finding_id, (*KINDS, *CHECKS), n=1, cutoff=0.4)
        raise UsageError(
            f"there is no finding or check {finding_id!r}" + (f"; did you mean {near[0]}?" if near else ""),
            hint="profkit explain lists all of them",
        )
    click.echo(as_text(KINDS[finding_id]))


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


def allowed(check: CheckKind) -> str:
    """What a check lets pass: `profiler cost <= 5 %`."""
    return check.allows.says.format(check.allows.shown)


def as_check(check: CheckKind) -> str:
    """What a check of a trace allows, and what its failure does, in lines of at most 96 columns."""
    failed = f"no finding of this trace has more confidence than {check.cap:g}"
    if check is COST:
        high = QUALITY.thresholds["high_cost"].shown
        failed += f" ({HIGH_COST_CAP:g} above {high}), nor more than unprofiled over profiled step"
    verdict = "the verdict is inconclusive; " if check.is_refusing else ""
    parts = [f"{check.id}: a check of every trace it applies to", ""]
    parts += ["what it allows, and the source of the limit", *_lines((f"{allowed(check)}: {check.allows.source}",)), ""]
    parts += ["where it fails", *_lines(f"{verdict}{failed}"), "", "all checks, and what to do"]
    return "\n".join([*parts, *_lines(f"profkit explain {QUALITY.id}")])


def _lines(body: str | tuple[str, ...]) -> list[str]:
    if isinstance(body, str):
        return textwrap.wrap(body, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines: list[str] = []
    for item in body:
        first, *code = item.split("\n")  # a fix may carry code to paste, which keeps its lines
        lines += textwrap.wrap(first, _WIDTH, initial_indent="  - ", subsequent_indent="    ")
        lines += ["      " + line for line in code]
    return lines
