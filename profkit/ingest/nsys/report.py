"""Nsight Systems reports (.nsys-rep) by way of nsys itself: the format is not documented, its SQLite export is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from profkit import files
from profkit.errors import MissingCapabilityError, TraceFormatError
from profkit.shell import line_of, path_word

_TIMEOUT_S: Final = 3600  # reports of an hour's training take minutes


@contextmanager
def exported(report: Path, source: str) -> Iterator[Path]:
    """The SQLite export of a report, in a temporary folder; raises MissingCapabilityError without nsys."""
    nsys = shutil.which("nsys")
    if nsys is None:
        *words, name = _command("nsys", report, report.with_suffix(".sqlite"))
        command = line_of(*words, path_word(name)).text
        raise MissingCapabilityError(
            f"{source} is an nsys report, but nsys is not installed here",
            hint=f"where nsys is installed, run: {command} and triage the result",
        )
    with files.temporary_folder("nsys") as folder:
        sqlite = folder / "export.sqlite"
        command_line = _command(nsys, report.absolute(), sqlite)
        try:
            done = subprocess.run(  # noqa: S603 - the user's own nsys, on the file they named
                command_line, check=False, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingCapabilityError(
                f"{nsys} does not run ({error})", hint="check that nsys --version works"
            ) from None
        if done.returncode != 0 or not sqlite.is_file():
            said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
            raise TraceFormatError(
                f"{source}: nsys export failed with exit code {done.returncode}: {said[:200]}",
                hint="a report of a newer nsys needs that nsys: run the export where it was recorded",
            )
        yield sqlite


def _command(nsys: str, report: Path, sqlite: Path) -> list[str]:
    """The export of all that profkit reads; `--lazy` and blobs, which it has no need of, stay as they are."""
    return [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={sqlite}", str(report)]
