"""The lines that say what a capture came to: one for each process.

Said by the runner, or in the script's process where none waits: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .beside import units

LONGER: Final = 1.25
"""Time of a loop over that of the recorded one, from which it is the job (chosen: two stretches of one steady loop
differ by a tenth)."""
_ENOUGH_CALLS: Final = 28
"""Steps of a loop that a whole capture needs: 3 to settle, 10 + 6 unprofiled, 1 + 5 recorded, 1 + 2 with stacks."""


def told(facts: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """A line for each process: what was recorded and what the profiler cost, or why there is nothing.

    The path of a trace comes after a line's end.
    """
    if not facts:
        return ["no trace: the command never imported torch, or ran Python with -I, -E or -S"]
    times = Counter(one.get("rank", 0) for one in facts)
    return [_line(one, folder, is_alone=times[one.get("rank", 0)] == 1) for one in facts]


def _line(one: dict[str, Any], folder: Path, *, is_alone: bool) -> str:
    rank = one.get("rank", 0)
    name = f"rank {rank}" if is_alone else f"process {one.get('pid')} (rank {rank}, as others are)"
    if not one.get("trace"):
        return f"{name}: no trace: {one.get('reason') or 'nothing was recorded'}"
    baseline, profiled, after = one["baseline"], one["profiled"], one["after"]
    shown = units().format_ns
    n_steps = f"{one['n_steps']} step" + "s" * (one["n_steps"] != 1)
    reason = one.get("why_steps") or _why_fewer(one)
    why = f" ({reason})" if reason else ""
    parts = [f"{name}: {n_steps}{why} from step {one['first_step']} on, by {one['step_source']}"]
    if baseline["n"] and profiled["n"]:
        ratio = profiled["mean_ns"] / max(baseline["mean_ns"], 1)
        times = f"{shown(baseline['mean_ns'])} a step before, {shown(profiled['mean_ns'])} profiled"
        parts.append(f"{times} ({ratio:.2f}x)" + (f", {shown(after['mean_ns'])} after" if after["n"] else ""))
    stalled_ns = max(one.get("stalled_ns", 0), one["stop_ns"] + one["export_ns"])
    parts.append(f"the script waited {shown(stalled_ns)} for the profiler to start, stop and write")
    parts += _loops(one) + _odd_steps(one) + _second(one)
    is_cut = one.get("is_cut") and not one.get("n_wanted")
    cut = f"; INCOMPLETE: {one.get('why_cut') or 'the run ended'} during the recording" if is_cut else ""
    return "; ".join(parts) + cut + f"\n  {folder / one['trace']}"


def _why_fewer(one: dict[str, Any]) -> str:
    """That the recording ended early, since so many operators take long to write."""
    wanted = one.get("n_wanted")
    return f"of {wanted}: to write more may take too long; --steps {wanted} records them all" if wanted else ""


def _loops(one: dict[str, Any]) -> list[str]:
    """Of which loop the steps are, where the run has several; and how to record the longest one, if it is another."""
    loops = one.get("loops") or []
    mine = next((loop for loop in loops if loop["is_recorded"]), None)
    if mine is None or len(loops) == 1:
        return []
    share = mine["spent_ns"] / max(sum(loop["spent_ns"] for loop in loops), 1)
    said = f"the script has {len(loops)} loops: these steps are of {_name(mine)}, {share:.0%} of their time"
    other = other_loop(loops)
    if not other:
        return [said]
    took = f"{other['name']} took {units().format_ns(other['spent_ns'])} and ended before it could be recorded"
    return [f"{said}; {took} (profkit run {other['options']} records it)"]


def other_loop(loops: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The loop that takes clearly more time than the recorded one, and how to record it; {} where none does.

    `name` and `spent_ns` are its own, `recorded` names the recorded loop, `share` (0-1) is that one's of all loops'
    time, `options` are what `profkit run` is to be given.
    """
    mine = next((loop for loop in loops if loop["is_recorded"]), None)
    longest = max(loops, key=lambda loop: int(loop["spent_ns"]), default=None)
    if mine is None or longest is None or longest["spent_ns"] <= LONGER * mine["spent_ns"]:
        return {}
    return {
        "name": _name(longest),
        "spent_ns": longest["spent_ns"],
        "recorded": _name(mine),
        "share": round(mine["spent_ns"] / max(sum(loop["spent_ns"] for loop in loops), 1), 4),
        "options": _again(longest, mine),
    }


def _name(loop: dict[str, Any]) -> str:
    """How a loop is called: by the classes and the numbers of its optimizers."""
    names = " and ".join(loop["optimizers"])
    kind = "at another pace" if loop.get("is_other_pace") else f"optimizer {loop['first_optimizer']}"
    return f"{names} ({kind})"


def _again(loop: dict[str, Any], before: dict[str, Any]) -> str:
    """The options with which `profkit run` records this loop, which comes after the recorded one."""
    if loop.get("is_other_pace"):
        return f"--unprofiled-steps {before['n_calls']} --steps 2"
    few = " --unprofiled-steps 1 --warmup-steps 1 --steps 2" if loop["n_calls"] < _ENOUGH_CALLS else ""
    return f"--optimizer {loop['first_optimizer']}{few}"


def _second(one: dict[str, Any]) -> list[str]:
    """What the second window recorded and cost, or why there is none."""
    places = one.get("places")
    if not isinstance(places, dict):
        return []
    if not places.get("trace"):
        return [f"no lines of code, since {places['reason']}"] if places.get("reason") else []
    shown, steps, baseline = units().format_ns, places["steps"], one["baseline"]
    n_steps = f"{places['n_steps']} more step" + "s" * (places["n_steps"] != 1)
    ratio = f" ({steps['mean_ns'] / baseline['mean_ns']:.2f}x)" if steps["n"] and baseline.get("mean_ns") else ""
    waited = f"the script waited {shown(places['stalled_ns'])} for them"
    stacks = "the Python stack sampled every 2 ms" if places.get("is_sampled") else "Python stacks"
    return [f"{n_steps} with {stacks}{ratio}, which give lines of code but no times; {waited}"]


def _odd_steps(one: dict[str, Any]) -> list[str]:
    """That a recorded step fetches far more batches than the others: a validation is in it, mostly."""
    fetches = one.get("fetches_per_step") or []
    usual = sorted(fetches)[len(fetches) // 2] if fetches else 0
    return [
        f"step {one['first_step'] + place} fetches {fetches[place]} batches, the others {usual}: is a validation in it?"
        for place in one.get("odd_steps") or []
    ]
