"""`profkit schema`: the JSON Schema of a report."""

from __future__ import annotations

import json

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import common_options
from profkit.render.schema import SCHEMAS, schema


@click.command("schema", cls=Command, short_help="The JSON Schema of a report.")
@click.argument("name", type=click.Choice(SCHEMAS), default="triage")
@common_options
def command(name: str) -> None:
    """Print the JSON Schema that `profkit NAME -f json` obeys; `compare_kernels`: compare, of ncu's profiles.

    \b
    Example:
      profkit schema triage > triage.schema.json
    """
    click.echo(json.dumps(schema(name), indent=1))
