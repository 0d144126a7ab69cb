"""Keeping reading below one folder: for a process that opens what others name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

AnyPath = Union[str, "os.PathLike[str]"]

_below: list[str] = []  # real paths of folders; of the whole process, since a thread that reads ahead has no context


@contextmanager
def confined_to(folder: AnyPath) -> Iterator[None]:
    """Refuse, in all threads of the process, to open what does not lie below a folder, links followed."""
    _below.append(os.path.realpath(folder))
    try:
        yield
    finally:
        _below.pop()


def is_below(path: AnyPath, folder: AnyPath) -> bool:
    """Whether a path leads below a folder or to it, whatever links there are on the way; it need not exist."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def refuse_outside(path: AnyPath, descriptor: int = -1) -> None:
    """Raise PermissionError for what lies outside the folder that reading is confined to; else nothing is looked at.

    `descriptor`: the file as it was opened, where the system tells its path: a link may have been moved meanwhile.
    """
    for folder in _below:
        opened = f"/proc/self/fd/{descriptor}"
        if not is_below(path, folder) or (os.path.islink(opened) and not is_below(opened, folder)):  # noqa: PTH114
            raise PermissionError(errno.EACCES, "it lies outside the folder that is read", os.fspath(path))
