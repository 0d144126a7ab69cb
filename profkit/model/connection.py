"""What the kernel of a rank's host counted of one of its connections while steps were recorded."""

from __future__ import annotations

import msgspec


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a TCP connection. Times in ns."""

    id: str
    """The same at both ends; no address can be read from it."""
    end: int
    """Which of the two ends this is, 0 or 1."""
    acked_bytes: int
    """What this end sent and the other acknowledged."""
    busy_ns: int
    """How long what it sent was under way, or stood in line for the link: without the time in which the other end had
    no room for more, or a buffer of this end was too small."""
    resent_bytes: int
