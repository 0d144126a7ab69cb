"""Hosts that are there: namespaces held by processes, linked to a switch, with commands run in them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from workloads.netlab.plan import (
    Command,
    Host,
    Plan,
    entering,
    holder,
    host_commands,
    link_commands,
    planned,
    switch_commands,
    torchrun,
    variables,
)
from workloads.netlab.rights import NoLabError, is_root, why_not

ROOT: Final = Path(__file__).resolve().parents[2]
_SETTLED_S: Final = 10.0
"""How long a set-up command, or the end of a process that was killed, may take. Chosen: both take milliseconds."""
_LOOK_S: Final = 0.05
_AFTER_CRASH_S: Final = 20.0
"""How long the others may go on when one host's command has failed: torchrun needs some seconds to say why."""
_ALL: Final = ("net", "uts", "mount", "pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the command of one host ended: its exit code, negative for a signal."""

    host: str
    code: int


class Hosts:
    """The hosts of a lab that is up."""

    def __init__(self, plan: Plan, pids: Mapping[str, int]) -> None:
        self.plan = plan
        self._pids = pids

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names, in order."""
        return tuple(host.name for host in self.plan.hosts)

    def run(
        self,
        commands: Sequence[Sequence[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        output: IO[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[Ended]:
        """Run one command on each host, all at once, and give how each ended.

        `env` is added to the environment; `output` takes what they print (None leaves them our own streams). When one
        fails, the others have some seconds to end and are then killed; so are all at `timeout_s`, with
        `subprocess.TimeoutExpired`, and when we are interrupted.
        """
        if len(commands) != len(self.plan.hosts):
            raise ValueError(f"{len(commands)} commands for {len(self.plan.hosts)} hosts")
        running: list[subprocess.Popen[bytes]] = []
        try:
            for host, command in zip(self.plan.hosts, commands, strict=True):
                around = {**os.environ, **variables(self.plan, host), **(env or {})}
                inside = self.command(host.name, command)
                running.append(
                    subprocess.Popen(
                        inside,
                        cwd=cwd,
                        env=around,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
            _wait(running, timeout_s)
        finally:
            _end(running)
        return [
            Ended(host=host.name, code=process.returncode)
            for host, process in zip(self.plan.hosts, running, strict=True)
        ]

    def torchrun(
        self, arguments: Sequence[str], *, ranks_per_host: int = 1, python: str = sys.executable
    ) -> list[Command]:
        """The command of each host that runs one job over all of them; `arguments` are torchrun's from -m on."""
        return [
            torchrun(self.plan, host, arguments, ranks_per_host=ranks_per_host, python=python)
            for host in self.plan.hosts
        ]

    def command(self, name: str, command: Sequence[str]) -> Command:
        """The command that runs `command` on the host of this name."""
        return entering(self._pids[name], tuple(command), namespaces=_ALL, is_root=is_root())


@contextmanager
def lab(*, hosts: int = 2, rate: str = "200mbit", slow: str = "both") -> Iterator[Hosts]:
    """Hosts with a link each to one switch, gone when the context ends, or this process, however it ends.

    `slow` says whose links have the limit `rate`: "both" or "all" (what each host sends), "none", or hosts such as
    "host1" (what it sends and what it receives), "host1:out" or "host1:in", several with commas.
    Raises ValueError for a plan that cannot be, `NoLabError` with the reason where no lab can be made.
    """
    plan = planned(hosts=hosts, rate=rate, slow=slow)
    if reason := why_not():
        raise NoLabError(reason)
    with ExitStack() as held:
        switch = held.enter_context(_held(holder("switch", is_root=is_root())))
        _do(switch_commands(), switch)
        pids: dict[str, int] = {}
        for host in plan.hosts:
            pids[host.name] = _added(host, plan, switch, held)
        yield Hosts(plan, pids)


def _added(host: Host, plan: Plan, switch: int, held: ExitStack) -> int:
    """A host that is linked to the switch: the process id of what holds it."""
    # inside the switch's user and process namespaces: who holds the switch holds the hosts
    made = entering(switch, holder(host.name, plan.names, is_root=True), namespaces=_ALL, is_root=is_root())
    pid = held.enter_context(_held(made))
    _do(link_commands(host, pid, plan), switch)
    _do(host_commands(host, plan), pid)
    return pid


def _do(commands: Iterable[Command], pid: int) -> None:
    """Run set-up commands in the network namespace of a process; raises NoLabError with what a command says."""
    for command in commands:
        line = entering(pid, command, namespaces=("net",), is_root=is_root())
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_SETTLED_S)
        if done.returncode:
            raise NoLabError(f"{' '.join(command)} failed: {done.stderr.strip()}")


@contextmanager
def _held(command: Command) -> Iterator[int]:
    """Namespaces, for as long as the context or this process lasts; gives the process that holds them.

    They last until the holder's standard input ends: the pipe's other end is ours alone, and the kernel closes it.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    held, told, complaint = (cast("IO[bytes]", pipe) for pipe in (process.stdin, process.stdout, process.stderr))
    try:
        if told.readline().strip() != b"ready":
            raise NoLabError(f"the namespaces were not made: {complaint.read().decode().strip()}")
        yield _innermost(process.pid)
    finally:
        with suppress(OSError):
            held.close()
        try:
            process.wait(_SETTLED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        told.close()
        complaint.close()


def _innermost(pid: int) -> int:
    """The last of a chain of processes, each the only child of the one before."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        pid = int(children[0])
    return pid


def _wait(running: Sequence[subprocess.Popen[bytes]], timeout_s: float | None) -> None:
    """Wait until all have ended, or for some seconds more when one has failed."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    grace: float | None = None
    while any(process.poll() is None for process in running):
        now = time.monotonic()
        if until is not None and now > until:
            raise subprocess.TimeoutExpired(running[0].args, timeout_s or 0)
        if any(process.returncode for process in running):
            grace = grace or now + _AFTER_CRASH_S
            if now > grace:
                return
        time.sleep(_LOOK_S)


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: it may have seconds to say why, and what outlives it goes with the lab."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in running if process.poll() is None]
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        until = time.monotonic() + _SETTLED_S / 2
        while left and time.monotonic() < until and any(process.poll() is None for process in left):
            time.sleep(_LOOK_S)
