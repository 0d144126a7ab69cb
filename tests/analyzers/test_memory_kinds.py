"""What memory is held for at the peak: gradients, activations, ... by when it was allocated and freed, or unknown."""

import json
import random
from typing import Any

import pytest

from profkit.analyzers.allocations.kinds import MemoryKind
from profkit.analyzers.allocations.measured import Held, measure
from profkit.ingest.kineto.reader import read_trace
from profkit.testing import Row, operator, span
from tests.analyzers.test_allocations import EARLIER, GPU, MB, Allocator
from tests.drawing import BASE, NODE, STEP, US, facts_of, triaged


def ranges(step: int, *, without: str = "") -> list[Row]:
    """Forward at 100, backward at 300 to 500, the optimizer at 600 to 700 us, gradients freed at 800."""
    at = BASE + step * STEP
    rows = {
        "step": span(f"ProfilerStep#{step + 3}", at, at + STEP),
        "forward": operator("aten::linear", at + 100 * US, at + 200 * US, Sequence_number=step, Fwd_thread_id=0),
        "backward": operator(NODE + "MmBackward0", at + 300 * US, at + 500 * US, Sequence_number=step, Fwd_thread_id=1),
        "optimizer": span("Optimizer.step#AdamW.step", at + 600 * US, at + 700 * US),
        "zero": span("Optimizer.zero_grad#AdamW.zero_grad", at + 800 * US, at + 900 * US),
    }
    return [row for name, row in rows.items() if name != without]


def train(n: int, of: Allocator, *, first_state: int = 0) -> list[Row]:
    """Each step: a batch of 5, an activation of 70, workspaces of 3, gradients of 40 and 20 MB; state in the first."""
    rows: list[Row] = []
    for step in range(n):
        at = BASE + step * STEP
        rows += ranges(step)
        if step:
            of.free(at + 20 * US, 1)
        of.allocate(at + 30 * US, 1, 5 * MB)  # the batch
        of.allocate(at + 110 * US, 2, 3 * MB)  # a workspace of forward
        of.free(at + 120 * US, 2)
        of.allocate(at + 130 * US, 3, 70 * MB)
        of.allocate(at + 310 * US, 4, 40 * MB)
        of.allocate(at + 320 * US, 5, 3 * MB)  # a workspace of backward, at the peak
        of.free(at + 330 * US, 5)
        of.free(at + 340 * US, 3)
        of.allocate(at + 350 * US, 6, 20 * MB)
        if step == 0 and first_state:
            of.allocate(at + 610 * US, 7, first_state)
        of.allocate(at + 620 * US, 8, 2 * MB)
        of.free(at + 630 * US, 8)
        of.free(at + 810 * US, 4)
        of.free(at + 820 * US, 6)
    return [*rows, *of.rows]


def held(rows: list[Row]) -> Held:
    (one,) = measure(facts_of(rows, deviceProperties=[GPU])).held
    return one


def sizes(one: Held) -> dict[str, float]:
    """MB by kind; what is shown adds up to the peak."""
    assert sum(part.n_bytes for part in one.parts) == one.peak_bytes
    return {part.kind.value: part.n_bytes / MB for part in one.parts}


def test_each_kind_is_told_by_when_it_is_allocated_and_freed() -> None:
    one = held(train(3, Allocator(on_host=True), first_state=120 * MB))
    # in the second step: the batch, the activation, the first gradient, a workspace, and the state of the first step
    assert sizes(one) == {
        "gradients": 40, "optimizer state": 120, "activations": 70, "temporary": 3, "other": 5,
    }  # fmt: skip


def test_of_what_was_there_before_the_parameters_are_as_large_as_their_gradients() -> None:
    one = held(train(3, Allocator()))
    assert sizes(one) == {
        "parameters": 60, "gradients": 40, "activations": 70, "temporary": 3, "other": 5, "unknown": EARLIER / MB - 60,
    }  # fmt: skip
    assert [part.n for part in one.parts if part.kind in {MemoryKind.PARAMETERS, MemoryKind.UNKNOWN}] == [None, None]


def test_what_zero_grad_leaves_is_no_gradient() -> None:
    of = Allocator(on_host=True)
    of.allocate(BASE + 305 * US, 99, 8 * MB)  # a workspace of the first product in backward
    rows = train(3, of)
    assert sizes(held(rows)) == {"gradients": 40, "activations": 70, "temporary": 3, "other": 5 + 8}
    forward = Allocator(on_host=True)  # the peak is in forward, where no gradient is held
    forward.allocate(BASE + 305 * US, 99, 8 * MB)
    forward.allocate(BASE + 320 * US, 4, 40 * MB)
    forward.free(BASE + 810 * US, 4)
    forward.allocate(BASE + STEP + 110 * US, 5, 50 * MB)
    forward.free(BASE + STEP + 120 * US, 5)
    rows = [row for step in range(2) for row in ranges(step)]
    assert sizes(held([*rows, *forward.rows])) == {"temporary": 50, "other": 8}
    kept = Allocator(on_host=True)  # gradients that are set to zero and kept
    kept.allocate(BASE + 310 * US, 4, 40 * MB)
    rows = [row for step in range(3) for row in ranges(step)]
    assert sizes(held([*rows, *kept.rows])) == {"gradients": 40}


def test_gradients_of_one_step_do_not_tell_those_of_all_parameters() -> None:
    assert "parameters" not in sizes(held(train(1, Allocator())))


def test_gradients_that_differ_from_step_to_step_tell_no_parameters() -> None:
    of = Allocator()
    rows = train(3, of)
    at = BASE + 3 * STEP
    of.allocate(at + 310 * US, 4, 45 * MB)
    of.free(at + 810 * US, 4)
    assert "parameters" not in sizes(held([*rows, *ranges(3), *of.rows[-2:]]))


def test_gradients_from_before_the_recording_are_known_when_they_are_freed() -> None:
    of = Allocator()
    of.sizes[9] = 33 * MB
    at = BASE
    of.allocate(at + 130 * US, 3, 70 * MB)
    of.free(at + 340 * US, 3)
    of.free(at + 810 * US, 9)
    assert sizes(held([*ranges(0), *of.rows])) == {"gradients": 33, "activations": 70, "unknown": EARLIER / MB - 33}


@pytest.mark.parametrize(("without", "kind"), [("optimizer", "unknown"), ("", "gradients")])
def test_what_backward_leaves_is_a_gradient_only_if_an_optimizer_follows(without: str, kind: str) -> None:
    of = Allocator(on_host=True)
    of.allocate(BASE + 310 * US, 4, 40 * MB)
    assert sizes(held([*ranges(0, without=without), *of.rows])) == {kind: 40}


@pytest.mark.parametrize(
    ("n_steps", "freed_us", "kind"),
    [(1, None, "unknown"), (1, 180, "temporary"), (2, 1180, "other")],
    ids=["a pass that the recording cuts", "freed in its step", "kept longer"],
)
def test_without_a_backward_pass_results_are(n_steps: int, freed_us: int | None, kind: str) -> None:
    of = Allocator(on_host=True)
    of.allocate(BASE + 130 * US, 3, 70 * MB)
    if freed_us:
        of.free(BASE + freed_us * US, 3)
    rows = [row for step in range(n_steps) for row in ranges(step)]
    rows = [row for row in rows if not row.name.startswith(NODE) and "Optimizer" not in row.name]
    assert sizes(held([*rows, *of.rows])) == {kind: 70}


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up_whatever_is_allocated_and_freed_when(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    of = Allocator(on_host=bool(seed % 2))
    of.total += 100 * MB
    of.sizes = {1000 + place: chance.randrange(1, MB) for place in range(20)}
    for place, at in enumerate(sorted(chance.sample(range(4 * STEP // US), 300))):
        if of.sizes and chance.random() < 0.45:
            of.free(BASE + at * US, chance.choice(list(of.sizes)))
        else:
            of.allocate(BASE + at * US, place, chance.randrange(1, 2 * MB))
    one = held([*(row for step in range(4) for row in ranges(step)), *of.rows])
    if one.earlier_bytes is None:
        assert one.parts == ()
    else:
        sizes(one)


def test_the_report_shows_the_parts() -> None:
    rank = triaged(train(3, Allocator()), deviceProperties=[GPU]).rank
    section = next(one for one in rank.sections if one.analyzer == "allocations")
    parts = section.values["peak_parts"]
    assert parts["activations"] == 70 * MB
    assert sum(parts.values()) == section.values["peak_bytes"]
    table = next(one for one in section.tables if one.title.startswith("what the memory of GPU 0 is for"))
    assert table.rows[0] == ("parameters", "as large as their gradients", None, 60 * MB, pytest.approx(60 / 518))


def test_a_model_on_the_host_has_the_bytes_that_it_must_have(tmp_path: Any) -> None:
    """Three layers without bias: activations of 64 KiB, Adam's state twice the weights."""
    torch = pytest.importorskip("torch")
    width, rows = 64, 256
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(3)]
    model = torch.nn.Sequential(layers[0], torch.nn.Sigmoid(), layers[1], torch.nn.Sigmoid(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    batch = torch.randn(rows, width)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
    torch.set_num_threads(threads)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    (one,) = measure(facts_of(read_trace(str(path)))).held
    parts = {part.kind: part.n_bytes for part in one.parts}
    assert sum(parts.values()) == one.peak_bytes, json.dumps(parts)
    weights, activation = 3 * width * width * 4, rows * width * 4
    assert parts[MemoryKind.OPTIMIZER] == 2 * weights + 3 * 4  # and a count of steps for each
    assert parts[MemoryKind.ACTIVATIONS] // activation == 3  # the two sigmoids, and what is squared
    assert parts.get(MemoryKind.UNKNOWN, 0) == 0
