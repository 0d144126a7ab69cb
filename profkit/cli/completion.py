"""`profkit completion`: tab completion for the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import common_options
from profkit.errors import MissingCapabilityError


@click.command("completion", cls=Command, short_help="Tab completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      profkit completion bash >> ~/.bashrc
      profkit completion zsh >> ~/.zshrc
      profkit completion fish > ~/.config/fish/completions/profkit.fish
    """
    from profkit.cli import group

    kind = get_completion_class(shell)
    if kind is None:
        raise MissingCapabilityError(f"click knows no completion for {shell}")
    try:
        click.echo(kind(group, {}, "profkit", "_PROFKIT_COMPLETE").source())
    except RuntimeError as error:
        raise MissingCapabilityError(
            f"no completion for this {shell}: {error}", hint="bash needs version 4.4"
        ) from None
