"""Whether a lab of hosts can be made here, and if not, why, in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import Final

from workloads.netlab.plan import HOLDS, SHAPE, holder

_PROGRAMS: Final = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "hostname": "hostname",
}
_PATIENCE_S: Final = 20.0  # chosen: what it waits for takes milliseconds


class NoLabError(RuntimeError):
    """A lab of hosts cannot be made on this machine; the message says why, in one sentence."""


def is_root() -> bool:
    """Whether namespaces can be made without a user namespace around them."""
    return os.geteuid() == 0


@cache
def why_not() -> str:
    """Why no lab can be made here, "" where one can: it makes a lab's namespaces, one link and one limit on it."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, and this is {sys.platform}"
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install {package}"
    if reason := _refused("true"):
        how = "" if is_root() else " (without root it takes a user namespace, which may be switched off)"
        return f"network namespaces are not allowed here{how}: {reason}"
    tried = f"ip link add name a0 type veth peer name b0 && tc qdisc add dev a0 root tbf rate 200mbit {' '.join(SHAPE)}"
    bridge = "ip link add name switch type bridge"
    if reason := _refused(f"{tried} && {bridge}"):
        return f"the kernel here lacks veth links, bridges or tc's tbf: {reason}"
    return ""


def _refused(line: str) -> str:
    """What a shell line in namespaces as a host's says when it fails, "" when it does not."""
    *unshare, _keeps, name, names = holder("netlab", "127.0.0.1 localhost\n", is_root=is_root())
    shell = HOLDS.replace("exec cat", line)
    try:
        done = subprocess.run(
            [*unshare, shell, name, names], capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"exit code {done.returncode}"
