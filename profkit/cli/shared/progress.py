"""Progress on stderr for what takes over a second; silent where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from profkit.ingest.bytes.bytesource import Progress
from profkit.units import format_bytes, format_fraction

_FIRST_SHOWN_S = 1.0
_BETWEEN_S = 0.2


class ReadingProgress:
    """A context that shows how far the reading is: share of the file, bytes per second."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._shown_s = 0.0
        self._is_shown = False
        self._is_wanted = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return Progress(on_bytes=self._tell if self._is_wanted else None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")

    def _tell(self, n_read: int, n_total: int) -> None:
        now = time.monotonic()
        if now - self._begun_s < _FIRST_SHOWN_S or now - self._shown_s < _BETWEEN_S:
            return
        self._shown_s, self._is_shown = now, True
        rate = format_bytes(n_read / (now - self._begun_s))
        share = format_fraction(n_read / n_total) if n_total else ""
        sys.stderr.write(f"\r\x1b[Kreading {share} of {format_bytes(n_total)}, {rate}/s")
        sys.stderr.flush()
