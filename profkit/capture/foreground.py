"""A command in a process group of its own, with the terminal: Ctrl-C and Ctrl-Z reach it once, as if a shell ran it.

In our group it would get twice what is sent to the group, from the sender and from us; on a second SIGINT nsys gives
its report up. So it has a group, and whatever comes to us is sent on to that group, once.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_NO_TERMINAL: Final = -1
_BY_TERMINAL: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Foreground:
    """The process group of a child, which has our terminal while we would have it."""

    def __init__(self, child: subprocess.Popen[bytes], terminal: int) -> None:
        self._child, self._terminal = child, terminal

    def send(self, number: int) -> None:
        """Send a signal to the group, if it is still there."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def give(self) -> None:
        """Give the terminal to the child's group where it is ours, and let it go on if it asked for it before."""
        with suppress(OSError):  # it has ended
            if self._holder() == os.getpgrp():
                os.tcsetpgrp(self._terminal, self._child.pid)
                os.killpg(self._child.pid, signal.SIGCONT)

    def take_back(self) -> None:
        """Take the terminal from the child's group; a shell that has it meanwhile keeps it."""
        if self._holder() == self._child.pid:
            os.tcsetpgrp(self._terminal, os.getpgrp())

    def follow(self) -> None:
        """Stop where the child was stopped (Ctrl-Z), so that the shell has its prompt; go on together with it."""
        try:
            stopped = os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return
        if stopped is None or stopped.si_status not in _BY_TERMINAL:
            return
        self.take_back()
        os.killpg(os.getpgrp(), signal.SIGTSTP)  # all of a pipeline; returns when a shell lets us go on
        self.give()
        self.send(signal.SIGCONT)

    def _holder(self) -> int:
        try:
            return os.tcgetpgrp(self._terminal)
        except OSError:  # no terminal, or one that hung up
            return _NO_TERMINAL


@contextmanager
def in_foreground(child: subprocess.Popen[bytes]) -> Iterator[Foreground]:
    """The group of a child that was started as the leader of one; the terminal is ours again when the context ends."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        terminal = _NO_TERMINAL
    held = Foreground(child, terminal)
    before = {
        signal.SIGTTOU: signal.signal(signal.SIGTTOU, signal.SIG_IGN),  # who is not in front may not say who is
        signal.SIGCONT: signal.signal(signal.SIGCONT, lambda _number, _frame: held.give()),  # as `fg` sends it
    }
    try:
        held.give()
        yield held
    finally:
        held.take_back()
        for number, handler in before.items():
            signal.signal(number, handler)
        if terminal != _NO_TERMINAL:
            os.close(terminal)
