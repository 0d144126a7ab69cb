"""A kernel report as JSON: `profkit schema kernels` prints its schema."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import asdict

from profkit.model.kernel import Advice, KernelAssessment, KernelProfile, KernelReport, Roofline
from profkit.render.json.values import evidence_to_dict, written
from profkit.version import __version__

SCHEMA_ID: Final = "profkit.kernels/1"


def render(report: KernelReport, *, width: int | None = None, color: bool | None = None, verbose: bool = False) -> str:
    """The document as text."""
    return written(kernels_to_dict(report))


def kernels_to_dict(report: KernelReport) -> dict[str, Any]:
    """The document as plain values; times in ns, percent as ncu prints them (0-100), what is absent None."""
    return {
        "schema": SCHEMA_ID,
        "profkit_version": __version__,
        "sources": list(report.sources),
        "kernels": [_kernel(one) for one in report.kernels],
        "warnings": list(report.warnings),
    }


def _kernel(one: KernelAssessment) -> dict[str, Any]:
    return {
        **_profile(one.profile),
        "duration_ns": one.duration_ns,
        "speed_of_light": {
            "class": one.speed.kernel_class.value,
            "title": one.speed.title,
            "is_near_roof": one.speed.is_near_roof,
            "compute_percent": one.speed.compute_percent,
            "memory_percent": one.speed.memory_percent,
            "agrees_with_ncu": one.speed.agrees_with_ncu,
        },
        "occupancy": asdict(one.occupancy) | {"limiters": list(one.occupancy.limiters)},
        "waves": None if one.waves is None else asdict(one.waves),
        "roofline": None if one.roofline is None else _roofline(one.roofline),
        "stalls": [asdict(stall) for stall in one.stalls],
        "busiest_pipe": None if one.busiest_pipe is None else asdict(one.busiest_pipe),
        "evidence": [evidence_to_dict(item) for item in one.evidence],
        "advice": [_advice(item) for item in one.advice],
    }


def _advice(item: Advice) -> dict[str, Any]:
    return {
        "topic": item.topic.value,
        "fix": item.fix,
        "because": evidence_to_dict(item.because),
        "at_most_fraction": item.at_most,
        "ncu_estimate": None if item.estimate is None else asdict(item.estimate),
    }


def _profile(profile: KernelProfile) -> dict[str, Any]:
    return {
        "source": profile.source,
        "number": profile.number,
        "name": profile.name,
        "function": profile.function,
        "grid": None if profile.grid is None else list(profile.grid),
        "block": None if profile.block is None else list(profile.block),
        "process_id": profile.process_id,
        "device": profile.device,
        "device_name": profile.device_name,
        "compute_capability": profile.compute_capability,
        "n_launches": profile.n_launches,
        "n_metrics": len(profile.metrics),
        "n_unmeasured": len(profile.unmeasured),
        "rules": [asdict(rule) for rule in profile.rules],
    }


def _roofline(roof: Roofline) -> dict[str, Any]:
    return {
        **asdict(roof),
        "intensity_flop_per_byte": roof.intensity,
        "ridge_flop_per_byte": roof.ridge,
        "roof_fraction": roof.roof_fraction,
    }
