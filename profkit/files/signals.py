"""Signals that end a process before its `finally`: a temporary folder goes with it all the same."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def removed_by_signals(folder: Path) -> Iterator[None]:
    """Delete a folder also when SIGTERM or SIGHUP ends the process, where nobody else has a use for these signals."""
    from shutil import rmtree  # not in a signal's handler, which may come in the middle of an import

    owner = os.getpid()
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [number for number, handler in before.items() if handler == signal.SIG_DFL or _is_ours(handler)]

    def end(number: int, _frame: Any) -> None:
        if os.getpid() == owner:  # a forked child has this handler too, and no right to the folder
            rmtree(folder, ignore_errors=True)
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    end.is_profkits = True  # type: ignore[attr-defined]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is end:
                signal.signal(number, before[number])


def _is_ours(handler: Any) -> bool:
    return bool(getattr(handler, "is_profkits", False))
