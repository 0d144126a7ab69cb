"""A GPU that the file lists, and that stands idle while all work is on the CPU."""

from __future__ import annotations

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import operators
from profkit.findings.kernels import UNUSED_DEVICE
from profkit.model.finding import Evidence, Finding
from profkit.units import format_fraction


def idle_device(scope: Scope, device: str, computing: float) -> tuple[Finding, ...]:
    """`device.unused`, where operators of the CPU take a good part (0-1) of the window."""
    if not device or computing < UNUSED_DEVICE.limit("compute"):
        return ()
    return (
        UNUSED_DEVICE.found(
            title=f"all work is on the CPU, while {device} stands idle",
            confidence=0.8,
            recoverable_ns=0,
            fraction=computing,
            evidence=(
                Evidence(
                    statement=f"the file lists {device} and holds no call to it; operators on the CPU take"
                    f" {format_fraction(computing)} of the window",
                    metric="patterns.computing_fraction",
                    value=computing,
                    unit="fraction",
                ),
            ),
            fix=UNUSED_DEVICE.fixes[0],
            next_tools=(
                operators(
                    scope,
                    "change that, then record again: how long is the step on the GPU?",
                    "kernels in the trace; profkit compare OLD NEW says what it gave",
                ),
            ),
        ),
    )
