"""FLOPs and bytes against counts by hand, and against published ones (docs/roof.md)."""

import random

import pytest

from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature
from profkit.roof.formulas import FORMULAS, work_of

MIB = 1024 * 1024
HALF, FLOAT = "c10::BFloat16", "float"


def given(*arguments, kind=FLOAT):
    """A signature: a tuple is a tensor of that shape, a pair of a tuple and a str one of that type, a str a value."""
    dims, types, strides, concrete = [], [], [], []
    for argument in arguments:
        shape, of, value = (), kind, ""
        if isinstance(argument, str) or argument is None:
            of, value = ("Scalar" if argument else ""), argument or ""
        elif argument and isinstance(argument[-1], str):
            shape, of = argument
        else:
            shape = argument
        dims.append(tuple(shape))
        types.append(of)
        concrete.append(value)
        stride, row = 1, []
        for size in reversed(shape):
            row.insert(0, stride)
            stride *= size
        strides.append(tuple(row))
    return Signature(tuple(dims), tuple(types), tuple(strides), tuple(concrete))


def counted(name, *arguments, kind=FLOAT):
    work = work_of(name, given(*arguments, kind=kind))
    return work.flops, work.n_bytes


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "n_elements"),
    [
        ("aten::mm", [(3, 5), (5, 7)], 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("aten::mv", [(3, 5), (5,)], 2 * 3 * 5, 15 + 5 + 3),
        ("aten::dot", [(5,), (5,)], 2 * 5, 5 + 5 + 1),
        ("aten::bmm", [(2, 3, 5), (2, 5, 7)], 2 * 2 * 3 * 5 * 7, 30 + 70 + 42),
        ("aten::matmul", [(4, 2, 3, 5), (5, 7)], 2 * 24 * 5 * 7, 120 + 35 + 168),
        ("aten::matmul", [(4, 1, 3, 5), (2, 5, 7)], 2 * 8 * 3 * 5 * 7, 60 + 70 + 168),
        ("aten::addmm", [(7,), (3, 5), (5, 7), "1", "1"], 2 * 3 * 5 * 7, 7 + 15 + 35 + 21),
        ("aten::addmm", [(7,), (3, 5), (5, 7), "0", "1"], 2 * 3 * 5 * 7, 15 + 35 + 21),
        ("aten::baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7), "1", "1"], 2 * 2 * 3 * 5 * 7, 42 + 30 + 70 + 42),
        ("aten::linear", [(4, 3, 5), (7, 5), (7,)], 2 * 12 * 5 * 7, 60 + 35 + 7 + 84),
        ("aten::linear", [(4, 3, 5), (7, 5), None], 2 * 12 * 5 * 7, 60 + 35 + 84),
        # rows 10 in all, shared among 4 groups: each row is multiplied once
        ("aten::_grouped_mm", [(10, 5), (4, 5, 7), ((0,), "int"), None, None], 2 * 10 * 5 * 7, 50 + 140 + 70),
        ("aten::conv2d", [(2, 4, 10, 10), (6, 4, 3, 3), (6,), "[1, 1]", "[1, 1]", "[1, 1]", "1"],
         2 * 2 * 6 * 100 * 36, 800 + 216 + 6 + 1200),
        ("aten::conv2d", [(2, 4, 10, 10), (6, 2, 3, 3), None, "[2, 2]", "[0, 0]", "[1, 1]", "2"],
         2 * 2 * 6 * 16 * 18, 800 + 108 + 192),
        ("aten::conv1d", [(4, 10), (6, 4, 3), None, "[1]", "[0]", "[2]", "1"], 2 * 6 * 6 * 12, 40 + 72 + 36),
        ("aten::conv_transpose2d",
         [(2, 8, 10, 10), (8, 4, 3, 3), None, "[2, 2]", "[0, 0]", "[0, 0]", "1", "[1, 1]"],
         2 * 2 * 8 * 100 * 36, 1600 + 288 + 2 * 4 * 21 * 21),
        ("aten::cudnn_convolution",
         [(2, 4, 10, 10), (6, 4, 3, 3), "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
         2 * 2 * 6 * 100 * 36, 800 + 216 + 1200),
        ("aten::add", [(3, 5), (5,), "1"], 15, 15 + 5 + 15),
        ("aten::mul", [(3, 5), ((), "double")], 15, 15 + 15),
        ("aten::mul_", [(3, 5), (3, 5)], 15, 45),
        ("aten::copy_", [(3, 5), (3, 5), "False"], 0, 30),
        ("aten::sum", [(3, 5), "[1]", "False", None], 15, 15 + 3),
        ("aten::sum", [(3, 5), "[-2]", "True", None], 15, 15 + 5),
        ("aten::sum", [(3, 5), None], 15, 15 + 1),
        ("aten::native_layer_norm", [(3, 5), "[5]", (5,), (5,), "1e-05"], 75, 15 + 10 + 15),
        ("aten::native_batch_norm", [(2, 4, 3, 3), (4,), (4,), (4,), (4,), "False", "0.1", "1e-05"], 144, 144 + 16),
        ("aten::_softmax", [(3, 5), "-1", "False"], 75, 30),
    ],
)  # fmt: skip
def test_counts_by_hand(name, arguments, flops, n_elements):
    kinds = [argument for argument in arguments if isinstance(argument, tuple) and argument[-1:] == ("int",)]
    assert counted(name, *arguments) == (flops, 4 * (n_elements + sum(shape[0][0] for shape in kinds)))


def test_an_expanded_tensor_is_read_once():
    batched = Signature(((4, 8, 16), (4, 16, 8)), (FLOAT, FLOAT), ((128, 16, 1), (0, 8, 1)), ("", ""))
    assert work_of("aten::bmm", batched).n_bytes == 4 * (512 + 128 + 256)


def test_without_strides_a_tensor_may_be_expanded():
    bare = Signature(((3, 5), (3, 5)), (FLOAT, FLOAT), (), ("", ""))
    assert work_of("aten::add", bare).n_bytes is None
    assert work_of("aten::add", bare).flops == 15
    square = Signature(((5, 5), (5, 5)), (FLOAT, FLOAT), (), ("", ""))
    assert work_of("aten::mm", square).n_bytes == 4 * 75


def test_low_precision_products_have_results_and_scales_of_their_own_types():
    scaled = given((16, 32), (32, 8), ((1,), FLOAT), ((1,), FLOAT), None, None, "15", "True", kind="c10::Float8_e4m3fn")
    work = work_of("aten::_scaled_mm", scaled)
    assert (work.flops, work.n_bytes) == (2 * 16 * 32 * 8, 16 * 32 + 32 * 8 + 8 + 2 * 16 * 8)
    assert work.precision is Precision.FP8
    integers = work_of("aten::_int_mm", given((16, 32), (32, 8), kind="signed char"))
    assert (integers.n_bytes, integers.precision) == (16 * 32 + 32 * 8 + 4 * 16 * 8, Precision.INT8)


def _convolved(mask, groups="1"):
    weight = (16, 8 // int(groups), 3, 3)
    shapes = [(2, 16, 10, 10), (2, 8, 10, 10), weight]
    return counted(
        "aten::convolution_backward", *shapes, "[16]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", groups, mask
    )


def test_backward_of_a_convolution_counts_the_gradients_it_gives():
    each = 2 * 2 * 16 * 100 * 8 * 9
    dy, x, w = 3200, 1600, 1152
    assert _convolved("[True, True, True]") == (2 * each, 4 * (2 * (dy + x + w) + 16))
    assert _convolved("[False, True, False]") == (each, 4 * (dy + x + w))
    assert _convolved("[True, False, False]") == (each, 4 * (dy + x + w))


def test_groups_divide_both_gradients():
    # 230,400: the count that torch.utils.flop_counter has as 576,000
    grad, x, w = (1, 16, 10, 10), (1, 16, 10, 10), (16, 4, 3, 3)
    flops, _ = counted(
        "aten::convolution_backward", grad, x, w, "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "4",
        "[True, True, False]",
    )  # fmt: skip
    assert flops == 2 * 115_200


def _sdpa(q, k, v, causal, kind=HALF):
    return work_of("aten::scaled_dot_product_attention", given(q, k, v, None, "0.", causal, "", "False", kind=kind))


def test_attention_has_two_products_and_the_heads_of_its_queries():
    work = _sdpa((2, 8, 10, 16), (2, 2, 12, 16), (2, 2, 12, 20), "False")
    assert work.flops == work.least_flops == 2 * 2 * 8 * 10 * 12 * (16 + 20)
    assert work.n_bytes == 2 * (2 * 8 * 10 * 16 + 2 * 2 * 12 * 16 + 2 * 2 * 12 * 20 + 2 * 8 * 10 * 20)


@pytest.mark.parametrize(("queries", "keys", "pairs"), [(4, 4, 10), (2, 5, 3), (5, 2, 9)])
def test_a_causal_mask_leaves_the_keys_up_to_the_query(queries, keys, pairs):
    work = _sdpa((1, 1, queries, 8), (1, 1, keys, 8), (1, 1, keys, 8), "True")
    assert work.flops == 2 * queries * keys * 16
    assert work.least_flops == 2 * pairs * 16
    assert pairs == sum(min(row + 1, keys) for row in range(queries))


def test_backward_of_attention_has_five_products():
    shapes = [(2, 4, 8, 16)] * 5
    rest = [(2, 4, 8), None, None, "8", "8", "0.", "True", None, None, None]
    work = work_of("aten::_scaled_dot_product_flash_attention_backward", given(*shapes, *rest, kind=HALF))
    assert work.flops == 5 * 2 * 2 * 4 * 8 * 8 * 16
    assert work.least_flops == 5 * 2 * 2 * 4 * 36 * 16
    assert work.n_bytes == 2 * 8 * 2 * 4 * 8 * 16


def test_attention_of_the_flash_attn_package():
    q, k = (2, 32, 8, 16), (2, 48, 2, 16)  # [B, S, H, D]
    forward = ("0.", "0.25", "True", "-1", "-1", "0.", None, "False")
    work = work_of("flash_attn::_flash_attn_forward", given(q, k, k, *forward, kind=HALF))
    assert work.flops == 4 * 2 * 8 * 32 * 48 * 16
    assert work.least_flops == 4 * 2 * 8 * 16 * sum(row + 17 for row in range(32))  # the last query sees all keys
    assert work.n_bytes == 2 * (2 * 2 * 32 * 8 * 16 + 2 * 2 * 48 * 2 * 16)
    lse = ((2, 8, 32), FLOAT)
    backward = ("0.", "0.25", "False", "-1", "-1", "0.", None, "False", None)
    shapes = (q, q, k, k, q, lse, q, k, k)
    work = work_of("flash_attn::_flash_attn_backward", given(*shapes, *backward, kind=HALF))
    assert work.flops == work.least_flops == 10 * 2 * 8 * 32 * 48 * 16
    windowed = ("0.", "0.25", "True", "128", "0", "0.", None, "False")
    assert work_of("flash_attn::_flash_attn_forward", given(q, k, k, *windowed, kind=HALF)).flops is None


def test_embeddings_move_rows_and_compute_nothing():
    indices = ((2, 3), "long int")
    assert counted("aten::embedding", (100, 8), indices, "-1", "False", "False") == (0, 4 * 2 * 48 + 8 * 6)
    # more indices than rows: a row is read once
    assert counted("aten::embedding", (4, 8), indices, "-1", "False", "False") == (0, 4 * (32 + 48) + 8 * 6)
    grad = counted("aten::embedding_dense_backward", (2, 3, 8), indices, "100", "-1", "False")
    assert grad == (48, 4 * (48 + 800) + 8 * 6)


def test_bools_and_promoted_types_have_their_own_size():
    assert counted("aten::gt", (3, 5), "0")[1] == 15 * 4 + 15
    assert counted("aten::native_dropout", (3, 5), "0.1", "True")[1] == 15 * 4 * 2 + 15
    assert counted("aten::mul", ((3, 5), HALF), ((3, 5), FLOAT))[1] == 15 * (2 + 4 + 4)
    assert counted("aten::masked_fill_", ((3, 5), HALF), ((3, 1), "bool"), "0")[1] == 15 * 4 + 3


def test_a_result_given_to_an_operator_is_not_read():
    assert counted("aten::mul", ((), "double"), (4, 4), (4, 4)) == (16, 4 * 32)
    assert counted("aten::sum", (3, 5), "[1]", "False", "6", (3,)) == (15, 4 * 18)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::_fused_adamw_", [(3,)]),
        ("aten::nonzero", [(3,)]),
        ("aten::mm", []),
        ("aten::mm", [(3, 5)]),
        ("aten::mm", [(3, 5), (6, 7)]),
        ("aten::mm", [(3, 5), ((5, 7), "TensorList")]),
        ("aten::mm", [(2**40, 2**40), (2**40, 2**40)]),
        ("aten::mm", [(-3, 5), (5, 7)]),
        ("aten::conv2d", [(2, 4, 10, 10), (6, 4, 3, 3), None, "", "", "", ""]),  # values not recorded
        ("aten::conv2d", [(2, 4, 10, 10), (6, 4, 3, 3), None, "[0, 0]", "[1, 1]", "[1, 1]", "1"]),
        ("aten::conv2d", [(2, 4, 1, 1), (6, 4, 3, 3), None, "[1, 1]", "[0, 0]", "[1, 1]", "1"]),
        ("aten::scaled_dot_product_attention", [(2, 8, 10, 16)] * 3),
        ("aten::max", [(3, 5), (3, 5)]),
    ],
)
def test_what_is_not_known_has_no_work(name, arguments):
    assert work_of(name, given(*arguments)) is None


def test_packed_sequences_have_bytes_and_no_flops():
    packed = given((100, 4, 16), (100, 4, 16), (100, 4, 16), ((9,), "int"), ((9,), "int"), "32", "32", kind=HALF)
    work = work_of("aten::_flash_attention_forward", packed)
    assert work.flops is None
    assert work.n_bytes == 2 * 4 * 6400


def test_a_compiled_kernel_moves_what_its_grid_has():
    whole = given((2, 10, 64), (2, 5, 64), "640", kind=HALF)  # half of its input
    assert work_of("triton_poi_fused_clone_slice_3", whole).n_bytes == 2 * (640 + 640)
    assert work_of("triton_poi_fused_add_0", given((10,), (10,), "3", "10")) is None
    assert work_of("triton_red_fused_norm_1", given((8, 64), (64,), (8, 64), "8", "64")).n_bytes == 4 * (512 * 2 + 64)


def _gflop(work):
    return work.flops / 1e9


def test_the_published_counts_of_tracelens():
    """Of its own traces (docs/roof.md, "Beside TraceLens"): the same, or different by what is said there."""
    mm = work_of("aten::mm", given((8944, 1024), (1024, 2816), kind=HALF))
    assert _gflop(mm) == 51.581550592
    assert mm.n_bytes / MIB == 71.0078125
    added = work_of("aten::addmm", given((1024,), (8944, 1024), (1024, 1024), "1", "1", kind=HALF))
    assert _gflop(added) == pytest.approx(18.766086144 - 8944 * 1024 / 1e9)  # without the additions of the bias
    attention = _sdpa((16, 16, 559, 64), (16, 16, 559, 64), (16, 16, 559, 64), "True")
    assert attention.n_bytes / MIB == 69.875
    assert attention.flops / 2e9 == 10.239377408  # half of all pairs
    assert attention.least_flops / 1e9 == pytest.approx(10.239377408 * 560 / 559)  # with the diagonal
    backward = [(512, 16, 176, 64)] * 5
    rest = [(512, 16, 176), None, None, "176", "176", "0.", "False", None, None, None]
    name = "aten::_scaled_dot_product_flash_attention_backward"
    assert _gflop(work_of(name, given(*backward, *rest, kind=HALF))) == 162.40345088
    x, w, none = (10, 64, 56, 56), (64, 64, 3, 3), "[0, 0]"
    conv = work_of("aten::conv2d", given(x, w, None, "[1, 1]", "[1, 1]", "[1, 1]", "1"))
    assert _gflop(conv) == 2.31211008
    rest = ["[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", none, "1", "[True, True, False]"]
    assert _gflop(work_of("aten::convolution_backward", given(x, x, w, *rest))) == 4.62422016


def test_the_published_bytes_of_tracelens_for_compiled_kernels():
    """Of its trace of a compiled model: the same along rows; point by point it adds a write, right in place."""
    rows, wide, narrow = (8, 4096, 2048), (32768, 8192), (32768, 2048)
    of_rows = given(rows, narrow, (2048,), rows, "32768", "2048", kind=HALF)
    assert work_of("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1", of_rows).n_bytes / MIB == 384.00390625
    of_rows = given(rows, (2048,), rows, "32768", "2048", kind=HALF)
    assert work_of("triton_red_fused_add_mean_mul_pow_rsqrt_0", of_rows).n_bytes / MIB == 256.00390625
    in_place = work_of("triton_poi_fused__unsafe_view_mul_silu_2", given((8, 4096, 8192), wide, "268435456", kind=HALF))
    assert in_place.n_bytes / MIB == 1536 - 512
    apart = work_of("triton_poi_fused__unsafe_view_add_3", given(rows, rows, narrow, "67108864", kind=HALF))
    assert apart.n_bytes / MIB == 512 - 128
    assert in_place.flops is apart.flops is None  # it counts the operators in the kernel's name, 5 for each element
    product = work_of("aten::mm", given((32768, 2048), (2048, 8192), kind=HALF))
    assert (_gflop(product), product.n_bytes / MIB) == (1099.511627776, 672)
    heads = (8, 16, 4096, 128)
    whole = work_of("aten::_scaled_dot_product_flash_attention", given(heads, heads, heads, "0.", "False", kind=HALF))
    assert (_gflop(whole), whole.n_bytes / MIB) == (1099.511627776, 512)


def test_the_published_bytes_of_tracelens_for_norms():
    """Of its trace of norms: it counts six tensors of a weight's size for each, as batch norm in training has."""
    x, affine, small = (8, 16, 32, 32), (16, 32, 32), (8, 1, 1, 1)
    data, weight, moment = 512 / 1024, 64 / 1024, 8 * 4 / MIB  # MiB
    layer = work_of("aten::native_layer_norm", given(x, "[16, 32, 32]", affine, affine, "1e-05"))
    assert layer.n_bytes / MIB == 1.375 - 4 * weight  # without running mean and variance, read and written
    assert layer.flops == 753664 - 6 * 16384  # and without their operations
    batch = work_of("aten::native_batch_norm", given(x, (16,), (16,), (16,), (16,), "True", "0.1", "1e-05"))
    assert batch.n_bytes / MIB == 1.0003662109375 - 2 * 64 / MIB  # without what it writes of them
    backward = given(x, x, "[16, 32, 32]", small, small, affine, affine, "[True, True, True]")
    there = work_of("aten::native_layer_norm_backward", backward)
    assert there.n_bytes / MIB == 1.75 - weight + 2 * moment  # no bias is read; the mean and the deviation are
    assert there.n_bytes / MIB == 3 * data + 3 * weight + 2 * moment


@pytest.mark.parametrize(
    ("asked", "n_written"),
    [("[True, True, True]", 65536 + 64), ("[True, False, False]", 65536), ("[False, True, True]", 64)],
)
def test_a_norm_writes_the_gradients_that_are_asked_for(asked, n_written):
    x, moments, weight = (8, 256, 32), (8, 256, 1), (32,)
    arguments = given(x, x, "[32]", moments, moments, weight, weight, asked)
    work = work_of("aten::native_layer_norm_backward", arguments)
    assert work.n_bytes == 4 * (2 * 65536 + 2 * 8 * 256 + 32 + n_written)


_SIZES = ((), (1,), (3, 5), (0, 4), (2, 3, 4), (2, 3, 4, 5), (-1, 3), (2**62, 2**62), ((2, 3), (4,)), (2, 3, 4, 5, 6))
_TYPES = ("", FLOAT, HALF, "long int", "bool", "Scalar", "ScalarList", "TensorList", "c10::complex<float>", "strange")
_VALUES = (
    *("", "1", "-1", "0.", "True", "[1, 1]", "[]", "[True, False, True]", "[-9]", "inf", "99999999999999999999", "["),
)


def test_no_arguments_of_a_strangers_file_raise():
    draw = random.Random(7)  # noqa: S311 - a seed, no secret
    for name in (*FORMULAS, "triton_poi_x", "triton_red_x", "aten::other"):
        for _ in range(60):
            n = draw.randrange(14)
            work = work_of(
                name,
                Signature(
                    tuple(draw.choice(_SIZES) for _ in range(n)),
                    tuple(draw.choice(_TYPES) for _ in range(draw.choice((n, n, 1)))),
                    tuple(draw.choice(_SIZES) for _ in range(draw.choice((n, 0)))),
                    tuple(draw.choice(_VALUES) for _ in range(draw.choice((n, n, 2)))),
                ),
            )
            assert work is None or all(
                0 <= (value or 0) <= 2**62 for value in (work.flops, work.least_flops, work.n_bytes)
            )
