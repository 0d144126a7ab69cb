"""`profkit open`: a trace in the Perfetto UI, in the user's own browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from profkit import files
from profkit.cli.shared.command import Command
from profkit.cli.shared.newest import newest_capture
from profkit.cli.shared.numeric import load_numpy
from profkit.cli.shared.options import around_option, common_options, count_option, lenient_option, step_range_option
from profkit.cli.shared.progress import ReadingProgress
from profkit.cli.shared.say import say, say_below
from profkit.errors import ProfkitError, UnsupportedTraceError

if TYPE_CHECKING:
    from profkit.export.serve import Handover

_UI: Final = "https://ui.perfetto.dev"
_MOST_BYTES: Final = 2**31 - 1
"""What a browser takes as one buffer."""


class ViewerError(ProfkitError):
    """The viewer did not take the trace."""

    exit_code = 4


@click.command("open", cls=Command, short_help="Look at a trace in the Perfetto UI, with profkit's findings in it.")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True), metavar="[TRACE|EXPORT|FOLDER]...")
@around_option
@step_range_option
@lenient_option
@click.option("--ui", default=_UI, metavar="URL", show_default=True, help="Your own Perfetto UI: https, localhost.")
@count_option("--port", what="Listen on this port.", default="0, a free one", value=0, least=0, most=65_535)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@common_options
def command(
    paths: tuple[str, ...],
    around: str | None,
    step_text: str | None,
    lenient: bool,
    ui: str,
    port: int,
    no_browser: bool,
) -> int:
    """Open a trace in the Perfetto UI, with the rows of `profkit export` in it.

    The trace goes from a page on this machine's loopback to a page of the viewer in your own browser, by the viewer's
    documented postMessage; it is sent to no server. The page and the trace are each given once, and the command ends.
    Without TRACE: the newest capture below this folder.

    \b
    Examples:
      profkit open trace.json.gz
      profkit open run/                              all ranks, on one clock
      profkit open trace.json.gz --around host.sync
      profkit open out.json.gz                       what profkit export wrote, as it is
      profkit open trace.json.gz --no-browser --port 9001    on a server: ssh -L 9001:127.0.0.1:9001 server
    """
    load_numpy()
    from profkit.export.serve import Handover, viewers_address

    ui = viewers_address(ui)
    paths = paths or (newest_capture(),)
    with _exported(paths, around, step_text, lenient=lenient) as (trace, name):
        handover = Handover(trace, name, ui=ui, port=port)
        with handover.serving():
            return _wait(handover, ui, is_shown=not no_browser)


def _wait(handover: Handover, ui: str, *, is_shown: bool) -> int:
    """Open the page and wait until the viewer has the trace; raises ViewerError where it never has."""
    from profkit.export.serve import LIMIT_S

    where = ui.rstrip("/")
    say(f"the trace is handed to a page of {where} in your own browser; it stays on this machine")
    is_open = is_shown and _opened(handover.address)
    say_below(f"{'if no page opens' if is_open else 'open this address'}: {handover.address}")
    try:
        result = handover.wait()
    except KeyboardInterrupt:
        say("stopped; the trace was not handed over")
        return 130
    if result == "handed-over":
        say(f"{where} has the trace")
        return 0
    hint = "profkit export -o out.json.gz writes a file to drop onto the viewer"
    if result == "no-answer":
        raise ViewerError(f"{where} did not answer", hint=hint)
    if result == "no-trace":
        raise ViewerError("the browser could not fetch the trace", hint=hint)
    if handover.was_opened:
        raise ViewerError("the page did not say whether the viewer took the trace", hint=hint)
    raise ViewerError(f"nobody opened the page within {LIMIT_S / 60:.0f} minutes", hint=hint)


def _opened(address: str) -> bool:
    """Open a page in the user's browser; none of those that would take the terminal."""
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        return False
    import webbrowser

    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


@contextmanager
def _exported(
    paths: tuple[str, ...], around: str | None, step_text: str | None, *, lenient: bool
) -> Iterator[tuple[Path, str]]:
    """The file to hand over and its name: an export as it is, anything else exported into a temporary folder."""
    from profkit.cli.shared.gathered import Asked, gathered, is_export, local_files

    only = Path(paths[0])
    if len(paths) == 1 and not (around or step_text or lenient) and is_export(only):
        _refuse_giant(only)
        yield only, only.name
        return
    from profkit.cli.export import write_chrome
    from profkit.cli.triage import jobs_for, parsed_steps
    from profkit.export.document import Written
    from profkit.export.own import around as window_around

    with files.temporary_folder("open") as folder:
        out = folder / "trace.json.gz"
        with local_files(paths) as sources, ReadingProgress() as progress:
            asked = Asked(lenient=lenient, step_range=parsed_steps(step_text), jobs=jobs_for(sources))
            found = gathered(sources, asked, progress)
            where = None if around is None else window_around(found.tracks, around)
            write_chrome(found, asked, where, out, progress, Written())
        _refuse_giant(out)
        name = Path(paths[0]).name or "traces"
        yield out, f"{name.removesuffix('.gz').removesuffix('.json')}.profkit.json.gz"


def _refuse_giant(path: Path) -> None:
    if path.stat().st_size > _MOST_BYTES:
        raise UnsupportedTraceError(
            f"{files.size_of(path.stat().st_size)} are more than a browser takes",
            hint="--step-range A:B takes a part of it",
        )
