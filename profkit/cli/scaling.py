"""`profkit scaling`: does it scale, and is the baseline fit to say so?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import color_option, lenient_option, report_options, verbose_option, with_paths_option
from profkit.cli.shared.output import Showing, format_for, show
from profkit.cli.shared.percent import metric_option
from profkit.cli.shared.progress import ReadingProgress
from profkit.model.documents.scaling import Held, ScalingReport

_SIZES: Final = {"mb": 1e6, "gb": 1e9, "tb": 1e12, "mib": 2.0**20, "gib": 2.0**30}


class _Size(click.ParamType):  # type: ignore[type-arg]
    """An amount of memory: `16GB`, `80 GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The amount in bytes; fails on what is no amount."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b)", str(value).strip().lower())
        if match is None or match[2] not in _SIZES or float(match[1]) == 0:
            self.fail(f"{value!r} is not an amount of memory: write 16GB", param, ctx)
        return float(match[1]) * _SIZES[match[2]]


@click.command("scaling", cls=Command, short_help="Does the job scale, and is the baseline sound?")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="TABLE|DIRS...")
@click.option(
    "--held",
    type=click.Choice(["strong", "weak"]),
    metavar="KIND",
    help="What stays the same: work per step (strong) or per GPU (weak).",
)
@metric_option
@click.option("--capacity", type=_Size(), metavar="16GB", help="Memory of one GPU, if no column has it.")
@report_options("scaling")
@lenient_option
@verbose_option(exposed=False)
@with_paths_option
@color_option
def command(
    paths: tuple[str, ...],
    held: str | None,
    metric: str | None,
    capacity: float | None,
    fmt: str | None,
    output: Path | None,
    lenient: bool,
    with_paths: bool,
    color: bool | None,
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
    format_name = format_for("scaling", fmt, output)
    report = _scaled(paths, held=Held(held) if held else None, metric=metric, capacity_bytes=capacity, lenient=lenient)
    how = Showing(fmt=format_name, output=output, color=color, with_paths=with_paths)
    show("scaling", report, how, source=paths[0])
    return 0


def _scaled(
    paths: tuple[str, ...], *, held: Held | None, metric: str | None, capacity_bytes: float | None, lenient: bool
) -> ScalingReport:
    from profkit.compare.paths import scale_paths

    with ReadingProgress() as progress:
        return scale_paths(
            paths, held=held, metric=metric, capacity_bytes=capacity_bytes, lenient=lenient, progress=progress
        )
