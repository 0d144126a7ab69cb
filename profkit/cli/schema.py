"""`profkit schema`: the JSON Schema of a report."""

from __future__ import annotations

import json

import click


@click.command("schema", short_help="The JSON Schema of a report.")
@click.argument(
    "name", type=click.Choice(["triage", "compare", "compare_kernels", "scaling", "kernels", "probe"]), default="triage"
)
def command(name: str) -> None:
    """Print the JSON Schema that `profkit NAME -f json` obeys; `compare_kernels`: compare, of ncu's profiles.

    \b
    Example:
      profkit schema triage > triage.schema.json
    """
    from profkit.render.schema import schema

    click.echo(json.dumps(schema(name), indent=1))
