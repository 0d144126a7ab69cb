"""`profkit where`: the lines, functions and modules of the user's code behind a finding, a kernel or a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.newest import newest_capture
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import (
    color_option,
    findings_like,
    format_option,
    lenient_option,
    output_option,
    verbose_option,
    with_paths_option,
)
from profkit.cli.shared.output import Showing, deliver, format_for, show
from profkit.cli.shared.progress import ReadingProgress
from profkit.errors import UnsupportedTraceError, UsageError

if TYPE_CHECKING:
    from profkit.pipeline import Analysed

_FLAMES = (".speedscope.json", ".collapsed")
"""How names of files end that a flame graph is written into."""


@click.command("where", cls=Command, short_help="The lines and modules of your code behind a finding or a kernel.")
@click.argument("path", required=False, type=click.Path(allow_dash=True), metavar="[TRACE]")
@click.argument("what", required=False, shell_complete=findings_like, metavar="[FINDING|KERNEL|MODULE]")
@format_option("where")
@output_option("the report; to x.speedscope.json or x.collapsed, the host's time by stack for a flame graph")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Of several ranks, this one.")
@lenient_option
@verbose_option(exposed=False)
@with_paths_option
@color_option
def command(
    path: str | None,
    what: str | None,
    fmt: str | None,
    output: Path | None,
    rank: int | None,
    lenient: bool,
    with_paths: bool,
    color: bool | None,
) -> int:
    """Say which lines, functions and modules of your own code a finding, a kernel, an operator or a module comes from.

    TRACE must hold Python stacks: those of profkit capture do, others need torch.profiler's with_stack=True. A
    kernel, an operator or a module is named by a part of its name. Without one: the places of every finding, and the
    modules with their time. Without TRACE: the newest capture below this folder. Of a folder with several ranks: the
    rank that the others wait for, or the one that the verdict on all of them is from.

    torch.profiler records where a function begins, not the line that runs: "step() (train.py:60)" begins in line 60.

    \b
    Examples:
      profkit where trace.json.gz                          every finding, and the module tree
      profkit where trace.json.gz host.sync                which lines wait for the GPU
      profkit where trace.json.gz gemm                     which lines launch these kernels
      profkit where trace.json.gz 'Model/Block[*]'         what happens inside these modules
      profkit where runs/ --rank 3                         of one of several ranks
      profkit where trace.json.gz -f json | jq '.modules[0]'
      profkit where trace.json.gz -o host.speedscope.json  the host's time for https://www.speedscope.app
    """
    load_numpy()
    path = newest_capture() if path is None else path
    is_flame = output is not None and output.name.endswith(_FLAMES)
    if is_flame and (fmt or what):
        raise UsageError(f"{output} takes the stacks of the whole window", hint="leave out -f and what to look at")
    format_name = "" if is_flame else format_for("where", fmt, output)
    from profkit.cli.shared.ranks import Plan, report_on
    from profkit.code_places import analysed_of, one_rank, places_of
    from profkit.ranks.reduce.options import Options

    chosen = one_rank(path, rank, lambda sources: report_on(sources, Options(lenient=lenient), Plan()))
    with ReadingProgress() as progress:
        analysed = analysed_of(chosen, lenient=lenient, progress=progress)
    if is_flame:
        assert output is not None  # noqa: S101 - told by its name
        deliver(_flame(analysed, output, path), output)
        return 0
    how = Showing(fmt=format_name, output=output, color=color, with_paths=with_paths)
    show("where", places_of(analysed, chosen, what or ""), how, source=path)
    return 0


def _flame(analysed: Analysed, output: Path, path: str) -> str:
    from profkit.analyzers.code.stacks import collapsed, folded, speedscope

    stacks = folded(analysed.facts)
    if not stacks:
        raise UnsupportedTraceError(f"{path} holds no frames of its own", hint="give the trace with the stacks")
    return collapsed(stacks) if output.name.endswith(".collapsed") else speedscope(stacks, Path(path).name)
