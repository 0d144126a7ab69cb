"""`profkit mcp`: triage as tools of an agent."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import PLACE, Option, common_options, count_option
from profkit.errors import MissingCapabilityError, UsageError

_SECONDS: Final = 120
_INSTALL: Final = "pip install 'profkit[mcp]'"


@click.command("mcp", cls=Command, short_help="Serve triage, compare, explain, where, evidence to an agent.")
@click.option(
    "--root",
    cls=Option,
    type=click.Path(file_okay=False, path_type=Path),
    metavar=PLACE,
    required=True,
    help="The folder that may be read: nothing outside it is opened, not through links either.",
)
@count_option("--seconds", what="How long an answer may take.", value=_SECONDS, most=86_400)
@common_options
def command(root: Path, seconds: int) -> None:
    """Serve an agent by the Model Context Protocol, on standard input and output, until it hangs up. A client starts
    this itself: its configuration names the command.

    Tools: captures, triage, compare, explain, where, evidence. All only read, and only below the folder of --root;
    nothing is written, no program is started, nothing is fetched. docs/agents.md has the limits.

    \b
    Examples:
      profkit mcp --root runs/               what a client is told to start
      profkit mcp --root . --seconds 600     for traces of many GB
    """
    if not root.is_dir():
        raise UsageError(f"{root} is no folder", hint="--root names the folder with the traces")
    if find_spec("mcp_types") is None:  # which versions before 2 are without
        raise MissingCapabilityError("an agent is served with the mcp SDK, version 2 or later", hint=_INSTALL)
    load_numpy()
    from profkit.agents.root import Root
    from profkit.agents.server import serve
    from profkit.agents.tools import Desk

    serve(Desk(Root(str(root.resolve())), seconds=seconds))
