"""The capture that a command without paths means: the newest one below this folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from profkit.cli.shared.say import say
from profkit.errors import UsageError

_DEEPEST: Final = 3  # folders below this one (chosen: out/run1/profkit-capture)
_MOST_LOOKED_AT: Final = 10_000  # chosen: entries of folders, a fraction of a second
_HINT: Final = "profkit triage trace.json.gz, or profkit run -- python train.py"


def newest_capture() -> str:
    """The folder of the newest capture below this folder, said on stderr; raises UsageError where there is none."""
    from profkit.capture.inside.export import MANIFEST, read_manifest

    dated: list[tuple[float, Path]] = []
    for folder in _folders(Path()):
        with suppress(OSError):
            dated.append(((folder / MANIFEST).stat().st_mtime, folder))
    for _, folder in sorted(dated, reverse=True):
        if any(one.get("trace") for one in read_manifest(folder).get("ranks", ())):
            shown = "this folder" if folder == Path() else str(folder)
            say(f"no TRACE given: reading the newest capture below this folder, {shown}")
            return str(folder)
    raise UsageError("no TRACE given, and no capture with a trace lies below this folder", hint=_HINT)


def _folders(base: Path) -> list[Path]:
    """A folder and those below it, the nearest first; hidden ones and links are not looked into."""
    found, level, n_left = [base], [base], _MOST_LOOKED_AT
    for _ in range(_DEEPEST):
        below: list[Path] = []
        for folder in level:
            with suppress(OSError):
                for entry in folder.iterdir():
                    n_left -= 1
                    if n_left < 0:
                        return found + below
                    if not entry.name.startswith(".") and entry.is_dir() and not entry.is_symlink():
                        below.append(entry)
        found += below
        level = below
    return found
