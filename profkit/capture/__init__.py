"""Profiles a training script: unmodified through `profkit capture`, or in three lines of code.

    from profkit.capture import session
    with session("out/capture"):
        train()

`step(tokens=...)` records what a step really held; it does nothing while nothing is captured. Importing this loads
neither torch nor anything else that is heavy.
"""

from __future__ import annotations

from profkit.capture.api import session, step

__all__ = ["session", "step"]
