"""Batches of equal matrices are marked behind what works each of them out; matrices that differ are not."""

import re
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import profile  # noqa: E402

from profkit.analyzers.patterns.algebra import _EQUAL_MARK  # noqa: E402
from profkit.capture.inside.places.equal_matrices import EQUAL, RESULT, n_equal  # noqa: E402
from profkit.capture.inside.places.operators import SignLines  # noqa: E402
from profkit.capture.inside.places.same_steps import COMPARED, OTHER_STEP, SAME_STEP  # noqa: E402

pytestmark = pytest.mark.torch

N = 24


def positive(*batch):
    made = torch.randn(*batch, 5, 5, generator=torch.Generator().manual_seed(0))
    return made @ made.mT + torch.eye(5)


ONE, OWN, VECTORS = positive(), positive(N), torch.arange(5.0 * N).view(N, 5, 1)
COPIES = ONE.repeat(N, 1, 1)


def marks(body):
    """The name of the operator before each mark, and of what it is."""
    lines = SignLines()
    with profile() as recorded:
        lines.begin()
        try:
            body()
        finally:
            lines.end()
    every = [one for one in recorded.events() if not one.name.startswith((COMPARED, SAME_STEP, OTHER_STEP))]
    outer = (one for one in every if one.cpu_parent not in every)
    events = sorted(outer, key=lambda one: one.time_range.start)
    found = []
    for before, one in pairwise(events):
        if one.name.startswith(EQUAL):
            mark = _EQUAL_MARK.search(one.name)
            assert int(mark[1]) == N
            found.append((before.name.removeprefix("aten::"), mark[2]))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda: torch.linalg.cholesky(COPIES), [("linalg_cholesky", RESULT)]),
        (lambda: torch.slogdet(COPIES), [("slogdet", RESULT)]),
        (lambda: ONE @ ONE.expand(N, 5, 5), [("matmul", RESULT)]),
        (lambda: torch.bmm(COPIES, COPIES), [("bmm", RESULT)]),
        (lambda: torch.einsum("bij,bjk->bik", COPIES, COPIES), [("einsum", RESULT)]),
        (lambda: torch.linalg.solve(COPIES, COPIES + ONE), [("linalg_solve", RESULT)]),
        (lambda: COPIES @ VECTORS, [("matmul", "0")]),
        (lambda: torch.cholesky_solve(VECTORS, COPIES), [("cholesky_solve", "1")]),
        (lambda: (COPIES @ COPIES).mT * 2 + ONE, [("matmul", RESULT), ("mul", RESULT), ("add", RESULT)]),
        (lambda: (COPIES @ COPIES) * OWN, [("matmul", RESULT)]),
        (lambda: torch.tril(torch.linalg.cholesky(COPIES).mT), [("linalg_cholesky", RESULT), ("tril", RESULT)]),
    ],
)
def test_what_works_out_equal_matrices_is_marked(body, expected):
    assert marks(body) == expected


HALF = torch.cat([COPIES[: N // 2], OWN[N // 2 :]])
LAST = torch.cat([COPIES[:-1], OWN[-1:]])


@pytest.mark.parametrize(
    "body",
    [
        lambda: torch.linalg.cholesky(OWN),
        lambda: torch.linalg.cholesky(HALF),
        lambda: torch.linalg.cholesky(LAST),
        lambda: torch.linalg.cholesky(COPIES[:7]),  # few
        lambda: torch.linalg.cholesky(ONE),
        lambda: torch.linalg.cholesky(ONE.expand(N, 5, 5)),  # recorded strides tell that
        lambda: torch.linalg.inv(torch.eye(5).repeat(N, 1, 1)),
        lambda: torch.linalg.inv(0.5 * torch.eye(5).repeat(N, 1, 1)),
        lambda: torch.zeros(N, 5, 5) @ OWN,
        lambda: torch.ones(N, 5, 5).tril() @ OWN,  # a mask
        lambda: COPIES * 2 + ONE,  # positions, masks: no linear algebra
        lambda: torch.nn.functional.linear(COPIES, ONE),
        lambda: torch.matmul(OWN, VECTORS),
        lambda: OWN.view(3, 8, 5, 5) @ ONE,
        lambda: torch.bmm(OWN.to_sparse(), OWN),
    ],
)
def test_matrices_that_differ_or_are_equal_by_chance_are_not(body):
    assert marks(body) == []


def test_matrices_are_read_where_they_lie():
    assert n_equal(COPIES) == n_equal(COPIES.mT) == N
    assert n_equal(COPIES.view(4, 6, 5, 5).transpose(0, 1)) == N
    assert (
        n_equal(COPIES[:, :, ::2]) == n_equal(COPIES.to("meta")) == n_equal(None) == n_equal(torch.ones(N, 0, 5)) == 0
    )


def test_both_sides_call_it_the_same():
    assert re.match(_EQUAL_MARK.pattern, f"{EQUAL}17, {RESULT}")


def test_values_and_gradients_are_the_same():
    def gradient(*, watched):
        lines, weight = SignLines(), ONE.clone().requires_grad_()
        if watched:
            lines.begin()
        try:
            torch.linalg.cholesky(weight.expand(N, 5, 5) @ COPIES @ weight.mT).square().sum().backward()
        finally:
            lines.end()
        return weight.grad

    assert torch.equal(gradient(watched=True), gradient(watched=False))
