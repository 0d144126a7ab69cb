"""`profkit where`: the lines, functions and modules of the user's code behind a finding, a kernel or a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import (
    color_option,
    format_option,
    lenient_option,
    output_option,
    verbose_option,
    with_paths_option,
)
from profkit.cli.shared.output import Showing, deliver, format_for, show
from profkit.cli.shared.progress import ReadingProgress
from profkit.errors import UnsupportedTraceError, UsageError
from profkit.findings import KINDS

if TYPE_CHECKING:
    from profkit.analyzers.code.tree import ModuleTree
    from profkit.cli.parts.one_rank import OneRank
    from profkit.model.documents.where import PlacesOf, Where
    from profkit.model.finding import Finding
    from profkit.pipeline import Analysed

_FLAMES = (".speedscope.json", ".collapsed")
"""How names of files end that a flame graph is written into."""


class _What(click.ParamType):  # type: ignore[type-arg]
    name = "what"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The ids of findings that begin so."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in KINDS if name.startswith(incomplete)]


@click.command("where", cls=Command, short_help="The lines and modules of your code behind a finding or a kernel.")
@click.argument("path", required=False, type=click.Path(allow_dash=True), metavar="[TRACE]")
@click.argument("what", required=False, type=_What(), metavar="[FINDING|KERNEL|MODULE]")
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
    if path is None:
        from profkit.cli.shared.newest import newest_capture

        path = newest_capture()
    is_flame = output is not None and output.name.endswith(_FLAMES)
    if is_flame and (fmt or what):
        raise UsageError(f"{output} takes the stacks of the whole window", hint="leave out -f and what to look at")
    format_name = "" if is_flame else format_for("where", fmt, output)
    from profkit.cli.parts.one_rank import one_rank

    chosen = one_rank(path, rank, lenient=lenient)
    analysed = _analysed(chosen, lenient=lenient)
    if is_flame:
        assert output is not None  # noqa: S101 - told by its name
        deliver(_flame(analysed, output, path), output)
        return 0
    how = Showing(fmt=format_name, output=output, color=color, with_paths=with_paths)
    told = _about(analysed, chosen, what) if what else _all(analysed, chosen)
    show("where", _of_rank(told, chosen, analysed), how, source=path)
    return 0


def _analysed(chosen: OneRank, *, lenient: bool) -> Analysed:
    """The trace analysed; raises UnsupportedTraceError where it holds no stacks, UsageError if of another rank."""
    from profkit.analyzers.code.tree import HOW_TO_GET, NO_STACKS, no_stacks
    from profkit.ingest.read import read_traces
    from profkit.pipeline import alone, analyse

    why, others = NO_STACKS, []
    with ReadingProgress() as progress:
        for trace in read_traces(chosen.source, lenient=lenient, progress=progress, again=True):
            told = alone(analyse(trace))
            if chosen.n_ranks == 1 and chosen.rank not in (None, told.rank.rank):
                others.append(told.rank.rank)
                continue
            if told.facts.code is not None or any(one.places for one in told.rank.findings):
                return told
            why, others = no_stacks(trace), []
    if others:
        said = f"is of rank {others[0]}" if others[0] is not None else "does not say its rank"
        raise UsageError(f"{chosen.source} {said}", hint="leave out --rank")
    raise UnsupportedTraceError(f"{chosen.source}: {why}", hint=HOW_TO_GET)


def _of_rank(told: Where, chosen: OneRank, analysed: Analysed) -> Where:
    """The same with which rank it is of, and why."""
    from msgspec.structs import replace

    rank = analysed.rank.rank if chosen.n_ranks == 1 else chosen.rank
    return replace(told, rank=rank, n_ranks=chosen.n_ranks, chosen=chosen.chosen)


def _flame(analysed: Analysed, output: Path, path: str) -> str:
    from profkit.analyzers.code import folded
    from profkit.analyzers.code.stacks import collapsed, speedscope

    stacks = folded(analysed.facts)
    if not stacks:
        raise UnsupportedTraceError(f"{path} holds no frames of its own", hint="give the trace with the stacks")
    return collapsed(stacks) if output.name.endswith(".collapsed") else speedscope(stacks, Path(path).name)


def _all(analysed: Analysed, chosen: OneRank) -> Where:
    """The places of every finding and the module tree."""
    from profkit.analyzers.code.tree import ModuleTree, tree_table
    from profkit.model.documents.where import Where

    facts = analysed.facts
    measured = analysed.results.get("code")
    tree = measured if isinstance(measured, ModuleTree) else None
    return Where(
        source=facts.trace.meta.source,
        window_ns=facts.window_ns,
        n_steps=facts.n_steps,
        subjects=(
            *(_of_finding(one) for one in (*chosen.findings, *analysed.rank.findings) if one.places),
            *(() if tree is None else _work(tree)),
        ),
        modules=() if tree is None else tree.uses,
        phase_ns={} if tree is None else dict(tree.phase_ns),
        tables=() if tree is None else tree_table(tree),
    )


def _work(tree: ModuleTree) -> tuple[PlacesOf, ...]:
    """All kernels, or on a CPU all operators, by line."""
    from profkit.model.documents.where import PlacesOf

    if not tree.places:
        return ()
    name = "all operators" if tree.scope.is_cpu else "all kernels and copies"
    share = min(tree.scope.fraction(tree.work_ns), 1.0)
    return (PlacesOf(kind="work", name=name, title="", share=share, ns=tree.work_ns, places=tree.places[:5]),)


def _of_finding(one: Finding) -> PlacesOf:
    from profkit.model.documents.where import PlacesOf

    return PlacesOf(kind="finding", name=one.id, title=one.title, share=one.fraction, ns=0, places=one.places)


def _about(analysed: Analysed, chosen: OneRank, what: str) -> Where:
    """The places of one thing; raises UsageError where the trace has nothing of that name."""
    from profkit.model.documents.where import Where

    facts = analysed.facts
    findings = (*chosen.findings, *analysed.rank.findings)
    found = next((one for one in findings if one.id == what), None)
    if found is not None:
        one = _of_finding(found)
    elif what in KINDS:
        known = ", ".join(finding.id for finding in findings) or "nothing"
        raise UsageError(f"the trace shows no {what}", hint=f"it shows {known}")
    else:
        one = _of_name(analysed, what)
    return Where(source=facts.trace.meta.source, window_ns=facts.window_ns, n_steps=facts.n_steps, subjects=(one,))


def _of_name(analysed: Analysed, what: str) -> PlacesOf:
    from profkit.analyzers.code.about import near, rows_about
    from profkit.model.documents.where import PlacesOf
    from profkit.timeline.code import shares

    facts = analysed.facts
    subject = rows_about(facts, what)
    if subject is None or facts.code is None:
        like = ", ".join(near(facts, what))
        raise UsageError(
            f"no finding, module, kernel or operator of the trace is called {what!r}",
            hint=f"did you mean {like}?" if like else "profkit where TRACE lists findings and modules",
        )
    total = int(subject.rows.ns.sum())
    names = subject.names[0] if len(subject.names) == 1 else f"{subject.names[0]} and {len(subject.names) - 1} more"
    return PlacesOf(
        kind=subject.kind,
        name=names,
        title="",
        share=min(total / facts.window_ns, 1.0) if facts.window_ns else 0.0,
        ns=total,
        places=shares(facts.code, subject.rows, most=12),
    )
