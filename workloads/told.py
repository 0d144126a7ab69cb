"""What a step worked on, told to `profkit capture` where profkit is installed."""

from __future__ import annotations

try:
    from profkit.capture import step as told
except ImportError:

    def told(*, tokens: float = 0, padded_tokens: float = 0, samples: float = 0) -> None:
        """Tells nobody: profkit is not installed here."""


__all__ = ["told"]
