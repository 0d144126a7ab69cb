"""The environment in which `python` is the one that runs us: traces hold the command, so it is given without a path."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """Gives our environment with this interpreter's folder first on PATH."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
