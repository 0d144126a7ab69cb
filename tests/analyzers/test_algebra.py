"""FFTs of awkward lengths, copies of a matrix, factors of tiny ones, figures that take no gradient; and twins."""

from math import prod
from typing import Any

import pytest

from profkit.analyzers.patterns.algebra import _fast, _largest_prime
from profkit.testing import Row, span
from tests.analyzers.test_spared import N_STEPS, found, steps
from tests.drawing import BASE, NODE, STEP, US, at, finding_in, frame, twins


def test_a_length_is_taken_apart_and_the_next_fast_one_is_even() -> None:
    assert [_largest_prime(n) for n in (1, 2, 2039, 2042, 2048, 37 * 37, 2**40 + 1)] == [1, 2, 2039, 1021, 2, 37, 1]
    assert [_fast(n) for n in (37, 2021, 2039, 2048, 2053)] == [40, 2048, 2048, 2048, 2160]


def convolved(step: int, *, n: int = 2039, padded: bool = True, pad: bool = False) -> list[Row]:
    """An FFT of 200 us, padded from 1,020 values, and one back of 100 us in the backward pass."""
    number, given = 100 * step + 1, 1020 if padded else n
    first = at(step, "aten::constant_pad_nd", 1, 4, [(8, 1020), (), ()], ["", f"[0, {n - 1020}]", "0"])
    taken = [(8, n if pad else given), (), (), ()], ["", "" if pad else n, -1]
    return [
        *([first] if pad else []),
        at(step, "aten::fft_rfft", 5, 220, *taken, Sequence_number=number, Fwd_thread_id=0),
        at(step, "aten::_fft_r2c", 10, 210, [(8, n), (), (), ()], ["", "[1]", 0, "True"]),
        at(step, NODE + "FftR2CBackward0", 931, 939, Sequence_number=number, Fwd_thread_id=1),
        at(step, "aten::_fft_c2r", 932, 938, [(8, n // 2 + 1), (), (), ()], ["", "[1]", 2, n]),
    ]


@pytest.mark.parametrize("pad", [False, True], ids=["rfft(n=n)", "F.pad"])
def test_an_fft_padded_to_a_prime_length_is_named_with_a_fast_one(*, pad: bool) -> None:
    one = found("work.awkward_fft", lambda step: convolved(step, pad=pad))
    assert one.title == "FFTs have length 2,039, a prime number; the next fast length is 2,048"
    assert one.evidence[0].value == N_STEPS * 206 * US
    assert one.recoverable_ns == pytest.approx(206 * US * 0.65, rel=1e-3)
    assert one.most_recoverable_ns > 206 * US


def test_a_length_that_nothing_is_padded_to_has_no_saving() -> None:
    one = found("work.awkward_fft", lambda step: convolved(step, n=2042, padded=False))
    assert one.title == "FFTs have length 2,042, with the prime factor 1,021; the next fast length is 2,048"
    assert (one.recoverable_ns, one.most_recoverable_ns) == (0, None)


def expanded(
    step: int, name: str = "aten::linalg_slogdet", strides: Any = (0, 1, 32), *, rows: int = 1, copy: str = ""
) -> list[Row]:
    """A matrix that is expanded, an operator of 200 us on its copies, and backward nodes of 4 us for each."""
    number, size = 100 * step + 1, (512, 32, 32)
    dims, told = ([size], [strides]) if "bmm" not in name else ([(512, rows, 32), size], [(32 * rows, 32, 1), strides])
    copies = {
        "aten::clone": ([size, ()], ["", ""], [[0, 1, 32], []]),
        "aten::repeat": ([(32, 32), ()], ["", "[512, 1, 1]"], [[1, 32], []]),
        "aten::add": ([size, size], [], [[0, 1, 32], [1024, 32, 1]]),
    }
    made, concrete, given = copies.get(copy, ([], [], []))
    node = {"Fwd_thread_id": 1}
    return [
        at(step, "aten::expand", 5, 8, Sequence_number=number, Fwd_thread_id=0),
        *([at(step, copy, 9, 15, made, concrete, Input_Strides=given)] if copy else []),
        at(step, name, 20, 220, dims, Input_Strides=[*map(list, told)], Sequence_number=number + 1, Fwd_thread_id=0),
        at(step, NODE + "ABackward0", 931, 935, Sequence_number=number + 1, **node),
        at(step, NODE + "ExpandBackward0", 935, 939, Sequence_number=number, **node),
    ]


@pytest.mark.parametrize("name", ["aten::linalg_slogdet", "aten::linalg_cholesky", "aten::inverse", "aten::bmm"])
def test_work_on_each_copy_of_one_matrix_is_named_with_how_many(name: str) -> None:
    one = found("work.one_matrix", lambda step: expanded(step, name))
    assert one.title == f"torch.{name[6:].replace('linalg_', 'linalg.')} works on 512 copies of one matrix"
    spent = (3 + 200 + 8) * US
    assert one.evidence[0].value == N_STEPS * spent
    assert one.recoverable_ns == pytest.approx(spent * (0.9 if name == "aten::bmm" else 511 / 512), rel=1e-3)


@pytest.mark.parametrize("copy", ["aten::clone", "aten::repeat"])
def test_copies_in_memory_of_their_own_are_as_many(copy: str) -> None:
    assert found("work.one_matrix", lambda step: expanded(step, strides=(1024, 32, 1), copy=copy)) is not None


def watched(
    step: int, name: str = "aten::linalg_eigvalsh", *, begin: int = 300, used: bool = False, between: bool = True
) -> list[Row]:
    """An operator of 150 us between two of the forward pass, or elsewhere."""
    number, taken = 100 * step + 1, {"Sequence_number": 100 * step + 2, "Fwd_thread_id": 0}
    return [
        at(step, "aten::mul", 100, 110, Sequence_number=number, Fwd_thread_id=0),
        at(step, name, begin, begin + 150, [(64, 64), ()], **(taken if used else {})),
        *([at(step, "aten::div", 460, 465)] if between else []),
        at(step, NODE + "MulBackward0", 931, 932, Sequence_number=number, Fwd_thread_id=1),
        *([at(step, NODE + "EighBackward0", 933, 934, **(taken | {"Fwd_thread_id": 1}))] if used else []),
    ]


@pytest.mark.parametrize("name", ["aten::linalg_eigvalsh", "aten::linalg_svdvals", "aten::histc", "aten::corrcoef"])
def test_a_figure_that_no_gradient_goes_through_is_a_bound(name: str) -> None:
    one = found("work.figures", lambda step: watched(step, name))
    called = name[6:].replace("linalg_", "linalg.")
    assert one.title == f"torch.{called} is computed in each step, and no gradient goes through it"
    assert one.evidence[0].value == N_STEPS * 150 * US
    assert one.recoverable_ns >= 150 * US
    assert one.most_recoverable_ns is None


def solved(step: int, name: str = "aten::linalg_solve", *, matrix: Any = (32, 32), columns: int = 1) -> list[Row]:
    """A solve of 200 us, and its backward node of 8 us."""
    number, dims = 100 * step + 1, [matrix, (512, 32, columns), ()]
    strides = [[(1024 if len(matrix) == 3 else 32), 32, 1][-len(matrix) :], [32 * columns, columns, 1], []]
    return [
        at(step, name, 20, 220, dims, Input_Strides=strides, Sequence_number=number, Fwd_thread_id=0),
        at(step, NODE + "ABackward0", 931, 939, Sequence_number=number, Fwd_thread_id=1),
    ]


@pytest.mark.parametrize("name", ["aten::linalg_solve", "aten::linalg_solve_triangular"])
def test_a_solve_with_one_matrix_and_a_batch_of_right_sides_copies_it(name: str) -> None:
    one = found("work.one_matrix", lambda step: solved(step, name))
    assert one.title == f"torch.linalg.{name[13:]} works on 512 copies of one matrix"
    assert one.recoverable_ns == pytest.approx(208 * US * 0.9, rel=1e-3)


def factored(
    step: int, *, n: int = 20_480, size: int = 2, name: str = "aten::linalg_cholesky", solves: Any = None
) -> list[Row]:
    """A check of 20 us, a factor of 80 us and a solve of 100 us of tiny matrices, and backward nodes of 4 us."""
    number, taken, flat = 100 * step + 1, (n // 8, 8, size, size), solves or (1, n, size, size)
    numbered, node, behind = {"Fwd_thread_id": 0}, {"Fwd_thread_id": 1}, {"Sequence_number": number + 1}
    strides = {"Input_Strides": [[8 * size * size, size * size, size, 1], []]}
    given = {"Input_Strides": [[prod(flat[1:]), size * size, size, 1], [size, 1], []]}
    return [
        at(step, "aten::isclose", 10, 30, [taken, taken, ()]),
        at(step, name, 40, 120, [taken, ()], Sequence_number=number, **strides, **numbered),
        at(step, "aten::linalg_solve_triangular", 130, 230, [flat, (n, size), ()], **behind, **given, **numbered),
        at(step, NODE + "LinalgSolveTriangularBackward0", 931, 935, **behind, **node),
        at(step, NODE + "LinalgCholeskyExBackward0", 935, 939, Sequence_number=number, **node),
    ]


def test_factors_of_tiny_matrices_are_named_with_the_solves_behind_them() -> None:
    one = found("work.small_matrices", factored)
    assert one.title == "torch.linalg.cholesky factors 20,480 matrices of 2 x 2, one call of LAPACK for each"
    spent = (80 + 100 + 8) * US
    assert one.evidence[0].value == N_STEPS * spent
    assert one.recoverable_ns == pytest.approx(spent * 0.9, rel=1e-3)
    assert one.most_recoverable_ns > spent


def test_the_density_that_makes_them_is_named_with_its_line_and_its_checks() -> None:
    called = "torch/distributions/multivariate_normal.py(1): __init__"
    frames = lambda step: [frame(step, "train.py(30): density", 5, 240), frame(step, called, 6, 239)]  # noqa: E731
    one = finding_in(
        [*steps(factored, frames), span("torch/profiler/p.py(1): start", 1, 2, cat="python_function")],
        "work.small_matrices",
        profkit_call_lines={"unix_ns": [BASE + k * STEP + 6 * US for k in range(N_STEPS)], "line": [31] * N_STEPS},
        profkit_source_lines={"train.py:31": "return MultivariateNormal(mean, covariance_matrix=cov).log_prob(x)"},
        profkit_user_files=["train.py"],
    )
    what = "factors 20,480 matrices of 2 x 2, one call of LAPACK for each"
    assert one.title == f"MultivariateNormal at train.py:31 in density() {what}"
    assert one.evidence[0].value == N_STEPS * (20 + 80 + 100 + 8) * US
    assert one.fix.startswith("write the log density out for this size")


def test_solves_with_other_matrices_are_left_out() -> None:
    one = found("work.small_matrices", lambda step: factored(step, solves=(1, 4096, 2, 2)))
    assert one.evidence[0].value == N_STEPS * (80 + 4) * US


def centred(step: int, *, back: bool = True, fft: str = "aten::_fft_c2c") -> list[Row]:
    """Shifts of 100 us around a transform, and one in a backward node that is a function of the script's."""
    first, last = "aten::fft_ifftshift" if back else "aten::fft_fftshift", "aten::fft_fftshift"
    number = {"Sequence_number": 100 * step + 1}
    return [
        at(step, first, 5, 105),
        at(step, "aten::roll", 6, 104, **number, Fwd_thread_id=0),
        at(step, fft, 110, 150),
        at(step, last, 160, 260),
        at(step, NODE + "RollBackward0", 931, 939, **number, Fwd_thread_id=1),
    ]


def test_shifts_around_ffts_are_named() -> None:
    one = found("work.fft_shifts", centred)
    assert one.title == "fftshift and ifftshift copy whole tensors around FFTs"
    assert one.evidence[0].value == N_STEPS * 208 * US
    assert one.recoverable_ns == pytest.approx(208 * US, rel=1e-3)
    assert "shift the mask or filter once" in one.fix


HEALTHY = {
    "work.fft_shifts": {
        "a spectrum that is centred and read": lambda step: centred(step, back=False),
        "no transform beside them": lambda step: centred(step, fft="aten::mul"),
    },
    "work.awkward_fft": {
        f"{n:,} has small factors": lambda step, n=n: convolved(step, n=n) for n in (2048, 2025, 1980, 1300, 1024)
    },
    "work.one_matrix": {
        "own matrices": lambda step: expanded(step, strides=(1024, 32, 1)),
        "copies with something of their own": lambda step: expanded(step, strides=(1024, 32, 1), copy="aten::add"),
        "own factors": lambda step: expanded(step, "aten::bmm", (1024, 32, 1)),
        "many rows each": lambda step: expanded(step, "aten::bmm", rows=64),
        "elementwise": lambda step: expanded(step, "aten::relu"),
        "own matrices are solved": lambda step: solved(step, matrix=(512, 32, 32)),
        "many columns are solved": lambda step: solved(step, columns=32),
    },
    "work.figures": {
        "the loss needs it": lambda step: watched(step, used=True),
        "before the forward pass": lambda step: watched(step, begin=2),
        "in one step": lambda step: watched(step, begin=750) if not step else [],
        "a threshold": lambda step: watched(step, "aten::quantile"),
        "matching": lambda step: watched(step, "aten::cdist"),
        "a preconditioner behind the backward pass": lambda step: [at(step, "aten::linalg_eigvalsh", 955, 999)],
    },
    "work.small_matrices": {
        "few": lambda step: factored(step, n=512),
        "larger ones": lambda step: factored(step, size=8),
        "inverses": lambda step: factored(step, name="aten::linalg_inv"),
    },
}


@pytest.mark.parametrize(("finding_id", "made"), twins(HEALTHY))
def test_algebra_that_is_needed_is_fine(finding_id: str, made: Any) -> None:
    assert found(finding_id, made) is None
