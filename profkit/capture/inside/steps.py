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
_MIN_CALLS: Final = 8  # chosen: covers one round of 5 + 1
_MAX_CALLS_RATIO: Final = 16  # chosen: an optimizer called more rarely than that marks no step
_IDLE_INFERENCE: Final = 8  # chosen: fetches without any backward: nobody trains here
_IDLE_TRAINING: Final = 64  # chosen: above usual gradient accumulation
_MAX_UNPLACED: Final = 64  # chosen: so many optimizer calls without a fetch or forward: those are compiled away
_MAX_UNPLACED_ROUNDS: Final = 3  # chosen: the same, where backward passes between the calls are seen
_FEW_LOADS: Final = 3  # chosen: a loop on one fixed batch fetches once
_TICK_NS: Final = 1_000_000_000


_WORDS: Final = {
    "zero_grad": "the optimizer's zero_grad",
    "call": "profkit.capture.step()",
    "loader": "each fetch from the DataLoader",
    "forward": "each forward pass",
    "time": "every second",
}


class StepFinder:
    """Turns what happens in a training loop into step boundaries.

    Until `freeze` every optimizer may be the leading one: each pending boundary becomes a *candidate*, and who leads
    is read from the calls so far: the optimizer called least, among equals the one that comes last. Thus one round of
    a GAN, of 5 critic steps and 1 generator step, or of an optimizer for each parameter is one step.
    """

    def __init__(self, *, step_on: str, is_safe: Callable[[], bool], on_candidate: Callable[[str, bool], None]) -> None:
        self.mode = "optimizer" if step_on == "auto" else step_on
        self.calls: dict[int, int] = {}
        self.zeroed = 0
        self.has_optimizer = False
        self.n_backward = 0
        self.n_loads = 0
        self.n_forwards = 0
        self.sources: dict[str, int] = {}
        self._falls_back = step_on == "auto"
        self._is_safe = is_safe
        self._on_candidate = on_candidate
        self._leader: int | None = None
        self._is_frozen = False
        self._is_pending = False
        self._n_unplaced = 0
        self._n_unplaced_rounds = 0
        self._n_backward_before = 0
        self._since: set[int] = set()
        self._n_candidates = 0
        self._rows: dict[int | None, list[int]] = {}
        self._ticked_ns = time.perf_counter_ns()

    # ------------------------------------------------------------------------------------------ what happens

    def optimizer_stepped(self, key: int, *, has_closure: bool) -> None:
        """An optimizer (by identity) has made its step; with a closure, forward and backward ran inside it."""
        if self.mode == "time":
            self._tick()
        if self.mode not in ("optimizer", "zero_grad"):
            return
        if self.mode == "zero_grad":  # steps are visible after all
            self._restart("optimizer")
        self.calls[key] = self.calls.get(key, 0) + 1
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

    def step_called(self) -> None:
        """The script itself says that a step has ended; from then on it alone does."""
        if self.mode != "call" and not self._is_frozen:
            self._restart("call")
        self._at_safe_point("call")

    def data_wanted(self) -> None:
        """The loop asks for the next batch: a safe point."""
        self.n_loads += 1
        self._at_safe_point("loader")
        limit = _IDLE_TRAINING if self.n_backward else _IDLE_INFERENCE
        if self._is_lost() and self.n_loads >= limit:
            self._restart("loader")

    def forward_began(self) -> None:
        """An outermost module is called: a safe point."""
        self.n_forwards += 1
        self._at_safe_point("forward")
        limit = _IDLE_TRAINING if self.n_backward else _IDLE_INFERENCE
        if self._is_lost() and self.n_loads < _FEW_LOADS and self.n_forwards >= limit:
            self._restart("forward")

    # ------------------------------------------------------------------------------------------ what follows

    @property
    def forward_watch(self) -> str:
        """How calls of modules need to be watched now: "none", "once" (a boundary waits) or "all".

        All only while nothing else marks steps, and not where an optimizer has been made: its steps are to come,
        and a function compiled meanwhile would be compiled with the hook that watches.
        """
        if self.mode in ("forward", "time"):
            return "all"
        if self._is_lost():
            is_inference = not self.has_optimizer or self.n_backward >= _IDLE_INFERENCE
            return "all" if self.n_loads < _FEW_LOADS and is_inference else "none"
        if self.mode == "loader" or not self._is_pending:
            return "none"
        comes_first = self.sources.get("loader", 0) >= _FEW_LOADS and not self.sources.get("forward", 0)
        return "none" if comes_first else "once"

    @property
    def n_candidates(self) -> int:
        """The boundaries so far, whoever leads."""
        return self._n_candidates

    def step_rows(self) -> list[int]:
        """The indices of the candidates that are step boundaries by what is known now; [] if undecided."""
        if self.mode != "optimizer":
            return self._rows.get(None, [])
        leader = self._leader if self._is_frozen else self.leader()
        return self._rows.get(leader, []) if leader is not None else []

    def leader(self) -> int | None:
        """The optimizer whose call ends a step, None while that cannot be told."""
        total = sum(self.calls.values())
        if total < _MIN_CALLS:
            return None
        if total < _MIN_UNDECIDED_CALLS and min(self.calls.values()) == 1:
            return None
        least = max(2, max(self.calls.values()) // _MAX_CALLS_RATIO)
        fewest = min((count for count in self.calls.values() if count >= least), default=0)
        return next((key for key in reversed(list(self.calls)) if self.calls[key] == fewest), None)

    def freeze(self) -> None:
        """From now on the leader stays and each candidate is a step boundary."""
        self._leader = self.leader()
        self._is_frozen = True

    def described(self) -> str:
        """Say in words what ends a step."""
        if self.mode != "optimizer":
            return _WORDS[self.mode]
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
                self._rows.setdefault(key, []).append(self._n_candidates)
            self._n_candidates += 1
            self._since.clear()
        rows = [] if self._is_frozen else self.step_rows()
        is_step = self._is_frozen or bool(rows and rows[-1] == self._n_candidates - 1)
        self._on_candidate(source, is_step)

    def _is_lost(self) -> bool:
        return self._falls_back and self.mode == "optimizer" and not self.calls and not self.zeroed

    def forget(self) -> None:
        """Begin anew, in the mode that is on."""
        self.n_backward = self.n_loads = self.n_forwards = self.zeroed = 0
        self._restart(self.mode)

    def _restart(self, mode: str) -> None:
        """Change what ends a step; what was counted until now was counted by another measure."""
        self.mode = mode
        self.calls = {}
        self.sources = {}
        self._n_candidates = 0
        self._rows = {}
        self._since = set()
        self._is_pending = False
        self._on_candidate("restart", False)
