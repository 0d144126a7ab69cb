"""Where one training step ends and the next begins, found from the outside.

A boundary is asked for where the work of a step ends (the leading optimizer has stepped), and placed where nothing is
open: at the next fetch of data or the next forward pass. Never inside backward, where torch 2.13 crashes when a
profiler starts, nor inside an optimizer. Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_MIN_UNDECIDED_CALLS: Final = 64  # chosen: so long a second optimizer may come to its second call
MIN_CALLS: Final = 8  # chosen: covers one round of 5 + 1
_FEW_CALLS: Final = 2  # of the only optimizer there is
_MAX_CALLS_RATIO: Final = 16  # chosen: an optimizer called more rarely than that marks no step
_IDLE_INFERENCE: Final = 8  # chosen: fetches or passes of a loop in which no optimizer is to come
_IDLE_TRAINING: Final = 64  # chosen: above usual gradient accumulation, where an optimizer has been made
_MAX_UNPLACED: Final = 64  # chosen: so many optimizer calls without a fetch or forward: those are compiled away
_MAX_UNPLACED_ROUNDS: Final = 3  # chosen: the same, where backward passes between the calls are seen
_FEW_LOADS: Final = 3  # chosen: a loop on one fixed batch fetches once
_TICK_NS: Final = 1_000_000_000
_HEAVY: Final = 0.05  # chosen: of the largest module's time; what takes less is no model
_MANY: Final = 4  # chosen: calls to one of the largest module; a transform is called for each sample
_MOST_MODULES: Final = 4096  # chosen: a script may make a new loss in each step
_CALLED: Final = "()"
_LOOPS: Final = ("loader", "backward", "forward")

_WORDS: Final = {
    "zero_grad": "the optimizer's zero_grad",
    "call": "profkit.capture.step()",
    "loader": "each fetch from the DataLoader",
    "backward": "each backward pass",
    "forward": "each forward pass",
    "time": "every second",
}


def reach(n_optimizers: int) -> int:
    """The calls of optimizers after which one that was not among them steps no more: two rounds of all of them."""
    return max(_MAX_CALLS_RATIO + 2, 2 * n_optimizers)


def name_of(called: object) -> str:
    """How a module is named, by its class, or a function, by its own name."""
    name = getattr(called, "__name__", None)
    return f"{name}{_CALLED}" if isinstance(name, str) else type(called).__name__


class StepFinder:
    """Turns what happens in a training loop into step boundaries.

    Until `freeze` every optimizer may be the leading one: each pending boundary becomes a *candidate*, and who leads
    is read from the calls so far: the optimizer called least, among equals the one that comes last, of those that still
    step: another loop, with an optimizer of its own, may have gone before. Thus one round of a GAN, of 5 critic steps
    and 1 generator step, or of an optimizer for each parameter is one step.

    A loop without an optimizer (`is_provisional`) is taken for the training until an optimizer steps, or until the
    first backward pass: then "restart" is told, and what was found in the loop before counts no more.
    """

    def __init__(self, *, step_on: str, is_safe: Callable[[], bool], on_candidate: Callable[[str, bool], None]) -> None:
        self.mode = "optimizer" if step_on == "auto" else step_on
        self.n_made = 0
        self.has_unknown_optimizers = False
        self._falls_back = step_on == "auto"
        self._is_safe = is_safe
        self._on_candidate = on_candidate
        self._n_unplaced = self._n_unplaced_rounds = self._n_backward_before = 0
        self._ticked_ns = time.perf_counter_ns()
        self._forget_counts()
        self._forget_steps()

    def _forget_counts(self) -> None:
        """Nothing has happened in the loop yet."""
        self.n_backward = self.n_loads = self.n_forwards = self.n_compiled = self.zeroed = 0
        self._modules = Modules()

    def _forget_steps(self) -> None:
        """No boundary has been found yet, whatever marks them."""
        self.calls: dict[int, int] = {}
        self.sources: dict[str, int] = {}
        self.n_candidates = 0
        """The boundaries so far, whoever leads."""
        self.is_leaving = False
        """Whether a loop without an optimizer is over, and the next safe point begins anew."""
        self._last_call: dict[int, int] = {}
        self._n_calls = 0
        self._rows: dict[int | None, list[int]] = {}
        self._since: set[int] = set()
        self._is_pending = self._is_frozen = False
        self._leader: int | None = None

    # ------------------------------------------------------------------------------------------ what happens

    def optimizer_made(self) -> None:
        """An optimizer was made: its steps are to come."""
        self.n_made += 1

    def optimizer_stepped(self, key: int, *, has_closure: bool) -> None:
        """An optimizer (by identity) has made its step; with a closure, forward and backward ran inside it."""
        if self.mode == "time":
            self._tick()
        if self.is_provisional or self.mode == "zero_grad":  # here is the training, and its steps are visible
            self.is_leaving = True
            self._leave_loop()
        if self.mode != "optimizer":
            return
        self.calls[key] = self.calls.get(key, 0) + 1
        self._n_calls += 1
        self._last_call[key] = self._n_calls
        self._since.add(key)
        if self._is_frozen and key != self._leader:
            return
        self._is_pending = True
        self._n_unplaced += 1
        self._n_unplaced_rounds += self.n_backward > self._n_backward_before
        self._n_backward_before = self.n_backward
        is_all_compiled = self._n_unplaced > _MAX_UNPLACED or self._n_unplaced_rounds > _MAX_UNPLACED_ROUNDS
        if (has_closure or is_all_compiled) and self._is_safe():
            self._fire("closure" if has_closure else "optimizer")

    def gradients_zeroed(self) -> None:
        """An optimizer has cleared its gradients: the sign of a step where the step itself is compiled away."""
        if self.calls or not self._falls_back:
            return
        self.zeroed += 1
        if self.mode == "optimizer" and self.zeroed >= 3 and self.n_backward >= 3:
            self._restart("zero_grad")
        if self.mode == "zero_grad":
            self._is_pending = True

    def backward_began(self) -> None:
        """A backward pass begins."""
        self.n_backward += 1
        if self.n_backward == 1 and self.is_provisional:  # until now nothing trained
            self.is_leaving = True

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if self.mode == "backward":
            self._is_pending = True

    def step_called(self) -> None:
        """The script itself says that a step has ended; from then on it alone does."""
        if self.mode != "call" and (not self._is_frozen or self.is_provisional):
            self._restart("call")
        self._at_safe_point("call")

    def data_wanted(self) -> None:
        """The loop asks for the next batch: a safe point."""
        self._leave_loop()
        self.n_loads += 1
        self._at_safe_point("loader")
        is_lost = self._is_lost() or (self.mode in ("forward", "backward") and self._may_change())
        if is_lost and self.n_loads >= self._patience():
            self._restart("loader")

    def forward_began(self, key: int = 0, name: str = "") -> None:
        """An outermost module (by identity, and its class) or compiled function is called: a safe point."""
        self._leave_loop()
        self.n_forwards += 1
        self.n_compiled += name.endswith(_CALLED)
        self._modules.began(key, name)
        if self.mode == "forward":
            if key != self._leader if self._is_frozen else self._modules.is_minor(key):
                return
            self._since.add(key)
        self._at_safe_point("forward")
        if self._is_lost() and self.n_loads < _FEW_LOADS:
            is_whole = self.n_compiled >= _IDLE_INFERENCE  # backward and optimizer may be inside
            if self.n_backward >= self._patience() and not is_whole:
                self._restart("backward")
            elif (is_whole or not self.n_backward) and self.n_forwards >= self._patience():
                self._restart("forward")

    def forward_ended(self, key: int, duration_ns: int) -> None:
        """The call of an outermost module has returned, after so long on the host."""
        self._modules.ended(key, duration_ns)

    # ------------------------------------------------------------------------------------------ what follows

    @property
    def forward_watch(self) -> str:
        """How calls of modules need to be watched now: "none", "once" (a boundary waits) or "all".

        All only while nothing else marks steps, and not where an optimizer has been made: its steps are to come,
        and a function compiled meanwhile would be compiled with the hook that watches.
        """
        if self.is_leaving and self.mode != "forward":
            return "once"
        if self.mode in ("forward", "time"):
            return "all"
        if self._is_lost():
            is_inference = not self.n_made or self.n_backward >= _IDLE_INFERENCE
            return "all" if self.n_loads < _FEW_LOADS and is_inference else "none"
        if self.mode == "loader" or not self._is_pending:
            return "none"
        comes_first = self.sources.get("loader", 0) >= _FEW_LOADS and not self.sources.get("forward", 0)
        return "none" if comes_first else "once"

    @property
    def is_provisional(self) -> bool:
        """Whether steps are those of a loop without an optimizer, which gives way to the loop that trains."""
        return self._falls_back and self.mode in _LOOPS

    def step_rows(self) -> list[int]:
        """The indices of the candidates that are step boundaries by what is known now; [] if undecided."""
        if self.mode not in ("optimizer", "forward"):
            return self._rows.get(None, [])
        leader = self._leader if self._is_frozen else self.leader()
        return self._rows.get(leader, []) if leader is not None else []

    def leader(self) -> int | None:
        """The optimizer whose call ends a step, or the module whose call begins one; None while that is open."""
        if self.mode == "forward":
            return self._modules.leader()
        since = self._n_calls - reach(len(self.calls))
        calls = {key: count for key, count in self.calls.items() if self._last_call[key] > since}
        total = sum(calls.values())
        if self.is_alone and total >= _FEW_CALLS:
            return next(iter(calls))
        if total < MIN_CALLS:
            return None
        if total < _MIN_UNDECIDED_CALLS and min(calls.values()) == 1:
            return None
        least = max(2, max(calls.values()) // _MAX_CALLS_RATIO)
        fewest = min((count for count in calls.values() if count >= least), default=0)
        return next((key for key in reversed(list(calls)) if calls[key] == fewest), None)

    @property
    def frozen_leader(self) -> int | None:
        """The optimizer whose call ends each step from now on; None while that is open, or none does."""
        return self._leader if self._is_frozen and self.mode == "optimizer" else None

    @property
    def is_alone(self) -> bool:
        """Whether but one optimizer was ever made, which then leads."""
        return self.n_made == 1 and len(self.calls) == 1 and not self.has_unknown_optimizers

    def freeze(self) -> None:
        """From now on the leader stays and each candidate is a step boundary."""
        self._leader = self.leader()
        self._is_frozen = True

    def is_leader(self, key: int) -> bool:
        """Whether that optimizer ends a step."""
        return key == self._leader

    def described(self, *, has_gradients: bool = True) -> str:
        """Say in words what ends a step, and that nothing trains in it where no optimizer has stepped."""
        if self.mode != "optimizer":
            text = self._modules.named(self._leader) if self.mode == "forward" else _WORDS[self.mode]
            if not self.is_provisional or (self.n_compiled and self.n_made):  # then it steps where nobody sees it
                return text
            is_inference = not self.n_backward and not has_gradients
            return f"{text}; no optimizer stepped" + (", gradients were off: inference" if is_inference else "")
        if len(self.calls) == 1:
            return "the optimizer's step"
        place = list(self.calls).index(self._leader) + 1 if self._leader in self.calls else 0
        return f"the step of optimizer {place} of {len(self.calls)} (the least often called, then the last)"

    # ------------------------------------------------------------------------------------------------- inside

    def _at_safe_point(self, source: str) -> None:
        if self.mode == source:
            self._is_pending = True
        if self.mode == "time":
            self._tick()
        if self._is_pending and self._is_safe():
            self._fire(source)

    def _tick(self) -> None:
        now_ns = time.perf_counter_ns()
        if now_ns - self._ticked_ns >= _TICK_NS and self._is_safe():
            self._ticked_ns = now_ns
            self._fire("time")

    def _fire(self, source: str) -> None:
        self._is_pending = False
        if source != "optimizer":
            self._n_unplaced = self._n_unplaced_rounds = 0
        self.sources[source] = self.sources.get(source, 0) + 1
        if not self._is_frozen:
            for key in (None, *self._since):
                self._rows.setdefault(key, []).append(self.n_candidates)
            self.n_candidates += 1
            self._since.clear()
        rows = [] if self._is_frozen else self.step_rows()
        is_step = self._is_frozen or bool(rows and rows[-1] == self.n_candidates - 1)
        self._on_candidate(source, is_step)

    def _is_lost(self) -> bool:
        return self._falls_back and self.mode == "optimizer" and not self.calls and not self.zeroed

    def _patience(self) -> int:
        """Fetches or passes after which a loop is taken for one in which no optimizer steps."""
        is_whole = self.n_compiled >= _IDLE_INFERENCE
        return _IDLE_TRAINING if self.n_made and self.n_backward and not is_whole else _IDLE_INFERENCE

    def _may_change(self) -> bool:
        return self._falls_back and not self._is_frozen

    def _leave_loop(self) -> None:
        """Look for the steps of the training, once that can be begun: never inside backward."""
        if self.is_leaving and self._is_safe():
            n_backward = self.n_backward
            self.mode = "optimizer"
            self.forget()
            self.n_backward = n_backward

    def forget(self) -> None:
        """Begin anew, in the mode that is on."""
        self._forget_counts()
        self._restart(self.mode)

    def _restart(self, mode: str) -> None:
        """Change what ends a step; what was counted until now was counted by another measure."""
        self.mode = mode
        self._forget_steps()
        self._on_candidate("restart", False)


class Modules:
    """Calls of outermost modules in the order in which they first came: how often, and how long on the host.

    They tell whose call begins a step where neither an optimizer nor a DataLoader does. Losses and transforms are
    modules too: a step repeats the call of the module that takes the time.
    """

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._spent_ns: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._largest = 0

    def began(self, key: int, name: str) -> None:
        """A module (by identity, and its class) is called."""
        if key in self._calls or len(self._calls) < _MOST_MODULES:
            self._calls[key] = self._calls.get(key, 0) + 1
            self._names[key] = name

    def ended(self, key: int, duration_ns: int) -> None:
        """Its call has returned. A first one warms up, and says nothing of how much the module does."""
        if self._calls.get(key, 0) > 1:
            self._spent_ns[key] = self._spent_ns.get(key, 0) + duration_ns
            if self._spent_ns[key] > self._spent_ns.get(self._largest, 0):
                self._largest = key

    def is_minor(self, key: int) -> bool:
        """Whether a module is called often and takes little beside the largest one, as a transform of samples."""
        is_small = self._spent_ns.get(key, 0) < self._spent_ns.get(self._largest, 0)
        return is_small and self._calls.get(key, 0) > _MANY * self._calls.get(self._largest, 0)

    def leader(self) -> int | None:
        """The module whose call begins a step, None while that is open.

        Of the modules that take time the one called least encloses the others, but for one that is called far more
        rarely than the largest. Of those called as often, as the loss is, the first one called begins the step.
        """
        if sum(self._calls.values()) < MIN_CALLS:
            return None
        least_ns = _HEAVY * self._spent_ns.get(self._largest, 0)
        least = max(2, self._calls.get(self._largest, 0) // _MAX_CALLS_RATIO)
        counts = [
            count for key, count in self._calls.items() if count >= least and self._spent_ns.get(key, 0) >= least_ns
        ]
        if not counts:
            return None
        return next(key for key, count in self._calls.items() if abs(count - min(counts)) <= 1)

    def named(self, key: int | None) -> str:
        """Words for a call of that module or function."""
        name = self._names.get(key, "") if key is not None else ""
        if name.endswith(_CALLED):
            return f"each call of {name}, which is compiled"
        return _WORDS["forward"] + (f" of {name}" if name else "")
