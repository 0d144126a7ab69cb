"""Pauses, and work that a setting would spare: each pattern where it is, and its healthy twin."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.model.documents.report import Bottleneck
from profkit.testing import HOST_PID, Row, kernel, launch, operator, span
from profkit.verdict.on_cpu import BEYOND_SHARED
from tests.drawing import BASE, NODE, STEP, US, Triaged, in_steps, launched, triaged
from tests.drawing import finding_in as found
from tests.metamorphic import ALL_REDUCE, Job

N_STEPS = 8


def on_gpu(*inside: Row, busy_until: int = 300) -> list[Row]:
    """Steps of 1 ms on a GPU: a kernel from 10 us on, one at the end; between them the device idles."""

    def two_kernels(at: int, step: int) -> list[Row]:
        rows = []
        for number, (start, stop) in enumerate(((10, busy_until), (900, 990)), 1 + 2 * step):
            begin, end = at + start * US, at + stop * US
            rows += launched("gemm", begin - 8 * US, begin, end, number, call_ns=4 * US)
        return rows

    return [*inside, *in_steps(N_STEPS, STEP, two_kernels, begin_ns=BASE)]


def on_cpu(*inside: Row) -> list[Row]:
    """Steps of 1 ms on a CPU: one operator, from 10 to 200 us."""
    return [*in_steps(N_STEPS, STEP, lambda *_: (), begin_ns=BASE), *at("aten::mm", 10, 200), *inside]


def each_step(
    name: str, start_us: int, end_us: int, *, steps: range = range(N_STEPS), row: Any = span, **kwargs: Any
) -> list[Row]:
    """A range of the host at that place of each of these steps."""
    return [row(name, BASE + step * STEP + start_us * US, BASE + step * STEP + end_us * US, **kwargs) for step in steps]


at = partial(each_step, row=operator)


def nested(name: str, **args: Any) -> list[Row]:
    """An operator in each step, from 400 to 600 us."""
    return at(name, 400, 600, **args)


@pytest.mark.parametrize(("start", "end"), [(200, 700), (20, 290)], ids=["mostly idle", "under a kernel"])
def test_a_collection_costs_what_the_gpu_would_idle_less_without_it(start: int, end: int) -> None:
    """The host is late for each launch: what it does under a kernel delays the next one as well."""
    one = found(on_gpu(*each_step("Python GC (generation 2)", start, end)), "host.gc")
    assert one.evidence[0].value == N_STEPS * (end - start) * US
    assert one.recoverable_ns == (end - start) * US
    assert f"1 collection per step; the longest takes {end - start} us" in one.evidence[1].statement
    assert one.fix.startswith("leave out gc.collect()")


def test_collections_that_python_makes_by_itself_are_not_the_codes() -> None:
    one = found(on_gpu(*each_step("Python GC (generation 2)", 200, 900, steps=range(2))), "host.gc")
    assert one.fix.startswith("gc.freeze()")


def ahead(*, pauses: bool, name: str = "Optimizer.step#Muon.step", gap_us: int = 50) -> Job:
    """A host that launches 20 ms of work per step in 4 ms: half of that in a range, or in a pause of its own."""
    job = Job()
    n, us = (1, 2_000) if pauses else (40, 46)
    loop = lambda: job.ops(n, gap_us * US, op="aten::add_", dispatch_ns=us * US)  # noqa: E731
    name = "Python GC (generation 2)" if pauses else name
    job.steps(N_STEPS, lambda: (job.ops(20, 900 * US, dispatch_ns=96 * US), job.range(name, loop)))
    return job


@pytest.mark.parametrize("pauses", [True, False], ids=["a collection", "an optimizer's loop"])
def test_what_a_host_does_that_is_ahead_of_its_gpu_costs_nothing(*, pauses: bool) -> None:
    """The GPU is busy all the time: without the pattern it would idle no less, so it is no cause."""
    of = triaged(ahead(pauses=pauses).rows)
    assert not of.found.keys() & {"host.gc", "host.optimizer_loop", "host.launch_bound"}
    assert of.verdict.bottleneck is Bottleneck.KERNEL


def test_collectives_that_an_optimizer_launches_are_no_time_of_its_loop() -> None:
    """The host is idle in nothing but its loop of 40 short operators; NCCL has half of the step."""
    job = Job()

    def loop() -> None:
        job.ops(40, 2 * US, op="aten::add_", dispatch_ns=8 * US)
        job.launch(2_000 * US, name=ALL_REDUCE, stream=20, after=(7,))
        job.synchronise(stream=20)

    job.steps(N_STEPS, lambda: (job.ops(1, 1_500 * US), job.synchronise(), job.range("Optimizer.step#Muon.step", loop)))
    one = found(job.rows, "host.optimizer_loop")
    assert one.recoverable_ns <= 40 * 12 * US
    assert "Muon has no fused or foreach form" in one.fix


def batches_made_by(name: str, *, gpu_us: int) -> Job:
    """Each step makes its batch on the CPU for 1 ms, then launches a kernel of that length."""
    job = Job()
    making = lambda: job.op(name, lambda: None, dispatch_ns=1_000 * US)  # noqa: E731
    job.steps(N_STEPS, lambda: (making(), job.ops(1, gpu_us * US)))
    return job


def test_operators_on_the_cpu_are_named_where_the_gpu_waits_for_them() -> None:
    of = triaged(batches_made_by("aten::randn", gpu_us=400).rows)
    assert of.verdict.findings[0].id == "host.cpu_operators"
    assert of.verdict.bottleneck is Bottleneck.OVERHEAD
    one = of.found["host.cpu_operators"]
    # the kernels then stand one after the other; the last one runs after the window and hides nothing in it
    assert 607 * US <= one.recoverable_ns <= 660 * US
    assert "create the tensors of aten::randn on the GPU" in one.fix
    assert "1 operator on the CPU per step; the longest takes 1.00 ms; most of the time is in aten::randn" in {
        item.statement for item in one.evidence
    }


@pytest.mark.parametrize(
    ("n_looked_up", "is_dense", "is_told"), [(64, True, True), (6000, True, False), (64, False, False)]
)
def test_an_optimizer_that_updates_tables_of_which_a_step_looks_up_few_rows(
    n_looked_up: int, is_dense: bool, is_told: bool
) -> None:
    rows = each_step("Optimizer.step#Adam.step", 200, 900)
    for step in range(N_STEPS):
        at = BASE + step * STEP
        given = {"Input_Dims": [[9000, 32], [n_looked_up], []], "Input_type": ["float", "long int", ""]}
        rows.append(operator("aten::embedding", at + 10 * US, at + 20 * US, **given))
        if is_dense:
            given = {"Input_Dims": [[n_looked_up, 32], [n_looked_up], []], "Concrete_Inputs": ["", "", "9000"]}
            rows.append(operator("aten::embedding_dense_backward", at + 190 * US, at + 199 * US, **given))
        for begin in range(at + 210 * US, at + 880 * US, 10 * US):
            rows.append(operator("aten::mul_", begin, begin + 8 * US, Input_Dims=[[9000, 32]], Input_type=["float"]))
    one = found(on_cpu(*rows), "work.dense_table")
    if not is_told:
        assert one is None
        return
    assert one.title.startswith("the optimizer updates all 9,000 rows of embedding tables, of which a step looks up 64")
    assert one.recoverable_ns == pytest.approx(700 * US * (1 - 64 / 9000), rel=1e-3)
    assert "sparse=True" in one.fix


def test_operators_on_the_cpu_that_hold_nobody_up_are_no_finding() -> None:
    assert found(batches_made_by("aten::randn", gpu_us=1_200).rows, "host.cpu_operators") is None


def test_a_collection_on_another_thread_costs_nothing() -> None:
    rows = on_gpu(*each_step("Python GC (generation 2)", 200, 700, tid=HOST_PID + 5))
    assert found(rows, "host.gc") is None


def test_on_a_cpu_all_of_a_collection_counts_and_is_the_headline() -> None:
    of = triaged(on_cpu(*each_step("Python GC (generation 2)", 300, 800)))
    assert of.found["host.gc"].evidence[0].value == N_STEPS * 500 * US
    assert of.verdict.bottleneck is Bottleneck.OVERHEAD
    assert "garbage collector" in of.verdict.headline


@pytest.mark.parametrize(("generation", "waited_us", "first"), [(2, 200, "host.gc"), (0, 700, "input.starved")])
def test_a_full_collection_that_begins_in_a_loader_is_no_wait_for_data(
    generation: int, waited_us: int, first: str
) -> None:
    """It looks through all objects of the process, whoever allocates; a young one through what the loader made."""
    loader = each_step("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 250, 950)
    of = triaged(on_cpu(*loader, *each_step(f"Python GC (generation {generation})", 300, 800)))
    starved = of.found["input.starved"]
    assert starved.recoverable_ns == waited_us * US
    assert starved.evidence[1].statement.startswith("each step waits once")
    assert of.verdict.findings[0].id == first


def test_a_collection_in_one_step_is_less_certain() -> None:
    every = found(on_cpu(*each_step("Python GC (generation 2)", 300, 800)), "host.gc")
    once = found(on_cpu(*each_step("Python GC (generation 2)", 300, 800, steps=range(3, 4))), "host.gc")
    assert once.confidence < every.confidence
    assert once.evidence[1].statement.startswith("1 collection, in 1 of 8 steps")


def test_compilations_in_several_steps_recur() -> None:
    names = ("entire_frame_compile", "_compile.compile_inner (dynamo_timed)")
    rows = on_cpu(*(row for name in names for row in at(name, 300, 700, steps=range(2, 6))))
    one = found(rows, "host.recompile")
    assert one.evidence[0].value == 4 * 400 * US
    assert one.evidence[1].statement == "4 compilations, in 4 of 8 steps; the longest takes 400 us"
    assert "mark_dynamic" in one.fix


def test_what_to_run_next_says_what_changes_or_why() -> None:
    pauses = found(on_cpu(*each_step("Python GC (generation 2)", 300, 800)), "host.gc").next_tools[0]
    assert pauses.command.startswith("profkit capture")
    assert pauses.purpose.startswith("change that, then record again")
    rows = at("_compile.compile_inner (dynamo_timed)", 300, 700)
    assert found(on_cpu(*rows), "host.recompile").next_tools[0].command.startswith("env TORCH_LOGS=recompiles ")
    once = found(on_cpu(rows[0]), "host.recompile")
    assert "warm-up" in once.fix
    assert once.next_tools[0].purpose == "do compilations come back in later steps?"
    assert once.next_tools[0].command.startswith("profkit capture")


def test_time_in_the_compiler_is_no_compute() -> None:
    (compiling,) = at("_compile.compile_inner (dynamo_timed)", 300, 700, steps=range(1))
    (tracing,) = at("aten::add", 400, 600, steps=range(1))
    with_it, without = (triaged(rows).rank.devices[0].budget for rows in (on_cpu(compiling, tracing), on_cpu()))
    assert with_it.compute == without.compute


def test_compilations_in_the_first_steps_only_may_be_warm_up() -> None:
    def compiling(*steps: int) -> list[Row]:
        name = "_compile.compile_inner (dynamo_timed)"
        return on_cpu(*(row for step in steps for row in at(name, 300, 700, steps=range(step, step + 1))))

    early, late = found(compiling(0, 1), "host.recompile"), found(compiling(0, 6), "host.recompile")
    assert early.confidence < late.confidence
    assert early.fix == "record again after warm-up: this is in the first steps only"
    assert "mark_dynamic" in late.fix


def with_a_long_step(doing: Row | None = None, *each: Row) -> list[Row]:
    """Eight steps on a CPU, all work but for step 3: there the host stops for 5.6 ms. `doing`: what it does then."""
    rows = list(each)
    at = BASE
    for step in range(N_STEPS):
        length = (6 if step == 3 else 1) * STEP
        rows.append(span(f"ProfilerStep#{step}", at, at + length))
        rows.append(operator("aten::mm", at + 10 * US, at + (200 if step == 3 else 900) * US))
        if step == 3 and doing is not None:
            rows.append(replace(doing, start_ns=at + 200 * US, end_ns=at + 5800 * US))
        at += length
    return rows


def test_a_long_stop_of_unknown_cause_forbids_a_verdict() -> None:
    verdict = triaged(with_a_long_step()).verdict
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert verdict.findings[0].id == "host.stall"


def test_a_long_stop_of_the_collector_is_named_and_no_start_up() -> None:
    small = each_step("Python GC (generation 1)", 920, 960, steps=range(3))
    of = triaged(with_a_long_step(span("Python GC (generation 2)", 0, 1), *small))
    assert of.verdict.bottleneck is Bottleneck.OVERHEAD
    assert of.verdict.headline.startswith("Python's garbage collector stops the step")
    assert "host.stall" not in of.found, "it is said once"


@pytest.mark.parametrize(("waits", "is_said"), [(0.9, True), (0.7, False)])
def test_a_long_stop_of_a_thread_without_a_core(waits: float, is_said: bool) -> None:
    """The stop is about half of the window: of 90 % of waiting most of it must be such, of 70 % not."""
    told = {"span_ns": 1000, "run_ns": 50, "wait_ns": round(1000 * waits)}
    verdict = triaged(with_a_long_step(), profkit_scheduling=told).verdict
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert ("the training thread waits for a core for 90.0 % of the time" in verdict.headline) == is_said
    assert ("start-up" in verdict.headline) != is_said
    assert ("host.cores_taken" in [one.id for one in verdict.findings]) == is_said


@pytest.mark.parametrize("name", ["Python GC (generation 2)", "_compile.compile_inner (dynamo_timed)"])
def test_a_long_stop_that_came_once_still_forbids_a_verdict(name: str) -> None:
    doing = span(name, 0, 1) if "GC" in name else operator(name, 0, 1)
    assert triaged(with_a_long_step(doing)).verdict.bottleneck is Bottleneck.INCONCLUSIVE


def optimizer(kind: str, n: int) -> list[Row]:
    """Steps of an optimizer of n operators, 5 us each."""
    each = [row for i in range(n) for row in at(f"aten::{kind}", 410 + 8 * i, 415 + 8 * i)]
    return each_step("Optimizer.step#AdamW.step", 400, 900) + each


@pytest.mark.parametrize(("kind", "n"), [("_foreach_addcdiv_", 50), ("_fused_adamw_", 50), ("addcdiv_", 10)])
def test_optimizers_that_do_not_loop(kind: str, n: int) -> None:
    assert found(on_cpu(*optimizer(kind, n)), "host.optimizer_loop") is None


def test_of_an_optimizer_with_a_fused_group_the_rest_is_the_loop() -> None:
    fused = at("aten::_fused_adamw_", 820, 880) + at("aten::mul_", 821, 829)
    one = found(on_cpu(*optimizer("addcdiv_", 50), *fused), "host.optimizer_loop")
    assert one.evidence[0].value == N_STEPS * (500 - 60) * US


def test_an_optimizer_whose_closure_runs_the_model_is_no_loop() -> None:
    assert found(on_cpu(*optimizer("addcdiv_", 50), *nested(NODE + "MulBackward0")), "host.optimizer_loop") is None


def test_operators_inside_others_are_no_parameters_of_their_own() -> None:
    """SparseAdam runs 24 operators for a table, which call 200."""
    rows = on_cpu(*optimizer("addcdiv_", 25))
    begun = [row.start_ns for row in optimizer("addcdiv_", 25) if row.name == "aten::addcdiv_"]
    rows += [operator("aten::empty", at + k * US, at + (k + 1) * US - 9) for at in begun for k in (1, 2, 3)]
    assert found(rows, "host.optimizer_loop") is None


def test_an_optimizer_of_large_parameters_works_and_is_no_overhead() -> None:
    slow = [span("Optimizer.step#AdamW.step", BASE + STEP * step, BASE + STEP * step + 2600 * US) for step in (8, 11)]
    few = [
        operator("aten::addcdiv_", row.start_ns + (50 * place + 1) * US, row.start_ns + (50 * place + 50) * US)
        for row in slow
        for place in range(50)
    ]
    assert found(on_cpu(*slow, *few), "host.optimizer_loop") is None


@pytest.mark.parametrize(
    ("name", "keeps", "fix", "proof"),
    [
        ("AdamW", 0.25, "fused=True", ""),
        ("SGD", 0.5, "fused=True", ""),
        ("RMSprop", 0.6, "foreach=True", ""),
        ("SparseAdam", 0, "SparseAdam has no fused or foreach form in torch: put tables", "Call optimizer.step()"),
        ("Mine", 0, "Mine has no fused or foreach form in torch: group", "Call optimizer.step()"),
    ],
)
def test_what_is_left_of_a_loop_depends_on_the_optimizer(name: str, keeps: float, fix: str, proof: str) -> None:
    rows = [replace(row, name=row.name.replace("AdamW", name)) for row in optimizer("addcdiv_", 50)]
    one = found(on_cpu(*rows), "host.optimizer_loop")
    assert one.evidence[0].value == N_STEPS * 500 * US
    assert one.recoverable_ns == round(500 * US * (1 - keeps))
    assert one.fix.startswith(fix)
    assert one.proof.startswith(proof)
    assert bool(one.proof) == bool(proof)


def test_what_ddp_does_for_unused_parameters_beside_the_search() -> None:
    """On a CPU: marks in AccumulateGrad, and the all-reduce behind that of the gradients."""
    rows = at("torch.distributed.ddp.reducer::search_unused_parameters", 300, 310)
    rows += at("torch::autograd::AccumulateGrad", 319, 327) + at("aten::select", 320, 323) + at("aten::fill_", 324, 326)
    rows += at("torch.distributed.ddp.reducer::copy_bucket_to_grad", 519, 522) + at("aten::item", 520, 521)
    waits = [*each_step("gloo:all_reduce", 330, 400, tid=9), *each_step("gloo:all_reduce", 335, 450, tid=10)]
    one = found(on_cpu(*rows, *waits), "comm.unused_parameters")
    assert one.evidence[0].value == N_STEPS * (10 + 6 + 1 + 50) * US


def backward(*inside: Row) -> list[Row]:
    """A backward node in each step, from 300 to 800 us, with what runs in it."""
    nodes = at(NODE + "AddmmBackward0", 300, 800)
    nodes = [replace(row, args={"Sequence number": 10 * n, "Fwd thread id": 1}) for n, row in enumerate(nodes)]
    return on_cpu(*nodes, *inside)


AGAIN = nested("aten::linear", Sequence_number=99, Fwd_thread_id=0)


@pytest.mark.parametrize(
    ("own", "us"),
    [((), 300), ((650, 700), 300), ((300, 350), 250)],
    ids=["from the node's start, where its hook begins", "before its own work", "after its own work"],
)
def test_forward_operators_inside_the_backward_pass_are_computed_again(own: tuple[int, ...], us: int) -> None:
    """From 300 us on the node's hook runs, from 400 to 600 a forward operator, and the node's own operator."""
    one = found(backward(*AGAIN, *(at("aten::mm", *own) if own else ())), "work.recompute")
    assert one.evidence[0].value == N_STEPS * us * US
    assert one.fraction == pytest.approx(us / 1000)


@pytest.mark.parametrize(
    "rows",
    [
        backward(*nested("aten::mm")),  # a backward operator's own product has no number
        backward(*nested("MulBackward0", Sequence_number=3, Fwd_thread_id=1)),
        on_cpu(*AGAIN),
        backward(
            *AGAIN, *at("aten::silu_backward", 600, 700, Sequence_number=98, Fwd_thread_id=0)
        ),  # create_graph=True
    ],
    ids=["its own product", "a node in a node", "a forward pass", "a derivative that is differentiated"],
)
def test_what_is_not_computed_again(rows: list[Row]) -> None:
    assert found(rows, "work.recompute") is None


def test_attention_without_a_fused_kernel() -> None:
    assert found(on_cpu(*nested("aten::_scaled_dot_product_attention_math")), "kernel.math_attention").fraction == 0.2
    assert found(on_cpu(*nested("aten::_scaled_dot_product_flash_attention")), "kernel.math_attention") is None


def one_after_another(*names: str) -> list[Row]:
    """Operators of 100 us in each step, from 300 us on."""
    by_step = zip(*(at(name, 300 + 100 * k, 400 + 100 * k) for k, name in enumerate(names)), strict=True)
    return [row for rows in by_step for row in rows]


@pytest.mark.parametrize("scores", ["aten::_softmax", "aten::_softmax_backward_data"])
def test_attention_that_a_model_writes_out_costs_what_stands_between_its_products(scores: str) -> None:
    one = found(on_cpu(*one_after_another("aten::baddbmm", "aten::mul", scores, "aten::bmm")), "kernel.math_attention")
    assert one.evidence[0].value == N_STEPS * 200 * US
    assert one.fraction == pytest.approx(0.2)


@pytest.mark.parametrize(
    "names",
    [
        ("aten::bmm", "aten::addmm", "aten::_softmax", "aten::bmm"),
        ("aten::bmm", "aten::_log_softmax", "aten::bmm"),
        ("aten::_softmax", "aten::bmm"),
        ("aten::bmm", "aten::_softmax"),
        ("aten::addmm", "aten::_softmax", "aten::mul"),
    ],
)
def test_a_softmax_of_something_else_is_no_attention(names: tuple[str, ...]) -> None:
    assert found(on_cpu(*one_after_another(*names)), "kernel.math_attention") is None


def sized(*names_and_dims: tuple[str, list[list[int]]]) -> list[Row]:
    """Operators as `one_after_another` has them, that take tensors of these shapes."""
    rows = one_after_another(*(name for name, _ in names_and_dims))
    dims = [dims for _, dims in names_and_dims] * N_STEPS
    return [replace(row, args={"Input Dims": each}) for row, each in zip(rows, dims, strict=True)]


QUERY, KEY, SCORES, VALUE = [8, 16, 4], [8, 4, 32], [8, 16, 32], [8, 32, 4]


@pytest.mark.parametrize(
    ("scores", "second", "is_attention"),
    [(SCORES, [SCORES, VALUE], True), ([16], [SCORES, VALUE], False), (SCORES, [QUERY, KEY], False)],
    ids=["attention", "a softmax of something else", "a product of something else"],
)
def test_attention_is_a_softmax_of_what_one_product_made_and_the_next_takes(
    scores: list[int], second: list[list[int]], is_attention: bool
) -> None:
    rows = sized(("aten::bmm", [QUERY, KEY]), ("aten::_softmax", [scores]), ("aten::bmm", second))
    assert (found(on_cpu(*rows), "kernel.math_attention") is not None) == is_attention


def test_a_softmax_in_a_loss_of_products_is_no_attention() -> None:
    """The next product of that size is of the backward pass: the gradient of the first one."""
    rows = sized(("aten::bmm", [QUERY, KEY]), ("aten::_softmax", [SCORES]), ("aten::bmm", [SCORES, VALUE]))
    nodes = [operator(NODE + "BmmBackward0", row.start_ns, row.end_ns) for row in rows[2::3]]
    assert found(on_cpu(*rows), "kernel.math_attention") is not None
    assert found(on_cpu(*nodes, *rows), "kernel.math_attention") is None


def batch_norm(trains: str) -> list[Row]:
    """A batch normalisation in each step, as recorded with its arguments: the sixth says whether it trains."""
    return nested("aten::_batch_norm_impl_index") + nested(
        "aten::native_batch_norm",
        Input_Dims=[[8, 64, 8, 8], [64], [64], [64], [64], [], [], []],
        Input_type=["float", "float", "float", "float", "float", "Scalar", "Scalar", "Scalar"],
        Concrete_Inputs=["", "", "", "", "", trains, "0.1", "1e-05"],
    )


def test_layers_in_training_mode_where_nothing_trains() -> None:
    one = found(on_cpu(*nested("aten::dropout")), "mode.training")
    assert one.evidence[0].value == N_STEPS * 200 * US
    norm = found(on_cpu(*batch_norm("True")), "mode.training")
    assert norm.evidence[0].value == N_STEPS * 200 * US
    assert norm.recoverable_ns == 100 * US
    assert norm.evidence[1].statement.endswith("of batch normalisation at least half stays: it normalises in any mode")
    assert one.recoverable_ns == 200 * US
    assert "half" not in one.evidence[1].statement


BN_FORWARD = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)"


@pytest.mark.parametrize(
    ("beside", "said"), [("gemm", True), ("cudnn::bn_bw_1C11_kernel_new", False), ("multi_tensor_apply_kernel", False)]
)
def test_kernels_of_training_without_a_backward_pass_or_an_optimizer(beside: str, said: bool) -> None:
    rows = [
        replace(row, name=BN_FORWARD if row.start_ns % STEP == 10 * US else beside) if row.cat == "kernel" else row
        for row in on_gpu()
    ]
    one = found(rows, "mode.training")
    assert (one is not None) == said
    if one is not None:
        assert one.fix.startswith("if this is inference: model.eval()")
        assert one.recoverable_ns == pytest.approx(145 * US, rel=0.05)  # half of 290


@pytest.mark.parametrize(
    "rows",
    [
        nested("aten::dropout") + nested(NODE + "MmBackward0"),
        nested("aten::dropout") + each_step("Optimizer.step#SGD.step", 610, 700),
        batch_norm("False"),
        nested("aten::alpha_mm"),
    ],
    ids=["a backward pass", "an optimizer", "running statistics", "neither"],
)
def test_training_mode_is_meant_or_is_not_there(rows: list[Row]) -> None:
    assert found(on_cpu(*rows), "mode.training") is None


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("aten::_slow_conv2d_forward", "oneDNN"),
        ("aten::embedding_renorm_", "max_norm"),
        ("aten::_index_put_impl_", ""),  # an assignment, for all that is known
        ("aten::mkldnn_convolution", ""),
    ],
)
def test_operators_that_exist_for_a_fall_back(name: str, fix: str) -> None:
    one = found(on_cpu(*nested(name)), "kernel.slow_path")
    assert (one is not None) == bool(fix)
    if one is not None:
        assert one.fix.startswith(name)
        assert fix in one.fix
        assert f"most of the time is in {name}" in one.evidence[1].statement


@pytest.mark.parametrize(("accumulate", "said"), [("True", True), ("False", False)])
def test_assignments_by_index_that_add_up_sort_first(accumulate: str, said: bool) -> None:
    kept = nested("aten::index_put_", Concrete_Inputs=["", "", "", accumulate], Input_Dims=[[64], [], [64], []])
    one = found(on_cpu(*kept), "kernel.slow_path")
    assert (one is not None) == said
    assert one is None or "index_add_" in one.fix


def test_kernels_of_a_slow_way_are_those_of_the_operator_that_launches_them() -> None:
    rows = [replace(row, name="naive_conv_fwd_nchw") if row.name == "gemm" else row for row in on_gpu()]
    around = at("aten::miopen_convolution", 0, 8) + at("aten::miopen_convolution", 890, 898)
    one = found([*rows, *around], "kernel.slow_path")
    assert "MIOPEN_FIND_MODE" in one.fix
    assert found([*on_gpu(), *around], "kernel.slow_path") is None


def test_copies_that_only_put_elements_in_order() -> None:
    assert found(on_cpu(*nested("aten::contiguous")), "kernel.copies").fraction == 0.2
    assert found(on_cpu(*nested("aten::clone")), "kernel.copies") is None
    of_attention = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    for around, is_said in (("aten::convolution", True), ("aten::convolution_backward", False), (of_attention, False)):
        one = found(on_cpu(*at(around, 390, 700), *nested("aten::contiguous")), "kernel.copies")
        assert (one is not None) == is_said, "no script chooses the layout of a gradient"


@pytest.mark.parametrize(
    ("inner", "is_said"),
    [
        ("torch/nn/functional.py(6300): multi_head_attention_forward", False),
        ("nn.Module: MultiheadAttention_0", False),
        ("/venv/lib/python3.12/site-packages/timm/layers.py(9): forward", False),
        ("torch/nn/modules/linear.py(130): forward", True),
        ("model.py(30): attend", True),
    ],
)
@pytest.mark.parametrize("is_back", [False, True])
def test_copies_in_the_code_of_packages_are_not_the_scripts(inner: str, is_said: bool, is_back: bool) -> None:
    """A layer that gets a view has it from the script; torch's attention makes its own."""
    frame = partial(each_step, row=partial(span, cat="python_function"))
    rows = [*frame("model.py(5): forward", 300, 650), *frame(inner, 310, 640), *nested("aten::reshape")]
    if is_back:
        view = each_step("aten::view", 320, 330, row=operator, Sequence_number=3, Fwd_thread_id=0)
        nodes = at(NODE + "ViewBackward0", 390, 610, Fwd_thread_id=1)
        rows = [*frame("model.py(5): forward", 300, 350), *frame(inner, 310, 340), *nested("aten::reshape")]
        for step, pair in enumerate(zip(view, nodes, strict=True)):
            rows += [replace(row, args={**row.args, "Sequence number": step}) for row in pair]
    assert (found(on_cpu(*rows), "kernel.copies") is not None) == is_said


def test_half_of_the_copies_on_a_cpu_stays() -> None:
    one = found(on_cpu(*nested("aten::contiguous")), "kernel.copies")
    assert one.recoverable_ns == 100 * US
    assert one.most_recoverable_ns >= 200 * US


def cast(before: str, after: str) -> list[Row]:
    """A conversion in each step."""
    return nested(
        "aten::_to_copy", Input_Dims=[[64, 64], []], Input_type=[before, "Scalar"], Concrete_Inputs=["", after]
    )


def test_conversions_between_floating_point_formats() -> None:
    one = found(on_cpu(*cast("float", "15")), "precision.casts")
    assert one.evidence[0].value == N_STEPS * 200 * US


@pytest.mark.parametrize(
    ("before", "after"),
    [("float", "6"), ("unsigned char", "6"), ("float", "4"), ("float", "")],
    ids=["the same", "from bytes", "to integers", "to a device"],
)
def test_other_copies_are_no_conversions(before: str, after: str) -> None:
    assert found(on_cpu(*cast(before, after)), "precision.casts") is None


def test_a_number_of_python_that_is_converted_is_no_conversion_of_a_tensor() -> None:
    """torch keeps it as a double without a size, and converts it in any sum with float32."""
    rows = cast("double", "6")
    assert "astype" in found(on_cpu(*rows), "precision.casts").fix
    scalars = [replace(row, args={**row.args, "Input Dims": [[], []]}) for row in rows]
    assert found(on_cpu(*scalars), "precision.casts") is None


def test_work_on_a_gpu_takes_what_it_launches_and_what_its_launches_delay() -> None:
    one = found(on_gpu(*at("aten::_scaled_dot_product_attention_math", 880, 910)), "kernel.math_attention")
    # a kernel of 90 us, and the 30 us of the operator; that of the last step delays nothing in the window
    assert one.evidence[0].value == pytest.approx(N_STEPS * 120 * US, rel=0.01)


def scheduled(**told: Any) -> Any:
    """The finding about cores in a capture that says this."""
    found = triaged(on_cpu(), profkit_scheduling=told).found
    return found.get("host.contention") or found.get("host.cores_taken")


def test_a_thread_that_waits_for_a_core() -> None:
    one = scheduled(span_ns=1000, run_ns=600, wait_ns=300, all_run_ns=1500, all_wait_ns=900, cores=2, throttled_ns=7)
    assert one.fraction == pytest.approx(0.3)
    assert one.recoverable_ns == 0.3 * STEP
    assert "wanted 2.4 cores at a time; it may use 2" in one.evidence[1].statement
    assert "quota held its processes for 7 ns" in one.evidence[2].statement


def test_a_gpu_that_is_busy_meanwhile_loses_nothing_by_a_thread_without_a_core() -> None:
    """Thirty kernels of 100 us back to back, all launched in the first 300 us; the thread waits for a third of it."""
    rows = []
    for n in range(30):
        rows.append(launch(BASE + n * 10 * US, BASE + n * 10 * US + 2 * US, correlation=n + 1))
        rows.append(kernel("gemm", BASE + (n + 1) * 100 * US, BASE + (n + 2) * 100 * US, correlation=n + 1))
    assert found(rows, "host.contention", profkit_scheduling=WAITS) is None


@pytest.mark.parametrize(
    "told",
    [
        {"span_ns": 1000, "run_ns": 990, "wait_ns": 9},
        {"span_ns": 1000, "run_ns": 990, "wait_ns": 9, "cores": 2, "threads": 32, "ranks": 4},
        {"span_ns": 0, "run_ns": 0, "wait_ns": 5},
        {"span_ns": 1000, "wait_ns": 900},
        {"span_ns": 1000, "run_ns": 600, "wait_ns": -300},
        {"span_ns": "1000", "run_ns": 1e30, "wait_ns": True},
        {},
    ],
)
def test_a_thread_with_a_core_and_captures_that_do_not_say(told: dict[str, Any]) -> None:
    assert scheduled(**told) is None


WAITS = {"span_ns": 1000, "run_ns": 600, "wait_ns": 300}


def test_threads_of_the_job_on_too_few_cores_are_the_verdict() -> None:
    """Sixteen threads on two cores: all but the waits looks like compute."""
    told = {"span_ns": 1000, "run_ns": 200, "wait_ns": 700, "all_run_ns": 1700, "all_wait_ns": 9000, "cores": 2}
    told |= {"threads": 16, "children": 0, "children_run_ns": 0}
    of = triaged(on_cpu(), profkit_scheduling=told)
    assert (of.verdict.bottleneck, of.verdict.findings[0].id) == (Bottleneck.OVERHEAD, "host.contention")
    assert "operators run on 16 threads for 2 cores" in of.verdict.headline
    late = of.found.get("host.launch_bound")
    assert late is None or late.recoverable_ns <= 0.3 * STEP, "what it waits for a core is no cost of launches"


def test_processes_that_the_job_has_started_are_its_own() -> None:
    busy = {**WAITS, "all_run_ns": 700, "all_wait_ns": 400, "cores": 2, "threads": 2, "children": 6}
    own = scheduled(**busy, children_run_ns=1200)
    assert (own.id, own.fix.split(":")[0]) == ("host.contention", "fewer workers of the DataLoader")
    assert "it shares 2 cores with 6 processes that it started" in own.title
    others = scheduled(**busy, children_run_ns=100)
    assert others.id == "host.cores_taken"
    assert "40.0 % of the cores' time: programs of others had the rest" in others.evidence[2].statement


def test_cores_that_other_programs_take_are_never_the_verdict() -> None:
    told = {"span_ns": 1000, "run_ns": 200, "wait_ns": 700, "all_run_ns": 300, "all_wait_ns": 900, "cores": 2}
    of = triaged(on_cpu(), profkit_scheduling={**told, "threads": 1, "children": 0, "children_run_ns": 0})
    assert "host.cores_taken" in of.found
    assert "core" not in of.verdict.headline.split(";")[0] or of.verdict.bottleneck is Bottleneck.KERNEL


def test_switches_are_said_beside_the_wait() -> None:
    one = scheduled(**WAITS, voluntary_switches=1, involuntary_switches=1240)
    assert "took the core from it 1,240 times (involuntary" in one.evidence[1].statement
    assert "it gave the core up once" in one.evidence[1].statement
    nobody_counts = scheduled(**WAITS, voluntary_switches=0, involuntary_switches=0)
    assert [each.metric for each in nobody_counts.evidence] == ["scheduling.wait_ns"]


def test_a_process_that_wants_fewer_cores_than_it_may_use_waits_for_others() -> None:
    one = scheduled(**WAITS, all_run_ns=700, all_wait_ns=400, cores=2, threads=1)
    assert one.evidence[1].statement == (
        "the threads of this process wanted 1.1 cores at a time; it may use 2: other programs take them"
    )
    assert one.fix.startswith("find what else runs on these cores")
    own_threads = scheduled(**WAITS, all_run_ns=700, all_wait_ns=400, cores=2, threads=8)
    assert not own_threads.evidence[1].statement.endswith("programs take them")
    with_quota = scheduled(**WAITS, all_run_ns=700, all_wait_ns=400, cores=2, threads=1, throttled_ns=300)
    assert not with_quota.evidence[1].statement.endswith("programs take them")
    assert with_quota.fix.startswith("no more threads than cores")


@pytest.mark.parametrize(
    ("told", "fix", "said"),
    [
        (
            {"cores": 8, "threads": 16, "ranks": 4},
            "set OMP_NUM_THREADS=2: 4 ranks share 8 cores",
            "4 ranks share 8 cores, and operators of each run on up to 16 threads",
        ),
        (
            {"cores": 64, "threads": 64, "quota_millicores": 2500},
            "set OMP_NUM_THREADS=2: the process has 2.5 cores",
            "operators run on up to 64 threads for the 2.5 cores of its container's CPU quota",
        ),
        ({"cores": 2, "threads": 3, "ranks": 4}, "set OMP_NUM_THREADS=1: 4 ranks share 2 cores", ""),
        ({"cores": 8, "threads": 2, "ranks": 4}, "no more threads than cores", ""),
        ({"cores": 8, "threads": 8, "quota_millicores": 0}, "no more threads than cores", ""),
    ],
)
def test_more_threads_than_cores_are_named_with_the_number_that_fits(told: dict[str, int], fix: str, said: str) -> None:
    one = scheduled(**WAITS, **told)
    assert one.fix.startswith(fix)
    assert any(said in each.statement for each in one.evidence)
    is_crowded = "scheduling.threads_per_core" in [each.metric for each in one.evidence]
    assert is_crowded == fix.startswith("set OMP")


def test_operators_that_wait_for_their_own_threads_are_worth_that_too() -> None:
    told = {"span_ns": 1000, "run_ns": 300, "wait_ns": 300, "cores": 2}
    one, alone = scheduled(**told, threads=8), scheduled(**told, threads=1)
    assert alone.recoverable_ns == 0.3 * STEP
    slept = min(0.4, triaged(on_cpu()).rank.devices[0].budget.fraction("compute"))
    assert one.recoverable_ns == pytest.approx((0.3 + slept) * STEP, abs=1)
    assert one.fraction == pytest.approx(0.3), "what the scheduler counted"
    (said,) = [each for each in one.evidence if each.metric == "scheduling.helpers_share"]
    assert said.value == pytest.approx(slept)


def test_a_thread_that_sleeps_for_its_helpers_and_hardly_waits_has_too_many_of_them() -> None:
    told = {"span_ns": 1000, "run_ns": 300, "wait_ns": 20, "all_run_ns": 700, "all_wait_ns": 900, "cores": 2}
    crowded = scheduled(**told, children=0, threads=4)
    assert crowded.id == "host.contention"
    assert "4 threads for 2 cores" in crowded.title
    assert "torch.set_num_threads(2)" in crowded.fix
    assert crowded.fraction == pytest.approx(0.02 + 0.19), "no more than operators compute"
    assert crowded.evidence[0].statement.startswith("the training thread slept for 19.0 %")
    assert scheduled(**told, children=0, threads=2) is None, "as many threads as cores"
    assert scheduled(**{**told, "run_ns": 900}, children=0, threads=4) is None, "it computes, and does not sleep"


def test_threads_that_spin_until_the_others_have_a_core_look_like_work() -> None:
    told = {"span_ns": 1000, "run_ns": 600, "wait_ns": 100, "all_run_ns": 1500, "all_wait_ns": 900, "cores": 2}
    many, enough = scheduled(**told, threads=3), scheduled(**told, threads=2)
    compute = triaged(on_cpu()).rank.devices[0].budget.fraction("compute")
    assert many.most_recoverable_ns >= compute * STEP > enough.most_recoverable_ns


def test_too_many_threads_are_named_beside_programs_of_others_with_their_own_part_alone() -> None:
    told = {"span_ns": 1000, "run_ns": 370, "wait_ns": 510, "all_run_ns": 640, "all_wait_ns": 1150, "children": 0}
    found = triaged(on_cpu(), profkit_scheduling={**told, "cores": 2, "threads": 4}).found
    assert found["host.cores_taken"].recoverable_ns == 0
    assert found["host.contention"].recoverable_ns == pytest.approx(0.12 * STEP, abs=1)
    assert "waited for a core for 51.0 %" in found["host.contention"].evidence[1].statement
    assert scheduled(**told, cores=2, threads=2).id == "host.cores_taken"


@pytest.mark.parametrize(("all_wait_ns", "least"), [(1150, 0.12), (5900, 0.63)])
def test_their_ceiling_has_the_waits_for_a_core_where_they_alone_want_more(all_wait_ns: int, least: float) -> None:
    told = {"span_ns": 1000, "run_ns": 370, "wait_ns": 510, "all_run_ns": 640, "children": 0, "cores": 2, "threads": 4}
    one = found(on_cpu(), "host.contention", profkit_scheduling={**told, "all_wait_ns": all_wait_ns})
    assert one.recoverable_ns == pytest.approx(0.12 * STEP, abs=1)
    assert least * STEP <= (one.most_recoverable_ns or 0) <= (least + 0.2) * STEP


def clocked(rows: list[Row], **told: Any) -> Any:
    """The finding about clocks in a capture that says this."""
    return found(rows, "clock.throttled", profkit_clocks=told)


HELD = {"n": 20, "mhz": 1500, "held_mhz": 1386, "highest_mhz": 1980, "temperature_c": 91}
LIMITS = {"power_mw": 498_000, "limit_mw": 500_000, "default_limit_mw": 700_000}


@pytest.mark.parametrize(
    ("told", "title", "fix"),
    [
        ({"n_thermal": 20}, "the GPU lowers its clock because it is too hot", "better cooling"),
        ({"n_hardware": 20}, "the hardware lowers the GPU's clock", "check the board's power supply"),
        ({"n_power": 20, **LIMITS}, "the GPU lowers its clock to stay within its power limit", "raise the power limit"),
    ],
)
def test_a_gpu_whose_clock_is_held_back(told: dict[str, int], title: str, fix: str) -> None:
    one = clocked(on_gpu(busy_until=890), **HELD, **told)
    assert one.title.startswith(title)
    assert one.fix.startswith(fix)
    assert one.fraction == pytest.approx(0.3 * 0.97)  # 0.7 of the clock, in compute
    assert "in 20 of 20 samples" in one.evidence[0].statement
    assert "1,386 MHz on average, 1,980 MHz is its highest" in one.evidence[0].statement
    assert "nvidia-smi" in one.next_tools[0].command


def test_a_clock_held_by_the_boards_own_limit_is_no_part_of_what_heat_costs() -> None:
    own_limit = {**LIMITS, "limit_mw": 700_000}
    one = clocked(on_gpu(busy_until=890), **HELD, **own_limit, n_thermal=10, n_power=8)
    assert one.fraction == pytest.approx(0.3 * 0.97 / 2)
    assert "in 10 of 20 samples" in one.evidence[0].statement


@pytest.mark.parametrize("limits", [{**LIMITS, "limit_mw": 700_000}, {"power_mw": 1, "limit_mw": 2}, {}])
def test_a_boards_own_power_limit_is_no_finding(limits: dict[str, int]) -> None:
    assert clocked(on_gpu(busy_until=890), **HELD, n_power=20, **limits) is None


@pytest.mark.parametrize(
    "told",
    [
        {**HELD, "held_mhz": 1960, "n_thermal": 20},
        {**HELD, "n_thermal": 2},
        {**HELD, "n": 4, "n_thermal": 4},
        {**HELD, "held_mhz": 1980},
        {"n": 0},
        {"n": 20, "mhz": 0, "highest_mhz": 0, "n_thermal": 20},
        {**HELD, "n_thermal": -3},
        {**HELD, "held_mhz": 5000, "n_thermal": 20},
        {"n": "x", "highest_mhz": [], "n_thermal": None},
        {},
    ],
    ids=["near", "two samples", "few samples", "no reason", "idle", "zeros", "negative", "faster", "text", "none"],
)
def test_a_gpu_at_its_clock_and_captures_that_do_not_say(told: dict[str, Any]) -> None:
    assert clocked(on_gpu(busy_until=890), **told) is None


def test_a_clock_held_back_on_an_idle_gpu_costs_little() -> None:
    assert clocked(on_gpu(busy_until=20), **HELD, n_thermal=20) is None


def test_a_cpu_that_is_throttled_by_heat() -> None:
    told = {"n": 20, "mhz": 2000, "highest_mhz": 4000, "throttled_ms": 1600, "sampled_ms": 2000}
    rows = on_cpu(*nested("aten::mm", Sequence_number=-1))
    one = clocked(rows, **told)
    assert one.title == "the CPU lowers its clock because it is too hot"
    assert "throttled by heat for 80.0 % of the recorded time" in one.evidence[0].statement
    assert clocked(rows, **{**told, "throttled_ms": 0}) is None
    assert clocked(rows, **{key: told[key] for key in ("n", "mhz", "highest_mhz")}) is None, "a low clock alone"


def region(number: int, start_us: int, end_us: int) -> list[Row]:
    """The range of a compiled function in each step."""
    return at(f"Torch-Compiled Region: {number}/0", start_us, end_us)


def broken(*inside: Row) -> list[Row]:
    """A compiled function from 300 to 900 us whose graph ends at 400; what follows the break is from 600 to 890."""
    return [
        *region(0, 300, 900),
        *at("CompiledFunction", 310, 400),
        *at("TorchDynamo Cache Lookup", 580, 600),
        *region(1, 600, 890),
        *at("AOTDispatcher Runtime Wrapper Prologue", 610, 620),
        *at("CompiledFunction", 630, 880),
        *inside,
    ]


def test_a_graph_that_is_broken_costs_from_the_last_work_to_the_next_graph() -> None:
    one = found(on_cpu(*broken(*at("aten::item", 410, 420))), "host.graph_breaks")
    assert one.evidence[0].value == N_STEPS * 230 * US
    assert "1 gap between two graphs per step; the longest takes 230 us" in one.evidence[1].statement
    assert one.next_tools[0].command.startswith("env TORCH_LOGS=graph_breaks ")


def test_work_at_a_break_is_work() -> None:
    one = found(on_cpu(*broken(*at("aten::mul", 410, 520))), "host.graph_breaks")
    assert one.evidence[0].value == N_STEPS * 110 * US


def test_on_a_gpu_a_break_costs_what_it_would_idle_less() -> None:
    one = found(on_gpu(*broken(), busy_until=450), "host.graph_breaks")
    assert one.evidence[0].value == N_STEPS * 230 * US  # from 400 to 630: the host is late for each launch
    assert "the GPU idles 230 us per step because of gaps between two graphs" in one.evidence[0].statement


@pytest.mark.parametrize(
    "rows",
    [
        [*region(0, 300, 900), *at("CompiledFunction", 310, 880)],
        [
            *region(0, 300, 400),
            *at("CompiledFunction", 310, 390),
            *region(1, 600, 890),
            *at("CompiledFunction", 630, 880),
        ],
        [*region(0, 300, 900), *region(1, 600, 890), *at("CompiledFunction", 630, 880)],
        [*region(0, 300, 900), *at("CompiledFunction", 310, 400), *region(1, 600, 890)],
        broken(*at("_compile.compile_inner (dynamo_timed)", 420, 570)),
        [],
    ],
    ids=["whole", "one after the other", "a wrapper", "nothing follows", "compiled there", "eager"],
)
def test_graphs_that_are_not_broken(rows: list[Row]) -> None:
    assert found(on_cpu(*rows), "host.graph_breaks") is None


def with_threads(scheduling: dict[str, Any], *threads: dict[str, Any], **more: Any) -> Triaged:
    """Steps on a CPU in a capture that saw other threads."""
    return triaged(on_cpu(), profkit_scheduling=scheduling, profkit_threads=list(threads), **more)


LINE = {"file": "train.py", "function": "checksum", "defined": 8, "line": 10, "text": "total += ord(ch)", "call": ""}


def thread(name: str, run_ns: int, held: float) -> dict[str, Any]:
    looked: dict[str, Any] = {"n_looks": 40, "idle_ns": 0, "seen_ns": 900, "held_share": held}
    looked["lines"] = [{**LINE, "ns": 900, "n_looks": 40}]
    return {"name": name, "run_ns": run_ns, "wait_ns": 0, "awaited_ns": 0, "looked": looked}


ASLEEP = {"span_ns": 1000, "run_ns": 200, "wait_ns": 10, "all_run_ns": 900, "all_wait_ns": 20, "cores": 2, "threads": 1}


def test_a_thread_that_holds_the_lock_of_python_is_named_with_its_line() -> None:
    of = with_threads(ASLEEP, thread("telemetry", 700, 0.8), thread("logger", 5, 0.0))
    one = of.found["host.gil"]
    assert of.verdict.bottleneck is Bottleneck.OVERHEAD
    assert 'the thread "telemetry" holds the lock' in one.title
    assert one.recoverable_ns <= 0.7 * STEP, "no more than it ran"
    assert one.places[0].place.line == 10


def test_such_a_thread_takes_a_core_as_well() -> None:
    taken = {"all_run_ns": 1900, "all_wait_ns": 250, "children": 0, "children_run_ns": 0}
    crowded = {**ASLEEP, "run_ns": 300, "wait_ns": 200, **taken}
    one = with_threads(crowded, thread("telemetry", 800, 0.8)).found["host.gil"]
    assert one.recoverable_ns == 0.7 * STEP, "500 of 1,000 asleep, 200 waiting for a core"
    assert "for 20.0 % it waited for a core beside it" in one.evidence[0].statement


def test_a_holder_of_the_lock_costs_at_most_what_it_wanted_to_run() -> None:
    """Operators on a thread for each core wait for the one whose core it takes; those on one thread do not."""
    told = {**ASLEEP, "run_ns": 850, "wait_ns": 50, "all_run_ns": 1900}
    watch = {**thread("watch", 300, 0.8), "wait_ns": 60}
    one, two = (with_threads({**told, "threads": n}, watch).found["host.gil"] for n in (1, 2))
    times = {"profkit_unprofiled_step_mean_ns": 2 * STEP, "profkit_profiled_step_mean_ns": STEP}
    slower = with_threads(told, watch, **times).found["host.gil"]
    assert one.recoverable_ns == 0.1 * STEP < two.recoverable_ns <= 0.3 * STEP
    not_run, wanted = (1 + BEYOND_SHARED) * 0.15 * STEP, (1 + BEYOND_SHARED) * 0.36 * STEP
    assert one.most_recoverable_ns == pytest.approx(not_run), "the time in which the training thread did not run"
    assert two.most_recoverable_ns == pytest.approx(wanted), "what the holder ran or was ready to run"
    assert slower.recoverable_ns == one.recoverable_ns
    half = (0.575 + BEYOND_SHARED * 0.425) * STEP
    assert slower.most_recoverable_ns == pytest.approx(half), "half may wait without profiler"


@pytest.mark.parametrize(
    ("scheduling", "other"),
    [
        (ASLEEP, thread("numpy", 700, 0.02)),
        (ASLEEP, thread("idle", 20, 0.9)),
        ({**ASLEEP, "run_ns": 970}, thread("telemetry", 700, 0.8)),
        (ASLEEP, {"name": "unseen", "run_ns": 700, "wait_ns": 0, "looked": None}),
        (ASLEEP, {"name": 7, "run_ns": "x", "looked": [1]}),
    ],
    ids=["lets the lock go", "hardly runs", "the training thread runs", "nobody looked", "odd"],
)
def test_threads_that_do_not_hold_it_up(scheduling: dict[str, Any], other: dict[str, Any]) -> None:
    assert "host.gil" not in with_threads(scheduling, other).found
