"""The second window: the steps that are recorded once more, with Python stacks and shapes, after the timed ones.

Its own mistakes stay its own: whatever fails here ends it with a reason, and leaves the capture as it was. Runs in the
traced process: standard library and torch only.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import torch

from ...beside import units
from ...command import raised, tell
from ...options import Options
from ...place import PLACES
from .. import clock, store
from ..exits import in_backward
from ..record.price import TOO_MANY, WITH_STACKS, Price
from ..record.recorder import Recorder
from ..seen import Seen
from .frames import found_in
from .names import variables
from .operators import SignLines
from .room import Allowance, Counter, steps_that_fit
from .sampler import Sampler
from .worker_lines import LineLog

LONG: Final = 20
LONG_NS: Final = 5_000_000_000
"""A step that takes so many times as long as an unprofiled one, and so long, holds something else: a validation, a
checkpoint (chosen)."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _contained(function: _Function) -> _Function:
    """Turn an exception into the end of the second window, and count what the script waits."""

    @functools.wraps(function)
    def wrapper(self: SecondWindow, *args: Any, **kwargs: Any) -> Any:
        begun_ns = time.perf_counter_ns()
        try:
            return function(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the timed trace is there
            self._reason = f"it failed ({raised(error)})"
            self.give_up(self._reason)
            return None
        finally:
            self._stalled_ns += time.perf_counter_ns() - begun_ns

    return wrapper  # type: ignore[return-value]


class SecondWindow:
    """One session of the profiler after the timed one: `begin`, then `boundary` at each step's end, then it is over.

    In the first step Python calls are counted, the next ones are recorded. CUDA is left out: an operator's kernels are
    in the timed trace, and a second session of CUPTI loses rows.
    """

    def __init__(self, options: Options) -> None:
        self.is_recording = self.is_over = self.has_begun = False
        self.is_waiting = False
        """Until the run has lasted so long that the steps are paid for."""
        self._options = replace(options, shapes=True, stacks=True, memory=False, device="cpu")
        self._is_wanted = options.stack_steps > 0 and not options.tool and not options.stacks
        self._label, self._step, self._n_steps, self._most_ns = "", 0, options.stack_steps, 0
        self._thread = 0
        self._counter = Counter()
        self._price = Price()
        self._allowance: Allowance | None = None
        self._sign_lines = SignLines()
        self._lines = LineLog(options.capture_id)
        self._sampler: Sampler | None = None
        self._has_threads = False
        self._recorder: Recorder | None = None
        self._marks: list[clock.Mark] = []
        self._called: list[Any] = []
        self._held: list[Any] = []
        self._callbacks: Any = None
        self._stalled_ns = 0
        self._reason = ""
        self._n_calls = 0
        self._facts: dict[str, Any] = {}
        self._found: dict[str, Any] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the profiler that starts or stops now is ours."""
        return self._recorder is not None and self._recorder.is_busy

    @_contained
    def begin(self, label: str, seen: Seen, *, has_others: bool, has_threads: bool = False) -> None:
        """Begin the step in which calls are counted; it is over at once where none was asked for.

        That is where a tool records by itself, and where stacks in the timed steps name the places. A profiler of the
        script's own goes first. Where other threads run Python, stacks are looked at: whole ones record the calls of
        every thread, and a thread that holds the lock would hold it many times as long.
        """
        self._has_threads = has_threads
        self.has_begun, self.is_over = True, not self._is_wanted
        self._thread = threading.get_ident()
        self._label = f"{label}{PLACES}"
        self._step = seen.first_step + len(seen.times["profiled"]) + len(seen.times["after"]) - 2
        usual_ns = int(clock.summary(clock.durations_ns(seen.times["baseline"])).get("median_ns", 0))
        self._most_ns = max(LONG * usual_ns, LONG_NS)
        spent_ns = seen.facts.get("stop_ns", 0) + seen.facts.get("export_ns", 0)
        if seen.facts.get("is_cut") and seen.facts.get("n_wanted"):  # the step that was left made most of it
            spent_ns = min(spent_ns, seen.whole_steps_ns)
        self._allowance = Allowance(
            usual_ns=usual_ns,
            operators_ns=spent_ns // max(len(seen.times["profiled"]) - 1, 1),
            is_limited=self._options.has_budget,
        )
        is_taken = has_others or torch.autograd._profiler_enabled()  # noqa: SLF001
        problem = "the script's own profiler runs" if is_taken else ""
        if self._is_wanted and self._allowance.may_count:
            problem = problem or self._counter.start()
        if problem:
            self.give_up(problem)
        elif self._is_wanted:
            self._lines.open()

    @_contained
    def boundary(self, n_loads: int) -> None:
        """A step has ended, after so many batches were fetched, and the next one begins."""
        if self.is_over:
            return
        ended_ns, ended = time.perf_counter_ns(), clock.recorded_event()
        self._step += 1
        if self._recorder is None:
            self._n_calls = self._n_calls or self._counter.stop()
            if not self.is_waiting or (self._allowance is not None and self._allowance.is_long_enough()):
                self._start(self._n_calls)
        elif len(self._marks) == self._n_steps or self._is_spent():
            self._marks.append(clock.Mark(ended_ns, ended_ns, ended, ended, n_loads))
            self._export(is_cut=False)
        else:
            self._recorder.step()
            self._sign_lines.step()
        if self.is_recording:
            self._marks.append(clock.begun(ended_ns, ended, n_loads))

    @_contained
    def look(self) -> None:
        """Inside a step: stop what has come to last far longer than a step does."""
        is_long = self.is_recording and time.perf_counter_ns() - self._marks[-1].began_ns > self._most_ns
        if is_long and self._is_safe():
            self._cut("a step took far longer than the others")

    def saw(self, module: Any) -> None:
        """A module is called from outside any other."""
        self.look()
        if self.is_recording and len(self._called) < 64 and all(module is not one for one in self._called):
            self._called.append(module)

    @_contained
    def finish(self, reason: str = "the run ended") -> None:
        """The process ends: keep the steps that are whole, where this is the thread that may stop the profiler."""
        if self.is_recording and threading.get_ident() == self._thread:
            self._cut(reason)
        elif not self.is_over:
            self.give_up(f"{reason} before its first step")

    def give_up(self, reason: str) -> None:
        """End it without a trace, if it is on."""
        if not self.has_begun or self.is_over:
            return
        self._reason = self._reason or reason
        self.is_over, self.is_recording = True, False
        self._lines.shut()
        self._price.end()
        self._let_go()
        self._take_off()
        recorder, self._recorder = self._recorder, None
        if threading.get_ident() == self._thread:
            with suppress(Exception):
                self._counter.stop()
            with suppress(Exception):
                if recorder is not None:
                    recorder.stop()
        with suppress(Exception):
            self._watch_compiler(False)
            if self._sampler is not None:
                self._sampler.stop()

    def leave_to_parent(self) -> None:
        """In a forked child: whoever counts or records calls does not go on here, where nobody would ever stop it."""
        with suppress(Exception):
            self._counter.stop()
            if self.is_recording:
                sys.setprofile(None)

    def told(self) -> dict[str, Any]:
        """Facts: of `places` the steps with their times, what the script waited for it, why there is nothing more."""
        if not self.has_begun or not self._is_wanted:
            return {}
        steps = clock.summary(clock.durations_ns(self._marks)) if self._facts else {"n": 0}
        facts = {**self._facts, "steps": steps, "stalled_ns": self._stalled_ns}
        told = {"places": {**facts, "reason": self._reason} if self._reason else facts, "places_found": self._found}
        return {**told, "worker_lines": self._lines.told()} if self.watches_workers else told

    @property
    def watches_workers(self) -> bool:
        """Whether there is a log of what loader workers do: it is whole when the process ends."""
        return self._lines.is_made

    def close(self) -> None:
        """Leave nothing behind."""
        self._lines.delete()

    def _start(self, n_calls: int) -> None:
        allowance = self._allowance
        if allowance is None:
            return
        n_steps = min(steps_that_fit(self._n_steps, n_calls), allowance.steps(self._n_steps, n_calls))
        if not n_calls or self._has_threads:  # there was no time to count them, or nobody counts those of others
            n_steps = 0
        least_ns = allowance.cost_ns(max(n_steps, 1), n_calls) if n_steps else allowance.looks_ns(1)
        if not n_steps:
            n_steps = allowance.looked_at(self._n_steps)
            self._sampler = Sampler()
            self._options = replace(self._options, stacks=False)
        if not n_steps:
            shown = units().format_ns
            most = shown(allowance.most_ns)
            why = f"to record one more step would hold the script up for about {shown(least_ns)}, more than {most}"
            self._reason = f"{why} (--stack-steps {self._n_steps} records them all the same)"
            self._sampler, self._options = None, replace(self._options, stacks=True)
            self.is_waiting = allowance.waits_for(least_ns)
            if self.is_waiting:
                self._lines.shut()
            else:
                self.give_up(self._reason)
            return
        self.is_waiting, self._reason, self._n_steps = False, "", n_steps
        self._announce(allowance, n_calls)
        self._most_ns = min(self._most_ns, allowance.longest_step_ns(n_calls))
        self._held = variables()  # now: where an exception ends the run its functions are gone
        self._watch_compiler(True)
        self._recorder = Recorder(self._options, first_step=self._step, n_warmup=0)
        self._recorder.start()
        if self._sampler is not None:
            self._sampler.start()
        with suppress(Exception):  # its own functions are torch's, and may go
            self._sign_lines.begin(is_sampled=self._sampler is not None)
        self.is_recording = True
        self._price.begin(self._allowance.usual_ns if self._allowance else 0)
        if self._options.has_budget and self._thread == threading.main_thread().ident:
            self._price.watch(self._is_dear, self._leave_step)
        self._facts = {"first_step": self._step, "n_calls": n_calls, "is_sampled": self._sampler is not None}

    def _announce(self, allowance: Allowance, n_calls: int) -> None:
        """Say before it begins what the script will wait."""
        shown, n, is_sampled = units().format_ns, self._n_steps, self._sampler is not None
        cost_ns = allowance.looks_ns(n) if is_sampled else allowance.cost_ns(n, n_calls)
        limit = f", at most {shown(allowance.most_ns)}" if self._options.has_budget else ""
        what = f"{n} more step{'s' * (n != 1)} for lines of code"
        tell(f"recording {what}: holds the script up for about {shown(cost_ns)}{limit}")

    def _is_spent(self) -> bool:
        """Whether the steps so far are slower by half of the allowance; to write them takes as long again."""
        if self._allowance is None or len(self._marks) < 2:
            return False
        taken_ns = sum(clock.durations_ns(self._marks)) - (len(self._marks) - 1) * self._allowance.usual_ns
        return 2 * taken_ns > self._allowance.most_ns

    def _is_dear(self) -> bool:
        """Whether a step lasts longer than usual and has made so many events by now that they are too dear."""
        allowance = self._allowance
        if not self.is_recording or allowance is None or not self._marks:
            return False
        price_ns = WITH_STACKS * self._price.so_far_ns(len(self._marks))
        return self._price.is_long(self._marks[-1].began_ns) and price_ns > allowance.most_ns

    @_contained
    def _leave_step(self) -> None:
        """Inside such a step: end the recording. With gradients memory holds what the backward pass will read."""
        if not torch.is_grad_enabled() and self._is_safe() and self._is_dear():
            self._cut(TOO_MANY)

    def _take_off(self) -> None:
        with suppress(Exception):
            self._sign_lines.end()

    def _cut(self, reason: str) -> None:
        """End it inside a step: with a trace where a step before is whole."""
        if len(self._marks) > 1 and not in_backward():
            self._reason = reason
            self._export(is_cut=True)
        else:
            self.give_up(reason)

    def _export(self, *, is_cut: bool) -> None:
        recorder, self._recorder = self._recorder, None
        self.is_recording, self.is_over = False, True  # workers look on: their batches may be short
        if recorder is None:
            return
        self._price.end()
        self._watch_compiler(False)
        self._take_off()
        if self._sampler is not None:
            self._sampler.stop()
        recorder.stop()
        with store.raw_file(self._options, self._label) as path:
            recorder.export(path)
        self._facts.update(n_steps=len(self._marks) - 1, is_cut=is_cut)
        try:
            sampler = self._sampler
            self._found = sampler.found() if sampler is not None else found_in(recorder, self._held, self._called)
        except Exception as error:  # noqa: BLE001 - torch's own tree may be another one: names alone, then
            self._facts["why_no_names"] = raised(error)
        self._let_go()

    def _let_go(self) -> None:
        """Hold none of the script's objects any longer."""
        self._called.clear()
        self._held.clear()

    def _is_safe(self) -> bool:
        return threading.get_ident() == self._thread and not in_backward() and not clock.is_capturing_graph()

    def _watch_compiler(self, is_on: bool) -> None:
        """Hear of what torch.compile compiles meanwhile: it makes millions of Python calls."""
        if is_on:
            module = sys.modules.get("torch._dynamo.callback")
            self._callbacks = getattr(module, "callback_handler", None)
            if self._callbacks is not None:
                self._callbacks.register_start_callback(self._compiles)
        elif self._callbacks is not None:  # another list: the old one may be being gone through
            others = [one for one in self._callbacks.start_callbacks if one != self._compiles]
            self._callbacks.start_callbacks = others

    @_contained
    def _compiles(self, *_: Any) -> None:
        if self.is_recording and self._is_safe():
            self._cut("torch.compile compiled something")

    def drop(self) -> None:
        """Forget what was recorded: the capture begins anew."""
        self.give_up("the capture began anew")
        self.close()
        with suppress(OSError):
            if self.has_begun:
                store.drop_raw(self._options, self._label)
