"""Starts the capture of a process right after it has imported torch.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from typing import Any, Final

import torch

from ..command import redacted_command, tell
from ..options import VARIABLE, Options, from_text, torch_problem

_STATE: Final = "_profkit_capture_state"


def start() -> None:
    """Start what the environment asks for, once."""
    options = from_text(os.environ[VARIABLE])
    problem = torch_problem(str(torch.__version__))
    if problem:
        from .store import note_problem

        note_problem(options, problem)
        tell(problem)
        return
    begin(options if options.command else replace(options, command=_own_command()))


def _own_command() -> str:
    """The command of this process without secrets: no runner has told it."""
    return redacted_command(getattr(sys, "orig_argv", ["python", *sys.argv]))


def begin(options: Options) -> Any:
    """The controller of a capture that begins now and ends with the process at the latest."""
    controller = _controller(options)
    try:
        controller.begin()
    except OSError as error:
        controller.fail(error)
        return controller
    sys.modules[_STATE] = controller
    atexit.register(controller.finish)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: current() is controller and controller.after_fork())
    return controller


def _controller(options: Options) -> Any:
    """What listens to the training loop: a recorder, a probe, or a trial."""
    if options.probe:
        from .probe.prober import Prober

        return Prober(options)
    if options.trial:
        from .trial.trier import Trier

        return Trier(options)
    from .controller import Controller

    return Controller(options)


def current() -> Any:
    """The controller of this process, `None` if nothing is captured."""
    return sys.modules.get(_STATE)


def forget() -> None:
    """A session has ended: the next one may begin."""
    sys.modules.pop(_STATE, None)
