"""What is no file, and calls that may never come back."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path


def within(seconds: float, act: Callable[[], object]) -> object:
    """Give what a call gives or raises, if it comes to an end: one that waits for ever must not hold the suite."""
    told: list[object] = []

    def run() -> None:
        try:
            told.append(act())
        except Exception as error:  # noqa: BLE001 - handed on
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert told, "it does not end"
    return told[0]


def special_files(folder: Path, name: str = "special") -> dict[str, Path]:
    """Give one of each thing that is no file, by what it is, made in subfolders under one name."""
    found = {what: folder / f"of {what}" / name for what in ("a named pipe", "a device", "a socket", "a folder")}
    for path in found.values():
        path.parent.mkdir()
    os.mkfifo(found["a named pipe"])
    found["a device"].symlink_to("/dev/zero")
    found["a folder"].mkdir()
    here = os.open(".", os.O_RDONLY)
    os.chdir(found["a socket"].parent)  # the whole name of a socket may have 100 characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(name)
    finally:
        os.fchdir(here)
        os.close(here)
    return found
