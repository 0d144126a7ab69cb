"""The end of a process for which no runner waits: its trace, its line in the manifest, and what is said of them.

Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..beside import quoted
from ..command import tell
from ..lines import told
from ..place import alone, part_in, process_name
from . import export

_TOLD: Final[set[str]] = set()
"""The captures whose end this process has told."""


def finish_own(options: Any, pid: int) -> None:
    """Write the trace of one process, and the manifest of all that have come so far; say so where that is asked for.

    Where another capture has written its traces into the folder meanwhile, this one's recording stays where it is.
    """
    name, part = process_name(pid), part_in(options.folder, options.capture_id)
    with part.pinned_work() as work, part.pinned_folder() as folder:
        if export.is_taken(options, folder):
            return
        finished = export.finish(work, folder, capture_id=options.capture_id, only=name, overwrites=options.overwrite)
        with alone(folder):
            facts = [one for one in finished if one.get("trace")]
            command = str(facts[0].get("command", "")) if facts else ""
            manifest = export.manifest(facts, capture_id=options.capture_id, command=command, details={})
            if facts:
                export.write_manifest(str(folder), manifest)
    if options.tells and options.capture_id not in _TOLD:
        _TOLD.add(options.capture_id)
        _tell([one for one in finished if one.get("process") == name], Path(options.folder))


def _tell(facts: list[dict[str, Any]], folder: Path) -> None:
    """Say what a process came to; one that saw no step of a training is a launcher or a helper, and says nothing."""
    seen = [one for one in facts if one.get("trace") or one.get("n_seen") or one.get("is_failure")]
    for line in told(seen, folder) if seen else []:
        head, _, trace = line.partition("\n")
        tell(head, below=trace.strip())
    if any(one.get("trace") for one in seen):
        tell(f"next: profkit triage {quoted(folder)}")
