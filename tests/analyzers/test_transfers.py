"""What copies can give back: hidden under what there is, and at the rate of the link; each bound by itself."""

from typing import Any

import pytest

from profkit.analyzers.transfers import judge, measure
from profkit.model.finding import Finding
from profkit.testing import Row, launch
from tests.drawing import BASE, STEP, US, facts_of, in_steps, launched

A100, H100, UNKNOWN = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB"


def copies(*drawn: tuple[str, str, int, int, int], work: tuple[int, int], device: str) -> dict[str, Finding]:
    """Findings of four equal steps: (direction, memory, start us, end us, bytes) each, and one kernel."""

    def in_step(base: int, step: int) -> list[Row]:
        first = 1 + step * (len(drawn) + 1)
        begin, end = base + work[0] * US, base + work[1] * US
        rows = launched("gemm_bf16", begin - 6, begin, end, first, call_ns=2)
        for number, (direction, memory, start, end, n_bytes) in enumerate(drawn, first + 1):
            name = f"Memcpy HtoD ({memory} -> Device)" if direction == "to" else f"Memcpy DtoH (Device -> {memory})"
            stream = 8 if direction == "to" else 9
            args: dict[str, Any] = {"device": 0, "stream": stream, "correlation": number, "bytes": n_bytes}
            at = base + start * US
            rows.append(Row(name=name, cat="gpu_memcpy", start_ns=at, end_ns=base + end * US, args=args))
            rows.append(launch(at - 6, at - 4, correlation=number, name="cudaMemcpyAsync"))
        return rows

    rows = in_steps(4, STEP, in_step, begin_ns=BASE)
    facts = facts_of(rows, deviceProperties=[{"id": 0, "name": device, "totalGlobalMem": 2**30}])
    return {one.id: one for one in judge(measure(facts))}


def said(one: Finding) -> str:
    return " | ".join(item.statement for item in one.evidence)


def test_a_pageable_copy_can_be_faster_and_hidden_and_each_is_bounded() -> None:
    """20.97 MB in 834 us of a step of 1,000: at 63 GB/s 333 us, the least that such a step can take."""
    one = copies(("to", "Pageable", 0, 834, 20_971_520), work=(840, 872), device=H100)["h2d.exposed"]
    assert one.recoverable_ns == pytest.approx(667 * US, abs=US)
    assert "overlap alone saves at most 166 us per step, pinned memory alone at most 501 us" in said(one)
    assert "pin_memory" in one.fix
    unknown = copies(("to", "Pageable", 0, 834, 20_971_520), work=(840, 872), device=UNKNOWN)["h2d.exposed"]
    assert unknown.recoverable_ns == 834 * US
    assert "pinned memory may be several times as fast" in said(unknown)


def test_pinned_copies_at_the_rate_of_the_link_are_hidden_at_most() -> None:
    """At 25 GB/s: 400 us hide under 590 us of kernel; of 834 us, 166 us would hide, and fewer bytes come first."""
    short = copies(("to", "Pinned", 0, 400, 10_000_000), work=(401, 991), device=A100)["h2d.exposed"]
    assert short.recoverable_ns == 400 * US
    assert "overlap alone" not in said(short)
    assert short.fix.startswith("copy one batch ahead")
    some = copies(("to", "Pinned", 0, 600, 15_000_000), work=(601, 991), device=A100)["h2d.exposed"]
    assert some.recoverable_ns == 400 * US
    assert "overlap alone saves at most 400 us per step: there is no more compute" in said(some)
    long = copies(("to", "Pinned", 0, 834, 20_850_000), work=(840, 872), device=A100)["h2d.exposed"]
    assert long.recoverable_ns == 834 * US
    assert long.fix.startswith("send fewer bytes")
    assert "overlap alone saves at most 166 us" in said(long)


@pytest.mark.parametrize(
    ("n_bytes", "memory", "device", "is_slow"),
    [
        (4_000_000, "Pinned", A100, True),
        (7_600_000, "Pinned", A100, False),  # over 30 % of 31.5 GB/s
        (4_000_000, "Pinned", UNKNOWN, False),
        (4_000_000, "Pageable", A100, False),
        (1_000_000, "Pinned", A100, False),  # below 1 MiB
    ],
)
def test_pinned_memory_far_below_the_link_is_said(n_bytes: int, memory: str, device: str, *, is_slow: bool) -> None:
    one = copies(("to", memory, 0, 800, n_bytes), work=(801, 991), device=device)["h2d.exposed"]
    assert ("far below what pinned memory gets" in said(one)) is is_slow
    assert ("numactl" in one.fix) is is_slow


def test_copies_of_both_directions_at_once_are_not_alone_twice() -> None:
    drawn = ("to", "Pinned", 0, 800, 20_000_000), ("from", "Pinned", 0, 500, 12_500_000)
    both = copies(*drawn, work=(801, 991), device=A100)
    to, back = said(both["h2d.exposed"]), said(both["d2h.exposed"])
    assert "800 us per step while no kernel runs (80.0 % of the window), 50.0 % beside copies from the device" in to
    assert "500 us per step while no kernel runs (50.0 % of the window), 50.0 % beside copies to the device" in back
    assert "all 4 copies come from pinned memory" in to
    assert "overlap alone saves at most 0 ns" in back
    drawn = ("to", "Pinned", 0, 300, 7_500_000), ("from", "Pinned", 300, 500, 5_000_000)
    apart = copies(*drawn, work=(501, 991), device=A100)
    assert "while nothing else runs" in said(apart["h2d.exposed"])
    assert apart["d2h.exposed"].recoverable_ns == 200 * US
