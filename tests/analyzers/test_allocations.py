"""Memory that is held: the peak, what holds it, what grows from step to step, what is reserved and unused."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.analyzers.allocations import measure
from profkit.analyzers.allocations.measured import Allocations
from profkit.model.code import Phase
from profkit.model.finding import Skipped
from profkit.testing import HOST_PID, Row, operator, span
from tests.drawing import BASE, NODE, STEP, US, facts_of, finding_in, launched

MB = 10**6
EARLIER = 400 * MB


class Allocator:
    """The rows of allocations and frees on one device, with the totals after each."""

    def __init__(self, *, on_host: bool = False, reserved: int = 2000 * MB) -> None:
        self.rows: list[Row] = []
        self.total = 0 if on_host else EARLIER
        self.on_host, self.reserved = on_host, 0 if on_host else reserved
        self.sizes: dict[int, int] = {}

    def event(self, at_ns: int, address: int, n_bytes: int, **left_out: Any) -> None:
        self.total += n_bytes
        args = {
            "Addr": address,
            "Bytes": n_bytes,
            "Total Allocated": self.total,
            "Total Reserved": self.reserved,
            "Device Type": 0 if self.on_host else 1,
            "Device Id": -1 if self.on_host else 0,
        }
        kept = {key: value for key, value in args.items() if key not in left_out.get("without", ())}
        row = Row(name="[memory]", cat="cpu_instant_event", ph="i", start_ns=at_ns, end_ns=at_ns, args=kept)
        self.rows.append(row)

    def allocate(self, at_ns: int, address: int, n_bytes: int, **left_out: Any) -> None:
        self.sizes[address] = n_bytes
        self.event(at_ns, address, n_bytes, **left_out)

    def free(self, at_ns: int, address: int, **left_out: Any) -> None:
        self.event(at_ns, address, -self.sizes.pop(address), **left_out)


def steps(n: int, of: Allocator, *, kept: tuple[int, ...] = (), without: tuple[str, ...] = ()) -> list[Row]:
    """Steps that allocate 100 MB in linear and 50 MB in its backward node and free both; step i keeps kept[i] more."""
    rows: list[Row] = []
    for step in range(n):
        at = BASE + step * STEP
        rows += [
            span(f"ProfilerStep#{step + 3}", at, at + STEP),
            operator("aten::linear", at + 100 * US, at + 200 * US, Sequence_number=step, Fwd_thread_id=0),
            operator("aten::empty", at + 110 * US, at + 120 * US),
            operator(NODE + "AddmmBackward0", at + 500 * US, at + 700 * US, Sequence_number=step, Fwd_thread_id=1),
            *launched("gemm", at + 130 * US, at + 150 * US, at + 900 * US, step + 1, call_ns=10 * US),
        ]
        of.allocate(at + 115 * US, 1, 100 * MB, without=without)
        if step < len(kept) and kept[step]:
            of.allocate(at + 118 * US, 100 + step, kept[step], without=without)
        of.allocate(at + 600 * US, 2, 50 * MB, without=without)
        of.free(at + 650 * US, 1, without=without)
        of.free(at + 950 * US, 2, without=without)
    return [*rows, *of.rows]


GPU = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 2400 * MB}


def measured(rows: list[Row]) -> Allocations:
    return measure(facts_of(rows, deviceProperties=[GPU]))


def found(rows: list[Row], finding_id: str, **device: Any) -> Any:
    return finding_in(rows, finding_id, deviceProperties=[GPU | device])


def test_the_peak_has_its_step_its_phase_and_what_holds_it() -> None:
    (held,) = measured(steps(6, Allocator(), kept=(0, 0, 30 * MB))).held
    assert held.peak_bytes == EARLIER + 180 * MB
    assert (held.step, held.phase, held.where) == (5, Phase.BACKWARD, "AddmmBackward0")
    assert held.earlier_bytes == EARLIER
    assert [(one.phase, one.where, one.n, one.n_bytes) for one in held.holders] == [
        (Phase.FORWARD, "aten::linear", 2, 130 * MB),
        (Phase.BACKWARD, "AddmmBackward0", 1, 50 * MB),
    ]
    assert held.unused_bytes == 2000 * MB - held.peak_bytes


def test_what_a_step_keeps_in_every_step_is_a_leak() -> None:
    leak = found(steps(8, Allocator(), kept=(4 * MB,) * 8), "memory.leak")
    assert leak.evidence[0].value == 4 * MB
    assert "from 404 MB at the end of step 3 to 432 MB at the end of step 10" in leak.evidence[0].statement
    assert leak.evidence[1].statement == "100.0 % of what stays was allocated by aten::linear (forward)"
    assert leak.evidence[2].value == (2400 - 432) // 4
    assert leak.recoverable_ns == 0


def test_a_leak_on_the_host_is_one_too() -> None:
    leak = found(steps(8, Allocator(on_host=True), kept=(4 * MB,) * 8), "memory.leak")
    assert leak.title == "memory on the host grows by 4.00 MB in each step"
    assert len(leak.evidence) == 2  # how much the host has is not known


@pytest.mark.parametrize(
    ("n", "kept"),
    [
        (8, ()),
        (8, (200 * MB,)),  # the optimizer's state, made in the first step
        (8, (4 * MB,) * 5),  # it ends
        (4, (4 * MB,) * 4),  # too few steps
        (8, (MB, 9 * MB, MB, 9 * MB, MB, 9 * MB, MB, 9 * MB)),  # it follows the batches
        (8, (512,) * 8),  # a scalar of the log
    ],
)
def test_what_is_no_leak(n: int, kept: tuple[int, ...]) -> None:
    assert found(steps(n, Allocator(), kept=kept), "memory.leak") is None


def test_without_addresses_a_leak_is_known_and_what_holds_it_is_not() -> None:
    rows = steps(8, Allocator(), kept=(4 * MB,) * 8, without=("Addr",))
    (held,) = measured(rows).held
    assert held.earlier_bytes is None
    assert held.holders == ()
    assert [one.metric for one in found(rows, "memory.leak").evidence] == [
        "allocations.growth_bytes_per_step",
        "allocations.n_steps_left",
    ]


@pytest.mark.parametrize(
    ("reserved", "is_said"),
    [(2000, True), (1800, False), (600, False)],  # of 2400: 83 % with 550 in use; 75 %; all in use
)
def test_reserved_memory_in_no_tensor_counts_where_the_device_is_nearly_full(reserved: int, is_said: bool) -> None:
    one = found(steps(6, Allocator(reserved=reserved * MB)), "memory.fragmented")
    assert (one is not None) == is_said
    if one is not None:
        assert one.evidence[0].value == (2000 - 550) * MB
        assert "1.45 GB of the 2.00 GB" in one.evidence[0].statement


def test_a_full_device_whose_tensors_use_it_is_healthy() -> None:
    assert found(steps(6, Allocator(reserved=600 * MB)), "memory.fragmented", totalGlobalMem=650 * MB) is None


def test_totals_that_the_trace_does_not_tell_are_missing() -> None:
    rows = steps(6, Allocator(), without=("Total Allocated", "Total Reserved", "Addr"))
    assert isinstance(measure(facts_of(rows)), Skipped)


def test_allocations_that_do_not_add_up_to_the_total_hold_nothing() -> None:
    allocator = Allocator()
    rows = steps(6, allocator)
    allocator.total = 0  # of another process
    allocator.event(BASE + 10 * US, 7, 900 * MB)
    allocator.total -= 300 * MB
    allocator.event(BASE + 6 * STEP - US, 8, MB)
    (held,) = measured([*rows, *allocator.rows[-2:]]).held
    assert held.peak_bytes == 900 * MB
    assert held.earlier_bytes == 0


def test_memory_of_another_thread_is_placed_on_that_thread() -> None:
    allocator = Allocator()
    rows = steps(6, allocator)
    allocator.allocate(BASE + 5 * STEP + 960 * US, 9, 900 * MB)
    late = allocator.rows[-1]
    other = replace(late, tid=HOST_PID + 1)
    inside = operator("aten::copy_", late.start_ns - US, late.end_ns + US, tid=HOST_PID + 1)
    (held,) = measured([*rows, inside, other]).held
    assert held.where == "aten::copy_"


def test_totals_of_two_processes_are_not_one() -> None:
    allocator = Allocator()
    rows = steps(6, allocator)
    other = [replace(row, pid=77, start_ns=row.start_ns + 1, end_ns=row.end_ns + 1) for row in allocator.rows]
    assert isinstance(measure(facts_of([*rows, *other])), Skipped)
