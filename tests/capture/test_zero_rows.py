"""Gradients whose rows are zero: marked where half of them are, and neither values nor gradients change."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import profile  # noqa: E402

from profkit.analyzers.patterns.marked_rows import _ZERO_MARK  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402
from profkit.capture.inside.places.zero_rows import ZERO_ROWS, zero_share  # noqa: E402

pytestmark = pytest.mark.torch

N, WIDTH = 1024, 32
KEPT = torch.arange(N) % 4 == 0


def run(loss_of, *, watched=True):
    """The marks of one backward pass, and the gradients that it gives."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    rows = torch.randn(N, WIDTH)
    lines = SignLines()
    with profile() as recorded:
        if watched:
            lines.begin()
        try:
            loss_of(model, rows).backward()
        finally:
            lines.end()
    marks = [event.name for event in recorded.events() if event.name.startswith(ZERO_ROWS)]
    return marks, [one.grad for one in model.parameters()]


def masked(model, rows):
    """The first layer computes all rows, of which a mask keeps a quarter; the second one has them all."""
    return model[1](model[0](rows) * KEPT[:, None] + rows).square().mean()


def twice(model, rows):
    rows.requires_grad_()
    energy = model[1](model[0](rows) * KEPT[:, None] + rows).square().sum()
    return torch.autograd.grad(energy, rows, create_graph=True)[0].square().mean()


def plain(model, rows):
    return model(rows).square().mean()


def activated(model, rows):
    return model[1](model[0](rows).relu()).square().mean()


def dropped(model, rows):
    return model[1](torch.nn.functional.dropout(model[0](rows), 0.9)).square().mean()


def chosen(model, rows):
    """Few rows have a loss: which is known when they are computed."""
    return (model(rows).square().mean(-1) * KEPT).mean()


@pytest.mark.parametrize("loss_of", [masked, twice])
def test_rows_times_zero_are_marked(loss_of):
    marks, _ = run(loss_of)
    assert marks
    shares = [int(_ZERO_MARK.search(one)[2]) for one in marks]
    assert all(65 <= share <= 85 for share in shares)


@pytest.mark.parametrize("loss_of", [plain, activated, dropped, chosen])
def test_other_zeros_are_not(loss_of):
    assert run(loss_of)[0] == []


@pytest.mark.parametrize("loss_of", [masked, twice, plain, chosen])
def test_gradients_are_the_same_to_the_last_bit(loss_of):
    watched, alone = run(loss_of)[1], run(loss_of, watched=False)[1]
    assert all(torch.equal(one, other) for one, other in zip(watched, alone, strict=True))


def test_rows_are_read_where_they_lie():
    rows = torch.ones(100, 32)
    rows[::2] = -0.0
    assert zero_share(rows) == pytest.approx(0.5, abs=0.15)
    assert zero_share(rows.view(10, 10, 32).transpose(0, 1)) == pytest.approx(0.5, abs=0.15)
    rows[:, 31] = 1.0
    assert zero_share(rows) == 0.0
    for other in (torch.zeros(32, 100).t(), torch.zeros(4, 32).to_sparse(), None, torch.zeros(0, 32)):
        assert zero_share(other) == 0.0


def test_both_sides_call_it_the_same():
    assert re.match(_ZERO_MARK.pattern, f"{ZERO_ROWS}17, 75 %")


class Two(torch.autograd.Function):
    @staticmethod
    def forward(_, rows):
        return rows * 1, rows * 2

    @staticmethod
    def backward(_, first, second):
        return first + second


def second_of_two(model, rows):
    """All of the first result has a gradient; of the second, which an operator hands back, a quarter."""
    first, second = Two.apply(model[0](rows))
    return model[1](second.contiguous() * KEPT[:, None] + first).square().mean()


def test_a_node_of_several_results_is_told_by_the_gradient_of_the_one_that_was_given():
    assert run(second_of_two)[0]


def convolved(kept):
    """Two convolutions of images; a mask keeps some channels or rows of what the first one gives."""

    def loss_of(_, rows):
        first, second = (torch.nn.Conv2d(n, 32, 1) for n in (4, 32))
        return second(first(rows.view(16, 4, 16, WIDTH)) * kept).square().mean()

    return loss_of


def convolved_alone(kept):
    """As `convolved`, of one image without an axis of the batch."""

    def loss_of(_, rows):
        first, second = (torch.nn.Conv2d(n, 32, 1) for n in (4, 32))
        return second(input=first(rows.view(4, 256, WIDTH)) * kept).square().mean()

    return loss_of


def test_channels_that_are_zero_are_no_rows():
    """A ReLU sets so many to zero, and the others of their position count."""
    quarter = torch.arange(32) % 4 == 0
    assert run(convolved(quarter.view(1, 32, 1, 1)))[0] == []
    assert run(convolved(quarter[:16].view(1, 1, 16, 1)))[0]
    assert run(convolved_alone(quarter.view(32, 1, 1)))[0] == []
    assert run(convolved_alone(quarter.repeat(8).view(1, 256, 1)))[0]
