"""A line on stderr that is written over while something takes long; silent where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from profkit.units import format_bytes, format_fraction

if TYPE_CHECKING:
    from profkit.ingest.bytes.bytesource import Progress

_FIRST_SHOWN_S: Final = 1.0
_BETWEEN_S: Final = 0.2
_ERASE: Final = "\r\x1b[K"


class StatusLine:
    """The line; where it is `patient`, what takes under a second shows none, and it changes five times a second."""

    def __init__(self, *, is_patient: bool = False) -> None:
        self.is_wanted = sys.stderr.isatty()
        self._is_patient = is_patient
        self._begun_s = time.monotonic()
        self._shown_s = 0.0
        self._is_shown = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun_s

    @property
    def is_due(self) -> bool:
        """Whether a new text would be shown now."""
        has_waited = self.elapsed_s >= _FIRST_SHOWN_S and time.monotonic() - self._shown_s >= _BETWEEN_S
        return self.is_wanted and (has_waited or not self._is_patient)

    def show(self, text: str) -> None:
        """Write the text over the one before."""
        if self.is_due:
            self._shown_s, self._is_shown = time.monotonic(), True
            sys.stderr.write(f"{_ERASE}{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away again."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


class ReadingProgress:
    """A context that shows how far the reading is: share of the file, bytes per second."""

    def __init__(self) -> None:
        self._line = StatusLine(is_patient=True)

    def __enter__(self) -> Progress:
        from profkit.ingest.bytes.bytesource import Progress

        return Progress(on_bytes=self._tell if self._line.is_wanted else None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.clear()

    def _tell(self, n_read: int, n_total: int) -> None:
        if self._line.is_due:
            rate = format_bytes(n_read / self._line.elapsed_s)
            share = format_fraction(n_read / n_total) if n_total else ""
            self._line.show(f"reading {share} of {format_bytes(n_total)}, {rate}/s")
