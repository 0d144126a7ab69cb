"""`profkit ladder`: what did each change of a recipe give, and does it give that everywhere?"""

from __future__ import annotations

import click

from profkit.cli.shared.amounts import margin_option, metric_option
from profkit.cli.shared.command import Command
from profkit.cli.shared.options import report_options, showing
from profkit.cli.shared.output import Showing, show


@click.command("ladder", cls=Command, short_help="What each change of a recipe gave, and where.")
@click.argument("table", type=click.Path(), metavar="TABLE")
@click.option(
    "--order",
    metavar="A,B|C,D",
    help="The rungs from the base up; of alternatives, with | between them, the fastest is taken.",
)
@click.option("--rung", metavar="COLUMN", help="The column that names the rungs, if its heading does not show it.")
@click.option(
    "--series",
    metavar="COLUMNS",
    help="The columns, with commas between them, whose values are series of their own; '' for none.",
)
@click.option(
    "--settings",
    metavar="COLUMNS",
    default="",
    help="More columns, with commas between them, that configure a run.",
)
@metric_option
@margin_option
@report_options("ladder")
@showing("ladder", verbose="every setting with its memory, every note, every change with both signs")
def command(
    how: Showing,
    table: str,
    order: str | None,
    rung: str | None,
    series: str | None,
    settings: str,
    metric: str | None,
    margin: float,
) -> int:
    """Climb a recipe's changes rung by rung: factors with intervals, confounds, memory, and gains that turn to losses.

    TABLE is CSV or JSON, one row per run: rung or category, the settings (batch, switches), tokens_per_sec or step_ms,
    peak memory and padding where known. Equal rows are repeats. A ladder is made for each model, stage, machine.

    \b
    Examples:
      profkit ladder runs.csv
      profkit ladder runs.csv --order 'fp32,bf16,compile|liger,packing'
      profkit ladder runs.csv --rung recipe --series model,stage -o r.html
    """
    from profkit.compare.paths import ladder

    report = ladder(
        table,
        order=order,
        rung=rung,
        series=None if series is None else _names(series),
        settings=_names(settings),
        metric=metric,
        margin=margin,
    )
    show("ladder", report, how, source=table)
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
