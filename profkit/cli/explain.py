"""`profkit explain`: what a finding means, how it is measured, and how to prove it."""

from __future__ import annotations

from typing import Final

import click

from profkit.cli.shared.columns import width_of, wrapped
from profkit.cli.shared.command import Command
from profkit.cli.shared.options import common_options
from profkit.errors import UsageError
from profkit.findings import KINDS
from profkit.findings.capture import CHECKS, QUALITY, CheckKind
from profkit.findings.kind import VERDICTS, FindingKind
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import confidence_label
from profkit.verdict.calibrated import CURVE, SOURCE

_WIDEST: Final = 96
_MOST_NEAR: Final = 3
_HEALTHY: Final = "healthy"


class _FindingId(click.ParamType):  # type: ignore[type-arg]
    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The ids that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in _known() if name.startswith(incomplete)]


@click.command("explain", cls=Command, short_help="What a finding, a verdict or a check means, and how to prove it.")
@click.argument("name", required=False, type=_FindingId(), metavar="[ID]")
@common_options
def command(name: str | None) -> None:
    """Print what a finding means, how it is measured, its thresholds and their source, what else could look like it,
    the experiment that proves it, and the fix; of a verdict, the findings that lead to it; of a check of the capture,
    what follows where it fails. Without ID: list all.

    \b
    Examples:
      profkit explain                list all
      profkit explain input.starved  a finding
      profkit explain data-bound     a verdict
      profkit explain steps.few      a check of the capture
    """
    if name is None:
        click.echo("\n".join(_list()))
        return
    asked = name.strip().lower()
    if asked in KINDS:
        parts = as_text(KINDS[asked])
    elif asked in CHECKS:
        parts = check_text(CHECKS[asked])
    elif asked in _verdicts():
        parts = verdict_text(Bottleneck.KERNEL if asked == _HEALTHY else Bottleneck(asked))
    else:
        raise UsageError(_unknown(name, asked), hint="profkit explain lists all of them")
    click.echo(parts)


def _verdicts() -> tuple[str, ...]:
    return (*(str(verdict) for verdict in VERDICTS), _HEALTHY)


def _known() -> tuple[str, ...]:
    return (*_verdicts(), *KINDS, *CHECKS)


def _unknown(name: str, asked: str) -> str:
    """That there is no such thing, and which it may be: those with it in their names, else the nearest."""
    from difflib import get_close_matches

    held = [known for known in _known() if len(asked) > 2 and asked in known]
    shown = held[:_MOST_NEAR] or get_close_matches(asked, _known(), n=1, cutoff=0.5)
    said = f"; did you mean {' or '.join(shown)}?" if shown else ""
    return f"there is no finding, verdict or check {name!r}{said}"


def _list() -> list[str]:
    """All ids with what they are, in groups."""
    groups = (
        ("verdicts", {str(verdict): meaning.partition(". ")[0].rstrip(".") for verdict, meaning in VERDICTS.items()}),
        ("findings", {kind.id: kind.title for kind in KINDS.values()}),
        ("checks of the capture", {one.id: one.allows.says.format(one.allows.shown) for one in CHECKS.values()}),
    )
    column = max(len(name) for _, names in groups for name in names) + 2
    lines: list[str] = []
    for title, names in groups:
        lines += ["", _heading(title)] if lines else [_heading(title)]
        for name, said in names.items():
            lines += wrapped(said, width_of(_WIDEST), first=f"{name:{column}}", rest=" " * column)
    return lines


def _heading(text: str) -> str:
    return click.style("\n".join(wrapped(text, width_of(_WIDEST))), bold=True)


_CALIBRATED: Final = (
    f"On a CPU its confidence is the share of such verdicts that were right on programs of known truth: {SOURCE}."
    " On a GPU, where none was measured, it is a rung of a ladder."
)


def verdict_text(verdict: Bottleneck) -> str:
    """What a verdict means, and the findings that lead to it."""
    leading = [kind for kind in KINDS.values() if kind.bottleneck is verdict]
    parts = [_heading(f"{verdict}: verdict"), ""]
    for title, body in (
        ("what it means", VERDICTS[verdict]),
        ("findings that lead to it", tuple(f"{kind.id}: {kind.title}" for kind in leading)),
        ("how sure it is", _CALIBRATED if CURVE else ""),
        ("more", f"profkit explain {leading[0].id}" if leading else ""),
    ):
        if body:
            parts += [_heading(title), *_lines(body), ""]
    return "\n".join(parts).rstrip()


def check_text(check: CheckKind) -> str:
    """What is known of a check of the capture."""
    if check.is_refusing:
        result = "no verdict"
    else:
        result = f"a verdict with {confidence_label(check.cap)} confidence at most ({check.cap:g} of 1)"
    parts = [_heading(f"{check.id}: check of the capture"), ""]
    for title, body in (
        ("what it means where it fails", check.meaning),
        ("what it allows, and the source", (check.allows.text,)),
        ("where it fails", f"{result}; the finding is {QUALITY.id}"),
        ("what to do", QUALITY.fixes[:1]),
    ):
        parts += [_heading(title), *_lines(body), ""]
    return "\n".join(parts).rstrip()


def as_text(kind: FindingKind) -> str:
    """What is known of a kind of finding."""
    leads = f"{kind.bottleneck}: {VERDICTS[kind.bottleneck]}" if kind.bottleneck is not None else ""
    parts = [_heading(f"{kind.id}: {kind.title}"), ""]
    for title, body in (
        ("what it means", kind.meaning),
        ("how it is measured", kind.measured),
        ("thresholds and their source", kind.threshold_lines),
        ("what else looks like it", kind.lookalikes),
        ("the experiment that proves it", kind.proof),
        ("the same on a CPU", kind.proof_on_cpu),
        ("the command that measures what it is worth", _tried(kind)),
        ("what to do", kind.fixes),
        ("the verdict where it is the largest cause", leads),
    ):
        if body:
            parts += [_heading(title), *_lines(body), ""]
    return "\n".join(parts).rstrip()


def _tried(kind: FindingKind) -> str:
    """The experiment of profkit's own, "" where the finding names nothing that could be removed."""
    if kind.tries:
        return f"profkit try --only {','.join(kind.tries)} -- python train.py"
    return "profkit probe -- python train.py" if kind.bottleneck is not None else ""


def _lines(body: str | tuple[str, ...]) -> list[str]:
    if isinstance(body, str):
        return wrapped(body, width_of(_WIDEST), first="  ", rest="  ")
    lines: list[str] = []
    for item in body:
        first, *code = item.split("\n")  # a fix may carry code to paste, which keeps its lines
        lines += wrapped(first, width_of(_WIDEST), first="  - ", rest="    ")
        lines += ["      " + line for line in code]
    return lines
