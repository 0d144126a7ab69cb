"""Options that several commands have: one spelling, one meaning and one way of saying it for each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from profkit.cli.shared.output import Showing, format_for
from profkit.errors import UsageError

Decorator = Callable[[Any], Any]
COUNT: Final = "N"
"""How the help shows a number."""
PLACE: Final = "PATH"
TEXT_FORMATS: Final = ("terminal", "json")
"""Formats of commands that describe rather than report."""
_ALIASES: Final = {
    "md": "markdown",
    "text": "terminal",
    "txt": "terminal",
    "term": "terminal",
    "htm": "html",
}
"""What people type for a format."""


class Option(click.Option):
    """An option with old spellings, which work and are not shown; its default is shown as it is, chosen or fixed."""

    def __init__(self, param_decls: Sequence[str] | None = None, *, old: Sequence[str] = (), **attrs: Any) -> None:
        super().__init__(param_decls, **attrs)
        self.old = tuple(old)

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets behind the help: the default, without click's own brackets or the range."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if "default" in extra and isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Tell the parser the old spellings as well."""
        shown = self.opts
        self.opts = [*shown, *self.old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class FormatChoice(click.ParamType):  # type: ignore[type-arg]
    """One of the formats of a document, or of the names given; completes them, and takes their short forms."""

    name = "format"

    def __init__(self, document: str = "", *, known: tuple[str, ...] = ()) -> None:
        self._document = document
        self._known = known

    def names(self) -> tuple[str, ...]:
        """The formats, the default first."""
        if self._known:
            return self._known
        from profkit.render import formats_of

        return formats_of(self._document)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format's name; fails on what is none, with the nearest one."""
        known = self.names()
        name = _ALIASES.get(str(value).lower(), str(value).lower())
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            asked = f"; did you mean {near[0]}?" if near else ""
            self.fail(f"{value!r} is not one of {', '.join(known)}{asked}", param, ctx)
        return name

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """One word for the help, which lists the names; click 8.1 gives no context."""
        return "FORMAT"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The names that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


class _FormatOption(Option):
    """Says in the help which formats there are, which are known only then."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        kind = self.type
        names = ", ".join(kind.names()) if isinstance(kind, FormatChoice) else ""
        told, self.help = self.help, f"{self.help} {names}."
        try:
            return super().get_help_record(ctx)
        finally:
            self.help = told


def format_option(document: str = "") -> Decorator:
    """`-f`: of a document's formats, by default that of the output's suffix; without a document, text or JSON."""
    return click.option(
        "-f",
        "--format",
        "fmt",
        cls=_FormatOption,
        type=FormatChoice(document) if document else FormatChoice(known=TEXT_FORMATS),
        default=None if document else "terminal",
        show_default="that of -o's suffix, else terminal" if document else True,
        help="Format:",
    )


def output_option(what: str, *, default: str = "", is_file: bool = True, is_required: bool = False) -> Decorator:
    """`-o`: where what the command makes is written; `what` says what that is."""
    return click.option(
        "-o",
        "--output",
        cls=Option,
        type=click.Path(dir_okay=not is_file, path_type=Path),
        required=is_required,
        metavar=PLACE,
        show_default=default or False,
        help=f"Write to this path: {what}.",
    )


def report_options(document: str) -> Decorator:
    """`-f` and `-o` of a command that reports."""
    return together(format_option(document), output_option("the report"))


def showing(document: str, *, verbose: str = "", has_paths: bool = True) -> Decorator:
    """`-v`, `--with-paths` and `--color` of a command that reports, which is called with `how` to show the report.

    `verbose`: what `-v` adds to the report, "" where it adds nothing.
    """

    def decorated(function: Any) -> Any:
        @wraps(function)
        def shown(*, fmt: str | None, output: Path | None, **chosen: Any) -> Any:
            given = {name: chosen.pop(name) for name in ("color", "verbose", "with_paths") if name in chosen}
            how = Showing(fmt=format_for(document, fmt, output), output=output, **given)
            return function(how=how, **chosen)

        options = with_paths_option(color_option(shown)) if has_paths else color_option(shown)
        return verbose_option(verbose, exposed=bool(verbose))(options)

    return decorated


def verbose_option(what: str = "", *, exposed: bool = True) -> Decorator:
    """`-v`; `what` is what the report has beside."""
    said = f"{what}; of a fault, the traceback" if what else "of a fault, the traceback"
    return click.option("-v", "--verbose", is_flag=True, expose_value=exposed, help=f"Show more: {said}.")


def color_option(function: Any, *, exposed: bool = True) -> Any:
    """`--color/--no-color`."""
    return click.option(
        "--color/--no-color",
        cls=Option,
        default=None,
        callback=_remember_color,
        expose_value=exposed,
        show_default="on a terminal, unless NO_COLOR is set",
        help="Force or forbid colour.",
    )(function)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which the help has them."""

    def decorated(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def common_options(function: Any) -> Any:
    """`-v` and `--color`, where the command itself need not hear of them."""
    return verbose_option(exposed=False)(color_option(function, exposed=False))


def _remember_color(ctx: click.Context, param: click.Parameter, value: bool | None) -> bool | None:
    """Tell click, which prints what has no report of its own."""
    ctx.color = False if value is None and os.environ.get("NO_COLOR") else value
    return value


with_paths_option: Final = click.option(
    "--with-paths", is_flag=True, help="In HTML, name folders and hosts too, which are else left out."
)
"""`--with-paths`, of commands that make pages."""
lenient_option: Final = click.option(
    "--lenient", is_flag=True, help="Read the intact part of a damaged file; what is shown says so."
)
"""`--lenient`."""
step_range_option: Final = click.option(
    "--step-range",
    "step_text",
    cls=Option,
    old=("--steps",),
    metavar="A:B",
    help="Take only steps A to B-1, counted from 0.",
)
"""`--step-range`, of commands that read traces."""


def findings_like(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of findings that begin so."""
    from profkit.findings import KINDS

    return [name for name in KINDS if name.startswith(incomplete)]


around_option: Final = click.option(
    "--around",
    metavar="FINDING",
    shell_complete=findings_like,
    help="Take only what surrounds the longest interval behind a finding (host.sync), a part of the budget"
    " (part:idle_data) or a step (step:3).",
)
"""`--around`, of commands that hand a trace on."""
overwrite_option: Final = click.option(
    "--overwrite", is_flag=True, help="Replace what an earlier run left in the place to write to."
)
"""`--overwrite`."""


def ranks_option(default: str) -> Decorator:
    """`--ranks`, of commands that record."""
    return click.option(
        "--ranks",
        default=default,
        callback=_checked_ranks,
        show_default=True,
        metavar="0,3|all",
        help="Record these ranks only, where a launcher starts several.",
    )


def _checked_ranks(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A list of ranks as it is; raises UsageError for anything else."""
    if not re.fullmatch(r"all|\d+(\s*,\s*\d+)*", value):
        raise UsageError(f"--ranks {value!r} is neither all nor a list of ranks", hint="--ranks 0,3")
    return value


step_on_option: Final = click.option(
    "--step-on",
    type=click.Choice(["auto", "optimizer", "loader", "forward", "time"]),
    default="auto",
    show_default=True,
    metavar="EVENT",
    help="What ends a step: optimizer, loader, forward, time, or auto, which finds it.",
)
"""`--step-on`."""


def count_option(
    *names: str,
    what: str,
    default: str = "",
    value: int | None = None,
    least: int = 1,
    most: int | None = None,
    old: tuple[str, ...] = (),
) -> Decorator:
    """An option that takes a number; where none is given, `value`, or one that is chosen as `default` says."""
    return click.option(
        *names,
        cls=Option,
        old=old,
        type=click.IntRange(least, most),
        default=value,
        metavar=COUNT,
        show_default=default or True,
        help=what,
    )


window_steps: Final = together(
    count_option(
        "--unprofiled-steps",
        "baseline",
        what="Time so many steps without the profiler first.",
        default="10, in whole rounds of the loader's workers",
        old=("--baseline",),
    ),
    count_option(
        "--warmup-steps",
        "warmup",
        what="Let so many steps pass between these and the recorded ones.",
        default="1, or until the loader's queue is used up",
        old=("--warmup",),
    ),
)
"""The steps of a recording: those timed before it, those that warm it up, those recorded."""


def steps_option(default: str) -> Decorator:
    """`--steps`: how many a command records."""
    return count_option("--steps", what="Record so many steps.", default=default)
