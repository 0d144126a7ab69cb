"""The files that a script opens for writing, seen by an audit hook: what else a trial leaves behind.

Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Final

_MOST: Final = 20
_WRITING: Final = os.O_WRONLY | os.O_RDWR
_NOT_THEIRS: Final = ("/dev/", "/proc/", "/sys/")
_CACHES: Final = ("__pycache__", "torchinductor", ".triton", ".cache")


class Wrote:
    """The paths of files opened for writing by this process, the first ones; a hook cannot be taken out again."""

    def __init__(self, own: str) -> None:
        self.paths: list[str] = []
        self._pid = os.getpid()
        self._passed = (*_NOT_THEIRS, own)
        self._temporary, self._here = tempfile.gettempdir() + os.sep, os.getcwd() + os.sep  # noqa: PTH109 - as below
        self._is_on = True

    def begin(self) -> None:
        """Listen from now on."""
        sys.addaudithook(self._on_event)

    def end(self) -> None:
        """Listen no more."""
        self._is_on = False

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not self._is_on or len(self.paths) >= _MOST or os.getpid() != self._pid:
            return
        path, _, flags = args
        if isinstance(path, str) and isinstance(flags, int) and flags & _WRITING:
            self.add(path)

    def add(self, path: str) -> None:
        """A file is written; temporary ones and caches are nobody's."""
        full = os.path.abspath(path)  # noqa: PTH100 - pathlib would import more inside every open
        is_temporary = full.startswith(self._temporary) and not full.startswith(self._here)
        if full.startswith(self._passed) or is_temporary or any(part in full for part in _CACHES):
            return
        if self._is_on and path not in self.paths and len(self.paths) < _MOST and os.getpid() == self._pid:
            self.paths.append(path)
