"""Transforms and linear algebra that another length, one matrix or fewer steps would spare.

FFTs of awkward lengths, one matrix expanded to a copy per sample and factors of tiny matrices are known by recorded
shapes and strides; shifts around FFTs by their names; figures that no gradient goes through by autograd's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, prod
from typing import Final

import numpy as np

from profkit.analyzers.patterns.cost import rows_of
from profkit.analyzers.patterns.forward import unread_of_step
from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import (
    PRODUCT,
    Forward,
    Waste,
    behind,
    each_with_backward,
    function_of,
    number_of,
    numbers_of,
    timed_rows,
    with_shapes,
)
from profkit.findings.wasted import AWKWARD_FFT, FFT_SHIFTS, ONE_MATRIX, SMALL_MATRICES
from profkit.model.arrays import I64, distinct, distinct_codes, is_one_of, place_among, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import shares
from profkit.timeline.steps import edges, steps_in_window

_FFT: Final = later(r"^aten::_fft_(?:c2c|r2c|c2r)$")
_TO_REAL: Final = "aten::_fft_c2r"
_PADS: Final = later(r"^aten::(?:fft_r?fft[2n]?|pad|constant_pad_nd)$")
_LONGEST: Final = 1 << 24
"""Longer transforms are not judged: chosen, so that a number in a file costs no time to take apart."""
_KEPT_OF_FFT: Final = 0.35
"""What a fast length near takes of the time. Measured with MKL (torch 2.13, one thread, one CPU), 960 rows of 37 to 16,381 values whose
largest prime factor is 37 or more: 0.05 to 0.46, most of them 0.15 to 0.45; in a training step 0.41. Factors of 17 to 31 have 0.1 to 0.9."""


def _largest_prime(n: int) -> int:
    """The largest prime factor of a length; 1 of those that are not judged."""
    if not 1 < n <= _LONGEST:
        return 1
    largest = 1
    for factor in range(2, isqrt(n) + 1):
        while n % factor == 0:
            largest, n = factor, n // factor
    return max(largest, n)


def _fast(n: int) -> int:
    """The least even length of factors 2, 3 and 5 that is not below."""
    odd: list[int] = [3**a * 5**b for a in range(16) for b in range(11)]
    return min(one << max((-(-n // one) - 1).bit_length(), 1) for one in odd if one <= n)


def _lengths(name: str, told: Signature) -> list[int]:
    """The lengths along the axes of a transform."""
    dims = told.shape(0)
    axes = [one for one in numbers_of(told, 1) if -len(dims) <= one < len(dims)]
    sizes = [dims[one] for one in axes]
    return [*sizes[:-1], number_of(told, 3)] if name == _TO_REAL and sizes else sizes


def awkward_ffts(facts: Facts, seen: Forward) -> Waste | None:
    """Transforms with a large prime factor in their length, forward and backward, less what a fast length takes.

    Where nothing is padded to that length, and on a GPU, nobody knows what that would be: all of it stays.
    """
    trace, ops = seen.trace, seen.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, _FFT) & (ops.signature >= 0)).astype(np.int64)
    spent: dict[int, int] = {}
    mine, weight, total = [], 0.0, 0
    for row in rows.tolist():
        told = trace.given(row)
        lengths = _lengths(trace.name(int(ops.name[row])), told) if told is not None else []
        awkward = [n for n in lengths if _largest_prime(n) >= AWKWARD_FFT.limit("prime")]
        if awkward:
            ns = int(ops.end_ns[row] - ops.start_ns[row])
            spent[max(awkward)] = spent.get(max(awkward), 0) + ns
            mine.append(row)
            weight, total = weight + ns * len(awkward) / len(lengths), total + ns
    timed = timed_rows(facts, seen, np.array(mine, np.int64))
    if not timed.size:
        return None
    n = max(spent, key=lambda one: spent[one])
    is_known = facts.cpu is not None and _is_padded(seen, n)
    kept = 1 - (1 - _KEPT_OF_FFT) * weight / max(total, 1) if is_known else 1.0
    prime = _largest_prime(n)
    what = "a prime number" if prime == n else f"with the prime factor {prime:,}"
    title = f"FFTs have length {n:,}, {what}; the next fast length is {_fast(n):,}"
    return Waste(Ranges.of(facts.trace.ops, timed, facts.trace.window_ns), kept, title)


def _is_padded(seen: Forward, n: int) -> bool:
    """Whether the script pads to that length: another one does as well."""
    for place in seen.places(_PADS):
        told = seen.given(place)
        dims = told.shape(0) if told is not None else ()
        if told is None or not dims:
            continue
        numbers = numbers_of(told, 1)
        if "fft" in seen.name(place):
            if n in numbers and n not in dims:
                return True
        elif any(size + sum(numbers[2 * at : 2 * at + 2]) == n for at, size in enumerate(reversed(dims))):
            return True
    return False


_SHIFT: Final = "aten::fft_fftshift"
_SHIFT_BACK: Final = "aten::fft_ifftshift"


def fft_shifts(facts: Facts) -> Waste | None:
    """Shifts of the zero frequency forth and back, with their backward nodes.

    Those that have a transform before or behind them, with no other shift between.
    """
    trace, ops = facts.trace, facts.trace.ops
    if not {_SHIFT, _SHIFT_BACK} <= set(trace.strings):
        return None
    back, forth = (ops.name == trace.strings.index(one) for one in (_SHIFT_BACK, _SHIFT))
    is_shift = back | forth
    rows = np.flatnonzero(is_shift | trace.named(ops.name, _FFT)).astype(np.int64)
    rows = rows[np.lexsort((ops.start_ns[rows], ops.thread[rows]))]
    is_joint = (is_shift[rows[1:]] != is_shift[rows[:-1]]) & (ops.thread[rows[1:]] == ops.thread[rows[:-1]])
    mine = rows[is_shift[rows] & (np.append(is_joint, False) | np.append(False, is_joint))]
    if not back[mine].any() or not forth[mine].any():
        return None
    name = function_of(facts, mine)
    return Waste(each_with_backward(facts, mine), 0.0, f"{FFT_SHIFTS.title}, in {name}" if name else "")


_DECOMPOSES: Final = later(
    r"^aten::(?:linalg_(?:slogdet|det|inv|inv_ex|pinv|cholesky|cholesky_ex|eigh|eigvalsh|eig|eigvals|svd|svdvals|qr|lu|"
    r"lu_factor|matrix_exp|matrix_power)|slogdet|logdet|det|inverse|cholesky|cholesky_inverse|matrix_exp|matrix_power)$"
)
_BATCHED: Final = later(r"^aten::(?:bmm|matmul)$")
_SOLVES: Final = later(r"^aten::(?:linalg_(?:solve|solve_ex|solve_triangular)|triangular_solve|cholesky_solve)$")
"""What takes its matrix as it is, and copies it for each right side of a batch."""
_MATRIX_LAST: Final = ("aten::triangular_solve", "aten::cholesky_solve")
_ALGEBRA: Final = (_DECOMPOSES, _BATCHED, _SOLVES, later(r"^aten::(?:baddbmm|einsum)$"))
_THIN: Final = 4
"""Rows that each copy is multiplied by, at most: more of them make each product worth its call. Measured on one CPU, below."""
_KEPT_OF_PRODUCT: Final = 0.1
"""What one product or solve with the single matrix takes. Measured on one CPU with 64 and 512 copies, forward and backward: products of 16 to
256 rows 0.02 to 0.2, one 0.33, with 16 rows each 0.12 to 0.47, with 64 0.4 and more; solves of 32 and 96 rows 0.002 to 0.27, one 0.48;
cholesky_solve with 10 to 96 rows forward alone 0.02 to 0.28, of 96 and 512 copies."""
_EQUAL_MARK: Final = later(r"^profkit: equal matrices, ([0-9]{1,18}), (result|[0-9])$")
"""The names of its marks: `profkit/capture/inside/places/equal_matrices.py`."""
_EXPANDS: Final = later(r"^aten::(?:expand|expand_as|broadcast_to|repeat)$")
_COPIES: Final = later(r"^aten::(?:repeat|clone|contiguous)$")
_NEAR: Final = 8
"""Operators from what expands or copies a matrix to what takes it. Chosen."""


def _distinct(told: Signature, at: int) -> float:
    """The share (0-1) of a batch's matrices that are distinct, by strides of 0; 1 of other arguments."""
    sizes = told.shape(at)
    strides = told.strides[at] if at < len(told.strides) else ()
    if len(sizes) < 3 or len(strides) != len(sizes):
        return 1.0
    copies = prod(size for size, stride in zip(sizes[:-2], strides[:-2], strict=True) if stride == 0 and size)
    return 1 / copies


def _copied(seen: Forward, place: int) -> tuple[tuple[int, ...], float]:
    """The shape that copies of a matrix have in memory of their own, and the share of distinct ones; () of others."""
    told = seen.given(place)
    sizes = told.shape(0) if told is not None else ()
    if told is None or seen.name(place) != "aten::repeat":
        return (sizes, _distinct(told, 0)) if told is not None else ((), 1.0)
    times = numbers_of(told, 1)
    if len(sizes) != 2 or len(times) < 3 or times[-2:] != [1, 1] or min(times) < 1:
        return (), 1.0
    return (*times[:-2], *sizes), 1 / prod(times)


def _marked(trace: Trace, seen: Forward) -> dict[tuple[int, int], int]:
    """How many equal matrices the capture saw, by the place of the operator right before and its argument; -1: what it gives."""
    spans, ops = trace.spans, trace.ops
    marks = {
        code: told for code in distinct_codes(spans.name).tolist() if (told := _EQUAL_MARK.search(trace.name(code)))
    }
    mine = np.flatnonzero(is_one_of(spans.name, marks))
    out: dict[tuple[int, int], int] = {}
    for thread, rows in rows_by_value(spans.thread[mine]):
        on_it = np.flatnonzero(ops.thread[seen.rows] == thread)
        before = place_among(ops.start_ns[seen.rows[on_it]], spans.start_ns[mine[rows]], after=True) - 1
        for at, code in zip(before.tolist(), spans.name[mine[rows]].tolist(), strict=True):
            if at >= 0 and not seen.is_back[on_it[at]]:
                what = marks[code][2]
                out[int(on_it[at]), -1 if what == "result" else int(what)] = max(int(marks[code][1]), 1)
    return out


def _each(seen: Forward, marked: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """The places of operators that work on each copy of a matrix, and the share (0-1) of their time that one takes."""
    out: dict[int, float] = {place: 1 / n for (place, what), n in marked.items() if what < 0}
    for place in seen.places(_DECOMPOSES):
        told = seen.given(place)
        if told is not None and (share := _distinct(told, 0)) < 1:
            out[place] = share
    for place in seen.places(_COPIES):
        shape, share = _copied(seen, place)
        for number in behind(seen, place, _NEAR) if share < 1 else ():
            dims = seen.dims(number)
            if dims[:1] == [shape] and _DECOMPOSES.search(seen.name(number)):
                out.setdefault(number, share)
            elif shape in dims:
                break  # it may make each another one
    for place in seen.places(_BATCHED):
        told = seen.given(place)
        dims = [told.shape(0), told.shape(1)] if told is not None else []
        if told is not None and all(len(one) >= 3 for one in dims):
            thin = (dims[1][-1], dims[0][-2])
            if any(((place, at) in marked or _distinct(told, at) < 1) and thin[at] <= _THIN for at in (0, 1)):
                out.setdefault(place, _KEPT_OF_PRODUCT)
    for place in seen.places(_SOLVES):
        told, at = seen.given(place), int(seen.name(place) in _MATRIX_LAST)
        matrix, sides = (told.shape(at), told.shape(1 - at)) if told is not None else ((), ())
        is_thin = len(matrix) >= 2 and prod(sides[:-2]) > 1 and min(sides[-2:]) <= _THIN
        is_one = prod(matrix[:-2]) == 1 or (place, at) in marked
        if told is not None and is_thin and (is_one or _distinct(told, at) < 1):
            out.setdefault(place, _KEPT_OF_PRODUCT)
    return out


def _expand_of(seen: Forward, place: int) -> list[int]:
    """The place of the expand before it: its backward node sums the gradients of all copies. Views have no shapes."""
    if any(len(one) < 3 for one in seen.dims(place)):  # it copies the matrix itself
        return []
    before = range(place - 1, max(place - 1 - _NEAR, -1), -1)
    return [one for one in before if _EXPANDS.search(seen.name(one))][:1]


def one_matrix(facts: Facts) -> Waste | None:
    """Work on copies of one matrix, products with a few rows each, and what expands it, with their backward nodes."""
    again, seen = facts.trace.again, facts.once(with_shapes)
    if again is not None and any(map(_EQUAL_MARK.search, again.strings)):
        seen = Forward(facts, again)
    if seen is None:
        return None
    marked = _marked(seen.trace, seen)
    each = _each(seen, marked)
    spent = {place: int((seen.trace.ops.end_ns - seen.trace.ops.start_ns)[seen.rows[place]]) for place in each}
    named = [place for place in each if any(one.search(seen.name(place)) for one in _ALGEBRA)]
    rows = timed_rows(facts, seen, _rows_of_copies(seen, each, marked))
    if not named or not rows.size:
        return None
    kept = sum(each[place] * ns for place, ns in spent.items()) / max(sum(spent.values()), 1)
    first = max(named, key=spent.__getitem__)
    sizes = [prod(dims[:-2]) for dims in seen.dims(first) if len(dims) >= 3][:2]
    n = max(marked.get((first, -1), 1), *sizes, 1)
    ranges = each_with_backward(facts, rows)
    told = shares(facts.code, rows_of(facts, facts.code, ranges, spare_work=True)) if facts.code is not None else ()
    there = f" (most at {told[0].place.name})" if told else ""
    name = seen.name(first).removeprefix("aten::").replace("linalg_", "linalg.")
    title = f"torch.{name} works on {n:,} copies of one matrix{there}"
    return Waste(ranges, max(kept, _fixed(facts, ranges)), title, ONE_MATRIX.fixes[bool(marked)])


def _rows_of_copies(seen: Forward, each: Mapping[int, float], marked: Mapping[tuple[int, int], int]) -> I64:
    by_strides = set(each) - {place for place, _ in marked}
    places = {*each, *(one for place in by_strides for one in _expand_of(seen, place))}
    return seen.rows.take(np.array(sorted(places), np.int64))


def _fixed(facts: Facts, ranges: Ranges) -> float:
    """The share (0-1) of their time that they take for any size, on a CPU: one matrix has it as well."""
    if facts.cpu is None:
        return 0.0
    covered = Intervals.of(ranges.start_ns, ranges.end_ns).clip(*facts.trace.window_ns)
    return (covered & facts.cpu.dispatch).total_ns / max(covered.total_ns, 1)


_FACTORS: Final = later(r"^aten::(?:linalg_cholesky|linalg_cholesky_ex|cholesky)$")
_AFTER_FACTORS: Final = later(r"^aten::(?:linalg_solve_triangular|triangular_solve|cholesky_solve|cholesky_inverse)$")
_KEPT_OF_SMALL: Final = 0.1
"""What the written-out form takes of factors and solves. Measured on one CPU, 20,000 matrices of 2 x 2, forward and backward: a factor 0.07, the
density of a normal distribution 0.05, with scale_tril= 0.36. An inverse or a determinant has 0.2 to 1: those are not judged."""
_DENSITY: Final = later(r"\b(?:MultivariateNormal|LowRankMultivariateNormal|Wishart)\b")


def small_matrices(facts: Facts, seen: Forward) -> Waste | None:
    """Cholesky factors of many tiny matrices, the solves with these, and their backward nodes: on a CPU each matrix is a call of LAPACK."""
    if facts.cpu is None or not any(map(_FACTORS.search, seen.trace.strings)):
        return None
    places = []
    for place in (*seen.places(_FACTORS), *seen.places(_AFTER_FACTORS)):
        told = seen.given(place)
        sizes = told.shape(0) if told is not None else ()
        size = (prod(sizes[:-2]), sizes[-1]) if len(sizes) >= 3 and sizes[-1] == sizes[-2] else (0, 0)
        is_small = 2 <= size[1] <= SMALL_MATRICES.limit("rows") and size[0] >= SMALL_MATRICES.limit("matrices")
        if told is None or not is_small or _distinct(told, 0) < 1:
            continue
        places.append((place, size))
    factored = dict.fromkeys(size for place, size in places if _FACTORS.search(seen.name(place)))
    mine = [place for place, size in places if size in factored]
    rows = timed_rows(facts, seen, np.unique(seen.rows[mine])) if mine else np.empty(0, np.int64)
    if not rows.size:
        return None
    n, width = max(factored, key=prod)
    what = f"factors {n:,} matrices of {width} x {width}, one call of LAPACK for each"
    line = _density_line(facts, rows)
    if line is None:
        return Waste(each_with_backward(facts, rows), _KEPT_OF_SMALL, f"torch.linalg.cholesky {what}")
    density, there, rows = line
    return Waste(
        each_with_backward(facts, rows), _KEPT_OF_SMALL, f"{density} at {there} {what}", SMALL_MATRICES.fixes[1]
    )


def _density_line(facts: Facts, rows: I64) -> tuple[str, str, I64] | None:
    """The class of `torch.distributions` that the line of most of them names, that line, and they with what else it runs.

    Its checks go as well, products do not. None where no line is known to name one.
    """
    code, ops = facts.code, facts.trace.ops
    if code is None:
        return None
    spent = np.bincount(code.place_of_op[rows] + 1, weights=(ops.end_ns - ops.start_ns)[rows])
    number = int(spent.argmax()) - 1
    density = _DENSITY.search(code.places[number].text) if number >= 0 else None
    if density is None:
        return None
    seen = facts.once(Forward)
    there = seen.rows[(code.place_of_op[seen.rows] == number) & ~seen.is_back]
    is_product = facts.trace.named(ops.name, PRODUCT)[there]
    return density[0], code.places[number].name, np.union1d(rows, there[~is_product])


_FIGURE: Final = later(r"^aten::(?:linalg_(?:eigvals|eigvalsh|svdvals|cond|matrix_rank)|histc|histogram\w*|corrcoef)$")
"""What says how a tensor is, and is seldom part of what a model computes. Not quantiles, sorts, distances, whole decompositions:
clipping, whitening, matching, codebooks need these without a gradient."""


def figures(facts: Facts) -> Waste | None:
    """Such operators in or right behind the forward passes that train, in each step, that no backward node comes back to."""
    trace, ops = facts.trace, facts.trace.ops
    if not any(map(_FIGURE.search, trace.strings)) or (found := facts.once(unread_of_step)) is None:
        return None
    is_figure = trace.named(ops.name, _FIGURE)
    runs = [
        run[is_figure[run]]
        for run, within, follows in zip(found.runs, found.within, found.follows, strict=True)
        if within or follows
    ]
    rows = np.concatenate([np.empty(0, np.int64), *runs])
    begins, _ = edges(steps_in_window(trace))
    if not rows.size or distinct(place_among(begins, ops.start_ns[rows], after=True)).size < max(facts.n_steps, 1):
        return None
    ranges = Ranges.of(ops, rows, trace.window_ns)
    return Waste(ranges, 0.0, _title_of_figures(facts, trace, rows, ranges))


def _title_of_figures(facts: Facts, trace: Trace, rows: I64, ranges: Ranges) -> str:
    ops = trace.ops
    largest = rows[int((ops.end_ns - ops.start_ns)[rows].argmax())]
    name = trace.name(int(ops.name[largest])).removeprefix("aten::").replace("linalg_", "linalg.")
    told = shares(facts.code, rows_of(facts, facts.code, ranges, spare_work=True)) if facts.code is not None else ()
    there = f"{told[0].place.name} computes torch.{name}" if told else f"torch.{name} is computed"
    return f"{there} in each step, and no gradient goes through it"
