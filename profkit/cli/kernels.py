"""`profkit kernels`: what Nsight Compute's profiles say of single kernels."""

from __future__ import annotations

import click

from profkit.cli.shared.command import Command
from profkit.cli.shared.options import report_options, showing
from profkit.cli.shared.output import Showing, show
from profkit.model.kernel import KernelReport


@click.command("kernels", cls=Command, short_help="What limits a kernel, from Nsight Compute's profiles.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE...")
@report_options("kernels")
@showing("kernels", verbose="every launch in full")
def command(how: Showing, paths: tuple[str, ...]) -> int:
    """Read ncu's profiles and say for each kernel what limits it, on which numbers, and what to change.

    FILE is an .ncu-rep (needs pip install 'profkit[ncu]'), or what ncu printed: --csv with the details or raw page, or
    plain text, with the program's own output between; or a folder of them.

    \b
    Examples:
      profkit kernels kernel.ncu-rep
      profkit kernels details.csv -f json
      ncu --import kernel.ncu-rep --csv --page raw | profkit kernels -
    """
    show("kernels", _read(paths), how, source=paths[0])
    return 0


def _read(paths: tuple[str, ...]) -> KernelReport:
    from profkit.ingest.ncu.reader import find_ncu_sources, read_profiles
    from profkit.kernels.assess import assess_all

    sources = find_ncu_sources(paths)
    found = [read_profiles(source) for source in sources]
    return assess_all(
        [profile for one in found for profile in one.profiles],
        sources=sources,
        warnings=[warning for one in found for warning in one.warnings],
    )
