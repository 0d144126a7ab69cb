"""Products whose rows are no multiple of 16 bytes: which these are, and when the finding fires."""

from typing import Any

import pytest

from profkit.model.signature import Signature
from profkit.roof.formulas.alignment import Misfit, misfits
from profkit.testing import Row, kernel, launch, operator, span
from tests.drawing import finding_in

BF16, FP32, FP8 = "c10::BFloat16", "float", "c10::Float8_e4m3fn"
A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
MI300X = {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}]}
NARROW = "void cutlass::Kernel<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x1_tn_align1>(Params)"
WIDE = "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)"
MS = 10**6


def dense(*sizes: int) -> tuple[int, ...]:
    out, stride = [], 1
    for size in reversed(sizes):
        out.append(stride)
        stride *= size
    return tuple(reversed(out))


def signature(
    a: tuple[int, ...], b: tuple[int, ...], *strides: tuple[int, ...], kind: str = BF16, first: bool = False
) -> Signature:
    lead = ((8,),) if first else ()
    given = (*((((1,),)) if first else ()), *strides) if strides else ()
    return Signature(dims=(*lead, a, b), types=(kind,) * (2 + first), strides=given, concrete=("",) * (2 + first))


ROWS = {
    "the result of a vocabulary": ("aten::linear", (64, 768), (50257, 768), BF16, (("N", 50257, 50264),)),
    "a hidden size": ("aten::linear", (4, 16, 1001), (1024, 1001), BF16, (("K", 1001, 1008),)),
    "both": ("aten::linear", (64, 17), (10, 17), BF16, (("K", 17, 24), ("N", 10, 16))),
    "tf32 takes four": ("aten::linear", (64, 768), (1001, 768), FP32, (("N", 1001, 1004),)),
    "tf32 fits": ("aten::linear", (64, 772), (1004, 772), FP32, ()),
    "fp8 takes sixteen": ("aten::linear", (64, 768), (1000, 768), FP8, (("N", 1000, 1008),)),
    "any number of tokens": ("aten::linear", (1023, 768), (50304, 768), BF16, ()),
    "a product with a vector": ("aten::linear", (1, 768), (1001, 768), BF16, ()),
    "a result of one column": ("aten::linear", (64, 768), (1, 768), BF16, ()),
    "another operator": ("aten::add", (64, 17), (64, 17), BF16, ()),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_dense_factors(case: str) -> None:
    name, a, b, kind, wrong = ROWS[case]
    told = tuple(Misfit(*one) for one in wrong)
    assert misfits(name, signature(a, b, dense(*a), dense(*b), kind=kind)) == told
    assert misfits(name, signature(a, b, kind=kind)) == told  # traces before strides


def test_a_transposed_factor_has_rows_of_its_other_axis() -> None:
    # the weight's gradient: dY^T X, with 1,023 tokens as K, in rows of 768 and 1,024
    assert misfits("aten::mm", signature((768, 1023), (1023, 1024), (1, 768), (1024, 1))) == ()
    assert misfits("aten::mm", signature((768, 1023), (1023, 1024), (1023, 1), (1024, 1))) == (Misfit("K", 1023, 1024),)
    assert misfits("aten::addmm", signature((64, 768), (768, 1001), (768, 1), (1, 768), first=True)) == (
        Misfit("N", 1001, 1008),  # the result
    )


def test_a_slice_of_aligned_rows_is_aligned_and_what_has_no_rows_is_not_known() -> None:
    assert misfits("aten::bmm", signature((4, 64, 30), (4, 30, 64), (4096, 64, 1), (1920, 64, 1))) == ()
    assert misfits("aten::mm", signature((64, 30), (30, 64), (60, 2), (128, 2))) == ()


def job(each_us: int, *, n: int, name: str, dense_us: int = 100) -> list[Row]:
    """Steps of 2 ms: a product of 4096 x 1024 x n, and an aligned one of 256 GFLOP/s short of its roof."""
    rows: list[Row] = []
    for step in range(6):
        at = step * 2 * MS
        rows.append(span(f"ProfilerStep#{step}", at, at + 2 * MS))
        work = (((4096, 1024), (n, 1024), name, each_us), ((4096, 1024), (1024, 1024), WIDE, dense_us))
        start = at + 50_000
        for place, (a, b, gemm, lasts_us) in enumerate(work):
            number = 1 + 2 * step + place
            begin = at + place * 20_000
            strides = [list(dense(*a)), list(dense(*b))]
            arguments: dict[str, Any] = {"Input_Dims": [a, b], "Input_type": [BF16, BF16], "Input_Strides": strides}
            rows.append(operator("aten::linear", begin, begin + 10_000, Concrete_Inputs=["", ""], **arguments))
            rows.append(launch(begin + 1000, begin + 2000, correlation=number))
            rows.append(kernel(gemm, start, start + lasts_us * 1000, correlation=number))
            start += lasts_us * 1000
    return rows


def found(rows: list[Row], **metadata: Any) -> Any:
    return finding_in(rows, "kernel.unaligned", **metadata or A100)


def test_unaligned_rows_cost_what_lies_beyond_the_share_of_good_products() -> None:
    one = found(job(1500, n=4001, name=NARROW))
    roof_us = 2 * 4096 * 1024 * 4001 / 312e6
    assert one.recoverable_ns == pytest.approx(
        (1500 - roof_us / 0.4) * 1000, rel=0.01
    )  # the aligned reach less than 40 %
    assert "aten::linear of 4096x1024, 4001x1024" in one.evidence[0].statement
    assert one.fix == "pad these sizes in the model: 4,001 to 4,008 or 4,032 (the second is the next multiple of 64)"


@pytest.mark.parametrize(
    ("each_us", "n", "name"),
    [
        (1500, 4032, NARROW),  # it fits
        (1500, 4001, WIDE),  # its kernel loads whole rows
        (120, 4001, NARROW),  # it is as fast as good ones
    ],
)
def test_what_is_no_fault_of_sizes(each_us: int, n: int, name: str) -> None:
    assert found(job(each_us, n=n, name=name)) is None


def test_other_makers_and_unknown_devices_are_not_judged() -> None:
    rows = job(1500, n=4001, name=NARROW)
    assert found(rows, **MI300X) is None
    assert found(rows, deviceProperties=[{"id": 0, "name": "NVIDIA X1"}]) is None


def test_the_lines_of_unaligned_products_alone_are_named() -> None:
    rows = job(1500, n=4001, name=NARROW)
    for step in range(6):
        begin = step * 2 * MS
        for name, first in (("net.py(5): head", 0), ("net.py(9): body", 20_000)):
            rows.append(span(name, begin + first, begin + first + 15_000, cat="python_function"))
    (place,) = found(rows).places
    assert (place.place.name, place.share, place.count) == ("head() (net.py:5)", 1.0, 6)
