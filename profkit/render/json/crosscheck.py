"""The hand-over as plain values, for the triage document."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from profkit.render.json.values import evidence_to_dict, tool_to_dict

if TYPE_CHECKING:
    from profkit.model.documents.handover import Handover, KernelHandover, MatchedSide, ProfiledKernel, TimelineHandover
    from profkit.model.documents.rank_report import RankReport

    RankDict = Callable[[RankReport], dict[str, Any]]


def handover_to_dict(told: Handover, rank_to_dict: RankDict) -> dict[str, Any]:
    """The hand-over; `rank_to_dict` gives a rank as the document has it."""
    return {
        "status": told.status.value,
        "sentence": told.sentence,
        "timelines": [_timeline(timeline, rank_to_dict) for timeline in told.timelines],
        "kernels": None if told.kernels is None else _kernels(told.kernels),
        "unpaired": list(told.unpaired),
    }


def _timeline(line: TimelineHandover, rank_to_dict: RankDict) -> dict[str, Any]:
    return {
        "rank": line.rank,
        "source": line.source,
        "first_tool": line.first_tool,
        "second_tool": line.second_tool,
        "first_bottleneck": line.first_bottleneck,
        "second_bottleneck": line.second_bottleneck,
        "status": line.status.value,
        "sentence": line.sentence,
        "evidence": [evidence_to_dict(item) for item in line.evidence],
        "paired_by": line.paired_by or None,
        "n_pairs": line.n_pairs,
        "first": None if line.first is None else _side(line.first),
        "second": None if line.second is None else _side(line.second),
        "has_shapes": line.has_shapes,
        "functions": [
            {
                "function": row.function,
                "family": row.family,
                "first_count": row.first_count,
                "second_count": row.second_count,
                "first_ns": row.first_ns,
                "second_ns": row.second_ns,
                "n_matched": row.n_matched,
                "ratio": row.ratio,
            }
            for row in line.functions
        ],
        "parts": [
            {
                "part": part.part,
                "first": part.first,
                "second": part.second,
                "difference": part.difference,
                "allowed": part.allowed,
                "agrees": part.agrees,
            }
            for part in line.parts
        ],
        "confidence": {
            "before": line.confidence_before,
            "after": line.confidence_after,
            "why": line.confidence_why or None,
        },
        "explained": [evidence_to_dict(item) for item in line.explained],
        "next_tool": None if line.next_tool is None else tool_to_dict(line.next_tool),
        "other_rank": None if line.other_rank is None else rank_to_dict(line.other_rank),
    }


def _side(side: MatchedSide) -> dict[str, Any]:
    return {
        "n_steps": side.n_steps,
        "step_ns": side.step_ns,
        "unprofiled_step_ns": side.unprofiled_step_ns,
        "n_launches": side.n_launches,
        "n_matched": side.n_matched,
        "kernel_ns": side.kernel_ns,
        "matched_ns": side.matched_ns,
        "launch_fraction": side.launch_fraction,
        "time_fraction": side.time_fraction,
    }


def _kernels(kernels: KernelHandover) -> dict[str, Any]:
    return {
        "rank": kernels.rank,
        "sources": list(kernels.sources),
        "status": kernels.status.value,
        "sentence": kernels.sentence,
        "evidence": [evidence_to_dict(item) for item in kernels.evidence],
        "step_ns": kernels.step_ns,
        "kernel_ns": kernels.kernel_ns,
        "busy_ns": kernels.busy_ns,
        "covered_ns": kernels.covered_ns,
        "by_class_ns": dict(kernels.by_class),
        "kernels": [_kernel(kernel) for kernel in kernels.kernels],
        "unmatched": list(kernels.unmatched),
        "next_tool": None if kernels.next_tool is None else tool_to_dict(kernels.next_tool),
    }


def _kernel(kernel: ProfiledKernel) -> dict[str, Any]:
    return {
        "function": kernel.function,
        "grid": None if kernel.grid is None else list(kernel.grid),
        "block": None if kernel.block is None else list(kernel.block),
        "class": kernel.kernel_class,
        "count": kernel.count,
        "kernel_ns": kernel.kernel_ns,
        "mean_ns": kernel.mean_ns,
        "ncu_ns": kernel.ncu_ns,
        "roof_percent": kernel.roof_percent,
        "recoverable_ns": kernel.recoverable_ns,
        "n_profiles": kernel.n_profiles,
    }
