"""Each reading from jobs whose change is known, and its lookalikes, which must not give it."""

from dataclasses import replace

import pytest

from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.findings import KINDS
from profkit.model.trace import Trace
from tests.compare.drawn import LOADER, WORKERS, K, N, collective, compared, copy, explained, host, job, read, values
from tests.conftest import ROOT

FOUR = tuple(K(at=10 + 100 * place, us=100) for place in range(4))
EXPOSED = job([*FOUR, N(410, 400)])
"""Compute for 400 us, then a collective of 400 us with nothing beside it."""


# ---------------------------------------------------------------------------------------------------------- overlap


def test_overlap_that_contends_bought_nothing():
    slowed = [K(at=10, us=200), K(at=210, us=200), K(at=420, us=100), K(at=520, us=100)]
    found = read(EXPOSED, job([*slowed, N(10, 400)]))
    assert found["overlap_bought_nothing"].title.endswith("none of that shortens the step")
    seen = values(found["overlap_bought_nothing"])
    assert seen["comm_hidden_fraction_change"] == 1.0
    assert seen["contention_factor"] == pytest.approx(2.0)
    assert seen["overlap_bound_ns"] == 600_000  # of the baseline: 1000 - max(400, 400) us
    assert "stretch_factor" not in seen
    assert "same_work_slower" not in found  # alone, the kernels are as fast as they were


def test_overlap_that_bought_a_little_says_how_little():
    slowed = [K(at=10, us=200), K(at=210, us=200), K(at=420, us=100), K(at=520, us=100)]
    found = read(EXPOSED, job([*slowed, N(10, 400)], step_us=900))
    assert found["overlap_bought_nothing"].title.endswith("only 25.0 % of that shortens the step")


def test_a_slower_clock_is_no_contention():
    slowed = [K(at=10 + 200 * place, us=200) for place in range(4)]
    found = read(EXPOSED, job([*slowed, N(10, 400)]))
    assert "overlap_bought_nothing" not in found
    assert values(found["same_work_slower"])["same_work_factor"] == pytest.approx(2.0)


@pytest.mark.parametrize(("times", "fires"), [(1.12, True), (1.08, False)])
def test_the_same_operators_are_slower_on_a_cpu_from_a_tenth(times, fires):
    def alone(times):
        return job([], ranges=[host("aten::mm", 10, round(500 * times)), host("aten::add", 600, round(200 * times))])

    assert ("same_work_slower" in read(alone(1), alone(times))) == fires


def test_overlap_that_stretches_the_collectives_bought_nothing():
    two = [N(410, 200), N(610, 200)]
    longer = [N(10, 400), N(420, 400)]
    kernels = [K(at=10 + 200 * place, us=100) for place in range(4)]
    found = read(job([*FOUR, *two]), job([*kernels, *longer]))
    assert values(found["overlap_bought_nothing"])["stretch_factor"] == pytest.approx(2.0)
    assert "one rank cannot tell which" in found["overlap_bought_nothing"].seen("compare.stretch_factor").statement
    assert "NCCL_MAX_CTAS" in found["overlap_bought_nothing"].fix


@pytest.mark.parametrize(("before", "after", "is_named"), [(250, 261, False), (18, 20, False), (200, 212, True)])
def test_collectives_that_stretch_little_or_cost_little_took_no_gain(before, after, is_named):
    """4.4 % longer at a cost of 22 of 1000 us, 11 % longer at 4 us: neither took a gain; 6 % longer at 24 us did."""
    kernels = [K(at=10 + 200 * place, us=100) for place in range(4)]
    exposed, hidden = [N(410, before), N(680, before)], [N(12, after), N(280, after)]
    found = read(job([*FOUR, *exposed]), job([*kernels, *hidden])).get("overlap_bought_nothing")
    assert (found is not None and "stretch_factor" in values(found)) == is_named


def test_of_many_ranks_on_a_cpu_nothing_is_said_of_one_rank_or_of_nccl():
    sides = (read_side(name, [str(ROOT / "traces" / f"fsdp_vlm_prefetch_{name}")]) for name in ("off", "on"))
    (found,) = compare(*sides).readings
    assert "profkit triage of each side tells which" in found.seen("compare.stretch_factor").statement
    assert "NCCL" not in found.fix


def test_a_link_that_was_busy_all_along_is_named_with_its_bound():
    kernels = [K(at=10 + 10 * place, us=10) for place in range(30)]
    before = job([K(at=2, us=40), *(N(50 + 100 * place, 95) for place in range(9)), N(950, 48)])
    after = job([*kernels, *(N(10 + 100 * place, 95) for place in range(9)), N(950, 48)])
    seen = values(read(before, after)["overlap_bought_nothing"])
    assert seen["link_busy_fraction"] == pytest.approx(0.903)
    assert seen["overlap_bound_ns"] == 97_000


def test_overlap_that_pays_is_a_gain():
    found = read(EXPOSED, job([*FOUR, N(10, 400)], step_us=600))
    assert set(found) & {"overlap_gained", "overlap_bought_nothing", "comm"} == {"overlap_gained"}
    assert values(found["overlap_gained"])["step_change_ns"] == -400_000


def test_a_gain_that_the_loader_ate_is_a_gain_all_the_same():
    waits = [host(LOADER, 450, 500, "user_annotation")]
    found = read(EXPOSED, job([*FOUR, N(10, 400)], ranges=waits))
    assert "overlap_gained" in found
    assert "overlap_bought_nothing" not in found
    assert found["input"].title == "waiting for data rises"


def test_lost_overlap_is_the_mirror_of_gained():
    found = read(job([*FOUR, N(10, 400)], step_us=600), EXPOSED)
    assert "overlap_lost" in found
    assert "overlap_gained" not in found


# -------------------------------------------------------------------------------------------------------------- input


def test_workers_that_take_the_wait_away():
    before = job([K(at=510, us=400)], ranges=[host(LOADER, 5, 500, "user_annotation")])
    after = job([K(at=20, us=400)], step_us=500, ranges=[host(WORKERS, 5, 10, "user_annotation")])
    found = read(before, after)["input"]
    assert found.title == "waiting for data falls: batches come from worker processes now"
    assert "num_workers=0" in found.evidence[1].statement
    assert values(found)["loader_kind_changed"] == 1.0


def test_workers_that_change_nothing_are_said_to_change_nothing():
    before = job([K(at=20, us=900)], ranges=[host(LOADER, 5, 8, "user_annotation")])
    after = job([K(at=20, us=900)], ranges=[host(WORKERS, 5, 8, "user_annotation")])
    assert "no less waiting" in read(before, after)["input"].title


# ------------------------------------------------------------------------------------------------------------ program


def test_matrix_kernels_of_another_format():
    before = job(
        [K(at=10 + 200 * place, us=200, name="ampere_sgemm_128x64_tn", op="aten::addmm") for place in range(4)]
    )
    after = job(
        [
            K(at=10 + 50 * place, us=50, name="ampere_bf16_s16816gemm_bf16_128x128", op="aten::addmm")
            for place in range(4)
        ]
    )
    comparison = compared(before, after)
    found = next(item for item in comparison.readings if item.id == "compare.precision")
    assert values(found) == {
        "half_precision_share_change": 1.0,
        "operand_bits_change": -16.0,
        "matrix_kernels_change_ns": -600_000.0,
    }
    (row,) = comparison.compute.rows
    assert (row.presence, row.replaced_by) == ("replaced", "ampere_bf16_s16816gemm_bf16_128x128")
    assert (row.by_count_ns, row.by_duration_ns) == (0, -600_000)


FP32, TF32 = "ampere_sgemm_128x64_tn", "ampere_tf32_s1688gemm_128x64"
BF16, FP16 = "ampere_bf16_s16816gemm_bf16_128x128", "ampere_fp16_s16816gemm_fp16_128x128"
FP8 = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (BF16, FP8, "fp8, before in bf16"),
        (FP8, BF16, "bf16, before in fp8"),
        (FP32, TF32, "tf32, before in fp32 (TF32 is on)"),
        (TF32, FP32, "fp32, before in tf32 (TF32 is off)"),
        (BF16, FP16, "fp16, before in bf16"),
    ],
)
def test_formats_are_told_by_their_names(before, after, said):
    sides = [job([K(at=10 + 100 * place, us=90, name=name) for place in range(8)]) for name in (before, after)]
    assert read(*sides)["precision"].title == f"matrix products run in {said}"


def test_a_change_of_format_that_leaves_little_matrix_time_is_one():
    """40 % of the step in fp32 products, 4 % in bf16."""
    before = job([K(at=10 + 100 * place, us=50, name=FP32) for place in range(8)])
    after = job([K(at=10 + 100 * place, us=5, name=BF16) for place in range(8)])
    assert "precision" in read(before, after)


@pytest.mark.parametrize(("n_half", "is_change"), [(9, True), (7, False)])
def test_a_change_of_format_is_a_fifth_of_the_time_of_matrix_kernels(n_half: int, is_change: bool):
    """Of 40 kernels."""
    names = ["ampere_bf16_s16816gemm_bf16_128x128"] * n_half + ["ampere_sgemm_128x64_tn"] * (40 - n_half)
    before = job([K(at=10 + 20 * place, us=20, name="ampere_sgemm_128x64_tn") for place in range(40)])
    after = job([K(at=10 + 20 * place, us=20, name=name) for place, name in enumerate(names)])
    assert ("precision" in read(before, after)) == is_change


@pytest.mark.parametrize(("us", "is_change"), [(5, True), (4, False)])
def test_generated_kernels_count_from_a_hundredth_of_compute(us: int, is_change: bool):
    """Of 450 us: a step that mostly waits is compiled all the same."""
    eager = [K(at=10 + 100 * place, us=50, name=f"vectorized_elementwise_{place}") for place in range(9)]
    after = job([*eager, K(at=920, us=us, name="triton_poi_fused_add_mul_0")])
    assert ("compiled" in read(job(eager), after)) == is_change


def test_fused_kernels_and_fewer_launches():
    eager = [K(at=10 + 20 * place, us=10, name=f"vectorized_elementwise_{place}") for place in range(40)]
    fused = [K(at=10 + 100 * place, us=50, name="triton_poi_fused_add_mul_0") for place in range(4)]
    found = read(job(eager), job(fused, step_us=500))["compiled"]
    assert found.title == "the work is compiled (torch.compile)"
    assert values(found)["launches_change"] == -36
    assert values(found)["compiled_change_ns"] == 200_000


NODE = "autograd::engine::evaluate_function: AddmmBackward0"
FORWARD = [host("aten::linear", 10 + 20 * place, 10) for place in range(4)]
BACKWARD = [host(NODE, 200 + 50 * place, 40) for place in range(4)]
AGAIN = [host("aten::linear", 205 + 50 * place, 10) for place in range(4)]


def test_forward_operators_inside_the_backward_pass_are_recomputation():
    before = job([K(at=10, us=600)], ranges=[*FORWARD, *BACKWARD])
    after = job([K(at=10, us=800)], ranges=[*FORWARD, *BACKWARD, *AGAIN])
    found = read(before, after)["recompute"]
    assert values(found) == {"recomputed_share_change": 1.0, "compute_change_ns": 200_000.0}
    assert "no longer" in read(after, before)["recompute"].title


def test_operators_that_run_again_twice_are_no_more_than_all():
    twice = [*AGAIN, *(host("aten::linear", 220 + 50 * place, 5) for place in range(4))]
    before = job([K(at=10, us=600)], ranges=[*FORWARD, *BACKWARD])
    found = read(before, job([K(at=10, us=800)], ranges=[*FORWARD, *BACKWARD, *twice]))["recompute"]
    assert values(found)["recomputed_share_change"] == 1.0
    assert found.evidence[0].statement.startswith("0.0 % -> 100.0 % of the forward operators")


def test_casts_on_a_cpu_are_what_mixed_precision_leaves():
    plain = job([], ranges=[host("aten::mm", 10, 500)])
    mixed = job([], ranges=[host("aten::_to_copy", 2, 4), host("aten::mm", 10, 500), host("ToCopyBackward0", 600, 20)])
    found = read(plain, mixed)["casts"]
    assert values(found)["cast_nodes_change"] == 1
    assert "no longer" in read(mixed, plain)["casts"].title
    assert "casts" not in read(mixed, mixed)


def test_every_reading_is_explained():
    pairs = [
        (EXPOSED, job([*FOUR, N(10, 400)], step_us=600)),
        (job(batch(1)), job(batch(2))),
        (
            job([K(at=10, us=6)], ranges=[*FORWARD, *BACKWARD]),
            job([K(at=10, us=8)], ranges=[*FORWARD, *BACKWARD, *AGAIN]),
        ),
    ]
    for pair in pairs:
        found = {f"compare.{name}" for name in read(*pair)}
        assert found
        assert found <= set(KINDS)


# --------------------------------------------------------------------------------------------------------------- work


def batch(n: int, us: int = 100, *, n_bytes: int | None = None) -> list[K]:
    """Activations scale with the batch, weights (the optimizer's kernel) do not."""
    kernels = [K(at=60 + 200 * place, us=us, name=f"kernel_{place}", blocks=64 * n) for place in range(4)]
    return [copy(10, 20, n_bytes or 1000 * n), *kernels, K(at=900, us=20, name="multi_tensor_apply_kernel", blocks=320)]


def test_a_doubled_batch_forbids_the_comparison_of_steps():
    comparison = compared(job(batch(1)), job(batch(2, us=150)))
    assert [item.id for item in comparison.readings] == ["compare.work_changed"]
    assert values(comparison.readings[0])["copied_bytes_ratio"] == 2.0
    assert values(comparison.readings[0])["time_per_work_ratio"] == 0.5
    assert not comparison.judgement.is_comparable
    assert comparison.judgement.answer == "inconclusive"


def test_the_ratio_of_the_work_is_the_median_of_the_grids_by_time():
    """Grids four times as large for 60 of 100 us, twice as large for 40."""
    kernels = [K(at=100, us=40, name="kernel_a"), K(at=300, us=60, name="kernel_b")]
    before = job([copy(10, 20, 1000), *kernels])
    grown = [replace(kernels[0], blocks=128), replace(kernels[1], blocks=256)]
    after = job([copy(10, 20, 4000), *grown])
    assert values(read(before, after)["work_changed"])["grid_ratio"] == pytest.approx(4)


def test_a_few_scalars_that_are_copied_are_no_batch():
    """Made on the device, a batch is not copied; the learning rate is, whatever the batch."""
    assert "work_changed" in read(job(batch(1, n_bytes=64)), job(batch(2, n_bytes=64)))


def test_kernels_of_one_grid_all_launched_twice_as_often_are_twice_the_work():
    """Accumulation over two parts as large as the one before; an optimizer's kernel stays as it is."""
    found = read(job([*PASS, UPDATE]), job([*PASS, *TWICE, UPDATE]))["work_changed"]
    assert values(found) == pytest.approx({"launches_ratio": 2.0, "time_per_work_ratio": 0.5})


# ------------------------------------------------------------------------------------------------------- host, clocks


def test_kernels_that_slow_down_together_are_told_from_one_that_does():
    several = [K(at=10 + 100 * place, us=90, name=f"kernel_{place}") for place in range(8)]
    together = [K(at=10 + 110 * place, us=108, name=f"kernel_{place}") for place in range(8)]
    found = read(job(several), job(together))
    assert values(found["same_work_slower"])["same_work_factor"] == pytest.approx(1.2)
    one = [K(at=item.at, us=item.us + 8 * (item.name == "kernel_3"), name=item.name) for item in several]
    assert "same_work_slower" not in read(job(several), job(one))


def test_copies_that_hold_the_device_less_long():
    """Copies fall by 240 us of 290 us; the rest is the host."""
    before = job([copy(10, 300, 3_000_000), *(K(at=320 + 100 * place, us=90) for place in range(6))])
    after = job([copy(10, 60, 600_000), *(K(at=80 + 95 * place, us=90) for place in range(6))], step_us=710)
    found = read(before, after)["copies"]
    assert found.title == "copies hold the device less long"
    assert values(found) == {"copy_exposed_change_ns": -240_000, "copies_change_ns": -240_000}
    assert "copies 1 on both sides, 3.00 MB -> 600 kB, 300 us -> 60.0 us per step" in found.evidence[1].statement
    assert read(after, before)["copies"].title == "copies hold the device longer"
    assert "copies" not in read(before, before)


def test_communication_that_takes_less_time_is_no_overlap():
    """Exposed communication falls because there is less of it; a little more of what is left runs under compute."""
    before = job([*FOUR, N(410, 500)])
    after = job([*FOUR, N(380, 80)], step_us=560)
    found = read(before, after)
    assert found["comm"].title == "communication takes less time"
    assert values(found["comm"])["comm_busy_change_ns"] == -420_000
    assert "overlap_gained" not in found


def test_compute_that_changed_names_the_kernels():
    several = [K(at=10 + 100 * place, us=90, name=f"kernel_{place}") for place in range(8)]
    one = [replace(item, us=60) if item.name == "kernel_3" else item for item in several]
    found = read(job(several), job(one))["compute"]
    assert found.title == "compute takes less time"
    assert found.evidence[2].statement == "kernel_3: -30.0 us per step (calls 1 on both sides)"
    together = read(job(several), job([K(at=10 + 110 * place, us=108, name=f"kernel_{place}") for place in range(8)]))
    assert "compute" not in together  # said as kernels that are slower across the board


def test_as_many_waits_that_leave_the_device_idle_longer():
    def waits(us: int, gap: int):
        kernels = [K(at=100 + gap * place, us=20) for place in range(4)]
        return job(
            kernels, ranges=[host("cudaStreamSynchronize", 100 + gap * place, us, "cuda_runtime") for place in range(4)]
        )

    found = read(waits(150, 200), waits(60, 100))
    assert found["syncs"].title == "the device idles less long after calls that wait for it"


def test_collectives_are_told_by_their_arguments():
    gathers = [collective("all_gather", 500, us, elements=1024, dtype="BFloat16") for us in (100, 140)]
    comm = compared(*(job([*FOUR, gather]) for gather in gathers)).comm
    (row,) = comm.rows
    assert (row.name, row.by_count_ns, row.by_duration_ns) == ("all_gather BFloat16 1,024 elements", 0, 40_000)


def piecewise(n_pieces, *, us=400, n_batches=1, loss_us=10):
    """A step on a CPU: for each micro-batch a body of six operators, then a product in pieces, each with its loss."""
    body = [
        host(f"aten::{name}", 10 + 60 * place + 10 * batch, 8)
        for batch in range(n_batches)
        for place, name in enumerate(("gelu", "silu", "native_layer_norm", "embedding", "cat", "mul"))
    ]
    pieces = n_pieces * n_batches
    products = [host("aten::mm", 400 + place * us // pieces, us // pieces - 2) for place in range(pieces)]
    losses = [host("aten::_log_softmax", 820 + 12 * place, loss_us) for place in range(pieces)]
    return job([], ranges=[*body, *products, *losses], step_us=1200)


def test_a_product_in_pieces_is_called_more_often():
    whole, pieces = piecewise(2), piecewise(10)
    found = read(whole, pieces)["products"]
    assert found.title == "matrix products are called 5.00x as often"
    assert values(found)["product_calls_change"] == 8
    assert values(found)["product_call_change_ns"] == pytest.approx(-160_000, rel=0.02)
    assert "larger pieces need fewer calls" in found.fix
    back = read(pieces, whole)["products"]
    assert back.title.startswith("matrix products are called 0.2")
    assert "compare peak memory" in back.fix


def test_recomputation_says_itself_why_products_are_called_more_often():
    body = [host("aten::gelu", 150 + 5 * place, 4) for place in range(3)]
    inner = [host("aten::mm", at + 1, 4) for _, at, _, _ in FORWARD]
    again = [host("aten::mm", at + 1, 4) for _, at, _, _ in AGAIN]
    before = job([K(at=10, us=600)], ranges=[*FORWARD, *inner, *BACKWARD, *body])
    found = read(before, job([K(at=10, us=800)], ranges=[*FORWARD, *inner, *BACKWARD, *AGAIN, *again, *body]))
    assert "recompute" in found
    assert "products" not in found


def test_of_waits_for_the_host_the_part_that_changed_most_comes_first():
    """Late launches stay as they are; other host work falls."""

    def late(gap: int, us: int):
        calls = [host("aten::slow", 10 + gap * place, us, "cpu_op") for place in range(4)]
        return job([K(at=100 + gap * place, us=20) for place in range(4)], step_us=1000, ranges=calls)

    first = read(late(200, 80), job([K(at=10 + 25 * place, us=20) for place in range(4)], step_us=200))["launches"]
    changes = [abs(item.value) for item in first.evidence if item.metric.startswith("compare.idle_")]
    assert changes == sorted(changes, reverse=True)
    assert changes[0] > 0


def test_sides_that_launch_far_more_get_a_caveat():
    few = [K(at=10 + 100 * place, us=60, name=f"kernel_{place}") for place in range(4)]
    many = [K(at=10 + 30 * place, us=20, name=f"other_{place}") for place in range(24)]
    said = [one for one in compared(job(few), job(many)).caveats if one.startswith("launches 4 -> 24 per step")]
    assert len(said) == 1
    assert not [one for one in compared(job(few), job(few)).caveats if one.startswith("launches")]
    assert not [one for one in compared(job(few), job([*few, *few[:1]])).caveats if one.startswith("launches")]


def allocating(us: int, *, waits_us: int = 0):
    """Four kernels, each after a cudaFree; and a synchronisation at the end that lasts beyond the last one."""
    kernels = [K(at=100 + 200 * place, us=20) for place in range(4)]
    calls = [host("cudaFree", 94 + 200 * place - us, us, "cuda_runtime") for place in range(4)]
    if waits_us:
        calls.append(host("cudaStreamSynchronize", 722, waits_us, "cuda_runtime"))
    return job(kernels, ranges=calls)


def test_calls_of_the_allocator_are_no_reads_of_tensors():
    found = read(allocating(80), allocating(20))
    assert "syncs" not in found
    one = found["allocator"]
    assert one.title == "the device idles less long in calls of the allocator"
    assert "expandable_segments" in one.fix
    assert values(one)["allocator_calls_change"] == 0
    assert explained(one) == pytest.approx(-240_000, abs=8_000)
    assert "allocator" not in read(allocating(80), allocating(80))


def test_what_other_waits_cost_is_said_beside_the_allocators():
    found = read(allocating(80, waits_us=200), allocating(20, waits_us=20))
    assert explained(found["allocator"]) == pytest.approx(-240_000, abs=8_000)
    total = sum(explained(one) for name, one in found.items() if name in {"allocator", "syncs"})
    assert total == pytest.approx(-420_000, abs=30_000)


# --------------------------------------------------------------------------------------------------------- lookalikes

PASS = [K(at=50 + 40 * place, us=30, name=f"kernel_{place}") for place in range(6)]
TWICE = [replace(item, at=item.at + 300) for item in PASS]
UPDATE = K(at=900, us=20, name="optimizer_kernel")


def even(us: int, name: str, *, n: int = 8, every: int = 100) -> Trace:
    """A step of kernels of one name, one after another."""
    return job([K(at=10 + every * place, us=us, name=name) for place in range(n)])


def waiting(us: int) -> Trace:
    return job([K(at=20, us=900)], ranges=[host(LOADER, 5, us, "user_annotation")])


ONCE = job([K(at=10, us=600)], ranges=[*FORWARD, *BACKWARD])
EVALUATED = [host("aten::linear", 110 + 20 * place, 10) for place in range(4)]
LOOKALIKES = {
    "hidden communication rises because more is computed: nothing slowed, nothing stretched": (
        "overlap_bought_nothing", EXPOSED,
        job([*(K(at=10 + 100 * place, us=100, name=f"kernel_{place}") for place in range(9)), N(10, 400)]),
    ),
    "one loader that waits no longer": ("input", waiting(8), waiting(9)),
    "a format that names do not tell": ("precision", even(90, "cutlass::Kernel"), even(90, BF16)),
    "faster kernels of one format": ("precision", even(200, FP32, n=4, every=200), even(50, FP32, n=4)),
    "generated kernels on both sides": (
        "compiled", even(50, "triton_poi_fused_add_mul_0", n=4), even(50, "triton_poi_fused_add_mul_1", n=1),
    ),
    "an evaluation beside the step": (
        "recompute", ONCE, job([K(at=10, us=800)], ranges=[*FORWARD, *EVALUATED, *BACKWARD]),
    ),
    "inputs of half the width": ("work_changed", job(batch(1, n_bytes=4000)), job(batch(1, n_bytes=2000))),
    "other grids with the same bytes": ("work_changed", job(batch(1, n_bytes=4000)), job(batch(2, n_bytes=4000))),
    "two halves of a batch": (
        "work_changed", job([*PASS, UPDATE]), job([*(replace(item, blocks=32) for item in (*PASS, *TWICE)), UPDATE]),
    ),
    "one batch that is run twice": (
        "work_changed", job([copy(5, 20, 4000), *PASS]), job([copy(5, 20, 4000), *PASS, *TWICE]),
    ),
    "more micro-batches": ("products", piecewise(2), piecewise(2, n_batches=3)),
    "as many pieces of a product": ("products", piecewise(10), piecewise(10, us=600)),
    "1.08x the pieces of a product": ("products", piecewise(12), piecewise(13)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after"), LOOKALIKES.values(), ids=LOOKALIKES)
def test_lookalikes_are_no_such_reading(name: str, before: Trace, after: Trace):
    assert name not in read(before, after)


def test_nothing_changed_reads_as_nothing():
    assert read(EXPOSED, EXPOSED) == {}
