"""Step markers that are no steps, and neighbours that overlap by a hair."""

import pytest

from profkit.model.trace import Trace
from profkit.pipeline import triage_trace
from profkit.testing import Row, kernel, launch, span, trace_of

US = 1000
BASE = 10**9
STEP = 1000 * US


def job(n_steps: int = 4, *, over_ns: int = 0, on_device: bool = True) -> list[Row]:
    """Marked steps of 1 ms, each with a copy of 8 MB and a kernel, or with an operator alone."""
    rows = []
    for k in range(n_steps):
        start = BASE + k * STEP
        rows.append(span(f"ProfilerStep#{k}", start, start + STEP + over_ns))
        rows.append(span("aten::mm", start + 100 * US, start + 900 * US, cat="cpu_op"))
        if on_device:
            arguments = {"device": 0, "stream": 7, "correlation": 2 * k + 1, "bytes": 8 * 10**6}
            name = "Memcpy HtoD (Pageable -> Device)"
            copy = Row(name=name, cat="gpu_memcpy", start_ns=start + 110 * US, end_ns=start + 400 * US, args=arguments)
            call = launch(start + 105 * US, start + 108 * US, correlation=2 * k + 1, name="cudaMemcpyAsync")
            asked = launch(start + 395 * US, start + 398 * US, correlation=2 * k + 2)
            rows += [copy, call, asked, kernel("gemm", start + 400 * US, start + 900 * US, correlation=2 * k + 2)]
    return rows


def empty(k: int, length_ns: int = 15 * US) -> Row:
    return span(f"ProfilerStep#{k}", BASE + k * STEP, BASE + k * STEP + length_ns)


def warned(trace: Trace) -> list[str]:
    return [warning.message for warning in trace.warnings if warning.id == "steps.empty"]


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("length_ns", [15 * US, 100 * STEP])
def test_an_empty_last_marker_is_no_step(length_ns: int, *, on_device: bool) -> None:
    trace = trace_of([*job(on_device=on_device), empty(4, length_ns)])
    assert [step.number for step in trace.steps] == [0, 1, 2, 3]
    assert trace.window_ns == (BASE, BASE + 4 * STEP)
    assert len(warned(trace)) == 1
    assert "the last marked step is left out: nothing was launched in it" in warned(trace)[0]


def test_one_step_and_an_empty_one_are_one_step() -> None:
    alone, _ = triage_trace(trace_of(job(1)))
    followed, _ = triage_trace(trace_of([*job(1), empty(1)]))
    assert followed.steps == alone.steps
    assert followed.sections == alone.sections
    assert followed.findings == alone.findings


def test_an_empty_first_marker_is_no_step() -> None:
    rows = job(3)
    trace = trace_of([span("ProfilerStep#9", BASE - 5 * US, BASE), *rows])
    assert [step.number for step in trace.steps] == [0, 1, 2]
    assert "the first marked step is left out" in warned(trace)[0]


def test_an_empty_step_between_others_stays() -> None:
    rows = [row for row in job(4) if row.name.startswith("ProfilerStep") or not 1 <= (row.start_ns - BASE) // STEP < 2]
    trace = trace_of(rows)
    assert len(trace.steps) == 4
    assert warned(trace) == []


def test_markers_without_any_work_stay() -> None:
    assert len(trace_of([empty(0), empty(1), empty(2)]).steps) == 3


def test_a_step_whose_kernels_were_lost_stays() -> None:
    rows = job(4)
    lost = [row for row in rows if not (row.cat in {"kernel", "gpu_memcpy"} and row.start_ns > BASE + 3 * STEP)]
    assert len(trace_of(lost).steps) == 4


@pytest.mark.parametrize("over_ns", [1, 83, 1000])
def test_markers_that_overlap_by_a_hair_are_neighbours(over_ns: int) -> None:
    trace = trace_of(job(5, over_ns=over_ns))
    assert [step.number for step in trace.steps] == [0, 1, 2, 3, 4]
    assert [step.duration_ns for step in trace.steps] == [STEP, STEP, STEP, STEP, STEP + over_ns]


def test_a_marker_inside_another_is_no_step() -> None:
    inside = [span("ProfilerStep#7", BASE + 10 * US, BASE + 500 * US), span("ProfilerStep#8", BASE + 100, BASE + 900)]
    assert [step.number for step in trace_of([*job(3), *inside]).steps] == [0, 1, 2]


@pytest.mark.parametrize(("length_ns", "n_steps"), [(15 * US, 2), (STEP, 3)])
def test_a_marker_in_which_the_device_works_off_the_rest_is_a_step_if_it_is_as_long(
    length_ns: int, n_steps: int
) -> None:
    rows = [*job(2), empty(2, length_ns)]
    late = kernel("gemm", BASE + 2 * STEP + 5 * US, BASE + 3 * STEP, correlation=9)
    asked = launch(BASE + 2 * STEP - 50 * US, BASE + 2 * STEP - 40 * US, correlation=9)
    assert len(trace_of([*rows, late, asked]).steps) == n_steps
