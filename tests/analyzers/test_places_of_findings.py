"""The line that causes a finding is the first place that the finding names; without stacks none is named."""

import pytest
from msgspec.structs import replace

from profkit.model.code import PlaceShare
from profkit.pipeline import analyse
from profkit.testing import Row, kernel, launch, operator, span, trace_of

US = 1000
START = 10**9
STEP_US = 1000
N_STEPS = 6


class Job:
    """A training script drawn: one thread that calls and launches, one stream; times in us from a step's begin."""

    def __init__(self, *, has_stacks: bool = True) -> None:
        self.rows: list[Row] = []
        self.has_stacks = has_stacks
        self.n_launched = 0
        self.at = START

    def frame(self, name: str, first: int, last: int) -> None:
        if self.has_stacks:
            self.rows.append(span(name, self.at + first * US, self.at + last * US, cat="python_function"))

    def op(self, name: str, first: int, last: int) -> None:
        self.rows.append(operator(name, self.at + first * US, self.at + last * US))

    def call(self, name: str, first: int, last: int) -> None:
        begin, end = self.at + first * US, self.at + last * US
        self.rows.append(launch(begin, end, correlation=0, name=name))

    def work(self, name: str, launched: int, first: int, last: int, *, by: str = "cudaLaunchKernel") -> None:
        """A kernel, or with "Memcpy" in its name a copy, and the call that launches it."""
        self.n_launched += 1
        begin, end = self.at + first * US, self.at + last * US
        is_copy = name.startswith("Memcpy")
        row = kernel(name, begin, end, correlation=self.n_launched, **({"bytes": 4096} if is_copy else {}))
        self.rows.append(replace(row, cat="gpu_memcpy" if is_copy else "kernel"))
        at = self.at + launched * US
        self.rows.append(launch(at, at + 5 * US, correlation=self.n_launched, name=by))

    def steps(self, draw: object):
        if self.has_stacks:
            end = START + N_STEPS * STEP_US * US
            self.rows.append(span("train.py(99): <module>", START - 9, end, cat="python_function"))
            self.rows.append(span("torch/profiler/p.py(1): start", START - 8, START - 7, cat="python_function"))
        for number in range(N_STEPS):
            self.rows.append(span(f"ProfilerStep#{number}", self.at, self.at + STEP_US * US))
            draw(self)  # type: ignore[operator]
            self.at += STEP_US * US
        return self

    def places(self, finding: str) -> tuple[PlaceShare, ...]:
        found = analyse(trace_of(self.rows)).rank.findings
        return next(one for one in found if one.id == finding).places


def waits(job: Job) -> None:
    """`report` reads a number: the host waits 400 us for the device, then launches late."""
    job.frame("train.py(10): step", 0, 990)
    job.frame("net.py(5): forward", 5, 100)
    for place in range(4):
        job.op("aten::mm", 10 + 20 * place, 20 + 20 * place)
        job.work("gemm", 12 + 20 * place, 20 + 125 * place, 140 + 125 * place)
    job.frame("train.py(40): report", 120, 560)
    job.frame("<built-in method item of Tensor object at 0x7f>", 121, 550)
    job.op("aten::item", 122, 549)
    job.call("cudaStreamSynchronize", 125, 540)
    job.frame("train.py(60): after", 700, 990)
    job.op("aten::add", 900, 920)
    job.work("elementwise", 905, 915, 990)


def test_a_wait_is_where_the_number_is_read() -> None:
    first = Job().steps(waits).places("host.sync")[0]
    assert first.place.words == "report() (train.py:40) calling Tensor.item()"
    assert first.share > 0.99
    assert first.count == N_STEPS


def slow(job: Job) -> None:
    """`tokenize` takes 700 us in Python before one launch; two others come in time."""
    job.frame("train.py(10): step", 0, 990)
    job.frame("data.py(7): tokenize", 50, 750)
    job.frame("net.py(5): forward", 800, 900)
    for place in range(3):
        job.op("aten::mm", 810 + 20 * place, 820 + 20 * place)
        job.work("gemm", 812 + 20 * place, 830 + 50 * place, 875 + 50 * place)


def test_time_before_launches_is_where_the_host_spends_it() -> None:
    first = Job().steps(slow).places("host.launch_bound")[0]
    assert first.place.name == "tokenize() (data.py:7)"
    assert 0.7 < first.share < 0.9


def test_without_stacks_no_place_is_named() -> None:
    assert Job(has_stacks=False).steps(slow).places("host.launch_bound") == ()


def copies(job: Job) -> None:
    """`move` copies a batch for 500 us while nothing else runs."""
    job.frame("train.py(10): step", 0, 990)
    job.frame("data.py(30): move", 5, 60)
    job.op("aten::copy_", 6, 50)
    job.work("Memcpy HtoD (Pageable -> Device)", 10, 20, 520, by="cudaMemcpyAsync")
    job.op("aten::mm", 70, 90)
    job.work("gemm", 72, 520, 995)


def allocates(job: Job) -> None:
    """`grow` makes the allocator go to the driver in every step."""
    job.frame("train.py(10): step", 0, 990)
    job.frame("cache.py(3): grow", 100, 700)
    job.op("aten::cat", 101, 690)
    job.call("cudaMalloc", 110, 600)
    job.work("cat_kernel", 640, 660, 990)


def computes(job: Job) -> None:
    """`gelu` runs as four elementwise kernels; the product before it takes less."""
    job.frame("net.py(5): forward", 0, 500)
    job.op("aten::mm", 2, 10)
    job.work("ampere_sgemm_128x64_tn", 4, 10, 200)
    job.frame("net.py(30): gelu", 100, 400)
    for place in range(4):
        job.op("aten::mul", 110 + 20 * place, 120 + 20 * place)
        job.work("vectorized_elementwise_kernel", 112 + 20 * place, 200 + 190 * place, 390 + 190 * place)


def reduces(job: Job) -> None:
    """`sync_gradients` asks for a reduction that nothing hides."""
    job.frame("train.py(10): step", 0, 990)
    job.op("aten::mm", 2, 10)
    job.work("gemm", 4, 10, 400)
    job.frame("train.py(70): sync_gradients", 100, 300)
    job.op("c10d::allreduce_", 110, 200)
    job.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 120, 400, 995)


def loads(job: Job) -> None:
    """The process makes its batches itself: 600 us of each step in a dataset's `__getitem__`."""
    wait = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    job.rows.append(span(wait, job.at + 5 * US, job.at + 650 * US))
    job.frame("torch/utils/data/dataloader.py(700): __next__", 4, 651)
    job.frame("data.py(20): __getitem__", 20, 640)
    job.op("aten::mm", 700, 720)
    job.work("gemm", 702, 720, 995)


@pytest.mark.parametrize(
    ("draw", "finding", "name", "share", "count"),
    [
        (copies, "h2d.exposed", "move() (data.py:30)", 1.0, 1),
        (allocates, "memory.pressure", "grow() (cache.py:3)", 1.0, 1),
        (computes, "kernel.unfused", "gelu() (net.py:30)", 1.0, 4),
        (reduces, "comm.exposed", "sync_gradients() (train.py:70)", 1.0, 1),
        (loads, "input.starved", "__getitem__() (data.py:20)", 0.9, 1),
    ],
)
def test_each_is_where_it_is_asked_for(draw: object, finding: str, name: str, share: float, count: int) -> None:
    first = Job().steps(draw).places(finding)[0]
    assert (first.place.name, first.count) == (name, count * N_STEPS)
    assert first.share >= share


def collects(job: Job) -> None:
    """The collector runs while a line of the script makes lists; the GPU has nothing to do meanwhile."""
    job.frame("train.py(10): step", 0, 990)
    job.frame("metrics.py(5): tally", 300, 890)
    job.rows.append(span("Python GC (generation 2)", job.at + 400 * US, job.at + 800 * US))
    job.op("aten::mm", 10, 30)
    job.work("gemm", 15, 20, 290)
    job.op("aten::mm", 900, 930)
    job.work("gemm", 905, 910, 990)


def test_a_collection_is_where_objects_are_made() -> None:
    (place,) = Job().steps(collects).places("host.gc")
    assert (place.place.file, place.place.function) == ("metrics.py", "tally")
    assert place.ns == N_STEPS * 400 * US


def backward(job: Job) -> None:
    """Autograd's thread runs the backward pass of two layers; the second one's takes most."""
    job.frame("train.py(10): step", 0, 990)
    for layer in range(2):
        at = 10 + 100 * layer
        job.frame(f"nn.Module: Linear_{layer}", at, at + 50)
        job.frame(f"net.py({5 + layer}): forward", at + 1, at + 49)
        begin, end = job.at + (at + 5) * US, job.at + (at + 20) * US
        number = 2 * round((job.at - START) / STEP_US / US) + layer
        # an operator without a derivative has the number of the next one that has one
        job.rows.append(operator("aten::item", begin - 2 * US, begin - US, Sequence_number=number, Fwd_thread_id=0))
        job.rows.append(operator("aten::mul", begin, end, Sequence_number=number, Fwd_thread_id=0))
        job.work("vectorized_elementwise_kernel", at + 8, 20 + 80 * layer, 100 + 80 * layer)
    for layer in (1, 0):
        at = 300 + 100 * (1 - layer)
        number = 2 * round((job.at - START) / STEP_US / US) + layer
        name = "autograd::engine::evaluate_function: MulBackward0"
        begin, end = job.at + at * US, job.at + (at + 50) * US
        job.rows.append(operator(name, begin, end, tid=1001, Sequence_number=number, Fwd_thread_id=1))
        job.rows.append(operator("aten::mul", begin + US, end - US, tid=1001))
        job.n_launched += 1
        busy = (180, 700) if layer else (700, 990)
        args = {"correlation": job.n_launched}
        job.rows.append(kernel("vectorized_elementwise_kernel", job.at + busy[0] * US, job.at + busy[1] * US, **args))
        at = job.at + at * US
        job.rows.append(replace(launch(at + 5 * US, at + 9 * US, correlation=job.n_launched), tid=1001))


def test_the_backward_pass_is_where_its_forward_was() -> None:
    first = Job().steps(backward).places("kernel.unfused")[0]
    assert first.place.name == "forward() (net.py:6)"
    assert first.place.module == "Linear[1]"
    assert first.phase.word == "backward"


@pytest.mark.parametrize("draw", [waits, slow, copies, allocates, computes, reduces, loads, backward])
def test_shares_add_up_to_no_more_than_all(draw: object) -> None:
    for finding in analyse(trace_of(Job().steps(draw).rows)).rank.findings:
        assert sum(share.share for share in finding.places) <= 1 + 1e-9
        assert [share.ns for share in finding.places] == sorted((share.ns for share in finding.places), reverse=True)
