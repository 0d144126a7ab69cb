"""What is computed of the same tensors: known by the objects, by what changes them, and by what they are made of."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.profiler import profile  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from profkit.analyzers.patterns import thrown  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402
from profkit.capture.inside.places.same_inputs import PARAMETRIZATION, SAME_TENSORS  # noqa: E402

pytestmark = pytest.mark.torch

LAYER, ROWS = torch.nn.Linear(4, 4), torch.ones(2, 4)


def marks(body) -> list[str]:
    """The ranges around what a function computes again of the same tensors."""
    lines = SignLines()
    with profile() as recorded:
        lines.begin()
        try:
            body(lines)
        finally:
            lines.end()
    return [event.name for event in recorded.events() if event.name.startswith(SAME_TENSORS)]


def test_both_sides_call_it_the_same():
    assert (SAME_TENSORS, PARAMETRIZATION) == (thrown.SAME_TENSORS, thrown.PARAMETRIZATION)


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


def scaled(_):
    for _ in range(3):
        LAYER(ROWS * 2)


def many_rows(_):
    """A product of more than two axes is a view of what it made."""
    rows = torch.ones(3, 2, 4)
    for _ in range(3):
        LAYER(torch.relu(LAYER(rows)))


def attended(_, dropout_p=0.0):
    heads = torch.ones(1, 2, 3, 4)
    for _ in range(3):
        LAYER(torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, None, dropout_p))


def attended_at_random(_):
    attended(_, 0.5)


@pytest.mark.parametrize(
    ("body", "n"),
    [
        *((encoded, 1), (viewed, 1), (multiplied, 1), (scaled, 2), (many_rows, 3), (attended, 2)),
        (attended_at_random, 0),
    ],
)
def test_what_is_computed_of_the_same_tensors_is_marked_after_its_first(body, n):
    found = marks(body)
    assert len(found) == 2 * n
    assert len(set(found)) == n  # by a number for each


def parametrized(_):
    layer = parametrizations.orthogonal(torch.nn.Linear(4, 4), orthogonal_map="cayley")
    for _ in range(3):
        layer(torch.ones(2, 4))


def hooked(_):
    layer = torch.nn.utils.weight_norm(torch.nn.Linear(4, 4))
    for _ in range(3):
        layer(torch.ones(2, 4))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize(
    ("body", "whose"), [(parametrized, "weight by Orthogonal"), (hooked, "weight by the hook of weight_norm")]
)
def test_a_weight_that_is_computed_each_time_it_is_read_is_marked_with_what_computes_it(body, whose):
    found = marks(body)
    assert len(found) >= 2 * len(set(found)) > 0
    assert all(name.endswith(f": {PARAMETRIZATION}{whose}") for name in found)


def cached(_):
    layer = parametrizations.orthogonal(torch.nn.Linear(4, 4), orthogonal_map="cayley")
    with parametrize.cached():
        for _ in range(3):
            layer(torch.ones(2, 4))


def power_iteration(_):
    layer = parametrizations.spectral_norm(torch.nn.Linear(4, 4))
    for _ in range(3):
        layer(torch.ones(2, 4))


def dropped(_):
    for _ in range(3):
        LAYER(torch.nn.functional.dropout(ROWS))


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
    "body",
    [
        *(other_rows, freed, changed, written_by_numpy, other_weights, other_step, checkpointed),
        *(cached, power_iteration, dropped),
    ],
)
def test_what_is_computed_of_anything_else_is_not_marked(body):
    assert not marks(body)


def test_an_object_of_the_script_is_not_held():
    class Other:
        @classmethod
        def __torch_function__(cls, *_):
            return None

    def body(lines):
        torch.add(ROWS, Other())
        assert not any(Other in each for each in lines._mode.same._values)

    marks(body)


def test_a_mode_that_stays_on_its_thread_only_passes_on():
    lines, mode = SignLines(), None
    lines.begin()
    mode, lines._thread = lines._mode, -1
    lines.end()
    try:
        assert LAYER(ROWS).shape == (2, 4)
        assert not mode.same._values
    finally:
        mode.__exit__(None, None, None)
