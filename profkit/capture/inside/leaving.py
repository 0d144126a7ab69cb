"""The end of a process that has what it was started for: no handler of the script runs, so it saves and prints nothing.

Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_LONGEST_WAIT_S: Final = 30.0
"""For ranks of the same host that are still in their last step (chosen: above any step but the longest)."""
_LOOK_S: Final = 0.01
_SUFFIX: Final = ".left"


def leave(folder: str, finish: Callable[[], None] = lambda: None) -> None:
    """Finish, then end this process with code 0 once all ranks of this host came here; loader workers end with it.

    A rank that went before the others would break the collectives they are in.
    """
    finish()
    with suppress(OSError):
        (Path(folder) / f"{os.getpid()}{_SUFFIX}").touch()
        _await(Path(folder))
    with suppress(Exception):
        _end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def _await(folder: Path) -> None:
    n_ranks = _ranks_here()
    until = time.monotonic() + _LONGEST_WAIT_S
    while n_ranks > 1 and time.monotonic() < until and len(list(folder.glob(f"*{_SUFFIX}"))) < n_ranks:
        time.sleep(_LOOK_S)


def _ranks_here() -> int:
    told = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
    return int(told) if told.isdecimal() else 1


def _end_children() -> None:
    mp: Any = sys.modules.get("multiprocessing")
    if mp is not None:
        for child in mp.active_children():
            child.terminate()
