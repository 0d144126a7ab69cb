"""`profkit scaling`: does it scale, and is the baseline fit to say so?"""

from __future__ import annotations

import click

from profkit.cli.shared.amounts import Size, metric_option
from profkit.cli.shared.command import Command
from profkit.cli.shared.options import lenient_option, report_options, showing
from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.progress import ReadingProgress
from profkit.model.documents.scaling import Held


@click.command("scaling", cls=Command, short_help="Does the job scale, and is the baseline sound?")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="TABLE|DIRS...")
@click.option(
    "--held",
    type=click.Choice(["strong", "weak"]),
    metavar="KIND",
    help="What stays the same: work per step (strong) or per GPU (weak).",
)
@metric_option
@click.option("--capacity", type=Size(), metavar="16GB", help="Memory of one GPU, if no column has it.")
@report_options("scaling")
@lenient_option
@showing("scaling")
def command(
    how: Showing,
    paths: tuple[str, ...],
    held: str | None,
    metric: str | None,
    capacity: float | None,
    lenient: bool,
) -> int:
    """Compute strong and weak scaling efficiency with intervals, and check the baseline.

    TABLE is CSV or JSON, one row per run: gpus or world_size, tokens_per_sec or step_ms, batch and memory where known.
    DIRS are capture folders, one per run; given with a table, they show where efficiency is lost. An efficiency
    above 1 means that the baseline is suspect until it is explained.

    \b
    Examples:
      profkit scaling results.csv
      profkit scaling results.csv --capacity 16GB -o report.md
      profkit scaling run2/ run4/ run8/ --held weak
      profkit scaling results.csv run2/ run8/              runs of the table, evidence of the traces
    """
    from profkit.compare.paths import scale_paths

    kind = Held(held) if held else None
    with ReadingProgress() as progress:
        report = scale_paths(
            paths, held=kind, metric=metric, capacity_bytes=capacity, lenient=lenient, progress=progress
        )
    show("scaling", report, how, source=paths[0])
    return 0
