"""Why warps do not issue: the shares of the stall reasons, from metrics or from what ncu's rule CPIStall says.

A share needs the whole: all cycles between two instructions of a warp. A page with one reason has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from profkit.model.finding import Evidence
from profkit.model.kernel import KernelProfile, Stall

_METRIC: Final = re.compile(
    r"smsp__average_warps?_(?:latency_)?issue_stalled_(?P<reason>\w+?)"
    r"(?:(?:_per_issue_active)?\.ratio|_per_issue_active\.(?P<percent>pct))"
)
LATENCY: Final = "smsp__average_warp_latency_per_inst_issued.ratio"
_ACTIVE: Final = "smsp__warps_active.avg.per_cycle_active"
_ISSUED: Final = "smsp__issue_active.avg.per_cycle_active"
_ISSUED_PERCENT: Final = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_HOPPER: Final = 9
BUSY_ISSUE: Final = 0.8
"""Instructions per cycle of a scheduler from which on NVIDIA's rule CPIStall is silent."""
_SELECTED: Final = "selected"  # the warp that issues: counted beside the reasons, and none of them
_PARTIAL: Final = "_not_issued"  # the same cycles again, without those of the issuing warp
_SHARE: Final = re.compile(r"about (\d{1,9}(?:\.\d{1,9})?)% of the total average")
_CYCLES: Final = re.compile(r"spends (\d{1,9}(?:\.\d{1,9})?) cycles being stalled")
_SAYINGS: Final = (
    ("scoreboard dependency on a L1TEX", "long_scoreboard"),
    ("scoreboard dependency on an L1TEX", "long_scoreboard"),
    ("L1 instruction queue for local and global", "lg_throttle"),
    ("L1 instruction queue for texture", "tex_throttle"),
    ("scoreboard dependency on a MIO", "short_scoreboard"),
    ("scoreboard dependency on an MIO", "short_scoreboard"),
    ("MIO (memory input/output) instruction queue", "mio_throttle"),
    ("memory barrier", "membar"),
    ("barrier", "barrier"),
    ("fixed latency execution dependency", "wait"),
    ("execution pipe", "math_pipe_throttle"),
    ("micro scheduler to select", "not_selected"),
    ("instruction cache miss", "no_instruction"),
    ("branch target", "branch_resolving"),
    ("immediate constant cache", "imc_miss"),
    ("GMMA", "gmma"),
    ("dispatch", "dispatch_stall"),
    ("sleep", "sleeping"),
)

MEANINGS: Final = {
    "long_scoreboard": "waiting for data from L2 or DRAM",
    "short_scoreboard": "waiting for shared memory or special functions",
    "lg_throttle": "waiting for room in the queue for global memory",
    "mio_throttle": "waiting for room in the queue for shared memory and special functions",
    "tex_throttle": "waiting for room in the queue for textures",
    "math_pipe_throttle": "waiting for a busy arithmetic pipe",
    "barrier": "waiting for other warps at a barrier",
    "membar": "waiting for a memory fence",
    "wait": "waiting for fixed latencies of instructions",
    "not_selected": "being ready while another warp issues",
    "no_instruction": "waiting for instructions",
    "imc_miss": "waiting for constants",
    "branch_resolving": "waiting for branches",
    "drain": "waiting for stores at the end",
    "gmma": "waiting for tensor cores",
    "sleeping": "sleeping on purpose",
    "dispatch_stall": "being held back by the dispatcher",
}
"""Reason to what it means; after NVIDIA's Kernel Profiling Guide, "Warp Stall Reasons"."""
_EVERYWHERE: Final = MEANINGS.keys() - {"gmma"} | {_SELECTED}
"""Reasons that every device since Volta has. Without one of them the sum of the others is no whole; `gmma` (tensor
cores of Hopper) and `misc` exist on some."""
READY: Final = "not_selected"
OF_MEMORY: Final = frozenset(
    {"long_scoreboard", "short_scoreboard", "lg_throttle", "tex_throttle", "mio_throttle", "drain", "membar"}
)
OF_ARITHMETIC: Final = frozenset({"math_pipe_throttle", "gmma", "short_scoreboard", "mio_throttle", "dispatch_stall"})
"""Reasons that follow where memory or the SM is near its peak."""


def stalls(profile: KernelProfile) -> tuple[Stall, ...]:
    """The reasons, the largest share first; shares are of all cycles between two instructions of a warp.

    () where neither those cycles nor all reasons were collected: one reason of many is no share.
    """
    cycles = _cycles(profile.metrics)
    total = _total(profile, cycles)
    if total > 0:
        found = [Stall(reason=reason, cycles=value, fraction=value / total) for reason, value in cycles.items()]
        return _ranked([stall for stall in found if stall.reason != _SELECTED and stall.fraction > 0])
    return _ranked([stall for rule in profile.rules if (stall := _said(rule.message)) is not None])


def _cycles(metrics: Mapping[str, float]) -> dict[str, float]:
    """Reason to the cycles between two instructions of a warp that go into it."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        match = _METRIC.fullmatch(name)
        if match is not None and not match["reason"].endswith(_PARTIAL) and value >= 0:
            found.setdefault(match["reason"], value / 100 if match["percent"] else value)
    return found


def _total(profile: KernelProfile, cycles: Mapping[str, float]) -> float:
    """All cycles between two instructions of a warp; 0 where they are not known.

    As collected; else warps in flight over instructions issued, which is the same; else the sum of all reasons. Passes
    differ, so the whole is never less than its parts.
    """
    metrics = profile.metrics
    active, issued = metrics.get(_ACTIVE, 0.0), metrics.get(_ISSUED, 0.0)
    whole = metrics.get(LATENCY, 0.0) or (active / issued if issued > 0 else 0.0)
    is_complete = cycles.keys() >= _EVERYWHERE and ("gmma" in cycles or not _is_hopper(profile))
    return max(whole, sum(cycles.values())) if cycles and (whole > 0 or is_complete) else 0.0


def _is_hopper(profile: KernelProfile) -> bool:
    major = profile.compute_capability.partition(".")[0]
    return not major.isdecimal() or int(major) == _HOPPER


def evidence(statement: str, stall: Stall) -> Evidence:
    """What is said of a reason, with its metric."""
    metric = f"smsp__average_warps_issue_stalled_{stall.reason}_per_issue_active.ratio"
    return Evidence(statement, metric, stall.cycles, "cycle/inst")


def issue_share(metrics: Mapping[str, float]) -> float | None:
    """The share of its cycles in which a scheduler issues an instruction; None where it was not collected."""
    percent = metrics.get(_ISSUED_PERCENT)  # what the details page prints: one or more eligible
    return metrics.get(_ISSUED, None if percent is None else percent / 100)


def _ranked(found: list[Stall]) -> tuple[Stall, ...]:
    return tuple(sorted(found, key=lambda stall: -stall.fraction))


def _said(message: str) -> Stall | None:
    share = _SHARE.search(message)
    spent = _CYCLES.search(message)
    if share is None or spent is None or float(share[1]) > 100:  # a file's words, which may be anybody's
        return None
    first = message.partition(". ")[0]
    reason = next((reason for said, reason in _SAYINGS if said in first), "")
    return Stall(reason=reason, cycles=float(spent[1]), fraction=float(share[1]) / 100) if reason else None
