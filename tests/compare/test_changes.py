"""Changes that people make, each told by its signs from drawn jobs, and lookalikes that must not give it."""

from dataclasses import replace

import pytest

from profkit.model.trace import Trace
from profkit.testing import Row, kernel, launch, trace_of
from tests.compare.drawn import K, collective, compared, copy, explained, host, job, read, values

GEMM, HALF = "ampere_sgemm_128x64_tn", "ampere_fp16_s16816gemm_fp16_128x128"
FLASH = "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>"
ADAM_LOOP = "void at::native::vectorized_elementwise_kernel<4, addcdiv_cuda_kernel>"
FOREACH = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, PointwiseOpScalarListFunctor<float>>"
FUSED = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float>>"
APEX = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int, volatile int *)"
CLIP = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float>>"
SCALER = "at::native::amp_update_scale_cuda_kernel(float *, int *)"
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>"
NNC = "CudaCodeGen::kernel1(CudaCodeGen::Tensor<float, 5>)"
CONV = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc"


def gemms(n: int = 6, *, us: int = 60, name: str = GEMM) -> list[K]:
    return [K(at=10 + 80 * place, us=us, name=name, op="aten::addmm") for place in range(n)]


def title(before: Trace, after: Trace, name: str) -> str:
    return read(before, after)[name].title


# ------------------------------------------------------------------------------------------------------------ kernels


def eager_attention(us: int = 100) -> list[K]:
    return [
        K(at=510, us=us, name=GEMM, op="aten::bmm"),
        K(at=615, us=us, name="softmax_warp_forward", op="aten::_softmax"),
        K(at=720, us=us, name=GEMM, op="aten::bmm"),
    ]


def test_attention_in_one_kernel_stands_for_what_it_replaces():
    before, after = job([*gemms(), *eager_attention()]), job([*gemms(), K(at=510, us=80, name=FLASH)], step_us=780)
    found = read(before, after)["attention"]
    assert found.title == "attention runs as one kernel (FlashAttention)"
    assert values(found) == {"fused_attention_change_ns": 80_000, "attention_change_ns": -220_000}
    assert explained(found) == -220_000
    assert "compute" not in read(before, after)
    assert title(after, before, "attention") == "attention no longer runs as one kernel (FlashAttention)"


def test_channels_last_takes_the_conversions_away():
    convs = [K(at=300 + 60 * place, us=50, name=CONV) for place in range(4)]
    layout = [K(at=10 + 60 * place, us=50, name=TO_NHWC) for place in range(4)]
    before, after = job([*layout, *convs]), job(convs, step_us=750)
    assert title(before, after, "layout").endswith("(channels_last)")
    assert explained(read(before, after)["layout"]) == -200_000
    assert title(after, before, "layout") == "convolutions convert the layout of their tensors"
    another = [replace(item, us=20, at=20 + 30 * place) for place, item in enumerate(convs * 4)]
    assert "layout" not in read(before, job(another))  # another model, of other convolutions


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((ADAM_LOOP, FOREACH), "the optimizer is foreach, before a loop over tensors"),
        ((ADAM_LOOP, FUSED), "the optimizer is fused, before a loop over tensors"),
        ((FOREACH, APEX), "the optimizer is fused, before foreach"),
        ((FUSED, ADAM_LOOP), "the optimizer is a loop over tensors, before fused"),
    ],
)
def test_how_weights_are_updated_is_told_by_names(names, said):
    before, after = (job([*gemms(), K(at=600, us=us, name=name)]) for name, us in zip(names, (200, 60), strict=True))
    found = read(before, after)["optimizer"]
    assert (found.title, explained(found)) == (said, -140_000)


def test_kernels_that_an_optimizers_range_launches_are_the_optimizers():
    """SGD in a loop adds; its kernels have no name of their own."""
    adds = [K(at=600 + 20 * place, us=15, name="vectorized_elementwise_add") for place in range(10)]
    steps = [host("Optimizer.step#SGD.step", 500, 400, "user_annotation")]
    fused = K(at=600, us=30, name=FUSED.replace("Adam", "Sgd"))
    before, after = job([*gemms(), *adds], ranges=steps), job([*gemms(), fused], ranges=steps)
    found = read(before, after)["optimizer"]
    assert (found.title, explained(found)) == ("the optimizer is fused, before a loop over tensors", -120_000)


def test_a_scaler_says_mixed_precision_where_names_say_the_contrary():
    before = job(gemms(10))
    with_names = job([*gemms(10, us=20, name=HALF), K(at=900, us=2, name=SCALER)])
    assert title(before, with_names, "precision") == (
        "matrix products run in fp16, before in fp32 (mixed precision with a gradient scaler)"
    )
    tf32 = job(gemms(10, name="ampere_tf32_s1688gemm_128x64"))
    misread = job([*gemms(10, us=20), K(at=900, us=2, name=SCALER)])
    assert title(tf32, misread, "precision") == "a gradient scaler runs: mixed precision in fp16 is on"
    assert title(misread, tf32, "precision") == "a gradient scaler no longer runs: mixed precision in fp16 is off"


def test_generated_kernels_say_who_generated_them():
    eager = [K(at=10 + 20 * place, us=15, name=f"vectorized_elementwise_{place}") for place in range(40)]
    jit = [K(at=10 + 100 * place, us=50, name=NNC) for place in range(4)]
    assert title(job(eager), job(jit), "compiled") == "the work is compiled (TorchScript)"
    some = [*gemms(), K(at=600, us=20, name="triton_poi_fused_add_0")]
    more = [*gemms(), K(at=600, us=200, name="triton_poi_fused_add_0")]
    assert title(job(some), job(more), "compiled") == "more of the work is compiled (torch.compile)"


# ----------------------------------------------------------------------------------------------------------- exchange


def all_reduces(n: int, elements: int) -> list[K]:
    return [collective("allreduce", 520 + 40 * place, 30, elements=elements) for place in range(n)]


def test_as_many_bytes_in_fewer_all_reduces_are_larger_buckets():
    before, after = job([*gemms(), *all_reduces(8, 1000)]), job([*gemms(), *all_reduces(4, 2000)])
    found = read(before, after)["buckets"]
    assert found.title == "gradients are all-reduced in fewer, larger buckets (bucket_cap_mb)"
    assert "8 -> 4, 32.0 kB on both sides" in found.evidence[0].statement
    assert title(after, before, "buckets") == "gradients are all-reduced in more, smaller buckets (bucket_cap_mb)"


def test_buffers_that_are_no_longer_broadcast():
    sends = collective("broadcast", 900, 40, elements=64)
    before, after = job([*gemms(), *all_reduces(4, 1000), sends]), job([*gemms(), *all_reduces(4, 1000)])
    found = read(before, after)["broadcast"]
    assert found.title == "buffers are no longer broadcast in each step (broadcast_buffers)"
    assert (values(found), explained(found)) == ({"broadcasts_change": -1}, -40_000)
    copied = job([*gemms(), *all_reduces(4, 1000), sends, *within(4)])
    assert {"broadcast", "bucket_copies"} & set(read(copied, after)) == {"broadcast"}  # buffers are copied as well


def within(n: int) -> list[K]:
    name = "Memcpy DtoD (Device -> Device)"
    return [K(at=700 + 20 * place, us=10, name=name, args={"bytes": 4_000_000}) for place in range(n)]


def test_gradients_that_are_views_of_their_buckets_are_not_copied():
    before, after = job([*gemms(), *all_reduces(4, 1000), *within(4)]), job([*gemms(), *all_reduces(4, 1000)])
    found = read(before, after)["bucket_copies"]
    assert found.title == "DDP no longer copies its gradients out of their buckets (gradient_as_bucket_view)"
    assert values(found) == {"bucket_copies_change": -4}
    assert found.fix == "keep gradient_as_bucket_view=True"


def test_a_sharded_job_exchanges_by_other_collectives():
    replicated = job([*gemms(), collective("allreduce", 600)])
    sharded = job([*gemms(), collective("_allgather_base", 600), collective("_reduce_scatter_base", 700)])
    found = read(replicated, sharded)
    assert found["collectives"].title == "ranks exchange by all-gather and reduce-scatter, before by all-reduce"
    assert "comm" not in found


# -------------------------------------------------------------------------------------------------------------- input


def batch(memory: str, us: int) -> K:
    return copy(10, us, 6_000_000, memory=memory)


def test_pinned_memory_and_copies_that_do_not_block():
    kernels = [K(at=300 + 60 * place, us=50, name=GEMM) for place in range(6)]
    waits = [host("cudaStreamSynchronize", 20, 250, "cuda_runtime")]
    before, after = job([batch("Pageable", 280), *kernels], ranges=waits), job([batch("Pinned", 100), *kernels])
    found = read(before, after)["pinned"]
    assert found.title == "batches are copied from pinned memory, and the host no longer waits for them (non_blocking)"
    assert values(found)["pinned_share_change"] == 1
    still = job([batch("Pinned", 100), *kernels], ranges=waits)
    assert title(before, still, "pinned") == "batches are copied from pinned memory"
    assert "copies" not in read(before, still)  # said once
    assert "pinned" not in read(job([batch("Pinned", 280), *kernels]), still)


def test_dali_makes_the_batches():
    kernels = [K(at=510 + 60 * place, us=50, name=GEMM) for place in range(6)]
    before = job(kernels, ranges=[host("next_batch", 5, 495, "user_annotation")])
    resize = K(at=10, us=30, name="void dali::kernels::warp::BatchWarpUniformSize<float>")
    after = job([resize, *(replace(item, at=item.at - 450) for item in kernels)], step_us=550)
    assert title(before, after, "input") == "waiting for data falls: DALI makes batches now"


def test_workers_beside_the_job_are_counted():
    kernels = [K(at=510 + 60 * place, us=50, name=GEMM) for place in range(6)]
    waits = [host("next_batch", 5, 495, "user_annotation")]
    before = job(kernels, ranges=waits, nsys_workers=2)
    after = job([replace(item, at=item.at - 450) for item in kernels], step_us=550, nsys_workers=8)
    found = read(before, after)["input"]
    assert found.title == "waiting for data falls: 8 loader workers, before 2"
    assert values(found)["workers_change"] == 6
    unknown = job([replace(item, at=item.at - 450) for item in kernels], step_us=550)
    said = read(before, unknown)["input"]
    assert said.title == "waiting for data falls"
    assert "2 on the side of the baseline, not recorded on the other" in said.evidence[1].statement


def test_a_host_that_waits_less_often_runs_ahead_and_says_of_what():
    gaps = [K(at=60 + 110 * place, us=20, name=GEMM) for place in range(8)]
    waits = [host("cudaStreamSynchronize", 62 + 110 * place, 20, "cuda_runtime") for place in range(8)]
    items = [host("aten::_local_scalar_dense", 61 + 110 * place, 22) for place in range(8)]
    dense = [K(at=10 + 25 * place, us=20, name=GEMM) for place in range(8)]
    found = read(job(gaps, ranges=[*waits, *items]), job(dense, step_us=300))
    assert set(found) - {"idle"} == {"syncs"}
    assert values(found["syncs"])["syncs_change"] == -8
    assert any(item.statement == ".item() 8 -> 0 per step" for item in found["syncs"].evidence)
    assert explained(found["syncs"]) < -600_000


# --------------------------------------------------------------------------------------------------------------- work


def passes(n: int, *, blocks: int, copied: int = 4_000_000, update_every: int = 1) -> Trace:
    """A step of n passes of six kernels, of grids of so many blocks, and the optimizer's kernel."""
    kernels = [
        K(at=40 + 200 * turn + 30 * place, us=25, name=f"kernel_{place}", blocks=blocks)
        for turn in range(n)
        for place in range(6)
    ]
    return job([copy(5, 20, copied), *kernels, K(at=930, us=20, name=FUSED)], n_steps=6)


def test_a_batch_in_two_parts_is_accumulated_and_the_same_work():
    found = read(passes(1, blocks=64), passes(2, blocks=32))
    assert found["accumulation"].title == "the optimizer steps after 2.00x as many passes (gradient accumulation)"
    assert "work_changed" not in found


def test_more_passes_of_one_size_are_more_work_and_said_to_be_accumulation():
    comparison = compared(passes(1, blocks=64), passes(4, blocks=64, copied=16_000_000))
    work = comparison.readings[0]
    assert work.title == "a step has 4.00x as many passes of the same size (gradient accumulation)"
    assert comparison.judgement.metric == "step time per unit of work"
    assert comparison.judgement.change == pytest.approx(-0.75)


def test_steps_of_which_some_do_not_update_are_accumulation():
    """Each pass is marked as a step; the optimizer runs in each, then in every third: of six steps in two."""
    update = host("Optimizer.step#AdamW.step", 700, 100, "user_annotation")
    two = [host(update[0], 700 + 3000 * turn, 100, update[3]) for turn in range(2)]
    each, third = job(gemms(), ranges=[update], n_steps=6), job(gemms(), once=two, n_steps=6)
    found = read(each, third)
    assert found["accumulation"].title == "the optimizer steps after 3.00x as many passes (gradient accumulation)"
    assert "accumulation" not in read(each, each)


def recording(n: int, *, name: str, us: int, copied: int = 3_000_000) -> Trace:
    """n passes of nine kernels without steps, none in the order of another, each with the copy of a batch."""
    rows: list[Row] = []
    at, correlation = 10**9, 0
    for turn in range(n):
        for place in range(10):
            correlation += 1
            is_copy = place == 0
            call = "cudaMemcpyAsync" if is_copy else "cudaLaunchKernel"
            rows.append(launch(at - 5000, at - 4000, correlation=correlation, name=call))
            if is_copy:
                args = {"device": 0, "stream": 7, "correlation": correlation, "bytes": copied}
                kind = {"name": "Memcpy HtoD (Pinned -> Device)", "cat": "gpu_memcpy", "pid": 0, "tid": 7}
                rows.append(Row(start_ns=at, end_ns=at + 9000, args=args, **kind))
            else:
                length = us * 1000 * (1 + (place * turn) % 3)
                grid = {"grid": [64, 1, 1], "block": [128, 1, 1]}
                rows.append(kernel(f"{name}_{place + turn % 7}", at, at + length, correlation=correlation, **grid))
            at += 300_000
    return trace_of(rows)


def test_recordings_of_other_length_and_other_kernels_are_compared_by_their_batches():
    """Twelve passes in fp32 and twenty in fp16: no kernel is the same, batches and products say how much was done."""
    comparison = compared(recording(12, name=GEMM, us=90), recording(20, name=HALF, us=20))
    work = comparison.readings[0]
    assert work.id == "compare.work_changed"
    assert values(work)["passes_ratio"] == pytest.approx(20 / 12)
    assert comparison.judgement.change == pytest.approx(0, abs=0.02)  # the host's pace, pass by pass
    other = compared(recording(12, name=GEMM, us=90), recording(20, name=HALF, us=20, copied=1_000_000))
    assert other.readings[0].id != "compare.work_changed"  # products and bytes do not agree


def test_another_batch_is_told_by_its_bytes_where_other_kernels_run_for_it():
    def step(n: int, name: str) -> Trace:
        return job(
            [
                copy(5, 20, 1_000_000 * n),
                *(K(at=40 + 90 * place, us=60, name=f"{name}_{place}", blocks=40 * n) for place in range(8)),
            ]
        )

    work = compared(step(1, "ampere_sgemm_32x32"), step(4, "ampere_sgemm_128x128")).readings[0]
    assert (work.id, values(work)["copied_bytes_ratio"]) == ("compare.work_changed", 4)
    halved = compared(step(2, GEMM), step(1, HALF)).readings[0]  # inputs of half the width
    assert halved.id != "compare.work_changed"


def test_a_gpu_against_a_cpu_is_said_and_nothing_else():
    cpu = job([], ranges=[host("aten::mm", 10 + 20 * place, 18) for place in range(40)])
    (found,) = compared(cpu, job(gemms())).readings
    assert found.id == "compare.device"
    assert found.title.startswith("the work runs on ")


# --------------------------------------------------------------------------------------------------------- lookalikes

BUCKETS = job([*gemms(), *all_reduces(8, 1000)])
LOOPED = [*gemms(), K(at=600, us=200, name=ADAM_LOOP)]
COMPILED = [*gemms(4), K(at=600, us=60, name="triton_poi_fused_add_0")]
LOOKALIKES = {
    "faster attention of one kind": (
        "attention", *(job([*gemms(), K(at=510, us=us, name=FLASH)]) for us in (200, 80)),
    ),
    "clipping of gradients": ("optimizer", job(LOOPED), job([*LOOPED, K(at=820, us=100, name=CLIP)])),
    "a step ten times as long, 0.5 % of it generated code, of 20 % of compute": (
        "compiled", job(COMPILED), job(COMPILED, step_us=12_000),
    ),
    "other bytes": ("buckets", BUCKETS, job([*gemms(), *all_reduces(4, 1000)])),
    "another model": ("buckets", BUCKETS, job([*gemms(3), *all_reduces(4, 2000)])),
    "copies within the device without all-reduces": ("bucket_copies", job([*gemms(), *within(4)]), job(gemms())),
}  # fmt: skip


@pytest.mark.parametrize(("name", "before", "after"), LOOKALIKES.values(), ids=LOOKALIKES)
def test_lookalikes_are_no_such_reading(name: str, before: Trace, after: Trace):
    assert name not in read(before, after)


# ------------------------------------------------------------------------------------------------------------- weight


def test_where_the_step_got_better_what_got_better_leads():
    """Waiting for data falls by 300 us; copies rise by 100 us."""
    kernels = [K(at=510 + 60 * place, us=50, name=GEMM) for place in range(6)]
    before = job(kernels, ranges=[host("next_batch", 5, 495, "user_annotation")])
    after = job([copy(110, 100, 600_000), *(replace(item, at=item.at - 290) for item in kernels)], step_us=700)
    found = compared(before, after).readings
    assert [item.id for item in found if item.id != "compare.idle"] == ["compare.input", "compare.copies"]
    assert explained(found[0]) < 0 < explained(found[-1])


def test_no_time_explains_two_things():
    """Formats, attention, the optimizer and a generated kernel change together."""
    before = job([*gemms(), *eager_attention(), K(at=840, us=100, name=ADAM_LOOP)])
    after = job(
        [
            *gemms(us=20, name=HALF),
            K(at=510, us=50, name=FLASH),
            K(at=570, us=30, name=FUSED),
            K(at=610, us=40, name="triton_poi_fused_gelu_0"),
        ],
        step_us=700,
    )
    comparison = compared(before, after)
    assert {item.id for item in comparison.readings} >= {
        "compare.attention",
        "compare.precision",
        "compare.optimizer",
        "compare.compiled",
    }
    by_id = {item.id: explained(item) for item in comparison.readings}
    assert by_id["compare.precision"] == -240_000
    assert by_id["compare.attention"] == -250_000
    assert by_id["compare.optimizer"] == -70_000
    assert sum(by_id.values()) == pytest.approx(comparison.waterfall.delta_ns, abs=20_000)
