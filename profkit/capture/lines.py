"""The lines that say what a capture came to: one for each process.

Said by the runner, or in the script's process where none waits: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .beside import units


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
    why = f" ({one['why_steps']})" if one.get("why_steps") else ""
    parts = [f"{name}: {n_steps}{why} from step {one['first_step']} on, by {one['step_source']}"]
    if baseline["n"] and profiled["n"]:
        ratio = profiled["mean_ns"] / max(baseline["mean_ns"], 1)
        times = f"{shown(baseline['mean_ns'])} a step before, {shown(profiled['mean_ns'])} profiled"
        parts.append(f"{times} ({ratio:.2f}x)" + (f", {shown(after['mean_ns'])} after" if after["n"] else ""))
    stalled_ns = max(one.get("stalled_ns", 0), one["stop_ns"] + one["export_ns"])
    parts.append(f"the script waited {shown(stalled_ns)} for the profiler to start, stop and write")
    parts += _odd_steps(one) + _second(one)
    cut = "; INCOMPLETE: the run ended during the recording" if one.get("is_cut") else ""
    return "; ".join(parts) + cut + f"\n  {folder / one['trace']}"


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
