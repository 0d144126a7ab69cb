"""What a capture came to: its traces and its manifest."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profkit.capture.inside import export
from profkit.capture.options import Options
from profkit.capture.place import alone, part_in, pinned, set_aside, work_folder
from profkit.version import __version__


def outcomes_of(
    options: Options,
    folder: Path | None = None,
    *,
    details: dict[str, Any] | None = None,
    only: str | None = None,
    beside: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {},
) -> list[dict[str, Any]]:
    """Write the traces and the manifest of a capture that is over, and give the facts of its processes, by rank.

    They are written into the folder of the capture, or into `folder`. Processes that came to no step are left out where
    another one did, and all but `only` if that is given. `beside` is `export.finish`'s.
    Raises OSError if the folder is gone or another capture's.
    """
    part = part_in(options.folder, options.capture_id)
    own = part.pinned_folder()
    target = own if folder is None or folder.absolute() == part.folder else pinned(folder, follow=True)
    with part.pinned_work() as work, target as at:
        if export.is_taken(options, at):
            place = work_folder(options.folder, options.capture_id)
            raise FileExistsError(
                f"another capture was written into {options.folder} meanwhile; this recording is in {place}"
            )
        own_id, command = options.capture_id, options.command
        facts = export.finish(
            work, at, capture_id=own_id, command=command, only=only, overwrites=options.overwrite, beside=beside
        )
        if only is not None:
            facts = [one for one in facts if one.get("process") == only]
        trained = [one for one in facts if one.get("label") or one.get("n_seen")]
        failed = [one for one in facts if one.get("is_failure")]
        kept = sorted(trained or failed or facts[:1], key=lambda one: (one.get("rank", 0), one.get("pid", 0)))
        details = {"profkit_version": __version__, **(details or {})}
        with alone(at):
            manifest = export.manifest(kept, capture_id=own_id, command=command, details=details)
            export.write_manifest(str(at), manifest)
    return kept


def put_aside(folder: Path) -> list[str]:
    """Make traces of what killed captures left in the folder, out of the way; give a line for each of them."""
    lines = []
    for left, identity in set_aside(folder).items():
        has_trace = any(one.get("trace") for one in export.finish_left(left, identity))
        read = f"; profkit triage {shlex.quote(str(left))}" if has_trace else ""
        lines.append(f"a capture into {folder} was killed; what it recorded is in {left}{read}")
    return lines
