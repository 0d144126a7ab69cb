"""A captured trace as a file that names nobody's machine."""

from __future__ import annotations

import gzip
import re
import socket
from pathlib import Path
from typing import Final

_HOST_NAME: Final = re.compile(r'("host_name":\s*)"(?:[^"\\]|\\.)*"')


def scrub_trace(text: str) -> str:
    """Gives the trace without the host's name.

    It edits the text: reading and writing the JSON would send nanoseconds through float64. Raises `ValueError` if
    the host's name, the home or the working directory is still in it.
    """
    text = _HOST_NAME.sub(r'\1"scrubbed"', text, count=1)
    for secret in (f'"{socket.gethostname()}"', f"{Path.home()}/", f"{Path.cwd()}/"):
        if secret in text:
            raise ValueError(f"the trace still holds {secret}")
    return text


def write_trace(path: Path, text: str) -> None:
    """Writes the text to `path`, gzipped without name and time; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def scrub_capture(captured: Path, target: Path) -> None:
    """Writes a trace that `profkit capture` made to `target`, scrubbed; raises as `scrub_trace` does."""
    write_trace(target, scrub_trace(gzip.decompress(captured.read_bytes()).decode()))
