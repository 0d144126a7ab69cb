"""What a step computes that the step before has computed too: known by what it is made of, and by its bytes."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import one_hot  # noqa: E402
from torch.profiler import profile  # noqa: E402

from profkit.analyzers.patterns.same_steps import _MARK  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402
from profkit.capture.inside.places.same_steps import _MOST, _WHOLE, COMPARED, OTHER_STEP, SAME_STEP  # noqa: E402

pytestmark = pytest.mark.torch

POINTS, ROWS, BANK = torch.rand(40, 3), torch.rand(64, 4), torch.rand(64, 4)
NEXT, BATCHES = [torch.rand(64)], torch.rand(2, 64).unbind()
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
LAYER, FROZEN = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).requires_grad_(False)


def marks(body, n_steps=2):
    """The kinds of the ranges of steps that a function makes, and their numbers, in order."""
    lines = SignLines()
    with profile() as recorded:
        lines.begin()
        try:
            for step in range(n_steps):
                body(step)
                lines.step()
        finally:
            lines.end()
    events = sorted(recorded.events(), key=lambda one: one.time_range.start)
    kinds = (COMPARED, SAME_STEP, OTHER_STEP)
    return [(kind, event.name[len(kind) :]) for event in events for kind in kinds if event.name.startswith(kind)]


def n_same(body, n_steps=2):
    """How many calls are the same in each step, as an analysis counts them."""
    found = marks(body, n_steps)
    return len({n for kind, n in found if kind == SAME_STEP} - {n for kind, n in found if kind == OTHER_STEP})


def distances(_):
    return torch.cdist(POINTS, POINTS) < 0.5


def positions(_):
    made, at = torch.zeros(8, 4), torch.arange(8)[:, None] * torch.exp(torch.arange(0, 4, 2) * -0.5)
    made[:, 0::2] = at.sin()
    made[:, 1::2] = at.cos()
    return made / made.norm()


def adjacency(_):
    made = torch.sparse_coo_tensor(EDGES, torch.ones(3), (3, 3), check_invariants=True).coalesce()
    return made.to_sparse_csr() @ made.values()[:, None]


def covariance(_):
    return torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3) + torch.ones(3, 3), validate_args=False)


def teacher(_):
    with torch.no_grad():
        return FROZEN(ROWS).relu()


def first_rows(_):
    return ROWS[:8].exp()


def counted(_):
    made = torch.zeros(64).index_add_(0, torch.arange(64) % 8, ROWS[:, 0])
    return made.reciprocal_()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize(
    ("body", "n"),
    [(distances, 2), (positions, 11), (adjacency, 4), (covariance, 3), (teacher, 2), (first_rows, 1), (counted, 4)],
)
def test_what_is_made_of_what_nobody_changes_is_the_same(body, n):
    assert n_same(body, 3) == n


def test_a_call_has_one_number_in_all_steps():
    found = marks(distances, 3)
    assert [kind for kind, _ in found] == [COMPARED] * 2 + [SAME_STEP] * 4
    assert {number for _, number in found} == {"0", "1"}


def drawn(_):
    return torch.rand(8, 4).exp()


def of_a_batch(_):
    return torch.cdist(ROWS[torch.randperm(64)[:8]], POINTS[:, [0, 0, 0, 0]])


def in_turns(step):
    return ROWS[8 * step : 8 * step + 8].exp()


def of_a_new_tensor(_):
    return torch.from_numpy(ROWS.numpy().copy()).exp()


def of_weights(_):
    return one_hot(LAYER(ROWS).argmax(1) * 0, 4).sum(0)


def of_weights_without_gradient(_):
    with torch.no_grad():
        return (LAYER(ROWS) > -1e9).float().sum(0)


def of_a_bank(step):
    BANK[step] = 1.0
    return (BANK > -1.0).sum(0)


def of_what_numpy_changes(step):
    ROWS.numpy()[0, 0] = step
    return ROWS.exp()


def of_a_number(step):
    return (ROWS * step) > -1.0


def of_a_batch_that_is_fetched_ahead(_):
    lengths = NEXT[0] > -1.0
    NEXT[0] = torch.rand(64)
    return lengths.sum()


def of_batches_in_memory(step):
    return (BATCHES[step % 2] > -1.0).sum(0)


def made_anew(_):
    return torch.zeros(8, 4), ROWS.clone(), torch.full((8,), 2.0)


@pytest.mark.parametrize(
    "body",
    [
        *(drawn, of_a_batch, in_turns, of_a_new_tensor, of_weights, of_weights_without_gradient, of_a_bank),
        *(of_what_numpy_changes, of_a_number, of_a_batch_that_is_fetched_ahead, of_batches_in_memory, made_anew),
    ],
)
def test_what_is_made_of_anything_else_is_not_though_its_bytes_may_be(body):
    marked = n_same(body)
    assert marked <= (body is of_a_batch)  # the columns of the points


def test_what_is_of_the_batch_is_known_to_be_another():
    kinds = [kind for kind, _ in marks(of_what_numpy_changes)]
    assert kinds == [COMPARED, SAME_STEP, OTHER_STEP]
    assert OTHER_STEP in [kind for kind, _ in marks(of_a_new_tensor)]


def test_updates_of_optimizers_are_left_out():
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.0)

    def body(_):
        optimizer.zero_grad()
        layer(ROWS).sum().backward()
        optimizer.step()

    assert n_same(body) == 0


def test_what_changes_somewhere_in_a_large_tensor_is_seen():
    large = torch.rand(4, _WHOLE)

    def body(step):
        large.numpy()[:, ::100] = step
        return large.exp()

    assert n_same(body) == 0


def test_results_are_the_same_to_the_last_bit_and_nothing_is_held():
    kept = []

    def body(step):
        made = teacher(step)
        kept.append((weakref.ref(made), made.clone()))

    marks(body, 3)
    gc.collect()
    assert all(one() is None for one, _ in kept)
    assert all(torch.equal(made, teacher(0)) for _, made in kept)


def test_of_very_many_calls_the_first_are_looked_at():
    found = marks(lambda _: [ROWS.exp() for _ in range(_MOST + 10)])
    assert sum(kind == SAME_STEP for kind, _ in found) == _MOST


def test_both_sides_call_it_the_same():
    assert [_MARK.search(f"{one}17")[1][0] for one in (COMPARED, SAME_STEP, OTHER_STEP)] == ["c", "t", "a"]
