"""Products of the same tensors: known by the objects, and by what changes them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import profile  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from profkit.analyzers.patterns.thrown import SAME_TENSORS as ASKED_FOR  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402
from profkit.capture.inside.places.same_inputs import SAME_TENSORS  # noqa: E402

pytestmark = pytest.mark.torch

LAYER, ROWS = torch.nn.Linear(4, 4), torch.ones(2, 4)


def n_marked(body) -> int:
    """How many products a function makes again of the same tensors."""
    lines = SignLines()
    with profile() as recorded:
        lines.begin()
        try:
            body(lines)
        finally:
            lines.end()
    return sum(event.name == SAME_TENSORS for event in recorded.events())


def test_both_sides_call_it_the_same():
    assert SAME_TENSORS == ASKED_FOR


def encoded(_):
    made = LAYER(ROWS)
    for _ in range(3):
        LAYER(made)


def viewed(_):
    made = LAYER(ROWS)
    for _ in range(3):
        LAYER(made[:1])


def multiplied(_):
    for _ in range(3):
        ROWS @ LAYER.weight


@pytest.mark.parametrize("body", [encoded, viewed, multiplied])
def test_a_product_of_the_same_tensors_is_marked_after_its_first(body):
    assert n_marked(body) == 2


def other_rows(_):
    made = LAYER(ROWS)
    for at in range(2):
        LAYER(made[at : at + 1])


def freed(_):
    for _ in range(3):
        LAYER(torch.ones(2, 4))


def changed(_):
    made = torch.ones(2, 4)
    for _ in range(3):
        LAYER(made.add_(1))


def written_by_numpy(_):
    array = torch.ones(2, 4).numpy()
    made = torch.from_numpy(array)
    for _ in range(3):
        array += 1
        LAYER(made)


def other_weights(_):
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(ROWS).sum().backward()
        optimizer.step()


def other_step(lines):
    for _ in range(3):
        LAYER(ROWS)
        lines.step()


def checkpointed(_):
    checkpoint(LAYER, ROWS.clone().requires_grad_(), use_reentrant=False).sum().backward()


@pytest.mark.parametrize(
    "body", [other_rows, freed, changed, written_by_numpy, other_weights, other_step, checkpointed]
)
def test_a_product_of_anything_else_is_not_marked(body):
    assert n_marked(body) == 0
