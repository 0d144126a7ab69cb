"""The version of profkit: what its documents and its kept files are marked with."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.3.0"
