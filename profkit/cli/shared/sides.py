"""The two sides of a comparison on a command line: `A B`, or `--baseline a1 a2 --candidate b1 b2`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import together
from profkit.errors import UsageError

_SIDES: Final = ("--baseline", "--candidate")


class ManyPaths(Command):
    """Lets `--baseline` and `--candidate` take every path that follows, as shells expand them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give each path of a side its own option, which is what click can read."""
        spread: list[str] = []
        side = ""
        for text in args:
            if text in _SIDES:
                side = text
            elif text.startswith("-") and text != "-":
                side = ""
                spread.append(text)
            else:
                spread += [side, text] if side else [text]
        return super().parse_args(ctx, spread)


side_options: Final = together(
    *(
        click.option(side, multiple=True, type=click.Path(allow_dash=True), metavar="PATH...", help=f"Runs {when}.")
        for side, when in zip(_SIDES, ("before", "after"), strict=True)
    )
)
"""`--baseline` and `--candidate`."""


def sides_of(
    paths: Sequence[str], baseline: Sequence[str], candidate: Sequence[str], *, call: str = "profkit compare"
) -> tuple[list[str], list[str]]:
    """The paths of both sides; the candidate's are none for a table that holds both. `call`: as hints have it."""
    if baseline or candidate:
        if paths:
            raise UsageError(f"{paths[0]} is on neither side", hint="put it after --baseline or --candidate")
        if not (baseline and candidate):
            missing = _SIDES[bool(baseline)]
            raise UsageError(f"{missing} is missing", hint=f"{call} --baseline a1 a2 --candidate b1 b2")
        return list(baseline), list(candidate)
    if len(paths) == 2:
        return [paths[0]], [paths[1]]
    if len(paths) == 1:
        return [paths[0]], []
    found = f"{len(paths)} paths" if paths else "nothing"
    raise UsageError(
        f"two sides are needed, but {found} given",
        hint=f"{call} A B; several runs: --baseline a1 a2 a3 --candidate b1 b2 b3",
    )
