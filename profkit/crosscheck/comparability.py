"""Whether two traces are of one workload: refused where not, and what else differs where they are."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.crosscheck.launch_match import Match, match, paired_steps
from profkit.crosscheck.trace_profile import Portrait
from profkit.findings.crosscheck import REFUSED
from profkit.units import format_count, format_fraction, format_speedup

USUAL_RATIO: Final = (0.5, 2.0)
"""The length of a kernel over that of its partner, outside which the two are not of one workload. Chosen: over 9 pairs
of real runs of one job the median is 1.00, and clocks move it by a third."""
SAME_LAUNCHES: Final = 0.1
"""Share by which the launches per step may differ. Chosen: 7 % between runs of one job for which cudnn chose other
kernels each time, 21 % between ranks that do other work."""


def unpairable(first: Portrait, second: Portrait) -> str:
    """Why the two cannot be set against each other at all, "" where they can."""
    for side in (first, second):
        if side.device < 0:
            return f"{side.possessive} trace has no kernels of a GPU"
        if not side.step_ns.size:
            return (
                f"{side.possessive} trace has no steps, so nothing can be compared per step (profkit nsys marks them)"
            )
        if not side.launches.key.size:
            return f"no kernels were launched inside the steps of {side.possessive} trace"
    names = [side.device_name for side in (first, second)]
    if all(names) and names[0] != names[1]:
        return f"recorded on different devices: {names[0]} and {names[1]}"
    return ""


def not_the_same(first: Portrait, second: Portrait, found: Match, *, has_shapes: bool) -> str:
    """Why two traces with these matches are not of one workload, "" where they are."""
    limit = REFUSED.limit("matched" if has_shapes else "named")
    if found.time_share < limit:
        return _unmatched(first, second, found, limit, has_shapes=has_shapes)
    ratio = compute_ratio(first, second, found)
    if USUAL_RATIO[0] <= ratio <= USUAL_RATIO[1]:
        return ""
    return (
        f"the same kernels take {format_speedup(ratio)} as long under {second.tool} (median): another batch size with"
        " the same grids, or other clocks"
    )


def compute_ratio(first: Portrait, second: Portrait, found: Match) -> float:
    """How long matched kernels take under the second tool, median; collectives wait, and do not count."""
    comm = {
        key
        for side in (first.launches, second.launches)
        for key, is_comm in zip(side.keys, side.is_comm.tolist(), strict=True)
        if is_comm
    }
    is_compute = np.array([key not in comm for key in found.keys], np.bool_)[found.key]
    ratios = found.second_ns[is_compute] / np.maximum(found.first_ns[is_compute], 1)
    return float(np.median(ratios)) if ratios.size else 1.0


def differing(first: Portrait, second: Portrait, found: Match, n_pairs: int) -> str:
    """What makes the runs differ though they are of one workload, "" for nothing: then one may judge the other."""
    ranks = first.rank.rank, second.rank.rank
    if None not in ranks and ranks[0] != ranks[1]:
        return f"the runs differ: rank {ranks[0]} by {first.tool}, rank {ranks[1]} by {second.tool}"
    counts = found.first.n / n_pairs, found.second.n / n_pairs
    if min(counts) >= (1 - SAME_LAUNCHES) * max(counts):
        return ""
    ours, theirs = (format_count(round(count)) for count in counts)
    return f"the runs differ: {ours} launches per step by {first.tool}, {theirs} by {second.tool}"


def _unmatched(first: Portrait, second: Portrait, found: Match, limit: float, *, has_shapes: bool) -> str:
    shares = f"{format_fraction(found.first.time_share)} of {first.possessive} kernel time and"
    shares += f" {format_fraction(found.second.time_share)} of {second.possessive} has a partner"
    by = "function, grid, block and order in the step" if has_shapes else "function and order in the step alone"
    why = f"not the same workload: by {by}, {shares}; both need {format_fraction(limit)}"
    graphs = [side.tool for side in (first, second) if side.launches.n_graphs]
    if len(graphs) == 1:
        return f"{why} ({graphs[0]} recorded CUDA graphs without their kernels: record again with --also graphs)"
    if has_shapes:
        pairs, _ = paired_steps(first.step_numbers, second.step_numbers)
        by_name = match(first.launches.named(), second.launches.named(), pairs).time_share
        if by_name >= REFUSED.limit("named"):
            return f"{why} ({format_fraction(by_name)} by function alone: another batch size or other shapes?)"
    return why
