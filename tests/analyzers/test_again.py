"""Backward passes that go through the same graph again: losses, inputs and rows one by one, and healthy twins."""

from collections.abc import Iterable
from typing import Any

import pytest

from profkit.testing import Row
from tests.drawing import ACCUMULATES, NODE, US, at, finding_in, frame, ranged, steps_of

N_STEPS = 4
LAYERS = (("Tanh", 3), ("Addmm", 2), ("Tanh", 1), ("Addmm", 0))
"""The layers that all share: a node's name and number, the last one first."""


class Drawn:
    """Rows of a step, one behind the other; each operator takes 8 us, each node of the backward pass 20 us."""

    def __init__(self, step: int) -> None:
        self.step, self.now, self.rows = step, 0.0, list[Row]()

    def op(self, name: str, number: int = -1, us: float = 8) -> None:
        told = {"Sequence_number": 100 * self.step + number, "Fwd_thread_id": 0} if number >= 0 else {}
        self.rows.append(at(self.step, name, self.now, self.now + us, **told))
        self.now += us

    def forward(self, *heads: int) -> None:
        for name, number in (*reversed(LAYERS), *(("mm", number) for number in heads)):
            self.op(f"aten::{name.lower()}", number)

    def node(self, name: str, number: int, *inner: tuple[str, int], us: float = 20) -> None:
        begin, told = self.now, {"Sequence_number": 100 * self.step + number, "Fwd_thread_id": 1}
        self.rows.append(at(self.step, f"{NODE}{name}Backward0", begin, begin + us, **told))
        for place, (one, made) in enumerate(inner):
            numbered = {"Sequence_number": 100 * self.step + made, "Fwd_thread_id": 0}
            self.rows.append(at(self.step, one, begin + 1 + 2 * place, begin + 2 + 2 * place, **numbered))
        self.now += us

    def store(self, *, adds: bool) -> None:
        begin = self.now
        self.rows.append(at(self.step, ACCUMULATES, begin, begin + 5))
        self.rows.append(at(self.step, "torch::autograd::AccumulateGrad", begin + 1, begin + 4))
        self.rows.append(at(self.step, "aten::add_" if adds else "aten::detach", begin + 2, begin + 3))
        self.now += 5

    def backward(self, head: int, *, adds: bool) -> None:
        """A pass of a loss: its own layer, then those that all share, which have a gradient already or not."""
        self.op("aten::ones_like")
        self.node("Mm", head)
        self.store(adds=False)
        for name, number in LAYERS:
            self.node(name, number)
            if name == "Addmm":
                self.store(adds=adds)

    def ends(self) -> list[Row]:
        """All rows, other work behind them, and the optimizer's step."""
        self.op("aten::sort", us=max(890 - self.now, 1))
        return [*self.rows, ranged(self.step, "Optimizer.step#SGD.step", 900, 920)]


SHARED_NS = (4 * 20 + 2 * 5) * US


def losses(step: int, *between: str, adds: bool = True, first: int = 4) -> list[Row]:
    """Three losses of one forward pass that call backward one by one."""
    drawn = Drawn(step)
    drawn.forward(4, 5, 6)
    for head in (4, 5, 6):
        drawn.backward(head, adds=adds and head > first)
        for name in between:
            drawn.op(name)
    return drawn.ends()


def found(made: Any, finding_id: str = "work.backward_again") -> Any:
    """The finding in steps of these rows."""
    return finding_in(steps_of(N_STEPS, made), finding_id)


def test_losses_that_share_layers_and_call_backward_one_by_one_are_told_what_one_pass_spares() -> None:
    one = found(losses)
    assert one.title == "3 backward passes go through the same layers, one for each loss"
    assert one.evidence[0].value == N_STEPS * 2 * SHARED_NS, "the nodes of each loss alone stay"
    assert one.recoverable_ns == 2 * SHARED_NS
    assert one.fix.startswith("add the losses")


def test_a_look_at_a_loss_between_is_no_look_at_its_gradients() -> None:
    assert found(lambda step: losses(step, "aten::item")).recoverable_ns == 2 * SHARED_NS


def test_the_lines_are_those_that_call_the_passes() -> None:
    def calls(step: int) -> Iterable[Row]:
        yield frame(step, "train.py(30): train", 0.5, 800)
        nodes = [row for row in losses(step) if row.name == f"{NODE}MmBackward0"]
        for row in nodes:
            begin = (row.start_ns - nodes[0].start_ns) / US + 64
            yield frame(step, "torch/_tensor.py(5): backward", begin - 8, begin + 115)

    place = finding_in(steps_of(N_STEPS, losses, calls), "work.backward_again").places[0].place
    assert (place.function, place.call) == ("train", "backward()")


def test_a_step_of_an_optimizer_or_a_clearing_between_keeps_passes_apart() -> None:
    for name in ("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"):
        cuts = lambda step, name=name: [*losses(step), *(ranged(step, name, us, us + 1) for us in (180.5, 304.5))]  # noqa: E731
        assert found(cuts) is None, name


def other_graphs(step: int) -> list[Row]:
    """Micro-batches: each loss has a forward pass of its own."""
    drawn = Drawn(step)
    for batch in (0, 10, 20):
        for name, number in reversed(LAYERS):
            drawn.op(f"aten::{name.lower()}", batch + number)
        for name, number in LAYERS:
            drawn.node(name, batch + number)
            drawn.store(adds=batch > 0)
    return drawn.ends()


def force(step: int, *, roots: int = 1, name: str = "Tanh") -> list[Row]:
    """Gradients of an output with a graph, the loss on them, and its pass, which goes through both graphs."""
    drawn = Drawn(step)
    drawn.forward()
    for number in range(roots):
        drawn.op("aten::ones_like")
        for place, (one, shared) in enumerate(LAYERS):
            drawn.node(name if shared == 3 else one, shared, ("aten::mul", 10 * (number + 1) + place))
    drawn.op("aten::mse_loss", 50)
    drawn.op("aten::ones_like")
    drawn.node("MseLoss", 50)
    for number in reversed(range(roots)):
        for place in (3, 2, 1, 0):
            drawn.node("Mul", 10 * (number + 1) + place)
    for one, shared in LAYERS:
        drawn.node(one, shared)
        drawn.store(adds=False)
    return drawn.ends()


@pytest.mark.parametrize(
    "made",
    [
        other_graphs,
        force,
        lambda step: force(step, roots=2, name="Unbind"),
        lambda step: losses(step, adds=False),
        lambda step: losses(step, *["aten::clone"] * 3),
        lambda step: losses(step, "aten::_foreach_norm"),
    ],
    ids=[
        *("micro-batches", "forces of an energy", "two results of one node"),
        *("cleared by hand between", "gradients read between", "gradients clipped between"),
    ],
)
def test_passes_that_are_needed_apart_are_not_named(made: Any) -> None:
    assert [found(made, f"work.{one}") for one in ("backward_again", "rows_apart", "task_gradients")] == [None] * 3


def test_one_output_whose_inputs_are_asked_for_one_by_one_counts_the_second_graph_as_well() -> None:
    one = found(lambda step: force(step, roots=2))
    assert one.title == "2 calls of torch.autograd.grad go through the same layers, one for each input of an output"
    assert one.recoverable_ns == 2 * 4 * 20 * US, "the second call, and the loss's pass through what it made"
    assert one.fix.startswith("name all inputs in one call")


def rows_one_by_one(step: int, *, n: int = 8, us: float = 10, picks: bool = True) -> list[Row]:
    """A Jacobian: for each element of the output, its pick and a pass that stores nothing."""
    drawn = Drawn(step)
    drawn.forward()
    for number in range(n):
        drawn.op("aten::select" if picks else "aten::mul", 10 + number)
        drawn.op("aten::ones_like")
        drawn.node("Select" if picks else "Mul", 10 + number)
        for name, shared in LAYERS:
            drawn.node(name, shared, us=us)
    return drawn.ends()


def test_rows_of_a_jacobian_one_by_one_are_a_question_where_nodes_are_short() -> None:
    one = found(rows_one_by_one, "work.rows_apart")
    assert one.title == "8 calls of torch.autograd.grad take the gradient of an output element by element"
    whole = 7 * (8 + 8 + 20 + 40) * US
    assert (one.evidence[0].value, one.recoverable_ns) == (N_STEPS * whole, whole / 2)
    assert found(lambda step: rows_one_by_one(step, n=7), "work.rows_apart") is None
    assert found(lambda step: rows_one_by_one(step, us=21), "work.rows_apart") is None


def test_gradients_of_losses_in_calls_of_their_own_promise_nothing() -> None:
    made = lambda step: rows_one_by_one(step, n=3, picks=False)  # noqa: E731
    one = found(made, "work.task_gradients")
    assert (
        one.title
        == "torch.autograd.grad takes 3 losses' gradients through the layers that they share, in a call for each"
    )
    assert (one.evidence[0].value, one.recoverable_ns) == (N_STEPS * 3 * 40 * US, 0)
