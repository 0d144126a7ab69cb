"""The JSON Schemas of each released version, kept so that a later one only grows: one folder a version, `0.2.0/`.

Begin with `growth.py`: what of a change is an addition, and what breaks a program that reads the documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent


def versions() -> list[str]:
    """Versions whose schemas are kept, the oldest first."""
    return sorted(
        (folder.name for folder in HERE.glob("*.*.*")), key=lambda name: [int(part) for part in name.split(".")]
    )


def frozen(version: str) -> dict[str, dict[str, Any]]:
    """The schemas of a version by the names of their documents; empty where none are kept."""
    files = sorted((HERE / version).glob("*.schema.json"))
    return {file.name.removesuffix(".schema.json"): json.loads(file.read_text(encoding="utf-8")) for file in files}


def minor(version: str) -> str:
    """The version whose schemas hold: 0.2.0 of 0.2.3 and of 0.2.0rc1, since patches change no document."""
    return ".".join([*version.split(".")[:2], "0"])
