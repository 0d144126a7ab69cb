"""FLOPs of whole models, from their traces, against torch.utils.flop_counter."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.checkpoint import set_checkpoint_early_stop  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count  # noqa: E402

from profkit.analyzers.roof import ANALYZER  # noqa: E402
from profkit.ingest.read import read_traces  # noqa: E402
from profkit.model.trace import Signature  # noqa: E402
from profkit.roof.formulas import work_of  # noqa: E402
from profkit.timeline import Facts  # noqa: E402
from tests.conftest import dear  # noqa: E402
from workloads.models import build_model  # noqa: E402
from workloads.presets import Doses  # noqa: E402
from workloads.sequences import model as sequences  # noqa: E402
from workloads.vlm import model as vlm  # noqa: E402
from workloads.vlm.data import Captions  # noqa: E402
from workloads.vlm.sizes import SIZES  # noqa: E402
from workloads.vlm.splice import plan_splice  # noqa: E402

pytestmark = pytest.mark.torch


def traced(step, path):
    """The distance that the trace of `step` shows."""
    step()
    with torch.profiler.profile(record_shapes=True) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    return ANALYZER.measure(Facts.of(next(iter(read_traces(str(path))))))


def counted(step):
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def _mlp():
    model = build_model("baseline", Doses(hidden=96, batch=16, features=64, classes=10))
    x = torch.randn(16, 64)
    return lambda: model(x).square().sum().backward()


def _cnn():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding="same", dilation=2), nn.ConvTranspose2d(32, 8, 2, stride=2), nn.Flatten(),
        nn.LazyLinear(10),
    )  # fmt: skip
    x = torch.randn(4, 3, 32, 32)
    model(x)
    return lambda: model(x).square().sum().backward()


def _transformer():
    model = sequences.Classifier(sequences.Sizes())
    batch = sequences.padded([torch.randint(1, 100, (n,)) for n in (30, 17, 64)], [0, 1, 2])
    return lambda: model(batch).square().sum().backward()


def _vlm(*, is_checkpointed):
    sizes = SIZES["tiny"]
    model = vlm.build_model(sizes, stage=2, lora_rank=0, is_tied=True, is_checkpointed=is_checkpointed)
    images, ids, labels = zip(*(Captions(sizes, n_samples=3, seed=1)[place] for place in range(3)), strict=True)
    splice = plan_splice(ids, labels, n_vision=sizes.n_vision)
    return lambda: model(torch.stack(images), splice).backward()


@pytest.mark.parametrize(
    "make",
    [_mlp, _cnn, _transformer, dear(lambda: _vlm(is_checkpointed=False))],
    ids=["mlp", "cnn", "transformer", "vlm"],
)
def test_the_flops_of_a_model_are_those_that_torch_counts(make, tmp_path):
    torch.manual_seed(0)
    step = make()
    with sdpa_kernel(SDPBackend.MATH):  # torch counts no fused attention on a CPU
        expected, result = counted(step), traced(step, tmp_path / "trace.json")
    assert result.flops() == pytest.approx(expected, rel=0.01)
    assert result.flops(is_recomputed=True) == 0


def test_what_checkpointing_runs_again_is_apart(tmp_path):
    torch.manual_seed(0)
    # to the end: stopped early, its last operator is entered and not run, which a CPU's trace does not tell
    with sdpa_kernel(SDPBackend.MATH), set_checkpoint_early_stop(enable=False):
        plain = counted(_vlm(is_checkpointed=False))
        both = counted(_vlm(is_checkpointed=True))
        result = traced(_vlm(is_checkpointed=True), tmp_path / "trace.json")
    assert both > 1.1 * plain
    assert result.flops() == pytest.approx(plain, rel=0.01)
    assert result.flops(is_recomputed=True) == pytest.approx(both - plain, rel=0.01)


def test_groups_are_where_torch_is_wrong(tmp_path):
    model = nn.Conv2d(16, 32, 3, groups=4, bias=False)
    x = torch.randn(2, 16, 12, 12, requires_grad=True)
    each = 2 * (2 * 32 * 10 * 10) * (4 * 3 * 3)  # forward, and each of two gradients

    def step():
        model(x).sum().backward()

    assert traced(step, tmp_path / "trace.json").flops() == 3 * each
    assert counted(step) > 3 * each  # its gradient of the weight leaves out the groups


def test_fused_attention_of_a_cpu_is_counted(tmp_path):
    q, k, v = (torch.randn(2, 4, 32, 16, requires_grad=True) for _ in range(3))

    def step():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()

    shape = (2, 4, 32, 16)
    result = traced(step, tmp_path / "trace.json")
    assert result.flops() == sdpa_flop_count(shape, shape, shape) + sdpa_backward_flop_count(shape, shape, shape, shape)


@pytest.mark.parametrize("n_keys", [16, 48])
def test_attention_of_a_gpu_is_what_torch_counts(n_keys):
    q, k, v = (2, 8, 32, 16), (2, 8, n_keys, 16), (2, 8, n_keys, 24)
    forward = Signature(
        (q, k, v, (), (), (), ()), ("c10::Half",) * 3 + ("Scalar",) * 3 + ("",), (), ("",) * 4 + ("True", "", "")
    )
    work = work_of("aten::_scaled_dot_product_flash_attention", forward)
    assert work.flops == sdpa_flop_count(q, k, v)
