"""The capture inside the traced process: unprofiled steps, warm-up, recorded steps, unprofiled steps, and out.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the capture with a reason.
Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import torch

from ..command import raised, tell
from ..options import Options, Window, window_for
from . import clock, store
from .copies import CopyWatch
from .exits import WaysOut, in_backward
from .hooks import Hooks
from .loader import FetchLog
from .ranges import make_phase
from .recorder import Recorder
from .steps import StepFinder
from .tool_recorder import ToolRecorder

_KEPT: Final[list[Any]] = []
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MAX_UNSTARTED: Final = 5000  # boundaries after which a capture that could not start gives up (chosen)


def _guarded(function: _Function) -> _Function:
    """Turn an exception into the end of the capture; the script never sees it."""

    @functools.wraps(function)
    def wrapper(self: Controller, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the script goes on
            self.fail(error)
            return None

    return wrapper  # type: ignore[return-value]


class Controller:
    """One capture in one process: it is told what the training loop does and decides what is recorded."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.phase: Any = None
        self.stage = "baseline"
        self.reason = ""
        self._finder = StepFinder(step_on=options.step_on, is_safe=self._is_safe, on_candidate=self._on_candidate)
        self._hooks = Hooks(self)
        self._copies = CopyWatch()
        self.home_thread = threading.main_thread().ident or 0
        self._has_stepped_at_home = False
        self._pid = os.getpid()
        self._marks: list[clock.Mark] = []
        self._times: dict[str, list[clock.Mark]] = {"baseline": [], "profiled": [], "after": []}
        self._window: Window | None = None
        self._recorder: Recorder | ToolRecorder | None = None
        self._log: FetchLog | None = None
        self._first_step = 0
        self._n_boundaries = 0
        self._n_workers = 0
        self._n_queued = 0
        self._waited_for_profiler = False
        self._others: set[int] = set()
        self._counters: list[tuple[int, dict[str, Any]]] = []
        self._label = ""
        self._facts: dict[str, Any] = {}
        self._ways_out = WaysOut(self.finish)
        self._is_settled = False

    def begin(self) -> None:
        """Put the hooks in and wait for the first steps."""
        store.note_begun(self.options)
        self._log = FetchLog(self.options.capture_id)
        self._log.install()
        self._hooks.install()
        self._hooks.watch_forward(self._finder.forward_watch)

    def after_fork(self) -> None:
        """In a forked child: a worker needs no more than the hooks it has, a rank begins anew."""
        _KEPT.append((self._recorder, self._log))  # the parent's; to take them apart here would stop a profiler
        self._recorder, self._log = None, None
        store.forget_parts()
        self._ways_out = WaysOut(self.finish)
        self._close_phases()
        if self.stage not in ("baseline", "done"):
            self.stage = "done"
            self._hooks.remove()
        elif self.stage == "baseline":
            self._pid = os.getpid()
            self.home_thread, self._has_stepped_at_home = threading.get_ident(), False
            self._finder.forget()

    # ---------------------------------------------------------------------------------- what the hooks tell

    @_guarded
    def optimizer_made(self) -> None:
        """An optimizer was made: this is no inference."""
        self._finder.has_optimizer = True
        self._follow()

    @_guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step."""
        self._find_home()
        self._finder.optimizer_stepped(id(optimizer), has_closure=has_closure)
        self._follow()

    @_guarded
    def gradients_zeroed(self) -> None:
        """Gradients were cleared."""
        self._finder.gradients_zeroed()
        self._follow()

    @_guarded
    def backward_began(self) -> None:
        """A backward pass begins."""
        self._finder.backward_began()
        self._follow()

    @_guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() != self.home_thread or self.stage == "done":
            return
        if self._window is None:
            self._n_workers = max(self._n_workers, int(getattr(iterator, "_num_workers", 0)))
            prefetch = int(getattr(iterator, "_prefetch_factor", 0) or 0)
            self._n_queued = max(self._n_queued, self._n_workers * prefetch)
        self._finder.data_wanted()
        self._follow()

    @_guarded
    def forward_began(self) -> None:
        """An outermost module is called."""
        self._finder.forward_began()
        self._follow()

    @_guarded
    def profiler_begins(self, profiler: Any) -> None:
        """Some profiler of torch is about to start: the script's own goes first, ours gives way."""
        if self._recorder is not None and self._recorder.is_busy:
            return
        self._others.add(id(profiler))
        if self._recorder is None or self.stage not in ("warmup", "active"):
            return
        recorder, self._recorder = self._recorder, None
        self._close_phases()
        recorder.stop()
        self._end("the script started its own profiler during the recording, so profkit stopped")

    @_guarded
    def profiler_ended(self, profiler: Any) -> None:
        """A profiler of torch has stopped."""
        self._others.discard(id(profiler))

    @_guarded
    def step(self, **counts: Any) -> None:
        """The script tells that a step has ended and what it held: kept as it is, since a tensor may be on a device."""
        self._counters.append((time.time_ns(), counts))
        if len(self._counters) > 10_000:
            del self._counters[:5_000]
        self._find_home()
        self._finder.step_called()
        self._follow()

    # ------------------------------------------------------------------------------------------- boundaries

    def _follow(self) -> None:
        if self.stage != "done":
            self._hooks.watch_forward("all" if self.phase is not None else self._finder.forward_watch)

    def _find_home(self) -> None:
        """Take the thread of the first optimizer step for the one that trains (Ray and others train in a thread)."""
        if not self._has_stepped_at_home:
            self._has_stepped_at_home = True
            self.home_thread = threading.get_ident()

    def _is_safe(self) -> bool:
        return (
            threading.get_ident() == self.home_thread
            and self._hooks.optimizer_depth == 0
            and not in_backward()
            and not clock.is_capturing_graph()
        )

    @_guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        ended_ns, ended = time.perf_counter_ns(), clock.recorded_event()
        if source == "restart":
            self._marks.clear()
        elif self.stage == "baseline":
            self._marks.append(clock.begun(ended_ns, ended))
            if is_step:
                self._consider_start(ended_ns, ended)
            if len(self._marks) > _MAX_UNSTARTED:
                self._end(self._why_none())
        elif self.stage in ("warmup", "active"):
            self._record(ended_ns, ended)
        elif self.stage == "after":
            self._times["after"].append(clock.begun(ended_ns, ended))
            if self._window is not None and len(self._times["after"]) > self._window.after:
                self._end("")

    def _consider_start(self, ended_ns: int, ended: Any) -> None:
        rows = self._finder.step_rows()
        window = window_for(self.options, n_workers=self._n_workers, n_queued=self._n_queued)
        if len(rows) < window.settling + window.baseline + 1:
            return
        if not self.options.wants_rank(store.rank()):
            self._end(f"rank {store.rank()} was not selected (--ranks {self.options.ranks})")
            return
        if self._others or torch.autograd._profiler_enabled():  # noqa: SLF001
            self._waited_for_profiler = True
            return
        if self.options.device == "cuda" and not clock.cuda_in_use():
            raise RuntimeError("--device cuda was given, but this process does not use CUDA; see profkit doctor")
        self._window = window
        self._finder.freeze()
        self._times["baseline"] = [self._marks[row] for row in rows[-window.baseline - 1 :]]
        self._first_step = len(rows) + window.warmup
        self._label = store.claim_label(self.options)
        self._ways_out.guard()
        if self._log is not None:
            with suppress(OSError):
                self._log.open()
        recorder = ToolRecorder if self.options.tool else Recorder
        self._recorder = recorder(self.options, first_step=len(rows), n_warmup=window.warmup)
        self._recorder.start()
        self.stage, self._n_boundaries = "warmup", 0
        self._marks = []

    def _record(self, ended_ns: int, ended: Any) -> None:
        recorder, window = self._recorder, self._window
        if recorder is None or window is None:
            return
        self._n_boundaries += 1
        n_recorded = self._n_boundaries - window.warmup
        if n_recorded == window.steps:
            self._times["profiled"].append(clock.Mark(ended_ns, ended_ns, ended, ended))
            self._export(is_cut=False)
            self.stage = "after"
            self._times["after"].append(clock.begun(time.perf_counter_ns(), clock.recorded_event()))
            return
        recorder.step()
        if n_recorded >= 0:
            if n_recorded == 0:
                self.stage, self.phase = "active", make_phase()
                self._copies.begin(self.phase)
            self._times["profiled"].append(clock.begun(ended_ns, ended))

    # ------------------------------------------------------------------------------------------------- ends

    def _export(self, *, is_cut: bool) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        self._recorder = None
        self._close_phases()
        begun_ns = time.perf_counter_ns()
        recorder.stop()
        stopped_ns = time.perf_counter_ns()
        if self._log is not None:
            self._log.shut()
        with store.raw_file(self.options, self._label) as path:
            recorder.export(path)
        self._facts["stop_ns"] = stopped_ns - begun_ns
        self._facts["export_ns"] = time.perf_counter_ns() - stopped_ns
        self._facts["is_cut"] = is_cut
        self._write_facts()

    @_guarded
    def finish(self) -> None:
        """The process or the session ends: keep what was recorded, leave no profiler running."""
        if os.getpid() != self._pid:
            return
        if self.stage == "done":
            if self._label and clock.cuda_in_use() and not self._is_settled:
                self._write_facts()  # the last events were on their way when the window ended
        else:
            self._finish_open()
        self._is_settled = True
        if self.options.finishes and self._label:
            from . import export

            export.finish_own(self.options, self._pid)

    def _close_phases(self) -> None:
        self.phase = None
        self._copies.end()

    def _finish_open(self) -> None:
        if self._recorder is not None and threading.get_ident() != self.home_thread:
            self._end("the process ended while another thread trained")  # to stop its profiler from here crashes
            return
        if self.stage == "active" and not in_backward():
            n_whole = len(self._times["profiled"]) - 1
            if n_whole >= 1:
                self._export(is_cut=True)
                self._end("")
                return
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            self._close_phases()
            recorder.stop()
        self._end("" if self.stage == "after" else self._why_none())

    def fail(self, error: BaseException) -> None:
        """Something of the capture itself went wrong: say so once, stop it, let the script run on."""
        self._close_phases()
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            if recorder is not None:
                recorder.stop()
        self.stage = "done"
        self.reason = f"the capture failed, but the script runs on ({raised(error)})"
        with suppress(Exception):
            self._end(self.reason, is_failure=True)
        with suppress(Exception):
            self._hooks.remove()
        tell(self.reason)
        if self.options.strict and os.getpid() == self._pid:
            with suppress(Exception):
                sys.stderr.flush()
            os._exit(4)

    def _end(self, reason: str, *, is_failure: bool = False) -> None:
        """Unhook everything and leave the facts for whoever writes the trace."""
        self.stage, self.reason = "done", reason
        self._hooks.remove()
        self._facts["is_failure"] = is_failure
        self._write_facts()
        self._ways_out.unguard()
        if self._log is not None:
            self._log.remove()
            self._log.delete()

    def _why_none(self) -> str:
        seen = (len(self._finder.step_rows()) or self._finder.n_candidates) + self._n_boundaries
        window = self._window or window_for(self.options, n_workers=self._n_workers, n_queued=self._n_queued)
        if self._waited_for_profiler:
            return "the script's own profiler ran all the time; triage the trace that it writes"
        if seen == 0:
            return (
                "no training step was seen (no optimizer, DataLoader or module was used);"
                " call profkit.capture.step() at the end of a step"
            )
        return (
            f"the run ended after {seen} of the {window.n_needed} steps that a capture needs; lower --baseline, --steps"
        )

    def _write_facts(self) -> None:
        log = self._log
        if log is not None and "fetches" not in self._facts and "export_ns" in self._facts:
            self._facts["fetches"] = log.rows()
        profiled = self._times["profiled"]
        facts = {
            **self._facts,
            "reason": self.reason,
            "label": self._label,
            "step_source": self._finder.described() if self._label else "",
            "edges": dict(self._finder.sources),
            "first_step": self._first_step,
            "n_steps": max(len(profiled) - 1, 0),
            "n_seen": self._finder.n_candidates + self._n_boundaries,
            "baseline": clock.summary(clock.durations_ns(self._times["baseline"])),
            "profiled": clock.summary(clock.durations_ns(profiled)),
            "after": clock.summary(clock.durations_ns(self._times["after"])),
            "counters": _as_numbers(self._counters) if self._label else [],
        }
        store.write_facts(self.options, facts)


def _as_numbers(counters: Sequence[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, float]]]:
    """The counts that are finite numbers and not 0: a NaN would make the trace no JSON."""
    return [
        (unix_ns, {name: number for name, value in counts.items() if (number := store.finite(value))})
        for unix_ns, counts in counters
    ]
