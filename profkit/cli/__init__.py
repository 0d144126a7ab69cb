"""The command line: the only place that prints or exits. One file per command, imported when it is called."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib import import_module
from pathlib import PurePath
from typing import Any, Final, NoReturn

import click

from profkit.allocator import collector_patient
from profkit.cli.shared.command import write_help
from profkit.errors import InternalError, ProfkitError, UsageError, fault
from profkit.plain import clean
from profkit.redact import redacted_command, redacted_text
from profkit.version import __version__

WIDEST: Final = 100
"""Columns of the help on a wide terminal."""
COMMANDS: Final = (
    "run", "capture", "triage", "where", "export", "open",
    "bench", "probe", "try", "compare", "scaling", "ladder",
    "nsys", "ncu", "kernels", "info", "explain", "verify",
    "mcp", "doctor", "schema", "completion",
)  # fmt: skip
_FILES: Final = {"try": "trial"}
"""Of commands whose name Python keeps for itself."""
_LAUNCHERS: Final = ("python", "torchrun", "accelerate", "deepspeed", "srun", "mpirun", "uv", "bash")
"""How programs begin that run training scripts."""


class _Commands(click.Group):
    """Loads a command's module only when that command is called."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(self.help, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"profkit.cli.{_FILES.get(cmd_name, cmd_name)}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command, `triage` for a path, `run` for what runs a script."""
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            if name.endswith(".py") or PurePath(name).name.startswith(_LAUNCHERS):
                from profkit.shell import line_of

                words = redacted_command(["python", *args] if name.endswith(".py") else args)
                ctx.fail(f"no such command {name!r}; to profile that script: {line_of('profkit run --', *words).text}")
            if os.path.exists(name):  # noqa: PTH110 - pathlib raises for what is longer than a name may be
                from profkit.shell import quoted_path

                ctx.fail(f"no such command {name!r}; to analyse that file: profkit triage {quoted_path(name)}")
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"no such command {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST})
@click.version_option(__version__, prog_name="profkit")
def group() -> None:
    """Find out why a PyTorch training step is slow, how sure that is, and what to run next.

    \b
    Start here:
      profkit triage trace.json.gz        the verdict on one trace
      profkit triage traces/              every trace in a folder (one per rank)
      profkit explain host.sync           what a finding means, and how to prove it
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 1 a gate or verify, 2 usage, 3 bad input, 4 missing tool, 70 a bug."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]  # for which click 8.2 has an error
    collector_patient()
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console without box characters shows ?, not a traceback
    wants_traceback = "-v" in arguments or "--verbose" in arguments
    try:
        code: Any = group.main(args=arguments, prog_name="profkit", standalone_mode=False)
        sys.stdout.flush()
    except ProfkitError as error:
        if wants_traceback:
            _print_traceback()
        complain(error)
        code = error.exit_code
    except click.ClickException as error:
        told, message = io.StringIO(), error.format_message()
        error.show(told)
        _print_lines(told.getvalue().replace(message, clean(message)))  # it may quote a name that a shell's `*` gave
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("profkit: stopped; no report was written", err=True)
        code = 130
    except BrokenPipeError:  # `profkit ... | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # noqa: BLE001 - the last to hear of it: told in one line, with -v in all of them
        if isinstance(error, OSError) and _is_of_printing(error):
            complain(UsageError(f"cannot write to standard output: {error.strerror}", hint="-o FILE writes a file"))
            _leave(UsageError.exit_code)
        if wants_traceback:
            _print_traceback()
        complain(fault(error, f"running `profkit {' '.join(arguments[:1])}`", ""))
        code = InternalError.exit_code
    _leave(code if isinstance(code, int) else 0)


class _Closed(io.TextIOBase):
    """Standard output where whoever called us closed it (`>&-`); what is printed to it does not get lost in silence."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, "it is closed")


def _is_of_printing(error: OSError) -> bool:
    """Whether what was printed could not be written out: the disk is full, or the stream was closed."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
    return module.startswith("click.") or module == __name__


def _open_what_is_closed() -> None:
    """Keep the numbers of closed streams from the files that will be opened: these would be printed into."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:  # taken, and kept to the end
        pass
    os.close(place)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - to the end of the process


def _print_traceback() -> None:
    """Print the traceback of the exception at hand."""
    import traceback

    _print_lines(traceback.format_exc())


def _print_lines(text: str) -> None:
    """Print lines to stderr; names of files in them are strangers' text."""
    for line in redacted_text(text).splitlines():
        click.echo(clean(line), err=True)


def _leave(code: int) -> NoReturn:
    """Exit without taking a million objects apart first: a tenth of a second that nobody needs to wait."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # the reader of a pipe has gone
        code = code or 1
    os._exit(code)


def complain(error: ProfkitError) -> None:
    """Print one line that says what and where, and one that says what next, to stderr."""
    from profkit.cli.shared.say import say, say_below

    say(_shortened(redacted_text(error.message)))
    if error.hint:
        say_below(f"hint: {_shortened(redacted_text(error.hint))}")


def _shortened(text: str) -> str:
    return text if len(text) <= 400 else text[:397] + "..."
