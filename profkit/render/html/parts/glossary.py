"""What each part of the budget is, in one sentence each."""

from __future__ import annotations

from typing import Final

from profkit.render.words.triage import part_labels

_ON_A_GPU: Final = {
    "compute": "A kernel computes, whatever else runs beside it.",
    "comm_exposed": "A collective runs and no compute beside it: the step waits for the network or for other ranks.",
    "copy_exposed": "A copy runs, and neither compute nor a collective beside it.",
    "idle_data": "The GPU is idle while the launching thread waits for the next batch.",
    "idle_sync": "The GPU is idle because a call that blocks held the host before the next launch.",
    "idle_launch": "The GPU is idle while the host is still in the operator or call that launches the next kernel.",
    "idle_host": "The GPU is idle while the host does anything else before the next launch.",
    "idle_dependency": "The next kernel was launched in time and waits for another stream, an event or a peer.",
    "idle_unknown": "The GPU is idle and the trace does not tell why.",
}
_ON_A_CPU: Final = {
    "compute": "An operator computes: its time less the fixed cost of calling it.",
    "comm_exposed": "A collective runs, or is waited for, and no compute beside it.",
    "idle_data": "The training thread waits for the next batch.",
    "idle_launch": "The fixed cost of calling operators, estimated from the shortest of them.",
    "idle_host": "The training thread is between operators: Python, or code that is not PyTorch's.",
    "idle_unknown": "No operators were recorded: what the training thread does here is not known.",
}


def glossary(*, is_cpu: bool) -> tuple[tuple[str, str, str], ...]:
    """Name, label and sentence of each part."""
    labels, said = part_labels(is_cpu=is_cpu), _ON_A_CPU if is_cpu else _ON_A_GPU
    return tuple((name, labels[name], said[name]) for name in said)
