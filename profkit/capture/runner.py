"""Runs a command with the capture put into every Python it starts, and stays out of its way.

Where the command may take a second SIGINT badly it has a process group of its own, with the terminal: Ctrl-C and Ctrl-Z
reach it once, as if a shell ran it. In our group it would get twice what is sent to the group, from the sender and from
us; on a second SIGINT nsys gives its report up. So whatever comes to us is sent on to that group, once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profkit.capture import place
from profkit.capture.beside import files
from profkit.capture.options import VARIABLE, Options
from profkit.errors import MissingCapabilityError, UsageError

SITE: Final = Path(__file__).resolve().parent / "site"
_MIN_FREE_BYTES: Final = 64 * 2**20  # chosen: a trace of a few small steps
_STALE_S: Final = 60.0
"""Age from which a temporary folder whose process is gone is removed: in another container it may not be (chosen)."""
_FROM_KERNEL: Final = 0x80  # SI_KERNEL of Linux: from a terminal
_LOOK_S: Final = 1.0
"""Longest wait until it is looked whether a child has ended: its SIGCHLD may go to another thread (chosen)."""
_AT_ONCE_S: Final = 0.2
"""Within that time a second SIGINT is the first one: `timeout` sends it to its command and to the group (chosen)."""
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NO_TERMINAL: Final = -1
_BY_TERMINAL: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended: its exit code, negative for the signal that killed it, and how long it took."""

    code: int
    duration_ns: int


def environment(options: Options, outer: Mapping[str, str]) -> dict[str, str]:
    """The variables that bring the capture into a Python process; nothing else is changed."""
    path = outer.get("PYTHONPATH")
    given = {VARIABLE: options.to_text(), "PYTHONPATH": f"{SITE}{os.pathsep}{path}" if path else str(SITE)}
    if "KINETO_LOG_LEVEL" not in outer:
        given["KINETO_LOG_LEVEL"] = "99"  # else Kineto writes USDT lines to the script's stderr
    return given


def exports(options: Options, outer: Mapping[str, str]) -> str:
    """Shell lines that bring the capture into whatever is started after them."""
    given = environment(options, outer)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())


def checked_folder(folder: Path) -> str:
    """Make the folder and say what is wrong with it: "" if a trace can be written there."""
    try:
        if place.is_foreign_link(folder):
            return f"cannot write to {folder}: {place.FOREIGN_LINK}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"profkit")
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return f"cannot write to {folder}: {error.strerror}"
    if free_bytes < _MIN_FREE_BYTES:
        return f"{folder} has {free_bytes >> 20} MiB left, which may be too little for a trace"
    return ""


@contextmanager
def holding(options: Options) -> Iterator[str]:
    """Begin a capture in its folder, which is its own until the context ends; gives what is wrong, "" for nothing."""
    files().remove_stale(_STALE_S)
    folder = Path(options.folder)
    problem, hold = checked_folder(folder), None
    if not problem:
        try:
            hold = place.join(folder, options.capture_id, is_first=True)
        except OSError as error:
            problem = f"cannot write to {folder}: {error.strerror}"
    try:
        yield problem
    finally:
        if hold is not None:
            place.leave(hold)


def run(
    command: Sequence[str],
    *,
    options: Options | None,
    variables: Mapping[str, str] | None = None,
    has_group: bool = False,
) -> Ran:
    """Run the command with the capture in it (without, if there are no options) and give how it ended.

    Its standard streams are ours; signals sent to us reach it; `variables` are added to its environment. With
    `has_group` it leads a process group, where the system can wait for signals. Raises UsageError if there is no such
    program.
    """
    has_group = has_group and hasattr(signal, "sigtimedwait")
    outer = {**os.environ, **(variables or {})}
    env = {**outer, **environment(options, outer)} if options is not None else outer
    begun_ns = time.perf_counter_ns()
    try:
        child = subprocess.Popen(list(command), env=env, process_group=0 if has_group else None)  # noqa: S603 - to run the user's command is the task
    except FileNotFoundError:
        hint = f"python {shlex.quote(command[0])} ..." if command[0].endswith(".py") else "check the spelling and PATH"
        raise UsageError(f"there is no program {command[0]!r}", hint=hint) from None
    except OSError as error:
        raise UsageError(
            f"cannot run {command[0]!r}: {error.strerror}", hint=f"python {shlex.quote(command[0])} ..."
        ) from None
    with _in_foreground(child) if has_group else nullcontext() as group:
        send = child.send_signal if group is None else group.send
        old = {number: signal.signal(number, lambda n, _frame: send(n)) for number in _PASSED_ON}
        old[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = _waited_for(child, group)
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
    return Ran(code=code, duration_ns=time.perf_counter_ns() - begun_ns)


def _waited_for(child: subprocess.Popen[bytes], group: Foreground | None) -> int:
    """How a child ended; it is sent each SIGINT that was sent to us alone, and each one if it has a group of its own.

    Not that of a terminal's Ctrl-C, which goes to the child as well: a second one would end what it does on the first.
    Whose it is the system tells only who waits for it.
    """
    if not hasattr(signal, "sigtimedwait"):
        return child.wait()
    awaited = {signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        while (code := child.poll()) is None:
            came = signal.sigtimedwait(awaited, _LOOK_S)
            if group is not None:
                group.follow()
                if came is not None and came.si_signo == signal.SIGINT:
                    group.send(signal.SIGINT)
                    signal.sigtimedwait({signal.SIGINT}, _AT_ONCE_S)
            elif came is not None and came.si_signo == signal.SIGINT and came.si_code != _FROM_KERNEL:
                child.send_signal(signal.SIGINT)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
    return code


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
def _in_foreground(child: subprocess.Popen[bytes]) -> Iterator[Foreground]:
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


def leave_like(code: int) -> int:
    """Return the command's exit code; if a signal killed it, die by the same one."""
    if code >= 0:
        return code
    number = -code
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def require_torch(command: Sequence[str]) -> None:
    """Raise MissingCapabilityError if the command's own Python has no torch (what `--strict` asks first)."""
    program = Path(shutil.which(command[0]) or command[0])
    if not program.name.startswith("python"):
        return
    test = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    asked: Any = subprocess.run([str(program), "-c", test], check=False, capture_output=True)  # noqa: S603
    if asked.returncode:
        raise MissingCapabilityError(
            f"{program} has no torch", hint=f"{shlex.quote(str(program))} -m pip install torch"
        )
