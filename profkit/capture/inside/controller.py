"""The capture inside the traced process: unprofiled steps, warm-up, recorded steps, unprofiled steps, and out.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the capture with a reason.
Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import torch

from ..beside import units
from ..command import raised, tell
from ..options import STEPS_AFTER, Options, Window, window_for
from ..place import PLACES
from . import clock, store
from .exits import WaysOut, in_backward, leave
from .listener import Listener, guarded
from .loader import FetchLog
from .loops import Keys, Loops
from .padding import Padding
from .places.frames import found_in
from .places.looked import collect_after_fork
from .places.names import variables
from .places.thread_lines import ThreadLooks
from .places.window import LONG, LONG_NS, SecondWindow
from .record.host_watch import waited_for_cores_ns
from .record.price import MOST_NS, TOO_MANY, Price
from .record.ranges import CopyWatch, make_phase
from .record.recorder import Recorder, ToolRecorder
from .seen import Counters, Queue, Seen, has_enough, why_none, with_enough, with_fewer_before
from .starts import WorkerStarts
from .subnormal import Subnormals
from .whole_run import WholeRun

_KEPT: Final[list[Any]] = []
_RECORDING: Final = ("warmup", "active", "after", "places")
_MAX_UNSTARTED: Final = 5000  # boundaries after which a capture that could not start gives up (chosen)


class Controller(Listener):
    """One capture in one process: it is told what the training loop does and decides what is recorded."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.stage = "baseline"
        self.reason = ""
        self._copies = CopyWatch()
        self._price = Price()
        self._has_begun_again = False
        self._has_gradients = False
        self._marks: list[clock.Mark] = []
        self._seen = Seen()
        self._recorder: Recorder | ToolRecorder | None = None
        self._second = SecondWindow(options)
        self._run = WholeRun()
        self._log: FetchLog | None = None
        self._starts = WorkerStarts()
        self._padding = Padding()
        self._subnormals = Subnormals()
        self._threads = ThreadLooks()
        self._queue = Queue()
        self._others: set[int] = set()
        self._keys = Keys()
        self._loops = Loops(waited_for_cores_ns)
        self._n_ranks = 1
        self._usual_ns = 0
        self._recorded: dict[str, Any] | None = None  # facts of a recording that a longer loop's is to replace
        self._counters = Counters()
        self._label = ""
        self._ways_out = WaysOut(self.finish)
        self._is_settled = False

    def begin(self) -> None:
        """Put the hooks in and wait for the first steps."""
        store.note_begun(self.options)
        self._log = FetchLog(self.options.capture_id)
        self._log.install()
        self._starts.install()
        self._hooks.install()
        self._hooks.watch_forward(self._finder.forward_watch)

    def after_fork(self) -> None:
        """In a forked child: a worker needs no more than the hooks it has, a rank begins anew."""
        collect_after_fork()
        self._second.leave_to_parent()
        self._run.after_fork()
        _KEPT.append((self._recorder, self._second, self._log))  # the parent's; to take apart would stop a profiler
        self._recorder, self._second, self._log = None, SecondWindow(self.options), None
        self._run = WholeRun()
        store.forget_parts()
        self._ways_out = WaysOut(self.finish)
        self._close_phases()
        self._loops, self._recorded = Loops(waited_for_cores_ns), None
        if self.stage not in ("baseline", "standby", "done"):
            self.stage = "done"
            self._hooks.remove()
        elif self.stage != "done":
            self.stage = "baseline"
            self._pid = os.getpid()
            self.home_thread, self._has_home = threading.get_ident(), False
            self._finder.forget()

    # ---------------------------------------------------------------------------------- what the hooks tell

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step."""
        self._find_home()
        key = self._keys.of(optimizer)
        if key < self.options.optimizer:
            if not self._finder.calls:  # what its loop did is no part of the one that comes
                self._finder.forget()
            return
        if threading.get_ident() == self.home_thread:
            self._loops.stepped(
                key,
                type(optimizer).__name__,
                time.perf_counter_ns(),
                is_timed=self.stage in ("baseline", "after", "run") or self._second.is_waiting,
                leads=self._n_ranks == 1 and self._finder.is_leader(key),
            )
        if self.stage == "run":
            self._goes_on(key)
            return
        if self.stage == "warmup" and threading.get_ident() == self.home_thread:
            self._subnormals.end(optimizer)
        if self._second.is_waiting and self._reconsider():
            return
        self._finder.optimizer_stepped(key, has_closure=has_closure)
        self._follow()
        if self.stage in _RECORDING and self._loops.has_left(self._finder.frozen_leader) and self._is_safe():
            self._leave_loop()

    def data_came(self, batch: Any) -> None:
        """A loader has given a batch: how much of it is padding?"""
        self._padding.see(batch)

    @guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        self._look()
        is_over = self.stage in ("run", "done") or (self.stage == "standby" and not self._finder.is_leaving)
        if threading.get_ident() != self.home_thread or is_over:
            return
        if self._seen.window is None:
            self._queue.note(iterator)
        elif self.stage == "active":
            self._queue.use(iterator)
        self._second.look()
        self._finder.data_wanted()
        self._follow()

    @guarded
    def forward_began(self, module: Any) -> None:
        """An outermost module is called."""
        self._look()
        self._has_gradients = self._has_gradients or torch.is_grad_enabled()
        self._second.saw(module)
        self._run.saw(module)
        super().forward_began(module)

    @guarded
    def profiler_begins(self, profiler: Any) -> None:
        """Some profiler of torch is about to start: the script's own goes first, ours gives way."""
        if self._second.is_busy or (self._recorder is not None and self._recorder.is_busy):
            return
        self._others.add(id(profiler))
        self._second.give_up("the script started its own profiler")
        if self._recorder is None:
            return
        self._stop_recorder()
        self._end("the script started its own profiler during the recording, so profkit stopped")

    @guarded
    def profiler_ended(self, profiler: Any) -> None:
        """A profiler of torch has stopped."""
        self._others.discard(id(profiler))

    @guarded
    def step(self, **counts: Any) -> None:
        """The script tells that a step has ended and what it held: kept as it is, since a tensor may be on a device."""
        self._counters.add(counts)
        self._find_home()
        super().step()

    # ------------------------------------------------------------------------------------------- boundaries

    def _follow(self) -> None:
        if self.stage == "standby" and not self._finder.is_leaving:
            self._hooks.watch_forward("none")
        elif self.stage not in ("done", "run"):
            self._hooks.watch_forward("all" if self.phase is not None else self._finder.forward_watch)

    def _find_home(self) -> None:
        """Take the thread of the first optimizer step for the one that trains (Ray and others train in a thread).

        While a recorder runs in another thread that one is home: it alone may stop it.
        """
        if not self._has_home and self._recorder is None:
            self._has_home = True
            self.home_thread = threading.get_ident()

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        ended_ns, ended = time.perf_counter_ns(), clock.recorded_event()
        self._starts.n_steps += is_step
        self._act(source, ended_ns, ended, is_step=is_step)
        if self.stage in _RECORDING:
            is_plain = self.stage == "after" or self._second.is_waiting
            self._run.boundary(ended_ns, ended, is_plain=is_plain, began=ended)
        stalled_ns = time.perf_counter_ns() - ended_ns
        self._loops.skip(stalled_ns)
        if not self._second.has_begun:  # it counts its own
            self._seen.stalled_ns += stalled_ns

    def _act(self, source: str, ended_ns: int, ended: Any, *, is_step: bool) -> None:
        if source == "restart":
            self._begin_again()
        elif self.stage == "baseline":
            self._marks.append(clock.begun(ended_ns, ended, self._finder.n_loads))
            self._price.boundary()
            if is_step:
                self._consider_start(ended_ns, ended)
            if len(self._marks) > _MAX_UNSTARTED:
                self._end(why_none(self._finder, self._seen, self._chosen_window()))
        elif self.stage in ("warmup", "active"):
            self._record(ended_ns, ended)
        elif self.stage == "after":
            self._seen.times["after"].append(clock.begun(ended_ns, ended, self._finder.n_loads))
            if len(self._seen.times["after"]) > STEPS_AFTER:
                self.stage = "places"
                self._threads.stop()
                self._second.begin(
                    self._label, self._seen, has_others=bool(self._others), has_threads=self._threads.saw_work
                )
                self._go_on()
        elif self.stage == "places":
            self._second.boundary(self._finder.n_loads)
            self._go_on()

    def _begin_again(self) -> None:
        """Steps are counted anew: what was recorded of another loop before goes."""
        self._marks.clear()
        if self.stage == "baseline":
            return
        self._stop_recorder()
        if self._recorded is None:
            self._second.drop()
            store.drop_raw(self.options, self._label)
        else:  # it stays until there is another
            self._second.close()
            self._hooks.remove()
            self._hooks.install(self)
        self._second = SecondWindow(self.options)
        self._ways_out.unguard()
        self._price = Price()
        self._queue = Queue()
        if self._log is not None:
            self._log.delete()
        self._seen = Seen()
        self._run.stop()
        self._run = WholeRun()
        self._threads.stop()
        self.stage, self._has_begun_again, self._has_gradients = "baseline", True, False

    def _reconsider(self) -> bool:
        """Record anew where the loop that runs now has taken more time than the recorded one: the job is that."""
        is_longer = self._loops.is_longer()
        if is_longer and self._loops.is_other_pace and self._run.grows():  # that is no other loop
            self._loops.join_paces()
            is_longer = False
        if self._n_ranks > 1:  # they record the same steps
            at = self._loops.place_to_agree()
            is_longer = bool(at) and bool(store.agreed(self.options, at, int(is_longer)))
        if not is_longer or not self._is_safe() or self.options.step_on != "auto":
            return False
        self._loops.n_again += 1
        tell(self._loops.why_again())
        self._recorded = self._told()
        self._finder.forget()
        return True

    def _leave_loop(self) -> None:
        """The recorded loop is over while its recording goes on: keep the steps that are whole."""
        if self.stage == "active" and len(self._seen.times["profiled"]) > 1:
            self._seen.facts["why_cut"] = "the loop ended"
            self._export(is_cut=True)
        elif self.stage == "places":
            self._second.finish("the loop ended")
        elif self.stage != "after":
            self._finder.forget()
            return
        self._close_phases()
        self._rest()

    def _look(self) -> None:
        """Inside a recorded step: end the recording where it has come to last far longer than a step does."""
        marks, most_ns = self._seen.times["profiled"], max(LONG * self._usual_ns, LONG_NS)
        if self.stage != "active" or len(marks) < 2 or self._n_ranks > 1:  # ranks record the same steps
            return
        if time.perf_counter_ns() - marks[-1].began_ns > most_ns and self._is_safe():
            self._cut("a step took far longer than the others")

    def _cut(self, why: str) -> None:
        begun_ns = time.perf_counter_ns()
        self._seen.facts["why_cut"] = why
        self._export(is_cut=True)
        self._loops.skip(time.perf_counter_ns() - begun_ns)
        self.stage = "after"
        self._follow()

    def _is_dear(self) -> bool:
        """Whether a recorded step lasts longer than usual and has made so many events by now that they are too dear."""
        marks = self._seen.times["profiled"]
        is_long = self.stage == "active" and len(marks) > 1 and self._price.is_long(marks[-1].began_ns)
        return is_long and self._price.so_far_ns(len(marks)) > MOST_NS

    @guarded
    def _leave_step(self) -> None:
        """Inside such a step: end the recording. With gradients memory holds what the backward pass will read."""
        if not torch.is_grad_enabled() and self._is_safe() and self._is_dear():
            self._seen.facts["n_wanted"] = self._seen.window.steps if self._seen.window else 0
            self._cut(TOO_MANY)

    def _consider_start(self, ended_ns: int, ended: Any) -> None:
        rows = self._finder.step_rows()
        window = self._chosen_window()
        if not self._queue.n_workers:  # else bursts of their batches stay whole
            window = with_fewer_before(
                window, self.options, [self._marks[row].began_ns for row in rows[window.settling :]]
            )
        if len(rows) < window.settling + window.baseline + 1:
            return
        if self._has_begun_again:  # a second session of the profiler loses rows at its beginning (pytorch 192021)
            window = replace(window, warmup=window.warmup + 1)
        if not self.options.wants_rank(store.rank()):
            self._end(f"rank {store.rank()} was not selected (--ranks {self.options.ranks})")
            return
        if self._others or torch.autograd._profiler_enabled():  # noqa: SLF001
            self._seen.has_waited = True
            return
        if self.options.device == "cuda" and not clock.cuda_in_use():
            raise RuntimeError("--device cuda was given, but this process does not use CUDA; see profkit doctor")
        self._finder.freeze()
        self._run.begin([self._marks[row] for row in rows[window.settling - 1 :]])
        self._seen.times["baseline"] = [self._marks[row] for row in rows[-window.baseline - 1 :]]
        self._n_ranks = store.world_size()
        self._usual_ns = clock.summary(clock.durations_ns(self._seen.times["baseline"])).get("median_ns", 0)
        self._loops.record(self._usual_ns)
        self._seen.window = window = with_enough(window, self.options, self._seen, self._queue.n_left)
        self._seen.first_step = len(rows) + window.warmup
        self._label = self._label or store.claim_label(self.options)
        self._ways_out.guard()
        if self._log is not None:
            with suppress(OSError):
                self._log.open()
        recorder = ToolRecorder if self.options.tool else Recorder
        self._recorder = recorder(self.options, first_step=len(rows), n_warmup=window.warmup)
        self._recorder.start()
        self.stage, self._seen.n_boundaries = "warmup", 0
        self._subnormals = Subnormals()
        self._subnormals.begin()
        self._marks = []

    def _record(self, ended_ns: int, ended: Any) -> None:
        recorder, window = self._recorder, self._seen.window
        if recorder is None or window is None:
            return
        self._seen.n_boundaries += 1
        n_recorded = self._seen.n_boundaries - window.warmup
        price_ns = self._seen.whole_steps_ns = self._price.so_far_ns(n_recorded) if n_recorded > 0 else 0
        is_spent = 0 < n_recorded < window.steps and window.least > 0 and self._price.is_spent(n_recorded, price_ns)
        if is_spent:
            self._seen.facts["n_wanted"] = window.steps
        if is_spent or n_recorded == window.steps or has_enough(window, self._seen, n_recorded):
            self._seen.times["profiled"].append(clock.Mark(ended_ns, ended_ns, ended, ended, self._finder.n_loads))
            if price_ns > MOST_NS:
                tell(f"to write these steps may hold the script up for {units().format_ns(price_ns)}, by their memory")
            self._export(is_cut=False)
            self.stage = "after"
            self._seen.times["after"].append(
                clock.begun(time.perf_counter_ns(), clock.recorded_event(), self._finder.n_loads)
            )
            return
        recorder.step()
        if n_recorded >= 0:
            if n_recorded == 0:
                self._subnormals.end()
                self.stage, self.phase = "active", make_phase()
                self._copies.begin(self.phase)
                self._threads = ThreadLooks()
                self._threads.start()
                self._price.begin(self._usual_ns)
                if window.least and self.home_thread == threading.main_thread().ident:
                    self._price.watch(self._is_dear, self._leave_step)
            self._seen.times["profiled"].append(clock.begun(ended_ns, ended, self._finder.n_loads))

    def _go_on(self) -> None:
        """Record again with the ranges of the timed steps, or end."""
        if self._second.is_over:
            self._close_phases()
            self._rest()
            if self.options.stops and self.stage == "done":
                leave(self.options.folder, self.finish)
        elif self._second.is_recording and self.phase is None:
            self.phase = make_phase()
            self._copies.begin(self.phase)

    def _rest(self) -> None:
        """The window is over, the run is not: hear of the optimizers' steps alone, and time them."""
        leader = self._finder.frozen_leader
        is_watched = leader is not None and not self.options.tool and not self.options.stops
        self._end("", stays=is_watched or self._finder.is_provisional)
        if not is_watched:
            return
        self._hooks.remove()
        self._hooks.watch_steps(self)
        self.stage = "run"
        self._run.boundary(time.perf_counter_ns(), clock.recorded_event(), is_plain=True, began=clock.recorded_event())

    def _goes_on(self, key: int) -> None:
        """An optimizer has stepped beside the window."""
        if self._finder.is_leader(key) and threading.get_ident() == self.home_thread and not clock.is_capturing_graph():
            event = clock.recorded_event()
            self._run.boundary(time.perf_counter_ns(), event, is_plain=True, began=event)
            self._starts.n_steps += 1
        self._reconsider()

    # ------------------------------------------------------------------------------------------------- ends

    def _export(self, *, is_cut: bool) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        self._close_phases()
        self._price.end()
        begun_ns = time.perf_counter_ns()
        if isinstance(recorder, ToolRecorder) and not is_cut:
            recorder.close_step()
        recorder.stop()
        stopped_ns = time.perf_counter_ns()
        if self._log is not None:
            self._log.shut()
        with store.raw_file(self.options, self._label) as path:
            recorder.export(path)
        if self._recorded is not None:
            self._recorded = None
            store.drop_raw(self.options, f"{self._label}{PLACES}")
        self._loops.keep()
        self._seen.facts["stop_ns"] = stopped_ns - begun_ns
        self._seen.facts["export_ns"] = time.perf_counter_ns() - stopped_ns
        self._seen.facts.update(recorder.seen_beside, is_cut=is_cut)
        if self.options.stacks and isinstance(recorder, Recorder):
            with suppress(Exception):  # torch's own tree may be another one
                self._seen.facts["found"] = found_in(recorder, variables(), ())
        self._write_facts()

    @guarded
    def finish(self) -> None:
        """The process or the session ends: keep what was recorded, leave no profiler running."""
        if os.getpid() != self._pid:
            return
        self._run.stop()
        if self.stage in ("standby", "run"):
            self._end("")
        if self.stage == "done":
            if self._label and (clock.cuda_in_use() or self._second.watches_workers) and not self._is_settled:
                self._write_facts()  # the last events, and batches of workers, were on their way when the window ended
        else:
            self._finish_open()
        self._is_settled = True
        self._second.close()
        if self.options.finishes and (self._label or self.options.tells):
            from .export import finish_own

            finish_own(self.options, self._pid)

    def _close_phases(self) -> None:
        self.phase = None
        self._subnormals.end()
        self._copies.end()

    def _stop_recorder(self) -> None:
        """End the recording without a trace."""
        self._close_phases()
        self._price.end()
        self._threads.stop()
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()

    def _finish_open(self) -> None:
        if self.stage == "places":
            self._close_phases()
            self._second.finish()
            self._end("")
            return
        if self._recorder is not None and threading.get_ident() != self.home_thread:
            self._end("the process ended while another thread trained")  # to stop its profiler from here crashes
            return
        if self.stage == "active" and not in_backward() and not self._finder.is_leaving:
            n_whole = len(self._seen.times["profiled"]) - 1
            if n_whole >= (1 if self._recorded is None else 2):
                self._export(is_cut=True)
                self._end("")
                return
        self._stop_recorder()
        self._end("" if self.stage == "after" else why_none(self._finder, self._seen, self._chosen_window()))

    def fail(self, error: BaseException) -> None:
        """Something of the capture itself went wrong: say so once, stop it, let the script run on."""
        with suppress(Exception):
            self._stop_recorder()
        self._second.give_up("the capture failed")
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

    def _end(self, reason: str, *, is_failure: bool = False, stays: bool = False) -> None:
        """Unhook everything and leave the facts for whoever writes the trace.

        It `stays` hooked where no optimizer has stepped: the training may still come, and then begins anew.
        """
        self.stage, self.reason = "standby" if stays else "done", reason
        self._threads.stop()
        if stays:
            self._hooks.watch_forward("none")
        else:
            self._hooks.remove()
        self._seen.facts["is_failure"] = is_failure
        self._write_facts()
        self._ways_out.unguard()
        if self._log is not None:
            if not stays:
                self._log.remove()
                self._starts.remove()
            self._log.delete()

    def _chosen_window(self) -> Window:
        queue = self._queue
        return self._seen.window or window_for(self.options, n_workers=queue.n_workers, n_queued=queue.n_batches)

    def _write_facts(self) -> None:
        told = self._recorded or self._told()
        store.write_facts(self.options, {**told, "loops": self._loops.told()})

    def _told(self) -> dict[str, Any]:
        """What is known of the recording, as plain values."""
        log, facts, finder = self._log, self._seen.facts, self._finder
        if log is not None and "fetches" not in facts and "export_ns" in facts:
            facts["fetches"] = log.rows()
        return {
            **self._seen.told(),
            "reason": self.reason,
            "label": self._label,
            "step_source": finder.described(has_gradients=self._has_gradients) if self._label else "",
            "edges": dict(finder.sources),
            "loaders": self._queue.loaders,
            "starts": self._starts.told(),
            "padding": self._padding.told(),
            "subnormals": self._subnormals.told(),
            "thread_lines": self._threads.told(),
            "n_seen": finder.n_candidates + self._seen.n_boundaries,
            "counters": self._counters.as_numbers() if self._label else [],
            "run": self._run.told(),
            **self._second.told(),
        }
